#include "oracle/judge/verify.h"

#include <gtest/gtest.h>

namespace dodona {
namespace {

bool judged(const std::string& recording, Mode mode) {
  const auto results = oracle::verify_file(std::string(DODONA_SOURCE_DIR "/tests/golden/") + recording, {mode}, {});
  EXPECT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].error, "");
  return results[0].verdict.has_value();
}

TEST(Verify, AFormulaSpeaksForAGpuWhereNothingIsOpen) {
  EXPECT_TRUE(judged("all_reduce/f01_bf16_r8_one_stage.safetensors", Mode::hopper));
  EXPECT_FALSE(judged("cutlass_fused_moe/f02_fp8_t5.safetensors", Mode::hopper));
  EXPECT_TRUE(judged("cutlass_fused_moe/f02_fp8_t5.safetensors", Mode::golden));
  EXPECT_TRUE(judged("cutlass_fused_moe/h100_fp8_t5.safetensors", Mode::hopper));
}

}  // namespace
}  // namespace dodona
