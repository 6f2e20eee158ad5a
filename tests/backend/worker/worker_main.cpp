// A worker process over the fake backend. The device word says what shall go wrong, so that it travels the usual way:
//   fake;log=FILE;crash=PART;...   PART is a piece of the contender's text, empty for every contender
// crash, hang, launch, wrong: in verify. crash-sample, hang-sample: in sample. crash-repeat, hang-repeat, differ: in
// repeat, which takes as long as it is asked to. crash-once=FILE, hang-once=FILE: in sample, where FILE does not exist
// yet; hello-kill-once=FILE: the same at the start. compile-crash, compile-hang: when PART is in the batch.
// hello-crash, hello-error, hello-hang, load-crash, load-hang, load-kill, load-error: there. oom=BYTES: load throws
// OutOfMemory. lost=FILE: once FILE is there, no call comes back and no new worker starts. say=TEXT: on standard error.
// log=FILE: a line a call, with the process id.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "backend/worker/worker.h"
#include "base/error.h"
#include "base/system/file.h"
#include "base/text/units.h"
#include "tune/fake_backend.h"

namespace moetune::fake {
namespace {

using Faults = std::map<std::string, std::string>;

Faults parse_faults(const std::string& device) {
  Faults faults;
  for (const std::string& word : split(device, ';')) {
    const size_t equals = word.find('=');
    faults[word.substr(0, equals)] = equals == std::string::npos ? "" : word.substr(equals + 1);
  }
  return faults;
}

[[noreturn]] void sleep_forever() {
  for (;;) ::pause();
}

class FaultyBackend final : public Backend {
 public:
  explicit FaultyBackend(Faults faults) : faults_(std::move(faults)) {
    log("hello");
    if (faults_.contains("say")) (void)!::write(STDERR_FILENO, faults_["say"].data(), faults_["say"].size());
    if (faults_.contains("hello-error")) throw machine_error("no such GPU", "try another");
    if (lost()) throw machine_error("no such GPU", "try another");
    if (first_time("hello-kill-once")) ::raise(SIGKILL);
    fail_at("hello", "");
  }

  const DeviceInfo& device() const override { return inner_.device(); }
  Json environment() override { return inner_.environment(); }
  std::vector<std::string> baselines() const override { return inner_.baselines(); }
  Ceilings ceilings() override { return inner_.ceilings(); }

  std::vector<CompileResult> compile(const Shape& shape, std::span<const Candidate> candidates) override {
    log(fmt::format("compile {} {}", candidates.size(), candidates.empty() ? "" : text(candidates.front())));
    for (const Candidate& candidate : candidates) fail_at("compile", text(candidate));
    return inner_.compile(shape, candidates);
  }

  void load(const Problem& problem) override {
    log("load");
    fail_at("load", "");
    if (faults_.contains("load-kill")) ::raise(SIGKILL);
    if (faults_.contains("load-error")) throw std::logic_error("an invariant broke");
    if (faults_.contains("oom")) throw OutOfMemory("too little is free", std::stoll(faults_["oom"]));
    inner_.load(problem);
  }

  void load_layer(const Problem& up, const Problem& down) override {
    log("load_layer");
    inner_.load_layer(up, down);
  }

  void make_references() override {
    log("references");
    fail_at("references", "");
    if (faults_.contains("slow-references"))
      ::usleep(static_cast<useconds_t>(std::stod(faults_["slow-references"]) * 1e6));
  }

  Verdict verify(const Contender& contender) override {
    const std::string who = enter("verify", contender);
    if (hits("crash", who)) ::abort();
    if (hits("hang", who)) sleep_forever();
    if (hits("launch", who)) {
      poisoned_ = true;
      throw CandidateFault(Status::launch_error, "an illegal memory access was encountered");
    }
    return hits("wrong", who) ? wrong() : inner_.verify(contender);
  }

  Repetition repeat(const Contender& contender, double seconds) override {
    const std::string who = enter("repeat", contender);
    if (hits("crash-repeat", who)) ::abort();
    if (hits("hang-repeat", who)) sleep_forever();
    ::usleep(static_cast<useconds_t>(seconds * 1e6));
    if (hits("differ", who)) return {.launches = 9, .different = 2, .reason = "launch 4 differs"};
    return inner_.repeat(contender, seconds);
  }

  std::vector<Block> sample(const Contender& contender, const SampleRequest& request) override {
    const std::string who = enter("sample", contender);
    if (hits("crash-sample", who) || first_time("crash-once")) ::abort();
    if (hits("hang-sample", who) || first_time("hang-once")) sleep_forever();
    return inner_.sample(contender, request);
  }

 private:
  bool hits(const std::string& fault, const std::string& who) const {
    const auto found = faults_.find(fault);
    return found != faults_.end() && who.find(found->second) != std::string::npos;
  }

  bool lost() const {
    const auto found = faults_.find("lost");
    return found != faults_.end() && std::filesystem::exists(found->second);
  }

  bool first_time(const std::string& fault) const {
    const auto found = faults_.find(fault);
    if (found == faults_.end() || std::filesystem::exists(found->second)) return false;
    std::ofstream(found->second) << "once";
    return true;
  }

  void fail_at(const std::string& call, const std::string& who) const {
    if (hits(call + "-crash", who)) ::abort();
    if (hits(call + "-hang", who)) sleep_forever();
  }

  // As a CUDA context does after a fault: every later call fails too.
  std::string enter(const std::string& call, const Contender& contender) {
    const std::string who = text(contender);
    log(call + " " + who);
    if (lost()) ::abort();
    if (poisoned_) throw CandidateFault(Status::launch_error, "the context is lost");
    return who;
  }

  void log(const std::string& line) {
    const auto found = faults_.find("log");
    if (found != faults_.end()) AppendFile(found->second).append(fmt::format("{} {}", ::getpid(), line));
  }

  Faults faults_;
  FakeBackend inner_;
  bool poisoned_ = false;
};

}  // namespace
}  // namespace moetune::fake

// `babble` answers nonsense, `leave` exits at once, anything else serves.
int main(int argc, char** argv) {
  using namespace moetune;
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "leave") return 7;
  if (mode == "babble") {
    (void)!::write(3, "hello yourself\n", 15);
    fake::sleep_forever();
  }
  return serve_worker(3, [](const std::string& device, const BackendOptions&) -> std::unique_ptr<Backend> {
    return std::make_unique<fake::FaultyBackend>(fake::parse_faults(device));
  });
}
