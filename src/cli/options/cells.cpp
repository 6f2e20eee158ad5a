// From words to requests for cells.
#include "cli/options/cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <type_traits>

#include "base/embedded.h"
#include "base/group.h"
#include "base/text/units.h"
#include "workload/model.h"

namespace moetune {
namespace {

using Words = std::vector<std::string>;

// "--top-k" of "top_k".
std::string option_name(std::string_view name) {
  std::string option = fmt::format("--{}", name);
  std::ranges::replace(option, '_', '-');
  return option;
}

std::string word_of(const std::string& word) { return word; }
std::string word_of(const RoutingSpec& routing) { return text(routing); }
std::string word_of(int64_t number) { return std::to_string(number); }
template <typename Enum>
requires std::is_enum_v<Enum> std::string word_of(Enum value) { return std::string(name(value)); }
template <typename Value>
Words words_of(const std::vector<Value>& values) {
  return mapped(values, [](const Value& value) { return word_of(value); });
}
template <typename Value>
Words words_of(const std::optional<Value>& value) {
  return value ? Words{std::to_string(*value)} : Words{};
}

template <typename Value, typename Parse>
CellOption list(std::string name, std::string help, std::vector<Value> CellRequest::*values, Parse parse,
                WordSource words = {}, std::string placeholder = "LIST") {
  return {.name = std::move(name),
          .help = std::move(help),
          .placeholder = std::move(placeholder),
          .list = true,
          .words = std::move(words),
          .read = [=](CellRequest& request, const std::string& word,
                      const std::string&) { (request.*values).push_back(parse(word)); },
          .asked = [=](const CellRequest& request) { return words_of(request.*values); }};
}

// Numbers and ranges of them.
CellOption numbers(std::string name, std::string help, std::vector<int64_t> CellRequest::*values, int64_t most) {
  return {.name = std::move(name),
          .help = std::move(help),
          .placeholder = "LIST",
          .list = true,
          .read =
              [=](CellRequest& request, const std::string& word, const std::string& where) {
                for (const int64_t value : parse_integers(word, where, 1, most)) (request.*values).push_back(value);
              },
          .asked = [=](const CellRequest& request) { return words_of(request.*values); }};
}

// `Number`: int64_t, where 0 means that it was not given, or an optional number from 0 on.
template <typename Number>
CellOption number(std::string name, std::string help, std::string placeholder, Number CellRequest::*value,
                  int64_t most) {
  constexpr bool plain = std::is_same_v<Number, int64_t>;
  return {.name = std::move(name),
          .help = std::move(help),
          .placeholder = std::move(placeholder),
          .read =
              [=](CellRequest& request, const std::string& word, const std::string& where) {
                const int64_t read = parse_integer(word, where, plain ? 1 : 0, most);
                if constexpr (plain)
                  request.*value = read;
                else
                  (request.*value).emplace(read);
              },
          .asked = [=](const CellRequest& request) -> Words {
            if constexpr (plain)
              return request.*value ? Words{std::to_string(request.*value)} : Words{};
            else
              return words_of(request.*value);
          }};
}

CellOption flag(std::string name, std::string help, std::function<bool&(CellRequest&)> flag) {
  return {.name = std::move(name), .help = std::move(help), .flag = flag, .asked = [flag](CellRequest request) {
            return flag(request) ? Words{"true"} : Words{};
          }};
}
CellOption flag(std::string name, std::string help, bool Fusion::*on) {
  return flag(std::move(name), std::move(help), [on](CellRequest& request) -> bool& { return request.fusion.*on; });
}

CellOption projection_option() {
  CellOption option =
      list("projection", "up, down, or ffn: up with permute_x and the model's activation, then down, tuned as one [up]",
           &CellRequest::projections, parse_projection, one_of({"up", "down", "ffn"}));
  option.read = [read = option.read](CellRequest& request, const std::string& word, const std::string& where) {
    word == "ffn" ? void(request.ffn = true) : read(request, word, where);
  };
  option.asked = [asked = option.asked](const CellRequest& request) {
    return request.ffn ? Words{"up", "down"} : asked(request);
  };
  return option;
}

CellOption gate_option() {
  return {.name = "gated",
          .help =
              "Y = act(gate) * up of one product: silu, gelu, gpt-oss (of fwd of up; where dx is listed, its gradient "
              "in dx of down)",
          .placeholder = "ACTIVATION",
          .words = [] { return Words(std::begin(kActivationWords), std::end(kActivationWords)); },
          .read = [](CellRequest& request, const std::string& word,
                     const std::string&) { request.fusion.activation = parse_activation("--gated", word); },
          .asked =
              [](const CellRequest& request) {
                return is_gated(request.fusion) ? Words{word_of(request.fusion.activation)} : Words{};
              }};
}

std::vector<CellOption> options_of_cells() {
  using Request = CellRequest;
  return {
      list(
          "model", "A preset (moetune list models), a model file, or a Hugging Face config.json", &Request::models,
          [](const std::string& word) { return word; }, [] { return mapped(model_presets(), &Model::name); },
          "NAME|FILE"),
      number("experts", "Number of experts: of a layer given by its sizes, or in place of the model's", "E",
             &Request::experts, kMaxExperts),
      number("top_k", "Experts per token", "T", &Request::top_k, kMaxExperts),
      number("n", "Columns of Y, of a layer given by its sizes", "N", &Request::n, kMaxSide),
      number("k", "Columns of X, of a layer given by its sizes", "K", &Request::k, kMaxSide),
      number("hidden", "Width of an expert's input, to scale a model down", "H", &Request::hidden, kMaxSide),
      number("intermediate", "Width of an expert, to scale a model down", "I", &Request::intermediate, kMaxSide),
      projection_option(),
      list("op", "fwd (Y = X W^T), dx (dX = dY W), dw (dW = dY^T X) [fwd]", &Request::ops, parse_op,
           one_of({"fwd", "dx", "dw"})),
      numbers("tokens", "Token counts, such as 1,16,64-4096*4 [256, or as recorded]", &Request::tokens, kMaxRows),
      list("routing", "Routings, such as uniform,zipf:1.0,trace:FILE [uniform]", &Request::routings, parse_routing,
           routing_words),
      list(
          "dtype",
          "bf16, fp16, fp32, fp8 (e4m3), int8-w8a8; of W alone: int8, int4, uint4 (with zero points), mxfp4 "
          "[of the checkpoint, or bf16]",
          &Request::dtypes, [](const std::string& word) { return std::string(find_format(word).dtype); },
          format_dtypes),
      list("scales",
           "Of fp8: block (X 1x128, W 128x128), channel (a row of X, of W), tensor [block]; of 4 bits along k: "
           "group32, group64, group128 [group128]",
           &Request::scales, parse_scales, scale_names),
      list("out_dtype",
           "Of Y where W is quantised, and of X where that is not: bf16, fp16; with --gated of fp8 in blocks also fp8 "
           "with scales of 1x128, as down reads X [bf16]",
           &Request::out_dtypes, parse_dtype, one_of({"bf16", "fp16", "fp8"})),
      flag("fast_sums", "Sum fp8 in the tensor core's registers alone (--scales channel, tensor)",
           [](Request& request) -> bool& { return request.fast_sums; }),
      list("weights",
           "Of 4 bits: W as it lies in rows (as-is), or reordered once ahead of time, as wgmma reads it [reordered "
           "where wgmma runs]",
           &Request::weights, parse_weight_order, one_of({"as-is", "reordered"})),
      number("zero_experts", "Experts that a router picks too and that compute nothing (LongCat) [of the model, or 0]",
             "N", &Request::zero_experts, kMaxExperts),
      numbers("tp", "Ranks that share each expert's width", &Request::tp, kMaxSide),
      numbers("ep", "Ranks that share the experts", &Request::ep, kMaxExperts),
      gate_option(),
      flag("interleaved", "Rows of W alternate gate and up, in place of all gates first (--gated)",
           &Fusion::interleaved),
      flag("store_h", "Store H too, the product before the activation, which gradients need (--gated)",
           &Fusion::store_h),
      flag("bias", "Add a bias to the sums: [experts, n]", &Fusion::bias),
      flag("permute_x", "Gather rows of X while loading (only for up, if both projections are listed)",
           &Fusion::permute_x),
      flag("permute_y", "Scatter rows of Y to token order while storing (only for down, if both are listed)",
           &Fusion::permute_y),
      flag("by_slot", "Read X (with --permute-x by token) and store Y by slot, as vLLM and SGLang do",
           &Fusion::by_slot),
      flag("topk_weights", "Multiply rows by their weights (with --permute-y or --by-slot)", &Fusion::topk_weights),
      flag("accumulate", "Add to dW in place of overwriting it (--op dw)", &Fusion::accumulate),
      flag("fp32_dw", "Store dW of bf16 or fp16 inputs in fp32 (--op dw)", &Fusion::fp32_dw),
      flag("sum_slots",
           "The layer sums its slots: Y and dY are [tokens, n] (with --permute-y), dX [tokens, k] (--permute-x)",
           &Fusion::sum_slots),
      flag("weight_gradient", "Gradient of the top-k weights too (--op dx, with --topk-weights)",
           &Fusion::weight_gradient),
      number("seed", "Seed of routings and operands", "N", &Request::seed, std::numeric_limits<int64_t>::max())};
}

// Nothing where it is no expression. The standard library says neither where nor, for people, why.
std::optional<std::regex> expression_of(const std::string& pattern) {
  try {
    return std::regex(pattern);
  } catch (const std::regex_error&) {
    return std::nullopt;
  }
}

// The cells of a suite's parts, each once; with --tokens those of these counts.
std::vector<Cell> suite_cells(const CellOptions& options) {
  if (const CellRequest& given = options.request; given != CellRequest{.tokens = given.tokens, .seed = given.seed})
    throw request_error("--suite excludes the other options of cells except --tokens, --seed and --filter",
                        "copy the suite's file, change the copy and give it to --suite");
  std::vector<Cell> cells;
  std::set<std::string> known;
  for (SuitePart part : options.parts) {
    if (!part.request.seed) part.request.seed = options.request.seed;
    for (const Cell& cell : make_cells(part))
      if (known.insert(id(cell)).second) cells.push_back(cell);
  }
  const std::vector<int64_t>& counts = options.request.tokens;
  if (counts.empty()) return cells;
  std::erase_if(cells, [&](const Cell& cell) { return !contains(counts, cell.tokens); });
  if (cells.empty())
    throw request_error(
        fmt::format("--tokens {}: the suite '{}' has no such cells", fmt::join(counts, ","), options.suite));
  return cells;
}

void declare_one(OptionSet& set, CellOptions& options, const CellOption& one, const std::string& help) {
  const Reader read = [&](const std::string& word, const std::string& option) {
    one.read(options.request, word, option);
    std::string& given = options.given[one.name];
    given += (given.empty() ? "" : ",") + word;
  };
  if (one.flag)
    set.flag(typed_name(one), one.flag(options.request), help);
  else if (one.list)
    set.list(typed_name(one), read, one.placeholder, help, one.words);
  else
    set.value(typed_name(one), read, one.placeholder, help, one.words);
}

}  // namespace

Words routing_words() {
  Words words;
  for (const RoutingKind& kind : routing_kinds())
    if (kind.name != "trace") words.push_back(kind.name);
  for (const std::string& name : embedded_names("configs/routings/")) words.push_back("trace:" + name);
  return words;
}

const std::vector<CellOption>& cell_options() {
  static const std::vector<CellOption> all = options_of_cells();
  return all;
}

std::string typed_name(const CellOption& option) { return option_name(option.name); }

void declare(OptionSet& set, CellOptions& options, const std::string& title) {
  set.group(title);
  set.value(
      "--suite",
      [&](const std::string& word, const std::string&) { options.suite = word, options.parts = read_suite(word); },
      "NAME|FILE", "A named list of cells (moetune list suites), or a file; --tokens picks among them",
      [] { return embedded_names("configs/suites/"); });
  for (const CellOption& one : cell_options()) declare_one(set, options, one, one.help);
  set.value(
      "--filter", [&](const std::string& pattern, const std::string&) { options.filter = Filter(pattern); }, "REGEX",
      "Of these, only cells whose id holds this regular expression; of a table's winners and the candidates of "
      "verify, those whose 'ID CANDIDATE' holds it");
  set.group("Options");
}

void declare(OptionSet& set, CellOptions& options, const std::string& name, const std::string& help) {
  declare_one(set, options, *std::ranges::find(cell_options(), name, &CellOption::name), help);
}

Filter::Filter(const std::string& pattern) : pattern_(pattern), expression_(expression_of(pattern)) {
  if (expression_) return;
  size_t good = pattern.size() - 1;  // what stands before the fault is an expression
  while (good > 0 && !expression_of(pattern.substr(0, good))) --good;
  throw request_error(fmt::format("--filter: '{}' is not a regular expression: see column {}, '{}'", pattern, good + 1,
                                  pattern.substr(good)));
}

std::vector<Cell> make_cells(const CellOptions& options) {
  std::vector<Cell> cells;
  try {
    cells = options.suite.empty() ? make_cells(options.request) : suite_cells(options);
  } catch (const CellRequestError& error) {
    throw error.at(Where::of_option(option_name(error.field())));
  }
  const std::string first = cells.empty() ? "" : id(cells.front());
  std::erase_if(cells, [&](const Cell& cell) { return !options.filter.takes(id(cell)); });
  if (cells.empty() && !first.empty())
    throw request_error(fmt::format("--filter: no cell's id holds '{}'", options.filter.pattern()),
                        "the first is " + first);
  return cells;
}

bool asks_layers(const CellOptions& options) {
  const auto is_ffn = [](const SuitePart& part) { return part.request.ffn; };
  return options.request.ffn || std::ranges::any_of(options.parts, is_ffn);
}

}  // namespace moetune
