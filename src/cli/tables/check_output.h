// Where the findings of `check` go: standard output, files, and what GitHub Actions shows; and what a user may do next.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "check/check.h"
#include "check/outputs/ci_outputs.h"
#include "cli/text/output.h"

namespace moetune {

struct CheckOutputs {
  std::string output, junit, markdown, benchmark;  // files; empty: none
  OutputFormat format = OutputFormat::text;
  bool annotate = false;
  bool verbose = false;
};

/// What a report of a check has besides its findings.
struct CheckContext {
  std::vector<std::string> argv;
  std::string table_file;
  Regime regime = Regime::burst;
  DeviceInfo device;
  Json environment;
  Json other_environment;  // of the other program; null without one
  std::string next;        // the command to run next, or empty
};

/// Tables by layer, regressions, failures and wrong results first, the reasons of findings that are not good, and the
/// answer in a sentence, last. A verbose style has the control of each change and all knobs of the winners.
std::string findings_text(const CheckResult& result, const Style& style);

/// Writes everything that was asked for, standard output first: it needs no disk. An output that fails doesn't prevent
/// the others; errors as of write_outputs. In GitHub Actions findings are annotated too, and GITHUB_STEP_SUMMARY gets
/// the Markdown; that it cannot be written is a warning.
void report(const CheckResult& result, const CheckRun& run, const CheckContext& context, const CheckOutputs& outputs,
            const Terminal& terminal);

/// Command lines that look closer at the table that was checked.
struct TableCommands {
  std::vector<std::string> bench, verify;
};

constexpr int kMaxRounds = 10000;  // that --rounds takes

/// A line that begins with "Next"; "" where all is well or nothing helps. After a wrong result it is `commands.verify`,
/// after a regression `commands.bench`, for that cell. Where nothing was decided it is the user's own command line
/// `argv` with more rounds, if those may help; else the command that made the table, which stands in the table's
/// `tool`; else `argv` again.
std::string advice(const CheckResult& result, const CheckRequest& request, const std::vector<std::string>& argv,
                   const Json& tool, const TableCommands& commands);

}  // namespace moetune
