// What shells complete a command line to, from the options that --help prints; and what makes a shell ask for it.
#pragma once
#include <string>
#include <vector>

#include "cli/options/options.h"

namespace moetune {

/// The completions of the last of `words`, which are those behind the program's name: a line each, a tab and a few
/// words of help behind some. Values of lists complete after each comma. Files and folders are named where an option or
/// an argument takes them. `commands` is what CommandLine::declared returns.
std::string completions(const std::vector<DeclaredCommand>& commands, const std::vector<std::string>& words);

/// "bash", "zsh", "fish"; and the script by which each asks `moetune --complete WORDS`. Exit::request for another word.
std::vector<std::string> shell_names();
std::string completion_script(const std::string& shell);

}  // namespace moetune
