// Writes tables in other programs' formats.
#pragma once
#include <string>
#include <vector>

#include "record/table/table.h"

namespace moetune {

struct ExportedFile {
  std::string name;  // the file name that the other program looks for; "" = whatever the user asks for
  std::string text;
};

struct Export {
  std::vector<ExportedFile> files;
  std::vector<std::string>
      notes;  // for standard error: what was left out and why, what the knobs mean in the other program
};

struct Exporter {
  std::string_view format;  // "vllm"
  std::string_view description;
  Export (*write)(const TunedTable&) = nullptr;  // null for kernels: cli/commands/export_kernels.h
};

/// vllm, sglang, csv, markdown, runtime, kernels.
const std::vector<Exporter>& exporters();
const Exporter& find_exporter(std::string_view format);

}  // namespace moetune
