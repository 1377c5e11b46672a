// Rotations of numbers so small that products are denormal: the way around denormals gives the bits of the way through them.
#include "ops/rows/rotation/rotate.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/ops/helpers.h"
#include "tests/simd/samples.h"

namespace dodona {
namespace {

constexpr std::int64_t heads = 40, pairs = 27;

/// Magnitudes of 2^low to 2^high, of either sign; every `zeros`-th number is a zero.
std::vector<float> numbers(std::size_t count, int low, int high, std::uint64_t seed, std::uint64_t zeros = 9) {
  samples::Bits bits(seed);
  std::vector<float> found;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t word = bits.next();
    const auto exponent = low + static_cast<int>(bits.next() % static_cast<std::uint64_t>(high - low + 1));
    const double mantissa = 1.0 + static_cast<double>(word >> 40) * 0x1p-24;
    const double magnitude = bits.next() % zeros == 0 ? 0.0 : std::ldexp(mantissa, exponent);
    found.push_back(static_cast<float>((word & 1) != 0 ? -magnitude : magnitude));
  }
  return found;
}

struct Rows {
  std::vector<float> heads, table;  ///< table: cosines, then sines
};

std::vector<std::byte> stored(DType type, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(bits(type) / 8));
  quant::from_f32(type, values.data(), bytes.data(), static_cast<std::int64_t>(values.size()));
  return bytes;
}

std::vector<std::byte> rotated(const Rows& rows, DType type, ops::RotaryRounding rounding, bool neox, bool avoid_denormals, Isa isa) {
  std::vector<std::byte> x = stored(type, rows.heads);
  const std::vector<std::byte> table = stored(rounding == ops::RotaryRounding::once ? DType::f32 : type, rows.table);
  const std::int64_t head_bytes = 2 * pairs * bits(type) / 8;
  dispatch<ops::RotateKernel>(isa, ops::RotateHeads{.heads = x.data(),
                                                    .count = heads,
                                                    .stride = head_bytes,
                                                    .cos_sin = table.data(),
                                                    .pairs = pairs,
                                                    .type = type,
                                                    .neox = neox,
                                                    .rounding = rounding,
                                                    .avoid_denormals = avoid_denormals});
  return x;
}

struct Magnitudes {
  const char* what;
  int low, high;              ///< of the numbers
  int table_low, table_high;  ///< of cosines and sines
};

TEST(Rotate, TheWayAroundDenormalsGivesTheBitsOfTheWayThroughThem) {
  const Magnitudes table[] = {{"denormals", -149, -127, -12, -1},
                              {"one or two units", -149, -147, -2, 0},
                              {"around the smallest normal", -128, -124, -3, 0},
                              {"normal, their products not", -126, -110, -24, 0},
                              {"all of these", -149, -90, -24, 0},
                              {"too large for it", -149, -20, -12, 0},
                              {"factors above one", -149, -120, 0, 3},
                              {"ordinary", -4, 4, -4, 0}};
  std::uint64_t seed = 1;
  for (const Magnitudes& m : table)
    for (int round = 0; round < 20; ++round) {
      const Rows rows{numbers(2 * pairs * heads, m.low, m.high, ++seed), numbers(2 * pairs, m.table_low, m.table_high, ++seed)};
      for (const DType type : {DType::f32, DType::bf16, DType::f16})
        for (const auto rounding : {ops::RotaryRounding::once, ops::RotaryRounding::each_step})
          for (const bool neox : {false, true}) {
            if (type == DType::f32 && rounding == ops::RotaryRounding::each_step) continue;
            const auto through = rotated(rows, type, rounding, neox, false, Isa::generic);
            for (const Isa isa : available_isas())
              ASSERT_EQ(rotated(rows, type, rounding, neox, true, isa), through) << m.what << " " << name(type) << " " << name(isa);
          }
    }
}

TEST(Rotate, DenormalsAreRotatedByIeeeArithmetic) {
  const Rows rows{numbers(2 * pairs * heads, -149, -120, 5), numbers(2 * pairs, -10, 0, 6)};
  const auto found = rotated(rows, DType::f32, ops::RotaryRounding::once, true, true, default_isa());
  for (std::size_t h = 0; h < heads; ++h)
    for (std::size_t i = 0; i < pairs; ++i) {
      const float c = rows.table[i], s = rows.table[pairs + i];
      const float u = rows.heads[h * 2 * pairs + i], v = rows.heads[h * 2 * pairs + pairs + i];
      float first = 0, second = 0;
      std::memcpy(&first, &found[4 * (h * 2 * pairs + i)], 4);
      std::memcpy(&second, &found[4 * (h * 2 * pairs + pairs + i)], 4);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(first), std::bit_cast<std::uint32_t>(std::fma(u, c, -(v * s)))) << u << " " << v;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(second), std::bit_cast<std::uint32_t>(std::fma(v, c, u * s))) << u << " " << v;
    }
}

}  // namespace
}  // namespace dodona
