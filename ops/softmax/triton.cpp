#include "ops/softmax/triton.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "quant/hopper/fast_math.h"
#include "quant/tensor_core/unit.h"

namespace dodona::ops::triton {
namespace {

namespace hw = quant::hopper;

float quad(const std::array<float, 4>& a) {
  return (a[0] + a[2]) + (a[1] + a[3]);
}

}  // namespace

float exp(float x) {
  return hw::expf_denormal(x);
}

float div(float a, float b) {
  const float magnitude = std::fabs(b);
  const float scale = magnitude > 0x1p126f ? 0.25f : magnitude < 0x1p-126f ? 0x1p24f : 1.0f;
  return (a * scale) * hw::rcp(b * scale);
}

float log(float x) {
  constexpr std::array<std::uint32_t, 8> coefficients{0x3E1039F6, 0xBDF8CDCC, 0x3E0F2955, 0xBE2AD8B9,
                                                      0x3E4CED0B, 0xBE7FFF22, 0x3EAAAA78, 0xBF000000};
  const bool small = x < 0x1p-126f;
  const float normal = small ? x * 0x1p23f : x;
  const auto bits = std::bit_cast<std::uint32_t>(normal);
  const auto exponent = static_cast<std::int32_t>((bits - 0x3F2AAAABu) & 0xFF800000u);
  const float m = std::bit_cast<float>(bits - static_cast<std::uint32_t>(exponent)) - 1.0f;
  const float power = std::fma(static_cast<float>(exponent), 0x1p-23f, small ? -23.0f : 0.0f);
  float r = std::bit_cast<float>(0xBE055027u);
  for (const std::uint32_t c : coefficients) r = std::fma(r, m, std::bit_cast<float>(c));
  r = m * r;
  r = std::fma(r, m, m);
  r = std::fma(power, hw::ln_2, r);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  if (bits >= 0x7F800000u) return std::fma(normal, infinity, infinity);
  return normal == 0 ? -infinity : r;
}

float capped(float x, float cap) {
  // Division by a constant: a product with its correctly rounded reciprocal.
  const float z = std::fma(x * (1.0f / cap), -2.0f, 0.0f);
  return std::fma(div(1.0f, exp(z) + 1.0f), 2.0f, -1.0f) * cap;
}

float row_sum(std::span<const float> p) {
  std::array<float, 4> a;
  for (std::size_t t = 0; t < 4; ++t) {
    a[t] = p[2 * t] + p[2 * t + 1];
    for (std::size_t g = 8; g < p.size(); g += 8) {
      a[t] = a[t] + p[g + 2 * t];
      a[t] = a[t] + p[g + 2 * t + 1];
    }
  }
  return quad(a);
}

float row_sum_of_warps(std::span<const float> p) {
  std::array<float, 4> warps;
  for (std::size_t w = 0; w < 4; ++w) warps[w] = row_sum(p.subspan(8 * w, 8));
  return quad(warps);
}

void multiply(DType type, const Codes& a, const Codes& b, std::int64_t k, float* c, std::int64_t c_stride, Isa isa) {
  accumulate(MmaRows(quant::tensor_core::half_mma, type, a.first, a.rows, k, a.stride, isa),
             MmaColumns(quant::tensor_core::half_mma, type, b.first, b.rows, k, b.stride, isa), 0, k, c, c_stride);
}

}  // namespace dodona::ops::triton
