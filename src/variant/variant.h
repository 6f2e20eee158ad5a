// A variant is a kernel family: an object that knows its knobs, what is legal, and how a candidate is launched. The
// twin of device code is kernels/<name>/<name>.cuh; the catalog (catalog.h) lists the variants of a run.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "variant/candidate.h"
#include "variant/device.h"
#include "workload/problem.h"

namespace moetune {

/// The most device memory that a launch may ask for beside its operands.
constexpr int64_t kMaxWorkspace = int64_t{256} << 20;

struct Pack;

/// Which launch before it a kernel waits for itself, so that it may begin before that one has ended (programmatic
/// dependent launch): up of its layer, or any.
enum class Follows { none, up, any };
constexpr std::string_view name(Follows follows) {
  return follows == Follows::up ? "up" : follows == Follows::any ? "any" : "none";
}

/// How a unit is launched. The grid never depends on m_sizes, which live on the device.
struct LaunchPlan {
  int threads = 0;                      // a block
  int64_t shared_bytes = 0;             // dynamic shared memory a block
  int min_blocks_per_sm = 1;            // as the unit's launch bounds promise; with a workspace, no more run
  int cluster = 1;                      // blocks that run together and share copies
  int tile_rows = 1, tile_columns = 1;  // of the result: a block's tile
  int pieces = 1;                       // along k, at most, that a tile is cut into, each for a block
  int64_t workspace = 0;  // bytes of device memory for each block of the grid; at most kMaxWorkspace in all
  // Rows of a tensor map's box, 0 where the kernel uses no map; its columns are the 64 elements of a swizzled row.
  int x_box = 0;
  int x_rest = 0;  // of small boxes of X, which follow large ones; 0 without
  int w_box = 0;
  int y_box = 0;
  int maps = 0;        // tensor maps that each block writes, of an expert's X and W; 0 where maps are of whole matrices
  int gate_parts = 0;  // of a row's product with X, of a tile, where the kernel makes gradients of gates; else 0
  bool gathers_first = false;  // rows of X are put in order in a buffer before tiles read them
  bool waits = false;          // blocks wait for one another, so that all of them must run at once
  Follows follows = Follows::none;
};

/// The functions capture the variant's context, so that one made from files at run time looks the same. Lives in
/// VariantPtrs, which candidates share.
struct Variant : std::enable_shared_from_this<Variant> {
  std::string name;
  DeviceKind device = DeviceKind::cuda;
  std::string summary;
  std::vector<Knob> knobs;

  /// Why this candidate can't run, exact, or nothing where it can. The candidate is complete and of this variant.
  std::function<std::optional<std::string>(const Candidate&, const Shape&, const DeviceInfo&)> illegal;
  /// For legal candidates. cpu variants and packs have no plan and no unit.
  std::function<LaunchPlan(const Candidate&, const Shape&)> plan = nullptr;
  /// The C++ text of the kernel unit: a Config struct and an extern "C" entry called moetune_kernel.
  std::function<std::string(const Candidate&, const Shape&)> unit = nullptr;
  /// Values of the knobs that are good without tuning; legal wherever the variant takes the shape and the device at
  /// all.
  std::function<std::vector<int>(const Problem&, const DeviceInfo&)> fallback_values;
  /// Seconds that a legal candidate should take; 0 where unknown. Null without such a model.
  std::function<double(const Candidate&, const Problem&, const DeviceInfo&)> seconds = nullptr;
  /// The one that stands for all candidates that do the same work in the same order on this problem, such as those of
  /// other walks where no expert has two tiles along m. Null where no two do.
  std::function<Candidate(const Candidate&, const Problem&)> canonical = nullptr;
  /// Of kernels made elsewhere (pack.h); null for variants that are built in.
  std::shared_ptr<const Pack> pack = nullptr;

  /// The candidate of fallback_values.
  Candidate fallback(const Problem& problem, const DeviceInfo& where) const {
    return {.variant = shared_from_this(), .values = fallback_values(problem, where)};
  }
};

/// `partial` with what it leaves unset taken from its variant's default for this problem.
Candidate complete(Candidate partial, const Problem& problem, const DeviceInfo& device);

/// The candidate in short, as `complete` takes it: "wgmma stages=4" with the knobs that differ from its variant's
/// default for this problem, "mma" where none do. `fallback`, which may be null, is the default that is shown beside
/// it: if of the same variant, knobs that differ from it are shown, and it itself is "wgmma, the default".
std::string short_text(const Candidate& candidate, const Candidate* fallback, const Problem& problem,
                       const DeviceInfo& device);

/// Why a candidate from a file has no kernel in this program, on whatever device: its pack is not loaded, or its
/// variant lacks one of its knobs. Else nothing.
std::optional<std::string> no_kernel_of(const Candidate& candidate);

/// Why a candidate can't run on this device, or nothing.
std::optional<std::string> cannot_run(const Candidate& candidate, const Shape& shape, const DeviceInfo& device);

}  // namespace moetune
