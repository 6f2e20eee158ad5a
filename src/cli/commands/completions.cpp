// `moetune completions`: a script that lets a shell complete moetune's command lines.
#include <memory>

#include "base/error.h"
#include "cli/commands/command.h"
#include "cli/text/shells.h"

namespace moetune {
namespace {

struct Shell {
  std::string name;
  std::string (*script)(const std::vector<DeclaredCommand>&);
};
const std::vector<Shell>& shells() {
  static const std::vector<Shell> all = {
      {"bash", bash_completions}, {"zsh", zsh_completions}, {"fish", fish_completions}};
  return all;
}

std::vector<std::string> shell_names() {
  std::vector<std::string> names;
  for (const Shell& shell : shells()) names.push_back(shell.name);
  return names;
}

Action declare_completions(OptionSet& set) {
  const auto name = std::make_shared<std::string>();
  set.argument("SHELL", *name, "bash, zsh or fish", shell_names);
  return [name](const Invocation& invocation) {
    for (const Shell& shell : shells())
      if (shell.name == *name) return print(shell.script(invocation.line->declared())), Exit::yes;
    throw unknown_word("shell", *name, shell_names());
  };
}

}  // namespace

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
