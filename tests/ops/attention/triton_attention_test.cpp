// sglang's Triton attention kernels: decode by slots, prefill without a prefix.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "dodona/error.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"
#include "tests/ops/ints.h"

namespace dodona {
namespace {

using namespace helpers;

Tensor converted(const Tensor& t, DType type) {
  return tensor_of(type, t.shape(), values_of(t));
}

struct Decode {
  Tensor q, k, v;
  std::vector<std::int32_t> ends, slots, splits;

  Arguments arguments() const {
    Arguments a;
    a.set("q", q);
    a.set("k_buffer", k);
    a.set("v_buffer", v);
    a.set("kv_indptr", ints(ends));
    a.set("kv_indices", ints(slots));
    a.set("num_kv_splits", ints(splits));
    a.set_attr("v_head_dim", v.size(2));
    a.set_attr("sm_scale", 0.07);
    return a;
  }
  Tensor run(Mode mode) const { return NamedOp{"decode_attention_fwd"}.outputs(arguments(), in_mode(mode)).front().second; }
  std::int64_t failing(const Tensor& o) const { return NamedOp{"decode_attention_fwd"}.failing(arguments(), {{"o", o}}); }
};

Decode decode(DType type, std::int64_t heads, std::int64_t key_heads, std::int32_t keys, std::int32_t splits) {
  Decode d{normal(type, {2, heads, 192}, "q"),
           normal(type, {keys + 5, key_heads, 192}, "k"),
           normal(type, {keys + 5, key_heads, 128}, "v"),
           {0, keys - 1, keys},
           {},
           {splits, 1}};
  for (std::int32_t i = 0; i < keys; ++i) d.slots.push_back((i * 7 + 3) % (keys + 5));
  return d;
}

TEST(TritonDecode, EverySplitIsWithinTheBudget) {
  for (const DType type : {DType::bf16, DType::f16})
    for (const auto& [heads, key_heads] : {std::pair(4, 4), {4, 1}, {32, 1}})
      for (const std::int32_t splits : {1, 3, 8}) {
        const Decode d = decode(type, heads, key_heads, 180, splits);
        EXPECT_EQ(d.failing(d.run(Mode::hopper)), 0) << heads << " heads over " << key_heads << ", " << splits << " splits";
        EXPECT_EQ(d.failing(d.run(Mode::fast)), 0);
      }
}

TEST(TritonDecode, SplitsShowInTheBitsOfHopperModeAlone) {
  const Decode one = decode(DType::bf16, 16, 1, 180, 1), many = decode(DType::bf16, 16, 1, 180, 6);
  EXPECT_FALSE(same_bits(one.run(Mode::hopper), many.run(Mode::hopper)));
  for (const Mode mode : {Mode::golden, Mode::fast}) EXPECT_TRUE(same_bits(one.run(mode), many.run(mode)));
}

TEST(TritonDecode, PoolsOfE4m3AndSinksAreWithinTheBudgetInEveryMode) {
  for (const DType type : {DType::bf16, DType::f16})
    for (const auto& [heads, key_heads] : {std::pair(4, 4), {4, 1}, {32, 1}})
      for (const bool sunk : {false, true}) {
        Decode d = decode(type, heads, key_heads, 180, 3);
        d.k = converted(d.k, DType::f8_e4m3), d.v = converted(d.v, DType::f8_e4m3);
        Arguments a = d.arguments();
        if (sunk) a.set("sinks", normal(DType::bf16, {heads}, "sinks"));
        const NamedOp op{"decode_attention_fwd"};
        for (const Mode mode : {Mode::hopper, Mode::fast})
          EXPECT_EQ(op.failing(a, op.outputs(a, in_mode(mode))), 0) << name(mode) << heads << " heads over " << key_heads;
      }
}

TEST(TritonDecode, SlotsThatAreNotNamedHaveNoEffect) {
  const Decode clean = decode(DType::bf16, 4, 2, 40, 1);
  Decode poisoned = clean;
  poisoned.k = clean.k.clone(), poisoned.v = clean.v.clone();
  for (std::int64_t slot = 0; slot < 45; ++slot)
    if (std::find(clean.slots.begin(), clean.slots.end(), slot) == clean.slots.end())
      for (std::int64_t d = 0; d < 2 * 128; ++d) {
        quant::set(poisoned.k, slot * 384 + d, std::numeric_limits<double>::quiet_NaN());
        quant::set(poisoned.v, slot * 256 + d, infinity);
      }
  for (const Mode mode : all_modes) EXPECT_TRUE(same_bits(clean.run(mode), poisoned.run(mode))) << name(mode);
}

/// So many slots, all of them in the memory of one: nothing could hold a copy of them.
Tensor repeated(const Tensor& slot, std::int64_t slots) {
  return Tensor(static_cast<const void*>(slot.data()), slot.dtype(), {slots, slot.size(1), slot.size(2)}, {0, slot.stride(1), 1});
}

TEST(TritonDecode, OfHeadsOfOddWidthsOnlySlotsThatAreNamedAreCopied) {
  const Tensor k = normal(DType::bf16, {1, 2, 40}, "k"), v = normal(DType::bf16, {1, 2, 24}, "v");
  Decode few{normal(DType::bf16, {2, 4, 40}, "q"), k, v, {0, 3, 5}, {0, 0, 0, 0, 0}, {1, 1}}, many = few;
  many.k = repeated(k, std::int64_t{1} << 40), many.v = repeated(v, std::int64_t{1} << 40);
  many.slots = {7, 1 << 30, 7, 0, 99};
  for (const Mode mode : all_modes) EXPECT_TRUE(same_bits(few.run(mode), many.run(mode))) << name(mode);
}

TEST(TritonDecode, GroupsThatUpstreamReadsWronglyAndFallingOffsetsAreRefused) {
  const Decode odd = decode(DType::bf16, 20, 1, 10, 1);
  EXPECT_FALSE(registry()
                   .at("decode_attention_fwd")
                   .supports(oracle::runnable(registry().at("decode_attention_fwd"), odd.arguments()), Mode::hopper));
  Decode falling = decode(DType::bf16, 4, 1, 10, 1);
  falling.ends = {0, 5, 3};
  const Error error = error_from([&] { falling.run(Mode::fast); });
  EXPECT_NE(std::string(error.what()).find("kv_indptr holds 3 at element 2"), std::string::npos) << error.what();
}

TEST(TritonDecode, SingleHeadsWhoseQueriesLieAtOddStridesHaveAHopperModeOfFewWidths) {
  const Op& op = registry().at("decode_attention_fwd");
  for (const std::int64_t width : {64, 96, 128, 192, 256}) {
    const Tensor wide = normal(DType::bf16, {2, 4, width + 4}, "q"), k = normal(DType::bf16, {15, 4, width}, "k");
    for (const bool odd : {false, true}) {
      const Tensor q = odd ? wide.slice(2, 0, width) : normal(DType::bf16, {2, 4, width}, "q");
      const Decode d{q, k, normal(DType::bf16, {15, 4, 64}, "v"), {0, 3, 5}, {0, 4, 8, 1, 2}, {1, 1}};
      EXPECT_EQ(op.supports(oracle::runnable(op, d.arguments()), Mode::hopper), !odd || width == 128 || width == 256) << width;
    }
  }
}

Arguments prefill(DType type, const std::vector<std::int32_t>& lengths, bool causal, std::int64_t width = 64) {
  std::vector<std::int32_t> starts;
  std::int32_t tokens = 0;
  for (const std::int32_t n : lengths) starts.push_back(tokens), tokens += n;
  Arguments a;
  a.set("q", normal(type, {tokens, 4, width}, "q"));
  a.set("k", normal(type, {tokens, 2, width}, "k"));
  a.set("v", normal(type, {tokens, 2, width}, "v"));
  a.set("b_start_loc", ints(starts));
  a.set("b_seq_len", ints(lengths));
  a.set_attr("is_causal", causal);
  return a;
}

TEST(TritonContext, BlocksOfRowsAndKeysAreWithinTheBudget) {
  const NamedOp op{"context_attention_fwd"};
  for (const DType type : {DType::bf16, DType::f16})
    for (const bool causal : {false, true}) {
      const Arguments a = prefill(type, {129, 0, 1, 64}, causal);
      for (const Mode mode : {Mode::hopper, Mode::fast}) EXPECT_EQ(op.failing(a, op.outputs(a, in_mode(mode))), 0) << name(mode) << causal;
    }
}

TEST(TritonContext, ARequestAloneHasTheBitsOfTheRequestAmongOthers) {
  const NamedOp op{"context_attention_fwd"};
  const Arguments all = prefill(DType::bf16, {70, 140}, true);
  Arguments one = all;
  for (const char* name : {"q", "k", "v"}) one.set(name, all.find(name)->slice(0, 70, 210));
  one.set("b_start_loc", ints({0}));
  one.set("b_seq_len", ints({140}));
  for (const Mode mode : all_modes)
    EXPECT_TRUE(same_bits(op.outputs(one, in_mode(mode)).front().second, op.outputs(all, in_mode(mode)).front().second.slice(0, 70, 210)))
        << name(mode);
}

TEST(TritonContext, StartsThatLeaveGapsAreErrors) {
  Arguments a = prefill(DType::bf16, {3, 4}, true);
  a.set("b_start_loc", ints({0, 4}));
  const Error error = error_from([&] { NamedOp{"context_attention_fwd"}.outputs(a, in_mode(Mode::fast)); });
  EXPECT_NE(std::string(error.what()).find("b_start_loc holds 4, expected 3, the running sum of b_seq_len"), std::string::npos)
      << error.what();
}

}  // namespace
}  // namespace dodona
