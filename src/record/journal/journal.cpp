// Writing journals, and the JSON of their header. Reading them: read_journal.cpp.
#include "record/journal/journal.h"

#include <fmt/format.h>

#include <limits>
#include <system_error>

#include "base/error.h"
#include "base/pretty.h"

namespace moetune {
namespace fs = std::filesystem;
namespace {

// A line after the last newline was cut off while it was written.
void cut_partial_line(const fs::path& path) {
  const size_t whole = read_text(path, std::numeric_limits<int64_t>::max()).rfind('\n') + 1;  // 0 where there is none
  std::error_code error;
  fs::resize_file(path, whole, error);
  if (error) throw machine_error(fmt::format("{}: cannot be repaired: {}", path.string(), error.message()));
}

}  // namespace

Journal Journal::claim(const fs::path& path) {
  Journal journal;
  journal.file_ = AppendFile(path);
  journal.file_.lock();
  return journal;
}

// Copied, not renamed: the lock belongs to this file, and another process could take the name between rename and open.
fs::path Journal::keep_copy() const { return copy_old(file_.path()); }

void Journal::begin(const JournalHeader& header) {
  const std::string line = compact_json(to_json(header));
  file_.clear();
  try {
    file_.append(line);
  } catch (const Error&) {
    file_.clear();  // a partial header could not be resumed
    throw;
  }
}

void Journal::go_on() { cut_partial_line(file_.path()); }

void Journal::started(const std::string& cell_id, const Candidate& candidate) {
  if (!file_.is_open()) return;
  file_.append(compact_json({{"kind", "started"}, {"cell", cell_id}, {"candidate", to_json(candidate)}}));
}

void Journal::finished(const std::string& cell_id, const Trial& trial) {
  if (!file_.is_open()) return;
  Json line = {{"kind", "trial"}, {"cell", cell_id}};
  line.update(to_json(trial));
  file_.append(compact_json(line));
}

void Journal::decided(const Entry& entry, const DeviceInfo& device, double seconds, bool searched) {
  if (!file_.is_open()) return;
  file_.append(compact_json({{"kind", "final"},
                             {"cell", id(entry.cell)},
                             {"took_us", rounded(seconds * 1e6, 4)},
                             {"searched", searched},
                             {"entry", to_json(entry, device)}}));
}

Json to_json(const JournalHeader& header) {
  const auto named = [](const Cell& cell) {
    Json json = {{"id", id(cell)}};
    json.update(to_json(cell));
    return json;
  };
  Json json = {{"schema", "moetune.journal/1"},
               {"kind", "header"},
               {"device", to_json(header.device)},
               {"environment", header.environment.is_null() ? Json::object() : header.environment},
               {"space", header.space},
               {"strategy", header.strategy},
               {"seed", header.seed},
               {"regime", name(header.regime)},
               {"at_once", header.at_once}};
  if (!header.sweep.empty()) json["sweep"] = header.sweep;
  json["cells"] = json_list(header.cells, named);
  return json;
}

JournalHeader journal_header_from_json(const JsonAt& json) {
  require_schema(json, "journal");
  if (json["kind"].string() != "header") json["kind"].fail("the first line must be the header");
  JournalHeader header;
  header.device = device_from_json(json["device"]);
  header.environment = json["environment"].value();
  header.space = json["space"].string();
  header.strategy = json["strategy"].string();
  header.seed = seed_from_json(json["seed"]);
  if (json.has("regime")) header.regime = parse_regime(json["regime"].string());  // older journals: burst
  if (json.has("at_once")) header.at_once = json["at_once"].integer(1);           // older journals: 1
  if (json.has("sweep")) header.sweep = list_at(json["sweep"], &JsonAt::string);
  each(json["cells"], [&](const JsonAt& at) {
    header.cells.push_back(cell_from_json(at));
    const std::string told = at["id"].string(), found = id(header.cells.back());
    if (told != found)
      at.fail(fmt::format("the cell is called {}, not {}", found, told),
              "another version wrote this journal: start afresh without --resume");
  });
  return header;
}

}  // namespace moetune
