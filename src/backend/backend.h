// Where candidates run: the interface that CUDA, the cpu, the worker process and the tests' fake implement.
#pragma once
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/json.h"
#include "variant/outcome.h"
#include "variant/variant.h"
#include "workload/problem.h"

namespace moetune {

/// Thrown by verify and sample when the candidate is at fault; everything else is an Error.
struct CandidateFault : std::runtime_error {
  CandidateFault(Status s, const std::string& sentence) : std::runtime_error(sentence), status(s) {}
  Status status;
};

/// Thrown by load when the operands don't fit: the cell is skipped, with its size stated.
struct OutOfMemory : std::runtime_error {
  OutOfMemory(const std::string& sentence, int64_t needed) : std::runtime_error(sentence), needed_bytes(needed) {}
  int64_t needed_bytes;
};

/// What runs: a candidate, or a baseline by name ("cublas-loop"). On a loaded layer (load_layer) `candidate` runs up
/// and `down` runs down after it, or one of them alone; a baseline runs both.
struct Contender {
  std::string baseline = {};  // empty for a candidate
  Candidate candidate = {};
  Candidate down = {};
  bool operator==(const Contender&) const = default;
};
std::string text(const Contender& contender);
Json to_json(const Contender& contender);
Contender contender_from_json(const JsonAt& json, const Catalog& catalog);

struct SampleRequest {
  int blocks = 1;
  double block_seconds = 2e-3;  // aim for a block; at least one launch over each operand set that rotation needs
  bool hot = false;             // leave operands in the cache: one operand set
  Regime regime = Regime::burst;
};
/// The most seconds that the blocks of a request, and the load before them, are expected to take.
double seconds_at_most(const SampleRequest& request);

/// In the sustained regime a block is at least so long, and the load before it ends after so much time, whether the
/// clock is steady or not.
constexpr double kSustainedBlockSeconds = 20e-3;
constexpr double kMaxLoadSeconds = 2;

/// Throws Exit::request where the device has no such regime: a cpu's times are of burst alone.
void require_regime(Regime regime, const DeviceInfo& device);

/// Ceilings of the device, measured now; 0 is not measured.
struct Ceilings {
  double read_bandwidth = 0;   // of a GPU: bytes a second
  double dense_burst = 0;      // FLOP a second of a large dense GEMM (bf16 on a GPU, fp32 on a cpu), near boost clock
  double dense_sustained = 0;  // of a GPU: the same after seconds of load
  double noise = 0;            // relative half-width of the 95 % interval of a block time, between blocks
};
Json to_json(const Ceilings& ceilings);
Ceilings ceilings_from_json(const JsonAt& json);

class Backend {
 public:
  virtual ~Backend() = default;

  virtual const DeviceInfo& device() const = 0;
  /// Versions and settings that a table records: driver, cuda, nvrtc, cublas, kernels hash, ... (ordered strings).
  virtual Json environment() = 0;
  /// Baselines that this device offers, the first is the reference to beat ("cublas-loop", "cublas-grouped",
  /// "cublas-loop-bf16"; "loop").
  virtual std::vector<std::string> baselines() const = 0;
  /// Those for a layer: of one that isn't quantised none ends in "-bf16", which multiplies the same sizes in bf16.
  std::vector<std::string> baselines(const Layer& layer) const;

  /// Compiles in parallel; one result each, in order. Results are kept: verify and sample then don't compile again.
  virtual std::vector<CompileResult> compile(const Shape& shape, std::span<const Candidate> candidates) = 0;

  /// Tells which candidates are about to be compiled, and which are likely to be later, the likeliest first; returns at
  /// once. A backend may compile them in the background, so that compile() of one waits for that one alone: true where
  /// it does. Replaces the earlier list where it has not been begun.
  virtual bool compile_ahead(const Shape&, std::span<const Candidate> /*next*/, std::span<const Candidate> /*later*/) {
    return false;
  }

  /// The place of the first of these (at least one) that compile_ahead() has compiled. Waits until there is one.
  virtual size_t first_compiled(const Shape&, std::span<const Candidate>) { return 0; }

  /// Makes operands for a problem; replaces the one before. Throws OutOfMemory.
  virtual void load(const Problem& problem) = 0;

  /// Makes operands for a layer: two problems, the second of which reads as X what the first writes as Y (feeds() says
  /// whether it can). Then sample() times both launches back to back, and verify() compares every bit of the layer's
  /// result with that of the same launches one by one; the parts are verified as problems of their own. Replaces what
  /// load() made. Throws OutOfMemory.
  virtual void load_layer(const Problem& up, const Problem& down);

  /// Makes the results that verify compares with, where they aren't there yet: what of verify depends on the problem
  /// alone, and may take long. verify does so by itself too. Throws OutOfMemory.
  virtual void make_references() {}

  /// Runs on integer and on random inputs over NaN-filled, guarded outputs and compares every element with the
  /// reference. Throws CandidateFault for compile and launch errors; a wrong result is a Verdict.
  virtual Verdict verify(const Contender& contender) = 0;

  /// Launches on random inputs over NaN-filled outputs again and again, for about `seconds` and once more at least, and
  /// compares every bit of each result with the first (but for the sign of a zero). Throws CandidateFault.
  virtual Repetition repeat(const Contender& contender, double seconds) = 0;

  /// Times blocks of launches of the loaded problem. Throws CandidateFault.
  virtual std::vector<Block> sample(const Contender& contender, const SampleRequest& request) = 0;

  virtual Ceilings ceilings() = 0;
};

/// The backend's environment. The `identity` of a GPU's, which two environments must have in common to be compared,
/// names the packs of the catalog, if any.
Json environment_with_packs(Backend& backend, const Catalog& catalog);

/// Settings that every backend may read.
struct BackendOptions {
  std::string kernels_folder;           // read device code from here instead of from the binary; empty = the binary
  std::vector<std::string> packs = {};  // folders of a worker's catalog
  bool cache = true;                    // keep compiled kernels on disk
  int compile_threads = 0;              // 0 = all cores
};

/// A device by its command-line word: "auto" (a GPU where there is one, else the cpu), "cpu", "cuda", "cuda:1". The
/// word "arch:sm_90a" opens no device and compiles for that architecture, without a CUDA context. Exit::request for
/// unknown words, Exit::machine with a hint where there is no such device.
std::unique_ptr<Backend> open_backend(const std::string& device, const BackendOptions& options);

/// All devices here: "cpu", "cuda:0", ... with their properties. Never throws for lack of a driver.
struct ListedDevice {
  std::string word;
  DeviceInfo info;
};
std::vector<ListedDevice> list_devices();

}  // namespace moetune
