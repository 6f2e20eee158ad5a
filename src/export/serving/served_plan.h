// The plan of `tune --for`: which cells and rows are measured for a server, which are raced, and what its file gains.
// Not the options that ask for it, and not how kernels are compiled: cli.
#pragma once
#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "export/serving/serving.h"
#include "workload/cells.h"

namespace moetune {

/// A layer whose file is made: one key_of_layer.
struct PlannedLayer {
  Layer layer;  // down, whose k is the width of the rank's experts
  ServedFile file;
  std::vector<int64_t> tokens = {};  // ascending
};

struct ServedPlan {
  const Server* server = nullptr;
  std::string prefix;  // before the names of files: file_prefix
  LookUp places = {};  // of the server's own files
  std::vector<Cell> cells = {};
  std::vector<PlannedLayer> layers = {};  // at least one
  std::vector<TriedRow> rows = {};        // to compile: those worth trying, and the server's own
  int64_t of_rows = 0;                    // that the server's own tuner would try
  int64_t kernels = 0;                    // that are compiled
};

/// The request for all cells that a server's file is for: both projections by slot, the token counts that its tuner
/// fills and a file can change, even and uneven rows; `shared_experts` more, which every token picks. `expand` makes
/// the cells of a request. Exit::request for layers of several formats or top_k.
CellRequest served_request(const Server& server, CellRequest asked, int64_t shared_experts,
                           const std::function<std::vector<Cell>(const CellRequest&)>& expand);

/// `values` and `full` as in RowSearch. Exit::request for cells that the server runs with another kernel, or with
/// blocks of scales of another size.
ServedPlan make_served_plan(const Server& server, const std::vector<Cell>& cells, const DeviceInfo& device,
                            const LookUp& places, const std::string& triton,
                            const std::map<std::string, std::vector<int64_t>>& values, bool full);

/// The candidates of a contest for one layer and token count: the server's own rows and serving_contenders. `journal`
/// is that of the run, `variant` the pack's.
std::vector<Candidate> planned_contenders(const ServedPlan& plan, const TunedTable& table, const Entries& pool,
                                          const JournalContents& journal, const VariantPtr& variant);

/// The table without token counts whose rows were not chosen, for both projections: the time ended before.
TunedTable finished(const TunedTable& table);

/// One token count of a file.
struct RowGain {
  int64_t tokens = 0;
  RowPair own = {}, written = {};                        // what the server ran, and runs with the file
  std::vector<std::optional<Estimate>> by_routing = {};  // before / after, in the order of routings_of; where timed
  bool timed() const {
    return std::ranges::all_of(by_routing, [](const auto& one) { return one.has_value(); });
  }
};

/// The routings of the plan's cells, in their order.
std::vector<std::string> routings_of(const ServedPlan& plan);

/// Of a layer's token counts that a finished table has. `written` holds the layer's files, or none.
std::vector<RowGain> gains_of(const ServedPlan& plan, const PlannedLayer& layer, const TunedTable& table,
                              const Export& written);

/// A file of configs/tuned/served, which this binary holds: tuned on a real device, ready to use.
struct ReadyFile {
  const Server* server;
  std::string_view path;  // as in the repository
  std::string_view text;
  std::string name() const { return std::string(path.substr(path.rfind('/') + 1)); }
};
std::vector<ReadyFile> ready_files();

/// The server's files that a folder in its variable lacks, so that other layers keep theirs: those of the bundled
/// folder, by their names below `folder`. Empty where the variable hides nothing or the folder is the bundled one.
std::vector<std::pair<std::filesystem::path, std::filesystem::path>> files_to_copy(const ServedPlan& plan,
                                                                                   const std::filesystem::path& folder);

}  // namespace moetune
