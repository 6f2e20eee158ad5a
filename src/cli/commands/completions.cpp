// `moetune completions`: a script by which a shell asks moetune to complete its command lines.
#include <memory>

#include "cli/commands/command.h"
#include "cli/text/complete.h"

namespace moetune {
namespace {

Action declare_completions(OptionSet& set) {
  const auto name = std::make_shared<std::string>();
  set.argument("SHELL", *name, "bash, zsh or fish", shell_names);
  return [name](const Invocation&) { return print(completion_script(*name)), Exit::yes; };
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
