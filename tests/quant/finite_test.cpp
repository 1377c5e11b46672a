#include "quant/finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "quant/element.h"

namespace dodona::quant {
namespace {

/// Against the values, code by code: wherever it stands, alone and behind another.
TEST(Finite, TheFirstElementThatIsNoFiniteNumberIsFound) {
  for (const DType type : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::f8_e4m3, DType::f8_e5m2, DType::f8_e8m0, DType::f4_e2m1,
                           DType::i8, DType::u8, DType::i32}) {
    constexpr std::int64_t n = 10'000;
    std::vector<std::byte> row(static_cast<std::size_t>(bytes_for(type, n)) + 1);
    // Unaligned.
    void* const base = row.data() + 1;
    for (std::int64_t i = 0; i < n; ++i) store(type, base, i, 1);
    EXPECT_EQ(first_not_finite(type, base, n), n) << name(type);
    EXPECT_EQ(first_not_finite(type, base, 0), 0) << name(type);
    const int width = bits(type), shift = width > 16 ? width - 16 : 0;
    for (std::uint64_t code = 0; code < (std::uint64_t{1} << (width - shift)); ++code) {
      const std::int64_t at = static_cast<std::int64_t>(code * 7919 % n);
      store_bits(type, base, at, code << shift);
      const bool finite = std::isfinite(load(type, base, at));
      const std::int64_t found = first_not_finite(type, base, n);
      ASSERT_EQ(found, finite ? n : at) << name(type) << " " << code;
      if (width > 8) code += 12;
      store(type, base, at, 1);
    }
    if (!is_float(type) || type == DType::f4_e2m1) continue;
    store(type, base, 7000, std::nan(""));
    store(type, base, 4100, std::nan(""));
    EXPECT_EQ(first_not_finite(type, base, n), 4100) << name(type);
  }
}

}  // namespace
}  // namespace dodona::quant
