#include "model/layer/values.h"

#include <numeric>
#include <vector>

#include "core/threads.h"
#include "quant/e4m3.h"
#include "quant/element.h"

namespace dodona::model {

Tensor scalar(float value) {
  Tensor tensor(DType::f32, {1});
  *tensor.as<float>() = value;
  return tensor;
}

Tensor widened(const Tensor& tensor) {
  Tensor out = Tensor::uninitialized(DType::f32, tensor.shape());
  quant::to_f32(tensor.dtype(), tensor.data(), out.as<float>(), tensor.elements());
  return out;
}

Tensor rounded(const Tensor& values, DType type) {
  Tensor out = Tensor::uninitialized(type, values.shape());
  quant::from_f32(type, values.as<float>(), out.data(), values.elements());
  return out;
}

Tensor cast_to_e4m3(const Tensor& x) {
  const Tensor wide = widened(x.contiguous() ? x : x.clone());
  Tensor out = Tensor::uninitialized(DType::f8_e4m3, x.shape());
  for (std::int64_t i = 0; i < wide.elements(); ++i)
    out.as<std::uint8_t>()[i] = quant::to_e4m3_framework(static_cast<double>(wide.as<float>()[i]));
  return out;
}

Tensor times(const Tensor& a, float factor) {
  const Tensor wide = widened(a);
  for (std::int64_t i = 0; i < wide.elements(); ++i) wide.as<float>()[i] *= factor;
  return rounded(wide, a.dtype());
}

Tensor side_by_side(const Tensor& a, const Tensor& b) {
  Tensor both = Tensor::uninitialized(a.dtype(), {a.size(0), a.size(1), a.size(2) + b.size(2)});
  copy(a, both.slice(2, 0, a.size(2)));
  copy(b, both.slice(2, a.size(2), both.size(2)));
  return both;
}

Tensor tensor_of(const std::vector<std::int64_t>& values, const Dims& shape, DType type) {
  Tensor tensor(type, shape);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (type == DType::i64)
      tensor.as<std::int64_t>()[i] = values[i];
    else
      tensor.as<std::int32_t>()[i] = static_cast<std::int32_t>(values[i]);
  return tensor;
}

std::vector<std::int64_t> rows_in_order(std::int64_t n) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

Tensor sum(const Tensor& a, const Tensor& b, int threads, float factor) {
  Tensor out(a.dtype(), a.shape());
  const std::int64_t columns = a.size(1);
  parallel_for(threads, a.size(0), static_cast<double>(columns), [&](std::int64_t t) {
    std::vector<float> x(static_cast<std::size_t>(columns)), y(x.size());
    const std::int64_t offset = bytes_for(a.dtype(), t * columns);
    quant::to_f32(a.dtype(), a.as<std::byte>() + offset, x.data(), columns);
    quant::to_f32(b.dtype(), b.as<std::byte>() + offset, y.data(), columns);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += factor * y[i];
    quant::from_f32(out.dtype(), x.data(), out.as<std::byte>() + offset, columns);
  });
  return out;
}

}  // namespace dodona::model
