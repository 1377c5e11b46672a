#include "ops/attention/cutlass_mla_get_workspace_size.h"

#include <gtest/gtest.h>

#include <string>

#include "dodona/error.h"
#include "tests/errors.h"

namespace dodona {
namespace {

std::int64_t bytes(std::int64_t max_seq_len, std::int64_t num_batches, std::int64_t sm_count, std::int64_t num_kv_splits) {
  return *ops::run(ops::CutlassMlaGetWorkspaceSize{max_seq_len, num_batches, sm_count, num_kv_splits, {}}, {}).out.as<std::int64_t>();
}

TEST(CutlassMlaGetWorkspaceSize, OneSplitTakesAPartialOutputAndALogSumExpFor128Heads) {
  EXPECT_EQ(bytes(4096, 1, 0, 1), 262656);
  EXPECT_EQ(bytes(1, 7, 0, 3), 262656 * 7 * 3);
}

TEST(CutlassMlaGetWorkspaceSize, AutomaticSplitsShareTheMultiprocessorsAmongRequests) {
  EXPECT_EQ(bytes(4096, 8, 148, -1), 33619968);
  EXPECT_EQ(bytes(4096, 8, 0, 0), 33619968) << "a B200's multiprocessors are the default";
  EXPECT_EQ(bytes(4096, 1000, 148, 0), 262656 * 1000) << "more requests than multiprocessors: one split each";
}

TEST(CutlassMlaGetWorkspaceSize, MoreRequestsNeverTakeLessForAGivenNumberOfSplits) {
  for (std::int64_t batches = 1; batches < 40; ++batches) EXPECT_LT(bytes(4096, batches, 148, 4), bytes(4096, batches + 1, 148, 4));
}

TEST(CutlassMlaGetWorkspaceSize, SizesBeyond64BitsAndEmptyCallsAreErrors) {
  EXPECT_THROW(bytes(4096, 0, 0, 1), Error);
  EXPECT_THROW(bytes(0, 1, 0, 1), Error);
  const Error error = helpers::error_from([&] { bytes(1, 2147483647, 0, 2147483647); });
  EXPECT_NE(std::string(error.what()).find("num_kv_splits is 2147483647, expected at most"), std::string::npos) << error.what();
}

}  // namespace
}  // namespace dodona
