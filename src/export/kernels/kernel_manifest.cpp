// Kernels, their arguments, and which cells they serve, as JSON.
#include "export/kernels/kernel_manifest.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"
#include "kernels/args.h"
#include "kernels/reordered.h"
#include "record/layer.h"
#include "runtime/launch.h"
#include "runtime/manifest.h"
#include "variant/pack/launch_rule.h"
#include "workload/product/passes.h"
#include "workload/product/scale_places.h"

namespace moetune {
namespace {

constexpr int kPassThreads = 256;

Json operand(std::string_view name, std::string_view dtype, const std::vector<std::string>& shape,
             std::string_view access) {
  return {{"name", name}, {"dtype", dtype}, {"shape", shape}, {"access", access}};
}

Json operand(const Product& product, const Operand& matrix, std::string_view access) {
  return operand(operand_name(matrix.matrix), name(matrix.type.dtype),
                 {rows_expression(product, matrix).text(), columns_expression(product, matrix).text()}, access);
}

bool reads_gather_indices(const Product& p) {
  const auto moved = [](const Operand& o) { return o.order != RowOrder::in_place; };
  return moved(p.a) || moved(p.b) || moved(p.d) || p.weighting != Weighting::none || takes_another_pass(p);
}

Json texts(const std::vector<Expression>& expressions) {
  return json_list(expressions, [](const Expression& expression) { return expression.text(); });
}

// A W that is reordered has its scales and zero points in it.
std::vector<ScalesRule> scales_of(const Product& p) {
  std::vector<ScalesRule> rules;
  for (const Operand* matrix : {&p.a, &p.b})
    if (has_scales(matrix->type) && !matrix->type.reordered) rules.push_back(scales_rule(p, *matrix));
  return rules;
}

// Columns of the scales of a quantised result, which lie in rows without gaps.
Expression scale_columns(const Product& p) { return ceil_div(columns_expression(p, p.d), p.d.type.scales.columns); }

// The operands that the caller passes.
Json operands_of(const Product& p) {
  const int64_t block = reordered_block_bytes(p.b.type);
  const Json w = block == 0 ? operand(p, p.b, "read")
                            : operand(operand_name(p.b.matrix), "uint8",
                                      {"experts", fmt::format("ceil_div(n, {})", kReorderedRows),
                                       fmt::format("ceil_div(k, 256) * {}", reordered_across(256) * block)},
                                      "read");
  Json list = {operand(p, p.a, "read"), w, operand(p, p.d, p.accumulates ? "update" : "write"),
               operand("m_sizes", "int32", {"experts"}, "read")};
  if (reads_gather_indices(p)) list.push_back(operand("gather_indices", "int32", {"rows"}, "read"));
  if (p.weighting != Weighting::none || p.weight_gradient)
    list.push_back(operand("topk_weights", "fp32", {"slots"}, "read"));
  if (p.gate_gradient) {
    list.push_back(operand(p, p.gate_gradient->h, "read"));
    list.push_back(operand(p, p.gate_gradient->x, "write"));
  }
  if (p.weight_gradient) {
    if (!p.gate_gradient) list.push_back(operand(p, p.weight_gradient->x, "read"));
    list.push_back(operand("dweights", "fp32", {"slots"}, "write"));
  }
  if (quantises(p))
    list.push_back(operand(operand_name(LayerMatrix::y_scales), "fp32",
                           {rows_expression(p, p.d).text(), scale_columns(p).text()}, "write"));
  if (p.h) list.push_back(operand(p, *p.h, "write"));
  if (p.bias) list.push_back(operand("bias", name(p.bias->type.dtype), {"experts", "n"}, "read"));
  for (const ScalesRule& rule : scales_of(p)) {
    list.push_back({{"name", rule.name}, {"dtype", rule.dtype}, {"shape", texts(rule.shape)}, {"access", "read"}});
    if (!rule.strides.empty()) list.back()["strides"] = rule.strides;
  }
  if (p.b.type.zero_points && !p.b.type.reordered)
    list.push_back(operand("w_zeros", std::string_view("uint8"),
                           {"experts", "n / 2", fmt::format("ceil_div(k, {})", p.b.type.scales.columns)}, "read"));
  return list;
}

Json buffers_of(const LaunchRule& rule, const Product& p, bool leaves_sums) {
  Json list = Json::array();
  const auto add = [&](std::string_view name, const std::string& bytes, bool zeroed) {
    list.push_back({{"name", name}, {"bytes", bytes}, {"zeroed", zeroed}});
  };
  for (const BufferRule& buffer : rule.buffers) add(buffer.name, buffer.bytes.text(), buffer.zeroed);
  if (leaves_sums)
    add("sums", fmt::format("max(1, rows) * n * {}", sums_slots(p) ? size_bytes(p.d.type.dtype) : 4), false);
  if (sums_slots(p)) add("row_of", "max(1, slots) * 4", false);
  return list;
}

// What is behind a field of Args: an operand, a buffer, a size, or nothing where the kernel reads none.
std::string source_of(std::string_view field, const Product& p, const LaunchRule& rule, bool leaves_sums) {
  if (field == "x") return operand_name(p.a.matrix);
  if (field == "w") return operand_name(p.b.matrix);
  if (field == "y") return leaves_sums ? "sums" : operand_name(p.d.matrix);
  if (field == "m_sizes") return "m_sizes";
  if (field == "gather_indices") return reads_gather_indices(p) ? "gather_indices" : "";
  if (field == "topk_weights") return p.weighting != Weighting::none ? "topk_weights" : "";
  if (field == "bias") return p.bias ? "bias" : "";
  if (field == "w_zeros") return p.b.type.zero_points && !p.b.type.reordered ? "w_zeros" : "";
  if (field == "h") return p.h || (p.gate_gradient && !leaves_sums) ? "h" : "";
  if (field == "x_again") return p.gate_gradient && !leaves_sums ? "x" : "";
  if (field.starts_with("y_scale"))
    return !quantises(p)            ? ""
           : field == "y_scales"    ? "y_scales"
           : field == "y_scale_row" ? scale_columns(p).text()
                                    : "1";
  for (const BufferRule& buffer : rule.buffers)
    if (buffer.name == field) return buffer.name;
  for (const ScalesRule& scales : scales_of(p))
    if (field == scales.name || contains(scales.strides, field)) return std::string(field);
  for (const std::string_view size : {"n", "k", "experts", "top_k", "m"})
    if (field == size) return std::string(field);
  return "";
}

Json map_json(const MapRule& map, const std::string& source) {
  return {{"pointer", source},
          {"dtype", name(map.dtype)},
          {"sizes", texts(map.sizes)},
          {"strides", texts(map.strides)},
          {"box", {map.box_columns, map.box_rows}},
          {"swizzle", 128},
          {"l2_promotion", map.l2_promotion}};
}

std::string_view word_of(ArgsField::Kind kind) {
  return kind == ArgsField::Kind::pointer ? "pointer" : kind == ArgsField::Kind::int32 ? "int32" : "int64";
}

// The struct Args, field by field; what is not named is zero.
Json args_json(const Product& product, const LaunchRule& rule, bool leaves_sums) {
  Json fields = Json::array();
  const auto add = [&](std::string_view name, size_t offset, std::string_view kind, Json value) {
    fields.push_back({{"name", name}, {"offset", offset}, {kind, std::move(value)}});
  };
  for (const ArgsField& field : args_fields()) {
    const std::string source = source_of(field.name, product, rule, leaves_sums);
    if (!source.empty()) add(field.name, field.offset, word_of(field.kind), source);
  }
  for (const MapRule& map : rule.maps)
    add(map.field, map_offset(map.field), "tensor_map",
        map_json(map, source_of(map.pointer, product, rule, leaves_sums)));
  return {{"struct", {{"size", sizeof(Args)}, {"alignment", alignof(Args)}, {"fields", std::move(fields)}}}};
}

Json main_launch(const ExportedKernel& kernel, const Product& product, const LaunchRule& rule, bool leaves_sums) {
  Json cubins = Json::object();
  for (const CubinFile& cubin : kernel.cubins) cubins[cubin.arch] = cubin.name;
  return {{"cubin", std::move(cubins)},
          {"entry", "moetune_kernel"},
          {"threads", kernel.plan.threads},
          {"shared_bytes", kernel.plan.shared_bytes},
          {"cluster", kernel.plan.cluster},
          {"most_per_processor", kernel.plan.workspace > 0 ? Json(kernel.plan.min_blocks_per_sm) : Json(nullptr)},
          {"cooperative", rule.cooperative},
          {"follows", name(rule.follows)},
          {"grid", rule.grid.text()},
          {"arguments", {args_json(product, rule, leaves_sums)}}};
}

// A launch of a kernel beside those of the variants, with `blocks` blocks, at most 2^16.
Json pass(Json cubins, std::string_view entry, int threads, std::string_view blocks, Json arguments) {
  return {{"cubin", std::move(cubins)},
          {"entry", entry},
          {"threads", threads},
          {"shared_bytes", 0},
          {"cluster", 1},
          {"most_per_processor", nullptr},
          {"cooperative", false},
          {"grid", fmt::format("min(max({}, 1), 65536)", blocks)},
          {"arguments", std::move(arguments)}};
}

Json pointer(std::string_view source) { return {{"pointer", source}}; }
Json fill(std::string_view pointer, int byte, std::string_view bytes) {
  return {{"fill", {{"pointer", pointer}, {"byte", byte}, {"bytes", bytes}}}};
}

void add_last_pass(Json& launches, const Product& p, const ServiceCubins& services, const LaunchPlan& plan) {
  Json cubins = Json::object();
  for (const auto& [dtype, cubin] : services.finish)
    if (dtype == p.d.type.dtype) cubins[cubin.arch] = cubin.name;
  const Json rows = {{"int32", "rows"}}, width = {{"int64", p.gate_gradient ? "n" : columns_expression(p, p.d).text()}};
  const Json none = {{"int64", "0"}};
  if (sums_slots(p)) {
    launches.push_back(fill("row_of", 255, "slots * 4"));
    launches.push_back(pass(cubins, "invert", kPassThreads, fmt::format("ceil_div(rows, {})", kPassThreads),
                            {pointer("row_of"), pointer("gather_indices"), rows}));
    launches.push_back(pass(cubins, "sum_slots", kPassThreads, "tokens",
                            {pointer(operand_name(p.d.matrix)),
                             pointer("sums"),
                             pointer("row_of"),
                             none,
                             {{"int32", "tokens"}},
                             {{"int32", "top_k"}},
                             width}));
  }
  if (p.weight_gradient) launches.push_back(fill("dweights", 0, "slots * 4"));
  if (p.weight_gradient && plan.gate_parts > 0)
    launches.push_back(pass(cubins, "add_parts", kPassThreads, fmt::format("ceil_div(rows, {})", kPassThreads),
                            {pointer("dweights"),
                             pointer("parts"),
                             pointer("gather_indices"),
                             rows,
                             {{"int32", count_of_parts(plan).text()}}}));
  if (plan.gate_parts > 0) return;
  if (p.gate_gradient) {
    const auto number = [](int value) { return Json{{"int32", std::to_string(value)}}; };
    launches.push_back(
        pass(cubins, "gate_gradient", kPassThreads, "rows",
             {pointer("dh"), pointer("x"), p.weight_gradient ? pointer("dweights") : none, pointer("sums"),
              pointer("h"), pointer("gather_indices"), weights_result(p) ? pointer("topk_weights") : none,
              number(static_cast<int>(p.activation)), number(p.interleaved), rows, width}));
  } else if (p.weight_gradient) {
    launches.push_back(pass(cubins, "weigh_rows", kPassThreads, "rows",
                            {pointer(operand_name(p.d.matrix)), pointer("dweights"), pointer("sums"),
                             pointer(operand_name(p.weight_gradient->x.matrix)), pointer("gather_indices"),
                             pointer("topk_weights"), rows, width}));
  }
}

Json kernel_json(const ExportedKernel& kernel, const ServiceCubins& services) {
  const Product product = product_of(kernel.shape);
  const Product first = before_last_pass(product, kernel.plan.gate_parts > 0);
  const bool leaves_sums = takes_another_pass(product) && kernel.plan.gate_parts == 0;
  const LaunchRule rule = launch_rule(kernel.plan, first);
  Json launches = Json::array();
  // The kernel's Y is what `product` says: the sums, where another pass follows.
  Product handed = product;
  handed.weighting = first.weighting;
  launches.push_back(main_launch(kernel, handed, rule, leaves_sums));
  if (takes_another_pass(product)) add_last_pass(launches, product, services, kernel.plan);
  return {{"name", kernel.name},
          {"op", name(kernel.shape.op)},
          {"dtype", kernel.shape.layer.format.word},
          {"fusion", text(kernel.shape.fusion)},
          {"experts", kernel.shape.layer.local_experts()},
          {"sizes",
           {{"x_rows", rows_expression(first, first.a).text()},
            {"w_rows", rows_expression(first, first.b).text()},
            {"y_rows", rows_expression(first, first.d).text()}}},
          {"candidate", to_json(kernel.candidate)},
          {"source", kernel.name + ".cu"},
          {"operands", operands_of(product)},
          {"buffers", buffers_of(rule, product, leaves_sums)},
          {"launches", std::move(launches)}};
}

Json extents(const Shape& shape) {
  const Product product = product_of(shape);
  return {{"m", product.m}, {"n", product.n}, {"k", product.k}};
}

Json files_json(const KernelExport& exported) {
  Json files = Json::object();
  const auto add = [&](const CubinFile& cubin) {
    files[cubin.name] = {{"arch", cubin.arch},
                         {"bytes", cubin.bytes.size()},
                         {"sha256", Sha256::hex(cubin.bytes)},
                         {"registers", cubin.registers}};
  };
  for (const ExportedKernel& kernel : exported.kernels) std::ranges::for_each(kernel.cubins, add);
  std::ranges::for_each(exported.services.route, add);
  for (const auto& [dtype, cubin] : exported.services.finish) add(cubin);
  for (const auto& [format, cubin] : exported.services.reorder) add(cubin);
  return files;
}

// A launch whose kernel calls follow_any().
Json early(Json launch) {
  launch["follows"] = name(Follows::any);
  return launch;
}

Json cubins_of(const ServiceCubins& services) {
  Json cubins = Json::object();
  for (const CubinFile& cubin : services.route) cubins[cubin.arch] = cubin.name;
  return cubins;
}

// One launch for each type of Y.
Json sum_json(const ServiceCubins& services) {
  Json sum = Json::object();
  for (const std::string_view y : {"bf16", "fp16"})
    sum[y] = early(pass(cubins_of(services), fmt::format("sum_{}", y), 256, "tokens",
                        {pointer("sum"), pointer("y"), {{"int32", "tokens"}}, {{"int32", "top_k"}}, {{"int64", "n"}}}));
  return sum;
}

// One launch for each type of ids.
Json route_json(const ServiceCubins& services) {
  Json route = Json::object();
  for (const std::string_view ids : {"int32", "int64"})
    route[ids] = early(pass(cubins_of(services), fmt::format("route_{}", ids), 1024, "experts",
                            {pointer("m_sizes"),
                             pointer("gather_indices"),
                             pointer("topk_ids"),
                             {{"int32", "slots"}},
                             {{"int32", "first_expert"}},
                             {{"int32", "rows"}}}));
  return route;
}

// One launch for each format of W.
Json reorder_json(const ServiceCubins& services) {
  Json reorder = Json::object(), cubins = Json::object();
  for (const auto& [format, cubin] : services.reorder) cubins[format.word][cubin.arch] = cubin.name;
  for (const auto& [format, cubin] : services.reorder)
    reorder[format.word] =
        pass(cubins[format.word], "reorder", 128,
             fmt::format("experts * ceil_div(n, {}) * ceil_div(k, 256) * {}", kReorderedRows, reordered_across(256)),
             {pointer("reordered"),
              pointer("w"),
              pointer("w_scales"),
              format.w.zero_points ? pointer("w_zeros") : Json{{"int64", "0"}},
              pointer("refused"),
              {{"int64", "experts"}},
              {{"int64", "n"}},
              {{"int64", "k"}},
              {{"int32", "per_output"}},
              {{"int32", "interleaved"}}});
  return reorder;
}

Json choose_json(const ServiceCubins& services) {
  Json arguments = {pointer("topk_weights"), pointer("topk_ids"), pointer("logits"), pointer("bias")};
  for (const char* word :
       {"type", "tokens", "experts", "top_k", "sigmoid", "renormalize", "scale", "groups", "top_groups"})
    arguments.push_back({{"int32", word}});
  return early(pass(cubins_of(services), "choose", 128, "ceil_div(tokens, 4)", std::move(arguments)));
}

}  // namespace

std::string kernel_name(const Candidate& candidate, const Shape& shape) {
  const std::string unit = candidate.variant->unit(candidate, shape);
  Hash key;
  key.add(unit).add(text(shape.fusion)).add(name(shape.op));
  if (is_quantised(shape.layer.format))
    key.add(name(shape.layer.format.scales));  // kernels don't tell tensors by theirs
  return fmt::format("{}-{}", candidate.variant->name, key.hex().substr(0, 12));
}

std::string cubin_name(std::string_view stem, std::string_view arch) { return fmt::format("{}.{}.cubin", stem, arch); }

Json asked_json(const Shape& shape) {
  return {{"op", name(shape.op)},
          {"dtype", shape.layer.format.word},
          {"experts", shape.layer.local_experts()},
          {"top_k", shape.layer.top_k},
          {"n", shape.layer.n},
          {"k", shape.layer.k},
          {"fusion", text(shape.fusion)}};
}

Candidate launchable(const Candidate& winner) {
  return find_value(winner, "addressing").value_or(0) == 0 ? winner : with_value(winner, "addressing", 0);
}

Json kernel_manifest(const KernelExport& exported, const TunedTable& table) {
  const auto is_exported = [&](const Cell& other, const std::string& arch) {
    return std::ranges::any_of(exported.cells,
                               [&](const ServedCell& one) { return one.cell == other && one.arch == arch; });
  };
  const auto cell_json = [&](const ServedCell& cell) {
    Json json = {{"id", id(cell.cell)},
                 {"arch", cell.arch},
                 {"kernel", cell.kernel},
                 {"asked", asked_json(cell.cell.shape)},
                 {"extents", extents(cell.cell.shape)},
                 {"tokens", cell.cell.tokens},
                 {"skew", rounded(cell.skew)},
                 {"tuned", cell.seconds > 0}};
    if (cell.seconds > 0) json["time_us"] = rounded(cell.seconds * 1e6);
    if (const TunedLayer* layer = find_layer(table, cell.cell);
        layer && layer->up == cell.cell && is_exported(layer->down, cell.arch))
      json["down"] = id(layer->down);
    return json;
  };
  const auto range_json = [](const ServedRange& range) -> Json {
    return {{"arch", range.arch},
            {"kernel", range.kernel},
            {"asked", asked_json(range.shape)},
            {"extents", extents(range.shape)},
            {"tokens", to_json(range.tokens)},
            {"worst_regret", rounded(range.worst_regret)}};
  };
  Json manifest = {
      {"schema", "moetune.kernels/1"},
      {"abi", kKernelAbi},
      {"tool", table.tool},
      {"device", {{"name", table.device.name}, {"arch", arch(table.device)}}},
      {"regime", name(table.regime)},
      {"times_of_other_kernels", exported.of_other_kernels},
      {"files", files_json(exported)},
      {"choose", choose_json(exported.services)},
      {"route", route_json(exported.services)},
      {"sum", sum_json(exported.services)},
      {"kernels", json_list(exported.kernels, [&](const auto& one) { return kernel_json(one, exported.services); })},
      {"cells", json_list(exported.cells, cell_json)},
      {"ranges", json_list(exported.ranges, range_json)}};
  if (!exported.services.reorder.empty()) manifest["reorder"] = reorder_json(exported.services);
  return manifest;
}

void require_kernel_manifest(const JsonAt& json, const Catalog& catalog) {
  require_manifest(json);
  each(json["kernels"], [&](const JsonAt& kernel) { candidate_from_json(kernel["candidate"], catalog); });
}

void require_files_of_manifest(const JsonAt& json, const std::filesystem::path& manifest) {
  read_manifest(manifest.parent_path());
  require_digests(manifest.parent_path());
  for (const auto& [name, file] : json["files"].value().items())
    read_cubin(manifest.parent_path(), json["files"], name);
}

}  // namespace moetune
