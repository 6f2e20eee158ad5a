// Reading, atomic writing, appending: above all what happens when it does not work.
#include "base/system/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "error_of.h"
#include "temporary_folder.h"

namespace moetune {
namespace fs = std::filesystem;
namespace {

size_t entries(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(ReadText, ReadsAllBytes) {
  const TemporaryFolder folder;
  const std::string bytes("a\0b\r\n\xff", 6);
  EXPECT_EQ(read_text(folder.write("x", bytes)), bytes);
}
TEST(ReadText, NamesTheNearestFile) {
  const TemporaryFolder folder;
  folder.write("loads.json", "{}");
  const fs::path wrong = folder.path() / "laods.json";
  const Caught error = error_of([&] { read_text(wrong); });
  EXPECT_EQ(error.exit, Exit::request);
  EXPECT_EQ(error.what, wrong.string() + ": No such file or directory");
  EXPECT_EQ(error.hint, "did you mean '" + (folder.path() / "loads.json").string() + "'?");
}
TEST(ReadText, RefusesAFolderAndOverTheLimit) {
  const TemporaryFolder folder;
  EXPECT_EQ(error_of([&] { read_text(folder.path()); }).what,
            folder.path().string() + ": is a folder, expected a file");
  const fs::path path = folder.write("x", "12345");
  EXPECT_EQ(read_text(path, 5), "12345");
  EXPECT_EQ(error_of([&] { read_text(path, 4); }).what, path.string() + ": larger than 4 B, the most that is read");
}
TEST(ReadText, RefusesAPipe) {
  const TemporaryFolder folder;
  const fs::path pipe = folder.path() / "kernel.cubin";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { read_text(pipe); }).what,
            pipe.string() + ": expected a regular file, found a device or a pipe");
}
TEST(ReadText, StopsAtTheLimitOfAnEndlessFile) {
  EXPECT_EQ(error_of([] { read_text("/dev/zero", 100000); }).what,
            "/dev/zero: larger than 100 kB, the most that is read");
}

TEST(WriteAtomic, WritesAndReplacesAndLeavesNothingElse) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "table.json";
  write_atomic(path, "old");
  write_atomic(path, "new");
  EXPECT_EQ(read_text(path), "new");
  EXPECT_EQ(entries(folder.path()), 1u);
}
TEST(WriteAtomic, NamesAMissingFolder) {
  const Caught error = error_of([] { write_atomic("/nonexistent-folder/x.json", "x"); });
  EXPECT_EQ(error.exit, Exit::machine);
  EXPECT_EQ(error.what, "/nonexistent-folder/x.json: cannot write: No such file or directory");
}
TEST(WriteAtomic, LeavesWhatWasThereWhereItCannotReplace) {
  const TemporaryFolder folder;
  folder.write("target/inside", "kept");
  EXPECT_EQ(error_of([&] { write_atomic(folder.path() / "target", "x"); }).exit, Exit::machine);
  EXPECT_EQ(read_text(folder.path() / "target" / "inside"), "kept");
  EXPECT_EQ(entries(folder.path()), 1u);  // no temporary either
}
TEST(WriteAtomic, WritesToADeviceOrAPipeAndLeavesItOne) {
  const TemporaryFolder folder;
  const fs::path pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const Fd reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK));
  write_atomic(pipe, "text");
  char got[8] = {};
  EXPECT_EQ(::read(reader.get(), got, sizeof got), 4);
  EXPECT_STREQ(got, "text");
  EXPECT_TRUE(fs::is_fifo(pipe));
  write_atomic("/dev/null", "text");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  fs::create_symlink("/dev/null", folder.path() / "link");
  write_atomic(folder.path() / "link", "text");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_TRUE(fs::is_symlink(folder.path() / "link"));
  EXPECT_EQ(error_of([] { write_atomic("/dev/full", "text"); }).what,
            "/dev/full: cannot write: No space left on device");
}
TEST(WriteAtomic, ReplacesWhatALinkNames) {
  const TemporaryFolder folder;
  const fs::path target = folder.write("target", "old");
  fs::create_symlink("target", folder.path() / "link");
  fs::create_symlink("link", folder.path() / "link2");
  fs::create_symlink("missing", folder.path() / "dangling");
  write_atomic(folder.path() / "link2", "new");
  write_atomic(folder.path() / "dangling", "made");
  EXPECT_EQ(read_text(target), "new");
  EXPECT_EQ(read_text(folder.path() / "missing"), "made");
  for (const char* link : {"link", "link2", "dangling"}) EXPECT_TRUE(fs::is_symlink(folder.path() / link)) << link;
  EXPECT_EQ(entries(folder.path()), 5u);
}
TEST(WriteAtomic, ALinkThatEndsNowhereIsAnError) {
  const TemporaryFolder folder;
  fs::create_symlink("b", folder.path() / "a");
  fs::create_symlink("a", folder.path() / "b");
  const fs::path link = folder.path() / "a";
  EXPECT_EQ(error_of([&] { write_atomic(link, "x"); }).what,
            link.string() + ": cannot write: Too many levels of symbolic links");
}

TEST(RequireWritable, TakesADeviceMakesTheFolderAndLeavesNothing) {
  const TemporaryFolder folder;
  require_writable("/dev/null");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  require_writable(folder.path() / "a" / "b" / "out.json");
  EXPECT_TRUE(fs::is_directory(folder.path() / "a" / "b"));
  EXPECT_EQ(entries(folder.path() / "a" / "b"), 0u);
}
TEST(RequireWritable, MakesNoFolderInTheRootNorInADryRun) {
  const TemporaryFolder folder;
  require_writable(folder.path() / "a" / "x", true);
  EXPECT_EQ(entries(folder.path()), 0u);
  for (const bool dry : {true, false})
    EXPECT_EQ(error_of([&] { require_writable("/moetune-missing/a/x", dry); }).what,
              "/moetune-missing/a: no such folder");
  EXPECT_FALSE(fs::exists("/moetune-missing"));
}
TEST(RequireWritable, RefusesAFolder) {
  const TemporaryFolder folder;
  EXPECT_EQ(error_of([] { require_writable(""); }).what, "the name of a file to write is empty");
  EXPECT_EQ(error_of([&] { require_writable(folder.path() / "new" / ""); }).what,
            (folder.path() / "new" / "").string() + ": is a folder, expected a file name");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "new"));
  EXPECT_EQ(error_of([&] { require_writable(folder.path()); }).what,
            folder.path().string() + ": is a folder, expected a file name");
  write_atomic(folder.path() / "file", "");
  EXPECT_EQ(error_of([&] { require_writable(folder.path() / "file" / "x"); }).what,
            (folder.path() / "file").string() + ": is not a folder");
}
TEST(RequireWritable, RefusesWhereNoFileCanBe) {
  EXPECT_EQ(error_of([] { require_writable("/proc/moetune/out.json"); }).exit, Exit::request);
  EXPECT_EQ(error_of([] { require_writable("/proc/out.json"); }).exit, Exit::request);
}
TEST(RequireWritable, RefusesAFileUnderAFile) {
  const TemporaryFolder folder;
  const fs::path file = folder.write("file", "x");
  EXPECT_EQ(error_of([&] { require_writable(file / "out.json"); }).exit, Exit::request);
}

TEST(SameFile, ComparesFilesAndNotNames) {
  const TemporaryFolder folder;
  const fs::path file = folder.write("file", "x"), other = folder.write("other", "x");
  fs::create_symlink("file", folder.path() / "symbolic");
  fs::create_hard_link(file, folder.path() / "hard");
  EXPECT_TRUE(same_file(file, folder.path() / "." / "file"));
  EXPECT_TRUE(same_file(file, folder.path() / "symbolic"));
  EXPECT_TRUE(same_file(file, folder.path() / "hard"));
  EXPECT_FALSE(same_file(file, other));
  EXPECT_FALSE(same_file(file, folder.path() / "new"));
}
TEST(SameFile, ComparesFilesThatAreNotThereYet) {
  const TemporaryFolder folder;
  fs::create_directory(folder.path() / "real");
  fs::create_symlink("real", folder.path() / "link");
  fs::create_symlink("real/new", folder.path() / "dangling");
  EXPECT_TRUE(same_file(folder.path() / "real" / "new", folder.path() / "link" / ".." / "real" / "new"));
  EXPECT_TRUE(same_file(folder.path() / "real" / "new", folder.path() / "link" / "new"));
  EXPECT_TRUE(same_file(folder.path() / "real" / "new", folder.path() / "dangling"));
  EXPECT_FALSE(same_file(folder.path() / "new", folder.path() / "link" / "new"));
  EXPECT_FALSE(same_file(folder.path() / "a", folder.path() / "b"));
}

TEST(CopyOld, NumbersWhatIsKept) {
  const TemporaryFolder folder;
  const fs::path file = folder.write("t.json", "one");
  EXPECT_EQ(copy_old(file), file.string() + ".old");
  write_atomic(file, "two");
  EXPECT_EQ(copy_old(file), file.string() + ".old2");
  EXPECT_EQ(read_text(file.string() + ".old"), "one");
  EXPECT_EQ(read_text(file.string() + ".old2"), "two");
}
TEST(CopyOld, KeepsWhatALinkNames) {
  const TemporaryFolder folder;
  folder.write("target", "one");
  fs::create_symlink("target", folder.path() / "link");
  const fs::path kept = copy_old(folder.path() / "link");
  EXPECT_EQ(kept, folder.path() / "link.old");
  EXPECT_FALSE(fs::is_symlink(kept));
  EXPECT_EQ(read_text(kept), "one");
}

TEST(KeptFile, KeepsWhatOthersWroteAndReplacesItsOwn) {
  const TemporaryFolder folder;
  const fs::path path = folder.write("t.json", "before");
  KeptFile mine(path), theirs(path);
  EXPECT_EQ(mine.write("mine 1"), path.string() + ".old");
  EXPECT_EQ(mine.write("mine 2"), "");
  EXPECT_EQ(theirs.write("theirs"), path.string() + ".old2");
  EXPECT_EQ(mine.write("mine 3"), path.string() + ".old3");
  EXPECT_EQ(read_text(path.string() + ".old"), "before");
  EXPECT_EQ(read_text(path.string() + ".old2"), "mine 2");
  EXPECT_EQ(read_text(path.string() + ".old3"), "theirs");
  EXPECT_EQ(read_text(path), "mine 3");
  EXPECT_EQ(entries(folder.path()), 4u);
}
TEST(KeptFile, HasNothingToKeep) {
  const TemporaryFolder folder;
  EXPECT_EQ(KeptFile(folder.path() / "new").write("x"), "");
  EXPECT_EQ(KeptFile(folder.write("empty", "")).write("x"), "");
  EXPECT_EQ(KeptFile(folder.write("same", "x")).write("x"), "");
}

TEST(KeptFile, AFileThatIsTakenOverIsReplacedWithoutAnotherName) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "t.json";
  write_atomic(path, "before");
  KeptFile file(path);
  file.take_over();
  EXPECT_EQ(file.write("after"), "");
  EXPECT_EQ(read_text(path), "after");
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".old"));
  write_atomic(path, "another's");
  EXPECT_EQ(file.write("mine"), path.string() + ".old");
}

TEST(AppendFile, KeepsWhatIsThereAndEndsLines) {
  const TemporaryFolder folder;
  const fs::path path = folder.write("journal", "one\n");
  AppendFile file(path);
  file.append("two");
  EXPECT_EQ(read_text(path), "one\ntwo\n");  // on disk at once
  file.append("");
  EXPECT_EQ(read_text(path), "one\ntwo\n\n");
}
TEST(AppendFile, ReportsAFullDisk) {
  AppendFile file("/dev/full");
  const Caught error = error_of([&] { file.append("line"); });
  EXPECT_EQ(error.exit, Exit::machine);
  EXPECT_EQ(error.what, "/dev/full: cannot write: No space left on device");
  EXPECT_EQ(error.hint, "");  // how to go on is the command's to say
}
TEST(AppendFile, MovesItsFile) {
  const TemporaryFolder folder;
  AppendFile first(folder.path() / "x");
  AppendFile second(std::move(first));
  EXPECT_TRUE(second.is_open());
  AppendFile third;
  EXPECT_FALSE(third.is_open());
  third = std::move(second);
  third.append("line");
  EXPECT_EQ(read_text(folder.path() / "x"), "line\n");
}
TEST(AppendFile, KnowsWhetherItIsEmptyAndClears) {
  const TemporaryFolder folder;
  AppendFile file(folder.write("x", "before\n"));
  EXPECT_FALSE(file.empty());
  file.clear();
  EXPECT_TRUE(file.empty());
  file.append("after");
  EXPECT_EQ(read_text(folder.path() / "x"), "after\n");
  AppendFile device("/dev/null");
  device.append("x");
  EXPECT_TRUE(device.empty());
  EXPECT_EQ(error_of([&] { device.clear(); }).exit, Exit::yes);
}

TEST(AppendFile, RefusesAMissingFolder) {
  EXPECT_EQ(error_of([] { AppendFile("/nonexistent-folder/x"); }).what,
            "/nonexistent-folder/x: cannot be written: No such file or directory");
}

TEST(CacheFolder, FollowsTheEnvironment) {
  ::setenv("XDG_CACHE_HOME", "/somewhere", 1);
  EXPECT_EQ(cache_folder(), "/somewhere/moetune");
  ::setenv("XDG_CACHE_HOME", "", 1);
  ::setenv("HOME", "/home/someone", 1);
  EXPECT_EQ(cache_folder(), "/home/someone/.cache/moetune");
  ::unsetenv("HOME");
  EXPECT_EQ(cache_folder(), fs::temp_directory_path() / "moetune-cache");
}

}  // namespace
}  // namespace moetune
