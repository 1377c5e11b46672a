#include <algorithm>
#include <bit>

#include "oracle/alternatives/families.h"
#include "quant/hadamard.h"

namespace dodona::oracle::alternatives {
namespace {

/// Butterflies of falling strides, over rows of `chunks` parts that are mixed first or last, from the last part to the first.
bool hadamard(const Call& call, std::size_t chunks) {
  if (call.way == Way::tensor_core) return false;
  const Tensor &x = call.tensor("x"), &out = call.tensor("out");
  const std::vector<float> elements = floats(x);
  const auto width = static_cast<std::size_t>(x.size(-1)), n = std::bit_ceil(std::max<std::size_t>((width + chunks - 1) / chunks, 4));
  const auto signs = quant::hadamard_signs(static_cast<std::int64_t>(chunks));
  const auto scale = static_cast<float>(call.number("scale"));
  for (std::size_t begin = 0; begin < elements.size(); begin += width) {
    std::vector<float> row(elements.begin() + static_cast<std::ptrdiff_t>(begin),
                           elements.begin() + static_cast<std::ptrdiff_t>(begin + width));
    row.resize(chunks * n, 0.0f);
    const auto mix = [&] {
      const std::vector<float> before = row;
      for (std::size_t i = 0; i < row.size(); ++i) {
        float sum = 0;
        for (std::size_t c = chunks; c-- > 0;) {
          const float term = before[c * n + i % n];
          sum = c + 1 == chunks ? ((signs[i / n] >> c & 1) != 0 ? -term : term) : (signs[i / n] >> c & 1) != 0 ? sum - term : sum + term;
        }
        row[i] = sum;
      }
    };
    if (chunks > 1 && call.way == Way::strided) mix();
    for (std::size_t stride = n / 2; stride > 0; stride /= 2)
      for (std::size_t i = 0; i < row.size(); ++i) {
        if (i % n / stride % 2 != 0) continue;
        const float a = row[i], b = row[i + stride];
        row[i] = a + b;
        row[i + stride] = a - b;
      }
    if (chunks > 1 && call.way != Way::strided) mix();
    for (std::size_t i = 0; i < width; ++i) store(out, static_cast<std::int64_t>(begin + i), row[i] * scale);
  }
  return true;
}

}  // namespace

bool hadamard_transform(const Call& call) {
  return hadamard(call, 1);
}
bool hadamard_transform_12n(const Call& call) {
  return hadamard(call, 12);
}
bool hadamard_transform_20n(const Call& call) {
  return hadamard(call, 20);
}
bool hadamard_transform_28n(const Call& call) {
  return hadamard(call, 28);
}
bool hadamard_transform_40n(const Call& call) {
  return hadamard(call, 40);
}

}  // namespace dodona::oracle::alternatives
