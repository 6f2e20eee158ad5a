// Writes tables in other programs' formats.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "record/journal/journal.h"
#include "record/table/table.h"

namespace moetune {

struct ExportedFile {
  std::string name;  // the file name that the other program looks for; "" = whatever the user asks for
  std::string text;
};

struct Export {
  std::vector<ExportedFile> files;
  std::vector<std::string> notes = {};  // for standard error: what was left out and why, what knobs mean there
};

enum class Server { vllm, sglang };

/// How a server's files are made.
struct ServingRequest {
  const TunedTable* measured = nullptr;  // whose times count, where the table's winners were joined; null: the table
  const JournalContents* journal = nullptr;       // of its run, for times of other candidates
  std::vector<std::filesystem::path> bases = {};  // the server's own files, or folders of them
  bool unproven = false;                          // rows too that are not known to be faster than the server's own
  std::string folder = {};                        // before the files' names: "configs/triton_3_6_0/"
};

struct Exporter {
  std::string_view format;  // "vllm"
  std::string_view description;
  Export (*write)(const TunedTable&) = nullptr;  // null for servers, and for what cli/commands/export.cpp makes
  std::optional<Server> server = {};
};

/// One row an entry, the same columns in every table; quoting after RFC 4180, lines end in a line feed.
Export export_csv(const TunedTable& table);
/// Cells and robust choices with knobs, cubin and time, without rows and rivals: configs/schema/runtime.json.
Export export_runtime(const TunedTable& table);
/// Throws Exit::request, with the place, for a file that is not one.
void require_runtime(const JsonAt& json);

/// For vLLM one file a layer, from up's winners: it runs both projections with one row. For SGLang one file a layer for
/// up, and a second one for down, whose BLOCK_SIZE_M is up's. A server takes the row of the nearest key. Keys are such
/// that this gives for every token count what `lookup` gives by tokens, where the counts beside it were tuned or a
/// robust choice covers it, and what the server would run without the file elsewhere: the row of a base file, or its
/// default. A winner has a row only if it is faster than that in each cell of its token count, by more than the
/// intervals of their times.
Export export_serving(Server server, const TunedTable& table, const ServingRequest& request);

/// vllm, sglang, csv, markdown, runtime, kernels.
const std::vector<Exporter>& exporters();
const Exporter& find_exporter(std::string_view format);

}  // namespace moetune
