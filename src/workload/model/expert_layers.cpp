// Layers with experts, and names of modules.
#include "workload/model/expert_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/text/units.h"

namespace moetune {
namespace {

constexpr int kMaxLayers = 4096, kUnknownLayers = 128;
constexpr size_t kMaxPattern = 1000;  // of an expression: longer ones could exhaust the stack

const FieldNames kCounts = {"num_hidden_layers", "num_layers", "n_layers", "n_layer"};
const FieldNames kFirstDense = {"first_k_dense_replace", "n_dense_layers", "num_dense_layers", "moe_layer_start_index"};
const FieldNames kSteps = {"decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval"};
const FieldNames kKinds = {"moe_layer_freq", "mlp_layer_types", "layers_block_type", "hybrid_override_pattern"};

// What holds the experts, and the names of their projections: of one expert, or of all as one tensor.
const FieldNames kBlocks = {"block_sparse_moe", "feed_forward", "mixer", "ffn", "moe", "mlp"};
constexpr std::string_view kShort[] = {"w1", "w3", "w2"}, kFused[] = {"gate_up_proj", "gate_up_proj", "down_proj"};
const FieldNames kRoots = {"model.",    "language_model.model.", "model.language_model.",
                           "backbone.", "thinker.model.",        ""};

// A layer's kind in a list of numbers (0 is dense), of words, or in a text of letters (E has experts).
bool is_moe(const Json& kinds, size_t layer) {
  if (kinds.is_string()) return kinds.get_ref<const std::string&>()[layer] == 'E';
  const Json& kind = kinds[layer];
  return kind.is_string() ? kind == "sparse" || kind == "moe" : kind != 0;
}

int integer_of(const Scopes& scopes, const FieldNames& names, int otherwise) {
  const auto found = first_field(scopes, names);
  return found && found->at.value().is_number_integer() ? static_cast<int>(found->at.integer(0, kMaxLayers))
                                                        : otherwise;
}

std::vector<int> numbers_of(const Json& list) {
  std::vector<int> numbers;
  if (list.is_string())
    for (const std::string& word : split(list.get<std::string>(), ',')) numbers.push_back(std::atoi(word.c_str()));
  for (const Json& item : list)
    if (item.is_number_integer()) numbers.push_back(item.get<int>());
  return numbers;
}

}  // namespace

LayerCount expert_layers(const Scopes& scopes) {
  LayerCount count{integer_of(scopes, kCounts, 0)};
  std::vector<int> all(static_cast<size_t>(count.layers > 0 ? count.layers : kUnknownLayers));
  std::iota(all.begin(), all.end(), 0);
  const int first = integer_of(scopes, kFirstDense, 0), step = integer_of(scopes, kSteps, 1);
  const auto dense = first_field(scopes, {"mlp_only_layers"});
  const auto listed = first_field(scopes, {"moe_layers", "moe_layers_enum"});
  Json kinds;
  for (const std::string& name : kKinds)
    if (const auto found = first_field(scopes, {name})) {
      const Json& value = found->at.value();
      const size_t size = value.is_string() ? found->at.string().size() : value.is_array() ? value.size() : 0;
      if (size == all.size()) kinds = value;
    }
  std::ranges::copy_if(all, std::back_inserter(count.moe), [&](int layer) {
    if (listed) return contains(numbers_of(listed->at.value()), layer);
    if (dense && contains(numbers_of(dense->at.value()), layer)) return false;
    if (!kinds.is_null()) return is_moe(kinds, static_cast<size_t>(layer));
    return layer >= first && (step <= 1 || (layer + 1) % step == 0);
  });
  if (count.moe.empty()) count.moe = all;
  count.beside_mlp = first_field(scopes, {"enable_moe_block"}).has_value();
  return count;
}

ModulePattern::ModulePattern(Syntax syntax, std::string text, const std::string& tower, bool beside_mlp)
    : syntax_(syntax), text_(std::move(text)) {
  if (syntax_ == Syntax::wildcard && !has_one_of(text_, {"*", "?"})) syntax_ = Syntax::part;
  for (const std::string& word : kBlocks)
    if (blocks_.empty() && has_one_of(text_, {word})) blocks_ = {word + "."};
  if (blocks_.empty()) blocks_ = {"mlp.", ""};
  if (beside_mlp) blocks_ = {"", "moe."};
  if (has_one_of(text_, {"w1", "w2", "w3", "w[", "w("})) parts_ = kShort;
  if (has_one_of(text_, {"gate_up"})) parts_ = kFused;
  roots_ = tower.empty() ? kRoots : FieldNames{tower + ".model.", tower + "."};
  if (syntax_ != Syntax::regex && syntax_ != Syntax::wildcard) return;
  if (text_.size() > kMaxPattern) throw std::regex_error(std::regex_constants::error_complexity);
  if (text_.starts_with(".*") || text_.starts_with("*")) roots_.resize(1);
  std::string expression = syntax_ == Syntax::regex ? text_ : "";
  if (syntax_ == Syntax::wildcard)
    for (const char c : text_) expression += c == '*' ? ".*" : c == '?' ? "." : c == '.' ? "\\." : std::string(1, c);
  regex_ = std::regex(expression);
}

bool ModulePattern::matches_name(const std::string& name) const {
  if (syntax_ == Syntax::wildcard) return std::regex_match(name, *regex_);
  if (syntax_ == Syntax::regex) return std::regex_search(name, *regex_, std::regex_constants::match_continuous);
  if (syntax_ == Syntax::exact) return text_ == name;
  return has_one_of(fmt::format(".{}.", name), {fmt::format(".{}.", text_)});
}

bool ModulePattern::matches(int layer, Part part) const {
  for (const std::string& root : roots_)
    for (const std::string& block : blocks_) {
      const std::string experts = fmt::format("{}layers.{}.{}experts", root, layer, block);
      const std::string_view projection = parts_[static_cast<size_t>(part)];
      // A projection of one expert, that of all experts as one tensor, and the module of all experts.
      for (const std::string& name :
           {fmt::format("{}.0.{}", experts, projection), fmt::format("{}.{}", experts, projection), experts})
        if (matches_name(name)) return true;
    }
  return false;
}

}  // namespace moetune
