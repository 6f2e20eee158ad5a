// Reading and writing files so that no reader sees a half-written one.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moetune {

/// The whole file. Errors (Exit::request): missing (with the nearest name in that folder), a folder, unreadable, over
/// `limit` bytes, or a pipe, which could block for ever; pipes that a shell has opened are read (/dev/stdin, /dev/fd).
std::string read_text(const std::filesystem::path& path, int64_t limit = int64_t{256} << 20);

/// Whether something, a folder or a regular file has this path; links are followed. False if that cannot be read.
inline std::filesystem::file_status status_of(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::status(path, ignored);
}
inline bool is_there(const std::filesystem::path& path) { return std::filesystem::exists(status_of(path)); }
inline bool is_folder(const std::filesystem::path& path) { return std::filesystem::is_directory(status_of(path)); }
inline bool is_file(const std::filesystem::path& path) { return std::filesystem::is_regular_file(status_of(path)); }

/// Writes everything; EINTR and short writes are not errors. 0, or the error that stopped it.
int write_all(int fd, std::string_view text);

/// Writes to a temporary in the same folder, syncs and renames: a reader sees the old file or the new one. Behind a
/// symbolic link, the file that it names is replaced; a device or a pipe is written to directly.
/// Throws Exit::machine with the reason (disk full, no permission); then the old file is unchanged.
void write_atomic(const std::filesystem::path& path, std::string_view text);

/// Throws Exit::request unless a file can be written at `path`: the name resolves and leaves room for the suffix of a
/// temporary, the folder exists or is made, but not in the root folder, and is writable, and `path` is not a folder.
/// Leaves no file behind. `dry` makes no folder: it is enough that it can be made.
void require_writable(const std::filesystem::path& path, bool dry = false);

/// Whether two paths are of one file: the same device and inode behind symbolic links, or, where neither file exists,
/// the same name in the same folder.
bool same_file(const std::filesystem::path& a, const std::filesystem::path& b);

/// Files and folders that are removed with this object, also after an exception: those of a run that did not finish.
struct RemovedAtTheEnd {
  std::vector<std::filesystem::path> paths;
  ~RemovedAtTheEnd() {
    std::error_code ignored;
    for (const std::filesystem::path& path : paths) std::filesystem::remove_all(path, ignored);
  }
};

/// Copies the file at `path` to the first free name of path.old, path.old2, path.old3, ... Returns the name; throws
/// Exit::machine.
std::filesystem::path copy_old(const std::filesystem::path& path);

/// A file that one run writes several times. A file that another process wrote there is kept under another name.
class KeptFile {
 public:
  explicit KeptFile(std::filesystem::path path) : path_(std::move(path)) {}

  /// Writes as write_atomic does. If another process has written other text there, that is first kept by copy_old.
  /// Returns its name, or an empty path.
  std::filesystem::path write(std::string_view text);

  /// From now on the present file counts as written by this run: for a run whose next text includes its content.
  void take_over();

 private:
  std::filesystem::path path_;
  uint64_t device_ = 0, inode_ = 0;  // of what was written last; inodes begin at 1
  int64_t modified_ = 0;             // nanoseconds
};

/// A file descriptor that closes itself.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();
  int get() const { return fd_; }

 private:
  int fd_;
};

/// A file that grows by whole lines, each on disk (fdatasync) when append returns.
class AppendFile {
 public:
  AppendFile() = default;
  explicit AppendFile(const std::filesystem::path& path);  // opens or creates; throws like require_writable
  void append(std::string_view line);                      // adds the newline; throws Exit::machine (disk full)
  void lock();                                             // until it is closed; throws like lock_file
  bool empty() const;                                      // always true of a device or a pipe
  void clear();                                            // throws Exit::machine
  bool is_open() const { return fd_.get() >= 0; }
  const std::filesystem::path& path() const { return path_; }

 private:
  Fd fd_;
  std::filesystem::path path_;
};

/// $XDG_CACHE_HOME/moetune, else $HOME/.cache/moetune, else a folder in the temporary directory.
std::filesystem::path cache_folder();

}  // namespace moetune
