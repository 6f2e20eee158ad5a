// Formulas of a manifest, evaluated.
#include "variant/pack/pack_launch.h"

#include <fmt/format.h>

#include "base/error.h"

namespace moetune {
namespace {

// The candidate's launch takes from its binary what other launches say themselves.
PackStep kernel_of(const JsonAt& launch, const Pack& pack, const PackBinary& binary, int capability) {
  PackStep step{.cooperative = launch["cooperative"].boolean(), .timed = is_timed(launch)};
  std::map<std::string, std::string> files = binary.files;
  if (launch["cubin"].value().is_string()) {
    step.entry = binary.entry, step.threads = binary.threads, step.cluster = binary.cluster;
    step.shared_bytes = binary.shared_bytes;
  } else {
    files = launch["cubin"].value().get<std::map<std::string, std::string>>();
    step.entry = launch["entry"].string(), step.threads = static_cast<int>(launch["threads"].integer());
    step.cluster = static_cast<int>(launch["cluster"].integer());
    step.shared_bytes = launch["shared_bytes"].integer();
  }
  if (launch.has("most_per_processor"))
    step.most_per_processor = static_cast<int>(launch["most_per_processor"].integer());
  const std::string* file = file_for(pack, files, capability);
  if (!file)
    throw request_error(fmt::format("the pack has no file with '{}' for compute capability {}.{}", step.entry,
                                    capability / 10, capability % 10));
  step.file = *file;
  return step;
}

// The sides of a grid behind the first, which manifests leave out where they are 1.
int64_t side_of(const JsonAt& launch, const char* key, const Sizes& sizes) {
  constexpr int64_t kMost = 65535;
  if (!launch.has(key)) return 1;
  const int64_t side = evaluate(launch[key], sizes);
  if (side < 1 || side > kMost) launch[key].fail(fmt::format("is {} blocks: expected 1 to {}", side, kMost));
  return side;
}

}  // namespace

PackLaunch pack_launch(const Pack& pack, const Candidate& candidate, const Shape& shape, Sizes sizes, int capability,
                       const HeldBlocks& held) {
  const PackBinary* binary = binary_of(pack, candidate.values, shape, sizes);
  if (!binary) throw request_error("the pack has no kernel that was compiled for these knobs");
  for (size_t i = 0; i < pack.knobs.size(); ++i) sizes[pack.knobs[i].name] = candidate.values[i];
  sizes["threads"] = binary->threads, sizes["shared_bytes"] = binary->shared_bytes;
  sizes["scratch_bytes"] = binary->scratch_bytes;
  PackLaunch result;
  each(JsonAt(pack.launches, "the pack: launches"), [&](const JsonAt& launch) {
    PackStep& step = result.steps.emplace_back();
    if (launch.has("fill")) {
      step.fill = fill_of(launch["fill"], sizes, -1);
      return;
    }
    step = kernel_of(launch, pack, *binary, capability);
    Sizes own = sizes;
    own["held"] = held(step);
    step.grid[0] = grid_of(launch, own);
    step.grid[1] = side_of(launch, "grid_y", own), step.grid[2] = side_of(launch, "grid_z", own);
    own["blocks"] = step.grid[0] * step.grid[1] * step.grid[2];
    const auto add = [&](const JsonAt& argument) { step.arguments.push_back(argument_of(argument, own)); };
    each(launch["arguments"], add);
    if (!launch["cubin"].value().is_string()) return;
    each(JsonAt(binary->trailing, "the pack: trailing"), add);
    result.buffers = buffers_of(JsonAt(pack.buffers, "the pack: buffers"), own);
  });
  for (const PackStep& step : result.steps)
    for (const LaunchBuffer& buffer : result.buffers)
      if (step.fill.pointer == buffer.name && step.fill.bytes > buffer.bytes)
        throw request_error(
            fmt::format("a launch fills {} bytes of '{}', which has {}", step.fill.bytes, buffer.name, buffer.bytes));
  return result;
}

}  // namespace moetune
