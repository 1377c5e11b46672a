// A mapped file that is cut short under its reader.
#include "io/lost_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "io/mapped_file.h"
#include "tests/temp_folder.h"

namespace dodona::io {
namespace {

TEST(LostFilesDeathTest, ReadingPastTheNewEndNamesTheFileAndExitsWithTwo) {
  const helpers::TempFolder folder;
  const std::string path = folder.write("weights", std::string(1 << 20, 'x'));
  EXPECT_EXIT(
      {
        report_lost_files();
        const MappedFile file = MappedFile::open(path);
        if (::truncate(path.c_str(), 4096) != 0) ::_exit(3);
        const volatile std::byte lost = file.bytes()[1 << 19];
        ::_exit(lost == std::byte{} ? 4 : 5);
      },
      ::testing::ExitedWithCode(2), "dodona: .*/weights: was cut short");
}

}  // namespace
}  // namespace dodona::io
