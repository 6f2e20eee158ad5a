// Model shapes: the built-in presets and Hugging Face config.json files.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "workload/shape.h"

namespace moetune {

/// The sizes of a model's expert layers.
struct Model {
  std::string name;
  std::string architecture;  // as in its config.json, may be empty
  std::vector<std::string> aliases;
  int64_t experts = 0;  // routed experts
  int64_t top_k = 0;
  int64_t hidden = 0;        // width of an expert's input
  int64_t intermediate = 0;  // width of an expert, unsharded
  bool gated = true;         // up has n = 2 * intermediate
  // How a checkpoint stores the experts: in fp8 with these scales, or in a format that is not covered, in words.
  std::optional<ScaleKind> fp8_scales = {};
  std::string other_format = {};
  bool operator==(const Model&) const = default;
};

/// From a file of configs/models: its schema is moetune.model/1.
Model model_from_json(const JsonAt& json);

/// The presets of configs/models, sorted by name.
const std::vector<Model>& model_presets();

/// A preset by name or alias, or the model of a config.json or a file of moetune.model/1 where `name` ends in .json or
/// names a file or a folder that contains a config.json. Errors name the nearest preset.
Model find_model(const std::string& name);

/// The file that find_model reads for this name, whether it is there or not; empty for a preset and for any other word.
std::filesystem::path model_file(const std::string& name);

/// Sets the format of the experts from a quantization_config, or from the "quantization" of a hf_quant_config.json.
void read_format(const JsonAt& quantisation, Model& model);

/// From a Hugging Face config.json. Errors say which field is missing and which names were tried.
Model model_from_hf_config(const JsonAt& config, const std::string& name);

/// One projection of a model on one of tp * ep ranks. Errors: tp does not divide intermediate, ep not experts.
Layer make_layer(const Model& model, Projection projection, Dtype dtype, int64_t tp, int64_t ep);

}  // namespace moetune
