#include "ops/tiles/mma/mma.h"
#include "quant/tensor_core/step.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "dodona/error.h"

namespace dodona::quant::tensor_core {
namespace {

using ops::accumulate;
using ops::accumulate_i8;
using ops::MmaColumns;
using ops::MmaRows;

constexpr float inf = std::numeric_limits<float>::infinity();

std::uint32_t bits_of(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

#define EXPECT_BITS(value, expected) EXPECT_EQ(bits_of(value), bits_of(expected)) << (value) << " for " << (expected)

/// The engine's numbers as 32-bit words.
class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  std::uint32_t operator()() { return static_cast<std::uint32_t>(engine_()); }

 private:
  std::mt19937 engine_;
};

/// The plain definition over a whole row: one mma_step after the other, in k order.
float by_steps(const MmaSpec& spec, DType a_type, DType b_type, const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b,
               float accumulator = 0) {
  const std::size_t products = static_cast<std::size_t>(spec.products);
  for (std::size_t k = 0; k < a.size(); k += products) {
    std::vector<Factor> x, y;
    for (std::size_t i = k; i < std::min(k + products, a.size()); ++i) {
      x.push_back(decode_factor(spec, a_type, a[i]));
      y.push_back(decode_factor(spec, b_type, b[i]));
    }
    accumulator = mma_step(spec, x, y, accumulator);
  }
  return accumulator;
}

std::vector<std::uint8_t> bytes_of(DType type, const std::vector<std::uint32_t>& codes) {
  std::vector<std::uint8_t> bytes;
  for (std::uint32_t code : codes) {
    bytes.push_back(static_cast<std::uint8_t>(code));
    if (bits(type) == 16) bytes.push_back(static_cast<std::uint8_t>(code >> 8));
  }
  return bytes;
}

/// The same through decoded operands: one row, one column.
float by_operands(const MmaSpec& spec, DType a_type, DType b_type, const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b,
                  float accumulator = 0) {
  const std::int64_t k = static_cast<std::int64_t>(a.size());
  accumulate(MmaRows(spec, a_type, bytes_of(a_type, a).data(), 1, k), MmaColumns(spec, b_type, bytes_of(b_type, b).data(), 1, k), 0, k,
             &accumulator, 1);
  return accumulator;
}

constexpr std::uint32_t e4m3_one = 0x38, e4m3_three_and_a_half = 0x46, e4m3_minus_one = 0xB8;
constexpr std::uint32_t bf16_one = 0x3F80;

// --- What the device was seen to do ---------------------------------------------------------------------------------------------

TEST(TensorCore, A65536LosesEveryProductOf3AndAHalf) {
  std::vector<std::uint32_t> a(32, e4m3_one), b(32, e4m3_three_and_a_half);
  b[0] = 0;
  EXPECT_BITS(by_steps(fp8_wgmma, DType::f8_e4m3, DType::f8_e4m3, a, b, 65536), 65536.0f);
  EXPECT_BITS(by_operands(fp8_wgmma, DType::f8_e4m3, DType::f8_e4m3, a, b, 65536), 65536.0f);
}

TEST(TensorCore, Fp8AddendsOf2ToMinus13OfTheLargestSurvive) {
  const std::vector<std::uint32_t> a{e4m3_one}, b{e4m3_one};
  EXPECT_BITS(by_operands(fp8_wgmma, DType::f8_e4m3, DType::f8_e4m3, a, b, 0x1p13f), 8193.0f);
  EXPECT_BITS(by_operands(fp8_wgmma, DType::f8_e4m3, DType::f8_e4m3, a, b, 0x1p14f), 0x1p14f);
}

TEST(TensorCore, HalfAddendsKeep25BitsAndTheSum23) {
  const std::vector<std::uint32_t> one{bf16_one}, three{bf16_one, bf16_one, bf16_one, bf16_one};
  EXPECT_BITS(by_operands(half_mma, DType::bf16, DType::bf16, one, one, 0x1p23f), 0x1p23f + 1);
  EXPECT_BITS(by_operands(half_mma, DType::bf16, DType::bf16, one, one, 0x1p24f), 0x1p24f);          // kept as an addend, cut from the sum
  EXPECT_BITS(by_operands(half_mma, DType::bf16, DType::bf16, three, three, 0x1p25f), 0x1p25f + 4);  // four of them count together
  EXPECT_BITS(by_operands(half_mma, DType::bf16, DType::bf16, three, three, 0x1p26f), 0x1p26f);      // cut before they are added
}

TEST(TensorCore, AddendsAndSumsAreCutTowardZero) {
  EXPECT_BITS(by_operands(fp8_wgmma, DType::f8_e4m3, DType::f8_e4m3, {e4m3_minus_one}, {e4m3_one}, 0x1p14f), 0x1p14f);
  EXPECT_BITS(by_operands(half_mma, DType::bf16, DType::bf16, {bf16_one}, {0xBF80}, -0x1p24f), -0x1p24f);
}

TEST(TensorCore, TheExponentOfAProductIsThatOfItsFactors) {
  // 1.5 * 1.5 = 2.25 has exponent 0 here: 2^-13 below that still counts.
  std::vector<std::uint32_t> a{0x3C, 0x01}, b{0x3C, 0x18};                        // 1.5 * 1.5 + 2^-9 * 2^-4
  EXPECT_BITS(by_steps(fp8_wgmma, DType::f8_e4m3, DType::f8_e4m3, a, b), 2.25f);  // the sum, of exponent 1, is cut to 2^-12
  b[1] = 0x20;                                                                    // 2^-9 * 2^-3
  EXPECT_BITS(by_steps(fp8_wgmma, DType::f8_e4m3, DType::f8_e4m3, a, b), 2.25f + 0x1p-12f);
}

struct Recorded {
  const char* rule;
  MmaSpec spec;
  DType a_type, b_type;
  std::vector<std::uint32_t> a, b;
  float result;
};

const std::vector<Recorded>& recorded() {
  static const std::vector<Recorded> all = {
      {"a zero times a large factor is not the largest",
       fp8_wgmma,
       DType::f8_e4m3,
       DType::f8_e4m3,
       {0x80, 0x00, 0x00, 0x23, 0x80, 0x00, 0x00, 0x80, 0x80, 0x00, 0x00, 0x80, 0x00, 0x00, 0x00, 0x80,
        0x00, 0x00, 0x00, 0x00, 0x80, 0x00, 0x80, 0x80, 0x8A, 0x80, 0x80, 0x80, 0x00, 0x80, 0x80, 0x00},
       {0x80, 0x00, 0x80, 0x8E, 0x80, 0xB2, 0x00, 0xA4, 0x80, 0x00, 0x00, 0x00, 0x00, 0x80, 0xFE, 0x00,
        0x80, 0x80, 0x04, 0x00, 0x80, 0x80, 0x81, 0x80, 0x00, 0x00, 0x80, 0x00, 0x00, 0x60, 0x00, 0x80},
       -0x1.34p-8f},
      {"likewise, e5m2 on the left",
       fp8_wgmma,
       DType::f8_e5m2,
       DType::f8_e4m3,
       {0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 0x80, 0x00, 0x80, 0x00, 0x00, 0x00, 0x80, 0x00, 0x00, 0x80,
        0x00, 0x00, 0x80, 0x80, 0x08, 0x80, 0x00, 0x80, 0xCA, 0x14, 0x80, 0x00, 0x80, 0x98, 0x00, 0x80},
       {0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 0x80, 0x00, 0x00, 0x00, 0x80, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x80, 0x5D, 0x5E, 0x00, 0x00, 0x89, 0x00, 0x80, 0x80, 0x00, 0x00, 0x80},
       -0x1.2p-16f},
      {"likewise, e5m2 on the right",
       fp8_wgmma,
       DType::f8_e4m3,
       DType::f8_e5m2,
       {0x80, 0x00, 0xFC, 0x80, 0x80, 0x00, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x47, 0x00, 0x80, 0x00,
        0x80, 0x1F, 0x00, 0x80, 0x00, 0x00, 0x00, 0x00, 0x68, 0x00, 0x80, 0x80, 0x80, 0x00, 0x00, 0x80},
       {0x80, 0x80, 0x00, 0x00, 0x80, 0x80, 0x80, 0x00, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00,
        0x00, 0x04, 0x80, 0x80, 0x00, 0x80, 0x00, 0x80, 0x00, 0x00, 0x00, 0x80, 0x00, 0x00, 0x80, 0x80},
       0x1.ep-18f},
      {"likewise in fp16",
       half_mma,
       DType::f16,
       DType::f16,
       {0x5719, 0x3E22, 0xDDAD, 0x03CB, 0xF853, 0x8000, 0x3633, 0x2228, 0x1D63, 0x6279, 0x8000, 0x8000, 0xB106, 0x8000, 0x8000, 0x11C0},
       {0x0000, 0x8A1B, 0x8000, 0x8000, 0x8000, 0x8000, 0x0000, 0x0255, 0x2A86, 0x0640, 0x8000, 0x8000, 0x04E8, 0xB082, 0x3EA7, 0x8000},
       0x1.4383b2p-4f},
      {"the window starts at 2^-133, no lower",
       half_mma,
       DType::bf16,
       DType::bf16,
       {0x8000, 0x17A6, 0x8000, 0x194C, 0x0000, 0xA3DF, 0x2233, 0x0000, 0x0000, 0x1B24, 0x0000, 0x8000, 0x0000, 0x0000, 0x8000, 0x8000},
       {0x0000, 0x0000, 0x8000, 0x8000, 0x0000, 0x0000, 0x980B, 0xA374, 0x8000, 0x17CA, 0x1F39, 0xA21D, 0x8000, 0xA174, 0x9975, 0x0000},
       -0x1.84cp-138f},
      {"the window starts at 2^-133, no higher",
       half_mma,
       DType::bf16,
       DType::bf16,
       {0x9C43, 0x97E1, 0x1DA6, 0x2343, 0x9E08, 0x8000, 0x8000, 0x1CCA, 0x24A5, 0x0000, 0x18D0, 0x1747, 0x0000, 0x8000, 0x97D7, 0x0000,
        0x0000, 0x96AF, 0x17C4, 0x0000, 0x17D6, 0x0000, 0xA1DB, 0x96E3, 0xA291, 0x1B12, 0x8000, 0x8000, 0x97B5, 0x9E56, 0x8000, 0x0000},
       {0x0000, 0x0000, 0x8000, 0x8000, 0x0000, 0x1C3E, 0x1C41, 0x0000, 0x9725, 0xA3B2, 0x8000, 0x1900, 0x8000, 0xA37C, 0x8000, 0x0000,
        0x9B45, 0x0000, 0x0000, 0x9D61, 0x1A4D, 0x8000, 0x99D7, 0xA35A, 0x16D8, 0x20BD, 0x0000, 0x1A11, 0xA56F, 0xA298, 0x1AB8, 0x20D9},
       0x1.ff4996p-125f},
      {"denormal sums are cut",
       half_mma,
       DType::bf16,
       DType::bf16,
       {0x97DF, 0x2405, 0x9778, 0x1A68, 0x230E, 0x2557, 0x8000, 0x0000, 0x22DF, 0x8000, 0x0000, 0x8000, 0x8000, 0xA292, 0x1FEC, 0x1EEE,
        0x24F8, 0x0000, 0x0000, 0x8000, 0x9DC9, 0x0000, 0x0000, 0x0000, 0x8000, 0x0000, 0xA0EB, 0x0000, 0x1B54, 0x97FD, 0x971A, 0x8000},
       {0x178F, 0x0000, 0xA40F, 0x0000, 0x8000, 0x8000, 0x8000, 0x8000, 0x0000, 0x8000, 0x2322, 0x96E5, 0x0000, 0x8000, 0x0000, 0x8000,
        0x8000, 0xA1E2, 0x8000, 0x0000, 0x1983, 0x0000, 0x0000, 0x0000, 0x0000, 0x8000, 0x0000, 0x0000, 0x8000, 0x1C42, 0x0000, 0x18E9},
       0x1.144p-135f},
      {"fp8 through mma.sync goes by k mod 4",
       fp8_mma_sync,
       DType::f8_e4m3,
       DType::f8_e4m3,
       {0x00, 0x00, 0x00, 0x74, 0x00, 0x80, 0x80, 0xF9, 0xCE, 0xA8, 0x00, 0x64, 0x8E, 0xDA, 0x80, 0x00,
        0xDC, 0x00, 0x80, 0x18, 0x00, 0xE5, 0x00, 0x80, 0x84, 0x80, 0x80, 0xB5, 0x89, 0x80, 0x4F, 0xB9},
       {0x16, 0x80, 0x33, 0xC5, 0xC6, 0x80, 0x00, 0x80, 0x00, 0x78, 0x80, 0x80, 0x89, 0x00, 0x86, 0x32,
        0x29, 0xA8, 0x05, 0x00, 0x00, 0xCD, 0x00, 0x80, 0xFD, 0xB8, 0x00, 0xC7, 0x80, 0x00, 0x02, 0x57},
       -0x1.6f4c62p+8f},
      {"likewise, e5m2 on the left",
       fp8_mma_sync,
       DType::f8_e5m2,
       DType::f8_e4m3,
       {0x00, 0x80, 0x56, 0xD2, 0x00, 0x00, 0x80, 0xF0, 0x2B, 0x00, 0x70, 0xD3, 0xD4, 0x4B, 0x00, 0x00,
        0x00, 0x00, 0x45, 0x00, 0x00, 0xF7, 0x80, 0x00, 0x75, 0x00, 0x02, 0x3C, 0x00, 0x76, 0x80, 0x80},
       {0x80, 0x65, 0x80, 0x80, 0x80, 0x00, 0x5F, 0x00, 0x37, 0x00, 0xDD, 0xD0, 0x80, 0x7C, 0x71, 0x80,
        0x5B, 0x11, 0x80, 0xAF, 0xF3, 0x00, 0x66, 0xBB, 0x5A, 0x80, 0x80, 0x13, 0x80, 0x80, 0x29, 0x80},
       0x1.8b6008p+17f},
      {"likewise, e5m2 on the right",
       fp8_mma_sync,
       DType::f8_e4m3,
       DType::f8_e5m2,
       {0x00, 0x80, 0x80, 0xDA, 0x80, 0x41, 0xEF, 0xF0, 0x80, 0x3C, 0x4B, 0x00, 0x00, 0x80, 0xE1, 0x01,
        0x80, 0x80, 0xA2, 0x80, 0x00, 0xB1, 0x36, 0x00, 0x37, 0xF4, 0x46, 0x80, 0x80, 0x00, 0xDB, 0x00},
       {0x00, 0x52, 0xDD, 0x03, 0xDE, 0x00, 0x5E, 0x34, 0x80, 0x27, 0x05, 0x36, 0x28, 0x17, 0x00, 0x00,
        0x33, 0x00, 0x80, 0xBD, 0x80, 0x00, 0x80, 0xDB, 0x80, 0x04, 0x0F, 0x00, 0x69, 0x00, 0x00, 0x80},
       -0x1.683ffp+15f},
  };
  return all;
}

TEST(TensorCore, GivesTheBitsOfRecordedSteps) {
  for (const Recorded& r : recorded()) EXPECT_BITS(by_operands(r.spec, r.a_type, r.b_type, r.a, r.b), r.result) << r.rule;
}

// --- Special values -------------------------------------------------------------------------------------------------------------

TEST(TensorCore, NanFactorsGiveTheCanonicalNan) {
  for (std::uint32_t code : {0x7Fu, 0xFFu}) {
    EXPECT_EQ(bits_of(by_operands(fp8_wgmma, DType::f8_e4m3, DType::f8_e4m3, {code}, {e4m3_one})), 0x7FFFFFFFu);
    EXPECT_EQ(bits_of(by_operands(fp8_wgmma, DType::f8_e4m3, DType::f8_e4m3, {e4m3_one}, {code})), 0x7FFFFFFFu);
    EXPECT_EQ(bits_of(by_operands(fp8_wgmma, DType::f8_e4m3, DType::f8_e4m3, {0}, {code})), 0x7FFFFFFFu);
  }
  EXPECT_EQ(bits_of(by_operands(half_mma, DType::bf16, DType::bf16, {0xFF81}, {bf16_one})), 0x7FFFFFFFu);
  EXPECT_EQ(bits_of(by_operands(half_mma, DType::f16, DType::f16, {0x7C01}, {0x3C00})), 0x7FFFFFFFu);
}

TEST(TensorCore, InfinitiesWinUnlessTheyMeetZeroOrEachOther) {
  constexpr std::uint32_t plus = 0x7C, minus = 0xFC, one = 0x3C;  // e5m2
  const auto sum = [](std::vector<std::uint32_t> a, std::vector<std::uint32_t> b, float start = 0) {
    return by_operands(fp8_wgmma, DType::f8_e5m2, DType::f8_e5m2, a, b, start);
  };
  EXPECT_BITS(sum({plus, one}, {one, 0xBC}), inf);
  EXPECT_BITS(sum({minus}, {one}), -inf);
  EXPECT_BITS(sum({minus}, {minus}), inf);
  EXPECT_EQ(bits_of(sum({plus}, {0})), 0x7FFFFFFFu);
  EXPECT_EQ(bits_of(sum({plus, minus}, {one, one})), 0x7FFFFFFFu);
  EXPECT_BITS(sum({one}, {one}, -inf), -inf);
  EXPECT_EQ(bits_of(sum({plus}, {one}, -inf)), 0x7FFFFFFFu);
  EXPECT_EQ(bits_of(sum({one}, {one}, std::nanf(""))), 0x7FFFFFFFu);
}

TEST(TensorCore, OverflowGivesInfinity) {
  EXPECT_BITS(by_operands(half_mma, DType::bf16, DType::bf16, {0x7F00, 0x7F00}, {bf16_one, bf16_one}), inf);
  EXPECT_BITS(by_operands(half_mma, DType::bf16, DType::bf16, {0x7F00, 0x7F00}, {bf16_one, 0xBF80}), 0.0f);
}

TEST(TensorCore, ZeroSumsArePositive) {
  EXPECT_BITS(by_operands(fp8_wgmma, DType::f8_e4m3, DType::f8_e4m3, {0x80}, {e4m3_one}), 0.0f);
  EXPECT_BITS(by_operands(fp8_wgmma, DType::f8_e4m3, DType::f8_e4m3, {e4m3_minus_one}, {e4m3_one}, 1.0f), 0.0f);
  EXPECT_BITS(by_operands(half_mma, DType::bf16, DType::bf16, {0x9A00}, {0x1A00}), 0.0f);  // -2^-150
}

// --- The lanes against the definition -------------------------------------------------------------------------------------------

struct Draw {
  const char* name;
  std::uint32_t (*code)(DType, Random&);
};

std::uint32_t finite(DType type, std::uint32_t code) {
  switch (type) {
    case DType::f8_e4m3: return (code & 0x7F) == 0x7F ? code & ~1u : code;
    case DType::f8_e5m2: return (code & 0x7C) == 0x7C ? code & ~4u : code;
    case DType::f16: return (code & 0x7C00) == 0x7C00 ? code & ~0x400u : code;
    default: return (code & 0x7F80) == 0x7F80 ? code & ~0x80u : code;
  }
}
std::uint32_t mask(DType type) {
  return bits(type) == 8 ? 0xFFu : 0xFFFFu;
}
std::uint32_t sign(DType type) {
  return bits(type) == 8 ? 0x80u : 0x8000u;
}

const Draw draws[] = {
    {"all finite codes", [](DType t, Random& r) { return finite(t, r() & mask(t)); }},
    {"mostly zero", [](DType t, Random& r) { return r() % 10 != 0 ? r() & sign(t) : finite(t, r() & mask(t)); }},
    {"small", [](DType t, Random& r) { return r() & (bits(t) == 8      ? 0x8Fu
                                                     : t == DType::f16 ? 0x8FFFu
                                                                       : 0xA0FFu); }},
    {"moderate",
     [](DType t, Random& r) {
       return (r() & (sign(t) | mask(t) >> 3)) + (bits(t) == 8 ? 0x30u : t == DType::f16 ? 0x3000u : 0x3800u);
     }},
    {"saturated", [](DType t, Random& r) { return finite(t, sign(t) - 1u - r() % 3); }},
    {"the largest mantissa", [](DType t, Random& r) { return (bits(t) == 8 ? 0x3Fu : 0x3FFFu) | (r() % 50 == 0 ? sign(t) : 0u); }},
    {"alternating", [](DType t, Random& r) { return finite(t, sign(t) - 1u) | (r() & sign(t)); }},
    {"special values among them", [](DType t, Random& r) { return r() % 200 == 0 ? r() & mask(t) : finite(t, r() & mask(t)); }},
    {"NaN of all types", [](DType t, Random& r) { return r() % 300 == 0 ? mask(t) ^ (r() & sign(t)) : finite(t, r() & mask(t)); }},
};

struct Pair {
  MmaSpec spec;
  DType a, b;
};

const Pair pairs[] = {{fp8_wgmma, DType::f8_e4m3, DType::f8_e4m3},
                      {fp8_wgmma, DType::f8_e5m2, DType::f8_e4m3},
                      {fp8_wgmma, DType::f8_e4m3, DType::f8_e5m2},
                      {fp8_wgmma, DType::f8_e5m2, DType::f8_e5m2},
                      {half_mma, DType::bf16, DType::bf16},
                      {half_mma, DType::f16, DType::f16},
                      {sm80_half, DType::bf16, DType::bf16},
                      {sm89_fp8, DType::f8_e4m3, DType::f8_e5m2},
                      {sm100_fp8, DType::f8_e4m3, DType::f8_e4m3},
                      {sm100_fp8, DType::f8_e5m2, DType::f8_e5m2},
                      {fp8_mma_sync, DType::f8_e5m2, DType::f8_e4m3},
                      // No machine's: other numbers of products, cut in other places.
                      {{2, 3, 2, -133, half_types}, DType::bf16, DType::f16},
                      {{6, 25, 23, -20, half_types}, DType::f16, DType::f16},
                      {{24, 25, 19, -133, half_types}, DType::f16, DType::bf16},
                      {{32, 24, 23, -133, half_types}, DType::bf16, DType::bf16},
                      {{7, 20, 13, -133, fp8_types}, DType::f8_e5m2, DType::f8_e5m2}};

template <class Code>
std::vector<std::uint32_t> row_of(const std::vector<Code>& codes, std::int64_t row, std::int64_t k) {
  return {codes.begin() + row * k, codes.begin() + (row + 1) * k};
}

/// As by_steps, the codes in the order in which the unit takes them.
float dealt_by_steps(const Pair& pair, const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b, float accumulator) {
  const std::int64_t k = static_cast<std::int64_t>(a.size());
  std::vector<std::uint32_t> left(static_cast<std::size_t>(padded_k(pair.spec, k))), right(left.size());
  for (std::int64_t i = 0; i < k; ++i) {
    const auto from = static_cast<std::size_t>(i), to = static_cast<std::size_t>(position_of(pair.spec, i));
    left[to] = a[from];
    right[to] = b[from];
  }
  return by_steps(pair.spec, pair.a, pair.b, left, right, accumulator);
}

template <class Code>
void compare(const Pair& pair, const Draw& draw, std::int64_t k, Random& random) {
  const std::int64_t m = 7, n = 37;  // whole blocks of rows and panels, and what is left of each
  std::vector<Code> a(static_cast<std::size_t>(m * k)), b(static_cast<std::size_t>(n * k));
  for (Code& code : a) code = static_cast<Code>(draw.code(pair.a, random));
  for (Code& code : b) code = static_cast<Code>(draw.code(pair.b, random));
  std::vector<float> c(static_cast<std::size_t>(m * n));
  for (float& x : c) x = random() % 2 == 0 ? 0.0f : std::ldexp(static_cast<float>(random() >> 8), static_cast<int>(random() % 40) - 40);
  std::vector<float> expected(c.size());
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      const std::size_t at = static_cast<std::size_t>(i * n + j);
      expected[at] = dealt_by_steps(pair, row_of(a, i, k), row_of(b, j, k), c[at]);
    }
  }
  for (const Isa isa : available_isas()) {
    std::vector<float> sums = c;
    accumulate(MmaRows(pair.spec, pair.a, a.data(), m, k, k, isa), MmaColumns(pair.spec, pair.b, b.data(), n, k, k, isa), 0, k, sums.data(),
               n);
    for (std::size_t at = 0; at < sums.size(); ++at)
      ASSERT_EQ(bits_of(sums[at]), bits_of(expected[at]))
          << name(isa) << ", " << pair.spec.products << " products of " << name(pair.a) << " " << name(pair.b) << ", " << draw.name
          << ", k " << k << ", sum " << at << ": " << sums[at] << " for " << expected[at] << " from " << c[at];
  }
}

TEST(TensorCore, LanesEqualTheDefinition) {
  Random random(5);
  for (const Pair& pair : pairs) {
    for (const Draw& draw : draws) {
      for (std::int64_t k : {1, 16, 32, 45, 128, 500}) {
        if (bits(pair.a) == 8) {
          compare<std::uint8_t>(pair, draw, k, random);
        } else {
          compare<std::uint16_t>(pair, draw, k, random);
        }
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(TensorCore, Fp8UnderHalfIsTheSumOfItsFp16Values) {
  // The same values as fp16 codes, put in the order in which mma.sync takes them.
  Random random(6);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<std::uint32_t> a(96), b(96), wide_a(96), wide_b(96);
    const auto fp16 = [](std::uint32_t code) {  // e4m3 to f16, by search over the codes of f16
      const float value = decode_factor(fp8_wgmma, DType::f8_e4m3, code).value, magnitude = std::fabs(value);
      if (magnitude == 0) return code << 8;
      const int exponent = std::ilogb(magnitude);
      const std::uint32_t mantissa = static_cast<std::uint32_t>(std::ldexp(magnitude, 10 - exponent)) & 0x3FFu;
      return (code & 0x80u) << 8 | static_cast<std::uint32_t>(exponent + 15) << 10 | mantissa;
    };
    for (std::size_t k = 0; k < 96; ++k) {
      a[k] = finite(DType::f8_e4m3, random() & 0xFF);
      b[k] = random() % 3 == 0 ? random() & 0x87 : finite(DType::f8_e4m3, random() & 0xFF);
    }
    std::size_t next = 0;
    for (std::size_t group = 0; group < 96; group += 32) {
      for (std::size_t half : {0u, 2u}) {
        for (std::size_t k = group; k < group + 32; ++k) {
          if ((k & 2) != half) continue;
          wide_a[next] = fp16(a[k]);
          wide_b[next++] = fp16(b[k]);
        }
      }
    }
    ASSERT_EQ(bits_of(by_operands(fp8_mma_sync, DType::f8_e4m3, DType::f8_e4m3, a, b)),
              bits_of(by_steps(half_mma, DType::f16, DType::f16, wide_a, wide_b)));
  }
}

TEST(TensorCore, ARangeOfKContinuesWhereTheLastStopped) {
  Random random(7);
  const std::int64_t m = 2, n = 20, k = 300;
  std::vector<std::uint8_t> a(m * k), b(n * k);
  for (auto& code : a) code = static_cast<std::uint8_t>(finite(DType::f8_e4m3, random() & 0xFF));
  for (auto& code : b) code = static_cast<std::uint8_t>(finite(DType::f8_e4m3, random() & 0xFF));
  const MmaRows rows(fp8_wgmma, DType::f8_e4m3, a.data(), m, k);
  const MmaColumns columns(fp8_wgmma, DType::f8_e4m3, b.data(), n, k);
  std::vector<float> whole(m * n), parts(m * n);
  accumulate(rows, columns, 0, k, whole.data(), n);
  for (std::int64_t from : {0, 128, 256}) accumulate(rows, columns, from, std::min(from + 128, k), parts.data(), n);
  EXPECT_EQ(whole, parts);
  // Restarting is another sum.
  std::vector<float> restarted(m * n);
  for (std::int64_t from : {0, 128, 256}) {
    std::vector<float> partial(m * n);
    accumulate(rows, columns, from, std::min(from + 128, k), partial.data(), n);
    for (std::size_t i = 0; i < partial.size(); ++i) restarted[i] += partial[i];
  }
  EXPECT_NE(whole, restarted);
}

TEST(TensorCore, StridedOperandsAndOutputsEqualContiguousOnes) {
  Random random(8);
  const std::int64_t m = 3, n = 18, k = 64, stride = 80, c_stride = 25;
  std::vector<std::uint8_t> a(m * stride), b(n * stride);
  for (auto& code : a) code = static_cast<std::uint8_t>(random() & 0x77);
  for (auto& code : b) code = static_cast<std::uint8_t>(random() & 0x77);
  std::vector<float> c(m * c_stride, -1.0f);
  for (std::int64_t i = 0; i < m; ++i) std::fill_n(c.begin() + i * c_stride, n, 0.0f);
  accumulate(MmaRows(fp8_wgmma, DType::f8_e4m3, a.data(), m, k, stride), MmaColumns(fp8_wgmma, DType::f8_e4m3, b.data(), n, k, stride), 0,
             k, c.data(), c_stride);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < c_stride; ++j) {
      const float got = c[static_cast<std::size_t>(i * c_stride + j)];
      if (j >= n) {
        EXPECT_EQ(got, -1.0f);
        continue;
      }
      const std::vector<std::uint32_t> x(a.begin() + i * stride, a.begin() + i * stride + k),
          y(b.begin() + j * stride, b.begin() + j * stride + k);
      EXPECT_BITS(got, by_steps(fp8_wgmma, DType::f8_e4m3, DType::f8_e4m3, x, y));
    }
  }
}

TEST(TensorCore, IntegersAreExactModulo2To32) {
  const std::vector<std::int8_t> a{-128, 127, 3}, b{-128, -128, 7, 1, 1, 1};
  std::vector<std::int32_t> c{100, std::numeric_limits<std::int32_t>::max()};
  accumulate_i8(a.data(), b.data(), 3, 2, 3, c.data());
  EXPECT_EQ(c[0], 100 + 128 * 128 - 127 * 128 + 21);
  EXPECT_EQ(c[1], std::numeric_limits<std::int32_t>::min() + 1);
}

TEST(TensorCore, EmptySumsLeaveTheAccumulators) {
  std::vector<float> c{1.0f, -2.0f};
  accumulate(MmaRows(fp8_wgmma, DType::f8_e4m3, nullptr, 1, 0), MmaColumns(fp8_wgmma, DType::f8_e4m3, nullptr, 2, 0), 0, 0, c.data(), 2);
  EXPECT_EQ(c, (std::vector<float>{1.0f, -2.0f}));
  const std::vector<std::uint16_t> a(5);
  accumulate(MmaRows(half_mma, DType::bf16, a.data(), 1, 5), MmaColumns(half_mma, DType::bf16, nullptr, 0, 5), 0, 5, nullptr, 0);
}

TEST(TensorCore, RefusesWhatDoesNotFit) {
  const std::vector<std::uint8_t> codes(64);
  EXPECT_THROW(MmaRows(fp8_wgmma, DType::bf16, codes.data(), 1, 32), Error);
  EXPECT_THROW(MmaRows(half_mma, DType::f32, codes.data(), 1, 16), Error);
  EXPECT_THROW(MmaRows(half_mma, DType::f8_e4m3, codes.data(), 1, 32), Error);
  EXPECT_THROW(MmaColumns({64, 13, 13, -133, fp8_types}, DType::f8_e4m3, codes.data(), 1, 64), Error);
  EXPECT_THROW(MmaRows(fp8_wgmma, DType::f8_e4m3, codes.data(), -1, 32), Error);
  const MmaRows rows(fp8_wgmma, DType::f8_e4m3, codes.data(), 1, 64), widened(fp8_mma_sync, DType::f8_e4m3, codes.data(), 1, 64);
  const MmaColumns columns(fp8_wgmma, DType::f8_e4m3, codes.data(), 1, 64), short_columns(fp8_wgmma, DType::f8_e4m3, codes.data(), 1, 32);
  float sum = 0;
  EXPECT_NO_THROW(accumulate(rows, columns, 32, 64, &sum, 1));
  EXPECT_THROW(accumulate(rows, columns, 16, 64, &sum, 1), Error);
  EXPECT_THROW(accumulate(rows, columns, 0, 96, &sum, 1), Error);
  EXPECT_THROW(accumulate(rows, columns, 64, 32, &sum, 1), Error);
  EXPECT_THROW(accumulate(rows, short_columns, 0, 32, &sum, 1), Error);
  EXPECT_THROW(accumulate(widened, columns, 0, 64, &sum, 1), Error);
}

}  // namespace
}  // namespace dodona::quant::tensor_core
