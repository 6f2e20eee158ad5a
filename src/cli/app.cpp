// The whole program in one function: declare, parse, run one command, turn errors into exit codes.
#include "cli/app.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <filesystem>
#include <new>

#include "base/system/process.h"
#include "cli/commands/command.h"
#include "cli/signals.h"

namespace moetune {
namespace {

// The process that touches the device: started by this program alone, on file descriptor 3.
Exit run_worker(const Invocation& invocation) {
  if (::fcntl(Child::kSocket, F_GETFD) < 0)
    throw request_error("the command 'worker' is internal: other commands start it");
  return static_cast<Exit>(serve_worker(Child::kSocket, *invocation.factory, *invocation.lister));
}

Command worker_command() {
  return {.name = "worker",
          .summary = "Serve a device to a parent process",
          .examples = "",
          .declare = [](OptionSet&) -> Action { return run_worker; },
          .hidden = true};
}

std::vector<Command> all_commands() {
  return {tune_command(),    bench_command(),  verify_command(),      check_command(), lookup_command(),
          compile_command(), export_command(), report_command(),      merge_command(), validate_command(),
          list_command(),    doctor_command(), completions_command(), worker_command()};
}

int fail(const Terminal& terminal, Exit exit, const std::string& what, const std::string& hint) {
  print_error(terminal, what, hint);
  return static_cast<int>(exit);
}

// Whether a file's name alone is what is wrong.
bool of_a_name(const std::error_code& error) {
  return error == std::errc::filename_too_long || error == std::errc::too_many_symbolic_link_levels ||
         error == std::errc::not_a_directory || error == std::errc::invalid_argument;
}

Exit run(const std::vector<std::string>& argv, const BackendFactory& factory, const DeviceLister& lister,
         Terminal& terminal) {
  const std::vector<Command> commands = all_commands();
  CommandLine line(commands);
  std::vector<Action> actions;
  for (size_t i = 0; i < commands.size(); ++i) {
    OptionSet options = line.options(i);
    actions.push_back(commands[i].declare(options));
  }
  if (argv.size() > 1 && argv[1] == "--complete")  // asked by shells, and in no help
    return print(completions(line.declared(), {argv.begin() + 2, argv.end()})), Exit::yes;
  if (argv.size() == 2 && argv[1] == "--manual")  // asked by the build, and in no help
    return print(line.manual()), Exit::yes;
  const Request request = line.parse(argv, &terminal);
  if (request.command == nullptr) return print(request.text), Exit::yes;
  require_effect(request.given, terminal);
  const Action& action = actions[static_cast<size_t>(request.command - commands.data())];
  return action({argv, &factory, terminal, &lister, request.given});
}

}  // namespace

int guarded(const Terminal& terminal, const std::function<int()>& body) {
  try {
    return body();
  } catch (const Error& error) {
    return fail(terminal, error.exit(), error.what(), error.hint());
  } catch (const CandidateFault& fault) {
    return fail(terminal, Exit::machine, fmt::format("the device's worker failed: {}", fault.what()), "");
  } catch (const OutOfMemory& error) {
    return fail(terminal, Exit::machine, error.what(), "take fewer tokens or experts");
  } catch (const std::bad_alloc&) {
    return fail(terminal, Exit::machine, "out of memory", "take fewer or smaller cells");
  } catch (const std::filesystem::filesystem_error& error) {
    return fail(terminal, of_a_name(error.code()) ? Exit::request : Exit::machine,
                fmt::format("{}: {}", error.path1().string(), error.code().message()), "");
  } catch (const std::exception& error) {
    return fail(terminal, Exit::bug, fmt::format("internal error: {}", error.what()),
                "this is a bug in moetune: please report the command and what `moetune --version` says");
  }
}

int run_app(int argc, char** argv, const BackendFactory& factory, const DeviceLister& lister) {
  hold_standard_descriptors();
  ignore_write_signals();
  end_on_signals();
  Terminal terminal = look_at_terminal("auto");
  return guarded(terminal, [&] {
    return static_cast<int>(run(std::vector<std::string>(argv, argv + argc), factory, lister, terminal));
  });
}

}  // namespace moetune
