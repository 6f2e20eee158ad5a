// Parallel compilation and the cubin cache.
#include "backend/cuda/compile/compiler.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <mutex>
#include <regex>
#include <set>
#include <thread>
#include <utility>

#include "base/embedded.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/system/file.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolder = "kernels/";
constexpr size_t kCodeDigits = 12;
constexpr std::string_view kMagic = "moetune.cubin/2\n";

fs::path cache_path(const std::string& key) { return cache_folder() / "cubin" / key.substr(0, 2) / (key + ".cubin"); }

// A cache file: magic, a digest of the key and the content, a newline; the content: length of the log in decimal, a
// newline, the log, the cubin.
std::string cache_text(const std::string& key, const std::string& content) {
  return fmt::format("{}{}\n{}", kMagic, Hash().add(key).add(content).hex(), content);
}

bool read_cached(const std::string& key, CompiledUnit& unit) {
  std::string text;
  try {
    if (!fs::exists(cache_path(key))) return false;
    text = read_text(cache_path(key));
  } catch (const std::exception&) {
    return false;
  }
  const size_t newline = text.find('\n', kMagic.size());
  const std::string content = newline == std::string::npos ? "" : text.substr(newline + 1);
  if (text != cache_text(key, content)) return false;
  const size_t log = content.find('\n') + 1, length = std::stoul(content);
  unit.log = content.substr(log, length);
  unit.cubin = content.substr(log + length);
  unit.result = read_ptxas_log(unit.log);
  unit.result.from_cache = true;
  return true;
}

// Without a writable cache the next run compiles again.
void write_cached(const std::string& key, const CompiledUnit& unit) {
  try {
    const fs::path path = cache_path(key);
    fs::create_directories(path.parent_path());
    if (!fs::is_regular_file(path)) fs::remove(path);  // writing to a pipe could block
    write_atomic(path, cache_text(key, fmt::format("{}\n{}{}", unit.log.size(), unit.log, unit.cubin)));
  } catch (const std::exception&) {
  }
}

std::string first_error_line(const std::string& log) {
  const std::regex pattern("[^\n]*error[^\n]*");
  std::smatch match;
  return std::regex_search(log, match, pattern) ? match.str() : log.substr(0, log.find('\n'));
}

CompiledUnit compile_unit(const std::string& unit, const CompilerOptions& options, const std::string& key_prefix) {
  CompiledUnit compiled;
  const std::string key = Hash().add(key_prefix).add(unit).hex();
  if (options.cache && read_cached(key, compiled)) return compiled;
  const auto start = std::chrono::steady_clock::now();
  NvrtcResult made = nvrtc_compile(unit, options.sources, options.arch);
  compiled.log = std::move(made.log);
  if (made.ok) {
    compiled.cubin = std::move(made.cubin);
    compiled.result = read_ptxas_log(compiled.log);
    if (options.cache) write_cached(key, compiled);
  } else {
    compiled.result.status = Status::compile_error;
    compiled.result.reason = first_error_line(compiled.log);
  }
  compiled.result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return compiled;
}

}  // namespace

KernelSources kernel_sources(const std::string& folder) {
  KernelSources sources;
  if (folder.empty()) {
    for (const EmbeddedFile& file : embedded_files())
      if (file.path.starts_with(kFolder)) sources.emplace(file.path.substr(kFolder.size()), file.text);
    return sources;
  }
  if (!is_folder(folder)) throw request_error(fmt::format("{}: no such folder of kernels", folder));
  if (!is_there(fs::path(folder) / "args.h"))
    throw request_error(fmt::format("{}: args.h is missing", folder),
                        "--kernels takes a folder like kernels/ of the sources");
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".cuh" || entry.path().extension() == ".h")
      sources.emplace(entry.path().lexically_relative(folder).generic_string(), read_text(entry.path()));
  return sources;
}

std::string hash(const KernelSources& sources) {
  Hash hash;
  for (const auto& [name, text] : sources) hash.add(name).add(text);
  return hash.hex();
}

std::string code_of(const std::string& cubin) {
  const auto read = [&]<class T>(T& value, uint64_t at) {
    if (at > cubin.size() || cubin.size() - at < sizeof value) throw std::runtime_error("a cubin is cut off");
    std::memcpy(&value, cubin.data() + at, sizeof value);
  };
  Hash hash;
  Elf64_Ehdr file;
  read(file, 0);
  for (uint64_t i = 0; i < file.e_shnum; ++i) {
    Elf64_Shdr section;
    read(section, file.e_shoff + i * sizeof section);
    if (!(section.sh_flags & SHF_EXECINSTR)) continue;
    if (section.sh_offset > cubin.size()) throw std::runtime_error("a cubin is cut off");
    hash.add(std::string_view(cubin).substr(section.sh_offset, section.sh_size));
  }
  return hash.hex().substr(0, kCodeDigits);
}

CompileResult read_ptxas_log(const std::string& log) {
  // Made once: libstdc++ makes expressions with tables of the locale that threads may not fill at the same time.
  static const std::regex registers("Used ([0-9]+) registers"), stores("([0-9]+) bytes spill stores"),
      loads("([0-9]+) bytes spill loads"), shared("([0-9]+) bytes smem"), serialised("\\(C75[0-9]{2}\\)[^\n]*");
  CompileResult result;
  const auto sum = [&](const std::regex& regex) {
    int64_t total = 0;
    for (std::sregex_iterator at(log.begin(), log.end(), regex), end; at != end; ++at) total += std::stoll((*at)[1]);
    return total;
  };
  for (std::sregex_iterator at(log.begin(), log.end(), registers), end; at != end; ++at)
    result.registers = std::max(result.registers, std::stoi((*at)[1]));  // of several kernels the one with most
  result.spill_bytes = static_cast<int>(sum(stores) + sum(loads));
  result.static_shared_bytes = sum(shared);
  std::smatch match;
  if (std::regex_search(log, match, serialised)) {
    result.status = Status::spills;
    result.reason = fmt::format("ptxas serialised its wgmma instructions: {}", match.str());
  } else if (result.spill_bytes > 0) {
    result.status = Status::spills;
    result.reason = fmt::format("registers spill: {} bytes stored and loaded", result.spill_bytes);
  }
  return result;
}

std::vector<CompiledUnit> compile_units(std::span<const std::string> units, const CompilerOptions& options) {
  const std::string key_prefix =
      Hash().add(hash(options.sources)).add(options.arch).add(nvrtc_options()).add(nvrtc_version()).hex();
  std::vector<CompiledUnit> compiled(units.size());
  std::atomic<size_t> next = 0;
  std::mutex failure_mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    for (size_t i; (i = next++) < units.size();) try {
        compiled[i] = compile_unit(units[i], options, key_prefix);
        if (!compiled[i].cubin.empty()) compiled[i].result.code = code_of(compiled[i].cubin);
      } catch (...) {
        const std::lock_guard lock(failure_mutex);
        failure = std::current_exception();
      }
  };
  const size_t cores =
      options.threads > 0 ? static_cast<size_t>(options.threads) : std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(cores, units.size()); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
  return compiled;
}

std::vector<CompileResult> KeptUnits::compile(const std::vector<std::string>& units) {
  std::set<std::string> lacking;
  for (const std::string& unit : units)
    if (!units_.contains(unit)) lacking.insert(unit);
  const std::vector<std::string> missing(lacking.begin(), lacking.end());
  std::vector<CompiledUnit> compiled = compile_units(missing, options_);
  for (size_t i = 0; i < missing.size(); ++i) {
    compiled[i].log = {};
    units_[missing[i]] = std::move(compiled[i]);
    oldest_first_.push_back(missing[i]);
  }
  std::vector<CompileResult> results = mapped(units, [&](const auto& unit) { return units_.at(unit).result; });
  for (; units_.size() > std::max(most_, missing.size()); oldest_first_.pop_front())
    units_.erase(oldest_first_.front());
  return results;
}

const CompiledUnit& KeptUnits::get(const std::string& unit) {
  if (!units_.contains(unit)) compile({unit});
  return units_.at(unit);
}

}  // namespace moetune
