// A variant is a kernel family. Its twin of device code is kernels/<name>.cuh; the catalog lists them all.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "variant/candidate.h"
#include "variant/device.h"
#include "workload/problem.h"

namespace moetune {

/// The most device memory that a launch may ask for beside its operands.
constexpr int64_t kMaxWorkspace = int64_t{256} << 20;

/// How a unit is launched. The grid never depends on m_sizes, which live on the device.
struct LaunchPlan {
  int threads = 0;            // a block
  int64_t shared_bytes = 0;   // dynamic shared memory a block
  int min_blocks_per_sm = 1;  // as the unit's launch bounds promise; with a workspace, no more run
  int cluster = 1;            // blocks that run together and share copies
  int pieces = 1;             // along k, at most, that a tile is cut into: so many blocks have work of it
  int64_t workspace = 0;      // bytes of device memory for each block of the grid; at most kMaxWorkspace in all
  // Rows of a tensor map's box, 0 where the kernel uses no map; its columns are the 64 elements of a swizzled row.
  int x_box = 0;
  int x_rest = 0;  // of small boxes of X, for what large ones leave; 0 without
  int w_box = 0;
  int y_box = 0;
  int l2_promotion = 0;  // bytes to which a miss of X or W in L2 is widened: 0, 64, 128 or 256
  int maps = 0;  // tensor maps that each block writes, of an expert's X and W; 0 where maps are of whole matrices
  bool gathers_first = false;  // rows of X are put in order in memory before tiles read them: that takes room
};

struct Variant {
  std::string_view name;
  DeviceKind device = DeviceKind::cuda;
  std::string_view summary;
  std::vector<std::string_view> knobs;  // names, in the order of knobs()

  /// Why this candidate cannot run, exact, or nothing where it can.
  std::optional<std::string> (*illegal)(const Candidate&, const Shape&, const DeviceInfo&) = nullptr;
  /// For legal candidates. cpu variants have no plan and no unit.
  LaunchPlan (*plan)(const Candidate&, const Shape&) = nullptr;
  /// The C++ text of the kernel unit: a Config struct and an extern "C" entry called moetune_kernel.
  std::string (*unit)(const Candidate&, const Shape&) = nullptr;
  /// The candidate that is good without tuning; legal wherever the variant takes the shape and the device at all.
  Candidate (*fallback)(const Problem&, const DeviceInfo&) = nullptr;
};

/// The catalog, in the order of `moetune list variants`.
const std::vector<Variant>& variants();

/// Exit::request with the nearest name.
const Variant& find_variant(std::string_view name);

/// Why a candidate can't run on this device, or nothing.
std::optional<std::string> cannot_run(const Candidate& candidate, const Shape& shape, const DeviceInfo& device);

/// The knobs of one variant.
std::vector<Knob> knobs_of(const Variant& variant);

}  // namespace moetune
