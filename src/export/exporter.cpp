// The list of export formats: one line each.
#include "export/exporter.h"

#include "base/error.h"

namespace moetune {

const std::vector<Exporter>& exporters() {
  static const std::vector<Exporter> list = {
      {"vllm",
       "vLLM's fused MoE configurations (E=...,N=...,device_name=....json), one file a layer; untuned counts "
       "keep its default",
       nullptr, Server::vllm},
      {"sglang",
       "SGLang's fused MoE configurations, with a second file for the down projection; untuned counts keep its default",
       nullptr, Server::sglang},
      {"csv", "one row an entry, for spreadsheets and data frames", export_csv},
      {"markdown", "tables by layer, for people, as tune prints them", nullptr},
      {"runtime", "a compact JSON for programs that pick kernels: knobs, cubin and time of each cell", export_runtime},
      {"kernels", "a folder of cubins and a library that launches them from C, C++, Python and PyTorch", nullptr},
  };
  return list;
}

const Exporter& find_exporter(std::string_view format) {
  return exporters()[place_of_word("format", format, mapped<std::string>(exporters(), &Exporter::format))];
}

}  // namespace moetune
