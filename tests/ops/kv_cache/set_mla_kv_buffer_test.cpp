#include "ops/kv_cache/set_mla_kv_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "dodona/error.h"
#include "oracle/cases/generate.h"
#include "oracle/judge/judge.h"
#include "quant/element.h"
#include "tests/errors.h"

namespace dodona {
namespace {

Tensor normal(DType type, const Dims& shape, const char* name) {
  Tensor t(type, shape);
  oracle::fill(t, Role::values, 0, "normal", 3, name);
  return t;
}
Tensor slots(std::initializer_list<std::int64_t> values) {
  Tensor t(DType::i64, {static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), t.as<std::int64_t>());
  return t;
}
void set(const Tensor& buffer, const Tensor& loc, const Tensor& nope, const Tensor& rope, Mode mode = Mode::fast, int threads = 1) {
  Exec exec;
  exec.mode = mode;
  exec.threads = threads;
  ops::run(ops::SetMlaKvBuffer{buffer, loc, nope, rope}, exec);
}

TEST(SetMlaKvBuffer, RowsLandInTheirSlotsAndTheRestIsKept) {
  // Pages of 4: slot 6 is row 2 of page 1. The rope part comes as a slice of wider rows.
  const Tensor nope = normal(DType::bf16, {2, 1, 512}, "nope"), rope = normal(DType::bf16, {2, 2112}, "rope").slice(1, 2048, 2112);
  for (const Mode mode : {Mode::golden, Mode::fast}) {
    const Tensor buffer = normal(DType::bf16, {3, 4, 576}, "buffer"), before = buffer.clone();
    set(buffer, slots({6, 1}), nope, rope, mode, 2);
    for (std::int64_t s = 0; s < 12; ++s)
      for (std::int64_t i = 0; i < 576; ++i) {
        const std::int64_t t = s == 6 ? 0 : 1;
        const std::uint64_t expected = s != 6 && s != 1 ? quant::get_bits(before, s * 576 + i)
                                       : i < 512        ? quant::get_bits(nope, t * 512 + i)
                                                        : quant::get_bits(rope, t * 64 + i - 512);
        ASSERT_EQ(quant::get_bits(buffer, s * 576 + i), expected) << "slot " << s << " element " << i;
      }
  }
}

TEST(SetMlaKvBuffer, Bf16ToE4m3IsTheFrameworksCastAndDoesNotSaturate) {
  Tensor nope(DType::bf16, {1, 4}), rope(DType::bf16, {1, 2});
  const double values[] = {464, -480, 17, -0.001};
  for (int i = 0; i < 4; ++i) quant::set(nope, i, values[i]);
  quant::set(rope, 0, 1e30);
  for (const Mode mode : {Mode::golden, Mode::fast}) {
    const Tensor buffer(DType::f8_e4m3, {1, 6});
    set(buffer, slots({0}), nope, rope, mode);
    const std::uint64_t expected[] = {0x7E, 0xFF, 0x58, 0x81, 0x7F, 0x00};
    for (int i = 0; i < 6; ++i) EXPECT_EQ(quant::get_bits(buffer, i), expected[i]) << "element " << i;
  }
}

struct NanCast {
  DType from;
  std::uint64_t code;
  DType to;
  std::uint64_t hopper;
};

TEST(SetMlaKvBuffer, WhichNanACastGivesIsOpenAndInHopperModeTorchs) {
  const NanCast casts[] = {{DType::f16, 0xFE01, DType::f8_e4m3, 0x7F},     {DType::f16, 0xFE01, DType::f8_e5m2, 0x7F},
                           {DType::bf16, 0xFFC1, DType::f8_e4m3, 0xFF},    {DType::f16, 0xFC01, DType::f32, 0x7FFFFFFF},
                           {DType::bf16, 0x7F81, DType::f32, 0x7F810000},  {DType::bf16, 0xFF81, DType::f32, 0xFF810000},
                           {DType::f8_e4m3, 0x7F, DType::f32, 0x7FF00000}, {DType::f8_e4m3, 0xFF, DType::f32, 0xFFF00000},
                           {DType::f8_e5m2, 0x7D, DType::f32, 0x7FFFFFFF}, {DType::f8_e5m2, 0xFD, DType::f32, 0xFFFFFFFF}};
  for (const NanCast& c : casts) {
    const Tensor nope(c.from, {1, 2}), rope(c.from, {1, 1}), buffer(c.to, {1, 3});
    quant::set_bits(nope, 0, c.code);
    quant::set(nope, 1, -1.5);
    quant::set(rope, 0, 0.25);
    set(buffer, slots({0}), nope, rope, Mode::hopper);
    EXPECT_EQ(quant::get_bits(buffer, 0), c.hopper) << name(c.from) << " to " << name(c.to);
    EXPECT_EQ(quant::get(buffer, 1), -1.5);
    EXPECT_EQ(quant::get(buffer, 2), 0.25);
    Arguments inputs;
    inputs.set("kv_buffer", Tensor(c.to, {1, 3}));
    inputs.set("loc", slots({0}));
    inputs.set("k_nope", nope);
    inputs.set("k_rope", rope);
    const auto failing = [&] { return oracle::judge(registry().at("set_mla_kv_buffer"), inputs, {{"kv_buffer", buffer}}, {}).failing(); };
    EXPECT_EQ(failing(), 0);
    quant::set_bits(buffer, 0, quant::get_bits(buffer, 0) ^ std::uint64_t{1} << (bits(c.to) - 1));
    EXPECT_EQ(failing(), 0);
    quant::set(buffer, 0, 1.0);
    EXPECT_EQ(failing(), 1);
  }
}

TEST(SetMlaKvBuffer, ANumberBeyondE4m3IsNanWithItsSignAndNoOther) {
  const Tensor nope(DType::f16, {1, 1}), rope(DType::f16, {1, 1}), buffer(DType::f8_e4m3, {1, 2});
  quant::set(nope, 0, -500);
  set(buffer, slots({0}), nope, rope, Mode::hopper);
  EXPECT_EQ(quant::get_bits(buffer, 0), 0xFFU);
  Arguments inputs;
  inputs.set("kv_buffer", Tensor(DType::f8_e4m3, {1, 2}));
  inputs.set("loc", slots({0}));
  inputs.set("k_nope", nope);
  inputs.set("k_rope", rope);
  quant::set_bits(buffer, 0, 0x7F);
  EXPECT_EQ(oracle::judge(registry().at("set_mla_kv_buffer"), inputs, {{"kv_buffer", buffer}}, {}).failing(), 1);
}

TEST(SetMlaKvBuffer, OfTokensThatShareASlotTheLastIsStored) {
  const Tensor nope = normal(DType::f32, {3, 512}, "nope"), rope = normal(DType::f32, {3, 64}, "rope");
  for (const int threads : {1, 2, 5}) {
    const Tensor buffer(DType::f32, {2, 576});
    set(buffer, slots({0, 1, 0}), nope, rope, Mode::fast, threads);
    EXPECT_EQ(quant::get(buffer, 0), quant::get(nope, 2 * 512));
    EXPECT_EQ(quant::get(buffer, 575), quant::get(rope, 2 * 64 + 63));
  }
}

TEST(SetMlaKvBuffer, ManyRowsGoPastTheCachesAndAreTheSame) {
  constexpr std::int64_t tokens = 2400, rows = 2000;
  ops::SetMlaKvBuffer op{.loc = Tensor(DType::i64, {tokens})};
  op.k_nope = normal(DType::bf16, {tokens, 512}, "nope"), op.k_rope = normal(DType::bf16, {tokens, 64}, "rope");
  for (std::int64_t t = 0; t < tokens; ++t) op.loc.as<std::int64_t>()[t] = t * 7 % rows;
  const auto stored = [&](Mode mode, int threads) {
    Exec exec;
    exec.mode = mode;
    exec.threads = threads;
    op.kv_buffer = Tensor(DType::bf16, {rows, 576});
    return ops::run(op, exec).kv_buffer;
  };
  for (const std::string slot_zero : {"reserved", "written"}) {
    op.slot_zero = slot_zero;
    const Tensor expected = stored(Mode::golden, 1);
    for (const int threads : {1, 2, 5}) {
      const Tensor got = stored(Mode::fast, threads);
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), static_cast<std::size_t>(rows * 576 * 2)), 0) << threads << ' ' << slot_zero;
    }
  }
}

TEST(SetMlaKvBuffer, AnyOfTheTokensThatShareASlotPassesTheJudge) {
  const Tensor nope = normal(DType::f32, {2, 512}, "nope"), rope = normal(DType::f32, {2, 64}, "rope");
  Arguments inputs;
  inputs.set("kv_buffer", Tensor(DType::f32, {2, 576}));
  inputs.set("loc", slots({0, 0}));
  inputs.set("k_nope", nope);
  inputs.set("k_rope", rope);
  const Tensor first(DType::f32, {2, 576});
  set(first, slots({0}), nope.slice(0, 0, 1), rope.slice(0, 0, 1));
  EXPECT_EQ(oracle::judge(registry().at("set_mla_kv_buffer"), inputs, {{"kv_buffer", first}}, {}).failing(), 0);
  quant::set(first, 576 + 7, 1);
  EXPECT_EQ(oracle::judge(registry().at("set_mla_kv_buffer"), inputs, {{"kv_buffer", first}}, {}).failing(), 1);
}

TEST(SetMlaKvBuffer, SlotsOutOfRangeAreErrorsAndNothingIsWritten) {
  const Tensor buffer(DType::bf16, {4, 576});
  const Tensor nope = normal(DType::bf16, {2, 512}, "nope"), rope = normal(DType::bf16, {2, 64}, "rope");
  for (const std::int64_t bad : {std::int64_t{4}, std::int64_t{-1}}) {
    const Error error = helpers::error_from([&] { set(buffer, slots({0, bad}), nope, rope); });
    EXPECT_NE(std::string(error.what()).find("loc holds " + std::to_string(bad) + " at element 1, expected 0 to 3"), std::string::npos);
  }
  for (std::int64_t i = 0; i < 576; ++i) ASSERT_EQ(quant::get_bits(buffer, i), 0u);
}

}  // namespace
}  // namespace dodona
