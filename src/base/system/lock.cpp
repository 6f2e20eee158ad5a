// Locks by flock. The lock file of a device stays. That of an output is removed with the lock, so a process that has
// locked one checks that the name is still that of the file that it has locked.
#include "base/system/lock.h"

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
#include "base/system/folder.h"

namespace moetune {
namespace fs = std::filesystem;
namespace {

fs::path lock_path(const std::string& id) {
  std::string name = id;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_') c = '_';
  return lock_folder() / fmt::format("moetune-{}.lock", name);
}

// Another user's file in a sticky folder cannot be opened with O_CREAT (fs.protected_regular), nor for writing if that
// user's umask forbids it; flock only needs reading. Symbolic links are refused, because the file is truncated.
Fd open_lock(const fs::path& path) {
  constexpr int kFlags = O_CLOEXEC | O_NOFOLLOW;
  int reason = 0;  // why it can't be made: a missing file can't be read either
  for (const int flags : {kFlags | O_RDWR, kFlags | O_RDWR | O_CREAT, kFlags | O_RDONLY}) {
    Fd fd(::open(path.c_str(), flags, 0666));
    if (flags & O_CREAT) fd.get() < 0 ? reason = errno : ::fchmod(fd.get(), 0666);
    if (fd.get() >= 0) return fd;
  }
  throw machine_error(fmt::format("cannot make the lock file: {}", std::strerror(reason)),
                      "set MOETUNE_LOCK_DIR to a folder that can be written")
      .at(path);
}

// With `failed`, errno has the reason.
enum class Flock { held, taken, failed };
Flock try_flock(int fd) {
  for (;;) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return Flock::held;
    if (errno != EINTR) return errno == EWOULDBLOCK ? Flock::taken : Flock::failed;
  }
}

std::string another(int64_t pid) { return pid > 0 ? fmt::format("another moetune (pid {})", pid) : "another moetune"; }

Error in_use(const std::string& holder, const fs::path& path) {
  return request_error(fmt::format("{} is using {}", holder, path.string()),
                       "wait until it has ended, or choose another file");
}

constexpr std::string_view kOurs = "moetune ";  // what the lock file of an output begins with

// Writes this process's id and a line into the file, for error messages of other processes.
void note_holder(int fd, const std::string& line, std::string_view begin = {}) {
  const std::string note = fmt::format("{}{}\n{}\n", begin, ::getpid(), line);
  if (::ftruncate(fd, 0) == 0) (void)!::pwrite(fd, note.data(), note.size(), 0);
}

// As note_holder wrote them; 0 and empty where it hasn't yet.
std::pair<int64_t, std::string> noted_holder(int fd) {
  char text[512] = {};
  std::string_view content = ::pread(fd, text, sizeof text - 1, 0) > 0 ? text : "";
  if (content.starts_with(kOurs)) content.remove_prefix(kOurs.size());
  std::istringstream note{std::string(content)};
  int64_t pid = 0;
  std::string line;
  if (note >> pid) std::getline(note >> std::ws, line);
  return {pid, line};
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

std::string another_here_or_there(int fd) {
  const auto [pid, host] = noted_holder(fd);
  return host.empty() || host == host_name() ? another(pid) : fmt::format("another moetune (pid {} on {})", pid, host);
}

// One path for all names of the file. For a file that doesn't exist: the path of its folder, and its name.
fs::path behind_names(const fs::path& path) {
  std::error_code error;
  const fs::path file = fs::canonical(path, error);
  if (!error) return file;
  const fs::path whole = fs::absolute(path, error), folder = fs::canonical(whole.parent_path(), error);
  return error ? whole : folder / whole.filename();
}

bool is_at(int fd, const fs::path& path) {
  struct stat open {
  }, named{};
  return ::fstat(fd, &open) == 0 && ::lstat(path.c_str(), &named) == 0 && open.st_dev == named.st_dev &&
         open.st_ino == named.st_ino;
}

// The pid in the kernel's list, "1: FLOCK ADVISORY WRITE 17 08:01:4711 0 EOF"; 0 where it isn't listed.
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
        fmt::format("{} is using {}", another(noted_holder(fd.get()).first), device.empty() ? id : device),
        fmt::format("wait until it has ended, or choose another device; the lock is {}", path.string()));
  if (lock == Flock::failed) throw machine_error(fmt::format("cannot lock: {}", std::strerror(errno))).at(path);
  note_holder(fd.get(), command);
  return DeviceLock(std::move(fd), path);
}

void lock_file(int fd, const fs::path& path) {
  struct stat file {};
  if (::fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) return;
  if (try_flock(fd) == Flock::taken) throw in_use(another(listed_pid(file)), path);
}

OutputLock::OutputLock(const fs::path& path) {
  path_ = behind_names(path).string() + ".lock";
  bool made = false;
  for (;;) {
    constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
    fd_ = Fd(::open(path_.c_str(), kFlags | O_EXCL, 0666));
    made = fd_.get() >= 0;
    if (!made) fd_ = Fd(::open(path_.c_str(), kFlags, 0666));
    if (fd_.get() < 0)
      throw request_error(fmt::format("cannot make the lock file: {}", std::strerror(errno)),
                          "write to a folder in which you may make files")
          .at(path_);
    const Flock lock = try_flock(fd_.get());
    if (lock == Flock::taken) throw in_use(another_here_or_there(fd_.get()), path);
    if (lock == Flock::failed || is_at(fd_.get(), path_)) break;
  }
  // Another process may have made the file and not yet locked it. An empty one may be a user's too: it stays.
  char begin[kOurs.size()] = {};
  const ssize_t got = ::pread(fd_.get(), begin, sizeof begin, 0);
  if (got > 0 && std::string_view(begin, static_cast<size_t>(got)) != kOurs)
    throw request_error(fmt::format("moetune would lock {} by this file, which it did not make", path.string()),
                        "move it away, or choose another output")
        .at(path_);
  remove_ = made || got > 0;
  note_holder(fd_.get(), host_name(), kOurs);
  remove_leftovers(behind_names(path));
}

OutputLock::~OutputLock() {
  if (fd_.get() < 0) return;
  if (!remove_)
    (void)!::ftruncate(fd_.get(), 0);
  else
    ::unlink(path_.c_str());
}

}  // namespace moetune
