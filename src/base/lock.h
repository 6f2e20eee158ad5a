// One tuner a device, a table and a journal: locks that the kernel releases when their holder ends, however it ends.
#pragma once
#include <filesystem>
#include <string>

#include "base/process.h"

namespace moetune {

/// Holds the device for as long as it lives.
class DeviceLock {
 public:
  DeviceLock(Fd fd, std::filesystem::path path) : fd_(std::move(fd)), path_(std::move(path)) {}
  const std::filesystem::path& path() const { return path_; }

 private:
  Fd fd_;
  std::filesystem::path path_;
};

/// $MOETUNE_LOCK_DIR, else /tmp: a place that all sessions of all users of this machine share, as they share the
/// device.
std::filesystem::path lock_folder();

/// Locks <lock_folder>/moetune-<id>.lock, which then tells this process's id and `command`. Throws Exit::machine where
/// another process holds it ("another moetune (pid 17) is using cuda:0") or the file can't be made. `device` is the
/// word that people know the device by, `command` what they typed.
DeviceLock lock_device(const std::string& id, const std::string& device = {}, const std::string& command = {});

/// Locks the open file itself until `fd` and its copies are closed; nobody's other descriptor has it meanwhile. Throws
/// Exit::request where another does ("another moetune (pid 17) is using table.json.journal.jsonl"). A device or a pipe
/// is anybody's, and so is a file where the file system has no locks. `path` is the name that people know it by.
void lock_file(int fd, const std::filesystem::path& path);

/// Holds <path>.lock, the right to replace the file at `path`, for as long as it lives; then removes it.
class OutputLock {
 public:
  /// Throws Exit::request where another process has it ("another moetune (pid 17) is using table.json", "(pid 17 on
  /// node3)") or the lock file can't be made. All names of one file share a lock, on all machines that share the file;
  /// where the file system has no locks, nothing is locked. What a killed process left locks nothing.
  explicit OutputLock(const std::filesystem::path& path);
  OutputLock(OutputLock&&) = default;
  OutputLock& operator=(OutputLock&&) = delete;
  ~OutputLock();

 private:
  std::filesystem::path path_;
  Fd fd_;
};

}  // namespace moetune
