// The options of `tune`, for the files that carry it out.
#pragma once
#include <string>
#include <vector>

#include "cli/options/cells.h"
#include "cli/options/device_options.h"
#include "cli/options/search_options.h"
#include "cli/options/shard.h"
#include "cli/tables/choosing.h"
#include "variant/catalog.h"

namespace moetune {

/// Of --for.
struct ServedOptions {
  std::string program, kernel_file, shared_experts;
  std::vector<std::string> bases;
};

struct TuneOptions {
  Shard part;                // by --shard or the environment
  std::string whole_output;  // the name without the shard
  CellOptions cells;
  DeviceOptions device;
  Catalog catalog = Catalog();  // with the packs of `device`
  SearchOptions search;
  ChoosingOptions choosing;
  ServedOptions served;
  std::string strategy = "auto", max_candidates, prune, time_budget, rounds, wait, regime = kBurst;
  std::string output, journal, format, shard, warm_start;
  std::string at_once;
  bool mixed = false;  // GPUs of unlike models
  bool resume = false, append = false, dry_run = false, quiet = false, require_quiet = false, verbose = false;
};

}  // namespace moetune
