// Hugging Face config.json files and their like: which of their many field names give a model's MoE shape.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "workload/model.h"

namespace moetune {
namespace {

using Names = std::vector<std::string>;

// Fields that hold a size, in order: the first that exists counts. 'top_k' is not among them: it is a setting of
// sampling.
const Names kExperts = {"n_routed_experts",  "num_moe_experts", "moe_num_primary_experts",   "num_experts",
                        "num_local_experts", "moe_num_experts", "ffn_config.moe_num_experts"};
const Names kTopK = {"num_experts_per_tok",
                     "moe_router_topk",
                     "moe_num_active_primary_experts",
                     "n_activated_experts",
                     "num_experts_per_token",
                     "experts_per_token",
                     "moe_k",
                     "moe_topk",
                     "moe_top_k",
                     "top_k_experts",
                     "ffn_config.moe_top_k"};
const Names kHidden = {
    "moe_hidden_size", "routed_expert_hidden_size", "moe_latent_size", "hidden_size", "d_model", "dim", "n_embd"};
const Names kIntermediate = {"moe_intermediate_size",  "expert_intermediate_size",
                             "expert_hidden_dim",      "moe_ffn_hidden_size",
                             "moe_inter_dim",          "expert_inner_dim",
                             "expert_ffn_hidden_size", "ffn_config.ffn_hidden_size",
                             "intermediate_size",      "n_inner"};

// A size, its option and its fields. Names of `synonyms` all mean the same, others don't: a config may have a dense
// layer's intermediate_size beside the experts' own.
struct Wanted {
  const char *what, *option;
  int64_t Model::*size;
  int64_t high;
  bool synonyms;
  Names names;
};
const Wanted kWanted[] = {
    {"the number of experts", "--experts", &Model::experts, kMaxExperts, true, kExperts},
    {"the experts a token picks", "--top-k", &Model::top_k, kMaxExperts, true, kTopK},
    {"the hidden size", "--hidden", &Model::hidden, kMaxSide, false, kHidden},
    {"the intermediate size of an expert", "--intermediate", &Model::intermediate, kMaxSide, false, kIntermediate}};

// Parts that hold a whole text model, and parts that hold the fields of its experts alone.
const Names kText = {"text_config", "thinker_config", "language_config", "llm_config", "text"};
const Names kMoe = {"moe", "moe_config"};

// The width of an expert in families of these models, and of dense layers in others.
const Names kDenseWidths = {"intermediate_size", "n_inner"};
const Names kFamilies = {"mixtral", "gpt_oss", "gptoss",   "llama4",   "phimoe",     "granitemoe",
                         "jamba",   "olmoe",   "flexolmo", "minimax",  "nomic_bert", "hunyuan",
                         "grok",    "aria",    "nemotron", "nomicbert"};

// A field that may be an expert's width, by its words.
const Names kOwners = {"expert", "moe"}, kSizes = {"size", "dim", "hidden", "intermediate", "width", "ffn"},
            kOthers = {"shared", "zero", "router", "num_", "layer", "latent", "dense"};

const Names kActivations = {"mlp_hidden_act", "hidden_act", "activation_function"};

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

// Objects that are searched for a field, the innermost first.
using Scopes = std::vector<JsonAt>;

struct Found {
  std::string name;
  JsonAt at;
};

std::optional<Found> first_field(const Scopes& scopes, const Names& names) {
  for (const std::string& name : names)
    for (const JsonAt& scope : scopes)
      if (std::optional<JsonAt> at = field(scope, name)) return Found{name, *at};
  return std::nullopt;
}

// Where the MoE fields are; empty where they are nowhere.
Scopes scopes_of(const JsonAt& json) {
  for (const std::string& name : kText)
    if (const auto part = field(json, name))
      if (Scopes found = scopes_of(*part); !found.empty()) return found;
  for (const std::string& name : kMoe)
    if (const auto part = field(json, name); part && first_field({*part}, kExperts)) return {*part, json};
  return first_field({json}, kExperts) ? Scopes{json} : Scopes{};
}

bool holds_one_of(const std::string& text, const Names& words) {
  return std::ranges::any_of(words, [&](const std::string& word) { return text.find(word) != std::string::npos; });
}

// Numbers of the file that are named like an expert's or a moe's, and that no list above has.
Names strangers(const Scopes& scopes, const Names& words) {
  std::set<std::string> known;
  for (const Wanted& wanted : kWanted) known.insert(wanted.names.begin(), wanted.names.end());
  Names found;
  for (const JsonAt& scope : scopes)
    for (const auto& [key, value] : scope.value().items())
      if ((value.is_number_integer() || value.is_array()) && value != 0 && holds_one_of(key, kOwners) &&
          holds_one_of(key, words) && !holds_one_of(key, kOthers) && !known.contains(key))
        found.push_back(key);
  return found;
}

// One value, or one for each layer or modality. Equal ones are one.
std::vector<int64_t> sizes_at(const JsonAt& at, int64_t high) {
  if (!at.value().is_array()) return {at.integer(1, high)};
  std::vector<int64_t> sizes = {at[0].integer(0, high)};
  for (size_t i = 1; i < at.size(); ++i) sizes.push_back(at[i].integer(0, high));
  if (std::ranges::count(sizes, sizes[0]) == std::ssize(sizes)) sizes.resize(1);
  return sizes;
}

Found require_field(const Scopes& scopes, const Wanted& wanted) {
  if (const auto found = first_field(scopes, wanted.names)) return *found;
  const Names like = strangers(scopes, {""});
  scopes[0].fail(fmt::format("no field for {}", wanted.what),
                 fmt::format("tried {}; {} {}", fmt::join(wanted.names, ", "),
                             like.empty() ? "is this the config of a mixture-of-experts model? Else give"
                                          : fmt::format("is it {}? Then give", fmt::join(like, " or ")),
                             wanted.option));
}

// A dense model's config has none of the fields, or says 0.
void require_experts(const JsonAt& config, const Scopes& scopes, const std::string& name) {
  const std::string what = fmt::format("the model {} has no experts", name);
  const std::string hint = "name a mixture-of-experts model, or give the layer with --experts --top-k --n --k";
  if (scopes.empty())
    config.fail(fmt::format("{}: it has none of the fields {}", what, fmt::join(kExperts, ", ")), hint);
  if (const auto found = first_field(scopes, kExperts); found->at.value() == 0)
    found->at.fail(what + ": this is 0", hint);
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

std::string text_of(const JsonAt& json, const std::string& path) {
  const std::optional<JsonAt> found = field(json, path);
  return found && found->value().is_string() ? found->value().get<std::string>() : "";
}

// Squared ReLU (Nemotron-H) has no gate, and GPT-2's name of the activation says "glu" where there is one.
bool is_gated(const Scopes& scopes, Model& model) {
  if (const auto found = first_field(scopes, {"swiglu"}); found && found->at.value().is_boolean())
    return found->at.boolean();  // of Megatron
  const auto found = first_field(scopes, kActivations);
  if (!found)
    model.notes.push_back(fmt::format("no field of {} names the activation ({}): the experts are taken as gated",
                                      model.name, fmt::join(kActivations, ", ")));
  if (!found || !found->at.value().is_string()) return true;
  const std::string word = found->at.string();
  return found->name == "activation_function" ? word.ends_with("glu") : word != "relu2";
}

// intermediate_size may be that of dense layers.
void judge_width(const Scopes& scopes, const JsonAt& config, const Found& width, Model& model) {
  if (!contains(kDenseWidths, width.name)) return;
  if (const Names like = strangers(scopes, kSizes); !like.empty())
    width.at.fail(fmt::format("the width of an expert may be this or '{}'", fmt::join(like, "' or '")),
                  "give it with --intermediate");
  std::string family = model.architecture;
  for (const JsonAt& scope : {scopes[0], config}) family += " " + text_of(scope, "model_type");
  std::ranges::transform(family, family.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (!holds_one_of(family, kFamilies))
    model.notes.push_back(
        fmt::format("the experts of {} are taken to be {} wide, as {} says, which is the width of "
                    "dense layers in some models: else give --intermediate",
                    model.name, width.at.value().dump(), width.name));
}

// A kind of expert layers for each set of sizes in the lists of the fields, with the first place in these lists.
void add_kinds(const Scopes& scopes, const JsonAt& config, Model model, const Model& given, const std::string& where,
               std::vector<std::pair<Model, std::string>>& kinds) {
  std::vector<std::vector<int64_t>> sizes;
  size_t places = 1;
  Names lists;
  for (const Wanted& wanted : kWanted) {
    if (given.*wanted.size > 0) {
      sizes.push_back({given.*wanted.size});
      continue;
    }
    const Found found = require_field(scopes, wanted);
    sizes.push_back(sizes_at(found.at, wanted.high));
    if (wanted.size == &Model::intermediate) judge_width(scopes, config, found, model);
    if (sizes.back().size() == 1) continue;
    lists.push_back(found.name);
    if (places > 1 && sizes.back().size() != places)
      found.at.fail(fmt::format("has {} elements, '{}' has {}", sizes.back().size(), lists[0], places),
                    "lists of layers must be of one length");
    places = sizes.back().size();
  }
  for (size_t place = 0; place < places; ++place) {
    for (size_t i = 0; i < sizes.size(); ++i) model.*kWanted[i].size = sizes[i][sizes[i].size() == 1 ? 0 : place];
    if (std::ranges::any_of(kWanted, [&](const Wanted& wanted) { return model.*wanted.size == 0; })) continue;  // dense
    if (model.top_k > model.experts)
      scopes[0].fail(fmt::format("a token picks {} experts, but there are {}", model.top_k, model.experts));
    if (!contains(kinds, model, [](const auto& kind) { return kind.first; }))
      kinds.emplace_back(model, lists.empty() ? where : fmt::format("{}[{}]", fmt::join(lists, ", "), place));
  }
}

// Names the kinds and tells of them.
std::vector<Model> named(const std::vector<std::pair<Model, std::string>>& kinds) {
  std::vector<Model> models;
  Names told;
  for (const auto& [kind, where] : kinds) {
    models.push_back(kind);
    if (models.size() > 1) models.back().name += fmt::format(".kind{}", models.size()), models.back().notes.clear();
    told.push_back(fmt::format("{} ({}: {} experts, top {}, {} wide)", models.back().name, where, kind.experts,
                               kind.top_k, kind.intermediate));
  }
  if (models.size() > 1)
    models[0].notes.push_back(fmt::format("{} has {} kinds of expert layers, each with cells: {}", models[0].name,
                                          models.size(), fmt::join(told, ", ")));
  return models;
}

void take(Model& model, std::string_view dtype, ScaleKind scales) { model.format = find_format(dtype, scales); }

// Scales of blocks, where these are of 128 x 128; the format in words where not.
void read_blocks(const JsonAt& sizes, Model& model) {
  if (sizes.value() == Json{128, 128})
    take(model, "fp8", ScaleKind::block);
  else
    model.other_format = fmt::format("fp8 with scales of blocks of {}", sizes.value().dump());
}

// The value of the first of these fields; null without.
Json value_of(const JsonAt& json, const Names& names) {
  const auto found = first_field({json}, names);
  return found ? found->at.value() : Json();
}

// Weights of integers in groups along k, beside 16-bit activations.
void read_groups(const Json& width, const Json& group, bool zero_points, Model& model) {
  for (const ScaleKind kind : {ScaleKind::group32, ScaleKind::group64, ScaleKind::group128})
    if (width == 4 && group == group_columns(kind)) return take(model, zero_points ? "uint4" : "int4", kind);
  model.other_format = fmt::format("int{} in groups of {}", width.dump(), group.dump());
}

// compressed-tensors: integers. Activations are int8 with a scale a token, or of 16 bits.
void read_integers(const JsonAt& weights, const JsonAt& group, Model& model) {
  const Json width = value_of(weights, {"num_bits"}), activations = value_of(group, {"input_activations"});
  const std::string strategy = text_of(weights, "strategy");
  const bool zero_points = value_of(weights, {"symmetric"}) == false;
  if (strategy == "group" && activations.is_null())
    return read_groups(width, value_of(weights, {"group_size"}), zero_points, model);
  const bool of_tokens = activations.is_object() && activations.value("num_bits", 0) == 8 &&
                         activations.value("strategy", "") == "token" && activations.value("type", "int") == "int";
  if (width == 8 && strategy == "channel" && !zero_points && (activations.is_null() || of_tokens))
    return take(model, of_tokens ? "int8-w8a8" : "int8", ScaleKind::channel);
  model.other_format = fmt::format("int{} with scales of {}{}", width.dump(), strategy,
                                   activations.is_null() ? "" : " beside quantised activations");
}

// compressed-tensors: the first group, which is that of the linear layers.
void read_group(const JsonAt& group, Model& model) {
  const JsonAt weights = group["weights"];
  const std::string type = text_of(weights, "type"), strategy = text_of(weights, "strategy");
  const std::optional<JsonAt> bits = field(weights, "num_bits");
  if (type == "int" && bits)
    read_integers(weights, group, model);
  else if (type != "float" || !bits || bits->value() != 8)
    model.other_format = fmt::format("{}{}", type, bits ? bits->value().dump() : "");
  else if (group.value().contains("input_activations") && !group.has("input_activations"))
    model.other_format = "fp8 weights beside 16-bit activations";
  else if (strategy == "block" && weights.has("block_structure"))
    read_blocks(weights["block_structure"], model);
  else if (strategy == "channel" || strategy == "tensor")
    take(model, "fp8", parse_scales(strategy));
  else
    model.other_format = "fp8 with scales of " + strategy;
}

}  // namespace

void read_format(const JsonAt& quantisation, Model& model) {
  const std::string method = text_of(quantisation, "quant_method"), algorithm = text_of(quantisation, "quant_algo");
  const auto groups = field(quantisation, "config_groups"), blocks = field(quantisation, "weight_block_size");
  // ModelOpt may write blocks of [0, null] for scales of tensors.
  const bool has_blocks = blocks && blocks->value() != Json{0, nullptr};
  if (!algorithm.empty() && algorithm != "FP8")
    model.other_format = algorithm;
  else if (algorithm.empty() && groups && !groups->value().empty())
    read_group((*groups)[groups->value().begin().key()], model);
  else if (method == "fp8" && has_blocks)
    read_blocks(*blocks, model);
  else if (method == "fp8" || algorithm == "FP8")
    take(model, "fp8", ScaleKind::tensor);
  else if (method == "w8a8_int8")
    take(model, "int8-w8a8", ScaleKind::channel);
  else if (method == "gptq" && quantisation.has("group_size") && value_of(quantisation, {"desc_act"}) != true)
    read_groups(value_of(quantisation, {"bits"}), quantisation["group_size"].value(),
                value_of(quantisation, {"sym"}) == false, model);
  else if (method == "awq" && first_field({quantisation}, {"group_size", "q_group_size"}))
    read_groups(value_of(quantisation, {"bits", "w_bit"}), value_of(quantisation, {"group_size", "q_group_size"}),
                value_of(quantisation, {"zero_point"}) != false, model);
  else
    model.other_format = !method.empty() ? method : "an unknown format";
}

bool is_hf_config(const JsonAt& json) {
  return json.has("model_type") || json.has("architectures") || !scopes_of(json).empty();
}

std::vector<Model> models_from_hf_config(const JsonAt& config, const std::string& name, const Model& given) {
  if (!config.value().is_object()) config.fail("a config.json must be an object");
  Scopes scopes = scopes_of(config);
  Model model{.name = name};
  if (config.has("architectures") && config["architectures"].size() > 0)
    model.architecture = config["architectures"][0].string();
  if (given.experts == 0) require_experts(config, scopes, name);
  if (scopes.empty()) scopes = {config};
  model.gated = is_gated(scopes, model);
  if (const auto zero = first_field(scopes, {"zero_expert_num"})) {
    model.zero_experts = zero->at.integer(0, kMaxExperts);
    if (model.zero_experts > 0)
      model.notes.push_back(fmt::format("{} zero experts of {} (zero_expert_num) take rows that no kernel computes",
                                        model.zero_experts, name));
  }
  std::string experts = text_of(scopes[0], "expert_dtype");
  if (experts.empty()) experts = text_of(config, "expert_dtype");
  if (!experts.empty() && experts != "fp8")
    model.other_format = experts;
  else
    for (const JsonAt& part : {scopes.back(), config})
      if (!model.format && model.other_format.empty() && part.has("quantization_config"))
        read_format(part["quantization_config"], model);
  for (const Wanted& wanted : kWanted)
    for (const JsonAt& scope : scopes)
      if (wanted.synonyms && given.*wanted.size == 0) require_agreement(scope, wanted.names);
  std::vector<std::pair<Model, std::string>> kinds;
  if (const auto blocks = field(scopes[0], "block_configs"); blocks && blocks->value().is_array())
    each(*blocks, [&](const JsonAt& block) {
      if (!first_field({block}, kExperts) && !first_field({block}, kTopK)) return;
      Scopes inside = {block};
      inside.insert(inside.end(), scopes.begin(), scopes.end());
      add_kinds(inside, config, model, given, block.place().pointer, kinds);
    });
  if (kinds.empty()) add_kinds(scopes, config, model, given, "", kinds);
  if (kinds.empty()) scopes[0].fail(fmt::format("no layer of {} has experts", name));
  return named(kinds);
}

}  // namespace moetune
