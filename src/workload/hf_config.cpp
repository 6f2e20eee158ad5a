// Hugging Face config.json files and their like: the sizes of their expert layers, and the kinds of these. What a file
// says on formats and activations is read in model/.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "workload/model.h"
#include "workload/model/activation.h"
#include "workload/model/checkpoint.h"

namespace moetune {
namespace {

using Names = FieldNames;

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

// Where the MoE fields are; empty where they are nowhere.
Scopes scopes_of(const JsonAt& json) {
  for (const std::string& name : kText)
    if (const auto part = field(json, name))
      if (Scopes found = scopes_of(*part); !found.empty()) return found;
  for (const std::string& name : kMoe)
    if (const auto part = field(json, name); part && first_field({*part}, kExperts)) return {*part, json};
  return first_field({json}, kExperts) ? Scopes{json} : Scopes{};
}

// Numbers of the file that are named like an expert's or a moe's, and that no list above has.
Names strangers(const Scopes& scopes, const Names& words) {
  std::set<std::string> known;
  for (const Wanted& wanted : kWanted) known.insert(wanted.names.begin(), wanted.names.end());
  Names found;
  for (const JsonAt& scope : scopes)
    for (const auto& [key, value] : scope.value().items())
      if ((value.is_number_integer() || value.is_array()) && value != 0 && has_one_of(key, kOwners) &&
          has_one_of(key, words) && !has_one_of(key, kOthers) && !known.contains(key))
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
  if (const auto found = first_field(scopes, {"is_moe", "enable_moe_block", "use_moe"});
      found && found->at.value() == false)
    found->at.fail(what + ": this is false", hint);
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

// intermediate_size may be that of dense layers.
void judge_width(const Scopes& scopes, const JsonAt& config, const Found& width, Model& model) {
  if (!contains(kDenseWidths, width.name)) return;
  if (const Names like = strangers(scopes, kSizes); !like.empty())
    width.at.fail(fmt::format("the width of an expert may be this or '{}'", fmt::join(like, "' or '")),
                  "give it with --intermediate");
  std::string family = model.architecture;
  for (const JsonAt& scope : {scopes[0], config}) family += " " + text_of(scope, "model_type");
  if (!has_one_of(lower(family), kFamilies))
    model.notes.push_back(
        fmt::format("the experts of {} are taken to be {} wide, as {} says, which is the width of "
                    "dense layers in some models: else give --intermediate",
                    model.name, width.at.value().dump(), width.name));
}

// A format of experts, and the layers that have it.
struct LayersOfFormat {
  std::string word;
  std::vector<int> layers = {};
};

struct Kind {
  Model model;
  std::string format, where;
};

// Expert layers of one part of a model.
struct Tower {
  Scopes scopes;
  std::string name = {};  // of another part than the main one, as modules are called: "talker"
  LayerCount count = {};
  std::vector<LayersOfFormat> formats = {};
};

// "layers 0-3, 7".
std::string layers_text(const std::vector<int>& layers) {
  std::string text;
  for (size_t i = 0, last = 0; i < layers.size(); i = last + 1) {
    last = i;
    while (last + 1 < layers.size() && layers[last + 1] == layers[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "layers " : ", ", layers[i]);
    if (last > i) text += fmt::format("-{}", layers[last]);
  }
  return text;
}

// The formats of a tower's experts. The tower's own quantisation counts before that of the whole model, and that before
// the file beside config.json.
void read_formats(const JsonAt& config, const JsonAt* beside, bool gated, Tower& tower) {
  const auto dtype = first_field({tower.scopes[0], tower.scopes.back(), config}, {"torch_dtype", "dtype"});
  const std::string plain = dtype && dtype->at.value() == "float16" ? "fp16" : "bf16";  // servers round fp32 to bf16
  std::vector<std::string> words = {plain};
  const auto experts = first_field({tower.scopes[0], config}, {"expert_dtype"});
  const auto quantisation =
      first_field({tower.scopes.back(), config}, {"quantization_config", "compression_config", "quantization"});
  const bool only_experts = experts && experts->at.value().is_string() && experts->at.value() != "fp8";
  const std::string algorithm = quantisation ? lower(text_of(quantisation->at, "moe_quant_algo")) : "";
  if (only_experts)
    words = {experts->at.value() != "fp4" ? experts->at.string() : algorithm.empty() ? "mxfp4" : algorithm};
  else if (quantisation && quantisation->at.value().is_string())
    words = {quantisation->at.string()};
  else if (quantisation && quantisation->at.value().is_object() && !quantisation->at.value().empty())
    words = formats_of_experts(quantisation->at, tower.count, gated, plain, tower.name);
  else if (beside)
    words = formats_of_experts(*beside, tower.count, gated, plain, tower.name);
  for (size_t i = 0; i < words.size(); ++i) {
    auto known = std::ranges::find(tower.formats, words[i], &LayersOfFormat::word);
    if (known == tower.formats.end()) known = tower.formats.insert(known, LayersOfFormat{words[i]});
    if (words.size() > 1) known->layers.push_back(tower.count.moe[i]);
  }
}

// A kind of expert layers for each set of sizes in the lists of the fields, with the first place in these lists, and
// for each format.
void add_kinds(const Tower& tower, const Scopes& scopes, const JsonAt& config, Model model, const Model& given,
               const std::string& where, std::vector<Kind>& kinds) {
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
    for (const LayersOfFormat& format : tower.formats) {
      const bool of_layers = places > 1 && static_cast<int>(places) == tower.count.layers;
      if (of_layers && !format.layers.empty() && !contains(format.layers, static_cast<int>(place))) continue;
      Kind kind{model, format.word, lists.empty() ? where : fmt::format("{}[{}]", fmt::join(lists, ", "), place)};
      if (!format.layers.empty()) kind.where += (kind.where.empty() ? "" : ", ") + layers_text(format.layers);
      set_format(kind.model, format.word);
      if (!contains(kinds, kind.model, &Kind::model)) kinds.push_back(std::move(kind));
    }
  }
}

// Names the kinds and describes them.
std::vector<Model> named(const std::vector<Kind>& kinds) {
  std::vector<Model> models;
  Names described;
  const bool one_format = std::ranges::all_of(kinds, [&](const Kind& kind) { return kind.format == kinds[0].format; });
  for (const Kind& kind : kinds) {
    models.push_back(kind.model);
    if (models.size() > 1) models.back().name += fmt::format(".kind{}", models.size()), models.back().notes.clear();
    described.push_back(fmt::format("{} ({}: {} experts, top {}, {} wide{})", models.back().name, kind.where,
                                    kind.model.experts, kind.model.top_k, kind.model.intermediate,
                                    one_format ? "" : ", " + kind.format));
  }
  if (models.size() > 1)
    models[0].notes.push_back(fmt::format("{} has {} kinds of expert layers, each with cells: {}", models[0].name,
                                          models.size(), fmt::join(described, ", ")));
  return models;
}

// The main part, and a second one beside it: a talker beside a thinker.
std::vector<Tower> towers_of(const JsonAt& config, const Scopes& main) {
  std::vector<Tower> towers = {{main}};
  if (&main.back().value() == &config.value()) return towers;
  for (const auto& [key, value] : config.value().items()) {
    if (!value.is_object()) continue;
    const Scopes scopes = scopes_of(config[key]);
    const auto has = [&](const Names& names) { return first_field(scopes, names).has_value(); };
    if (has(kExperts) && has(kTopK) && has(kIntermediate) && &scopes.back().value() != &main.back().value())
      towers.push_back({scopes, key.substr(0, key.find("_config"))});
  }
  return towers;
}

}  // namespace

bool is_hf_config(const JsonAt& json) {
  return json.has("model_type") || json.has("architectures") || !scopes_of(json).empty();
}

std::vector<Model> models_from_hf_config(const JsonAt& config, const std::string& name, const Model& given,
                                         const JsonAt* beside) {
  if (!config.value().is_object()) config.fail("a config.json must be an object");
  Scopes main = scopes_of(config);
  if (given.experts == 0) require_experts(config, main, name);
  if (main.empty()) main = {config};
  std::vector<Kind> kinds;
  for (Tower& tower : towers_of(config, main)) {
    const Scopes& scopes = tower.scopes;
    Model model{.name = name};
    if (config.has("architectures") && config["architectures"].size() > 0)
      model.architecture = config["architectures"][0].string();
    read_activation(scopes, config, model);
    if (const auto zero = first_field(scopes, {"zero_expert_num"})) {
      model.zero_experts = zero->at.integer(0, kMaxExperts);
      if (model.zero_experts > 0)
        model.notes.push_back(fmt::format("{} zero experts of {} (zero_expert_num) take rows that no kernel computes",
                                          model.zero_experts, name));
    }
    for (const Wanted& wanted : kWanted)
      for (const JsonAt& scope : scopes)
        if (wanted.synonyms && given.*wanted.size == 0) require_agreement(scope, wanted.names);
    tower.count = expert_layers(scopes);
    read_formats(config, beside, model.gated, tower);
    const size_t before = kinds.size();
    if (const auto blocks = field(scopes[0], "block_configs"); blocks && blocks->value().is_array())
      each(*blocks, [&](const JsonAt& block) {
        if (!first_field({block}, kExperts) && !first_field({block}, kTopK)) return;
        Scopes inside = {block};
        inside.insert(inside.end(), scopes.begin(), scopes.end());
        add_kinds(tower, inside, config, model, given, block.place().pointer, kinds);
      });
    if (kinds.size() == before) add_kinds(tower, scopes, config, model, given, scopes.back().place().pointer, kinds);
  }
  if (kinds.empty()) main[0].fail(fmt::format("no layer of {} has experts", name));
  return named(kinds);
}

}  // namespace moetune
