// POSIX file calls. Every error is reported.
#include "base/system/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/system/lock.h"
#include "base/text/units.h"

namespace moetune {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kAnySize = std::numeric_limits<int64_t>::max();

std::string nearest_in_folder(const fs::path& path) {
  std::vector<std::string> names;
  std::error_code ignored;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    names.push_back(entry.path().filename());
  const std::string near = nearest(path.filename().string(), names);
  return near.empty() ? "" : fmt::format("did you mean '{}'?", (path.parent_path() / near).string());
}

Error cannot_write(const fs::path& path) {
  return machine_error(fmt::format("cannot write: {}", std::strerror(errno))).at(path);
}

void write_all(int fd, std::string_view text, const fs::path& path) {
  if (moetune::write_all(fd, text) != 0) throw cannot_write(path);
}

// A device, a pipe or a socket is written to directly, never replaced by a rename.
bool is_special(const fs::path& path) {
  const fs::file_status status = status_of(path);
  return fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status);
}

void write_through(const fs::path& path, std::string_view text) {
  const Fd file{::open(path.c_str(), O_WRONLY | O_CLOEXEC)};
  if (file.get() < 0) throw cannot_write(path);
  write_all(file.get(), text, path);
}

// A new file beside `path`, under a name that nobody has. A negative descriptor where none can be made: errno says why.
std::pair<Fd, fs::path> make_temporary(const fs::path& path, mode_t mode) {
  constexpr int kMaxTries = 100;
  for (int i = 0;; ++i) {
    const fs::path name = path.string() + fmt::format(".{}{}.tmp", ::getpid(), i == 0 ? "" : fmt::format("-{}", i));
    Fd fd(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (fd.get() >= 0 || errno != EEXIST || i == kMaxTries) return {std::move(fd), name};
  }
}

Error cannot_be_written(const fs::path& path, const std::string& reason) {
  return request_error(fmt::format("cannot be written: {}", reason)).at(path);
}

// The path behind all symbolic links, whether a file is there or not.
// Nothing for a cycle of links.
std::optional<fs::path> follow_links(fs::path path) {
  constexpr int kMaxLinks = 40;  // the kernel's own limit
  std::error_code error;
  for (int i = 0; fs::is_symlink(path, error); ++i) {
    if (i == kMaxLinks) return std::nullopt;
    path = path.parent_path() / fs::read_symlink(path, error);
  }
  return path;
}

fs::path behind_links(const fs::path& name) {
  const std::optional<fs::path> path = follow_links(name);
  errno = ELOOP;
  return path ? *path : throw cannot_write(name);
}

// Writes to a new file, and removes it where that fails.
void write_and_sync(const Fd& fd, std::string_view text, const fs::path& file, const fs::path& named) {
  try {
    write_all(fd.get(), text, named);
    if (::fsync(fd.get()) != 0 && errno != EINVAL) throw cannot_write(named);
  } catch (...) {
    ::unlink(file.c_str());
    throw;
  }
}

fs::path write_temporary(const fs::path& path, std::string_view text) {
  const auto [fd, temporary] = make_temporary(path, 0644);
  if (fd.get() < 0) throw cannot_write(path);
  write_and_sync(fd, text, temporary, path);
  return temporary;
}

void rename_to(const fs::path& temporary, const fs::path& path) {
  if (::rename(temporary.c_str(), path.c_str()) == 0) return;
  const Error error = cannot_write(path);
  ::unlink(temporary.c_str());
  throw error;
}

int64_t nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

}  // namespace

int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return errno;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

std::string read_text(const fs::path& path, int64_t limit) {
  if (is_special(path) && !path.string().starts_with("/dev/") && !path.string().starts_with("/proc/"))
    throw request_error("expected a regular file, found a device or a pipe").at(path);
  const Fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (const int reason = errno; file.get() < 0)
    throw request_error(std::strerror(reason), reason == ENOENT ? nearest_in_folder(path) : "").at(path);
  struct stat info {};
  if (::fstat(file.get(), &info) == 0 && S_ISDIR(info.st_mode))
    throw request_error("is a folder, expected a file").at(path);
  std::string text;
  std::vector<char> buffer(size_t{1} << 16);
  for (;;) {
    const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw request_error(fmt::format("cannot read: {}", std::strerror(errno))).at(path);
    if (got == 0) return text;
    text.append(buffer.data(), static_cast<size_t>(got));
    if (static_cast<int64_t>(text.size()) > limit)
      throw request_error(fmt::format("{}: larger than {}, the most that is read", path.string(),
                                      format_bytes(static_cast<double>(limit))));
  }
}

void write_atomic(const fs::path& name, std::string_view text) {
  const fs::path path = behind_links(name);
  if (is_special(path)) return write_through(path, text);
  rename_to(write_temporary(path, text), path);
}

void require_writable(const fs::path& path, bool dry) {
  std::error_code error;
  if (path.empty()) throw request_error("the name of a file to write is empty");
  if (!path.has_filename() || is_folder(path)) throw request_error("is a folder, expected a file name").at(path);
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (!is_there(folder)) {
    fs::path above = fs::absolute(folder, error);
    while (!is_there(above) && above.has_relative_path()) above = above.parent_path();
    if (above == above.root_path()) throw request_error("no such folder", "make it, or name another folder").at(folder);
    if (dry) return require_writable(above / path.filename());
    fs::create_directories(folder, error);
    if (error) throw request_error(fmt::format("cannot make the folder: {}", error.message())).at(folder);
  }
  if (!is_folder(folder)) throw request_error("is not a folder").at(folder);
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none)
    throw cannot_be_written(path, error.message());  // the name cannot be resolved
  if (fs::exists(status) && ::access(path.c_str(), W_OK) != 0) throw cannot_be_written(path, std::strerror(errno));
  if (is_special(path)) return;
  // Root passes every access(2) check, a read-only file system or /proc included: try for real.
  const auto [fd, probe] = make_temporary(behind_links(path), 0600);
  if (fd.get() < 0) throw cannot_be_written(path, std::strerror(errno));
  ::unlink(probe.c_str());
}

bool same_file(const fs::path& a, const fs::path& b) {
  struct stat first {
  }, second{};
  const bool has_a = ::stat(a.c_str(), &first) == 0, has_b = ::stat(b.c_str(), &second) == 0;
  if (has_a || has_b) return has_a && has_b && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
  const auto resolved = [](const fs::path& path) {
    std::error_code error;
    const fs::path whole = fs::weakly_canonical(fs::absolute(follow_links(path).value_or(path), error), error);
    return error ? path.lexically_normal() : whole;
  };
  return resolved(a) == resolved(b);
}

fs::path copy_old(const fs::path& path) {
  const std::string text = read_text(path, kAnySize);
  for (int number = 1;; ++number) {
    const fs::path name = path.string() + (number == 1 ? ".old" : fmt::format(".old{}", number));
    const Fd file{::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)};
    if (file.get() < 0 && errno == EEXIST) continue;
    if (file.get() < 0) throw cannot_write(name);
    write_and_sync(file, text, name, name);
    return name;
  }
}

fs::path KeptFile::write(std::string_view text) {
  struct stat info {};
  const fs::path path = behind_links(path_);
  const bool others = ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 &&
                      (info.st_dev != device_ || info.st_ino != inode_ || nanoseconds(info.st_mtim) != modified_);
  fs::path kept;
  if (others && read_text(path, kAnySize) != text) {
    const fs::path temporary = write_temporary(path, text);  // before the old file gets another name: writing may fail
    try {
      kept = copy_old(path_);
    } catch (...) {
      ::unlink(temporary.c_str());
      throw;
    }
    rename_to(temporary, path);
  } else {
    write_atomic(path, text);
  }
  take_over();
  return kept;
}

void KeptFile::take_over() {
  struct stat info {};
  if (::stat(path_.c_str(), &info) == 0)
    device_ = info.st_dev, inode_ = info.st_ino, modified_ = nanoseconds(info.st_mtim);
}

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

AppendFile::AppendFile(const fs::path& path)
    : fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)), path_(path) {
  if (fd_.get() < 0) throw cannot_be_written(path, std::strerror(errno));
}

void AppendFile::append(std::string_view line) {
  write_all(fd_.get(), std::string(line) + "\n", path_);
  // Pipes and devices have nothing to sync.
  if (::fdatasync(fd_.get()) != 0 && errno != EINVAL && errno != EROFS) throw cannot_write(path_);
}

void AppendFile::lock() { lock_file(fd_.get(), path_); }

bool AppendFile::empty() const {
  struct stat info {};
  return ::fstat(fd_.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0;
}

void AppendFile::clear() {
  if (!empty() && ::ftruncate(fd_.get(), 0) != 0) throw cannot_write(path_);
}

fs::path cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache) return fs::path(cache) / "moetune";
  if (const char* home = std::getenv("HOME"); home && *home) return fs::path(home) / ".cache" / "moetune";
  return fs::temp_directory_path() / "moetune-cache";
}

}  // namespace moetune
