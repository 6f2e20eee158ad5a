// Runs scripts/pack_triton.py, which compiles a server's kernel, and keeps what it made.
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <set>

#include "base/embedded.h"
#include "base/hash.h"
#include "base/system/process.h"
#include "cli/commands/tune_for.h"
#include "tune/rounds.h"
#include "variant/variant.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPackScripts[] = {"scripts/pack_triton.py", "scripts/served_moe.py"};
constexpr const char* kPack = "pack_triton.py: ";

std::string python() {
  const char* named = std::getenv("MOETUNE_PYTHON");
  return named && *named ? named : "python3";
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw machine_error(fmt::format("{}: cannot make the folder: {}", folder.string(), error.message()),
                        "name a folder for such files in XDG_CACHE_HOME");
}

// The folder with copies of the scripts in this binary.
fs::path scripts_folder() {
  Hash hash;
  for (const char* script : kPackScripts) hash.add(embedded_file(script).value());
  const fs::path folder = cache_folder() / "scripts" / hash.hex().substr(0, 16);
  for (const char* script : kPackScripts)
    if (const fs::path file = folder / fs::path(script).filename(); !fs::exists(file)) {
      make_folder(folder);
      write_atomic(file, embedded_file(script).value());
    }
  return folder;
}

// Runs the script, and calls `tick` ten times a second. Returns what it printed.
std::string run_script(const std::vector<std::string>& words, const std::function<void()>& tick = {}) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);  // which validates what the script made
  std::vector<std::string> command = {"/bin/sh",
                                      "-c",
                                      "MOETUNE_BINARY=$1; export MOETUNE_BINARY; shift; exec \"$@\" 1>&2",
                                      "sh",
                                      self.string(),
                                      python(),
                                      "-B",
                                      (scripts_folder() / "pack_triton.py").string()};
  command.insert(command.end(), words.begin(), words.end());
  Child child(command);
  std::string text;
  for (std::array<char, 4096> buffer{}; true;) {
    pollfd ready{child.errors(), POLLIN, 0};
    ::poll(&ready, 1, 100);
    const ssize_t got = ::read(child.errors(), buffer.data(), buffer.size());
    if (got > 0) text.append(buffer.data(), static_cast<size_t>(got));
    if (got == 0) break;
    if (got < 0 && tick) tick();
  }
  const Ending end = child.wait(60).value_or(Ending{});
  if (end == Ending{}) return text;
  std::string what, hint;
  for (const std::string& line : split(text, '\n'))
    if (const size_t at = line.find(kPack); at == 0)
      what = line.substr(line.find(": ", line.find("error")) + 2);
    else if (line.starts_with("hint: "))
      hint = line.substr(6);
  if (end.code == 127)
    throw machine_error(fmt::format("{} is not here, which compiles the server's kernel", python()),
                        "name a Python that has Triton in MOETUNE_PYTHON");
  if (what.empty()) what = fmt::format("pack_triton.py {}: {}", text.empty() ? "ended" : text, moetune::text(end));
  throw Error(end.code == 2 ? Exit::request : Exit::machine, what, hint);
}

std::string list_text(const std::set<int64_t>& values) { return fmt::format("{}", fmt::join(values, ",")); }

// The rows as pack_triton.py reads them: a line each.
std::string candidates_text(const std::vector<TriedRow>& rows) {
  std::vector<std::string> lines;
  for (const TriedRow& one : rows) {
    Json knobs = Json::object();
    for (const auto& [knob, value] : kRowKnobs) knobs[knob] = one.row.*value;
    lines.push_back(Json{{"knobs", std::move(knobs)}, {"tokens", one.tokens}}.dump());
  }
  return fmt::format("[{}]\n", fmt::join(lines, ",\n"));
}

// How many kernels do not compile, and the values of knobs that only those have, by the script's lines: "the kernel
// BLOCK_SIZE_M=16 ... for sm_90a does not compile: why". Empty where all compile.
std::string failures_text(const std::string& text, const ServedRun& run) {
  std::vector<std::string> lines = split(text, '\n');
  std::erase_if(lines, [](const std::string& line) { return line.find(" does not compile: ") == std::string::npos; });
  if (lines.empty()) return "";
  const auto fails = [&](const ServingRow& row) {
    return std::ranges::any_of(lines, [&](const std::string& line) {
      return std::ranges::all_of(kRowKnobs, [&](const auto& knob) {
        const bool named = line.find(fmt::format(" {}=", knob.first)) != std::string::npos;
        return !named || line.find(fmt::format(" {}={} ", knob.first, row.*knob.second)) != std::string::npos;
      });
    });
  };
  std::vector<std::string> shared;
  for (const auto& [knob, member] : kRowKnobs) {
    std::set<int64_t> failing, compiled;
    for (const TriedRow& one : run.plan.rows) (fails(one.row) ? failing : compiled).insert(one.row.*member);
    if (!compiled.empty() && std::ranges::none_of(failing, [&](int64_t value) { return compiled.contains(value); }))
      shared.push_back(fmt::format("{} {}", knob, fmt::join(failing, " or ")));
  }
  return fmt::format("{} of {} kernels do not compile with Triton {} and are left out{}; the first: {}", lines.size(),
                     run.plan.kernels, run.kernel.triton,
                     shared.empty() ? "" : fmt::format(", all with {}", fmt::join(shared, ", ")), lines[0]);
}

}  // namespace

FoundKernel find_kernel(const Server& server, const std::string& format, const std::string& kernel_file) {
  const fs::path found = cache_folder() / fmt::format("found-{}.json", ::getpid());
  make_folder(found.parent_path());
  std::vector<std::string> words = {"--find",  "-o",  found.string(), "--from", std::string(server.word),
                                    "--dtype", format};
  if (!kernel_file.empty()) words.insert(words.end(), {"--kernel-file", kernel_file});
  run_script(words);
  const Json json = read_json(found);
  fs::remove(found);
  const JsonAt at(json, "pack_triton.py --find");
  return {at["kernel"].string(), at["triton"].string(), at["servers_triton"].string()};
}

void require_triton(const Server& server, const FoundKernel& kernel) {
  if (!kernel.triton.empty()) return;
  const std::string version =
      kernel.servers_triton.empty()
          ? fmt::format("{}, that of {} {}", server.triton, server.title, server.release)
          : fmt::format("{}, that of the {} installed here", kernel.servers_triton, server.title);
  throw machine_error(fmt::format("{} has no triton, which compiles the server's kernel", python()),
                      fmt::format("pip install triton=={}; or name a Python that has it in MOETUNE_PYTHON", version));
}

fs::path packed(const ServedRun& run, bool fresh, const Terminal& terminal, bool quiet) {
  const ServedPlan& plan = run.plan;
  const std::string program(plan.server->word), arch = moetune::arch(run.device);
  const ServingFormat& format = plan.layers[0].file.format;
  const std::string candidates = candidates_text(plan.rows);
  std::map<std::string, std::set<int64_t>> sizes;
  for (const Cell& cell : plan.cells) {
    const Layer& layer = cell.shape.layer;
    sizes["experts"].insert(layer.local_experts()), sizes["n"].insert(layer.n), sizes["k"].insert(layer.k);
    sizes["tokens"].insert(cell.tokens);
  }
  const int64_t top_k = plan.layers[0].layer.top_k;
  std::vector<std::string> words = {"--from", program, "--dtype", format.word, "--top-k", std::to_string(top_k),
                                    "--arch", arch};
  for (const auto& [name, values] : sizes) words.insert(words.end(), {"--size", name + "=" + list_text(values)});
  std::set<std::string> gemms;  // of kernels that have n and k compiled in
  for (const Cell& cell : plan.cells)
    if (const Layer& layer = cell.shape.layer; format.groups())
      gemms.insert(fmt::format("{}:{},{}", name(layer.projection), layer.n, layer.k));
  for (const std::string& gemm : gemms) words.insert(words.end(), {"--gemm", gemm});
  Hash hash;
  hash.add(read_text(run.kernel.file))
      .add(run.kernel.triton)
      .add(candidates)
      .add(fmt::format("{}", fmt::join(words, " ")));
  for (const char* script : kPackScripts) hash.add(read_text(scripts_folder() / fs::path(script).filename()));
  const fs::path place =
      (fresh ? run.folder : cache_folder() / "packs") / fmt::format("{}-{}", program, hash.hex().substr(0, 16));
  if (!fresh && fs::exists(place / "pack.json")) {
    if (!quiet) note(terminal, fmt::format("the kernels are those of an earlier run: {}", place.string()));
    return place;
  }
  const fs::path partial = place.string() + fmt::format(".partial-{}", ::getpid()), list = partial.string() + ".json";
  const RemovedAtTheEnd removed{{partial, list}};
  make_folder(place.parent_path());
  write_atomic(list, candidates);
  words.insert(words.end(),
               {"--kernel-file", run.kernel.file.string(), "-o", partial.string(), "--candidates", list.string()});
  const Clock::time_point begin = Clock::now();
  if (!quiet) print_to_stderr(fmt::format("compiling {} kernels of {}\n", plan.kernels, run.kernel.file.string()));
  int ticks = 0;
  const std::string text = run_script(words, [&] {
    if (quiet || !terminal.is_terminal || ++ticks % 5 != 0 || !is_there(partial)) return;
    print_moving(fmt::format("{}/{} compiled", std::distance(fs::directory_iterator(partial), {}), plan.kernels));
  });
  if (terminal.is_terminal && !quiet) print_moving("");
  fs::remove_all(place);
  fs::rename(partial, place);
  if (const std::string failed = failures_text(text, run); !failed.empty()) note(terminal, failed);
  if (!quiet)
    print_to_stderr(fmt::format("compiled in {}, kept in {}\n", format_time(seconds_since(begin)), place.string()));
  return place;
}

}  // namespace moetune
