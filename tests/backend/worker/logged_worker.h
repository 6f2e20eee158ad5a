// Workers that serve the fake backend and note each call in a log: "4711 hello" by the process 4711.
#pragma once
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "backend/worker/worker.h"
#include "sleep_ms.h"
#include "temporary_folder.h"
#include "tune/fake_backend.h"

namespace moetune {

template <typename Condition>
bool comes_true(Condition condition, double seconds = 30) {
  for (int i = 0; i < 200 * seconds; ++i, sleep_ms(5))
    if (condition()) return true;
  return condition();
}

/// Whether the process has ended; a zombie has.
inline bool is_gone(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string id, name, state;
  return !(stat >> id >> name >> state) || state == "Z";
}

class LoggedWorker : public testing::Test {
 protected:
  WorkerOptions options(const std::string& faults = "") const {
    WorkerOptions result;
    result.command = {MOETUNE_TEST_WORKER, "serve"};
    result.device = "fake;log=" + log_path() + (faults.empty() ? "" : ";" + faults);
    return result;
  }

  std::string log_path() const { return (folder_.path() / "log").string(); }

  /// Of each line, what follows the process's id.
  std::vector<std::string> calls() const {
    std::vector<std::string> result;
    std::ifstream file(log_path());
    for (std::string line; std::getline(file, line);) result.push_back(line.substr(line.find(' ') + 1));
    return result;
  }

  int count(const std::string& call) const {
    int result = 0;
    for (const std::string& line : calls()) result += line.starts_with(call);
    return result;
  }

  std::vector<pid_t> processes() const {
    std::vector<pid_t> result;
    std::ifstream file(log_path());
    for (std::string line; std::getline(file, line);) result.push_back(static_cast<pid_t>(std::stol(line)));
    return result;
  }

  const TemporaryFolder folder_;
};

}  // namespace moetune
