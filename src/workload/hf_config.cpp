// Hugging Face config.json files: which of their many field names give a model's MoE shape.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "workload/model.h"

namespace moetune {
namespace {

using Names = std::vector<std::string>;

// In order: the first field that exists counts. Names of kExperts and of kTopK all mean the same, those of the others
// don't: a config may have a dense layer's intermediate_size beside the experts' own. 'top_k' is not among them: it is
// a setting of sampling.
const Names kExperts = {"n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts",
                        "ffn_config.moe_num_experts"};
const Names kTopK = {"num_experts_per_tok", "num_experts_per_token", "experts_per_token",   "moe_k", "moe_topk",
                     "moe_top_k",           "top_k_experts",         "ffn_config.moe_top_k"};
const Names kIntermediate = {"moe_intermediate_size", "expert_ffn_hidden_size", "ffn_config.ffn_hidden_size",
                             "intermediate_size"};
const Names kHidden = {"routed_expert_hidden_size", "moe_latent_size", "hidden_size", "d_model"};
const Names kText = {"text_config", "thinker_config.text_config", "language_config"};

// The value at a dotted path; nothing where a step is missing or null.
std::optional<JsonAt> field(JsonAt json, const std::string& path) {
  size_t begin = 0;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string key = path.substr(begin, end - begin);
    if (!json.has(key)) return std::nullopt;
    json = json[key];
    begin = end + 1;
  }
  return json;
}

std::optional<JsonAt> first_field(const JsonAt& json, const Names& names) {
  for (const std::string& name : names)
    if (std::optional<JsonAt> found = field(json, name)) return found;
  return std::nullopt;
}

// Where the MoE fields are: multimodal models have them in a part of the config.
JsonAt text_part(const JsonAt& config) {
  for (const std::string& name : kText)
    if (const std::optional<JsonAt> part = field(config, name); part && first_field(*part, kExperts)) return *part;
  return config;
}

// Lists have one value for each layer, or for each modality with text first.
int64_t size_of(const JsonAt& json, std::string_view what, const Names& names, int64_t high) {
  const std::optional<JsonAt> found = first_field(json, names);
  if (!found)
    json.fail(fmt::format("no field for {}", what),
              fmt::format("tried {}; is this the config of a mixture-of-experts model?", fmt::join(names, ", ")));
  return found->value().is_array() ? (*found)[0].integer(1, high) : found->integer(1, high);
}

// A dense model's config has none of the fields, or says 0.
void require_experts(const JsonAt& json, const std::string& name) {
  const std::optional<JsonAt> found = first_field(json, kExperts);
  const std::string what = fmt::format("the model {} has no experts", name);
  const std::string hint = "name a mixture-of-experts model, or give the layer with --experts --top-k --n --k";
  if (found && found->value() == 0) found->fail(what + ": this is 0", hint);
  if (!found) json.fail(fmt::format("{}: it has none of the fields {}", what, fmt::join(kExperts, ", ")), hint);
}

// Synonyms must agree: nothing says which of them counts.
void require_agreement(const JsonAt& json, const Names& names) {
  const auto first_of = [](const JsonAt& at) {
    return at.value().is_array() && at.size() > 0 ? at[0].value() : at.value();
  };
  std::string first;
  for (const std::string& name : names) {
    const std::optional<JsonAt> found = field(json, name);
    if (!found) continue;
    if (first.empty()) first = name;
    const Json a = first_of(*field(json, first)), b = first_of(*found);
    if (a != b)
      json.fail(fmt::format("'{}' is {} and '{}' is {}, though they mean the same", first, a.dump(), name, b.dump()),
                "remove the wrong one");
  }
}

// Squared ReLU (Nemotron-H) has no gate: up is not doubled.
bool is_gated(const JsonAt& json) {
  const std::optional<JsonAt> activation = first_field(json, {"mlp_hidden_act", "hidden_act"});
  return !(activation && activation->value() == "relu2");
}

std::string text_of(const JsonAt& json, const std::string& path) {
  const std::optional<JsonAt> found = field(json, path);
  return found && found->value().is_string() ? found->value().get<std::string>() : "";
}

// Scales of blocks, where these are of 128 x 128; the format in words where not.
void read_blocks(const JsonAt& sizes, Model& model) {
  if (sizes.value() == Json{128, 128})
    model.fp8_scales = ScaleKind::block;
  else
    model.other_format = fmt::format("fp8 with scales of blocks of {}", sizes.value().dump());
}

// compressed-tensors: the first group, which is that of the linear layers.
void read_group(const JsonAt& weights, Model& model) {
  const std::string type = text_of(weights, "type"), strategy = text_of(weights, "strategy");
  const std::optional<JsonAt> bits = field(weights, "num_bits");
  if (type != "float" || !bits || bits->value() != 8)
    model.other_format = fmt::format("{}{}", type, bits ? bits->value().dump() : "");
  else if (strategy == "block" && weights.has("block_structure"))
    read_blocks(weights["block_structure"], model);
  else if (strategy == "channel" || strategy == "tensor")
    model.fp8_scales = parse_scales(strategy);
  else
    model.other_format = "fp8 with scales of " + strategy;
}

}  // namespace

void read_format(const JsonAt& quantisation, Model& model) {
  const std::string method = text_of(quantisation, "quant_method"), algorithm = text_of(quantisation, "quant_algo");
  if (const auto weights = field(quantisation, "config_groups.group_0.weights"))
    read_group(*weights, model);
  else if (method == "fp8" && quantisation.has("weight_block_size"))
    read_blocks(quantisation["weight_block_size"], model);
  else if (method == "fp8" || algorithm == "FP8")
    model.fp8_scales = ScaleKind::tensor;
  else
    model.other_format = !algorithm.empty() ? algorithm : !method.empty() ? method : "an unknown format";
}

Model model_from_hf_config(const JsonAt& config, const std::string& name) {
  if (!config.value().is_object()) config.fail("a config.json must be an object");
  const JsonAt json = text_part(config);
  Model model;
  model.name = name;
  if (config.has("architectures") && config["architectures"].size() > 0)
    model.architecture = config["architectures"][0].string();
  require_experts(json, name);
  require_agreement(json, kExperts);
  require_agreement(json, kTopK);
  model.experts = size_of(json, "the number of experts", kExperts, kMaxExperts);
  model.top_k = size_of(json, "the experts a token picks", kTopK, kMaxExperts);
  model.hidden = size_of(json, "the hidden size", kHidden, kMaxSide);
  model.intermediate = size_of(json, "the intermediate size of an expert", kIntermediate, kMaxSide);
  model.gated = is_gated(json);
  if (const std::string experts = text_of(config, "expert_dtype"); !experts.empty() && experts != "fp8")
    model.other_format = experts;
  else
    for (const JsonAt& part : {json, config})
      if (!model.fp8_scales && model.other_format.empty() && part.has("quantization_config"))
        read_format(part["quantization_config"], model);
  if (model.top_k > model.experts)
    json.fail(fmt::format("a token picks {} experts, but there are {}", model.top_k, model.experts));
  return model;
}

}  // namespace moetune
