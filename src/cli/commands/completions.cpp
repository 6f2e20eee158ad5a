// `moetune completions`: a script by which a shell asks moetune to complete its command lines, and what it completes.
#include "cli/commands/command.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;

// bash cuts words at ':' and '=' too: the script cuts the line itself, and takes off what bash has as words of their
// own.
constexpr std::pair<std::string_view, std::string_view> kScripts[] = {{"bash", R"(# Made by: moetune completions bash
_moetune() {
  local line=${COMP_LINE:0:COMP_POINT} words typed cut=""
  read -ra words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  typed=${words[${#words[@]} - 1]}
  mapfile -t COMPREPLY < <("${words[0]}" --complete "${words[@]:1}" 2>/dev/null)
  COMPREPLY=("${COMPREPLY[@]%%$'\t'*}")
  [[ $COMP_WORDBREAKS == *:* ]] && cut+=:
  [[ $COMP_WORDBREAKS == *=* ]] && cut+==
  [[ $cut != "" && $typed == *[$cut]* ]] && COMPREPLY=("${COMPREPLY[@]#"${typed%"${typed##*[$cut]}"}"}")
}
complete -o filenames -F _moetune moetune
)"},
                                                                      {"zsh", R"(#compdef moetune
# Made by: moetune completions zsh
_moetune() {
  local -a found
  found=("${(@f)$("$words[1]" --complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  compadd -f -- "${(@)${found%%$'\t'*}:#}"
}
if [[ $funcstack[1] == _moetune ]]; then _moetune "$@"; else compdef _moetune moetune; fi
)"},
                                                                      {"fish", R"(# Made by: moetune completions fish
complete -c moetune -f -a '(moetune --complete (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
)"}};

class Completions {
 public:
  explicit Completions(std::string typed) : typed_(std::move(typed)) {}

  void add(const std::string& word, std::string_view help = {}) {
    if (!word.starts_with(typed_)) return;
    text_ += word;
    if (!help.empty()) text_ += fmt::format("\t{}", help);
    text_ += '\n';
  }

  // Values behind `assigned`, which is "--name=" or nothing.
  void add_values(const DeclaredOption& option, const std::string& assigned) {
    const std::string value = typed_.substr(assigned.size());
    const std::string before = option.repeated && !option.names.empty() ? value.substr(0, value.rfind(',') + 1) : "";
    if (option.words)
      for (const std::string& word : option.words()) add(assigned + before + word);
    if (option.takes_files()) add_files(value, assigned);
  }

  std::string text() && { return std::move(text_); }

 private:
  void add_files(const std::string& value, const std::string& assigned) {
    const std::string folder = value.substr(0, value.rfind('/') + 1);
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator at(folder.empty() ? "." : folder, error), end; !error && at != end;
         at.increment(error)) {
      std::error_code unknown;
      names.push_back(at->path().filename().string() + (at->is_directory(unknown) ? "/" : ""));
    }
    std::ranges::sort(names);
    for (const std::string& name : names) add(assigned + folder + name);
  }

  std::string typed_, text_;
};

// The command among the words before the last; the first of `commands` is the program alone.
const DeclaredCommand& command_of(const std::vector<DeclaredCommand>& commands, const std::vector<std::string>& words) {
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == "--color")
      ++i;  // and its value
    else if (!words[i].starts_with('-'))
      for (const DeclaredCommand& command : commands)
        if (command.name == words[i]) return command;
  }
  return commands.front();
}

// The option of that name that takes a value, or null.
const DeclaredOption* valued_option(const DeclaredCommand& command, const std::string& name) {
  for (const DeclaredOption& option : command.options)
    if (!option.is_flag() && contains(option.names, name)) return &option;
  return nullptr;
}

std::vector<std::string> shells() {
  return mapped<std::string>(kScripts, &std::pair<std::string_view, std::string_view>::first);
}

Action declare_completions(OptionSet& set) {
  const auto name = std::make_shared<std::string>();
  set.argument("SHELL", *name, "bash, zsh or fish", shells);
  return
      [name](const Invocation&) { return print(kScripts[place_of_word("shell", *name, shells())].second), Exit::yes; };
}

}  // namespace

std::string completions(const std::vector<DeclaredCommand>& commands, const std::vector<std::string>& words) {
  const std::string typed = words.empty() ? "" : words.back();
  const DeclaredCommand& command = command_of(commands, words);
  Completions found(typed);
  if (const size_t equals = typed.find('='); typed.starts_with("--") && equals != std::string::npos) {
    if (const DeclaredOption* option = valued_option(command, typed.substr(0, equals)))
      found.add_values(*option, typed.substr(0, equals + 1));
    return std::move(found).text();
  }
  if (words.size() > 1)
    if (const DeclaredOption* option = valued_option(command, words[words.size() - 2])) {
      found.add_values(*option, "");
      return std::move(found).text();
    }
  const bool helps = words.size() > 1 && words.front() == "help";
  if (command.name.empty())
    for (const DeclaredCommand& other : commands)
      if (!other.name.empty()) found.add(other.name, other.summary);
  if (helps) return std::move(found).text();
  if (command.name.empty()) found.add("help", "Print the help of a command");
  const auto argument = std::ranges::find_if(command.options, &DeclaredOption::is_argument);
  if (argument != command.options.end() && !typed.starts_with('-'))
    found.add_values(*argument, "");
  else
    for (const DeclaredOption& option : command.options)
      for (const std::string& name : option.names) found.add(name, option.help);
  return std::move(found).text();
}

Command completions_command() {
  return {.name = "completions",
          .summary = "Print the completions of a shell",
          .examples =
              "  moetune completions bash > ~/.moetune.bash\n"
              "  moetune completions zsh > ~/.zfunc/_moetune\n"
              "  moetune completions fish > ~/.config/fish/completions/moetune.fish",
          .declare = declare_completions};
}

}  // namespace moetune
