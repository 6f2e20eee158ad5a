// What `verify` found out, and the words for it. Runs nothing.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "cli/options/contenders.h"
#include "cli/options/device_options.h"
#include "cli/text/console.h"
#include "workload/problem.h"

namespace moetune {

/// The role of candidates that nobody named: they come from a search space.
constexpr const char* kOfSpace = "space";

/// A candidate of a space whose registers spill is pruned like an illegal one: no search would take it.
bool is_pruned(const EntrantResult& finding);
bool is_failed(const EntrantResult& finding);

struct Verdicts {
  std::vector<EntrantResult> findings;
  std::map<std::string, int64_t> pruned;  // reason -> candidates of the spaces that were never run
  size_t cells = 0;                       // done
  size_t asked = 0;                       // cells to do
  std::string fault = {};                 // what ended the run before its last cell was done; empty for a signal

  bool whole() const { return cells == asked; }
};

/// What ended the run before its end, a signal included; empty where nothing did.
std::string fault_of(const Verdicts& verdicts);

/// The command line that repeats a finding: this device, its cell, its candidate.
std::string again(const EntrantResult& finding, const DeviceOptions& device);

Json to_json(const EntrantResult& finding, const DeviceOptions& device);

/// One row per finding for spreadsheets: cell, candidate, status and reason, what was compared, repeated launches.
std::string verdicts_csv(const std::vector<EntrantResult>& findings);

/// For people: everything where there is little, else what failed; what was pruned and why; the reasons of failures and
/// how to repeat them; the answer in a sentence, last. Candidates are in short, or with all knobs where `verbose`.
std::string summary(const Verdicts& verdicts, const DeviceOptions& device, const Terminal& terminal, bool verbose);

/// All findings in tables, and the reasons of failures.
std::string markdown(const Verdicts& verdicts, bool verbose);

}  // namespace moetune
