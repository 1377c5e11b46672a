#include "io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "tests/io/full_disk.h"
#include "tests/io/helpers.h"

using namespace dodona;
using namespace dodona::io;
using namespace dodona::io::testing;

using Names = std::vector<std::string>;

TEST(AtomicFile, AppearsWholeOnCommit) {
  const TempFolder folder;
  AtomicFile file(folder.file("a"));
  file.write(as_bytes("one "));
  file.write(as_bytes(""));
  file.write(as_bytes("two"));
  EXPECT_FALSE(std::filesystem::exists(folder.file("a")));
  file.commit();
  EXPECT_EQ(read_raw(folder.file("a")), "one two");
  EXPECT_EQ(folder.listing(), Names{"a"});
}

TEST(AtomicFile, NothingRemainsOfAProcessThatIsKilled) {
  const TempFolder folder;
  const int nameless = ::open(folder.path().c_str(), O_WRONLY | O_TMPFILE, 0600);
  if (nameless < 0) GTEST_SKIP() << "no files without a name here";
  ::close(nameless);
  write_raw(folder.file("a"), "old");
  EXPECT_EXIT(
      {
        AtomicFile file(folder.file("a"));
        file.write(as_bytes("half"));
        ::raise(SIGKILL);
      },
      ::testing::KilledBySignal(SIGKILL), "");
  EXPECT_EQ(folder.listing(), Names{"a"});
  EXPECT_EQ(read_raw(folder.file("a")), "old");
}

TEST(AtomicFile, NothingRemainsWithoutCommit) {
  const TempFolder folder;
  write_raw(folder.file("a"), "old");
  try {
    AtomicFile file(folder.file("a"));
    file.write(as_bytes("new"));
    throw std::runtime_error("on the way");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(folder.listing(), Names{"a"});
  EXPECT_EQ(read_raw(folder.file("a")), "old");
}

TEST(AtomicFile, NothingRemainsWhenTheDiskIsFull) {
  const TempFolder folder;
  write_raw(folder.file("a"), "old");
  {
    const FullDisk limit(1000);
    expect_error([&] { write_file(folder.file("a"), Buffer(5000)); }, ErrorCode::bad_file, folder.file("a") + ": cannot write");
  }
  EXPECT_EQ(folder.listing(), Names{"a"});
  EXPECT_EQ(read_raw(folder.file("a")), "old");
}

TEST(AtomicFile, TwoWritersOfOneTargetDoNotMeet) {
  const TempFolder folder;
  AtomicFile first(folder.file("a"));
  AtomicFile second(folder.file("a"));
  first.write(as_bytes("first"));
  second.write(as_bytes("second"));
  second.commit();
  first.commit();
  EXPECT_EQ(read_raw(folder.file("a")), "first");
  EXPECT_EQ(folder.listing(), Names{"a"});
}

TEST(AtomicFile, PermissionsOfTheOldFileArePassedOn) {
  const TempFolder folder;
  write_raw(folder.file("a"), "old");
  ASSERT_EQ(::chmod(folder.file("a").c_str(), 0640), 0);
  write_file(folder.file("a"), as_bytes("new"));
  struct stat status {};
  ASSERT_EQ(::stat(folder.file("a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0640u);
}

TEST(AtomicFile, TargetsAsLongAsTheFileSystemAllows) {
  const TempFolder folder;
  const std::string name(255, 'n');
  write_file(folder.file(name), as_bytes("x"));
  EXPECT_EQ(folder.listing(), Names{name});
}

TEST(AtomicFile, RefusesWhatCannotBeReplaced) {
  const TempFolder folder;
  const auto fails = [](const std::string& path, const std::string& part) {
    expect_error([&] { write_file(path, as_bytes("x")); }, ErrorCode::bad_file, part);
  };
  fails(folder.path(), folder.path() + ": cannot write: this is a directory");
  fails(folder.file("none/a"), "No such file or directory");
  fails(folder.path() + "/", "not the name of a file");
  fails("", "not the name of a file");
  EXPECT_EQ(folder.listing(), Names{});
}

// What goes for devices, tried on something whose loss would hurt nobody.
TEST(AtomicFile, WhatIsNoRegularFileIsNotReplaced) {
  const TempFolder folder;
  const std::string path = folder.file("fifo");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_error([&] { write_file(path, as_bytes("x")); }, ErrorCode::bad_file, path + ": cannot write: no regular file");
  EXPECT_TRUE(std::filesystem::is_fifo(path));
  EXPECT_EQ(folder.listing(), Names{"fifo"});
}

TEST(AtomicFile, IsOverAfterCommit) {
  const TempFolder folder;
  AtomicFile file(folder.file("a"));
  file.commit();
  expect_error([&] { file.write(as_bytes("x")); }, ErrorCode::bad_file, "after it was finished");
  expect_error([&] { file.commit(); }, ErrorCode::bad_file, "finished twice");
}
