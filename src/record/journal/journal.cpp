// Writing journals and reading them back, and whether a run may continue one.
#include "record/journal/journal.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <system_error>

#include "base/error.h"

namespace moetune {
namespace fs = std::filesystem;
namespace {

constexpr uintmax_t kMaxBytes = uintmax_t{4} << 30;
constexpr std::string_view kAfresh = "start afresh without --resume";

Json parse_line(const std::string& line, const Where& place) {
  if (line.find_first_not_of(" \t\r") == std::string::npos) throw request_error("the line is empty").at(place);
  return parse_json(line, place);
}

void read_record(const JsonAt& json, const std::set<std::string>& cells, const Catalog& catalog,
                 JournalContents& contents) {
  const std::string kind = json["kind"].string();
  if (kind == "header") json.fail("a second header: two journals were joined", std::string(kAfresh));
  if (kind != "started" && kind != "trial" && kind != "final") return;  // a later version may write other kinds
  require_valid(json, "journal");
  const std::string cell = json["cell"].string();
  if (!cells.contains(cell)) json["cell"].fail(fmt::format("'{}' is not a cell of the header", cell));
  if (kind == "final") {
    contents.final_seconds[cell] = json["took_us"].number() * 1e-6;
    if (json.has("searched") && json["searched"].boolean())
      contents.searched.insert(cell);
    else
      contents.searched.erase(cell);
    contents.decided.erase(cell);
    if (!json.has("entry")) return;
    Entry entry = entry_from_json(json["entry"], contents.header.device, catalog);
    if (id(entry.cell) != cell) json["entry"].fail(fmt::format("it is of {}, not of {}", id(entry.cell), cell));
    contents.decided.emplace(cell, std::move(entry));
    return;
  }
  if (kind == "started") {
    ++contents.unfinished[cell][text(candidate_from_json(json["candidate"], catalog))];
    return;
  }
  Trial trial = trial_from_json(json, catalog);
  if (const auto open = contents.unfinished.find(cell); open != contents.unfinished.end()) {
    open->second.erase(text(trial.candidate));
    if (open->second.empty()) contents.unfinished.erase(open);
  }
  contents.trials[cell].push_back(std::move(trial));
}

std::set<std::string> ids(const JournalHeader& header) {
  const std::vector<std::string> list = mapped(header.cells, id);
  return {list.begin(), list.end()};
}

void require_that_device(const DeviceInfo& before, const DeviceInfo& now) {
  // Measured figures (memory, peaks) may differ a little from run to run.
  if (same_model(before, now) && before.id == now.id) return;
  const auto named = [](const DeviceInfo& device) { return fmt::format("{} ({})", model_text(device), device.id); };
  throw machine_error(fmt::format("the journal is of {}, this is {}", named(before), named(now)),
                      fmt::format("go on with that device (see --device), or {}", kAfresh));
}

void require_same_identity(const Json& before, const Json& now) {
  const auto differences = mapped(identity_differences(before, now), [](const ValueDifference& one) {
    return fmt::format("{} was {} and is {}", one.key, one.first, one.second);
  });
  if (!differences.empty())
    throw machine_error(fmt::format("times of the journal don't compare: {}", fmt::join(differences, ", ")),
                        fmt::format("go back to that environment, or {}", kAfresh));
}

void require_same_cells(const JournalHeader& before, const JournalHeader& now) {
  const std::set<std::string> was = ids(before), is = ids(now);
  const auto only_in = [](const std::set<std::string>& a, const std::set<std::string>& b) {
    std::vector<std::string> result;
    std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(result));
    return result;
  };
  const std::vector<std::string> gone = only_in(was, is), added = only_in(is, was);
  std::string what;
  if (!gone.empty())
    what += fmt::format("{} of its {} cells are not asked for now ({})", gone.size(), was.size(), gone[0]);
  if (!added.empty())
    what += fmt::format("{}{} of the {} cells asked for are not in it ({})", what.empty() ? "" : ", and ", added.size(),
                        is.size(), added[0]);
  if (!what.empty())
    throw request_error(fmt::format("the journal is of other cells: {}", what),
                        fmt::format("ask for the same cells, name another --journal, or {}", kAfresh));
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

// A line after the last newline was cut off while it was written.
void Journal::go_on() {
  const fs::path& path = file_.path();
  const size_t whole = read_text(path, std::numeric_limits<int64_t>::max()).rfind('\n') + 1;  // 0 where there is none
  std::error_code error;
  fs::resize_file(path, whole, error);
  if (error) throw machine_error(fmt::format("{}: cannot be repaired: {}", path.string(), error.message()));
}

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
               {"regime", name(header.regime)}};
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
  if (json.has("sweep")) header.sweep = list_at(json["sweep"], &JsonAt::string);
  each(json["cells"], [&](const JsonAt& at) {
    header.cells.push_back(cell_from_json(at));
    const std::string given = at["id"].string(), found = id(header.cells.back());
    if (given != found)
      at.fail(fmt::format("the cell is called {}, not {}", found, given),
              "another version wrote this journal: start afresh without --resume");
  });
  return header;
}

void each_line(const fs::path& path, const std::function<void(const JsonAt& json, const std::string& line)>& visit) {
  std::error_code ignored;
  if (!is_there(path))
    throw request_error(fmt::format("{}: there is no such journal", path.string()), std::string(kAfresh));
  if (!is_file(path)) throw request_error(fmt::format("{}: a journal must be a regular file", path.string()));
  if (fs::file_size(path, ignored) > kMaxBytes)
    throw request_error(fmt::format("{}: far too long for a journal", path.string()));
  std::ifstream file(path, std::ios::binary);
  std::string line;
  for (size_t number = 1; std::getline(file, line) && !file.eof(); ++number) {
    const Where place(path, number);
    const Json json = parse_line(line, place);
    visit(JsonAt(json, place), line);
  }
  if (!file.is_open() || file.bad()) throw request_error(fmt::format("{}: cannot be read", path.string()));
}

JournalContents read_journal(const fs::path& path, const Catalog& catalog) {
  std::optional<JournalContents> contents;
  std::set<std::string> cells;
  each_line(path, [&](const JsonAt& json, const std::string&) {
    if (contents) return read_record(json, cells, catalog, *contents);
    contents.emplace().header = journal_header_from_json(json);
    cells = ids(contents->header);
  });
  if (!contents)
    throw request_error(fmt::format("{}: the journal is cut off in its header, nothing was measured", path.string()),
                        std::string(kAfresh));
  return *std::move(contents);
}

void require_resumable(const JournalHeader& before, const JournalHeader& now) {
  require_that_device(before.device, now.device);
  require_same_identity(before.environment, now.environment);
  require_same_cells(before, now);
  const auto require_same = [](std::string_view what, std::string_view option, const auto& was, const auto& is) {
    if (was != is)
      throw request_error(fmt::format("the journal has the {} {}, this run {}", what, was, is),
                          fmt::format("pass {} {}, or {}", option, was, kAfresh));
  };
  require_same("space", "--space", before.space, now.space);
  require_same("strategy", "--strategy", before.strategy, now.strategy);
  require_same("seed", "--seed", before.seed, now.seed);
  require_same("regime", "--regime", name(before.regime), name(now.regime));
}

}  // namespace moetune
