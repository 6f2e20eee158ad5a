// From /proc/stat, the time that this process ran, and what the scheduler counts of its threads.
#include "backend/cpu/machine.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

namespace moetune {
namespace {

constexpr double kWindow = 0.25;  // seconds

}  // namespace

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
