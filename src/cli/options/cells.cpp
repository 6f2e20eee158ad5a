// From words to cells.
#include "cli/options/cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include "base/embedded.h"
#include "base/error.h"
#include "base/text/units.h"
#include "workload/model.h"
#include "workload/product.h"

namespace moetune {
namespace {

constexpr int64_t kDefaultTokens = 256;
constexpr size_t kMaxCells = 10000;
constexpr std::string_view kFfn = "ffn";

using Words = std::vector<std::string>;

Words gated_words() { return {"silu", "gelu", "gpt-oss"}; }
Words projection_words() { return {"up", "down", "ffn"}; }
Words op_words() { return {"fwd", "dx", "dw"}; }
Words out_dtype_words() { return {"bf16", "fp16", "fp8"}; }

// "--top-k" of "top_k".
std::string option_name(std::string_view name) {
  std::string option = fmt::format("--{}", name);
  std::ranges::replace(option, '_', '-');
  return option;
}

// 0 where it is not given.
int64_t size_of(const std::string& text, std::string_view option, int64_t most) {
  return text.empty() ? 0 : parse_integer(text, option, 1, most);
}

std::vector<int64_t> integers(const std::string& text, std::string_view option, int64_t most) {
  return text.empty() ? std::vector<int64_t>{1} : parse_integers(text, option, 1, most);
}

// A layer from --n and --k, as that of a model: tp divides the side that is its intermediate width.
Model model_of_sizes(const CellOptions& options, Model model, int64_t n, int64_t k) {
  const std::vector<std::string> projections = list_words(options.projections, "--projection", {"up"});
  if (projections.size() > 1)
    throw request_error("--n and --k are the sizes of one projection", "for both give --hidden and --intermediate");
  const bool up = parse_projection(projections[0]) == Projection::up;
  model.intermediate = up ? n : k, model.hidden = up ? k : n, model.gated = false;
  for (const int64_t tp : integers(options.tp, "--tp", kMaxSide))
    if (model.intermediate % tp != 0)
      throw request_error(fmt::format("--tp {} does not divide {} {}", tp, up ? "--n" : "--k", model.intermediate));
  return model;
}

std::vector<Model> models_of(const CellOptions& options) {
  const Model given{.name = "custom",
                    .experts = size_of(options.experts, "--experts", kMaxExperts),
                    .top_k = size_of(options.top_k, "--top-k", kMaxExperts),
                    .hidden = size_of(options.hidden, "--hidden", kMaxSide),
                    .intermediate = size_of(options.intermediate, "--intermediate", kMaxSide)};
  const int64_t n = size_of(options.n, "--n", kMaxSide), k = size_of(options.k, "--k", kMaxSide);
  if (!options.models.empty()) {
    std::vector<Model> models;
    if (n || k)
      throw request_error("--n and --k exclude --model", "scale a model's layer with --hidden and --intermediate");
    for (const std::string& name : list_words(options.models, "--model", {}))
      for (Model& model : find_models(name, given)) models.push_back(std::move(model));
    return models;
  }
  if ((n || k) && (given.hidden || given.intermediate))
    throw request_error("--n and --k exclude --hidden and --intermediate", "give one of the two pairs");
  const std::string example =
      "such as --experts 64 --top-k 8 --n 1536 --k 2048, or --model NAME ('moetune list models')";
  const bool by_width = given.hidden || given.intermediate;
  if (!given.experts && !given.top_k && !n && !k && !by_width) throw request_error("no layer is given", example);
  for (const auto& [value, option] : {std::pair{given.experts, "--experts"},
                                      {given.top_k, "--top-k"},
                                      {by_width ? given.hidden : n, by_width ? "--hidden" : "--n"},
                                      {by_width ? given.intermediate : k, by_width ? "--intermediate" : "--k"}})
    if (!value) throw request_error(fmt::format("{} is missing", option), example);
  return {by_width ? given : model_of_sizes(options, given, n, k)};
}

// The fusions that the options set, --gated too.
Fusion with_gate(const CellOptions& options) {
  Fusion fusion = options.fusion;
  if (options.gated.empty()) return fusion;
  constexpr bool Fusion::*kGates[] = {&Fusion::silu, &Fusion::gelu, &Fusion::gpt_oss};
  fusion.*kGates[place_of_word("--gated", options.gated, gated_words())] = true;
  return fusion;
}

// Of several cells of a layer: a step of training has gates in dx of down, which reads the product of up.
bool takes_gates(Projection projection, Op op, std::span<const Op> ops) {
  const bool trains = contains(ops, Op::dx);
  return trains ? op == Op::dx && projection == Projection::down : op == Op::fwd && projection == Projection::up;
}

Fusion fusion_of(Fusion fusion, Projection projection, bool both) {
  if (both && projection == Projection::up) fusion.permute_y = fusion.topk_weights = fusion.weight_gradient = false;
  if (both && projection == Projection::down) fusion.permute_x = false;
  return fusion;
}

std::vector<int64_t> token_counts(const CellOptions& options) {
  std::vector<int64_t> counts;
  for (const std::string& list : options.tokens)
    for (const int64_t count : parse_integers(list, "--tokens", 1, kMaxRows)) counts.push_back(count);
  return counts;
}

// Of several ops and dtypes each takes the options that it knows; one that none of them knows is a mistake.
void require_use_of(const CellOptions& options, std::span<const Op> ops, std::span<const std::string> dtypes) {
  if (ops.size() > 1)  // of one op require_valid tells more
    for (const FusionPart& part : kFusionParts)
      if (options.fusion.*part.on && part.only && !contains(ops, *part.only))
        throw request_error(
            fmt::format("{} belongs to --op {}, which is not listed", option_name(part.name), name(*part.only)));
  if (options.fusion.fp32_dw && !dtypes.empty() && std::ranges::count(dtypes, "fp32") == std::ssize(dtypes))
    throw request_error("--fp32-dw has no meaning for --dtype fp32", "dW of fp32 inputs is fp32");
}

// Options of quantised dtypes that no cell takes.
void require_use_by(const std::vector<Cell>& cells, const CellOptions& options) {
  const auto none = [&](const auto& holds) { return std::ranges::none_of(cells, holds, &Cell::shape); };
  const char* const given = !options.scales.empty()       ? "--scales"
                            : !options.out_dtypes.empty() ? "--out-dtype"
                            : options.fast_sums           ? "--fast-sums"
                                                          : nullptr;
  if (given && none([](const Shape& shape) { return is_quantised(shape.layer.format); }))
    throw request_error(fmt::format("{} belongs to --dtype fp8, which is not listed", given),
                        options.fast_sums ? "" : "or to int8, int8-w8a8, int4 and uint4");
  if (options.fusion.sum_slots && none([](const Shape& shape) { return shape.fusion.sum_slots; }))
    throw request_error("--sum-slots needs --permute-y or, for dx, --permute-x");
  if (!options.gated.empty() && none([](const Shape& shape) { return is_gated(shape.fusion); }))
    throw request_error("--gated belongs to fwd of up or, where dx is listed, to dx of down, which no cell here is",
                        "add --projection down, or leave --op out");
  if (options.fast_sums && none([](const Shape& shape) { return has_fast_sums(shape.layer.format); }))
    throw request_error("--fast-sums has no meaning for scales of blocks, which end every 128 of k",
                        "add --scales channel or tensor");
}

// Without --dtype the format of the model's experts; gradients are computed in bf16.
std::vector<std::string> dtypes_of(const Model& model, Op op, std::span<const std::string> given) {
  if (!given.empty()) return {given.begin(), given.end()};
  if (!model.other_format.empty())
    throw request_error(
        fmt::format("the experts of {} are {}, which moetune does not cover yet", model.name, model.other_format),
        "--dtype bf16 takes them as bf16");
  return {op == Op::fwd && model.format ? std::string(model.format->dtype) : "bf16"};
}

// A layer for each dtype; of quantised ones one for each kind of scales that they have and each dtype of Y.
std::vector<Layer> layers_of(const Model& model, Projection projection, Op op, int64_t tp, int64_t ep,
                             std::span<const std::string> given, const CellOptions& options) {
  std::vector<Layer> layers;
  for (const std::string& dtype : dtypes_of(model, op, given)) {
    Layer layer = make_layer(model, projection, find_format(dtype), tp, ep);
    if (!options.zero_experts.empty())
      layer.zero_experts = parse_integer(options.zero_experts, "--zero-experts", 0, kMaxExperts);
    if (!options.n.empty()) layer.gate = {};
    if (!is_quantised(layer.format)) {
      layers.push_back(layer);
      continue;
    }
    const std::vector<ScaleKind> known = scales_of(dtype);
    std::vector<ScaleKind> kinds = mapped(list_words(options.scales, "--scales", {}), parse_scales);
    if (std::ranges::any_of(kinds, [&](ScaleKind kind) { return contains(known, kind); }))
      std::erase_if(kinds, [&](ScaleKind kind) { return !contains(known, kind); });  // of other dtypes in the list
    if (kinds.empty()) kinds = {model.format && model.format->dtype == dtype ? model.format->scales : known.front()};
    for (const ScaleKind scales : kinds)
      for (const std::string& result : list_words(options.out_dtypes, "--out-dtype", {"bf16"})) {
        const bool fast = options.fast_sums && multiplies_fp8(layer.format) && scales != ScaleKind::block;
        layer.format = find_format(dtype, scales, parse_dtype(result), fast);
        layers.push_back(layer);
      }
  }
  return layers;
}

// The cells of one shape: its routings, each with its tokens.
void add_cells(const Shape& shape, const std::vector<RoutingSpec>& routings, const std::vector<int64_t>& tokens,
               uint64_t seed, std::set<std::string>& known, std::vector<Cell>& cells) {
  const Layer& layer = shape.layer;
  const int64_t experts = layer.experts + layer.zero_experts;
  for (const RoutingSpec& listed : routings)
    for (const RoutingSpec& routing : expand(listed, experts, layer.top_k)) {
      std::vector<int64_t> counts = tokens;
      if (counts.empty()) {
        const int64_t recorded = recorded_tokens(routing, experts, layer.top_k);
        counts = {recorded > 0 ? recorded : kDefaultTokens};
      }
      for (const int64_t count : counts) {
        const Cell cell{shape, count, routing, seed};
        if (known.insert(id(cell)).second) cells.push_back(cell);
        if (cells.size() > kMaxCells) throw request_error(fmt::format("the lists make over {} cells", kMaxCells));
      }
    }
}

// The cells of a suite's parts, each once; with --tokens those of these counts.
std::vector<Cell> suite_cells(const CellOptions& options) {
  const CellOptions alone{
      .tokens = options.tokens, .seed = options.seed, .suite = options.suite, .filter = options.filter};
  if (options != alone)
    throw request_error("--suite excludes the other options of cells except --tokens, --seed and --filter",
                        "copy the suite's file, change the copy and give it to --suite");
  std::vector<Cell> cells;
  std::set<std::string> known;
  for (SuitePart& part : read_suite(options.suite)) {
    if (part.options.seed.empty()) part.options.seed = options.seed;
    try {
      for (const Cell& cell : make_cells(part.options))
        if (known.insert(id(cell)).second) cells.push_back(cell);
    } catch (const Error& error) {
      throw Error(error.exit(), fmt::format("{}: {}", part.where, error.what()), error.hint());
    }
  }
  const std::vector<int64_t> counts = token_counts(options);
  if (counts.empty()) return cells;
  std::erase_if(cells, [&](const Cell& cell) { return !contains(counts, cell.tokens); });
  if (cells.empty())
    throw request_error(
        fmt::format("--tokens {}: the suite '{}' has no such cells", fmt::join(counts, ","), options.suite));
  return cells;
}

bool is_ffn(const CellOptions& options) { return contains(list_words(options.projections, "--projection"), kFfn); }

// --projection ffn as the options of its two cells.
CellOptions parts_of_ffn(CellOptions options) {
  if (list_words(options.projections, "--projection", {}).size() > 1)
    throw request_error("--projection ffn is up and down already", "leave the others out");
  if (list_words(options.ops, "--op", {"fwd"}) != std::vector<std::string>{"fwd"})
    throw request_error("--projection ffn is fwd alone", "--projection up,down --op fwd,dx,dw makes a training step");
  options.projections = {"up", "down"};
  if (options.gated.empty()) options.gated = "silu";
  options.fusion.permute_x = options.fusion.topk_weights = true;
  options.fusion.permute_y = !options.fusion.by_slot;
  return options;
}

std::vector<Cell> all_cells(const CellOptions& options) {
  if (!options.suite.empty()) return suite_cells(options);
  if (is_ffn(options)) {
    const CellOptions parts = parts_of_ffn(options);
    for (const Model& model : models_of(parts))
      if (!model.gated)
        throw request_error(fmt::format("--projection ffn: the experts of {} have no gate, and no kernel has their "
                                        "activation",
                                        model.name),
                            "tune them apart with --projection up,down");
    const std::vector<Cell> cells = all_cells(parts);
    const Shape* known = nullptr;
    for (const Cell& cell : cells) {
      if (known && *known == cell.shape) continue;
      known = &cell.shape;
      const auto fits = [&](const Cell& other) { return feeds(*known, other.shape) || feeds(other.shape, *known); };
      if (std::ranges::none_of(cells, fits))
        throw request_error(
            fmt::format("--projection ffn: down of {} does not read what up writes: a pass quantises it",
                        known->layer.format.word),
            "tune them apart with --projection up,down, or of fp8 in blocks add --out-dtype fp8");
    }
    return cells;
  }
  const std::vector<Projection> projections =
      mapped(list_words(options.projections, "--projection", {"up"}), parse_projection);
  const bool both = contains(projections, Projection::up) && contains(projections, Projection::down);
  const std::vector<Op> ops = mapped(list_words(options.ops, "--op", {"fwd"}), parse_op);
  const std::vector<std::string> dtypes = list_words(options.dtypes, "--dtype", {});
  const auto routings = mapped(list_words(options.routings, "--routing", {"uniform"}), parse_routing);
  const std::vector<int64_t> tokens = token_counts(options);
  const uint64_t seed = seed_of(options);

  require_use_of(options, ops, dtypes);

  std::vector<Cell> cells;
  std::set<std::string> known;
  for (const Model& model : models_of(options))
    for (const int64_t tp : integers(options.tp, "--tp", kMaxSide))
      for (const int64_t ep : integers(options.ep, "--ep", kMaxExperts))
        for (const Projection projection : projections)
          for (const Op op : ops)
            for (const Layer& layer : layers_of(model, projection, op, tp, ep, dtypes, options)) {
              Shape shape{layer, op, fusion_of(with_gate(options), projection, both)};
              for (const FusionPart& part : kFusionParts)
                if (ops.size() > 1 && part.only && part.only != op) shape.fusion.*part.on = false;
              if ((both || ops.size() > 1) && !may_sum_slots(shape)) shape.fusion.sum_slots = false;
              if ((both || ops.size() > 1) && !takes_gates(projection, op, ops))
                shape.fusion.silu = shape.fusion.gelu = shape.fusion.gpt_oss = shape.fusion.interleaved =
                    shape.fusion.store_h = false;
              if (op == Op::dw && layer.format.x.dtype == Dtype::fp32) shape.fusion.fp32_dw = false;  // as it is
              if (both && projection == Projection::down && has_scales(layer.format.y))
                shape.layer.format = find_format(layer.format.dtype, layer.format.scales);
              require_valid(shape);
              add_cells(shape, routings, tokens, seed, known, cells);
            }
  require_use_by(cells, options);
  return cells;
}

// Nothing where it is no expression. The standard library says neither where nor, for people, why.
std::optional<std::regex> expression_of(const std::string& pattern) {
  try {
    return std::regex(pattern);
  } catch (const std::regex_error&) {
    return std::nullopt;
  }
}

using Options = CellOptions;
constexpr CellOption kOptions[] = {
    {"model", "A preset (moetune list models), a model file, or a Hugging Face config.json", "NAME|FILE",
     &Options::models, [] { return mapped(model_presets(), &Model::name); }},
    {"experts", "Number of experts: of a layer given by its sizes, or in place of the model's", "E", &Options::experts},
    {"top_k", "Experts per token", "T", &Options::top_k},
    {"n", "Columns of Y, of a layer given by its sizes", "N", &Options::n},
    {"k", "Columns of X, of a layer given by its sizes", "K", &Options::k},
    {"hidden", "Width of an expert's input, to scale a model down", "H", &Options::hidden},
    {"intermediate", "Width of an expert, to scale a model down", "I", &Options::intermediate},
    {"projection", "up, down, or ffn: up with permute_x and --gated silu, then down, tuned as one [up]", "LIST",
     &Options::projections, projection_words},
    {"op", "fwd (Y = X W^T), dx (dX = dY W), dw (dW = dY^T X) [fwd]", "LIST", &Options::ops, op_words},
    {"tokens", "Token counts, such as 1,16,64-4096*4 [256, or as recorded]", "LIST", &Options::tokens},
    {"routing", "Routings, such as uniform,zipf:1.0,trace:FILE [uniform]", "LIST", &Options::routings, routing_words},
    {"dtype",
     "bf16, fp16, fp32, fp8 (e4m3), int8-w8a8; of W alone: int8, int4, uint4 (with zero points) [of the checkpoint, or "
     "bf16]",
     "LIST", &Options::dtypes, format_dtypes},
    {"scales",
     "Of fp8: block (X 1x128, W 128x128), channel (a row of X, of W), tensor [block]; of 4 bits along k: group32, "
     "group64, group128 [group128]",
     "LIST", &Options::scales, scale_names},
    {"out_dtype",
     "Of Y where W is quantised, and of X where that is not: bf16, fp16; with --gated of fp8 in blocks also fp8 with "
     "scales of 1x128, as down reads X [bf16]",
     "LIST", &Options::out_dtypes, out_dtype_words},
    {"fast_sums", "Sum fp8 in the tensor core's registers alone (--scales channel, tensor)", &Options::fast_sums},
    {"zero_experts", "Experts that a router picks too and that compute nothing (LongCat) [of the model, or 0]", "N",
     &Options::zero_experts},
    {"tp", "Ranks that share each expert's width", "LIST", &Options::tp},
    {"ep", "Ranks that share the experts", "LIST", &Options::ep},
    {"gated",
     "Y = act(gate) * up of one product: silu, gelu, gpt-oss (of fwd of up; where dx is listed, its gradient in dx of "
     "down)",
     "ACTIVATION", &Options::gated, gated_words},
    {"interleaved", "Rows of W are gate and up by turns, not all gates first (--gated)", &Fusion::interleaved},
    {"store_h", "Store H too, the product before the activation, which gradients need (--gated)", &Fusion::store_h},
    {"bias", "Add a bias to the sums: [experts, n]", &Fusion::bias},
    {"permute_x", "Gather rows of X while loading (only for up, if both projections are listed)", &Fusion::permute_x},
    {"permute_y", "Scatter rows of Y to token order while storing (only for down, if both are listed)",
     &Fusion::permute_y},
    {"by_slot", "Read X (with --permute-x by token) and store Y by slot, as vLLM and SGLang do", &Fusion::by_slot},
    {"topk_weights", "Multiply rows by their weights (with --permute-y or --by-slot)", &Fusion::topk_weights},
    {"accumulate", "Add to dW in place of overwriting it (--op dw)", &Fusion::accumulate},
    {"fp32_dw", "Store dW of bf16 or fp16 inputs in fp32 (--op dw)", &Fusion::fp32_dw},
    {"sum_slots", "The layer sums its slots: Y and dY are [tokens, n] (with --permute-y), dX [tokens, k] (--permute-x)",
     &Fusion::sum_slots},
    {"weight_gradient", "Gradient of the top-k weights too (--op dx, with --topk-weights)", &Fusion::weight_gradient},
    {"seed", "Seed of routings and operands", "N", &Options::seed}};

}  // namespace

Words routing_words() {
  Words words;
  for (const RoutingKind& kind : routing_kinds())
    if (kind.name != "trace") words.push_back(kind.name);
  for (const std::string& name : embedded_names("configs/routings/")) words.push_back("trace:" + name);
  return words;
}

std::span<const CellOption> cell_options() { return kOptions; }

std::string typed_name(const CellOption& option) { return option_name(option.name); }

void declare(OptionSet& set, CellOptions& options, const std::string& title) {
  set.group(title);
  set.value("--suite", options.suite, "NAME|FILE",
            "A named list of cells (moetune list suites), or a file; --tokens picks among them",
            [] { return embedded_names("configs/suites/"); });
  for (const CellOption& one : kOptions) {
    if (one.list) set.list(typed_name(one), options.*one.list, one.placeholder, one.help, one.words);
    if (one.value) set.value(typed_name(one), options.*one.value, one.placeholder, one.help, one.words);
    if (one.flag) set.flag(typed_name(one), options.fusion.*one.flag, one.help);
    if (one.on) set.flag(typed_name(one), options.*one.on, one.help);
  }
  set.value("--filter", options.filter, "REGEX",
            "Of these, only cells whose id holds this regular expression; of a table's winners and the candidates of "
            "verify, those whose 'ID CANDIDATE' holds it");
  set.group("Options");
}

Filter::Filter(const std::string& pattern) {
  if (pattern.empty()) return;
  if ((pattern_ = expression_of(pattern))) return;
  size_t good = pattern.size() - 1;  // what stands before the fault is an expression
  while (good > 0 && !expression_of(pattern.substr(0, good))) --good;
  throw request_error(fmt::format("--filter: '{}' is not a regular expression: see column {}, '{}'", pattern, good + 1,
                                  pattern.substr(good)));
}

std::vector<Cell> make_cells(const CellOptions& options) {
  std::vector<Cell> cells = all_cells(options);
  const std::string first = cells.empty() ? "" : id(cells.front());
  const Filter filter(options.filter);
  std::erase_if(cells, [&](const Cell& cell) { return !filter.takes(id(cell)); });
  if (cells.empty() && !first.empty())
    throw request_error(fmt::format("--filter: no cell's id holds '{}'", options.filter), "the first is " + first);
  return cells;
}

bool asks_layers(const CellOptions& options) {
  if (options.suite.empty()) return is_ffn(options);
  return std::ranges::any_of(read_suite(options.suite), [](const SuitePart& part) { return is_ffn(part.options); });
}

std::vector<std::string> model_notes(const CellOptions& options) {
  std::vector<std::string> notes;
  if (options.models.empty()) return notes;
  const std::vector<std::string> words = list_words(options.dtypes, "--dtype", {});
  for (const Model& model : models_of(options)) {
    notes.insert(notes.end(), model.notes.begin(), model.notes.end());
    if (words.empty()) continue;
    const bool covered = model.format && contains(words, model.format->dtype);
    const std::string stored =
        model.format ? fmt::format("{} with scales of {}s", model.format->dtype, name(model.format->scales))
                     : model.other_format;
    if (!stored.empty() && !covered)
      notes.push_back(fmt::format("the experts of {} are {}; they are taken as {}, as --dtype says", model.name, stored,
                                  fmt::join(words, ", ")));
  }
  return notes;
}

void require_problems(const std::vector<Cell>& cells) {
  std::set<std::tuple<std::string, int64_t, int64_t, int64_t, int64_t, int64_t, uint64_t>> seen;
  for (const Cell& cell : cells) {
    const Layer& layer = cell.shape.layer;
    if (seen.emplace(text(cell.routing), cell.tokens, layer.experts, layer.zero_experts, layer.top_k, layer.ep,
                     cell.seed)
            .second)
      make_problem(cell);
  }
}

uint64_t seed_of(const CellOptions& options) {
  if (options.seed.empty()) return 0;
  return static_cast<uint64_t>(parse_integer(options.seed, "--seed", 0, std::numeric_limits<int64_t>::max()));
}

}  // namespace moetune
