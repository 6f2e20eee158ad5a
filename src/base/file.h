// Reading and writing files so that nothing is ever half there.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace moetune {

/// The whole file. Errors (Exit::request): missing (with the nearest name in that folder), a folder, unreadable, or
/// over `limit` bytes.
std::string read_text(const std::filesystem::path& path, int64_t limit = int64_t{256} << 20);

/// Writes to a temporary in the same folder, syncs and renames: a reader sees the old file or the new one. A symbolic
/// link stays one, the file that it names is replaced; a device or a pipe is written to and stays what it is.
/// Throws Exit::machine with the reason (disk full, no permission); the old file is then as it was.
void write_atomic(const std::filesystem::path& path, std::string_view text);

/// Throws Exit::request unless a file could be written at `path`: its folder exists (made where `make_folder`), is
/// writable, and the path is no folder. Leaves nothing behind.
void require_writable(const std::filesystem::path& path, bool make_folder = true);

/// A file that grows by whole lines, each on disk (fdatasync) when append returns.
class AppendFile {
 public:
  AppendFile() = default;
  explicit AppendFile(const std::filesystem::path& path);  // opens or creates; throws like require_writable
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&& other) noexcept;
  ~AppendFile();
  void append(std::string_view line);  // adds the newline; throws Exit::machine (disk full)
  void lock();                         // until it is closed; throws like lock_file
  bool empty() const;                  // as a device or a pipe always is
  void clear();                        // throws Exit::machine
  bool is_open() const { return fd_ >= 0; }
  const std::filesystem::path& path() const { return path_; }

 private:
  int fd_ = -1;
  std::filesystem::path path_;
};

/// $XDG_CACHE_HOME/moetune, else $HOME/.cache/moetune, else a folder in the temporary directory.
std::filesystem::path cache_folder();

}  // namespace moetune
