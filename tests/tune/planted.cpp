// moetune with a planted fault, for tests of the whole program: the cpu backend behind it is the real one.
// MOETUNE_PLANT is a list of faults, separated by semicolons. PART is a piece of a candidate's text; empty: all.
//   slow:1.10   samples of candidates really take that many times as long; baselines stay
//   wrong:PART  verify finds an element that differs
//   crash:PART  the process aborts in sample      hang:PART  sample never returns
//   abort:PART  the process aborts in verify       spills:PART the compiler says that registers spill
//   launch:PART verify fails to launch the kernel
//   unsteady:PART  repeat finds a launch that differs
//   trial_ms:N  every sample of a candidate takes N ms longer, outside its measured time
//   waited:S    others take the share S of the processors' time while anything is measured
//   steady:N    every block takes N us, and up to 0.6 % more in a fixed order: no judgement depends on the machine
//   watts:N     every launch takes the energy of N watts
//   lacks:      the baselines cannot multiply the problem
//   start_ms:N  opening the device takes N ms longer
//   gpus:N      the cpu is listed as N GPUs, cuda:0 to cuda:N-1; with unlike: the last is of another model
//   gone:FILE   the last of these GPUs is lost once FILE is there
//   exclusive:DIR  one of these GPUs takes one process at a time. DIR is for locks
//   h200:       every device is an H200 that computes nothing: all is right, and times are a formula. The summary of a
//               pack may hold a fault of its kernels: wrong, or slow:1.10
//   alone:DIR   nobody else may use one of these GPUs meanwhile: who does so fails to launch. DIR is for locks
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <thread>

#include "base/error.h"
#include "base/text/units.h"
#include "cli/app.h"
#include "variant/pack/pack.h"

namespace moetune {
namespace {

using Plant = std::map<std::string, std::string>;

Plant read_plant() {
  Plant plant;
  const char* text = std::getenv("MOETUNE_PLANT");
  for (const std::string& fault : split(text ? text : "", ';')) {
    const size_t colon = fault.find(':');
    plant[fault.substr(0, colon)] = colon == std::string::npos ? "" : fault.substr(colon + 1);
  }
  for (const auto& [fault, value] : plant) {
    const std::vector<std::string> known = {
        "slow",   "wrong", "crash", "hang",   "abort", "launch", "spills", "unsteady", "trial_ms",  "start_ms",
        "waited", "watts", "lacks", "steady", "gpus",  "unlike", "gone",   "alone",    "exclusive", "h200"};
    if (std::find(known.begin(), known.end(), fault) == known.end())
      throw unknown_word("MOETUNE_PLANT fault", fault, known);
  }
  return plant;
}

void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// The GPUs that are planted.
std::vector<ListedDevice> planted_gpus(const Plant& plant) {
  const auto count = plant.contains("gpus") ? parse_integer(plant.at("gpus"), "gpus", 1, 8) : 0;
  std::vector<ListedDevice> gpus;
  for (const ListedDevice& cpu : list_devices())
    for (int64_t i = 0; cpu.word == "cpu" && i < count; ++i) {
      gpus.push_back({fmt::format("cuda:{}", i), cpu.info});
      gpus.back().info.id = fmt::format("planted-{}", i);
      if (i == count - 1 && plant.contains("unlike")) gpus.back().info.name = "another model";
    }
  return gpus;
}

bool is_gone(const Plant& plant, const DeviceInfo& device) {
  return plant.contains("gone") && std::filesystem::exists(plant.at("gone")) &&
         device.id == planted_gpus(plant).back().info.id;
}

// Holds a GPU while it lives, where the fault is planted.
class Alone {
 public:
  Alone(const Plant& plant, const std::string& fault, const DeviceInfo& device) {
    if (!plant.contains(fault)) return;
    file_ =
        ::open(fmt::format("{}/{}.{}", plant.at(fault), device.id, fault).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    holds_ = file_ >= 0 && ::flock(file_, LOCK_EX | LOCK_NB) == 0;
  }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
  ~Alone() { ::close(file_); }
  bool holds() const { return holds_; }

 private:
  int file_ = -1;
  bool holds_ = true;
};

// Holds a GPU while it is used.
class Use : Alone {
 public:
  Use(const Plant& plant, const DeviceInfo& device) : Alone(plant, "alone", device) {
    if (!holds()) throw CandidateFault(Status::launch_error, "the GPU is in use: planted");
  }
};

class PlantedBackend final : public Backend {
 public:
  PlantedBackend(std::unique_ptr<Backend> inner, const DeviceInfo& device, Plant plant)
      : inner_(std::move(inner)), device_(device), plant_(std::move(plant)), process_(plant_, "exclusive", device_) {
    if (!process_.holds()) throw machine_error("the GPU is in exclusive mode and has a process: planted");
  }

  const DeviceInfo& device() const override { return device_; }
  Json environment() override { return inner_->environment(); }
  std::vector<std::string> baselines() const override { return inner_->baselines(); }
  void load(const Problem& problem) override {
    const Use use(plant_, device_);
    inner_->load(problem);
  }
  void load_layer(const Problem& up, const Problem& down) override {
    const Use use(plant_, device_);
    inner_->load_layer(up, down);
  }
  void make_references() override { inner_->make_references(); }
  Ceilings ceilings() override { return inner_->ceilings(); }
  std::vector<CompileResult> compile(const Shape& shape, std::span<const Candidate> candidates) override {
    std::vector<CompileResult> results = inner_->compile(shape, candidates);
    for (size_t i = 0; i < results.size(); ++i)
      if (hits("spills", {.baseline = "", .candidate = candidates[i]}))
        results[i] = {.status = Status::spills, .reason = "registers spill: 8 bytes stored and loaded"};
    return results;
  }

  Verdict verify(const Contender& contender) override {
    const Use use(plant_, device_);
    if (hits("abort", contender)) std::abort();
    if (hits("launch", contender)) throw CandidateFault(Status::launch_error, "an illegal memory access: planted");
    if (plant_.contains("lacks") && !contender.baseline.empty())
      throw CandidateFault(Status::illegal, "it has no such product: planted");
    Verdict verdict = inner_->verify(contender);
    if (!hits("wrong", contender)) return verdict;
    verdict.ok = false;
    verdict.mismatches = 1;
    verdict.reason = fmt::format("1 of {} elements differs: planted", verdict.elements);
    return verdict;
  }

  Repetition repeat(const Contender& contender, double seconds) override {
    Repetition repetition = inner_->repeat(contender, seconds);
    if (hits("unsteady", contender)) repetition.different = 1, repetition.reason = "launch 2 differs: planted";
    return repetition;
  }

  std::vector<Block> sample(const Contender& contender, const SampleRequest& request) override {
    const Use use(plant_, device_);
    if (hits("crash", contender) || is_gone(plant_, device_)) std::abort();
    while (hits("hang", contender)) ::pause();
    std::vector<Block> blocks = inner_->sample(contender, request);
    if (plant_.contains("waited"))
      for (Block& block : blocks) block.waited = parse_number(plant_["waited"], "waited");
    if (plant_.contains("steady"))
      for (Block& block : blocks)
        block.seconds = parse_number(plant_["steady"], "steady") * 1e-6 * (1 + 0.001 * (taken_++ % 7));
    if (plant_.contains("watts"))
      for (Block& block : blocks)
        block.metrics[Metric::energy] = parse_number(plant_["watts"], "watts") * block.seconds;
    if (!contender.baseline.empty()) return blocks;
    if (plant_.contains("slow")) slow_down(blocks, contender, request, parse_number(plant_["slow"], "slow") - 1);
    if (plant_.contains("trial_ms")) sleep_for(parse_number(plant_["trial_ms"], "trial_ms") * 1e-3);
    return blocks;
  }

 private:
  bool hits(const std::string& fault, const Contender& contender) const {
    const auto found = plant_.find(fault);
    return found != plant_.end() && contender.baseline.empty() &&
           text(contender).find(found->second) != std::string::npos;
  }

  // The time goes into more of the same work: processors that slept are slower for whoever comes next.
  void slow_down(std::vector<Block>& blocks, const Contender& contender, const SampleRequest& request, double share) {
    SampleRequest more = request;
    more.block_seconds = share * request.block_seconds;
    inner_->sample(contender, more);
    for (Block& block : blocks) block.seconds *= 1 + share;
  }

  std::unique_ptr<Backend> inner_;
  DeviceInfo device_;
  Plant plant_;
  Alone process_;
  int taken_ = 0;  // blocks
};

// Small tiles in few stages waste nothing; BLOCK_SIZE_N is best at 64.
class ImaginaryH200 final : public Backend {
 public:
  const DeviceInfo& device() const override { return device_; }
  Json environment() override { return {{"identity", {{"imaginary", "1"}}}}; }
  std::vector<std::string> baselines() const override { return {}; }
  void load(const Problem& problem) override { problem_ = problem; }
  Ceilings ceilings() override { return {}; }
  std::vector<CompileResult> compile(const Shape&, std::span<const Candidate> candidates) override {
    return std::vector<CompileResult>(candidates.size());
  }
  Verdict verify(const Contender& contender) override {
    if (summary_of(contender) == "wrong")
      return {.ok = false, .reason = "1 of 1 element differs: planted", .elements = 1};
    return {.ok = true, .reason = "", .elements = 1};
  }
  Repetition repeat(const Contender&, double) override { return {}; }
  std::vector<Block> sample(const Contender& contender, const SampleRequest& request) override {
    const int64_t block_m = block_m_of(contender.candidate).value_or(64);
    int64_t rows = 0;
    for (const int64_t m : problem_.routing.m_sizes) rows += (m + block_m - 1) / block_m * (block_m + 16);
    const double wide = std::abs(std::log2(block_n_of(contender.candidate).value_or(64) / 64.0));
    const double stages = find_value(contender.candidate, "num_stages").value_or(0);
    double seconds = 1e-8 * static_cast<double>(rows) * (1 + 0.1 * wide + 0.01 * stages);
    if (const std::string summary = summary_of(contender); summary.starts_with("slow:"))
      seconds *= parse_number(summary.substr(5), "slow");
    return std::vector<Block>(static_cast<size_t>(request.blocks), {.seconds = seconds, .launches = 10});
  }

 private:
  static std::string summary_of(const Contender& contender) {
    const Pack* pack = contender.candidate.variant->pack.get();
    return pack ? pack->summary : "";
  }

  DeviceInfo device_ = device_of_arch("h200");
  Problem problem_;
};

std::unique_ptr<Backend> open_planted(const std::string& device, const BackendOptions& options) {
  Plant plant = read_plant();
  if (plant.contains("h200")) return std::make_unique<ImaginaryH200>();
  if (plant.contains("start_ms")) sleep_for(parse_number(plant["start_ms"], "start_ms") * 1e-3);
  for (const ListedDevice& gpu : planted_gpus(plant)) {
    if (gpu.word != device) continue;
    if (is_gone(plant, gpu.info)) throw machine_error("the driver has lost the GPU");
    return std::make_unique<PlantedBackend>(open_backend("cpu", options), gpu.info, std::move(plant));
  }
  std::unique_ptr<Backend> inner = open_backend(device, options);
  const DeviceInfo info = inner->device();
  return std::make_unique<PlantedBackend>(std::move(inner), info, std::move(plant));
}

std::vector<ListedDevice> list_planted() {
  const std::vector<ListedDevice> gpus = planted_gpus(read_plant());
  return gpus.empty() ? list_devices() : gpus;
}

}  // namespace
}  // namespace moetune

int main(int argc, char** argv) { return moetune::run_app(argc, argv, moetune::open_planted, moetune::list_planted); }
