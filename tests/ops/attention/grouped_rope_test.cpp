// MLA decode that rotates queries and the last key on the way.
#include <gtest/gtest.h>

#include <algorithm>

#include "dodona/error.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

const NamedOp op{"decode_attention_fwd_grouped_rope"};

Arguments call_of(const std::string& more) {
  return op.case_of("B=2 N=20 S=150 n=130 P=50 --attr sm_scale=0.0721687836 " + more);
}

TEST(GroupedRope, EveryFormIsWithinTheBudgetInEveryMode) {
  for (const char* neox : {"true", "false"})
    for (const char* type : {"bf16", "f16"})
      for (const char* splits : {"1", "5", "16"}) {
        const Arguments a = call_of(std::string("--attr use_rope=true --attr is_neox_style=") + neox + " --dtype q=" + type +
                                    " --attr num_kv_splits=" + splits);
        for (const Mode mode : {Mode::fast, Mode::hopper})
          EXPECT_EQ(op.failing(a, op.outputs(a, in_mode(mode))), 0) << name(mode) << neox << type;
      }
}

TEST(GroupedRope, IsDecodeOverTheRotatedQueriesAndLastKeys) {
  Arguments a = call_of("--attr use_rope=true");
  // No slot twice: another token in the last one's place would be rotated too.
  Tensor slots(DType::i32, {130});
  for (std::int32_t i = 0; i < 130; ++i) slots.as<std::int32_t>()[i] = i * 7 % 150;
  a.set("kv_indices", slots);
  const auto rotated = op.outputs(a, in_mode(Mode::golden));
  // The last keys are put into the pool, rotated, and the queries are rotated by the op for it: nothing is left to rotate.
  const NamedOp rotate{"rotary_embedding"};
  Arguments plain = call_of("--without cos_sin_cache --without positions");
  Tensor q = a.find("q")->clone(), pool = a.find("k_buffer")->clone();
  const auto* const ends = a.find("kv_indptr")->as<const std::int32_t>();
  for (std::int64_t b = 0; b < 2; ++b) {
    const std::int32_t slot = a.find("kv_indices")->as<const std::int32_t>()[ends[b + 1] - 1];
    for (std::int64_t i = 0; i < 64; ++i) quant::set(pool, slot * 576 + 512 + i, quant::get(rotated[1].second, b * 64 + i));
    Arguments r;
    Tensor parts(DType::bf16, {20, 64}), positions(DType::i64, {20});
    for (std::int64_t h = 0; h < 20; ++h) {
      positions.as<std::int64_t>()[h] = static_cast<std::int64_t>(quant::get(*a.find("positions"), b));
      for (std::int64_t i = 0; i < 64; ++i) quant::set(parts, h * 64 + i, quant::get(q, (b * 20 + h) * 576 + 512 + i));
    }
    r.set("query", parts);
    r.set("positions", positions);
    r.set("cos_sin_cache", *a.find("cos_sin_cache"));
    r.set_attr("head_size", std::int64_t{64});
    r.set_attr("is_neox", false);
    const Tensor turned = rotate.outputs(r, in_mode(Mode::golden)).front().second;
    for (std::int64_t i = 0; i < 20 * 64; ++i) quant::set(q, (b * 20 + i / 64) * 576 + 512 + i % 64, quant::get(turned, i));
  }
  plain.set("q", q);
  plain.set("k_buffer", pool);
  for (const char* name : {"v_buffer", "kv_indptr", "kv_indices"}) plain.set(name, *a.find(name));
  auto outputs = op.outputs(plain, in_mode(Mode::golden));
  outputs.push_back(rotated[1]);
  EXPECT_EQ(op.failing(a, outputs), 0);
}

TEST(GroupedRope, ThePoolStaysAsItIs) {
  const Arguments a = call_of("--attr use_rope=true");
  const Tensor before = a.find("k_buffer")->clone();
  for (const Mode mode : all_modes) {
    op.outputs(a, in_mode(mode));
    EXPECT_TRUE(same_bits(before, *a.find("k_buffer"))) << name(mode);
  }
}

TEST(GroupedRope, PositionZeroRotatesNothing) {
  Arguments a = call_of("--attr use_rope=true");
  Tensor positions(DType::i64, {2});
  positions.as<std::int64_t>()[0] = positions.as<std::int64_t>()[1] = 0;
  a.set("positions", positions);
  Arguments plain = call_of("--without cos_sin_cache --without positions");
  for (const char* name : {"q", "k_buffer", "v_buffer", "kv_indptr", "kv_indices"}) plain.set(name, *a.find(name));
  for (const Mode mode : all_modes)
    EXPECT_TRUE(same_bits(op.outputs(a, in_mode(mode)).front().second, op.outputs(plain, in_mode(mode)).front().second)) << name(mode);
}

TEST(GroupedRope, ATableIsAskedForWithUseRope) {
  Arguments plain = call_of("--without cos_sin_cache --without positions");
  plain.set_attr("use_rope", true);
  const Error error = error_from([&] { op.outputs(plain, in_mode(Mode::fast)); });
  EXPECT_NE(std::string(error.what()).find("cos_sin_cache is missing, expected it with use_rope"), std::string::npos) << error.what();
}

}  // namespace
}  // namespace dodona
