// Reads /proc, /sys and the control group, what ran when, and what the scheduler counts of our threads; every number
// has a fallback.
#include "backend/cpu/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

namespace moetune {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
constexpr int64_t kGuessedCache = int64_t{32} << 20;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// What follows "key" and colons or blanks at the start of a line: of /proc/cpuinfo, /proc/meminfo, memory.stat.
std::optional<std::string> field(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t end = line.find_first_not_of(": \t", key.size());
    if (end != std::string::npos && end > key.size()) return line.substr(end);
  }
  return std::nullopt;
}

/// A whole number, with K, M or G behind it as in sysfs. Nothing for "max" and "".
std::optional<int64_t> number(const std::string& text) {
  std::istringstream stream(text);
  int64_t value = 0;
  char unit = ' ';
  if (!(stream >> value) || value < 0) return std::nullopt;
  stream.get(unit);
  const int shift = unit == 'K' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0;
  return value > kUnlimited >> shift ? kUnlimited : value << shift;
}

std::string processor_name() {
  for (const char* key : {"model name", "Model"})
    if (const auto found = field("/proc/cpuinfo", key)) return *found;
  utsname system{};
  return uname(&system) == 0 ? fmt::format("{} cpu", system.machine) : "cpu";
}

/// Hardware threads that this process may run on.
std::vector<int> usable_processors() {
  std::vector<int> usable;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) usable.push_back(cpu);
  // Machines with more threads than a cpu_set_t holds: trust the count.
  for (int cpu = 0; usable.empty() && cpu < std::max<int>(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))); ++cpu)
    usable.push_back(cpu);
  return usable;
}

/// All last-level caches of these threads: each counts once, however many share it.
int64_t last_level_cache(const std::vector<int>& processors) {
  std::map<std::string, int64_t> caches;  // by the list of threads that share it
  for (const int cpu : processors) {
    int64_t deepest = 0, bytes = 0;
    std::string shared;
    for (int index = 0; index < 8; ++index) {
      const std::string folder = fmt::format("/sys/devices/system/cpu/cpu{}/cache/index{}/", cpu, index);
      const int64_t level = number(first_line(folder + "level")).value_or(0);
      if (level <= deepest || first_line(folder + "type") == "Instruction") continue;
      deepest = level;
      bytes = number(first_line(folder + "size")).value_or(0);
      shared = first_line(folder + "shared_cpu_list");
    }
    if (bytes > 0) caches[shared] = bytes;
  }
  int64_t total = 0;
  for (const auto& [shared, bytes] : caches) total += bytes;
  if (total == 0) total = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return total > 0 ? total : kGuessedCache;
}

int64_t memory_field(const std::string& key) {
  return number(field("/proc/meminfo", key).value_or("0")).value_or(0) * 1024;  // in kilobytes there
}

struct Group {
  int64_t limit = kUnlimited;
  int64_t used = 0;
};

/// The memory limit of the control group that this process sees as its own, version 2 or 1.
Group control_group() {
  for (const auto& [folder, limit, used] :
       {std::array{"/sys/fs/cgroup/", "memory.max", "memory.current"},
        std::array{"/sys/fs/cgroup/memory/", "memory.limit_in_bytes", "memory.usage_in_bytes"}}) {
    const std::string base = folder;
    const auto bytes = number(first_line(base + limit));
    if (!bytes) continue;
    // Pages of files that can be dropped count as used, but can be reclaimed.
    const int64_t cached = number(field(base + "memory.stat", "inactive_file").value_or("0")).value_or(0);
    return {*bytes, std::max<int64_t>(0, number(first_line(base + used)).value_or(0) - cached)};
  }
  return {};
}

constexpr double kWindow = 0.25;  // seconds

}  // namespace

DeviceInfo cpu_device() {
  const std::vector<int> processors = usable_processors();
  DeviceInfo device;
  device.kind = DeviceKind::cpu;
  device.name = processor_name();
  device.id = "cpu";
  device.processors = static_cast<int>(processors.size());
  device.cache_bytes = last_level_cache(processors);
  device.memory_bytes = std::min(memory_field("MemTotal"), control_group().limit);
  return device;
}

int64_t available_memory_bytes() {
  const Group group = control_group();
  const int64_t free = memory_field("MemAvailable");
  return group.limit == kUnlimited ? free : std::min(free, std::max<int64_t>(0, group.limit - group.used));
}

double seconds_without_processor() {
  double nanoseconds = 0;
  std::error_code ignored;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    std::ifstream file(thread.path() / "schedstat");  // time run and time waited in nanoseconds, time slices
    double ran = 0, waited = 0;
    if (file >> ran >> waited) nanoseconds += waited;
  }
  return nanoseconds * 1e-9;
}

OtherLoad::OtherLoad() : last_(read()) {}

double OtherLoad::share() {
  const std::chrono::duration<double> window = std::chrono::steady_clock::now() - last_.when;
  if (window.count() < kWindow) return share_;
  const Reading now = read();
  const double elapsed = std::chrono::duration<double>(now.when - last_.when).count();
  const double all = elapsed * now.processors;
  const double others = all - (now.idle - last_.idle) - (now.own - last_.own);
  share_ = all > 0 ? std::clamp(others / all, 0.0, 1.0) : 0;
  last_ = now;
  return share_;
}

OtherLoad::Reading OtherLoad::read() {
  Reading reading{.when = std::chrono::steady_clock::now()};
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return reading;
  const auto tick = static_cast<double>(sysconf(_SC_CLK_TCK));
  std::ifstream file("/proc/stat");
  // "cpu3 user nice system idle iowait ...", in ticks; the line of all together has no number.
  for (std::string line; std::getline(file, line) && line.starts_with("cpu");) {
    std::istringstream fields(line.substr(3));
    int processor = 0;
    double user = 0, nice = 0, system = 0, idle = 0, iowait = 0;
    if (line[3] == ' ' || !(fields >> processor >> user >> nice >> system >> idle >> iowait)) continue;
    if (processor >= CPU_SETSIZE || !CPU_ISSET(processor, &usable)) continue;
    ++reading.processors;
    reading.idle += (idle + iowait) / tick;
  }
  timespec own{};
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own) == 0)
    reading.own = static_cast<double>(own.tv_sec) + 1e-9 * static_cast<double>(own.tv_nsec);
  return reading;
}

}  // namespace moetune
