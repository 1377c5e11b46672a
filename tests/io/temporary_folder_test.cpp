#include "io/temporary_folder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "helpers.h"

namespace dodona::io {
namespace {

namespace fs = std::filesystem;

TEST(TemporaryFolder, IsItsOwnersAloneAndGoesWithWhatIsInIt) {
  for (const auto place : {TemporaryFolder::Place::disk, TemporaryFolder::Place::memory}) {
    std::string path;
    {
      const TemporaryFolder one("dodona-test", place), other("dodona-test", place);
      path = one.path();
      EXPECT_NE(path, other.path());
      EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
      testing::write_raw(one.file("file"), "text");
      EXPECT_TRUE(fs::exists(path + "/file"));
    }
    EXPECT_FALSE(fs::exists(path));
  }
}

}  // namespace
}  // namespace dodona::io
