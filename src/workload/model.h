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
  std::string architecture = {};  // as in its config.json, may be empty
  std::vector<std::string> aliases = {};
  int64_t experts = 0;  // routed experts
  int64_t top_k = 0;
  int64_t hidden = 0;        // width of an expert's input
  int64_t intermediate = 0;  // width of an expert, unsharded
  bool gated = true;         // up has n = 2 * intermediate
  // "silu", "gelu" (erf) or "gpt-oss" (its limit is 7), which kernels have; in other words what no kernel has; empty if
  // it is not known.
  std::string activation = {};
  int64_t zero_experts = 0;  // beside the experts: a router picks them too, and they compute nothing
  // How a checkpoint stores the experts, if not in bf16; or in words, if moetune has no such format.
  std::optional<Format> format = {};
  std::string other_format = {};
  std::vector<std::string> notes = {};  // sentences on what a config.json left open and how it was read
  bool operator==(const Model&) const = default;
};

/// From a file of configs/models: its schema is moetune.model/1.
Model model_from_json(const JsonAt& json);

/// The presets of configs/models, sorted by name.
const std::vector<Model>& model_presets();

/// A preset by name or alias, or the model of a config.json or a file of moetune.model/1 where `name` ends in .json or
/// names a file or a folder that contains a config.json. A model whose expert layers differ is one for each kind of
/// them, and NAME#2 the second of these. Sizes of `given` that aren't 0 stand in place of the model's. Errors name the
/// nearest preset.
std::vector<Model> find_models(const std::string& name, const Model& given = {});

/// The file that find_models reads for this name, whether it is there or not; empty for a preset and for any other
/// word.
std::filesystem::path model_file(const std::string& name);

/// Whether it looks like such a file: it names its type or has a field for the number of experts.
bool is_hf_config(const JsonAt& json);

/// Sets the format of the experts to that of a word: "bf16", "fp8-block". A word that moetune has no format for is kept
/// as other_format.
void set_format(Model& model, const std::string& word);

/// From a Hugging Face config.json, a params.json of Mistral, DeepSeek's inference config or Megatron's arguments: one
/// for each kind of expert layers, of which the first is called `name`, the others NAME.kind2 and so on. What `given`
/// has is not read. `beside` describes the quantisation of a config that does not: hf_quant_config.json. Errors say
/// which field is missing or unclear and which names were tried.
std::vector<Model> models_from_hf_config(const JsonAt& config, const std::string& name, const Model& given = {},
                                         const JsonAt* beside = nullptr);

/// One projection of a model on one of tp * ep ranks. Errors: tp does not divide intermediate, ep not experts.
Layer make_layer(const Model& model, Projection projection, const Format& format, int64_t tp, int64_t ep);

}  // namespace moetune
