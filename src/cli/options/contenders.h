// Options that choose candidates: a space and its changes, candidates by name, a table's winners; and what `bench` and
// `verify` run in each cell.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "cli/options/cells.h"
#include "cli/options/device_options.h"
#include "cli/text/output.h"
#include "record/table/table.h"
#include "record/wrong_results.h"
#include "variant/space/space.h"

namespace moetune {

struct SearchOptions {
  std::string space;                      // empty: the command's own choice
  std::vector<std::string> variants;      // lists
  std::vector<std::string> settings;      // knob=values
  std::optional<int64_t> max_candidates;  // to draw from the space

  bool names_space() const { return !space.empty() || !variants.empty() || !settings.empty(); }
};
/// Without a default space, candidates are only of a space where one is named, and --max-candidates draws from it.
void declare(OptionSet& set, SearchOptions& options, const std::string& default_space = {});

/// The space with --variant and --set applied; `default_space` where none was named.
SearchSpace make_space(const SearchOptions& options, const std::string& default_space, const Catalog& catalog);

/// Throws Exit::request where no variant of the space runs on this device, or none that has a knob of --set: the
/// options would change nothing.
void require_knobs(const SearchOptions& options, const SearchSpace& space, const DeviceInfo& device);

/// --max-candidates as a number, 0 where not given. Exit::request where no space is named that it could be of.
int64_t candidate_limit(const SearchOptions& options);

/// Where --weights is not given, has W of 4 bits reordered for a GPU whose wgmma reads it so, and notes it; not with
/// packs or other variants, whose kernels read rows, and not of a suite. Opens the device if W has 4 bits.
void choose_weight_order(CellOptions& cells, const DeviceOptions& device, const std::vector<std::string>& variants,
                         const Terminal& terminal);

/// --candidate texts, knobs that they don't name unset; duplicates dropped.
std::vector<Candidate> parse_candidates(const std::vector<std::string>& texts, const Catalog& catalog);

struct ContenderOptions {
  std::vector<std::string> candidates;  // texts
  std::string table;                    // a file
};
void declare(OptionSet& set, ContenderOptions& options);

/// A contender and why it is there: "candidate", "winner", "layer" (of its pair), "default", "baseline", or several
/// with '+'.
struct Entrant {
  std::string role;
  Contender contender;
  std::string name = {};  // in short, for people: see name_entrants
};

/// What `bench` or `verify` found about an entrant: its verdict, times and repetitions, or why it has none.
struct EntrantResult {
  Cell cell;
  Entrant entrant;
  Status status = Status::ok;
  std::string reason = {};
  bool no_memory = false;  // the machine has too little for the problem
  Verdict verdict = {};
  std::optional<Repetition> repetition = {};  // where asked for, and the verdict is good
  Measurement measurement = {};
  Estimate versus = {};                    // time of the first baseline over this one's: above 1, this one is faster
  std::optional<Estimate> of_winner = {};  // its time over the winner's, of the same rounds
  double flops = 0, bytes = 0;
  std::vector<int32_t> m_sizes = {};  // the realised rows

  void fail(Status fault, const std::string& why) { status = fault, reason = why; }
};

/// The command line that verifies a candidate in a cell again, on this device.
std::vector<std::string> verify_arguments(const Cell& cell, const Candidate& candidate, const DeviceOptions& device);

/// For the end of a run: what is wrong with results, and the command that repeats the first. Empty where all are right.
std::string wrong_results_text(const std::vector<VerifiedCandidate>& verified, const DeviceOptions& device,
                               const Style& style);

/// The candidates among results that ran.
std::vector<VerifiedCandidate> verified_candidates(const std::vector<EntrantResult>& results);

/// "CELL, CONTENDER: wrong_result: REASON".
std::string reason_of(const EntrantResult& result);

struct CellWork {
  Cell cell;
  std::vector<Entrant> entrants;
};

/// The named candidates of every cell; with a table its winners and the pairs of its layers, in those of its cells that
/// `cells` picks, and a warning for each cell without a winner. Errors as of make_cells and pick_entries. `taken` gets
/// the part of the table that was picked.
std::vector<CellWork> make_work(const CellOptions& cells, const ContenderOptions& contenders, const Catalog& catalog,
                                const Terminal& terminal, TunedTable* taken = nullptr);

/// Throws Exit::machine where the winners that make_work took are of another kind of device, which can't run them.
void require_kind(const TunedTable& taken, const ContenderOptions& contenders, const DeviceInfo& device);

/// Leaves the entries whose cells match all options; a list is matched by any of its words, and options that are not
/// given match every cell; --projection ffn leaves those that make layers. Throws Exit::request for words that cannot
/// be read, Exit::no where nothing is left: the error names what the table has, and `file` as its place.
void pick_entries(TunedTable& table, const std::string& file, const CellOptions& options);

/// Gives candidates that name only some knobs the values of their variant's default for the problem.
void complete_entrants(CellWork& work, const Problem& problem, const DeviceInfo& device);

/// The built-in space `quick`. Candidates are named by the knobs that differ from its default, in a run of any space.
SearchSpace usual_space(const Catalog& catalog);

/// Names complete candidates as short_text does beside the default of the usual space, and baselines by their own name.
void name_entrants(CellWork& work, const SearchSpace& usual, const Problem& problem, const DeviceInfo& device);

/// Adds a role to the entrant, or the entrant.
void add_entrant(CellWork& work, const std::string& role, const Contender& contender);

/// Throws Exit::request, with the reason and `hint`, for a cell in which neither the default nor anything in the space
/// can run.
void require_candidates(const std::vector<Cell>& cells, const SearchSpace& space, const DeviceInfo& device,
                        const std::string& hint);

}  // namespace moetune
