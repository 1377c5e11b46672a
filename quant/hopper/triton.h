// Arithmetic of Triton's kernels as they are compiled for an H200: denormals are kept, division is `div.full`, exp the hardware's ex2,
// log libdevice's polynomial. And the order in which a block of threads adds up a row.
// Inline functions are compiled for the caller's instruction set: do not call them from *.simd.cpp files.
//
// Source: PTX ISA `div.full.f32`; Triton 3.6, as its PTX for sm_90a shows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "quant/hopper/fast_math.h"

namespace dodona::quant::hopper::triton {

/// a / b by the approximate reciprocal, both scaled where that would be denormal.
inline float div(float a, float b) {
  const float magnitude = std::fabs(b);
  const float scale = magnitude > 0x1p126f ? 0.25f : magnitude < 0x1p-126f ? 0x1p24f : 1.0f;
  const float quotient = a * scale * rcp(b * scale);
  return quotient != quotient ? canonical_nan() : quotient;
}

inline float exp(float x) {
  return expf_denormal(x);
}

/// libdevice's logf.
inline float log(float x) {
  if (!(x > 0.0f && x < std::numeric_limits<float>::infinity())) {
    if (x == 0.0f) return -std::numeric_limits<float>::infinity();
    return x > 0.0f ? x : canonical_nan();
  }
  static constexpr std::uint32_t coefficients[] = {0x3E1039F6u, 0xBDF8CDCCu, 0x3E0F2955u, 0xBE2AD8B9u,
                                                   0x3E4CED0Bu, 0xBE7FFF22u, 0x3EAAAA78u, 0xBF000000u};
  const bool small = x < 0x1p-126f;
  const std::uint32_t bits = detail::bits_of(small ? x * 0x1p23f : x), exponent = (bits - 0x3F2AAAABu) & 0xFF800000u;
  const float m = detail::float_of(bits - exponent) - 1.0f;
  const float f = std::fma(static_cast<float>(static_cast<std::int32_t>(exponent)), 0x1p-23f, small ? -23.0f : 0.0f);
  float r = detail::float_of(0xBE055027u);
  for (const std::uint32_t c : coefficients) r = std::fma(r, m, detail::float_of(c));
  r = std::fma(m * r, m, m);
  return std::fma(f, ln_2, r);
}

/// How a row lies in a block of threads: `together` neighbours in a thread, 32 threads in a warp, then the warps, then again from the first
/// thread on.
struct RowLayout {
  std::int64_t block;  ///< numbers, a power of two; a shorter row ends in zeros
  std::int64_t together, warps;
};

/// The layout of loads and stores of a row of `block` elements whose rows begin `stride` elements apart: as many neighbours a thread as the
/// smallest of the types has in 16 bytes, where rows are known to begin at whole ones.
inline RowLayout layout_of(std::int64_t block, std::int64_t stride, std::int64_t warps, int smallest_bits) {
  constexpr std::int64_t known_multiple = 16;
  const std::int64_t most = std::max<std::int64_t>(block / (32 * warps), 1);
  return {block, stride % known_multiple == 0 ? std::min<std::int64_t>(128 / smallest_bits, most) : 1, warps};
}

/// The sum of `x`: each thread adds its own in order, then threads of a warp and warps by halves. `add` is the addition of the type.
template <class Add>
float row_sum(const RowLayout& layout, std::span<const float> x, const Add& add) {
  const std::int64_t lanes = std::min<std::int64_t>(32, layout.block / layout.together);
  const std::int64_t warps = std::clamp<std::int64_t>(layout.block / (layout.together * lanes), 1, layout.warps);
  const std::int64_t threads = lanes * warps, wave = threads * layout.together;
  std::vector<float> sums(static_cast<std::size_t>(threads));
  for (std::int64_t t = 0; t < threads; ++t) {
    bool first = true;
    for (std::int64_t begin = t * layout.together; begin < layout.block; begin += wave)
      for (std::int64_t i = begin; i < begin + layout.together; ++i) {
        const float value = i < static_cast<std::int64_t>(x.size()) ? x[static_cast<std::size_t>(i)] : 0.0f;
        float& sum = sums[static_cast<std::size_t>(t)];
        sum = first ? value : add(sum, value);
        first = false;
      }
  }
  const auto by_halves = [&](std::int64_t begin, std::int64_t count, std::int64_t stride) {
    for (std::int64_t half = count / 2; half > 0; half /= 2)
      for (std::int64_t i = 0; i < half; ++i) {
        float& sum = sums[static_cast<std::size_t>(begin + i * stride)];
        sum = add(sum, sums[static_cast<std::size_t>(begin + (i + half) * stride)]);
      }
  };
  for (std::int64_t w = 0; w < warps; ++w) by_halves(w * lanes, lanes, 1);
  by_halves(0, warps, lanes);
  return sums.front();
}

inline float add_f32(float a, float b) {
  const float sum = a + b;
  return sum != sum ? canonical_nan() : sum;
}

}  // namespace dodona::quant::hopper::triton
