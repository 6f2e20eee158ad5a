// Locks that allow one tuner for each device, table and journal. The kernel releases them when their process ends,
// however it ends.
#pragma once
#include <filesystem>
#include <string>

#include "base/system/file.h"

namespace moetune {

/// The device is locked while this lives.
class DeviceLock {
 public:
  DeviceLock(Fd fd, std::filesystem::path path) : fd_(std::move(fd)), path_(std::move(path)) {}
  const std::filesystem::path& path() const { return path_; }

 private:
  Fd fd_;
  std::filesystem::path path_;
};

/// $MOETUNE_LOCK_DIR, else /tmp: a folder that is the same for all users of this machine, as the device is.
std::filesystem::path lock_folder();

/// Locks <lock_folder>/moetune-<id>.lock, and writes this process's id and `command` into it. Throws Exit::machine
/// where another process has the lock ("another moetune (pid 17) is using cuda:0") or the file can't be made. `device`
/// is the user's word for the device, `command` the user's command line.
DeviceLock lock_device(const std::string& id, const std::string& device = {}, const std::string& command = {});

/// Locks the open file itself until `fd` and its copies are closed. Throws Exit::request where another descriptor has
/// the lock ("another moetune (pid 17) is using table.json.journal.jsonl"). A device, a pipe, or a file on a file
/// system without locks is not locked. `path` is the user's name for the file.
void lock_file(int fd, const std::filesystem::path& path);

/// Locks <path>.lock while it lives, then removes it; an empty file that it found stays. Whoever has that lock may
/// replace the file at `path`.
class OutputLock {
 public:
  /// Throws Exit::request where another process has the lock ("another moetune (pid 17) is using table.json", "(pid 17
  /// on node3)"), where the lock file can't be made, or where a file of that name has other content. All names of one
  /// file have one lock, on all machines that see the file. Nothing is locked on a file system without locks. The lock
  /// file of a killed process is not locked.
  explicit OutputLock(const std::filesystem::path& path);
  OutputLock(OutputLock&&) = default;
  OutputLock& operator=(OutputLock&&) = delete;
  ~OutputLock();

 private:
  std::filesystem::path path_;
  Fd fd_;
  bool remove_ = true;
};

}  // namespace moetune
