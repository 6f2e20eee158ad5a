// A pack of CUDA C++ kernels, compiled as any are: moetune's own simt kernel under another name, behind a step that
// hands it the row counts.
#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "backend/cuda/compile/compiler.h"
#include "base/hash.h"
#include "built_in.h"
#include "kernels/args.h"
#include "temporary_folder.h"
#include "variant/pack/launch_rule.h"
#include "variant/pack/pack.h"

namespace moetune {

/// What simt's kernel is handed, but for its row counts; of fp8 with X's scales MN-major.
inline Json simt_fields(bool fp8) {
  std::map<std::string, std::string> pointers = {{"m_sizes", "sizes"}},
                                     sizes = {{"y_scale_row", "0"}, {"y_scale_step", "0"}};
  for (const std::string own : {"x", "w", "y", "gather_indices", "topk_weights"}) pointers[own] = own;
  if (fp8) {
    pointers["x_scales"] = "x_scales_mn_major", pointers["w_scales"] = "w_scales";
    sizes["x_scale_row"] = "1", sizes["x_scale_step"] = "ceil_div(x_rows, 4) * 4";
  }
  Json fields = Json::array();
  for (const ArgsField& field : args_fields()) {
    const std::string name(field.name);
    Json one = {{"name", name}, {"offset", field.offset}};
    if (field.kind != ArgsField::Kind::pointer)
      one[field.kind == ArgsField::Kind::int32 ? "int32" : "int64"] = sizes.contains(name) ? sizes[name] : name;
    else if (pointers.contains(name))
      one["pointer"] = pointers[name];
    else
      continue;
    fields.push_back(one);
  }
  return fields;
}

/// Writes the pack `packed_simt` for forward of `shape`'s dtype and fusion into `folder`: block_m 16 and 32,
/// block_n 64. `weighting` is what the manifest says of its weights.
inline void write_simt_pack(const TemporaryFolder& folder, const Shape& shape, const std::string& arch,
                            const std::string& weighting) {
  const Variant& simt = find_variant("simt");
  std::vector<std::string> units = {
      "extern \"C\" __global__ void copy_sizes(int* to, const int* from, int experts) {\n"
      "  if (threadIdx.x < experts) to[threadIdx.x] = from[threadIdx.x];\n"
      "}\n"};
  for (const int block_m : {16, 32}) units.push_back(simt.unit(candidate_of("simt", {block_m, 64, 16}), shape));
  const std::vector<CompiledUnit> compiled = compile_units(units, {.arch = arch, .sources = kernel_sources()});
  Json files = Json::object();
  const std::string names[] = {"sizes.cubin", "simt16.cubin", "simt32.cubin"};
  for (size_t i = 0; i < compiled.size(); ++i) {
    folder.write(names[i], compiled[i].cubin);
    files[names[i]] = {{"arch", arch},
                       {"bytes", compiled[i].cubin.size()},
                       {"sha256", Sha256::hex(compiled[i].cubin)},
                       {"registers", compiled[i].result.registers}};
  }
  const auto operand = [](const char* name, std::string_view dtype, std::vector<std::string> sides,
                          const char* access) {
    return Json{{"name", name}, {"dtype", dtype}, {"shape", std::move(sides)}, {"access", access}};
  };
  const Product product = product_of(shape);
  const std::string_view dtype = name(shape.layer.format.x.dtype);
  Json operands = {operand("x", dtype, {rows_expression(product, product.a).text(), "k"}, "read"),
                   operand("w", dtype, {"experts * n", "k"}, "read"),
                   operand("y", name(product.d.type.dtype), {rows_expression(product, product.d).text(), "n"}, "write"),
                   operand("m_sizes", "int32", {"experts"}, "read"),
                   operand("gather_indices", "int32", {"rows"}, "read"),
                   operand("topk_weights", "fp32", {"slots"}, "read")};
  const bool fp8 = multiplies_fp8(shape.layer.format);
  if (fp8) {
    operands.push_back(operand("x_scales_mn_major", "fp32", {"ceil_div(k, 128)", "ceil_div(x_rows, 4) * 4"}, "read"));
    operands.push_back(operand("w_scales", "fp32", {"experts", "ceil_div(n, 128)", "ceil_div(k, 128)"}, "read"));
  }
  const auto binary = [&](const std::string& file, int block_m) {
    return Json{{"files", {{arch, file}}}, {"entry", "moetune_kernel"}, {"threads", block_m * 4}, {"shared_bytes", 0}};
  };
  const Json manifest = {
      {"schema", "moetune.pack/1"},
      {"variant", "packed_simt"},
      {"summary", "CUDA cores, from a folder"},
      {"knobs",
       {{{"name", "block_m"}, {"help", "rows of a tile"}, {"values", {16, 32}}, {"default", 16}},
        {{"name", "spread"}, {"help", "blocks for each that fits"}, {"values", {1, 2}}, {"default", 1}}}},
      {"computes",
       {{{"op", "fwd"},
         {"dtype", shape.layer.format.word},
         {"fusion", text(shape.fusion)},
         {"weighting", weighting}}}},
      {"rules", Json::array()},
      {"files", std::move(files)},
      {"binaries", {binary(names[1], 16), binary(names[2], 32)}},
      {"candidates", {{16, 1, 0}, {16, 2, 0}, {32, 1, 1}}},
      {"operands", std::move(operands)},
      {"buffers", {{{"name", "sizes"}, {"bytes", "experts * 4"}, {"zeroed", false}}}},
      {"launches",
       {{{"fill", {{"pointer", "sizes"}, {"byte", 0}, {"bytes", "experts * 4"}}}},
        {{"cubin", {{arch, names[0]}}},
         {"entry", "copy_sizes"},
         {"threads", 256},
         {"shared_bytes", 0},
         {"cluster", 1},
         {"most_per_processor", nullptr},
         {"cooperative", false},
         {"grid", "1"},
         {"arguments", {{{"pointer", "sizes"}}, {{"pointer", "m_sizes"}}, {{"int32", "experts"}}}}},
        {{"cubin", "candidate"},
         {"cooperative", false},
         {"grid", "min((rows / block_m + min(experts, rows)) * ceil_div(n, 64), held * spread)"},
         {"arguments",
          {{{"struct", {{"size", sizeof(Args)}, {"alignment", alignof(Args)}, {"fields", simt_fields(fp8)}}}}}}}}}};
  folder.write("pack.json", manifest.dump(1));
}

}  // namespace moetune
