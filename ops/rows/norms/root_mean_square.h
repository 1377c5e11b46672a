// What rmsnorm and fused_add_rmsnorm share in golden and hopper mode: one row.
#pragma once

#include <cstdint>
#include <span>

#include "ops/base/golden_output.h"

namespace dodona::ops {

/// Golden mode's row factor 1 / sqrt(sum / n + eps), and what is open about it.
struct RmsFactor {
  double value;
  /// Largest relative error of (x * factor) * weight in fp32. Infinite where flushed denormals leave the factor undetermined (eps below
  /// 2^-124 and a row of nearly nothing); 1 where the sum of squares may or may not overflow fp32.
  double relative;
};

/// `sum` is the sum of squares in double. The contract forms it in fp32: where it overflows there, the factor is 0.
///
/// Source of `relative`, in units of 2^-24:
///  - the squares are positive, so c roundings in a chain and then a tree over the chains are off by at most c + log2 n, which the square
///    root halves. c = max(64, n/128): 128 chains at least. Fewer and longer ones fit in practice, as roundings do not all go one way;
///  - the mean (approximate division: 4) and the addition of eps (1), halved;
///  - 1/sqrt: approximate rsqrt 2^-22.9 is 2.2; approximate sqrt and reciprocal, one ulp each, are 4; the larger counts;
///  - two products: 2.
/// Builds that flush denormals lose up to 2^-126 of the mean through squares and as much through the mean itself, and eps if that is
/// denormal.
RmsFactor rms_factor(double sum, std::int64_t n, double eps);

using RmsFactorOf = RmsFactor (*)(std::span<const double> x, double eps);
RmsFactor rms_factor_of(std::span<const double> x, double eps);
/// Mistakes: the mean of a row that is padded to a power of two, as a block of threads may hold it; eps added to the root, not under it;
/// the factor rounded to bf16 before it multiplies; every partial sum of squares rounded to bf16; columns behind the last whole 128 left
/// out of the sum.
RmsFactor rms_factor_of_padded_row(std::span<const double> x, double eps);
RmsFactor rms_factor_eps_outside(std::span<const double> x, double eps);
RmsFactor rms_factor_in_bf16(std::span<const double> x, double eps);
RmsFactor rms_factor_of_squares_in_bf16(std::span<const double> x, double eps);
RmsFactor rms_factor_of_squares_in_f16(std::span<const double> x, double eps);
RmsFactor rms_factor_without_tail(std::span<const double> x, double eps);

/// One row of golden mode, y = x * factor * weight, written to out[first...]. `lost` holds how far each x itself may be off (empty:
/// nowhere). `weight_rounded`: x * factor is rounded to the output's type before the weight. Slack: the relative error; what builds that
/// flush denormals lose in x, in x * factor and in y; and, where the inner rounding may fall to a neighbour, the distance to it times the
/// weight. Without such a neighbour a product of rounded 16-bit numbers is exact: slack 0.
void golden_rms_row(const GoldenOutput& out, DType type, std::int64_t first, std::span<const double> x, std::span<const double> lost,
                    std::span<const double> weight, double eps, bool weight_rounded, RmsFactorOf factor_of = rms_factor_of);

/// Golden mode's weight + bias, which is a sum in fp32. Mistakes: nothing is added; the sum is rounded to the weight's own type.
using AddBias = void (*)(DType type, std::span<double> weight, double bias);
void bias_in_f32(DType type, std::span<double> weight, double bias);
void bias_left_out(DType type, std::span<double> weight, double bias);
void bias_in_type(DType type, std::span<double> weight, double bias);

/// Whose kernel adds the squares, in hopper mode. Thread i of a block has vectors i, i + threads, ... of a row, and adds their squares by
/// fma in order, but for vllm_vectors.
enum class RmsKernel {
  /// min(1024, n/vec) threads rounded up to whole warps, vec = gcd(16 / bytes of an element, n); xor butterflies over lanes, and over the
  /// per-warp sums padded with 0 to 32; r = rsqrt(fma(sum, rcp(n), eps)), y = (x * r) * (bias + weight), so that a weight of -0 is +0;
  /// denormals flushed. Source: FlashInfer `RMSNormKernel`, `FusedAddRMSNormKernel`.
  flashinfer,
  /// The same by one warp. Source: FlashInfer `QKRMSNormKernel`, of rows by heads.
  flashinfer_heads,
  /// The same with the weight as it is. Source: FlashInfer's fused all-reduce.
  flashinfer_unbiased,
  /// min(1024, n) threads, element by element; CUB's `BlockReduce`: a tree over lanes, neighbours first, then warps in order; r =
  /// rsqrt(sum/n
  /// + eps), y = rn(rn(x * r) * weight). Source: vLLM `rms_norm_kernel`.
  vllm,
  /// As vllm, in vectors of 8 whose squares are added in pairs, by 1024 threads or, from 256 tokens on, 256. Source: vLLM
  /// `fused_add_rms_norm_kernel`.
  vllm_vectors,
  vllm_vectors_256,
  /// 32 threads for every 256 elements, rounded up to a power of two between 128 and 1024, vectors of at most 16 bytes; butterflies; root =
  /// sqrt(sum/n + eps), y = x / root * weight by the approximate functions. Source: sglang `fused_rmsnorm` (Triton).
  triton,
};

/// The same on an H200, in place, before the last rounding to `type`, which is that of the tensor. FlashInfer's fused all-reduce is
/// RmsKernel::flashinfer_unbiased in a cluster of `blocks`: each has a part of the row, a vector for each thread, and their sums are added
/// in order.
void hopper_rms_row(RmsKernel kernel, std::span<float> x, std::span<const float> weight, DType type, double eps, double weight_bias = 0.0,
                    std::int64_t blocks = 1);

}  // namespace dodona::ops
