// What a subcommand is: its words for people, its options, and what it does; and the headers that nearly every one
// needs. How a command line is parsed: options.h.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/worker/worker.h"
#include "base/error.h"
#include "base/json.h"
#include "base/system/file.h"
#include "base/text/grid.h"
#include "base/text/units.h"
#include "cli/files/files.h"
#include "cli/options/contenders.h"
#include "cli/options/device_options.h"
#include "cli/text/output.h"
#include "variant/catalog.h"

namespace moetune {

/// What a command gets besides its options.
struct Invocation {
  std::vector<std::string> argv;            // as given
  const BackendFactory* factory = nullptr;  // for the worker command and `bench --in-process`; others open a worker
  Terminal terminal;
  const DeviceLister* lister = nullptr;  // likewise
  Given given = {};
};

/// Runs after parsing; returns the exit code. Throws Error where the request or the machine is at fault.
using Action = std::function<Exit(const Invocation&)>;

/// Declares options that `declare(set, options)` describes, and runs `run(options, invocation)` with them.
template <typename Options, auto declare, auto run>
Action with_options(OptionSet& set) {
  const auto options = std::make_shared<Options>();
  declare(set, *options);
  return [options](const Invocation& invocation) { return run(*options, invocation); };
}

struct Command {
  std::string_view name;
  std::string_view summary;               // its line in `moetune --help`
  std::string_view examples;              // the end of its help: command lines that work
  Action (*declare)(OptionSet& options);  // declares its options and returns what reads them
  bool hidden = false;
};

Command tune_command();
Command bench_command();
Command verify_command();
Command check_command();
Command lookup_command();
Command compile_command();
Command export_command();
Command report_command();
Command merge_command();
Command validate_command();
Command list_command();
Command doctor_command();
Command completions_command();

/// The formats of `export`, and what each is.
std::vector<std::pair<std::string, std::string>> export_formats();

/// The completions of the last of `words`, which are those behind the program's name: a line each, a tab and a few
/// words of help behind some. Values of lists complete after each comma. Files and folders are named where an option or
/// an argument takes them. `commands` is what CommandLine::declared returns.
std::string completions(const std::vector<DeclaredCommand>& commands, const std::vector<std::string>& words);

}  // namespace moetune
