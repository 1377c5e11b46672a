#include "ops/sums/cublas_f32.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/threads.h"
#include "quant/element.h"
#include "quant/hopper/special.h"

namespace dodona::ops {
namespace {

/// Up to `rows` rows K is summed in parts of so many numbers.
struct Choice {
  std::int64_t rows, part;
};
/// The shape of weights_proj in DeepSeek-V3.2's indexer. The kernels: `cutlass_80_simt_sgemm_*_8x5_tn_align1` and a sum over the parts.
constexpr std::int64_t known_k = 7168, known_columns = 64;
constexpr Choice known_choices[] = {{4, 224}, {64, 64}, {128, 128}, {192, 192}, {256, 128}, {320, 288}, {384, 192}};

/// A chain of fused multiply-adds from +0 for each part, and the parts' sums added from the first to the last.
float in_parts(const float* x, const float* w, std::int64_t k, std::int64_t part) {
  float total = 0;
  for (std::int64_t begin = 0; begin < k; begin += part) {
    float sum = 0;
    for (std::int64_t i = begin; i < std::min(begin + part, k); ++i) sum = std::fma(x[i], w[i], sum);
    total = begin == 0 ? sum : total + sum;
  }
  return total;
}

/// One row: `dot_kernel`, whose 16 blocks of 128 threads take two numbers each in turn, each its own chain, and `reduce_1Block_kernel`.
float by_dot_kernel(const float* x, const float* w, std::int64_t k) {
  constexpr std::int64_t blocks = 16, threads = 128, together = 2, of_block = threads * together;
  std::array<float, 4> fours{};
  for (std::int64_t block = 0; block < blocks; ++block) {
    std::array<float, threads> sums;
    for (std::int64_t t = 0; t < threads; ++t) {
      std::array<float, together> chains{};
      for (std::int64_t at = block * of_block + t * together; at < k; at += blocks * of_block)
        for (std::int64_t i = 0; i < together; ++i) {
          float& chain = chains[static_cast<std::size_t>(i)];
          chain = std::fma(x[at + i], w[at + i], chain);
        }
      sums[static_cast<std::size_t>(t)] = chains[0] + chains[1];
    }
    for (std::size_t half = threads / 2; half > 0; half /= 2)
      for (std::size_t t = 0; t < half; ++t) sums[t] += sums[t + half];
    fours[static_cast<std::size_t>(block % 4)] += sums[0];
  }
  return ((fours[0] + fours[1]) + fours[2]) + fours[3];
}

std::vector<float> row_of(const Tensor& matrix, std::int64_t row) {
  const std::int64_t k = matrix.size(1), step = matrix.stride(1);
  const int bytes = bits(matrix.dtype()) / 8;
  const auto* const first = matrix.as<const std::byte>() + row * matrix.stride(0) * bytes;
  std::vector<double> wide(static_cast<std::size_t>(k));
  if (step == 1) quant::to_f64(matrix.dtype(), first, wide.data(), k);
  for (std::int64_t i = 0; i < k && step != 1; ++i)
    quant::to_f64(matrix.dtype(), first + i * step * bytes, &wide[static_cast<std::size_t>(i)], 1);
  return {wide.begin(), wide.end()};
}

}  // namespace

const std::string_view cublas_f32_contract = R"(
 Factors of f32, hopper mode: the order in which cuBLAS of CUDA 13.0 adds on an H200, known for N = 64, K = 7168 and up to 384 rows. One
row: 16 blocks of 128 threads take two neighbours each in turn; each has a chain of fused multiply-adds from zero, the two are added, the
threads by halves (t + 64, t + 32 ... t + 1), and blocks b, b + 4, b + 8, b + 12 in turn, then those four. More rows: parts of 224 numbers
(up to 4 rows), 64 (up to 64), 128 (128), 192 (192), 128 (256), 288 (320) or 192, each a chain, added from the first to the last.)";

bool cublas_f32_is_known(std::int64_t rows, std::int64_t columns, std::int64_t k) {
  return columns == known_columns && k == known_k && rows <= std::end(known_choices)[-1].rows;
}

void cublas_f32_product(const Tensor& input, const Tensor& weight, const Tensor& out, const Exec& exec) {
  const std::int64_t rows = input.size(0), columns = weight.size(0), k = input.size(1);
  if (rows == 0) return;
  const auto* const choice = std::find_if(std::begin(known_choices), std::end(known_choices), [&](Choice c) { return rows <= c.rows; });
  std::vector<std::vector<float>> x(static_cast<std::size_t>(rows));
  for (std::int64_t t = 0; t < rows; ++t) x[static_cast<std::size_t>(t)] = row_of(input, t);
  parallel_for(exec.threads, columns, static_cast<double>(rows * k), [&](std::int64_t n) {
    const std::vector<float> w = row_of(weight, n);
    for (std::int64_t t = 0; t < rows; ++t) {
      const float* const left = x[static_cast<std::size_t>(t)].data();
      const float sum = rows == 1 ? by_dot_kernel(left, w.data(), k) : in_parts(left, w.data(), k, choice->part);
      out.as<float>()[t * out.stride(0) + n * out.stride(1)] = sum != sum ? quant::hopper::canonical_nan() : sum;
    }
  });
}

}  // namespace dodona::ops
