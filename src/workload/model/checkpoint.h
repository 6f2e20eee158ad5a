// How a checkpoint stores its experts, by the quantisation that its config.json describes. Not their sizes.
#pragma once
#include <string>
#include <vector>

#include "workload/model/expert_layers.h"

namespace moetune {

/// The word of the format of the experts of each layer of `layers.moe`, or of all of them as one element: "fp8-block",
/// "int4-group32", or words for what moetune may not have, "nvfp4". `quantisation` is the quantization_config of a
/// config.json, or what hf_quant_config.json has in its place; `plain` the format of experts that it leaves alone.
/// Errors name the field that cannot be decided: an expression that cannot be read, projections of one expert that
/// differ, layers that differ in a file that does not count them.
std::vector<std::string> formats_of_experts(const JsonAt& quantisation, const LayerCount& layers, bool gated,
                                            const std::string& plain, const std::string& tower = {});

}  // namespace moetune
