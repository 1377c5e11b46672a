#include "ops/rope/rotary_embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

const NamedOp rope{"rotary_embedding"};

using Op = ops::RotaryEmbedding;

/// One token, one head, position 0; no key.
Values rotated(DType type, const Values& head, const Values& cos_sin, bool is_neox, Mode mode) {
  Op op;
  op.positions = Tensor(DType::i64, {1});
  op.head_size = static_cast<std::int64_t>(head.size());
  op.query = tensor_of(type, {1, op.head_size}, head);
  op.cos_sin_cache = tensor_of(type, {1, static_cast<std::int64_t>(cos_sin.size())}, cos_sin);
  op.is_neox = is_neox;
  return values_of(ops::run(op, in_mode(mode)).query);
}

std::string error_of(const Arguments& inputs) {
  return message_in([&] { rope.outputs(inputs, in_mode(Mode::fast)); });
}

TEST(RotaryEmbedding, NeoxPairsHalvesOtherwiseNeighbours) {
  for (const Mode mode : all_modes)
    for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
      EXPECT_EQ(rotated(type, {1, 2, 3, 4, 5}, {0, 1, 1, 0}, true, mode), (Values{-3, 2, 1, 4, 5})) << name(mode) << name(type);
      EXPECT_EQ(rotated(type, {1, 2, 3, 4, 5}, {0, 1, 1, 0}, false, mode), (Values{-2, 1, 3, 4, 5})) << name(mode) << name(type);
    }
}

TEST(RotaryEmbedding, In16BitsProductsAreRoundedBeforeTheSum) {
  // (1 + 2^-7)^2 = 1 + 2^-6 + 2^-14 rounds to 1 + 2^-6. With 2^-8 more that is a tie, which stays at 1 + 2^-6, the even one; one rounding
  // of the whole would go up.
  for (const Mode mode : all_modes)
    EXPECT_EQ(rotated(DType::bf16, {1 + 0x1p-7, -1}, {1 + 0x1p-7, 0x1p-8}, true, mode)[0], 1 + 0x1p-6) << name(mode);
}

TEST(RotaryEmbedding, In16BitsFastAndHopperEqualGoldenToTheBit) {
  for (const char* type : {"bf16", "f16"})
    for (const char* pairing : {"true", "false"}) {
      const Arguments inputs =
          rope.case_of(std::string("T=9 P=333 R=44 Nq=6 Nk=3 --attr head_size=50 --attr is_neox=") + pairing + " --dtype query=" + type);
      const auto golden = rope.outputs(inputs, in_mode(Mode::golden));
      for (const Mode mode : {Mode::fast, Mode::hopper})
        for (std::size_t i = 0; i < 2; ++i)
          EXPECT_EQ(values_of(rope.outputs(inputs, in_mode(mode, 2))[i].second), values_of(golden[i].second)) << type << pairing;
    }
}

TEST(RotaryEmbedding, In16BitsNothingIsOpen) {
  const Arguments inputs = rope.case_of("T=9 P=333 R=64 Nq=6 Nk=3 --attr head_size=64");
  const auto& op = registry().at("rotary_embedding");
  Arguments arguments = oracle::runnable(op, inputs);
  Reference reference;
  op.reference(arguments, in_mode(Mode::golden), reference);
  for (const double slack : reference.find("query")->slack) ASSERT_EQ(slack, 0.0);
  // The arithmetic of apply_rope_with_cos_sin_cache_inplace on the same numbers fails.
  const auto& once = registry().at("apply_rope_with_cos_sin_cache_inplace");
  Arguments other = oracle::runnable(op, inputs);
  Tensor table(DType::f32, {333, 64});
  for (std::int64_t i = 0; i < table.elements(); ++i) quant::set(table, i, quant::get(*inputs.find("cos_sin_cache"), i));
  other.set("cos_sin_cache", table);
  once.run(other, in_mode(Mode::fast));
  EXPECT_GT(rope.failing(inputs, oracle::outputs_of(once, other)), 9 * 9 * 64 / 20);
}

TEST(RotaryEmbedding, InFp32EitherProductMayBeFused) {
  const Arguments inputs = rope.case_of("T=5 P=77 R=64 Nq=4 Nk=2 --attr head_size=64 --dtype query=f32");
  // The device fuses another product in the second output than the first; fast mode does not.
  const auto fast = rope.outputs(inputs, in_mode(Mode::fast)), hopper = rope.outputs(inputs, in_mode(Mode::hopper));
  EXPECT_NE(values_of(fast[0].second), values_of(hopper[0].second));
  EXPECT_EQ(rope.failing(inputs, fast), 0);
  EXPECT_EQ(rope.failing(inputs, hopper), 0);
  auto off = fast;
  auto* x = off[0].second.as<float>();
  for (std::int64_t i = 0; i < off[0].second.elements(); ++i) x[i] += std::copysign(std::fmax(std::fabs(x[i]), 1.0F) * 0x1p-21F, x[i]);
  EXPECT_GT(rope.failing(inputs, off), 5 * 4 * 64 / 2);
}

TEST(RotaryEmbedding, FlushedBf16DenormalsAreWithinTheBudget) {
  const double denormal = 0x1p-130;
  EXPECT_EQ(rotated(DType::bf16, {denormal, 0}, {1, 0}, true, Mode::golden)[0], denormal);
  EXPECT_EQ(rotated(DType::bf16, {denormal, 0}, {1, 0}, true, Mode::hopper)[0], 0.0);
  // A denormal element takes its whole product with it, however large the cosine.
  Arguments inputs = rope.case_of("T=1 P=1 R=2 Nq=1 --attr head_size=2");
  inputs.set("query", tensor_of(DType::bf16, {1, 2}, {0x1p-127, 0}));
  inputs.set("cos_sin_cache", tensor_of(DType::bf16, {1, 2}, {8, 0}));
  const auto flushed = rope.outputs(inputs, in_mode(Mode::hopper)), kept = rope.outputs(inputs, in_mode(Mode::fast));
  EXPECT_EQ(quant::get(flushed[0].second, 0), 0.0);
  EXPECT_EQ(quant::get(kept[0].second, 0), 0x1p-124);
  EXPECT_EQ(rope.failing(inputs, flushed), 0);
  EXPECT_EQ(rope.failing(inputs, kept), 0);
}

TEST(RotaryEmbedding, F16DenormalsAreKeptOnTheDeviceToo) {
  for (const Mode mode : all_modes) EXPECT_EQ(rotated(DType::f16, {0x1p-24, 0}, {1, 0}, true, mode)[0], 0x1p-24) << name(mode);
}

TEST(RotaryEmbedding, NaNStaysInItsPair) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Mode mode : all_modes)
    for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
      const Values out = rotated(type, {nan, 2, 3, 4}, {1, 1, 0, 0}, false, mode);
      EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
      EXPECT_EQ(out[2], 3);
      EXPECT_EQ(out[3], 4);
    }
}

TEST(RotaryEmbedding, KeyMayBeAbsent) {
  const Arguments inputs = rope.case_of("T=3 P=9 R=8 Nq=4 Nk=2 --attr head_size=8");
  Arguments alone = inputs;
  std::erase_if(alone.tensors, [](const auto& argument) { return argument.first == "key"; });
  for (const Mode mode : all_modes) {
    const auto out = rope.outputs(alone, in_mode(mode));
    ASSERT_EQ(out.size(), 1U);
    EXPECT_EQ(values_of(out[0].second), values_of(rope.outputs(inputs, in_mode(mode))[0].second));
  }
}

TEST(RotaryEmbedding, BatchesOfSequencesAndExplicitHeadsMeanTheSame) {
  const Arguments flat = rope.case_of("T=6 P=50 R=8 Nq=4 Nk=2 --attr head_size=10");
  for (const Mode mode : all_modes) {
    const auto expected = rope.outputs(flat, in_mode(mode));
    const auto expect_same = [&](const Dims& positions, const Dims& query, const Dims& key) {
      Arguments shaped = flat;
      shaped.set("positions", flat.find("positions")->reshape(positions));
      shaped.set("query", flat.find("query")->reshape(query));
      shaped.set("key", flat.find("key")->reshape(key));
      const auto out = rope.outputs(shaped, in_mode(mode, 2));
      EXPECT_EQ(values_of(out[0].second), values_of(expected[0].second)) << to_string(query);
      EXPECT_EQ(values_of(out[1].second), values_of(expected[1].second)) << to_string(key);
    };
    expect_same({6}, {6, 4, 10}, {6, 2, 10});
    expect_same({6}, {6, 40}, {6, 2, 10});
    expect_same({2, 3}, {2, 3, 40}, {2, 3, 20});
    expect_same({2, 3}, {2, 3, 4, 10}, {2, 3, 2, 10});
  }
}

TEST(RotaryEmbedding, StridedBatchesAreRotatedWhereTheyLie) {
  const Arguments flat = rope.case_of("T=6 P=50 R=8 Nq=4 --attr head_size=10");
  Arguments strided = flat;
  Tensor query = make_strided(DType::bf16, {2, 3, 4, 10}, {200, 60, 15, 1});
  copy(flat.find("query")->reshape({2, 3, 4, 10}), query);
  strided.set("query", query);
  Tensor positions = make_strided(DType::i64, {2, 3}, {5, 1});
  copy(flat.find("positions")->reshape({2, 3}), positions);
  strided.set("positions", positions);
  for (const Mode mode : all_modes)
    EXPECT_EQ(values_of(rope.outputs(strided, in_mode(mode))[0].second), values_of(rope.outputs(flat, in_mode(mode))[0].second));
}

TEST(RotaryEmbedding, ShapesThatDoNotFitPositionsAreRejected) {
  const Arguments good = rope.case_of("T=6 P=50 R=8 Nq=4 Nk=2 --attr head_size=10");
  const auto error_with = [&](const Dims& positions, const Dims& query) {
    Arguments bad = good;
    bad.set("positions", Tensor(DType::i64, positions));
    bad.set("query", Tensor(DType::bf16, query));
    std::erase_if(bad.tensors, [](const auto& argument) { return argument.first == "key"; });
    return error_of(bad);
  };
  EXPECT_EQ(error_with({6}, {6, 40}), "");
  EXPECT_NE(error_with({6}, {5, 40}).find("query has shape"), std::string::npos);
  EXPECT_NE(error_with({6}, {6, 41}).find("query has shape"), std::string::npos);
  EXPECT_NE(error_with({6}, {6, 4, 9}).find("query has shape"), std::string::npos);
  EXPECT_NE(error_with({6}, {2, 3, 40}).find("query has shape"), std::string::npos);
  EXPECT_NE(error_with({2, 3}, {6, 40}).find("query has shape"), std::string::npos);
  EXPECT_NE(error_with({2, 3}, {3, 2, 40}).find("query has shape"), std::string::npos);
  EXPECT_NE(error_with({6}, {240}).find("query has shape"), std::string::npos);
  EXPECT_NE(error_with({6}, {}).find("query has shape"), std::string::npos);
}

TEST(RotaryEmbedding, KeyHeadsDivideQueryHeads) {
  EXPECT_EQ(error_of(rope.case_of("T=2 P=50 R=8 Nq=6 Nk=3 --attr head_size=8")), "");
  EXPECT_NE(error_of(rope.case_of("T=2 P=50 R=8 Nq=6 Nk=4 --attr head_size=8")).find("key has 4 heads"), std::string::npos);
  EXPECT_NE(error_of(rope.case_of("T=2 P=50 R=8 Nq=6 Nk=0 --attr head_size=8")).find("key has 0 heads"), std::string::npos);
}

TEST(RotaryEmbedding, KeyHeadsLieAsFarApartAsTheQuerys) {
  const Arguments good = rope.case_of("T=2 P=50 R=8 Nq=4 Nk=2 --attr head_size=8");
  const auto error_with = [&](const Tensor& query, const Tensor& key) {
    Arguments arguments = good;
    arguments.set("query", query);
    arguments.set("key", key);
    return error_of(arguments);
  };
  const Tensor dense = *good.find("query"), spread_key = make_strided(DType::bf16, {2, 2, 8}, {40, 12, 1});
  EXPECT_NE(error_with(dense, spread_key).find("key has strides"), std::string::npos);
  EXPECT_EQ(error_with(make_strided(DType::bf16, {2, 4, 8}, {48, 12, 1}), spread_key), "");
  // The stride of a single head is never used.
  EXPECT_EQ(error_with(dense, make_strided(DType::bf16, {2, 1, 8}, {40, 12, 1})), "");
}

TEST(RotaryEmbedding, TableHasTheTypeOfTheQueryAndIsNoWiderThanAHead) {
  Arguments inputs = rope.case_of("T=2 P=50 R=8 Nq=4 Nk=2 --attr head_size=8");
  inputs.set("cos_sin_cache", Tensor(DType::f32, {50, 8}));
  EXPECT_NE(error_of(inputs).find("cos_sin_cache has dtype f32"), std::string::npos);
  inputs.set("cos_sin_cache", Tensor(DType::bf16, {50, 10}));
  EXPECT_NE(error_of(inputs).find("at most head_size"), std::string::npos);
}

}  // namespace
}  // namespace dodona
