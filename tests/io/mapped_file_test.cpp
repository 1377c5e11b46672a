#include "io/mapped_file.h"

#include <sys/stat.h>

#include "io/atomic_file.h"
#include "tests/io/helpers.h"

using namespace dodona;
using namespace dodona::io;
using namespace dodona::io::testing;

class BothAccesses : public ::testing::TestWithParam<Access> {
 protected:
  TempFolder folder;
  void fails(const std::string& path, const std::string& part) {
    expect_error([&] { MappedFile::open(path, GetParam()); }, ErrorCode::bad_file, path + ": " + part);
  }
};
INSTANTIATE_TEST_SUITE_P(MappedFile, BothAccesses, ::testing::Values(Access::map, Access::read));

TEST_P(BothAccesses, GivesTheBytesOfTheFile) {
  const std::string path = folder.file("a");
  const std::string text = std::string("first\0second", 12) + std::string(100'000, 'x');
  write_raw(path, text);
  const MappedFile file = MappedFile::open(path, GetParam());
  EXPECT_EQ(as_text(file.bytes()), text);
  EXPECT_EQ(file.path(), path);
  EXPECT_EQ(file.mapped(), GetParam() == Access::map);
}

TEST_P(BothAccesses, EmptyFilesAreEmpty) {
  write_raw(folder.file("a"), "");
  EXPECT_TRUE(MappedFile::open(folder.file("a"), GetParam()).bytes().empty());
}

TEST_P(BothAccesses, MovingKeepsTheAddress) {
  write_raw(folder.file("a"), "abc");
  write_raw(folder.file("b"), "other");
  MappedFile file = MappedFile::open(folder.file("a"), GetParam());
  const std::byte* address = file.bytes().data();
  MappedFile moved(std::move(file));
  EXPECT_EQ(moved.bytes().data(), address);
  MappedFile target = MappedFile::open(folder.file("b"), GetParam());
  target = std::move(moved);
  EXPECT_EQ(target.bytes().data(), address);
  EXPECT_EQ(as_text(target.bytes()), "abc");
}

TEST_P(BothAccesses, SymbolicLinksAreFollowed) {
  write_raw(folder.file("a"), "abc");
  std::filesystem::create_symlink(folder.file("a"), folder.file("link"));
  EXPECT_EQ(as_text(MappedFile::open(folder.file("link"), GetParam()).bytes()), "abc");
}

TEST_P(BothAccesses, MissingFile) {
  fails(folder.file("none"), "cannot open: No such file or directory");
}
TEST_P(BothAccesses, Directory) {
  fails(folder.path(), "expected a regular file, this is a directory");
}
TEST_P(BothAccesses, Device) {
  fails("/dev/null", "expected a regular file, this is a device");
}
TEST_P(BothAccesses, FifoIsRefusedWithoutWaitingForAWriter) {
  ASSERT_EQ(::mkfifo(folder.file("fifo").c_str(), 0600), 0);
  fails(folder.file("fifo"), "expected a regular file, this is a FIFO");
}
TEST_P(BothAccesses, PathWithANulByteIsNoOtherFile) {
  write_raw(folder.file("a"), "abc");
  expect_error([&] { MappedFile::open(folder.file("a") + std::string("\0x", 2), GetParam()); }, ErrorCode::bad_file, "NUL byte");
}

TEST(MappedFile, KeepsTheOldBytesWhenTheFileIsReplaced) {
  const TempFolder folder;
  write_raw(folder.file("a"), "old bytes");
  const MappedFile file = MappedFile::open(folder.file("a"));
  write_file(folder.file("a"), as_bytes("new"));
  EXPECT_EQ(as_text(file.bytes()), "old bytes");
  EXPECT_EQ(read_raw(folder.file("a")), "new");
}

TEST(LfsPointer, IsRecognizedByItsFirstLine) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n";
  EXPECT_TRUE(is_lfs_pointer(as_bytes(pointer)));
  EXPECT_FALSE(is_lfs_pointer(as_bytes("version 2")));
  EXPECT_FALSE(is_lfs_pointer(as_bytes("")));
  EXPECT_FALSE(is_lfs_pointer(as_bytes(pointer + std::string(2000, 'x'))));
}
