#include "ops/softmax/triton/arithmetic.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "core/fixed_math.h"
#include "dodona/error.h"
#include "quant/hopper/fast_math.h"
#include "quant/tensor_core/unit.h"

namespace dodona::ops {

void check_temperature(std::int64_t length) {
  if (length == 0 || length == 1)
    throw Error(ErrorCode::bad_value, "", "xai_temperature_len",
                "is " + std::to_string(length) + ", expected -1 or at least 2: its logarithm divides");
}

}  // namespace dodona::ops

namespace dodona::ops::triton {
namespace {

namespace hw = quant::hopper;

/// fl64(a*b + c) rounded to odd, so that a later rounding is the only one.
double odd_fma(double a, double b, double c) {
  const double product = a * b, sum = product + c, part = sum - product, lost = (product - (sum - part)) + (c - part);
  if (lost == 0 || !std::isfinite(sum) || (std::bit_cast<std::uint64_t>(sum) & 1) != 0) return sum;
  return std::nextafter(sum, lost > 0 ? 1e300 : -1e300);
}

float quad(const std::array<float, 4>& a) {
  return (a[0] + a[2]) + (a[1] + a[3]);
}

/// libdevice's logarithms: x = 2^power * (1 + m).
struct Logarithm {
  float m, power, normal;
  bool special;  ///< 0, infinity, NaN
  Logarithm(float x, std::uint32_t from) {
    const bool small = x < 0x1p-126f;
    normal = small ? x * 0x1p23f : x;
    const auto bits = std::bit_cast<std::uint32_t>(normal);
    const auto exponent = static_cast<std::int32_t>((bits - from) & 0xFF800000u);
    m = std::bit_cast<float>(bits - static_cast<std::uint32_t>(exponent)) - 1.0f;
    power = std::fma(static_cast<float>(exponent), 0x1p-23f, small ? -23.0f : 0.0f);
    special = bits >= 0x7F800000u || normal == 0;
  }
  float of_special() const {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    return normal == 0 ? -infinity : std::fma(normal, infinity, infinity);
  }
};

float polynomial(std::span<const std::uint32_t> coefficients, float m) {
  float r = std::bit_cast<float>(coefficients.front());
  for (const std::uint32_t c : coefficients.subspan(1)) r = std::fma(r, m, std::bit_cast<float>(c));
  return r;
}

}  // namespace

double ElementMath::fma(double a, double b, double c) const {
  return quant::round_to(type_, odd_fma(a, b, c));
}

float exp(float x) {
  return hw::expf_denormal(x);
}

float div(float a, float b) {
  const float magnitude = std::fabs(b);
  const float scale = magnitude > 0x1p126f ? 0.25f : magnitude < 0x1p-126f ? 0x1p24f : 1.0f;
  return (a * scale) * hw::rcp(b * scale);
}

float log(float x) {
  static constexpr std::array<std::uint32_t, 9> coefficients{0xBE055027, 0x3E1039F6, 0xBDF8CDCC, 0x3E0F2955, 0xBE2AD8B9,
                                                             0x3E4CED0B, 0xBE7FFF22, 0x3EAAAA78, 0xBF000000};
  const Logarithm l(x, 0x3F2AAAABu);
  if (l.special) return l.of_special();
  const float r = l.m * polynomial(coefficients, l.m);
  return std::fma(l.power, hw::ln_2, std::fma(r, l.m, l.m));
}

float temperature(std::int64_t position, std::int64_t length) {
  static constexpr std::array<std::uint32_t, 10> coefficients{0x3DC6B27F, 0xBE2C7F30, 0x3E2FCF2A, 0xBE374E43, 0x3E520BF4,
                                                              0xBE763C8B, 0x3E93BF99, 0xBEB8AA49, 0x3EF6384A, 0xBF38AA3B};
  const Logarithm l(static_cast<float>(position), 0x3F3504F3u);
  const float r = l.m * (l.m * polynomial(coefficients, l.m)), log2_position = l.power + std::fma(l.m, hw::log2_e, r);
  // The compiler's own division by a constant.
  return log2_position * (1.0f / static_cast<float>(fixed::log2(static_cast<double>(length))));
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
  std::array<float, 8> warps{};
  for (std::size_t w = 0; w < p.size() / 8; ++w) warps[w] = row_sum(p.subspan(8 * w, 8));
  for (std::size_t half = p.size() / 16; half > 0; half /= 2)
    for (std::size_t w = 0; w < half; ++w) warps[w] = warps[w] + warps[w + half];
  return warps[0];
}

void multiply(const quant::tensor_core::MmaSpec& unit, DType type, const Codes& a, const Codes& b, std::int64_t k, float* c,
              std::int64_t c_stride, Isa isa) {
  accumulate(MmaRows(unit, type, a.first, a.rows, k, a.stride, isa), MmaColumns(unit, type, b.first, b.rows, k, b.stride, isa), 0, k, c,
             c_stride);
}

}  // namespace dodona::ops::triton
