// Completion scripts for shells, made from the options that --help prints.
#pragma once
#include <string>
#include <vector>

#include "cli/options/options.h"

namespace moetune {

// Each takes what CommandLine::declared returns. Options complete to their words, those of a list after each comma;
// options and arguments that take files complete to names of files.
std::string bash_completions(const std::vector<DeclaredCommand>& commands);
std::string zsh_completions(const std::vector<DeclaredCommand>& commands);
std::string fish_completions(const std::vector<DeclaredCommand>& commands);

}  // namespace moetune
