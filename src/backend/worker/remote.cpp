// A backend whose work is done by a worker process. When a worker dies, the candidate fails and the run goes on.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>

#include "backend/worker/compiler_pool.h"
#include "backend/worker/link.h"
#include "backend/worker/protocol.h"
#include "backend/worker/worker.h"
#include "base/error.h"
#include "base/text/units.h"
#include "workload/product/work.h"

namespace moetune {
namespace {

constexpr double kLeastCompileSeconds = 10;
constexpr size_t kManyToCompile = 4;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class WorkerBackend final : public Backend {
 public:
  explicit WorkerBackend(const WorkerOptions& options) : options_(options) { start(); }

  const DeviceInfo& device() const override { return device_; }
  Json environment() override { return environment_; }
  std::vector<std::string> baselines() const override { return baselines_; }

  void load(const Problem& problem) override { load_both(problem, std::nullopt); }
  void load_layer(const Problem& up, const Problem& down) override { load_both(up, down); }

  // The pool compiles and the worker loads from the cache; results are those of the pool. For a few candidates the
  // worker is faster, because processes have to start.
  std::vector<CompileResult> compile(const Shape& shape, std::span<const Candidate> candidates) override {
    if (compiled_shape_ != shape) {
      compiled_.clear();
      compiled_shape_ = shape;
    }
    std::map<Candidate, CompileResult> made;
    if (candidates.size() >= kManyToCompile || pool_)
      if (CompilerPool* compilers = pool()) made = compilers->compile(shape, candidates);
    std::vector<CompileResult> results;
    compile_part(shape, candidates, options_.compile_seconds, results);
    for (size_t i = 0; i < candidates.size(); ++i) {
      compiled_.try_emplace(candidates[i], 0);  // those that ended the compiler
      const auto found = made.find(candidates[i]);
      if (found == made.end() || found->second.status == Status::compile_error) continue;
      if (results[i].from_cache)
        results[i] = found->second;
      else
        cache_fails_ = true;
    }
    return results;
  }

  bool compile_ahead(const Shape& shape, std::span<const Candidate> next, std::span<const Candidate> later) override {
    if (next.size() + later.size() < kManyToCompile && !pool_) return false;
    CompilerPool* compilers = pool();
    return compilers && compilers->want(shape, next, later);
  }

  size_t first_compiled(const Shape& shape, std::span<const Candidate> candidates) override {
    return pool_ ? pool_->first_of(shape, candidates) : 0;
  }

  Verdict verify(const Contender& contender) override {
    const Json answer = ask_trial("verify", contender, Json::object(), trial_limit());
    verified_ = contender;
    verify_took_ = took_;
    return verdict_from_json(JsonAt(answer, "the worker's verdict"));
  }

  Repetition repeat(const Contender& contender, double seconds) override {
    const Json answer = ask_trial("repeat", contender, {{"seconds", seconds}}, trial_limit() + 2 * seconds);
    return repetition_from_json(JsonAt(answer, "the worker's repetition"));
  }

  std::vector<Block> sample(const Contender& contender, const SampleRequest& request) override {
    const double limit = trial_limit() + seconds_at_most(request);
    const Json answer = ask_trial("sample", contender, {{"sample", to_json(request)}}, limit);
    const double took = took_ + (verified_ == contender ? verify_took_ : 0);
    best_trial_ = std::min(best_trial_.value_or(took), took);
    healthy_ = contender;
    return blocks_from_json(JsonAt(answer, "the worker's blocks"));
  }

  Ceilings ceilings() override {
    const auto turn = take_turn();
    make_ready();
    try {
      const Json answer = link_.ask("ceilings", Json::object(), options_.load_seconds);
      return ceilings_from_json(JsonAt(answer, "the worker's ceilings"));
    } catch (const WorkerGone& gone) {
      throw machine_error(fmt::format("the ceilings of {} could not be measured: {}", options_.device, gone.what()),
                          "end other programs on the device and try again");
    }
  }

 private:
  void load_both(const Problem& problem, std::optional<Problem> down) {
    problem_ = problem;
    down_ = std::move(down);
    loaded_ = referred_ = false;
    verified_.reset();
    best_trial_.reset();
    healthy_.reset();
    try {
      prepare(false);
    } catch (...) {
      problem_.reset();  // a worker started later must not try again
      throw;
    }
  }

  // Starts a worker and reads its hello; no problem is loaded in it yet. One that a signal ended on its way is started
  // again: it may have been killed from outside.
  void start() {
    for (int deaths = 1;; ++deaths) {
      link_ = Link(options_.command);
      loaded_ = referred_ = false;
      ++worker_;
      try {
        return greet();
      } catch (const WorkerGone& gone) {
        if (gone.signal != 0 && deaths < kDeathsInARow) continue;
        if (!options_.program.empty())
          throw machine_error(
              fmt::format("{} is not a moetune, or does not run here: {}", options_.program, gone.what()),
              "give the path of another moetune, or a folder of kernels or packs");
        throw machine_error(fmt::format("the worker for {} did not start: {}", options_.device, gone.what()),
                            "see `moetune doctor`, or try --device cpu");
      }
    }
  }

  void greet() {
    const Json answer = link_.ask("hello", {{"device", options_.device}, {"options", to_json(options_.backend)}},
                                  options_.start_seconds);
    const JsonAt hello(answer, "the worker's greeting");
    const int64_t theirs = hello.has("protocol") ? hello["protocol"].integer(1) : 1;
    if (theirs != kProtocol)  // a worker is this program, or one that --against names
      throw machine_error(fmt::format("{} speaks version {} of the worker protocol, this program version {}",
                                      options_.program.empty() ? "the worker" : options_.program, theirs, kProtocol),
                          "compare with a moetune whose version is nearer to this one");
    device_ = device_from_json(hello["device"]);
    environment_ = hello["environment"].value();
    baselines_ = hello["baselines"].value().get<std::vector<std::string>>();
  }

  std::unique_lock<std::recursive_mutex> take_turn() const {
    return options_.turn ? std::unique_lock(*options_.turn) : std::unique_lock<std::recursive_mutex>();
  }

  void make_ready(bool references = false) {
    if (!link_.alive()) start();
    if (!problem_ || (loaded_ && (referred_ || !references))) return;
    const bool again = !loaded_;
    try {
      prepare(references);
    } catch (const OutOfMemory& memory) {
      if (!again) throw CandidateFault(Status::launch_error, fmt::format("out of memory: {}", memory.what()));
      throw machine_error(fmt::format("a problem that fitted before doesn't fit into memory now: {}", memory.what()),
                          "another program takes the memory; end it, then go on with --resume");
    }
  }

  // Loads the problem and makes its reference results, where this worker hasn't yet. The first death may be a user's
  // doing (kill -9): it tries once more. A second SIGKILL is taken for the kernel's, which is out of memory.
  void prepare(bool references) {
    const auto turn = take_turn();
    const auto timed = [&](const std::string& call, const Json& body) {
      const double before = now();
      link_.ask(call, body, options_.load_seconds);
      return now() - before;
    };
    for (int attempt = 1;; ++attempt) {
      if (!link_.alive()) start();
      try {
        Json body = {{"problem", to_json(*problem_)}};
        if (down_) body["down"] = to_json(*down_);
        if (!loaded_) load_took_ = timed(down_ ? "load_layer" : "load", body);
        loaded_ = true;
        if (references && !referred_) load_took_ += timed("references", Json::object());
        referred_ = referred_ || references;
        return;
      } catch (const WorkerGone& gone) {
        if (!gone.timed_out && attempt == 1) continue;
        const auto needed = static_cast<int64_t>(bytes(product_of(*problem_)));
        if (gone.signal == SIGKILL)
          throw OutOfMemory(fmt::format("the worker was killed twice while it made the operands ({})", gone.what()),
                            needed);
        throw machine_error(fmt::format("a problem of {} could not be loaded: {}",
                                        format_bytes(static_cast<double>(needed)), gone.what()),
                            "see `moetune doctor`, or try smaller sizes");
      }
    }
  }

  // Halves a batch until the candidate that ends the compiler is alone; the others come from the cache by then. A
  // SIGKILL may come from a user, or from the kernel when memory is short, so after the first it is compiled again.
  void compile_part(const Shape& shape, std::span<const Candidate> part, double limit, std::vector<CompileResult>& to,
                    bool may_be_killed = true) {
    if (part.empty()) return;
    if (!link_.alive()) start();
    try {
      const Json answer = link_.ask("compile", {{"shape", to_json(shape)}, {"candidates", json_list(part)}}, limit);
      const JsonAt results(answer, "the worker's compile results");
      if (results.size() != part.size()) throw Error(Exit::bug, "not every candidate got a compile result");
      each(results, [&](const JsonAt& result) { to.push_back(compile_result_from_json(result)); });
      for (const Candidate& candidate : part) compiled_[candidate] = worker_;
    } catch (const OutOfMemory& memory) {
      throw machine_error(fmt::format("no memory to compile: {}", memory.what()), "end other programs");
    } catch (const WorkerGone& gone) {
      if (part.size() == 1 && gone.signal == SIGKILL && may_be_killed) {
        compile_part(shape, part, limit, to, false);
        return;
      }
      if (part.size() == 1) {
        const char* what = gone.timed_out ? "the compiler hung" : "the compiler crashed";
        to.push_back({.status = Status::compile_error, .reason = fmt::format("{}: {}", what, gone.what())});
        return;
      }
      const double less = std::max(limit / 2, std::min(limit, kLeastCompileSeconds));
      compile_part(shape, part.first(part.size() / 2), less, to);
      compile_part(shape, part.subspan(part.size() / 2), less, to);
    }
  }

  // Null where kernels can't reach the worker through the cache on disk. A cpu has nothing to compile.
  CompilerPool* pool() {
    if (device_.kind != DeviceKind::cuda || !options_.backend.cache || cache_fails_) return nullptr;
    if (!pool_) {
      WorkerOptions compiler = options_;
      compiler.device = "arch:" + arch(device_);
      pool_.emplace(compiler);
    }
    return &*pool_;
  }

  // A new worker compiles what the old one had, one by one as it is asked for, outside the limit of a trial.
  void compile_again(const Contender& contender) {
    if (!contender.baseline.empty()) return;
    const auto found = compiled_.find(contender.candidate);
    if (found == compiled_.end() || found->second == worker_) return;
    std::vector<CompileResult> results;
    compile_part(*compiled_shape_, std::span(&contender.candidate, 1), options_.compile_seconds, results);
    if (results[0].status != Status::ok) throw CandidateFault(results[0].status, results[0].reason);
    make_ready();  // where that took another worker
  }

  double trial_limit() const {
    // Before anything has been timed, the times of loading and of making the reference show how large the problem is.
    return std::max(options_.trial_seconds, options_.trial_factor * best_trial_.value_or(load_took_));
  }

  // Crashes in a row may come from a bad knob or from a lost device: a contender that ran before is run again to find
  // out.
  void require_healthy() {
    if (deaths_ < kDeathsInARow) return;
    std::optional<Contender> probe = healthy_;
    if (!probe && !baselines_.empty()) probe = Contender{.baseline = baselines_.front()};
    std::string reason = "nothing has run on it yet";
    if (probe) try {
        make_ready();
        link_.ask("sample", {{"contender", to_json(*probe)}, {"sample", to_json(SampleRequest{})}}, trial_limit());
        deaths_ = 0;
        return;
      } catch (const WorkerGone& gone) {
        reason = fmt::format("{}, which should run, does not: {}", text(*probe), gone.what());
      } catch (const CandidateFault& fault) {
        reason = fmt::format("{}, which should run, does not: {}", text(*probe), fault.what());
      }
    throw machine_error(fmt::format("the worker for {} died {} times in a row; {}", options_.device, deaths_, reason),
                        "the device may be stuck: see `moetune doctor` and dmesg; then go on with --resume");
  }

  // A SIGKILL may come from a user, or from the kernel when memory is short, so after the first a new worker gets the
  // same request.
  Json ask_trial(const std::string& call, const Contender& contender, Json body, double limit) {
    const auto turn = take_turn();
    require_healthy();
    body["contender"] = to_json(contender);
    for (int attempt = 1;; ++attempt) {
      make_ready(call == "verify" && !down_);
      compile_again(contender);
      const double before = now();
      try {
        Json answer = link_.ask(call, body, limit);
        took_ = now() - before;
        deaths_ = 0;
        return answer;
      } catch (const OutOfMemory& memory) {
        throw CandidateFault(Status::launch_error, fmt::format("out of memory: {}", memory.what()));
      } catch (const CandidateFault& fault) {
        if (fault.status == Status::launch_error) link_.end();  // its CUDA context is lost and the worker exits
        throw;
      } catch (const WorkerGone& gone) {
        if (gone.signal == SIGKILL && attempt == 1) continue;
        ++deaths_;
        throw CandidateFault(gone.timed_out ? Status::timeout : Status::crashed, gone.what());
      }
    }
  }

  WorkerOptions options_;
  Link link_;
  DeviceInfo device_;
  Json environment_;
  std::vector<std::string> baselines_;

  std::optional<CompilerPool> pool_;
  bool cache_fails_ = false;  // the worker didn't find the pool's kernels there

  // What a new worker must be given again.
  std::optional<Problem> problem_, down_;  // down_: of a layer
  bool loaded_ = false;                    // by this worker
  bool referred_ = false;                  // it has made the reference results as well
  int worker_ = 0;                         // how many have been started
  std::map<Candidate, int> compiled_;      // for the problem's shape: by which worker; 0 = none
  std::optional<Shape> compiled_shape_;

  // The watchdog.
  double load_took_ = 0;
  double took_ = 0;                    // the last answer to verify or sample
  std::optional<Contender> verified_;  // last, and how long that took
  double verify_took_ = 0;
  std::optional<double> best_trial_;  // verify and sample, of this problem
  int deaths_ = 0;                    // in a row
  std::optional<Contender> healthy_;  // has been timed on this problem
};

}  // namespace

std::unique_ptr<Backend> make_worker_backend(const WorkerOptions& options) {
  return std::make_unique<WorkerBackend>(options);
}

std::vector<ListedDevice> list_devices_in_worker(const WorkerOptions& options) {
  Link link(options.command);
  try {
    const Json answer = link.ask("devices", Json::object(), options.start_seconds);
    return devices_from_json(JsonAt(answer, "the worker's devices"));
  } catch (const WorkerGone& gone) {
    throw machine_error(fmt::format("devices could not be listed: {}", gone.what()), "see `moetune doctor`");
  }
}

}  // namespace moetune
