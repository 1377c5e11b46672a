// What the fuzzer starts from, and every input that once broke something, in every build: the target must return.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/fuzz/target.h"
#include "tests/temp_folder.h"

namespace dodona::fuzz {
namespace {

class Replay : public ::testing::TestWithParam<Target> {};

TEST_P(Replay, SeedsAndFormerFindingsAreAnswered) {
  int inputs = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(DODONA_SOURCE_DIR "/tests/fuzz/seeds/") + std::string(GetParam().name))) {
    SCOPED_TRACE(entry.path().filename().string());
    const std::string content = helpers::read_raw(entry.path());
    GetParam().run(std::as_bytes(std::span<const char>(content)));
    ++inputs;
  }
  EXPECT_GT(inputs, 0);
  GetParam().run({});
}

INSTANTIATE_TEST_SUITE_P(Targets, Replay, ::testing::ValuesIn(targets().begin(), targets().end()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace dodona::fuzz
