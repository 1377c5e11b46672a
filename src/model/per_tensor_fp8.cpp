#include "model/per_tensor_fp8.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/threads.h"
#include "dodona/error.h"
#include "quant/e4m3.h"
#include "quant/element.h"

namespace dodona::model {
namespace {

/// Rows of the last dimension, widened.
template <class Body>
void for_rows(const Tensor& x, int threads, const Body& body) {
  const std::int64_t columns = x.size(-1), rows = columns > 0 ? x.elements() / columns : 0;
  parallel_for(threads, rows, 4.0 * static_cast<double>(columns), [&](std::int64_t row) {
    std::vector<float> values(static_cast<std::size_t>(columns));
    const auto* base = x.as<std::byte>() + bytes_for(x.dtype(), x.offset(row * columns));
    quant::to_f32(x.dtype(), base, values.data(), columns);
    body(row, values);
  });
}

}  // namespace

Fp8Tensor per_tensor_fp8(const Tensor& x, int threads) {
  if (x.stride(-1) != 1) return per_tensor_fp8(x.clone(), threads);
  const std::int64_t columns = x.size(-1);
  std::vector<float> largest(columns > 0 ? static_cast<std::size_t>(x.elements() / columns) : 0, 0.0f);
  for_rows(x, threads, [&](std::int64_t row, const std::vector<float>& values) {
    float amax = 0.0f;
    for (const float value : values) amax = value != value || amax != amax ? NAN : std::max(amax, std::fabs(value));
    largest[static_cast<std::size_t>(row)] = amax;
  });
  float amax = 1e-12f;
  for (const float value : largest) {
    if (value != value) throw Error(ErrorCode::bad_value, "", "x", "holds NaN: it has no scale");
    amax = std::max(amax, value);
  }
  Fp8Tensor result{Tensor(DType::f8_e4m3, x.shape()), Tensor(DType::f32, {1})};
  const float scale = amax / 448.0f, reciprocal = 1.0f / scale;
  *result.scale.as<float>() = scale;
  for_rows(x, threads, [&](std::int64_t row, const std::vector<float>& values) {
    auto* const out = result.values.as<std::uint8_t>() + row * columns;
    for (std::int64_t i = 0; i < columns; ++i)
      out[i] = quant::to_e4m3_satfinite(std::clamp(values[static_cast<std::size_t>(i)] * reciprocal, -448.0f, 448.0f));
  });
  return result;
}

}  // namespace dodona::model
