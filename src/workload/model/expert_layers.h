// Which layers of a checkpoint have experts, and which patterns of module names mean them.
#pragma once
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "workload/model/fields.h"

namespace moetune {

/// The layers of a model.
struct LayerCount {
  int layers = 0;             // 0: the file does not say how many
  std::vector<int> moe = {};  // the numbers of those with experts, in order; of 128 if the count is not known
  bool beside_mlp = false;    // experts lie beside the layer's dense mlp, not in it, as Gemma 4 has them
};

/// From the count of layers and the fields that name dense ones.
LayerCount expert_layers(const Scopes& scopes);

enum class Part { gate, up, down };
inline constexpr std::string_view kPartNames[] = {"gate_proj", "up_proj", "down_proj"};

/// Module names as quantisers write them in lists of groups, rules and exceptions.
class ModulePattern {
 public:
  enum class Syntax {
    regex,     // matched from the start of a name, as Python's re.match does
    wildcard,  // matched with whole names; '*' takes dots too
    exact,     // one module: an expert's projection, or all experts as one module
    part,      // whole words of a name between dots: a module and all below it
  };

  /// `tower`: the part of the model whose names count, "talker"; empty for the main one. `beside_mlp` as of LayerCount.
  /// Throws std::regex_error.
  ModulePattern(Syntax syntax, std::string text, const std::string& tower, bool beside_mlp);

  /// Whether it means this projection of the experts of a layer.
  bool matches(int layer, Part part) const;

 private:
  bool matches_name(const std::string& name) const;

  Syntax syntax_;
  std::string text_;
  std::optional<std::regex> regex_ = {};
  // As this pattern spells names: what stands before "layers.", what holds the experts ("mlp."), their projections.
  FieldNames roots_ = {}, blocks_ = {};
  const std::string_view* parts_ = kPartNames;
};

}  // namespace moetune
