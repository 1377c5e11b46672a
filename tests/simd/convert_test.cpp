// Narrow formats: every code read, every rounding boundary and its neighbours written, against values computed from the formats'
// definitions.
#include <cmath>
#include <limits>

#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/e5m2.h"
#include "quant/half.h"
#include "tests/simd/probe.h"

namespace dodona::simd_tests {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

struct Format {
  ProbeOp load, store;
  int bits, mantissa_bits, bias;
  std::uint32_t largest;   ///< code of the largest finite value
  std::uint32_t overflow;  ///< what is beyond it
  std::uint32_t nan;       ///< what NaN gives
};
constexpr Format bf16{ProbeOp::load_bf16, ProbeOp::store_bf16, 16, 7, 127, 0x7F7F, 0x7F80, 0x7FFF};
constexpr Format f16{ProbeOp::load_f16, ProbeOp::store_f16, 16, 10, 15, 0x7BFF, 0x7C00, 0x7FFF};
constexpr Format e4m3{ProbeOp::load_e4m3, ProbeOp::store_e4m3, 8, 3, 7, 0x7E, 0x7E, 0x7F};
constexpr Format e5m2{ProbeOp::load_e5m2, ProbeOp::store_e5m2, 8, 2, 15, 0x7B, 0x7B, 0x7F};
constexpr Format e2m1{ProbeOp::load_e2m1, ProbeOp::store_e2m1, 4, 1, 1, 0x7, 0x7, 0x7};
constexpr Format formats[] = {bf16, f16, e4m3, e5m2, e2m1};

/// The value of a code without its sign, by definition; beyond the largest, what the next code would stand for.
double value(const Format& f, std::uint32_t code) {
  const auto mantissa = static_cast<double>(code & ((1u << f.mantissa_bits) - 1u));
  const int field = static_cast<int>(code >> f.mantissa_bits);
  if (field == 0) return std::ldexp(mantissa, 1 - f.bias - f.mantissa_bits);
  return std::ldexp(mantissa + std::ldexp(1.0, f.mantissa_bits), field - f.bias - f.mantissa_bits);
}

std::vector<std::uint32_t> read_all(const Format& f, Isa isa, const std::vector<std::uint32_t>& codes) {
  std::vector<std::uint8_t> packed(codes.size() * static_cast<std::size_t>(f.bits) / 8);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (f.bits == 16) std::memcpy(&packed[2 * i], &codes[i], 2);
    if (f.bits == 8) packed[i] = static_cast<std::uint8_t>(codes[i]);
    if (f.bits == 4) packed[i / 2] = static_cast<std::uint8_t>(packed[i / 2] | codes[i] << (i % 2 * 4));
  }
  return map<std::uint32_t>(f.load, isa, packed);
}

std::vector<std::uint32_t> write_all(const Format& f, Isa isa, const std::vector<float>& values) {
  const auto packed = map<std::uint8_t>(f.store, isa, values);
  std::vector<std::uint32_t> codes(values.size());
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (f.bits == 16) codes[i] = packed[2 * i] | static_cast<std::uint32_t>(packed[2 * i + 1]) << 8;
    if (f.bits == 8) codes[i] = packed[i];
    if (f.bits == 4) codes[i] = packed[i / 2] >> (i % 2 * 4) & 0xFu;
  }
  return codes;
}

TEST(Convert, EveryCodeIsReadExactly) {
  for (const Format& f : formats) {
    const std::uint32_t sign = 1u << (f.bits - 1);
    std::vector<std::uint32_t> codes, expected;
    for (std::uint32_t code = 0; code <= f.largest; ++code) {
      for (const std::uint32_t s : {0u, sign}) {
        codes.push_back(code | s);
        expected.push_back(bits(static_cast<float>(value(f, code))) | (s != 0 ? 0x80000000u : 0u));
      }
    }
    for (const Isa isa : available_isas()) {
      const auto got = read_all(f, isa, codes);
      for (std::size_t i = 0; i < codes.size(); ++i)
        ASSERT_EQ(got[i], expected[i]) << info_of(f.load).name << " on " << name(isa) << ", code " << codes[i];
    }
  }
}

TEST(Convert, EveryCodeIsReadAsTheQuantRoomReadsIt) {
  for (const Isa isa : available_isas()) {
    for (const Format& f : formats) {
      std::vector<std::uint32_t> codes(std::size_t{1} << f.bits);
      for (std::uint32_t i = 0; i < codes.size(); ++i) codes[i] = i;
      const auto got = read_all(f, isa, codes);
      for (std::uint32_t i = 0; i < codes.size(); ++i) {
        float expected = quant::e2m1_to_f32(i);
        if (f.load == ProbeOp::load_bf16) expected = quant::bf16_to_f32(static_cast<std::uint16_t>(i));
        if (f.load == ProbeOp::load_f16) expected = quant::f16_to_f32(static_cast<std::uint16_t>(i));
        if (f.load == ProbeOp::load_e4m3) expected = quant::e4m3_to_f32(static_cast<std::uint8_t>(i));
        if (f.load == ProbeOp::load_e5m2) expected = quant::e5m2_to_f32(static_cast<std::uint8_t>(i));
        ASSERT_EQ(got[i], bits(expected)) << info_of(f.load).name << " on " << name(isa) << ", code " << i;
      }
    }
  }
}

TEST(Convert, CodesOfInfinityAndNanAreReadAsSuch) {
  for (const Isa isa : available_isas()) {
    EXPECT_EQ(read_all(bf16, isa, {0x7F80, 0xFF80, 0x7F81, 0xFFFF}),
              (std::vector<std::uint32_t>{0x7F800000, 0xFF800000, 0x7F810000, 0xFFFF0000}));
    EXPECT_EQ(read_all(f16, isa, {0x7C00, 0xFC00, 0x7C01, 0xFFFF}),
              (std::vector<std::uint32_t>{0x7F800000, 0xFF800000, 0x7FC02000, 0xFFFFE000}));
    EXPECT_EQ(read_all(e4m3, isa, {0x7F, 0xFF}), (std::vector<std::uint32_t>{0x7FC00000, 0xFFC00000}));
    EXPECT_EQ(read_all(e5m2, isa, {0x7C, 0xFC, 0x7D, 0xFF}), (std::vector<std::uint32_t>{0x7F800000, 0xFF800000, 0x7FE00000, 0xFFE00000}));
  }
}

TEST(Convert, CheapE4m3IsTheValueOver256) {
  std::vector<std::uint8_t> codes;
  std::vector<float> expected;
  for (std::uint32_t code = 0; code < 256; ++code) {
    codes.push_back(static_cast<std::uint8_t>(code));
    expected.push_back(static_cast<float>(value(e4m3, code & 0x7F) / 256) * (code < 128 ? 1.0f : -1.0f));
  }
  for (const Isa isa : available_isas()) EXPECT_EQ(map<float>(ProbeOp::load_e4m3_over_256, isa, codes), expected) << name(isa);
}

TEST(Convert, EveryRoundingBoundaryGoesToEvenAndItsNeighboursToTheirSide) {
  for (const Format& f : formats) {
    const std::uint32_t sign = 1u << (f.bits - 1);
    std::vector<float> x;
    std::vector<std::uint32_t> expected;
    const auto add = [&](float v, std::uint32_t code) {
      x.insert(x.end(), {v, -v});
      expected.insert(expected.end(), {code, code | sign});
    };
    for (std::uint32_t code = 0; code <= f.largest; ++code) {
      const std::uint32_t above = code == f.largest ? f.overflow : code + 1;
      const auto middle = static_cast<float>((value(f, code) + value(f, code + 1)) / 2);
      add(static_cast<float>(value(f, code)), code);
      add(std::nextafter(middle, 0.0f), code);
      add(middle, code % 2 == 0 ? code : above);
      add(std::nextafter(middle, infinity), above);
    }
    add(std::numeric_limits<float>::max(), f.overflow);
    add(infinity, f.overflow);
    add(std::numeric_limits<float>::denorm_min(), 0);
    for (const Isa isa : available_isas()) {
      const auto got = write_all(f, isa, x);
      for (std::size_t i = 0; i < x.size(); ++i)
        ASSERT_EQ(got[i], expected[i]) << info_of(f.store).name << " on " << name(isa) << " of " << x[i];
    }
  }
}

TEST(Convert, AnyNanIsWrittenAsOneCodeWithoutSign) {
  const std::vector<float> x{nan, -nan, from_bits(0x7F800001), from_bits(0xFF800001), from_bits(0xFFFFFFFF), from_bits(0x7F802000),
                             nan, nan};
  for (const Isa isa : available_isas())
    for (const Format& f : formats)
      EXPECT_EQ(write_all(f, isa, x), std::vector<std::uint32_t>(x.size(), f.nan)) << info_of(f.store).name << " on " << name(isa);
}

TEST(Convert, RandomValuesAreWrittenAsTheQuantRoomWritesThem) {
  const std::size_t n = 1 << 16;
  const auto words = samples::words(n, 12);
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = from_bits(words[i]);
  for (const Format& f : formats) {
    const auto got = write_all(f, best(), x);
    for (std::size_t i = 0; i < n; ++i) {
      std::uint32_t expected = quant::to_e2m1(x[i]);
      if (f.store == ProbeOp::store_bf16) expected = quant::f32_to_bf16(x[i]);
      if (f.store == ProbeOp::store_f16) expected = quant::f32_to_f16(x[i]);
      if (f.store == ProbeOp::store_e4m3) expected = quant::to_e4m3_satfinite(x[i]);
      if (f.store == ProbeOp::store_e5m2) expected = quant::to_e5m2_satfinite(x[i]);
      ASSERT_EQ(got[i], expected) << info_of(f.store).name << " of " << std::hex << words[i];
    }
  }
}

TEST(Convert, RoundingInPlaceEqualsStoreThenLoad) {
  const std::size_t n = 1 << 12;
  const auto words = samples::words(n, 13);
  for (const Isa isa : available_isas()) {
    EXPECT_TRUE(map<std::uint32_t>(ProbeOp::round_to_bf16, isa, words) ==
                map<std::uint32_t>(ProbeOp::load_bf16, isa, map<std::uint16_t>(ProbeOp::store_bf16, isa, words)));
    EXPECT_TRUE(map<std::uint32_t>(ProbeOp::round_to_f16, isa, words) ==
                map<std::uint32_t>(ProbeOp::load_f16, isa, map<std::uint16_t>(ProbeOp::store_f16, isa, words)));
  }
}

TEST(Convert, OddCountsOfNibblesReadOneAndZeroTheOther) {
  const std::vector<std::uint8_t> packed{0x21, 0xF3};  // codes 1, 2, 3 and one that is not there
  const std::vector<float> values{0.5f, 1.0f, 1.5f};
  for (const Isa isa : available_isas()) {
    const auto read = run(ProbeOp::load_e2m1, isa, 3, packed.data());
    EXPECT_EQ(std::memcmp(read.data(), values.data(), 12), 0) << name(isa);
    EXPECT_EQ(run(ProbeOp::store_e2m1, isa, 3, values.data()), (std::vector<std::uint8_t>{0x21, 0x03})) << name(isa);
  }
}

TEST(Convert, BytesWidenWithAndWithoutSign) {
  std::vector<std::uint8_t> bytes(256);
  std::vector<std::int32_t> as_unsigned(256), as_signed(256);
  for (int i = 0; i < 256; ++i) {
    const auto at = static_cast<std::size_t>(i);
    bytes[at] = static_cast<std::uint8_t>(i);
    as_unsigned[at] = i;
    as_signed[at] = i < 128 ? i : i - 256;
  }
  for (const Isa isa : available_isas()) {
    EXPECT_EQ(map<std::int32_t>(ProbeOp::load_u8, isa, bytes), as_unsigned) << name(isa);
    EXPECT_EQ(map<std::int32_t>(ProbeOp::load_i8, isa, bytes), as_signed) << name(isa);
    EXPECT_EQ(map<std::uint8_t>(ProbeOp::store_low_8, isa, as_signed), bytes) << name(isa);
  }
}

}  // namespace
}  // namespace dodona::simd_tests
