#include "ops/rope/apply_rope_with_cos_sin_cache_inplace.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

const NamedOp rope{"apply_rope_with_cos_sin_cache_inplace"};

using Op = ops::ApplyRopeWithCosSinCacheInplace;

/// One token, one head of query and key, at position 0 of a table of one row.
Op one_head(DType type, const Values& head, const Values& cos_sin, bool is_neox) {
  Op op;
  op.positions = Tensor(DType::i64, {1});
  const auto size = static_cast<std::int64_t>(head.size());
  op.query = tensor_of(type, {1, size}, head);
  op.key = tensor_of(type, {1, size}, head);
  op.cos_sin_cache = tensor_of(DType::f32, {1, static_cast<std::int64_t>(cos_sin.size())}, cos_sin);
  op.head_size = size;
  op.is_neox = is_neox;
  return op;
}
Values rotated(DType type, const Values& head, const Values& cos_sin, bool is_neox, Mode mode) {
  return values_of(ops::run(one_head(type, head, cos_sin, is_neox), in_mode(mode)).query);
}

ErrorCode error_code(const Arguments& inputs) {
  return error_from([&] { rope.outputs(inputs, in_mode(Mode::fast)); }).code();
}

TEST(ApplyRope, NeoxPairsHalvesOtherwiseNeighbours) {
  const Values head{1, 2, 3, 4}, quarter_turn{0, 0, 1, 1};
  for (const Mode mode : all_modes)
    for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
      EXPECT_EQ(rotated(type, head, quarter_turn, true, mode), (Values{-3, -4, 1, 2})) << name(mode) << name(type);
      EXPECT_EQ(rotated(type, head, quarter_turn, false, mode), (Values{-2, 1, -4, 3})) << name(mode) << name(type);
    }
}

TEST(ApplyRope, HopperModeMakesOneNaNOfThoseThatAreNotRotated) {
  Op op = one_head(DType::bf16, {1, 2, 3, 4}, {1, 0}, true);
  op.value = tensor_of(DType::bf16, {1, 4}, {1, 2, 3, 4});
  op.k_buffer = op.v_buffer = Tensor(DType::bf16, {1, 4});
  op.v_buffer = Tensor(DType::bf16, {1, 4});
  op.cache_loc = Tensor(DType::i64, {1});
  quant::set_bits(op.query, 3, 0xFFC1), quant::set_bits(op.key, 2, 0x7F81), quant::set_bits(op.value, 0, 0xFFFF);
  for (const Mode mode : all_modes) {
    Op call = op;
    call.query = op.query.clone(), call.key = op.key.clone(), call.k_buffer = op.k_buffer.clone(), call.v_buffer = op.v_buffer.clone();
    ops::run(call, in_mode(mode));
    const bool gpu = mode == Mode::hopper;
    EXPECT_EQ(quant::get_bits(call.query, 3), gpu ? 0x7FFFu : 0xFFC1u) << name(mode);
    EXPECT_EQ(quant::get_bits(call.k_buffer, 2), gpu ? 0x7FFFu : 0x7F81u) << name(mode);
    EXPECT_EQ(quant::get_bits(call.v_buffer, 0), gpu ? 0x7FFFu : 0xFFFFu) << name(mode);
    EXPECT_EQ(quant::get_bits(call.value, 0), 0xFFFFu) << name(mode);
    EXPECT_EQ(quant::get(call.query, 2), 3.0) << name(mode);
  }
}

TEST(ApplyRope, TheFirstHalfOfATableRowIsCosinesWhateverThePairing) {
  // Pair 0 turns by a quarter, pair 1 not at all.
  const Values head{1, 2, 3, 4}, cos_sin{0, 1, 1, 0};
  for (const Mode mode : all_modes) {
    EXPECT_EQ(rotated(DType::bf16, head, cos_sin, true, mode), (Values{-3, 2, 1, 4}));
    EXPECT_EQ(rotated(DType::bf16, head, cos_sin, false, mode), (Values{-2, 1, 3, 4}));
  }
}

TEST(ApplyRope, SumOfBf16IsRoundedOnce) {
  // 1*1 + 2^-8 is a tie between 1 and 1 + 2^-7, which goes to even; a cosine of 1 + 2^-20 lifts it off the tie, unless the product
  // was rounded before.
  for (const Mode mode : all_modes) {
    EXPECT_EQ(rotated(DType::bf16, {1, -1}, {1, 0x1p-8}, true, mode)[0], 1.0) << name(mode);
    EXPECT_EQ(rotated(DType::bf16, {1, -1}, {1 + 0x1p-20, 0x1p-8}, true, mode)[0], 1 + 0x1p-7) << name(mode);
  }
}

TEST(ApplyRope, ElementsFromROnKeepTheirBits) {
  for (const Mode mode : all_modes)
    for (const bool is_neox : {true, false}) {
      Op op = one_head(DType::bf16, {1, 2, 3, 4, 5, 6, 7}, {0, 0, 1, 1}, is_neox);
      quant::set_bits(op.query, 5, 0xFFA5);  // a NaN with a payload
      op = ops::run(op, in_mode(mode));
      EXPECT_EQ(quant::get(op.query, 4), 5);
      EXPECT_EQ(quant::get_bits(op.query, 5), mode == Mode::hopper ? 0x7FFFU : 0xFFA5U);
      EXPECT_EQ(quant::get(op.query, 6), 7);
    }
}

TEST(ApplyRope, TheNameOfUpstreamsBundleComesWithItsTensors) {
  EXPECT_EQ(error_code(rope.case_of("T=2 P=9 R=64 Nq=3 Nk=1 --attr head_size=64 --attr fused_set_kv_buffer_arg=junk")),
            ErrorCode::bad_value);
  EXPECT_EQ(error_code(rope.case_of(
                "T=2 P=9 R=64 Nq=3 Nk=1 --attr head_size=64 --attr fused_set_kv_buffer_arg=value,k_buffer,v_buffer,cache_loc")),
            ErrorCode::missing_argument);
}

TEST(ApplyRope, UnitCosineWithoutSineIsTheIdentityAndLeavesNothingOpen) {
  Arguments inputs = rope.case_of("T=2 P=1 R=64 Nq=3 Nk=1 --attr head_size=64");  // position 0: cos 1, sin 0
  const Tensor query = inputs.find("query")->clone();
  for (const Mode mode : all_modes) EXPECT_EQ(values_of(rope.outputs(inputs, in_mode(mode))[0].second), values_of(query));
  Reference reference;
  const auto& op = registry().at("apply_rope_with_cos_sin_cache_inplace");
  Arguments copied = oracle::runnable(op, inputs);
  op.reference(copied, in_mode(Mode::golden), reference);
  for (const double slack : reference.find("query")->slack) ASSERT_EQ(slack, 0.0);
}

TEST(ApplyRope, InfinityStaysInItsPairAndTimesZeroIsNaN) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Mode mode : all_modes) {
    const Values out = rotated(DType::bf16, {infinity, 2, 3, 4}, {1, 1, 0, 0}, true, mode);
    EXPECT_EQ(out[0], infinity);
    EXPECT_TRUE(std::isnan(out[2]));
    EXPECT_EQ(out[1], 2);
    EXPECT_EQ(out[3], 4);
  }
}

TEST(ApplyRope, ComputedNaNsAreThoseOfTheDevice) {
  for (const Mode mode : all_modes)
    for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
      const Op op = ops::run(one_head(type, {std::numeric_limits<double>::infinity(), 1}, {0, 1}, true), in_mode(mode));
      EXPECT_EQ(quant::get_bits(op.query, 0), type == DType::f32 ? 0x7FFFFFFFU : 0x7FFFU) << name(mode) << name(type);
    }
}

TEST(ApplyRope, BudgetHoldsEveryFusionAndNothingBeyond) {
  const Arguments inputs = rope.case_of("T=7 P=512 R=64 Nq=5 Nk=1 --attr head_size=64 --dtype query=f32");
  const Tensor query = *inputs.find("query"), table = *inputs.find("cos_sin_cache"), positions = *inputs.find("positions");
  using Sum = std::function<float(float, float, float, float)>;
  const auto with = [&](const Sum& sum) {
    auto actual = rope.outputs(inputs, in_mode(Mode::fast));
    const auto* x = query.as<float>();
    auto* y = actual[0].second.as<float>();
    for (std::int64_t t = 0; t < 7; ++t)
      for (std::int64_t h = 0; h < 5; ++h)
        for (std::int64_t i = 0; i < 32; ++i) {
          const std::int64_t first = (t * 5 + h) * 64 + i, second = first + 32, row = positions.as<std::int64_t>()[t] * 64;
          const float c = table.as<float>()[row + i], s = table.as<float>()[row + 32 + i];
          y[first] = sum(x[first], c, x[second], -s);
          y[second] = sum(x[second], c, x[first], s);
        }
    return rope.failing(inputs, actual);
  };
  EXPECT_EQ(with([](float a, float c, float b, float s) { return a * c + b * s; }), 0);
  EXPECT_EQ(with([](float a, float c, float b, float s) { return std::fma(a, c, b * s); }), 0);
  EXPECT_EQ(with([](float a, float c, float b, float s) { return std::fma(b, s, a * c); }), 0);
  // Two units of the last place of the larger product off.
  EXPECT_GT(with([](float a, float c, float b, float s) {
              return std::fma(a, c, b * s) + 0x1p-22f * std::fmax(std::fabs(a * c), std::fabs(b * s));
            }),
            7 * 5 * 64 * 9 / 10);
}

TEST(ApplyRope, FaultsFail) {
  for (const char* pairing : {"true", "false"}) {
    const Arguments inputs = rope.case_of(std::string("T=5 P=300 R=64 Nq=4 Nk=1 --attr head_size=64 --attr is_neox=") + pairing);
    const auto share_failing = [&](const std::function<void(Arguments&)>& fault) {
      Arguments wrong = oracle::runnable(registry().at("apply_rope_with_cos_sin_cache_inplace"), inputs);
      fault(wrong);
      return static_cast<double>(rope.failing(inputs, rope.outputs(wrong, in_mode(Mode::fast)))) / (5 * 5 * 64);
    };
    const auto table_with = [&](const std::function<double(std::int64_t, std::int64_t)>& value) {
      return [&inputs, value](Arguments& arguments) {
        Tensor table = inputs.find("cos_sin_cache")->clone();
        for (std::int64_t p = 0; p < 300; ++p)
          for (std::int64_t i = 0; i < 64; ++i) quant::set(table, p * 64 + i, value(p, i));
        arguments.set("cos_sin_cache", table);
      };
    };
    const Tensor table = *inputs.find("cos_sin_cache");
    const auto at = [&](std::int64_t p, std::int64_t i) { return quant::get(table, p * 64 + i); };
    EXPECT_EQ(share_failing(table_with(at)), 0.0);
    EXPECT_GT(share_failing([&](Arguments& a) { a.set_attr("is_neox", std::string(pairing) == "false"); }), 0.5) << "the other pairing";
    EXPECT_GT(share_failing(table_with([&](std::int64_t p, std::int64_t i) { return i < 32 ? at(p, i) : -at(p, i); })), 0.5)
        << "sign of the sine";
    EXPECT_GT(share_failing(table_with([&](std::int64_t p, std::int64_t i) { return at(p, (i + 32) % 64); })), 0.5) << "sines first";
    EXPECT_GT(share_failing(table_with([&](std::int64_t p, std::int64_t i) { return at(p, i / 32 * 32 + (i + 1) % 32); })), 0.5)
        << "the next pair's angle";
    EXPECT_GT(share_failing(table_with([&](std::int64_t p, std::int64_t i) { return at((p + 1) % 300, i); })), 0.5) << "the next position";
    EXPECT_GT(share_failing(table_with([&](std::int64_t p, std::int64_t i) { return quant::round_to(DType::bf16, at(p, i)); })), 0.2)
        << "a table in bf16";
  }
}

TEST(ApplyRope, SlicesOfWiderHeadsAreRotatedAndTheirSurroundingsKept) {
  const Arguments dense = rope.case_of("T=3 P=64 R=64 Nq=4 Nk=1 --attr head_size=64 --attr is_neox=false");
  for (const Mode mode : all_modes) {
    Tensor wide(DType::bf16, {3, 4, 192});
    for (std::int64_t i = 0; i < wide.elements(); ++i) quant::set(wide, i, static_cast<double>(i % 127));
    const Tensor untouched = wide.clone(), slice = wide.slice(2, 128, 192);
    copy(dense.find("query")->reshape({3, 4, 64}), slice);
    Arguments strided = dense;
    strided.set("query", slice);
    strided.set("key", dense.find("key")->clone());
    registry().at("apply_rope_with_cos_sin_cache_inplace").run(strided, in_mode(mode, 2));
    EXPECT_EQ(values_of(slice), values_of(rope.outputs(dense, in_mode(mode))[0].second));
    EXPECT_EQ(values_of(wide.slice(2, 0, 128)), values_of(untouched.slice(2, 0, 128)));
  }
}

TEST(ApplyRope, PositionsMayRepeatFallAndBeInt32) {
  Arguments inputs = rope.case_of("T=4 P=64 R=64 Nq=2 Nk=1 --attr head_size=64");
  const Tensor query = *inputs.find("query");
  for (std::int64_t t = 1; t < 4; ++t) copy(query.slice(0, 0, 1), query.slice(0, t, t + 1));
  inputs.set("positions", tensor_of(DType::i64, {4}, {63, 5, 5, 63}));
  const auto wide = rope.outputs(inputs, in_mode(Mode::fast));
  const Tensor out = wide[0].second;
  EXPECT_EQ(values_of(out.slice(0, 0, 1)), values_of(out.slice(0, 3, 4)));
  EXPECT_EQ(values_of(out.slice(0, 1, 2)), values_of(out.slice(0, 2, 3)));
  EXPECT_NE(values_of(out.slice(0, 0, 1)), values_of(out.slice(0, 1, 2)));
  inputs.set("positions", tensor_of(DType::i32, {4}, {63, 5, 5, 63}));
  EXPECT_EQ(values_of(rope.outputs(inputs, in_mode(Mode::fast))[0].second), values_of(out));
}

TEST(ApplyRope, PositionsOutsideTheTableAreRejected) {
  Arguments inputs = rope.case_of("T=2 P=64 R=64 Nq=2 Nk=1 --attr head_size=64");
  for (const double position : {-1.0, 64.0}) {
    inputs.set("positions", tensor_of(DType::i64, {2}, {0, position}));
    EXPECT_EQ(error_code(inputs), ErrorCode::bad_value);
  }
}

TEST(ApplyRope, TableIsFp32EvenAndNoWiderThanAHead) {
  const Arguments good = rope.case_of("T=2 P=64 R=64 Nq=2 Nk=1 --attr head_size=64");
  const auto code_with = [&](const Tensor& table) {
    Arguments bad = good;
    bad.set("cos_sin_cache", table);
    return error_code(bad);
  };
  EXPECT_EQ(code_with(Tensor(DType::bf16, {64, 64})), ErrorCode::bad_dtype);
  EXPECT_EQ(code_with(Tensor(DType::f32, {64, 63})), ErrorCode::bad_shape);
  EXPECT_EQ(code_with(Tensor(DType::f32, {64, 66})), ErrorCode::bad_shape);
  EXPECT_EQ(code_with(make_strided(DType::f32, {64, 64}, {128, 1})), ErrorCode::bad_stride);
}

TEST(ApplyRope, FlushedDenormalsAreWithinTheBudgetAndGoldenKeepsThem) {
  const double denormal = 0x1p-130;
  EXPECT_EQ(rotated(DType::bf16, {denormal, 0}, {1, 0}, true, Mode::golden)[0], denormal);
  EXPECT_EQ(rotated(DType::bf16, {denormal, 0}, {1, 0}, true, Mode::fast)[0], denormal);
  EXPECT_EQ(rotated(DType::bf16, {denormal, 0}, {1, 0}, true, Mode::hopper)[0], 0.0);
  // A denormal element takes its whole product with it, however large the cosine.
  Arguments inputs = rope.case_of("T=1 P=1 R=2 Nq=1 Nk=1 --attr head_size=2");
  inputs.set("query", tensor_of(DType::bf16, {1, 2}, {0x1p-127, 0}));
  inputs.set("cos_sin_cache", tensor_of(DType::f32, {1, 2}, {8, 0}));
  const auto flushed = rope.outputs(inputs, in_mode(Mode::hopper)), kept = rope.outputs(inputs, in_mode(Mode::fast));
  EXPECT_EQ(quant::get(flushed[0].second, 0), 0.0);
  EXPECT_EQ(quant::get(kept[0].second, 0), 0x1p-124);
  EXPECT_EQ(rope.failing(inputs, flushed), 0);
  EXPECT_EQ(rope.failing(inputs, kept), 0);
}

TEST(ApplyRope, AProductThatOverflowsFp32IsNotJudged) {
  // 2*x - 2*y: NaN when both products are rounded, infinite when one is fused.
  const double huge = 0x1.8p127;
  Arguments inputs = rope.case_of("T=1 P=1 R=2 Nq=1 Nk=1 --attr head_size=2 --dtype query=f32");
  inputs.set("query", tensor_of(DType::f32, {1, 2}, {huge, huge}));
  inputs.set("cos_sin_cache", tensor_of(DType::f32, {1, 2}, {2, 2}));
  auto actual = rope.outputs(inputs, in_mode(Mode::fast));
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(), 0.0F}) {
    actual[0].second.as<float>()[0] = value;
    EXPECT_EQ(rope.failing(inputs, actual), 0) << value;
  }
}

// ---- the fused store into key and value buffers

constexpr const char* fused_case = "T=4 P=128 R=32 Nq=4 Nk=2 Nv=3 S=9 --attr head_size=64";

TEST(ApplyRope, BufferArgumentsComeTogether) {
  const Arguments all = rope.case_of(fused_case);
  const std::vector<std::string> names{"value", "k_buffer", "v_buffer", "cache_loc"};
  for (unsigned subset = 1; subset < 15; ++subset) {
    Arguments some = all;
    for (std::size_t i = 0; i < names.size(); ++i)
      if ((subset >> i & 1U) == 0) std::erase_if(some.tensors, [&](const auto& argument) { return argument.first == names[i]; });
    EXPECT_THROW(rope.outputs(some, in_mode(Mode::fast)), Error) << subset;
  }
  Arguments none = all;
  for (const auto& missing : names) std::erase_if(none.tensors, [&](const auto& argument) { return argument.first == missing; });
  EXPECT_EQ(rope.outputs(none, in_mode(Mode::fast)).size(), 2U);
}

TEST(ApplyRope, NamedRowsAreCopiesAndOtherRowsKeepTheirBits) {
  Arguments inputs = rope.case_of(fused_case);
  inputs.set("cache_loc", tensor_of(DType::i64, {4}, {7, 0, 8, 3}));
  quant::set_bits(*inputs.find("v_buffer"), 5 * 192, 0xFFA5);
  quant::set_bits(*inputs.find("value"), 0, 0x7FFF);
  const std::vector<std::int64_t> rows{7, 0, 8, 3};
  for (const Mode mode : all_modes) {
    const auto out = rope.outputs(inputs, in_mode(mode, 2));
    const Tensor key = out[1].second, k_buffer = out[2].second, v_buffer = out[3].second;
    ASSERT_EQ(out[2].first, "k_buffer");
    for (std::int64_t row = 0; row < 9; ++row) {
      const auto token = std::find(rows.begin(), rows.end(), row) - rows.begin();
      const bool named = token < 4;
      for (std::int64_t i = 0; i < 128; ++i)
        ASSERT_EQ(quant::get_bits(k_buffer, row * 128 + i),
                  named ? quant::get_bits(key, token * 128 + i) : quant::get_bits(*inputs.find("k_buffer"), row * 128 + i));
      for (std::int64_t i = 0; i < 192; ++i)
        ASSERT_EQ(quant::get_bits(v_buffer, row * 192 + i), named ? quant::get_bits(*inputs.find("value"), token * 192 + i)
                                                                  : quant::get_bits(*inputs.find("v_buffer"), row * 192 + i));
    }
  }
}

TEST(ApplyRope, ARowNamedTwiceTakesTheLastTokenAndIsNotJudged) {
  Arguments inputs = rope.case_of(fused_case);
  inputs.set("cache_loc", tensor_of(DType::i64, {4}, {2, 5, 2, 1}));
  for (const Mode mode : all_modes)
    for (const int threads : {1, 2, 5}) {
      auto out = rope.outputs(inputs, in_mode(mode, threads));
      EXPECT_EQ(values_of(out[3].second.slice(0, 2, 3)), values_of(inputs.find("value")->slice(0, 2, 3)));
      EXPECT_EQ(values_of(out[2].second.slice(0, 2, 3)), values_of(out[1].second.slice(0, 2, 3)));
      if (mode == Mode::hopper) continue;
      // The other token's row is as right; the row of a token that is alone is judged.
      copy(inputs.find("value")->slice(0, 0, 1), out[3].second.slice(0, 2, 3));
      EXPECT_EQ(rope.failing(inputs, out), 0);
      copy(inputs.find("value")->slice(0, 0, 1), out[3].second.slice(0, 5, 6));
      EXPECT_GT(rope.failing(inputs, out), 100);
    }
}

TEST(ApplyRope, BufferRowsAreJudgedAsTheKeyThatTheyCopy) {
  const Arguments inputs = rope.case_of(fused_case);
  auto out = rope.outputs(inputs, in_mode(Mode::fast));
  const Tensor k_buffer = out[2].second;
  const std::int64_t row = inputs.find("cache_loc")->as<std::int64_t>()[1];
  copy(inputs.find("key")->slice(0, 1, 2), k_buffer.slice(0, row, row + 1));  // not rotated
  EXPECT_GT(rope.failing(inputs, out), 2 * 32 / 2);
}

TEST(ApplyRope, CacheLocOutsideTheBuffersIsRejected) {
  Arguments inputs = rope.case_of(fused_case);
  for (const double row : {-1.0, 9.0}) {
    inputs.set("cache_loc", tensor_of(DType::i64, {4}, {0, 1, 2, row}));
    EXPECT_EQ(error_code(inputs), ErrorCode::bad_value);
  }
}

/// Those heads go to FlashInfer's kernel that quantizes too, which multiplies what it does not rotate by 1.
TEST(ApplyRope, HeadsWithoutAKernelOfTheirOwnFlushWhatTheyDoNotRotate) {
  const helpers::NamedOp op{"apply_rope_with_cos_sin_cache_inplace"};
  for (const auto& [head, flushed] : {std::pair{"80", true}, {"128", false}}) {
    Arguments a = op.case_of("T=1 P=4 R=64 Nq=1 Nk=1 --attr is_neox=false --attr head_size=" + std::string(head));
    const Tensor query = *a.find("query");
    quant::set_bits(query, 70, 0x8003);
    const oracle::NamedTensors outputs = op.outputs(a, helpers::in_mode(Mode::hopper));
    EXPECT_EQ(quant::get_bits(outputs[0].second, 70), flushed ? 0x8000u : 0x8003u) << head;
    EXPECT_EQ(op.failing(a, outputs), 0);
  }
}

}  // namespace
}  // namespace dodona
