// The list of export formats: one line each.
#include "table/exporter.h"

#include "base/error.h"
#include "table/serving_export.h"
#include "table/text_export.h"

namespace moetune {

const std::vector<Exporter>& exporters() {
  static const std::vector<Exporter> list = {
      {"vllm", "vLLM's fused MoE configurations (E=...,N=...,device_name=....json), one file a layer", export_vllm},
      {"sglang", "SGLang's fused MoE configurations, with a second file for the down projection", export_sglang},
      {"csv", "one row an entry, for spreadsheets and data frames", export_csv},
      {"markdown", "tables by layer, for people", export_markdown},
      {"kernels", "a folder of cubins with a manifest, and loaders for C++ and Python that launch them", nullptr},
  };
  return list;
}

const Exporter& find_exporter(std::string_view format) {
  std::vector<std::string> known;
  for (const Exporter& exporter : exporters()) {
    if (exporter.format == format) return exporter;
    known.emplace_back(exporter.format);
  }
  throw unknown_word("format", format, known);
}

}  // namespace moetune
