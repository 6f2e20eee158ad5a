// Names of activations and limits of their operands.
#include "workload/model/activation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kernels/formulas.h"

namespace moetune {
namespace {

const FieldNames kActivations = {"mlp_hidden_act", "hidden_act",          "hidden_activation",
                                 "activation",     "activation_function", "ffn_config.ffn_act_fn.name"};
const FieldNames kLimits = {"swiglu_limit", "swiglu_limits"};

bool is_limit(const Json& value) {
  if (value.is_array()) return std::ranges::any_of(value, is_limit);
  return value.is_number() && value != 0;
}

// The limit of an activation, if there is one; of layers, of which some have one, the list.
Json limit_of(const Scopes& scopes) {
  const auto found = first_field(scopes, kLimits);
  return found && is_limit(found->at.value()) ? found->at.value() : Json();
}

std::string activation_of(const std::string& word, const Scopes& scopes, const std::string& family) {
  const Json limit = limit_of(scopes);
  const auto alpha = first_field(scopes, {"swiglu_alpha"});
  const bool is_silu = word == "silu" || word == "swish" || word == "swiglu";
  const bool is_gpt_oss = word == "swigluoai" || (is_silu && has_one_of(family, {"gpt_oss", "gptoss"}));
  if (!is_gpt_oss && limit.is_null()) return is_silu ? "silu" : word;
  if (is_gpt_oss && (limit.is_null() || limit == kGptOssLimit) && (!alpha || alpha->at.value() == kGptOssSlope))
    return "gpt-oss";
  return fmt::format("{} with swiglu_limit {}{}", word, limit.is_array() ? "of layers" : limit.dump(),
                     alpha ? fmt::format(", swiglu_alpha {}", alpha->at.value().dump()) : "");
}

}  // namespace

void read_activation(const Scopes& scopes, const JsonAt& config, Model& model) {
  if (const auto found = first_field(scopes, {"swiglu"}); found && found->at.value().is_boolean()) {  // of Megatron
    model.gated = found->at.boolean();
    model.activation = model.gated ? "silu" : "";
    return;
  }
  Scopes all = scopes;
  all.push_back(config);
  const auto found = first_field(all, kActivations);
  if (!found || !found->at.value().is_string()) {
    if (!limit_of(scopes).is_null()) model.activation = activation_of("silu", scopes, "");
    model.notes.push_back(
        fmt::format("no field of {} names the activation ({}): the experts are taken as gated, with {}", model.name,
                    fmt::join(kActivations, ", "), model.activation.empty() ? "silu" : model.activation));
    return;
  }
  const std::string word = lower(found->at.string());
  // Squared ReLU (Nemotron-H) has no gate, and beside GPT-2's name of the field a word of gated linear units says so.
  model.gated = found->name == "activation_function" ? word.ends_with("glu") || word == "silu" : word != "relu2";
  const std::string family =
      model.architecture + " " + text_of(scopes[0], "model_type") + " " + text_of(config, "model_type");
  model.activation = activation_of(word, scopes, lower(family));
}

}  // namespace moetune
