// `tune --for`: from a model to a file of a server. Not the search: that is tune's own, over a pack of the
// server's kernel that is made here.
#pragma once

#include "cli/commands/command.h"
#include "cli/options/shard.h"
#include "cli/tables/choosing.h"
#include "export/serving/served_plan.h"
#include "tune/tuner.h"

namespace moetune {

/// Of --for.
struct ServedOptions {
  std::string program, kernel_file, shared_experts;
  std::vector<std::string> bases;
};

/// The options of `tune`.
struct TuneOptions {
  Shard part;                // by --shard or the environment
  std::string whole_output;  // the name without the shard
  CellOptions cells;
  DeviceOptions device;
  Catalog catalog = Catalog();  // with the packs of `device`
  SearchOptions search;
  ChoosingOptions choosing;
  ServedOptions served;
  std::string strategy = "auto";
  std::optional<int64_t> max_candidates, rounds, at_once;
  std::optional<double> time_budget, wait;
  std::optional<Regime> regime;
  OutputFormat format = OutputFormat::text;
  std::string output, journal, shard, warm_start;
  bool resume = false, append = false, dry_run = false, quiet = false, require_quiet = false, verbose = false;
};

/// A server's kernel: where it lies, which Triton would compile it (empty: there is none), and which one the server
/// runs: the one installed beside it, or pinned by its torch; empty where neither is known.
struct FoundKernel {
  std::filesystem::path file;
  std::string triton, servers_triton;
  const std::string& version() const { return servers_triton.empty() ? triton : servers_triton; }
};

/// What `tune --for` does.
struct ServedRun {
  ServedPlan plan;
  std::filesystem::path folder;  // of the files
  FoundKernel kernel;            // without a file where it was not found, see `missing`
  std::string missing;           // why the kernel or Triton was not found
  DeviceInfo device;
};

void declare(OptionSet& set, ServedOptions& options);

/// Fills in the options of cells, candidates and files that --for implies, and looks for the server's kernel, its own
/// files and the device's name. Exit::request for what the server's kernel cannot run; in a dry run a kernel that is
/// not found is no error.
ServedRun plan_for(TuneOptions& options, const Invocation& invocation);

/// What a dry run prints.
std::string served_plan_text(const ServedRun& run, const TuneOptions& options);

/// Compiles the kernels, or takes them from the cache, and adds the pack to the options.
void make_pack(const ServedRun& run, TuneOptions& options, const Invocation& invocation);

/// Leaves judging to the choice after the run: short finals, and a part of the time.
void leave_to_choice(TuneRequest& request);

/// What a contest takes for its contenders.
std::function<std::vector<Candidate>(const Entries&)> served_contenders(const ServedRun& run, const TunedTable& table,
                                                                        const TuneOptions& options);

/// What is wrong with results of this run's candidates, and the command that repeats one; empty where all are right.
std::string wrong_text(const TuneOptions& options, const TunedTable& table, const Style& style);

/// Writes the files and prints each token count's rows and gain. Token counts without choices keep the server's rows.
Exit write_served(const ServedRun& run, const TunedTable& table, const TuneOptions& options,
                  const Invocation& invocation);

/// Runs scripts/pack_triton.py with Python (MOETUNE_PYTHON, else python3) and the script that this binary holds.
/// `format` is a word of ServingFormat. Errors are the script's, Exit::machine where Python lacks.
FoundKernel find_kernel(const Server& server, const std::string& format, const std::string& kernel_file);
/// Exit::machine where there is no Triton to compile the kernel, with the version to install.
void require_triton(const Server& server, const FoundKernel& kernel);

/// The folder of the pack of these rows, made where the cache has none; `fresh`: in the run's own folder.
std::filesystem::path packed(const ServedRun& run, bool fresh, const Terminal& terminal, bool quiet);

}  // namespace moetune
