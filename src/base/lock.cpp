// flock on a file that stays: removing it would let two processes lock two files of one name.
#include "base/lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace moetune {
namespace fs = std::filesystem;
namespace {

fs::path lock_path(const std::string& id) {
  std::string name = id;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_') c = '_';
  return lock_folder() / fmt::format("moetune-{}.lock", name);
}

// Another user's file in a sticky folder opens neither with O_CREAT (fs.protected_regular) nor, where that user's umask
// won, for writing; flock is content with reading. No symbolic links: the file gets truncated.
Fd open_lock(const fs::path& path) {
  constexpr int kFlags = O_CLOEXEC | O_NOFOLLOW;
  for (const int flags : {kFlags | O_RDWR, kFlags | O_RDWR | O_CREAT, kFlags | O_RDONLY}) {
    Fd fd(::open(path.c_str(), flags, 0666));
    if (fd.get() < 0) continue;
    if (flags & O_CREAT) ::fchmod(fd.get(), 0666);
    return fd;
  }
  throw machine_error(fmt::format("{}: cannot make the lock file: {}", path.string(), std::strerror(errno)),
                      "set MOETUNE_LOCK_DIR to a folder that can be written");
}

std::string holder(int fd) {
  char text[32] = {};
  const ssize_t got = ::pread(fd, text, sizeof text - 1, 0);
  int64_t pid = 0;
  for (ssize_t i = 0; i < got && std::isdigit(static_cast<unsigned char>(text[i])); ++i)
    pid = pid * 10 + (text[i] - '0');
  return pid > 0 ? fmt::format("another moetune (pid {})", pid) : "another moetune";
}

}  // namespace

fs::path lock_folder() {
  const char* folder = std::getenv("MOETUNE_LOCK_DIR");
  return folder && *folder ? folder : "/tmp";
}

DeviceLock lock_device(const std::string& id, const std::string& device, const std::string& command) {
  const fs::path path = lock_path(id);
  Fd fd = open_lock(path);
  int failed = 0;
  do failed = ::flock(fd.get(), LOCK_EX | LOCK_NB);
  while (failed != 0 && errno == EINTR);
  if (failed != 0 && errno == EWOULDBLOCK)
    throw machine_error(
        fmt::format("{} is using {}", holder(fd.get()), device.empty() ? id : device),
        fmt::format("wait until it has ended, or choose another device; the lock is {}", path.string()));
  if (failed != 0) throw machine_error(fmt::format("{}: cannot lock: {}", path.string(), std::strerror(errno)));
  // Only for people: the lock holds without it.
  const std::string note = fmt::format("{}\n{}\n", ::getpid(), command);
  if (::ftruncate(fd.get(), 0) == 0) (void)!::pwrite(fd.get(), note.data(), note.size(), 0);
  return DeviceLock(std::move(fd), path);
}

}  // namespace moetune
