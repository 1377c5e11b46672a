// Rules of the MLA decode ops beyond what the sweeps hold them to.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "dodona/error.h"
#include "ops/attention/cutlass_mla_decode.h"
#include "ops/attention/trtllm_batch_decode_with_kv_cache_mla.h"
#include "oracle/cases/generate.h"
#include "oracle/judge/judge.h"
#include "quant/element.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"
#include "tests/ops/ints.h"

namespace dodona {
namespace {

using helpers::in_mode, helpers::ints, helpers::same_bits;

constexpr double r1_scale = 0.1352337788608801;

Tensor normal(DType type, const Dims& shape, const char* name, double factor = 1) {
  Tensor t(type, shape);
  oracle::fill(t, Role::values, 0, "normal", 7, name);
  if (factor != 1)
    for (std::int64_t i = 0; i < t.elements(); ++i) quant::set(t, i, factor * quant::get(t, i));
  return t;
}

struct Case {
  Tensor q_nope, q_pe, cache, lengths, table;
  double scale = r1_scale;
};
/// Lengths in pages of 64; request b owns pages b*W, b*W + 1...
Case make_case(DType type, std::int64_t heads, std::initializer_list<std::int32_t> lengths, double query_factor = 1) {
  const auto requests = static_cast<std::int64_t>(lengths.size());
  const std::int64_t width = (*std::max_element(lengths.begin(), lengths.end()) + 127) / 128 * 2;
  Case c{normal(type, {requests, heads, 512}, "q_nope", query_factor), normal(type, {requests, heads, 64}, "q_pe", query_factor),
         normal(type, {requests * width, 64, 576}, "cache"), ints({requests}, lengths), Tensor(DType::i32, {requests, width})};
  std::iota(c.table.as<std::int32_t>(), c.table.as<std::int32_t>() + requests * width, 0);
  return c;
}

Tensor run(const Case& c, const Exec& exec) {
  return ops::run(ops::CutlassMlaDecode{.q_nope = c.q_nope,
                                        .q_pe = c.q_pe,
                                        .kv_c_and_k_pe_cache = c.cache,
                                        .seq_lens = c.lengths,
                                        .page_table = c.table,
                                        .workspace = {},
                                        .out = {},
                                        .sm_scale = c.scale},
                  exec)
      .out;
}

oracle::Verdict judged(const Case& c, const Tensor& out) {
  Arguments inputs;
  inputs.set("q_nope", c.q_nope);
  inputs.set("q_pe", c.q_pe);
  inputs.set("kv_c_and_k_pe_cache", c.cache);
  inputs.set("seq_lens", c.lengths);
  inputs.set("page_table", c.table);
  inputs.set_attr("sm_scale", c.scale);
  return oracle::judge(registry().at("cutlass_mla_decode"), inputs, {{"out", out}}, {});
}

std::string error_of(const Case& c) {
  return helpers::message_in([&] { run(c, in_mode(Mode::fast)); });
}

constexpr Mode both_modes[] = {Mode::golden, Mode::fast};

TEST(MlaDecode, ASequenceOfOneTokenReturnsItsLatent) {
  for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
    const Case c = make_case(type, 3, {1});
    for (const Mode mode : both_modes) {
      const Tensor out = run(c, in_mode(mode));
      for (std::int64_t i = 0; i < 3 * 512; ++i) ASSERT_EQ(quant::get(out, i), quant::get(c.cache, i % 512)) << name(type);
    }
  }
}

TEST(MlaDecode, EqualKeysAreAveraged) {
  // All scores are equal, so the output is the mean of the latents: with elements of the row 0..511 constant but for one.
  Case c = make_case(DType::f32, 2, {4});
  for (std::int64_t i = 0; i < c.q_nope.elements(); ++i) quant::set(c.q_nope, i, 0);
  for (std::int64_t i = 0; i < c.q_pe.elements(); ++i) quant::set(c.q_pe, i, 0);
  for (const Mode mode : both_modes) {
    const Tensor out = run(c, in_mode(mode));
    for (std::int64_t i = 0; i < 512; ++i) {
      double mean = 0;
      for (std::int64_t j = 0; j < 4; ++j) mean += quant::get(c.cache, j * 576 + i) / 4;
      ASSERT_NEAR(quant::get(out, i), mean, 1e-6);
    }
  }
}

TEST(MlaDecode, ABatchEqualsItsRequestsAlone) {
  const Case c = make_case(DType::bf16, 5, {100, 1, 1100, 128});
  for (const Mode mode : both_modes) {
    const Tensor batch = run(c, in_mode(mode, 2));
    for (std::int64_t b = 0; b < 4; ++b) {
      Case one = c;
      one.q_nope = c.q_nope.slice(0, b, b + 1);
      one.q_pe = c.q_pe.slice(0, b, b + 1);
      one.lengths = c.lengths.slice(0, b, b + 1);
      one.table = c.table.slice(0, b, b + 1);
      EXPECT_TRUE(same_bits(run(one, in_mode(mode)), batch.slice(0, b, b + 1))) << name(mode) << " request " << b;
    }
  }
}

TEST(MlaDecode, AHeadAloneHasTheBitsOfTheHeadAmongOthers) {
  const Case c = make_case(DType::bf16, 70, {300});
  const Tensor all = run(c, in_mode(Mode::fast));
  for (const std::int64_t h : {0, 15, 16, 63, 64, 69}) {
    Case one = c;
    one.q_nope = c.q_nope.slice(1, h, h + 1);
    one.q_pe = c.q_pe.slice(1, h, h + 1);
    EXPECT_TRUE(same_bits(run(one, in_mode(Mode::fast)), all.slice(1, h, h + 1))) << "head " << h;
  }
}

TEST(MlaDecode, ThreadsDoNotChangeBits) {
  // More threads cut heads into smaller blocks; 2100 keys make three splits.
  const Case c = make_case(DType::bf16, 40, {2100});
  const Tensor one = run(c, in_mode(Mode::fast, 1));
  for (const int threads : {2, 5, 16}) EXPECT_TRUE(same_bits(one, run(c, in_mode(Mode::fast, threads)))) << threads << " threads";
}

TEST(MlaDecode, TiersDoNotChangeBits) {
  // 1100 keys make two splits.
  for (const auto& [type, heads, keys] :
       {std::tuple(DType::bf16, 2, 1100), std::tuple(DType::f16, 50, 40), std::tuple(DType::f32, 3, 130)}) {
    const Case c = make_case(type, heads, {keys});
    const Tensor expected = run(c, in_mode(Mode::fast));
    for (const Isa isa : available_isas()) {
      Exec exec = in_mode(Mode::fast);
      exec.isa = isa;
      EXPECT_TRUE(same_bits(expected, run(c, exec))) << name(type) << " on " << name(isa);
    }
  }
}

TEST(MlaDecode, ShuffledPagesChangeNothing) {
  const Case c = make_case(DType::f16, 3, {200, 130});
  Case shuffled = c;
  shuffled.cache = Tensor(DType::f16, c.cache.shape());
  shuffled.table = c.table.clone();
  const std::int64_t pages = c.cache.size(0);
  for (std::int64_t page = 0; page < pages; ++page) {
    const std::int64_t to = (page * 3 + 1) % pages;  // 8 pages: 3 is coprime
    copy(c.cache.slice(0, page, page + 1), shuffled.cache.slice(0, to, to + 1));
    shuffled.table.as<std::int32_t>()[page] = static_cast<std::int32_t>(to);
  }
  for (const Mode mode : both_modes) EXPECT_TRUE(same_bits(run(c, in_mode(mode)), run(shuffled, in_mode(mode))));
}

TEST(MlaDecode, WhatLiesBeyondASequenceIsIgnored) {
  const Case c = make_case(DType::bf16, 2, {70});
  Case poisoned = c;
  poisoned.cache = c.cache.clone();
  for (std::int64_t i = 70 * 576; i < c.cache.elements(); ++i) quant::set(poisoned.cache, i, std::numeric_limits<double>::quiet_NaN());
  // The table's entries beyond the second page are not looked at either.
  Case wider = poisoned;
  wider.table = ints({1, 4}, {0, 1, -1, 99});
  for (const Mode mode : both_modes) {
    EXPECT_TRUE(same_bits(run(c, in_mode(mode)), run(poisoned, in_mode(mode))));
    EXPECT_TRUE(same_bits(run(c, in_mode(mode)), run(wider, in_mode(mode))));
  }
}

TEST(MlaDecode, StridedQueriesGiveTheBitsOfContiguousOnes) {
  Case c = make_case(DType::bf16, 6, {90, 33});
  const Tensor wide = normal(DType::bf16, {6, 2, 600}, "wide"), heads = wide.transpose(0, 1);
  c.q_nope = heads.slice(2, 0, 512);
  c.q_pe = heads.slice(2, 530, 594);
  Case dense = c;
  dense.q_nope = c.q_nope.clone();
  dense.q_pe = c.q_pe.clone();
  for (const Mode mode : both_modes) EXPECT_TRUE(same_bits(run(c, in_mode(mode)), run(dense, in_mode(mode))));
}

TEST(MlaDecode, FastIsWithinTheBudgetOverBlocksAndSplits) {
  for (const std::int32_t length : {127, 128, 129, 1023, 1025})
    for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
      const Case c = make_case(type, 2, {length});
      EXPECT_EQ(judged(c, run(c, in_mode(Mode::fast))).outcome, oracle::Outcome::pass) << length << " keys of " << name(type);
    }
}

TEST(MlaDecode, TheWholeRoundingOfAWeightIsWithinTheBudget) {
  // With two keys nothing averages: where their latents nearly cancel, all that is left is what the rounding of one weight moved.
  for (const DType type : {DType::bf16, DType::f16}) {
    const Case c = make_case(type, 128, {2, 2, 2, 2}, 0.3);
    EXPECT_EQ(judged(c, run(c, in_mode(Mode::fast))).failing(), 0) << name(type);
  }
}

TEST(MlaDecode, LargeQueriesPickOneKeyWithinTheBudget) {
  const Case c = make_case(DType::bf16, 3, {500}, 100);
  EXPECT_EQ(judged(c, run(c, in_mode(Mode::fast))).outcome, oracle::Outcome::pass);
}

TEST(MlaDecode, WeightsOfF32CachesAreNotRounded) {
  // Rounding them to bf16 would move outputs by some 1e-3; sums of 576 products and 300 weights in fp32 move them by some 1e-6.
  const Case c = make_case(DType::f32, 4, {300});
  const Tensor fast = run(c, in_mode(Mode::fast)), golden = run(c, in_mode(Mode::golden));
  for (std::int64_t i = 0; i < fast.elements(); ++i) ASSERT_NEAR(quant::get(fast, i), quant::get(golden, i), 2e-5);
}

// ---- mistakes that the judge must tell

TEST(MlaDecode, TheScaleOf576IsCaught) {
  Case c = make_case(DType::bf16, 4, {200});
  Case wrong = c;
  wrong.scale = 1 / std::sqrt(576.0);
  EXPECT_GT(judged(c, run(wrong, in_mode(Mode::golden))).failing(), 1000);
}

TEST(MlaDecode, AForgottenRopePartIsCaught) {
  const Case c = make_case(DType::bf16, 4, {200});
  Case wrong = c;
  wrong.q_pe = Tensor(DType::bf16, c.q_pe.shape());
  EXPECT_GT(judged(c, run(wrong, in_mode(Mode::golden))).failing(), 1000);
}

TEST(MlaDecode, TheNewestTokenForgottenIsCaught) {
  // Small queries: every token has its share.
  const Case c = make_case(DType::bf16, 4, {60}, 0.1);
  Case wrong = c;
  wrong.lengths = ints({1}, {59});
  EXPECT_GT(judged(c, run(wrong, in_mode(Mode::golden))).failing(), 1000);
}

TEST(MlaDecode, NeighbouringPagesSwappedAreCaught) {
  const Case c = make_case(DType::bf16, 4, {100});
  Case wrong = c;
  wrong.table = ints({1, 2}, {1, 0});
  EXPECT_GT(judged(c, run(wrong, in_mode(Mode::golden))).failing(), 1000);
}

// ---- bad input

TEST(MlaDecode, PagesAndLengthsOutOfRangeAreErrorsThatSayWhere) {
  Case c = make_case(DType::bf16, 2, {100, 30});
  const auto with = [&](const Tensor& table, const Tensor& lengths) {
    Case bad = c;
    bad.table = table;
    bad.lengths = lengths;
    return error_of(bad);
  };
  EXPECT_EQ(with(ints({2, 2}, {0, 4, 2, 3}), c.lengths),
            "cutlass_mla_decode: page_table holds page 4 at [0, 1], expected 0 to 3: sequence 0 has 100 tokens in pages of 64");
  EXPECT_NE(with(ints({2, 2}, {0, 1, -1, 3}), c.lengths).find("page -1 at [1, 0]"), std::string::npos);
  EXPECT_EQ(with(c.table, ints({2}, {100, 129})),
            "cutlass_mla_decode: seq_lens holds 129 at element 1, expected 1 to 128 (below W*P+1 = 129)");
  EXPECT_NE(with(c.table, ints({2}, {0, 30})).find("seq_lens holds 0 at element 0, expected 1 to 128"), std::string::npos);
  EXPECT_NE(with(c.table, ints({2}, {-5, 30})).find("seq_lens holds -5"), std::string::npos);
}

TEST(MlaDecode, EmptyAndAbsurdBatchesAreErrors) {
  Case c = make_case(DType::bf16, 2, {10});
  Case empty = c;
  empty.q_nope = Tensor(DType::bf16, {0, 2, 512});
  empty.q_pe = Tensor(DType::bf16, {0, 2, 64});
  empty.lengths = Tensor(DType::i32, {0});
  empty.table = Tensor(DType::i32, {0, 2});
  EXPECT_NE(error_of(empty).find("B = 0, expected at least 1"), std::string::npos) << error_of(empty);
  Case absurd = c;
  absurd.lengths = Tensor(DType::i32, {100000});
  absurd.table = Tensor(DType::i32, {100000, 2});
  absurd.q_nope = Tensor(c.q_nope.data(), DType::bf16, {100000, 2, 512}, {0, 512, 1});
  absurd.q_pe = Tensor(c.q_pe.data(), DType::bf16, {100000, 2, 64}, {0, 64, 1});
  EXPECT_NE(error_of(absurd).find("B = 100000, expected at most 65536"), std::string::npos) << error_of(absurd);
}

TEST(MlaDecode, ScalesThatAreNotPositiveAreErrors) {
  Case c = make_case(DType::bf16, 2, {10});
  for (const double scale : {0.0, -1.0, 1e300}) {
    c.scale = scale;
    EXPECT_NE(error_of(c).find("sm_scale must be positive and finite"), std::string::npos);
  }
}

TEST(MlaDecode, TablesThatAreNoMultipleOf128TokensAreErrors) {
  Case c = make_case(DType::bf16, 2, {10});
  c.table = ints({1, 3}, {0, 1, 0});
  EXPECT_NE(error_of(c).find("expected W to be a multiple of 128 / P = 2"), std::string::npos) << error_of(c);
}

// ---- several query tokens, scales, log-sum-exp

struct TrtllmCase {
  Tensor query, cache, table, lengths, lse;
  double bmm1 = 0.07, bmm2 = 1;
  Tensor out = {};
};
Tensor run(const TrtllmCase& c, const Exec& exec) {
  return ops::run(ops::TrtllmBatchDecodeWithKvCacheMla{.query = c.query,
                                                       .kv_cache = c.cache,
                                                       .workspace_buffer = {},
                                                       .block_tables = c.table,
                                                       .seq_lens = c.lengths,
                                                       .out = c.out,
                                                       .lse = c.lse,
                                                       .bmm1_scale = c.bmm1,
                                                       .bmm2_scale = c.bmm2},
                  exec)
      .out;
}

TEST(TrtllmMlaDecode, EachQueryTokenSeesOneKeyMoreThanTheOneBefore) {
  const TrtllmCase c{
      normal(DType::bf16, {1, 3, 2, 576}, "q"), normal(DType::bf16, {2, 1, 32, 576}, "kv"), ints({1, 2}, {1, 0}), ints({1}, {40}), {}};
  for (const Mode mode : both_modes) {
    const Tensor all = run(c, in_mode(mode));
    for (std::int32_t i = 0; i < 3; ++i) {
      TrtllmCase one = c;
      one.query = c.query.slice(1, i, i + 1);
      one.lengths = ints({1}, {38 + i});
      EXPECT_TRUE(same_bits(run(one, in_mode(mode)), all.slice(1, i, i + 1))) << name(mode) << " token " << i;
    }
  }
}

TEST(TrtllmMlaDecode, QueriesBeforeTheFirstKeyGiveZerosAndMinusInfinity) {
  TrtllmCase c{normal(DType::bf16, {1, 3, 2, 576}, "q"), normal(DType::bf16, {1, 32, 576}, "kv"), ints({1, 1}, {0}), ints({1}, {1}), {}};
  for (const Mode mode : both_modes) {
    c.lse = Tensor(DType::f32, {1, 3, 2});
    const Tensor out = run(c, in_mode(mode));
    for (std::int64_t i = 0; i < 4 * 512; ++i) ASSERT_EQ(quant::get_bits(out, i), 0u);
    for (std::int64_t i = 0; i < 4; ++i) ASSERT_EQ(quant::get(c.lse, i), -std::numeric_limits<double>::infinity());
    ASSERT_EQ(quant::get(out, 4 * 512), quant::get(c.cache, 0));
  }
}

TEST(TrtllmMlaDecode, LseIsBase2OfTheScaledScores) {
  for (const DType type : {DType::f32, DType::f8_e4m3}) {
    TrtllmCase c{normal(type, {1, 1, 2, 576}, "q"), normal(type, {1, 32, 576}, "kv"), ints({1, 1}, {0}), ints({1}, {20}),
                 Tensor(DType::f32, {1, 1, 2})};
    if (type == DType::f8_e4m3) c.bmm1 = 0.0003;  // generated e4m3 values are 16 times as large
    for (const Mode mode : both_modes) {
      run(c, in_mode(mode));
      for (std::int64_t h = 0; h < 2; ++h) {
        double sum = 0;
        for (std::int64_t j = 0; j < 20; ++j) {
          double z = 0;
          for (std::int64_t k = 0; k < 576; ++k) z += quant::get(c.query, h * 576 + k) * quant::get(c.cache, j * 576 + k);
          sum += std::exp(static_cast<double>(static_cast<float>(c.bmm1)) * z);
        }
        EXPECT_NEAR(quant::get(c.lse, h), std::log2(sum), 1e-4) << name(type) << " " << name(mode);
      }
    }
  }
}

TEST(TrtllmMlaDecode, TheSecondScaleMultipliesTheOutputAlone) {
  TrtllmCase c{normal(DType::bf16, {1, 1, 2, 576}, "q"), normal(DType::bf16, {1, 32, 576}, "kv"), ints({1, 1}, {0}), ints({1}, {20}), {}};
  for (const Mode mode : both_modes) {
    c.bmm2 = 1;
    const Tensor plain = run(c, in_mode(mode));
    c.bmm2 = -4;
    const Tensor scaled = run(c, in_mode(mode));
    for (std::int64_t i = 0; i < plain.elements(); ++i) ASSERT_EQ(quant::get(scaled, i), -4 * quant::get(plain, i));
  }
}

TEST(TrtllmMlaDecode, OutputIsBf16OrOfTheQueriesTypeWhereThatIsF16OrF32) {
  for (const DType queries : {DType::bf16, DType::f16, DType::f32, DType::f8_e4m3})
    for (const DType outputs : {DType::bf16, DType::f16, DType::f32}) {
      TrtllmCase c{normal(queries, {1, 1, 2, 576}, "q"), normal(queries, {1, 32, 576}, "kv"), ints({1, 1}, {0}), ints({1}, {1}), {}};
      c.out = Tensor(outputs, {1, 1, 2, 512});
      for (const Mode mode : both_modes)
        if (outputs == DType::bf16 || outputs == queries) {
          run(c, in_mode(mode));
          // One key: its latent, rounded to the output's type.
          for (const std::int64_t i : {0, 5, 511})
            EXPECT_EQ(quant::get(c.out, i), quant::round_to(outputs, quant::get(c.cache, i))) << name(queries) << " to " << name(outputs);
        } else {
          EXPECT_THROW(run(c, in_mode(mode)), Error) << name(queries) << " to " << name(outputs);
        }
    }
}

TEST(TrtllmMlaDecode, F16OutputIsJudgedByItsOwnRounding) {
  TrtllmCase c{normal(DType::f16, {1, 1, 2, 576}, "q"), normal(DType::f16, {2, 32, 576}, "kv"), ints({1, 2}, {1, 0}), ints({1}, {1}), {}};
  Arguments inputs;
  inputs.set("query", c.query);
  inputs.set("kv_cache", c.cache);
  inputs.set("block_tables", c.table);
  inputs.set("seq_lens", c.lengths);
  inputs.set("out", Tensor(DType::f16, {1, 1, 2, 512}));
  inputs.set_attr("bmm1_scale", c.bmm1);
  const Op& op = registry().at("trtllm_batch_decode_with_kv_cache_mla");
  c.out = Tensor(DType::f16, {1, 1, 2, 512});
  const Tensor right = run(c, in_mode(Mode::fast));
  EXPECT_EQ(oracle::judge(op, inputs, {{"out", right}}, {}).outcome, oracle::Outcome::pass);
  const Tensor through_bf16 = right.clone();
  for (std::int64_t i = 0; i < right.elements(); ++i) quant::set(through_bf16, i, quant::round_to(DType::bf16, quant::get(right, i)));
  EXPECT_GT(oracle::judge(op, inputs, {{"out", through_bf16}}, {}).failing(), 100);
}

}  // namespace
}  // namespace dodona
