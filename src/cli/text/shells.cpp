// One part a shell.
#include "cli/text/shells.h"

#include <fmt/format.h>

#include <algorithm>

namespace moetune {
namespace {

std::string joined(const std::vector<std::string>& words, std::string_view between = " ") {
  return fmt::format("{}", fmt::join(words, between));
}

bool is_argument(const DeclaredOption& option) { return option.names.empty(); }

// Each of `special` behind a backslash.
std::string escaped(std::string_view text, std::string_view special) {
  std::string result;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

// In single quotes for bash and zsh.
std::string single_quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::vector<std::string> command_names(const std::vector<DeclaredCommand>& commands) {
  std::vector<std::string> names;
  for (const DeclaredCommand& command : commands)
    if (!command.name.empty()) names.push_back(command.name);
  return names;
}

// --- bash: the script cuts words itself, because bash cuts them at ':' and '=' too ---

constexpr std::string_view kBashBegin = R"(# Completions of moetune for bash. Made by: moetune completions bash

# Adds the words that begin as the value does; after the last comma where $2 is "list".
_moetune_words() {
  local before="" word
  [[ $2 == list && $value == *,* ]] && before=${value%,*},
  for word in $1; do
    [[ $before$word == "$value"* ]] && COMPREPLY+=("$assigned$before$word")
  done
}

_moetune_files() {
  local file
  while IFS= read -r file; do COMPREPLY+=("$assigned$file"); done < <(compgen -f -- "$value")
  compopt -o filenames 2>/dev/null
}

_moetune() {
  COMPREPLY=()
  local line=${COMP_LINE:0:COMP_POINT} words typed value option command="" assigned="" i
  read -ra words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  typed=${words[${#words[@]} - 1]} value=$typed option=""
  for ((i = 1; i < ${#words[@]} - 1; ++i)); do
    if [[ ${words[i]} == --color ]]; then ((++i)); elif [[ ${words[i]} != -* ]]; then command=${words[i]} && break; fi
  done
  ((${#words[@]} > 2)) && option=${words[${#words[@]} - 2]}
  [[ $typed == --*=* ]] && option=${typed%%=*} value=${typed#*=} assigned=$option=
  case "$command $option" in
)";

constexpr std::string_view kBashEnd = R"(  esac
  # What bash takes for a word of its own begins after the last ':' or '='.
  local cut="" begin
  [[ $COMP_WORDBREAKS == *:* ]] && cut+=:
  [[ $COMP_WORDBREAKS == *=* ]] && cut+==
  if [[ $cut != "" && $typed == *[$cut]* ]]; then
    begin=${typed%"${typed##*[$cut]}"}
    COMPREPLY=("${COMPREPLY[@]#"$begin"}")
  fi
}
complete -F _moetune moetune
)";

// A shell command that adds the completions of a value; ":" where there are none.
std::string bash_action(const DeclaredOption& option) {
  std::vector<std::string> parts;
  if (!option.words.empty())
    parts.push_back(
        fmt::format("_moetune_words {}{}", single_quoted(joined(option.words)), option.is_list ? " list" : ""));
  if (option.files) parts.emplace_back("_moetune_files");
  return parts.empty() ? ":" : joined(parts, "; ");
}

// What follows an option that takes a value.
std::string bash_values(const DeclaredCommand& command) {
  std::string cases;
  for (const DeclaredOption& option : command.options) {
    if (is_argument(option) || option.placeholder.empty()) continue;
    std::vector<std::string> patterns;
    for (const std::string& name : option.names) patterns.push_back(single_quoted(command.name + " " + name));
    cases += fmt::format("    {}) {} ;;\n", joined(patterns, " | "), bash_action(option));
  }
  return cases;
}

// Completes a word that is not the value of an option: to an argument, or to an option where a dash is typed or there
// are no arguments. `more` are words beside the options.
std::string bash_words(const DeclaredCommand& command, const std::string& more) {
  std::vector<std::string> names;
  if (!more.empty()) names.push_back(more);
  std::string argument;
  for (const DeclaredOption& option : command.options) {
    if (!is_argument(option))
      names.push_back(joined(option.names));
    else if (argument.empty())
      argument = bash_action(option);
  }
  const std::string options = fmt::format("_moetune_words {}", single_quoted(joined(names)));
  const std::string pattern = single_quoted(command.name + " ") + "*";
  if (argument.empty()) return fmt::format("    {}) {} ;;\n", pattern, options);
  return fmt::format("    {}) if [[ $typed == -* ]]; then {}; else {}; fi ;;\n", pattern, options, argument);
}

// --- zsh ---

constexpr std::string_view kZshBegin = R"(#compdef moetune
# Completions of moetune for zsh. Made by: moetune completions zsh

_moetune() {
  local curcontext=$curcontext state line
  local -a commands
)";

// ":FILE:_files", ":LIST: _sequence compadd - up down".
std::string zsh_action(const DeclaredOption& option) {
  const std::string words = escaped(joined(option.words), ":");
  std::string action;
  if (!option.words.empty() && option.is_list)
    action = fmt::format(" _sequence compadd - {}", words);
  else if (!option.words.empty())
    action = fmt::format("({})", words);
  if (option.files) action = action.empty() ? "_files" : fmt::format("{{_files; compadd - {}}}", words);
  return fmt::format(":{}:{}", escaped(option.placeholder, ":"), action);
}

std::string zsh_option(const DeclaredOption& option) {
  if (is_argument(option)) return single_quoted(fmt::format("{}{}", option.repeated ? "*" : "", zsh_action(option)));
  const std::string value = option.placeholder.empty() ? "" : zsh_action(option);
  const std::string rest = single_quoted(fmt::format("[{}]{}", escaped(option.help, "[]:"), value));
  const std::string begin = option.repeated           ? "'*'"
                            : option.names.size() > 1 ? single_quoted("(" + joined(option.names) + ")")
                                                      : std::string();
  return begin + (option.names.size() > 1 ? "{" + joined(option.names, ",") + "}" : option.names[0]) + rest;
}

std::string zsh_arguments(const DeclaredCommand& command, std::string_view indent) {
  std::string text = fmt::format("{}_arguments", indent);
  for (const DeclaredOption& option : command.options) text += fmt::format(" \\\n{}  {}", indent, zsh_option(option));
  return text;
}

// --- fish ---

constexpr std::string_view kFishBegin = R"(# Completions of moetune for fish. Made by: moetune completions fish

# The words behind what is typed before the last comma.
function __moetune_list
    set -l before (string match -r '^.*,' -- (string replace -r '^--[^=]*=' '' -- (commandline -ct)))
    printf '%s\n' "$before"$argv
end

complete -c moetune -f
)";

std::string fish_quoted(std::string_view text) { return "'" + escaped(text, "\\'") + "'"; }

std::string fish_value(const DeclaredOption& option) {
  if (option.placeholder.empty()) return "";
  std::string value = option.files ? " -r -F" : " -x";
  if (option.words.empty()) return value;
  const std::string words = joined(option.words);
  return value + " -a " + fish_quoted(option.is_list ? fmt::format("(__moetune_list {})", words) : words);
}

std::string fish_option(const DeclaredOption& option, const std::string& condition) {
  std::string line = fmt::format("complete -c moetune -n {}", fish_quoted(condition));
  if (is_argument(option))
    return line + (option.words.empty() ? std::string(" -F") : " -a " + fish_quoted(joined(option.words))) + "\n";
  for (const std::string& name : option.names)
    line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  return line + fish_value(option) + (option.help.empty() ? "" : " -d " + fish_quoted(option.help)) + "\n";
}

}  // namespace

std::string bash_completions(const std::vector<DeclaredCommand>& commands) {
  const std::string names = joined(command_names(commands));
  std::string text(kBashBegin);
  for (const DeclaredCommand& command : commands) text += bash_values(command);
  text += fmt::format("    'help '*) _moetune_words {} ;;\n", single_quoted(names));
  for (const DeclaredCommand& command : commands)
    text += bash_words(command, command.name.empty() ? names + " help" : "");
  return text + std::string(kBashEnd);
}

std::string zsh_completions(const std::vector<DeclaredCommand>& commands) {
  std::string text(kZshBegin), cases;
  text += "  commands=(\n";
  for (const DeclaredCommand& command : commands) {
    if (command.name.empty()) continue;
    text += fmt::format("    {}\n", single_quoted(escaped(command.name, ":") + ":" + command.summary));
    cases += fmt::format("        {})\n{} ;;\n", command.name, zsh_arguments(command, "          "));
  }
  text += "    'help:Print the help of a command'\n  )\n";
  text += zsh_arguments(commands.front(), "  ") + " \\\n    '1:command:->command' '*::argument:->arguments' -C\n";
  text +=
      "  case $state in\n    command) _describe -t commands command commands ;;\n    arguments)\n      case $words[1] "
      "in\n";
  text += cases + "        help) _describe -t commands command commands ;;\n";
  return text +
         "      esac ;;\n  esac\n}\n\n"
         "if [[ $funcstack[1] == _moetune ]]; then _moetune \"$@\"; else compdef _moetune moetune; fi\n";
}

std::string fish_completions(const std::vector<DeclaredCommand>& commands) {
  std::string text(kFishBegin);
  for (const DeclaredCommand& command : commands) {
    const bool alone = command.name.empty();
    const std::string condition = alone ? "__fish_use_subcommand" : "__fish_seen_subcommand_from " + command.name;
    if (!alone)
      text += fmt::format("complete -c moetune -n __fish_use_subcommand -a {} -d {}\n", command.name,
                          fish_quoted(command.summary));
    for (const DeclaredOption& option : command.options) text += fish_option(option, condition);
  }
  return text + fmt::format(
                    "complete -c moetune -n __fish_use_subcommand -a help -d 'Print the help of a command'\n"
                    "complete -c moetune -n '__fish_seen_subcommand_from help' -a {}\n",
                    fish_quoted(joined(command_names(commands))));
}

}  // namespace moetune
