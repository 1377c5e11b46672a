// How a kernel adds the products of one output, as data: golden mode's budgets, hopper mode and other honest implementations ask one
// record. And such a sum in golden mode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ops/base/bounded.h"
#include "ops/sums/eight_lines.h"
#include "quant/tensor_core/unit.h"

namespace dodona::ops {

/// What the order of a sum leaves open.
enum class Order {
  exact,        ///< integers: nothing is lost
  any,          ///< fp32, one rounding an addition, in any order
  contiguous,   ///< K ascending, in one chain or in contiguous parts, in fp32 or by the unit; or any order of short chains
  steps,        ///< K ascending by the unit's steps: what they lose is followed
  blocks,       ///< blocks with scales of their own, each an exact sum; or a unit that aligns single products
  block_steps,  ///< such blocks, K ascending by the steps of a unit that takes whole ones: what they lose is followed
};

/// How the sum of a span of K meets the scales of its blocks and the total, in hopper mode.
enum class Scaling {
  by_product,    ///< fma(sum, fl32(a * b), total): CUTLASS, DeepGEMM, Triton where all columns of a tile share a scale
  in_turn,       ///< fma(fl32(sum * a), b, total): Triton elsewhere
  in_turn_back,  ///< fma(fl32(sum * b), a, total): kernels that have swapped their operands
  in_unit,       ///< the unit multiplies products with scales of eight bits, powers of two; there is no total: tcgen05's kinds for MX
};

/// Which tiles of K are summed together.
enum class Chunks {
  contiguous,   ///< ceil(tiles / parts) after one another, the last parts shorter or none
  interleaved,  ///< every parts-th: Triton's split-K, whose programs stride over K
};

/// In which order the fp32 sums of parts are added.
enum class ChunkOrder {
  ascending,
  descending,
  by_fours,  ///< part p to sum p mod 4 of four, then these in order: torch's sum over a leading dimension
};

struct Accumulator {
  Order order;
  /// The matrix unit of honest implementations, and of hopper mode.
  const quant::tensor_core::MmaSpec* unit = nullptr;
  /// After as many products of K the sum is multiplied with the scales of their block, added to an fp32 sum, and starts again; 0: never.
  std::int64_t promote_every = 0;
  Scaling scaling = Scaling::by_product;
  bool keeps_denormals = false;  ///< hopper mode: of that scaling's fp32, in builds without fast math and by Triton
  /// Parts of K that may be summed apart (a GPU's modes: that are), and then added. K is counted in tiles.
  std::int64_t parts = 1;
  std::int64_t tile = 1;
  /// Order::contiguous: in any other order no product passes through more than K / spread + depth additions.
  std::int64_t spread = 1, depth = 0;
  /// Order::block_steps: the unit, of e2m1.
  const quant::tensor_core::Fp4Spec* fp4 = nullptr;
  Chunks chunks = Chunks::contiguous;
  ChunkOrder chunk_order = ChunkOrder::ascending;

  /// Of contiguous parts of `k` numbers; the last one may be shorter.
  std::int64_t part_length(std::int64_t k) const { return ((k + tile - 1) / tile + parts - 1) / parts * tile; }
};

inline constexpr Accumulator fp32_in_any_order{Order::any};
/// The fp8 tensor core of an H200, without and with promotion (CUTLASS `fast accumulation`, and block scales of 128).
inline constexpr Accumulator hopper_fp8{Order::steps, &quant::tensor_core::fp8_wgmma};
inline constexpr Accumulator hopper_fp8_promoted{Order::steps, &quant::tensor_core::fp8_wgmma, 128};
/// The same of kernels that multiply the transposed matrices.
inline constexpr Accumulator hopper_fp8_promoted_back{Order::steps, &quant::tensor_core::fp8_wgmma, 128, Scaling::in_turn_back};
/// DeepGEMM's: the same, and its build keeps denormals.
inline constexpr Accumulator deep_gemm_fp8{Order::steps, &quant::tensor_core::fp8_wgmma, 128, Scaling::by_product, true};
/// DeepGEMM's on a B200: one chain of kind::mxf8f6f4, the scales of 128 given to each of its four steps.
inline constexpr Accumulator deep_gemm_mxfp8{Order::steps, &quant::tensor_core::sm100_fp8, 0, Scaling::in_unit};
/// Its 16-bit units given fp8: Triton with few rows.
inline constexpr Accumulator hopper_fp8_mma_sync{Order::steps, &quant::tensor_core::fp8_mma_sync};
/// The fp8 tensor core of an L40S.
inline constexpr Accumulator ada_fp8{Order::steps, &quant::tensor_core::sm89_fp8};
/// Triton with scales of blocks in tiles of so many of K, with many rows and with few.
constexpr Accumulator triton_fp8_promoted(std::int64_t block_k) {
  return {Order::steps, &quant::tensor_core::fp8_wgmma, block_k, Scaling::in_turn, true};
}
constexpr Accumulator triton_fp8_mma_sync_promoted(std::int64_t block_k) {
  return {Order::steps, &quant::tensor_core::fp8_mma_sync, block_k, Scaling::in_turn, true};
}
/// Products of 16-bit and 32-bit floats: fp32, or the tensor cores of bf16 and f16.
inline constexpr Accumulator half_in_parts{
    .order = Order::contiguous, .unit = &quant::tensor_core::half_mma, .parts = 48, .spread = 16, .depth = 32};
/// f32 cut to TF32, whose products fp32 holds.
inline constexpr Accumulator tf32_in_parts{
    .order = Order::contiguous, .unit = &quant::tensor_core::tf32_wgmma, .parts = 48, .spread = 16, .depth = 32};
/// The contract's words on half_in_parts' slack.
extern const std::string_view half_sum_contract;
/// NVFP4 and its kin.
inline constexpr Accumulator fp4_by_blocks{Order::blocks, &quant::tensor_core::half_mma};
/// The NVFP4 tensor core of a B200, in one chain.
inline constexpr Accumulator tcgen05_nvfp4{.order = Order::block_steps, .fp4 = &quant::tensor_core::sm100_nvf4};
inline constexpr Accumulator int32_exact{Order::exact};

/// A row of A or a column of B, decoded for golden mode: k numbers as floats, or as small integers.
struct Line {
  DType type{};
  std::size_t k = 0;
  std::vector<double> values;           ///< Order::steps: as the unit takes them
  std::vector<std::int16_t> exponents;  ///< of their representations, for Order::steps; of zeros exponent_of_zero
  std::vector<std::int16_t> integers;   ///< instead of `values`, in units of `unit`
  double unit = 1;                      ///< e2m1 counts halves
  std::vector<double> scales;           ///< of its blocks along K; empty: 1
  std::size_t block = 0;                ///< numbers that share a scale
  bool denormal = false;                ///< some of `values` are denormals of fp32 (not of Order::steps)
};

/// Sum of a[k] * b[k] in double, k ascending (of blocks: block by block, with their scales), and the slack of the accumulator before what
/// the kernel does with the sum. Not `judged`: without slack.
Bounded sum_of(const Accumulator& accumulator, const Line& a, const Line& b, bool judged);

}  // namespace dodona::ops
