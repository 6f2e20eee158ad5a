// Reads and checks the manifest of a pack.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/text/units.h"
#include "runtime/launch.h"
#include "variant/pack/launch_rule.h"
#include "variant/pack/pack.h"

namespace moetune {
namespace {

// Names that the formulas of any pack may use.
Sizes pack_sizes() {
  Sizes sizes = any_sizes();
  for (const char* name : {"threads", "shared_bytes", "scratch_bytes"}) sizes[name] = 1;
  return sizes;
}

Knob read_knob(const JsonAt& json, const Sizes& taken) {
  Knob knob{.name = json["name"].string(), .help = json["help"].string()};
  if (taken.contains(knob.name) || knob.name == "variant" || knob.name == "pack")
    json["name"].fail(fmt::format("'{}' has another meaning in packs", knob.name), "give the knob another name");
  const JsonAt values = json["values"];
  const bool words = values[size_t{0}].value().is_string();
  each(values, [&](const JsonAt& value) {
    if (words) knob.words.push_back(value.string());
    knob.values.push_back(words ? static_cast<int>(knob.words.size()) - 1 : knob_from_json(knob, value));
  });
  return knob;
}

void read_knobs(const JsonAt& json, Pack& pack, Sizes& sizes) {
  each(json["knobs"], [&](const JsonAt& at) {
    pack.knobs.push_back(read_knob(at, sizes));
    pack.fallback.push_back(
        with_place(at["default"], [&](const JsonAt& v) { return knob_from_json(pack.knobs.back(), v); }));
    sizes[pack.knobs.back().name] = std::max(1, pack.fallback.back());
  });
}

Weighting parse_weighting(const std::string& word) {
  Weighting weighting = Weighting::none;
  for (const Weighting w : {Weighting::rounded_result, Weighting::result, Weighting::a})
    if (name(w) == word) weighting = w;
  return weighting;
}

Fusion parse_fusion(const JsonAt& json) {
  Fusion fusion;
  const std::vector<std::string> words = split(json.string(), '+');
  for (const FusionPart& part : kFusionParts)
    if (contains(words, part.name)) part.turn_on(fusion);
  if (text(fusion) == json.string()) return fusion;
  json.fail(fmt::format("'{}' is not a fusion", json.string()), "such as plain, permute_x or permute_y+topk_weights");
}

// Weights of a result may be rounded in either way; any other weighting must be the product's.
bool may_weigh(Weighting product, Weighting pack) {
  const auto at_the_end = [](Weighting w) { return w == Weighting::result || w == Weighting::rounded_result; };
  return product == pack || (at_the_end(product) && at_the_end(pack));
}

Shape small_shape(const Format& format, Op op) {
  return {.layer = {.model = "custom", .experts = 2, .top_k = 1, .n = 64, .k = 128, .format = format},
          .op = op,
          .fusion = {}};
}

PackComputation read_computation(const JsonAt& json, const Sizes& sizes) {
  Shape shape = small_shape(word_at(json["dtype"], format_named), word_at(json["op"], parse_op));
  shape.fusion = parse_fusion(json["fusion"]);
  with_place(json["fusion"], [&](const JsonAt&) { return require_valid(shape), true; });
  const Weighting weighting = parse_weighting(json["weighting"].string());
  const Product product = product_of(shape);
  const Weighting ours = product.weighting;
  if (!may_weigh(ours, weighting) || (sums_slots(product) && weighting != ours))
    json["weighting"].fail(
        fmt::format("'{}' is not a weighting of {} {}", name(weighting), name(shape.op), text(shape.fusion)),
        fmt::format("use '{}', as moetune's own kernels do", name(ours)));
  PackComputation result{shape.op, std::string(shape.layer.format.word), text(shape.fusion), weighting};
  if (json.has("when")) evaluate(json["when"], sizes), result.when = json["when"].string();
  return result;
}

PackFile read_file(const JsonAt& json) {
  PackFile file{.arch = json["arch"].string(), .bytes = json["bytes"].integer(), .sha256 = json["sha256"].string()};
  if (json.has("registers")) file.registers = static_cast<int>(json["registers"].integer());
  if (json.has("spill_bytes")) file.spill_bytes = static_cast<int>(json["spill_bytes"].integer(0, 1 << 30));
  return file;
}

std::map<std::string, std::string> read_files(const JsonAt& json, const Pack& pack) {
  std::map<std::string, std::string> files;
  for (const auto& [arch, value] : json.value().items()) {
    files[arch] = json[arch].string();
    const auto found = pack.files.find(files[arch]);
    if (found == pack.files.end()) json[arch].fail(fmt::format("'{}' is not among files", files[arch]));
    if (found->second.arch != arch) json[arch].fail(fmt::format("'{}' is for {}", files[arch], found->second.arch));
  }
  return files;
}

PackBinary read_binary(const JsonAt& json, const Pack& pack, const LaunchNames& names) {
  PackBinary binary{.files = read_files(json["files"], pack),
                    .entry = json["entry"].string(),
                    .threads = static_cast<int>(json["threads"].integer()),
                    .shared_bytes = json["shared_bytes"].integer(),
                    .trailing = Json::array()};
  if (json.has("cluster")) binary.cluster = static_cast<int>(json["cluster"].integer(1, 16));
  if (json.has("scratch_bytes")) binary.scratch_bytes = json["scratch_bytes"].integer(0, kMaxWorkspace);
  if (!json.has("trailing")) return binary;
  each(json["trailing"], [&](const JsonAt& argument) { argument_of(argument, names.sizes, &names); });
  binary.trailing = json["trailing"].value();
  return binary;
}

// Rows of values: one for each knob, then the number of the binary, or that of each computation.
void read_candidates(const JsonAt& json, Pack& pack) {
  const size_t knobs = pack.knobs.size(), computations = pack.computes.size();
  each(json, [&](const JsonAt& row) {
    if (row.size() != knobs + 1 && row.size() != knobs + computations)
      row.fail(fmt::format(
          "expected {} values{}", knobs + 1,
          computations > 1 ? fmt::format(", or {}: a binary for each of computes", knobs + computations) : ""));
    std::vector<int> values;
    for (size_t i = 0; i < pack.knobs.size(); ++i) {
      const Knob& knob = pack.knobs[i];
      values.push_back(with_place(row[i], [&](const JsonAt& at) { return knob_from_json(knob, at); }));
      if (!contains(knob.values, values.back()))
        row[i].fail(fmt::format("{} is not among the values of {}", row[i].value().dump(), knob.name));
    }
    std::vector<size_t> places;
    for (size_t i = knobs; i < row.size(); ++i)
      places.push_back(
          row[i].value().is_null() ? kNoBinary : static_cast<size_t>(row[i].integer(0, std::ssize(pack.binaries) - 1)));
    places.resize(computations, places.front());
    if (!pack.candidates.emplace(std::move(values), std::move(places)).second) row.fail("appears twice");
  });
}

// Every operand must be one that all computations of the pack have, under this name.
void require_handed_over(const JsonAt& operands, const Pack& pack) {
  for (const PackComputation& computation : pack.computes) {
    const Product p = product_of(small_shape(format_named(computation.format), computation.op));
    std::map<std::string, std::string> known = {
        {"m_sizes", "int32"}, {"first_rows", "int32"}, {"gather_indices", "int32"}, {"topk_weights", "fp32"}};
    for (const auto& [operand, scales] : {std::pair(&p.a, "x_scales"), {&p.b, "w_scales"}})
      if (has_scales(operand->type)) known[scales] = name(operand->type.scales.dtype);
    if (p.a.type.scales.kind == ScaleKind::block) known["x_scales_mn_major"] = "fp32";
    if (p.b.type.zero_points) known["w_zeros"] = "uint8";
    if (quantises(p)) known["y_scales"] = "fp32";
    if (computation.op == Op::fwd) known["bias"] = name(p.d.type.dtype);
    for (const Operand* operand : {&p.a, &p.b, &p.d}) known[operand_name(operand->matrix)] = name(operand->type.dtype);
    if (p.b.type.reordered) known[operand_name(p.b.matrix)] = "uint8";  // scales and zero points lie in it
    each(operands, [&](const JsonAt& operand) {
      const auto found = known.find(operand["name"].string());
      if (found == known.end())
        operand["name"].fail(fmt::format("{} has no operand '{}'", name(computation.op), operand["name"].string()));
      const bool result = found->first == "dw";  // whose dtype is the fusion's
      if (!result && operand["dtype"].string() != found->second)
        operand["dtype"].fail(fmt::format("the dtype of '{}' must be {}", found->first, found->second));
    });
  }
}

// What is not timed runs once, on what is the same in every launch.
void require_untimed(const JsonAt& launch) {
  each(launch["arguments"], [&](const JsonAt& argument) {
    if (argument.has("struct")) argument.fail("a launch that is not timed takes no structs");
    if (!argument.has("pointer")) return;
    for (const char* changing : {"x", "w", "y", "dx", "dw", "dy", "dweights", "topk_weights", "bias", "x_scales",
                                 "x_scales_mn_major", "w_scales", "w_zeros", "y_scales"})
      if (argument["pointer"].string() == changing)
        argument["pointer"].fail(fmt::format("a launch that is not timed cannot take '{}'", changing),
                                 "it may take row counts, indices and buffers, which stay the same");
  });
}

// Exactly one launch is the candidate's; its binary says the rest of it.
void require_launches(const JsonAt& launches, const LaunchNames& names, const JsonAt& files) {
  int own = 0;
  each(launches, [&](const JsonAt& launch) {
    for (const char* side : {"grid_y", "grid_z"})
      if (launch.has(side)) evaluate(launch[side], names.sizes);
    if (!is_timed(launch)) require_untimed(launch);
    if (!launch.has("cubin") || !launch["cubin"].value().is_string()) return require_launch(launch, names, files);
    ++own;
    require_grid_and_arguments(launch, names);
  });
  if (own != 1) launches.fail("expected one launch whose cubin is 'candidate'");
}

}  // namespace

Json pack_of_exported(const JsonAt& kernel, const JsonAt& files) {
  Shape shape = small_shape(format_named(kernel["dtype"].string()), parse_op(kernel["op"].string()));
  shape.fusion = parse_fusion(kernel["fusion"]);
  Json launches = kernel["launches"].value(), used = Json::object();
  for (const Json& launch : launches)
    if (launch.contains("cubin"))
      for (const Json& file : launch["cubin"]) used[file.get<std::string>()] = files[file.get<std::string>()].value();
  Json& own = launches.at(0);
  const Json binary = {{"files", own["cubin"]},
                       {"entry", own["entry"]},
                       {"threads", own["threads"]},
                       {"shared_bytes", own["shared_bytes"]},
                       {"cluster", own["cluster"]}};
  own["cubin"] = "candidate";
  Json knobs = Json::array(), values = Json::array();
  for (const auto& [name, value] : kernel["candidate"].value().items()) {
    if (name == "variant") continue;
    knobs.push_back({{"name", name}, {"help", "compiled in"}, {"values", {value}}, {"default", value}});
    values.push_back(value);
  }
  values.push_back(0);
  std::string variant = "exported_" + kernel["name"].string();
  std::ranges::replace(variant, '-', '_');
  const std::string experts = std::to_string(kernel["experts"].integer());
  return {{"schema", "moetune.pack/1"},
          {"variant", variant},
          {"summary", "a kernel of an export"},
          {"knobs", knobs},
          {"computes",
           {{{"op", name(shape.op)},
             {"dtype", kernel["dtype"].value()},
             {"fusion", text(shape.fusion)},
             {"weighting", name(product_of(shape).weighting)}}}},
          {"rules", {{{"zero", "experts - " + experts}, {"reason", "it was compiled for " + experts + " experts"}}}},
          {"files", used},
          {"binaries", {binary}},
          {"candidates", {values}},
          {"operands", kernel["operands"].value()},
          {"buffers", kernel["buffers"].value()},
          {"launches", launches}};
}

bool is_timed(const JsonAt& launch) { return !launch.has("timed") || launch["timed"].boolean(); }

Pack pack_from_json(const JsonAt& json) {
  require_schema(json, "pack");
  Pack pack;
  pack.variant = json["variant"].string();
  pack.summary = json["summary"].string();
  LaunchNames names{.sizes = pack_sizes(), .pointers = {{"null", ""}}};
  read_knobs(json, pack, names.sizes);
  each(json["computes"], [&](const JsonAt& at) { pack.computes.push_back(read_computation(at, names.sizes)); });
  Sizes of_rules;
  for (const char* name : {"m", "n", "k", "experts", "top_k"}) of_rules[name] = 1;
  for (const Knob& knob : pack.knobs) of_rules[knob.name] = names.sizes[knob.name];
  each(json["rules"], [&](const JsonAt& rule) {
    evaluate(rule["zero"], of_rules);
    pack.rules.push_back({rule["zero"].string(), rule["reason"].string()});
  });
  const JsonAt files = json["files"];
  for (const auto& [name, value] : files.value().items()) pack.files[name] = read_file(files[name]);
  require_operands(json["operands"], names);
  require_handed_over(json["operands"], pack);
  require_buffers(json["buffers"], names);
  require_launches(json["launches"], names, files);
  each(json["binaries"], [&](const JsonAt& at) { pack.binaries.push_back(read_binary(at, pack, names)); });
  read_candidates(json["candidates"], pack);
  pack.operands = json["operands"].value(), pack.buffers = json["buffers"].value();
  pack.launches = json["launches"].value();
  return pack;
}

}  // namespace moetune
