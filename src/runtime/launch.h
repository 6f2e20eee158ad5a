// Launches as manifests write them (configs/schema/common.json): checked when a manifest is read, evaluated for
// operands of known sizes. Nothing is launched here.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "runtime/formula.h"

namespace moetune {

/// How close an architecture is to a compute capability: 0 if its code does not run there. "sm_90a" runs on 9.0 alone,
/// "sm_80" on 8.0 and later 8.x; the newest architecture that runs is the closest.
int closeness(std::string_view arch, int capability);

/// The first driver that captures launches in graphs that begin before the launch before them has ended.
inline constexpr int kCapturesEarlyLaunches = 12030;

// ---- Checks. All throw Exit::request with the place -----------------------------------------------------------------

/// What the launches of a manifest may name.
struct LaunchNames {
  Sizes sizes;                                       // names that formulas use, with values to try them with
  std::map<std::string, std::string> pointers = {};  // operands, and buffers with the formula of their bytes
};

/// Distances between scales that callers choose, as formulas and kernels/args.h name them.
inline constexpr const char* kScaleStrides[] = {"x_scale_row", "x_scale_step", "w_scale_expert", "w_scale_row",
                                                "w_scale_step"};

/// Every name that formulas of moetune.kernels/1 may use, with a value to try them that divides none by zero.
Sizes any_sizes();

/// The operands and buffers of a kernel, whose names are added to `names`. Strides are of kScaleStrides.
void require_operands(const JsonAt& operands, LaunchNames& names);
void require_buffers(const JsonAt& buffers, LaunchNames& names);

/// A fill, or a kernel whose cubins are among `files`.
void require_launch(const JsonAt& launch, const LaunchNames& names, const JsonAt& files);

/// What every kernel's launch has, of a cubin or of the candidate: "cooperative", "grid" and "arguments".
void require_grid_and_arguments(const JsonAt& launch, const LaunchNames& names);

// ---- Evaluation of what was checked. Throws Exit::request with the place for values that no launch can have ---------

/// A tiled matrix as cuTensorMapEncodeTiled takes it, dimensions with columns first.
struct MapShape {
  std::string pointer, dtype;                      // of an operand or a buffer; "bf16"
  std::vector<uint64_t> sizes = {}, strides = {};  // elements; bytes, of all dimensions but the first
  int box_columns = 0, box_rows = 0;
  int l2_promotion = 0;  // bytes
};

/// The address of an operand or a buffer, or a tensor map over it, goes to `offset` of an argument.
struct LaunchPointer {
  size_t offset = 0;
  std::string name;
};
struct LaunchMap {
  size_t offset = 0;
  MapShape shape;
};

struct LaunchArgument {
  std::vector<unsigned char> bytes;  // zeros where pointers and maps go
  std::vector<LaunchPointer> pointers;
  std::vector<LaunchMap> maps;
};

struct LaunchBuffer {
  std::string name;
  int64_t bytes = 0;
  bool zeroed = false;  // zeros before the first launch; every launch leaves zeros
};

struct LaunchFill {
  std::string pointer = {};
  int byte = 0;
  int64_t bytes = 0;
};

int64_t evaluate(const JsonAt& formula, const Sizes& sizes);

/// 1 to 2^31 - 1 blocks.
int64_t grid_of(const JsonAt& launch, const Sizes& sizes);

/// An argument of a launch: a value or a struct of values. Its names are checked where `names` are given.
LaunchArgument argument_of(const JsonAt& argument, const Sizes& sizes, const LaunchNames* names = nullptr);

std::vector<LaunchBuffer> buffers_of(const JsonAt& buffers, const Sizes& sizes);

/// `room`: bytes of what is filled, or -1 where they are not known.
LaunchFill fill_of(const JsonAt& fill, const Sizes& sizes, int64_t room);

}  // namespace moetune
