#include "io/atomic_folder.h"

#include <csignal>

#include "tests/io/full_disk.h"
#include "tests/io/helpers.h"

using namespace dodona;
using namespace dodona::io;
using namespace dodona::io::testing;

using Names = std::vector<std::string>;

namespace {

constexpr std::size_t few = 2, too_many = 100'000;

void write_two(const TempFolder& folder, std::size_t files) {
  AtomicFolder made(folder.file("made"), files);
  made.add("a").write(as_bytes("one"));
  made.add("b").write(as_bytes("two"));
  made.commit();
}

}  // namespace

TEST(AtomicFolder, AppearsWholeOnCommit) {
  for (const std::size_t files : {few, too_many}) {
    const TempFolder folder;
    write_two(folder, files);
    EXPECT_EQ(folder.listing(), Names{"made"});
    EXPECT_EQ(read_raw(folder.file("made/a")), "one");
    EXPECT_EQ(read_raw(folder.file("made/b")), "two");
    expect_error([&] { write_two(folder, files); }, ErrorCode::bad_file, "exists already and is no empty folder");
  }
}

TEST(AtomicFolder, TakesThePlaceOfAnEmptyOne) {
  const TempFolder folder;
  std::filesystem::create_directory(folder.file("made"));
  write_two(folder, few);
  EXPECT_EQ(read_raw(folder.file("made/b")), "two");
}

TEST(AtomicFolder, NothingRemainsOfAProcessThatIsKilled) {
  const TempFolder folder;
  if (!AtomicFile::may_be_nameless(folder.path())) GTEST_SKIP() << "no files without a name here";
  EXPECT_EXIT(
      {
        AtomicFolder made(folder.file("made"), few);
        made.add("a").write(as_bytes("one"));
        made.add("b").write(as_bytes("tw"));
        ::raise(SIGKILL);
      },
      ::testing::KilledBySignal(SIGKILL), "");
  EXPECT_EQ(folder.listing(), Names{});
}

TEST(AtomicFolder, NothingRemainsWithoutCommit) {
  for (const std::size_t files : {few, too_many}) {
    const TempFolder folder;
    const FullDisk limit(1000);
    expect_error(
        [&] {
          AtomicFolder made(folder.file("made"), files);
          made.add("a").write(as_bytes("one"));
          made.add("b").write(Buffer(5000));
          made.commit();
        },
        ErrorCode::bad_file, "cannot write");
    EXPECT_EQ(folder.listing(), Names{});
  }
}
