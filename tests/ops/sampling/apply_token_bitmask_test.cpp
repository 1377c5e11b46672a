#include <gtest/gtest.h>

#include "dodona/error.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

TEST(ApplyTokenBitmask, BeyondTheRowsOfACudaGridNothingIsMaskedWhichIsAKnownDefect) {
  const NamedOp op{"apply_token_bitmask_inplace_cuda"};
  constexpr std::int64_t most = 65535;
  for (const std::int64_t rows : {most, most + 1}) {
    Arguments inputs;
    const Tensor bitmask(DType::i32, {rows, 1});
    for (std::int64_t i = 0; i < rows; ++i) bitmask.as<std::int32_t>()[i] = 1;  // the second token of two is forbidden
    inputs.set("logits", filled(DType::f32, {rows, 2}, 1.0));
    inputs.set("bitmask", bitmask);
    const bool launched = rows == most;
    EXPECT_EQ(oracle::judge(op.op(), inputs, {{"logits", filled(DType::f32, {rows, 2}, 1.0)}}, {}).outcome,
              launched ? oracle::Outcome::fail : oracle::Outcome::known_defect)
        << rows;
    if (launched) {
      const Tensor masked = op.outputs(inputs, in_mode(Mode::hopper)).at(0).second;
      EXPECT_EQ(quant::get(masked, 2 * rows - 2), 1.0);
      EXPECT_LT(quant::get(masked, 2 * rows - 1), -1e38);
    } else {
      EXPECT_THROW(op.outputs(inputs, in_mode(Mode::hopper)), Error);
    }
  }
}

}  // namespace
}  // namespace dodona
