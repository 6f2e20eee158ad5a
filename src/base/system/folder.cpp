// Folders are exchanged by renameat2. A file system without that call has the old folder moved away for a moment.
#include "base/system/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace moetune {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kMovedAway = ".old.tmp";

// Whether the name of a temporary ends so, after its process's id: ".tmp", "-2.tmp", ".old.tmp".
bool is_temporary_end(std::string_view text) {
  if (text.starts_with("-")) text.remove_prefix(std::min(text.find_first_not_of("0123456789", 1), text.size()));
  return text == ".tmp" || text == kMovedAway;
}

// A process of another container may have had this one's id.
bool has_ended(int64_t pid) { return pid == ::getpid() || (::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH); }

}  // namespace

fs::path temporary_name(const fs::path& path) { return path.string() + fmt::format(".{}.tmp", ::getpid()); }

void remove_leftovers(const fs::path& path) {
  const std::string begin = path.filename().string() + ".";
  std::error_code ignored;
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(path.parent_path(), ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(begin)) continue;
    int64_t pid = 0;
    const char* end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + begin.size(), end, pid);
    if (error == std::errc() && pid > 0 && is_temporary_end({rest, end}) && has_ended(pid))
      found.push_back(entry.path());
  }
  for (const fs::path& left : found)
    if (left.string().ends_with(kMovedAway) && !fs::exists(path, ignored))
      fs::rename(left, path, ignored);
    else
      fs::remove_all(left, ignored);
}

bool replace_folder(const fs::path& made, const fs::path& folder) {
  if (::rename(made.c_str(), folder.c_str()) == 0) return false;  // none was there, or an empty one
  if (errno == ENOTEMPTY || errno == EEXIST) {
    if (::renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) == 0) return true;
    const fs::path away = folder.string() + fmt::format(".{}{}", ::getpid(), kMovedAway);
    if ((errno == EINVAL || errno == ENOSYS) && ::rename(folder.c_str(), away.c_str()) == 0) {
      if (::rename(made.c_str(), folder.c_str()) == 0) return ::rename(away.c_str(), made.c_str()) == 0;
      const int reason = errno;
      ::rename(away.c_str(), folder.c_str());
      errno = reason;
    }
  }
  throw machine_error(fmt::format("{}: cannot be replaced: {}", folder.string(), std::strerror(errno)),
                      "name a folder inside it");
}

}  // namespace moetune
