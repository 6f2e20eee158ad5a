// One tuner a device: a lock file that the kernel releases when its holder ends, however it ends.
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

}  // namespace moetune
