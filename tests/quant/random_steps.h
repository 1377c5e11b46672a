// Random and edge operands of steps, m x n steps out of m rows and n columns.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ops/tiles/mma/mma.h"
#include "ops/tiles/mma/mma_fp4.h"
#include "tests/quant/step_formats.h"

namespace dodona::steps {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t operator()() {  // splitmix64
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ull);
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
  }
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>((*this)() >> 32) % n; }
  bool one_in(std::uint32_t n) { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

struct Batch {
  int m = 0, n = 0;
  std::vector<std::uint8_t> a, b;  ///< lines of codes in memory: two bytes, one byte, or two codes a byte
  std::vector<std::uint8_t> scale_a, scale_b;
  std::vector<std::uint32_t> c;  ///< [m, n]
};

inline int code_bits(Code code) {
  return code == Code::bf16 || code == Code::f16 ? 16 : 8;
}
inline std::int64_t line_bytes(const Format& format, Code code) {
  return format.fp4 != nullptr ? format.k() / 2 : format.k() * code_bits(code) / 8;
}

/// Line `line` of codes in memory.
inline Codes codes_of(const Format& format, Code code, const std::vector<std::uint8_t>& memory, const std::vector<std::uint8_t>& scales,
                      std::int64_t line) {
  Codes codes;
  const std::uint8_t* const at = memory.data() + line * line_bytes(format, code);
  for (int k = 0; k < format.k(); ++k) {
    if (format.fp4 != nullptr) {
      codes.numbers.push_back(at[k / 2] >> (k % 2 * 4) & 15u);
    } else if (code_bits(code) == 16) {
      codes.numbers.push_back(at[2 * k] | static_cast<std::uint32_t>(at[2 * k + 1]) << 8);
    } else {
      codes.numbers.push_back(at[k]);
    }
  }
  codes.scales.assign(scales.begin() + line * format.scales(), scales.begin() + (line + 1) * format.scales());
  return codes;
}

namespace detail {

/// One line: all codes, exponents that lie close, denormals, sparse, zeros, powers of two, the largest, or nearly normal numbers.
inline void draw_line(Random& random, const integer_steps::Shape& shape, int k, std::uint32_t* codes) {
  const int width = 1 + shape.exponent_bits + shape.fraction_bits;
  const std::uint32_t exponents = 1u << shape.exponent_bits, fractions = 1u << shape.fraction_bits, all = (1u << width) - 1;
  const std::uint32_t kind = random.below(12), base = random.below(exponents), bias = exponents / 2 - 1;
  for (int i = 0; i < k; ++i) {
    const std::uint32_t sign = random.below(2) << (width - 1), fraction = random.below(fractions);
    const auto with = [&](std::uint32_t exponent, std::uint32_t f) { return sign | std::min(exponent, exponents - 2) * fractions | f; };
    switch (kind) {
      case 0: codes[i] = static_cast<std::uint32_t>(random()) & all; break;
      case 1: codes[i] = with(base + random.below(3), fraction); break;
      case 2: codes[i] = with(random.one_in(4) ? random.below(exponents) : 0, fraction); break;
      case 3: codes[i] = random.one_in(5) ? with(random.below(exponents), fraction) : sign; break;
      case 4: codes[i] = random.one_in(k) ? with(base, fraction) : sign; break;
      case 5: codes[i] = with(random.below(exponents), 0); break;
      case 6: codes[i] = with(exponents - 2 - std::min(exponents - 2, random.below(2)), fraction); break;
      default: {  // geometric below the top: as normal numbers fall
        const std::uint32_t down = static_cast<std::uint32_t>(std::countl_zero(random() | 1));
        const std::uint32_t top = bias + 1;
        codes[i] = with(top > down ? top - down : 0, fraction);
      }
    }
  }
  if (!random.one_in(24)) return;  // an infinity, a NaN, or the last codes of a type that has none
  codes[random.below(static_cast<std::uint32_t>(k))] =
      (random.below(2) << (width - 1)) | (exponents - 1) * fractions | random.below(fractions);
}

inline void draw_scales(Random& random, const Format& format, std::uint8_t* scales) {
  const std::uint32_t kind = random.below(8);
  const auto base = static_cast<std::uint8_t>(random());
  for (int i = 0; i < format.scales(); ++i) {
    const auto any = static_cast<std::uint8_t>(random());
    const std::uint8_t one = format.integers.scale == Scale::ue8m0 ? 127 : 0x38;
    switch (kind) {
      case 0: scales[i] = any; break;
      case 1: scales[i] = base; break;
      case 2: scales[i] = static_cast<std::uint8_t>(any % 8); break;
      case 3: scales[i] = static_cast<std::uint8_t>(one + any % 64 - 32); break;
      default: scales[i] = static_cast<std::uint8_t>(one + any % 16 - 8);
    }
  }
  if (format.scales() > 0 && random.one_in(40))
    scales[random.below(static_cast<std::uint32_t>(format.scales()))] = random.one_in(2) ? 0xFF : 0x7F;
}

inline std::uint32_t draw_accumulator(Random& random) {
  const std::uint32_t any = static_cast<std::uint32_t>(random()), sign = any & 0x80000000u, fraction = any & 0x7FFFFFu;
  const auto with = [&](std::uint32_t field) { return sign | field << 23 | fraction; };
  switch (random.below(16)) {
    case 0: return sign;
    case 1: return any;
    case 2: return sign | fraction;                                    // denormal
    case 3: return with(random.below(4));                              // barely normal
    case 4: return with(250 + random.below(5));                        // about the largest
    case 5: return random.one_in(4) ? with(255) : sign | 0x7F800000u;  // NaN, infinity
    case 6: return sign | (127 + random.below(20)) << 23;              // powers of two
    case 7:
    case 8:
    case 9: return with(97 + random.below(60));
    default: return with(120 + random.below(16));
  }
}

}  // namespace detail

/// Ordinary: numbers as a layer has them, no specials, no far accumulators; for speed.
enum class Kind { all, ordinary };

inline void store_line(const Format& format, Code code, const std::vector<std::uint32_t>& codes, std::vector<std::uint8_t>& memory) {
  for (std::size_t k = 0; k < codes.size(); ++k) {
    if (format.fp4 != nullptr) {
      if (k % 2 == 0) memory.push_back(static_cast<std::uint8_t>(codes[k] | codes[k + 1] << 4));
    } else {
      memory.push_back(static_cast<std::uint8_t>(codes[k]));
      if (code_bits(code) == 16) memory.push_back(static_cast<std::uint8_t>(codes[k] >> 8));
    }
  }
}

inline Batch draw(Random& random, const Format& format, int m, int n, Kind kind = Kind::all) {
  Batch batch{m, n, {}, {}, {}, {}, {}};
  const auto lines = [&](Code code, int count, std::vector<std::uint8_t>& memory, std::vector<std::uint8_t>& scales) {
    const integer_steps::Shape shape = integer_steps::shape_of(code);
    std::vector<std::uint32_t> codes(static_cast<std::size_t>(format.k()));
    std::vector<std::uint8_t> own(static_cast<std::size_t>(format.scales()));
    for (int line = 0; line < count; ++line) {
      if (kind == Kind::all) {
        detail::draw_line(random, shape, format.k(), codes.data());
        detail::draw_scales(random, format, own.data());
      } else {
        const std::uint32_t bias = (1u << (shape.exponent_bits - 1)) - 1, fractions = 1u << shape.fraction_bits;
        for (std::uint32_t& one : codes) {
          const auto down = static_cast<std::uint32_t>(std::countl_zero(random() | 1));
          one = random.below(2) << (shape.exponent_bits + shape.fraction_bits) | (bias + 1 > down ? bias + 1 - down : 0) * fractions |
                random.below(fractions);
        }
        for (std::uint8_t& scale : own)
          scale = static_cast<std::uint8_t>((format.integers.scale == Scale::ue8m0 ? 124 : 0x34) + random.below(6));
      }
      store_line(format, code, codes, memory);
      scales.insert(scales.end(), own.begin(), own.end());
    }
  };
  lines(format.integers.a, m, batch.a, batch.scale_a);
  lines(format.integers.b, n, batch.b, batch.scale_b);
  for (int i = 0; i < m * n; ++i)
    batch.c.push_back(kind == Kind::all ? detail::draw_accumulator(random)
                                        : (random.below(2) << 31 | (127 + random.below(4)) << 23 | random.below(1u << 23)));
  return batch;
}

/// d of all m x n steps, or chains of steps, as fast as this library has them.
inline std::vector<float> by_library(const Format& format, const Batch& batch, Isa isa = default_isa()) {
  std::vector<float> d(batch.c.size());
  std::memcpy(d.data(), batch.c.data(), d.size() * sizeof(float));
  const std::int64_t k = format.k();
  if (format.fp4 != nullptr) {
    const ops::Fp4Rows rows(*format.fp4, {batch.a.data(), k / 2, batch.scale_a.data()}, batch.m, k, isa);
    const ops::Fp4Columns columns(*format.fp4, {batch.b.data(), k / 2, batch.scale_b.data()}, batch.n, k, isa);
    ops::accumulate(rows, columns, 0, k, d.data(), batch.n);
    return d;
  }
  const auto operand = [&]<class Operand>(Operand*, Code code, const std::vector<std::uint8_t>& codes,
                                          const std::vector<std::uint8_t>& scales, std::int64_t lines) {
    const ops::MmaScales own{scales.empty() ? nullptr : scales.data(), format.scales()};
    if (code == Code::e2m1) return Operand(*format.unit, tc::SmallFloat::e2m1, codes.data(), lines, k, k, isa, own);
    const DType type = code == Code::bf16   ? DType::bf16
                       : code == Code::f16  ? DType::f16
                       : code == Code::e4m3 ? DType::f8_e4m3
                                            : DType::f8_e5m2;
    return Operand(*format.unit, type, codes.data(), lines, k, k, isa, own);
  };
  const auto rows = operand(static_cast<ops::MmaRows*>(nullptr), format.integers.a, batch.a, batch.scale_a, batch.m);
  const auto columns = operand(static_cast<ops::MmaColumns*>(nullptr), format.integers.b, batch.b, batch.scale_b, batch.n);
  ops::accumulate(rows, columns, 0, k, d.data(), batch.n);
  return d;
}

/// The same in integers.
inline std::vector<std::uint32_t> by_integers(const Format& format, const Batch& batch) {
  const auto operands = [&](Code code, int count, const std::vector<std::uint8_t>& memory, const std::vector<std::uint8_t>& scales) {
    std::vector<integer_steps::Operand> all;
    for (int line = 0; line < count; ++line) all.push_back(operand_of(format, code, codes_of(format, code, memory, scales, line)));
    return all;
  };
  const auto a = operands(format.integers.a, batch.m, batch.a, batch.scale_a),
             b = operands(format.integers.b, batch.n, batch.b, batch.scale_b);
  std::vector<std::uint32_t> d;
  for (const auto& row : a)
    for (const auto& column : b) d.push_back(integer_steps::step(format.integers, row, column, batch.c[d.size()]));
  return d;
}

}  // namespace dodona::steps
