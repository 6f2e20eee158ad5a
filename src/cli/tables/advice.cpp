// Command lines that others can paste.
#include "cli/tables/advice.h"

#include <algorithm>

#include "base/error.h"
#include "cli/text/wording.h"

namespace moetune {
namespace {

std::string with_rounds(const std::vector<std::string>& argv, int rounds) {
  std::vector<std::string> words;
  bool told = false, options_end = false;
  for (size_t i = 0; i < argv.size(); ++i) {
    options_end = options_end || argv[i] == "--";
    if (!options_end && argv[i] == "--rounds") {
      ++i;  // and its number
      continue;
    }
    if (!options_end && argv[i].starts_with("--rounds=")) continue;
    words.push_back(argv[i]);
    if (told || i == 0 || argv[i] != "check") continue;
    words.insert(words.end(), {"--rounds", std::to_string(rounds)});
    told = true;
  }
  return shell_line(words);
}

// The command that made the table, where it is known.
std::string tune_again(const Json& tool) {
  std::vector<std::string> words;
  if (tool.contains("argv") && tool["argv"].is_array())
    for (const Json& word : tool["argv"])
      if (word.is_string() && word != "--resume") words.push_back(word);
  const bool tuned = std::find(words.begin(), words.end(), "tune") != words.end();
  return tuned ? "Next, tune again: " + shell_line(words) : "Next: tune again";
}

}  // namespace

std::string advice(const CheckResult& result, const CheckRequest& request, const std::vector<std::string>& argv,
                   const Json& tool, const TableCommands& commands) {
  if (std::ranges::find(result.findings, Finding::wrong_result, &CellFinding::finding) != result.findings.end())
    return "Next: " + shell_line(commands.verify);
  if (exit_code(result) == static_cast<int>(Exit::no)) return "Next: " + shell_line(commands.bench);
  const auto any = [&](Remedy remedy) {
    return std::ranges::any_of(result.findings, [&](const CellFinding& finding) { return finding.remedy == remedy; });
  };
  const int more = std::min(request.max_rounds, kMostRounds);
  if (any(Remedy::rounds) && more > request.rounds) return "Next: " + with_rounds(argv, more);
  if (any(Remedy::tune)) return tune_again(tool);
  if (any(Remedy::rounds) || any(Remedy::again)) return "Next, when this machine is quiet: " + shell_line(argv);
  return "";
}

}  // namespace moetune
