// Quantisation methods as rules: which modules have which format.
#include "workload/model/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

namespace moetune {
namespace {

using Syntax = ModulePattern::Syntax;

// What of a model has its formats: a word of --dtype and --scales, or words for another format.
using Word = std::string;

// Scales of blocks if these are of 128 x 128; the format in words if not.
Word fp8_blocks(const Json& sizes) {
  if (sizes == Json{128, 128}) return "fp8-block";
  return fmt::format("fp8 with scales of blocks of {}", sizes.dump());
}

// Weights of integers in groups along k, beside 16-bit activations.
Word integer_groups(const Json& width, const Json& group, bool zero_points) {
  if (width == 4 && (group == 32 || group == 64 || group == 128))
    return fmt::format("{}-group{}", zero_points ? "uint4" : "int4", group.dump());
  return fmt::format("int{} in groups of {}", width.dump(), group.dump());
}

constexpr const char* kUnknown = "an unknown format";

// compressed-tensors: integers. Activations are int8 with a scale a token, or of 16 bits.
Word compressed_integers(const JsonAt& group) {
  const JsonAt weights = group["weights"];
  const Json width = value_of(weights, {"num_bits"});
  const std::string strategy = text_of(weights, "strategy");
  const bool zero_points = value_of(weights, {"symmetric"}) == false;
  const Json order = value_of(weights, {"actorder"});
  if (order == "group" || order == "dynamic" || order == true)
    return fmt::format("int{} in order of activations", width.dump());
  const std::optional<JsonAt> activations = field(group, "input_activations");
  if (strategy == "group" && !activations) return integer_groups(width, value_of(weights, {"group_size"}), zero_points);
  const bool of_tokens = activations && value_of(*activations, {"num_bits"}) == 8 &&
                         text_of(*activations, "strategy") == "token" && text_of(*activations, "type") != "float";
  if (width == 8 && strategy == "channel" && !zero_points && (!activations || of_tokens))
    return of_tokens ? "int8-w8a8" : "int8";
  return fmt::format("int{} with scales of {}{}", width.dump(), strategy,
                     activations ? " beside quantised activations" : "");
}

// compressed-tensors: a group of modules.
Word compressed_group(const JsonAt& group) {
  const JsonAt weights = group["weights"];
  const Json width = value_of(weights, {"num_bits"});
  const std::string type = text_of(weights, "type"), strategy = text_of(weights, "strategy"),
                    packed = text_of(group, "format");
  if (type == "int" && !width.is_null()) return compressed_integers(group);
  const Json size = value_of(weights, {"group_size"});
  if (type == "float" && width == 4 && (packed.starts_with("nvfp4") || strategy == "tensor_group")) return "nvfp4";
  if (type == "float" && width == 4 && (packed.starts_with("mxfp4") || size == 32)) return "mxfp4";
  if (type == "float" && width == 8 && (packed.starts_with("mxfp8") || (strategy == "group" && size == 32)))
    return "mxfp8";
  if (type.empty()) return kUnknown;
  if (type != "float" || width != 8) return fmt::format("{}{}", type, width.is_null() ? "" : width.dump());
  if (group.value().contains("input_activations") && !group.has("input_activations"))
    return "fp8 weights beside 16-bit activations";
  if (strategy == "block" && weights.has("block_structure")) return fp8_blocks(weights["block_structure"].value());
  if (strategy == "channel" || strategy == "tensor") return "fp8-" + strategy;
  return "fp8 with scales of " + strategy;
}

// ModelOpt's names of algorithms.
Word of_algorithm(const std::string& word) {
  const std::string name = lower(word);
  if (name == "w4a16_nvfp4") return "nvfp4";
  if (name == "fp8") return "fp8-tensor";
  if (name == "fp8_pb_wo") return "fp8-block";
  if (name == "fp8_per_channel_per_token") return "fp8-channel";
  return name.empty() ? kUnknown : name;
}

// Quark: weights and inputs of a layer.
Word quark_format(const JsonAt& config, const Word& plain) {
  const Json weights = value_of(config, {"weight"});
  if (weights.is_array()) return "quark's weights of two scales";
  if (!weights.is_object()) return plain;
  const std::string dtype = text_of(config, "weight.dtype"), scheme = text_of(config, "weight.qscheme"),
                    input = text_of(config, "input_tensors.dtype");
  if (dtype == "fp4" && scheme == "per_group") return value_of(config, {"weight.group_size"}) == 32 ? "mxfp4" : "fp4";
  const bool channels = scheme == "per_channel";
  if (dtype == "fp8_e4m3" && input == dtype && (channels || scheme == "per_tensor"))
    return channels ? "fp8-channel" : "fp8-tensor";
  if (dtype == "int8" && input == dtype && channels) return "int8-w8a8";
  return fmt::format("{} with scales {}, of quark", dtype, scheme);
}

// Modules and their format; the first rule that means a module counts.
struct Rule {
  ModulePattern pattern;
  JsonAt at;  // what says so
  Word format;
};

struct Rules {
  std::vector<Rule> rules = {};
  Word otherwise;
};

class Reader {
 public:
  Reader(const JsonAt& quantisation, const Word& plain, const std::string& tower, bool beside_mlp)
      : at_(quantisation), plain_(plain), tower_(tower), beside_mlp_(beside_mlp) {}

  Rules read();

 private:
  void add(const JsonAt& place, Syntax syntax, const std::string& text, const Word& format) {
    try {
      rules_.push_back({ModulePattern(syntax, text, tower_, beside_mlp_), place, format});
    } catch (const std::regex_error&) {
      place.fail(fmt::format("'{}' is not an expression that moetune can read", text),
                 "--dtype says what the experts are");
    }
  }

  // "re:" begins an expression.
  void add_name(const JsonAt& place, Syntax syntax, const std::string& text, const Word& format) {
    const bool is_regex = text.starts_with("re:");
    add(place, is_regex ? Syntax::regex : syntax, is_regex ? text.substr(3) : text, format);
  }

  // Modules that stay as they were.
  void leave_alone(const FieldNames& fields, Syntax syntax) {
    for (const std::string& name : fields)
      if (const auto list = field(at_, name))
        each(*list, [&](const JsonAt& item) { add_name(item, syntax, item.string(), plain_); });
  }

  Word read_compressed();
  Word read_gptq();
  Word read_modelopt();
  Word read_quark();
  Word read_method(const std::string& method);
  Word gptq_format(const JsonAt& rule) const;

  const JsonAt& at_;
  const Word& plain_;
  std::string tower_;
  bool beside_mlp_;
  std::vector<Rule> rules_ = {};
};

// Names of modules count before names of classes; experts are linear layers, or a class of their own.
Word Reader::read_compressed() {
  leave_alone({"ignore"}, text_of(at_, "quant_method").starts_with("modelopt") ? Syntax::wildcard : Syntax::exact);
  const JsonAt groups = at_["config_groups"];
  Word by_class = plain_;
  bool has_class = false;
  for (const auto& [key, value] : groups.value().items()) {
    const JsonAt group = groups[key];
    Word format = compressed_group(group);
    if (!group.has("format") && at_.has("format") && text_of(at_, "format").starts_with("nvfp4") && format == "float4")
      format = "nvfp4";
    if (!group.has("targets")) {
      if (groups.value().size() > 1)
        group.fail("says no targets, beside other groups", "--dtype says what the experts are");
      return format;
    }
    each(group["targets"], [&](const JsonAt& target) {
      const std::string text = target.string();
      const bool is_class =
          text.find_first_of(".:") == std::string::npos && std::isupper(static_cast<unsigned char>(text[0])) != 0;
      if (!is_class) return add_name(target, Syntax::exact, text, format);
      if (has_class || !has_one_of(text, {"Linear", "Expert", "MoE"})) return;
      by_class = format, has_class = true;
    });
  }
  return by_class;
}

Word Reader::gptq_format(const JsonAt& rule) const {
  const auto value = [&](const char* name) { return rule.has(name) ? rule[name].value() : value_of(at_, {name}); };
  if (value("desc_act") == true) return "gptq in order of activations";
  if (value("group_size").is_null()) return "gptq without a group_size";
  return integer_groups(value("bits"), value("group_size"), value("sym") == false);
}

// Rules count in their order, from the start of a name; "-:" leaves modules alone.
Word Reader::read_gptq() {
  if (const auto rules = field(at_, "dynamic"))
    for (const auto& [key, value] : rules->value().items()) {
      const bool has_sign = key.starts_with("-:") || key.starts_with("+:");
      const JsonAt rule = (*rules)[key];
      add(rule, Syntax::regex, has_sign ? key.substr(2) : key, key.starts_with("-:") ? plain_ : gptq_format(rule));
    }
  return gptq_format(at_);
}

Word Reader::read_modelopt() {
  leave_alone({"exclude_modules", "ignore"}, Syntax::wildcard);
  const std::string algorithm = text_of(at_, "quant_algo");
  const auto layers = field(at_, "quantized_layers");
  if (!layers) return of_algorithm(algorithm);
  for (const auto& [key, value] : layers->value().items())
    add_name((*layers)[key], Syntax::wildcard, key, of_algorithm(text_of((*layers)[key], "quant_algo")));
  return plain_;
}

Word Reader::read_quark() {
  leave_alone({"exclude"}, Syntax::wildcard);
  if (const auto layers = field(at_, "layer_quant_config"))
    for (const auto& [key, value] : layers->value().items())
      add((*layers)[key], Syntax::wildcard, key, quark_format((*layers)[key], plain_));
  if (const auto types = field(at_, "layer_type_quant_config"); types && !types->value().empty())
    types->fail("moetune does not read formats of layer types", "--dtype says what the experts are");
  return at_.has("global_quant_config") ? quark_format(at_["global_quant_config"], plain_) : plain_;
}

Word Reader::read_method(const std::string& method) {
  leave_alone({"modules_to_not_convert", "ignored_layers"}, Syntax::wildcard);
  const auto blocks = field(at_, "weight_block_size");
  // ModelOpt may write blocks of [0, null] for scales of tensors.
  if (method == "fp8" && blocks && blocks->value() != Json{0, nullptr}) return fp8_blocks(blocks->value());
  if (method == "fp8") return "fp8-tensor";
  if (method == "w8a8_int8") return "int8-w8a8";
  if (text_of(at_, "qformat_weight") == "fp8_e4m3" && text_of(at_, "qscheme_act") == "TENSOR")
    return "fp8-tensor";  // of Mistral's params.json
  const auto group = first_field({at_}, {"group_size", "q_group_size"});
  if (method == "awq" && group)
    return integer_groups(value_of(at_, {"bits", "w_bit"}), group->at.value(), value_of(at_, {"zero_point"}) != false);
  return method.empty() ? kUnknown : method;
}

Rules Reader::read() {
  const std::string method = text_of(at_, "quant_method");
  Word otherwise;
  if (at_.has("quant_algo"))
    otherwise = read_modelopt();
  else if (const auto groups = field(at_, "config_groups"); groups && !groups->value().empty())
    otherwise = read_compressed();
  else if (method == "gptq")
    otherwise = read_gptq();
  else if (method == "quark")
    otherwise = read_quark();
  else
    otherwise = read_method(method);
  return {std::move(rules_), std::move(otherwise)};
}

}  // namespace

std::vector<std::string> formats_of_experts(const JsonAt& quantisation, const LayerCount& layers, bool gated,
                                            const Word& plain, const std::string& tower) {
  const JsonAt inner = quantisation.has("quantization") ? quantisation["quantization"] : quantisation;
  const Rules all = Reader(inner, plain, tower, layers.beside_mlp).read();
  std::vector<Word> formats;
  for (const int layer : layers.moe) {
    const Word* known = nullptr;
    const JsonAt* at = &inner;
    for (const Part part : {Part::gate, Part::up, Part::down}) {
      if (part == Part::gate && !gated) continue;
      const auto rule =
          std::ranges::find_if(all.rules, [&](const Rule& one) { return one.pattern.matches(layer, part); });
      const Word& format = rule == all.rules.end() ? all.otherwise : rule->format;
      if (rule != all.rules.end()) at = &rule->at;
      if (known && *known != format)
        at->fail(fmt::format("the projections of an expert of layer {} are {} and {}", layer, *known, format),
                 "tune them apart: --projection up, then down, each with its --dtype");
      known = &format;
    }
    formats.push_back(*known);
  }
  if (std::ranges::count(formats, formats[0]) == std::ssize(formats)) formats.resize(1);
  if (formats.size() > 1 && layers.layers == 0)
    inner.fail("layers differ, and no field counts them", "add num_hidden_layers");
  return formats;
}

}  // namespace moetune
