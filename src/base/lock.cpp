// flock on files that stay: removing one would let two processes lock two files of one name.
#include "base/lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

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

// What failed is left in errno.
enum class Flock { held, taken, failed };
Flock try_flock(int fd) {
  for (;;) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return Flock::held;
    if (errno != EINTR) return errno == EWOULDBLOCK ? Flock::taken : Flock::failed;
  }
}

std::string another(int64_t pid) { return pid > 0 ? fmt::format("another moetune (pid {})", pid) : "another moetune"; }

// As lock_device noted it in its file.
int64_t noted_pid(int fd) {
  char text[32] = {};
  const ssize_t got = ::pread(fd, text, sizeof text - 1, 0);
  int64_t pid = 0;
  for (ssize_t i = 0; i < got && std::isdigit(static_cast<unsigned char>(text[i])); ++i)
    pid = pid * 10 + (text[i] - '0');
  return pid;
}

// As the kernel lists it, "1: FLOCK ADVISORY WRITE 17 08:01:4711 0 EOF"; 0 where it doesn't tell.
int64_t listed_pid(const struct stat& file) {
  const std::string sought =
      fmt::format("{:02x}:{:02x}:{}", major(file.st_dev), minor(file.st_dev), static_cast<uint64_t>(file.st_ino));
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, advisory, write, inode;
    int64_t pid = 0;
    if (words >> number >> kind >> advisory >> write >> pid >> inode && kind == "FLOCK" && inode == sought) return pid;
  }
  return 0;
}

}  // namespace

fs::path lock_folder() {
  const char* folder = std::getenv("MOETUNE_LOCK_DIR");
  return folder && *folder ? folder : "/tmp";
}

DeviceLock lock_device(const std::string& id, const std::string& device, const std::string& command) {
  const fs::path path = lock_path(id);
  Fd fd = open_lock(path);
  const Flock lock = try_flock(fd.get());
  if (lock == Flock::taken)
    throw machine_error(
        fmt::format("{} is using {}", another(noted_pid(fd.get())), device.empty() ? id : device),
        fmt::format("wait until it has ended, or choose another device; the lock is {}", path.string()));
  if (lock == Flock::failed)
    throw machine_error(fmt::format("{}: cannot lock: {}", path.string(), std::strerror(errno)));
  // For error messages of others; the lock doesn't need it.
  const std::string note = fmt::format("{}\n{}\n", ::getpid(), command);
  if (::ftruncate(fd.get(), 0) == 0) (void)!::pwrite(fd.get(), note.data(), note.size(), 0);
  return DeviceLock(std::move(fd), path);
}

void lock_file(int fd, const fs::path& path) {
  struct stat file {};
  if (::fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) return;
  if (try_flock(fd) == Flock::taken)
    throw machine_error(fmt::format("{} is using {}", another(listed_pid(file)), path.string()),
                        "wait until it has ended, or choose another file");
}

}  // namespace moetune
