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

/// One row an entry, the same columns in every table; quoting after RFC 4180, lines end in a line feed.
Export export_csv(const TunedTable& table);
/// Tables by layer, with uncertainty.
Export export_markdown(const TunedTable& table);
/// Cells and robust choices with knobs, cubin and time, without rows and rivals: configs/schema/runtime.json.
Export export_runtime(const TunedTable& table);
/// Throws Exit::request, with the place, for a file that is not one.
void require_runtime(const JsonAt& json);

// A server takes the row of the nearest key. Keys are added so that this gives for every token count what `lookup`
// gives by tokens, where the counts beside it were tuned or a robust choice covers it. The server's own counts without
// a winner keep its default row.

/// One file a layer, from up's winners: vLLM runs both projections with one row.
Export export_vllm(const TunedTable& table);
/// One file a layer for up, and a second one for down, whose BLOCK_SIZE_M is up's.
Export export_sglang(const TunedTable& table);

/// vllm, sglang, csv, markdown, runtime, kernels.
const std::vector<Exporter>& exporters();
const Exporter& find_exporter(std::string_view format);

}  // namespace moetune
