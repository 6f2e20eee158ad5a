// How a candidate of a pack is launched on operands of given sizes: buffers, fills and kernels with their arguments,
// but for addresses. The cuda backend puts those in.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "variant/pack/launch_rule.h"
#include "variant/pack/pack.h"

namespace moetune {

/// The address of an operand or a buffer goes to `offset`; none for "null".
struct PackPointer {
  size_t offset = 0;
  std::string name;
};

/// A tensor map goes to `offset`; `shape.pointer` is the name of an operand or a buffer.
struct PackMap {
  size_t offset = 0;
  MapShape shape;
};

struct PackArgument {
  std::vector<unsigned char> bytes;  // of the argument, with zeros where pointers and maps go
  std::vector<PackPointer> pointers;
  std::vector<PackMap> maps;
};

/// A kernel, or a fill where `filled` names what is filled.
struct PackStep {
  std::string filled = {};
  int byte = 0;
  int64_t fill_bytes = 0;

  std::string file = {}, entry = {};
  int threads = 0, cluster = 1;
  int64_t shared_bytes = 0;
  int most_per_processor = 0;  // blocks; 0 = as many as there is room for
  bool cooperative = false;
  int64_t grid = 0;  // blocks
  std::vector<PackArgument> arguments = {};
};

struct PackBuffer {
  std::string name;
  int64_t bytes = 0;
  bool zeroed = false;  // zeros before the first launch; every launch leaves zeros
};

struct PackLaunch {
  std::vector<PackBuffer> buffers;
  std::vector<PackStep> steps;  // in one stream, in order
};

/// How many blocks of a step's kernel the device can run at once: `held` of formulas. The step's grid and arguments are
/// not known yet.
using HeldBlocks = std::function<int64_t(const PackStep&)>;

/// `sizes` are those of the product (sizes_of), and `processors`. Throws std::invalid_argument, with a sentence, for a
/// formula that divides by zero, for a grid of less than 1 or more than 2^31 - 1 blocks, and for bytes below 0.
PackLaunch pack_launch(const Pack& pack, const Candidate& candidate, Sizes sizes, int capability,
                       const HeldBlocks& held);

}  // namespace moetune
