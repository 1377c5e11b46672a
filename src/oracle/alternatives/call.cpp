#include "oracle/alternatives/call.h"

#include <cmath>
#include <limits>

#include "core/fixed_math.h"
#include "quant/e4m3.h"
#include "quant/e5m2.h"
#include "quant/element.h"

namespace dodona::oracle::alternatives {

const AttrValue& Call::attr(std::string_view name) const {
  const AttrValue* given = arguments.find_attr(name);
  return given != nullptr ? *given : op.schema().find_attr(name)->default_value;
}

double Call::number(std::string_view name) const {
  const AttrValue& value = attr(name);
  const auto* whole = std::get_if<std::int64_t>(&value);
  return whole != nullptr ? static_cast<double>(*whole) : std::get<double>(value);
}

std::vector<float> floats(const Tensor& tensor) {
  const Tensor dense = tensor.contiguous() ? tensor : tensor.clone();
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  quant::to_f32(dense.dtype(), dense.data(), values.data(), tensor.elements());
  return values;
}

std::vector<std::int64_t> integers(const Tensor& tensor) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) values.push_back(static_cast<std::int64_t>(quant::get(tensor, i)));
  return values;
}

void store(const Tensor& tensor, std::int64_t linear, float value) {
  quant::set(tensor, linear, static_cast<double>(value));
}

void store_fp8(const Tensor& tensor, std::int64_t linear, float value) {
  const auto wide = static_cast<double>(value);
  quant::set_bits(tensor, linear, tensor.dtype() == DType::f8_e4m3 ? quant::to_e4m3_satfinite(wide) : quant::to_e5m2_satfinite(wide));
}

float rounded(DType type, float value) {
  return static_cast<float>(quant::round_to(type, static_cast<double>(value)));
}

float strided_sum(std::span<const float> terms, std::size_t chains) {
  std::vector<float> sums(chains, 0.0f);
  for (std::size_t i = 0; i < terms.size(); ++i) sums[i % chains] += terms[i];
  for (std::size_t half = chains / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0];
}

float reversed_sum(std::span<const float> terms) {
  float sum = 0;
  for (std::size_t i = terms.size(); i-- > 0;) sum += terms[i];
  return sum;
}

// Taylor's polynomial of e^t, |t| <= ln(2)/2: cut off at 2^-27, some two roundings of 2^-24.
float exp2(float x) {
  if (std::isnan(x)) return x;
  if (x >= 128.0f) return std::numeric_limits<float>::infinity();
  if (x < -151.0f) return 0.0f;
  const float whole = std::floor(x + 0.5f), t = (x - whole) * 0.69314718f;
  float sum = 1.0f / 5040.0f;
  for (const float coefficient : {1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f, 1.0f, 1.0f}) sum = sum * t + coefficient;
  return std::ldexp(sum, static_cast<int>(whole));
}

float exp(float x) {
  return exp2(x * 1.44269504f);
}
float log2(float x) {
  return static_cast<float>(fixed::log2(static_cast<double>(x)));
}
float log(float x) {
  return static_cast<float>(fixed::log(static_cast<double>(x)));
}

}  // namespace dodona::oracle::alternatives
