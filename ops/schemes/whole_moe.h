// A whole mixture of experts in one call: rows go to their experts, gate and up are multiplied, activated, quantized again and multiplied
// back, and the results added up by weight. One composition; a kernel is a row of the table of schemes, with its own routing in front.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "dodona/exec.h"
#include "dodona/prepared.h"
#include "ops/base/golden_output.h"
#include "ops/rows/quantize/requantize.h"
#include "ops/sums/accumulator.h"

namespace dodona::ops {

/// Which numbers are multiplied.
enum class MoeNumbers : std::uint8_t {
  bf16,
  f16,
  fp8_blocks,  ///< e4m3, f32 scales of 1 x 128 of a row and 128 x 128 of a weight
  fp8,         ///< e4m3 without scales of blocks
  nvfp4,       ///< e2m1, e4m3 scales of 1 x 16; those of weights in tiles of 128 x 4
};

/// What the gate goes through.
enum class MoeCurve : std::uint8_t { silu, gelu, gelu_tanh, relu, relu2, identity };

/// What becomes of the first product's sums.
struct MoeActivation {
  MoeCurve curve = MoeCurve::silu;
  bool gated = true;            ///< half of the sums is up, and multiplies what the other half becomes
  bool limits_outcome = false;  ///< the limit is that of the activated gate, not of the gate
};

/// What a kernel does with them.
struct MoeScheme {
  MoeNumbers numbers;
  Accumulator sums;
  Requantizer sums_become;       ///< gate and up, before the activation
  Requantizer activated_become;  ///< what the second product takes
  DType results = DType::bf16;   ///< rounded to before they are weighted; f32: not at all
  Requantizer rows_become = {};  ///< tokens, where they come unquantized
  bool biases_behind = false;    ///< biases are added to what sums were rounded to; otherwise to sums, before their factors
  bool weights_in_f32 = false;   ///< routing weights are fp32 numbers, so that products with them round
  bool terms_in_output = false;  ///< weighted results are rounded to the output's type and added in it, in any order
  std::int64_t shuffled = 0;     ///< rows that trtllm-gen's shuffle of weights deals out together: 16 or 32
  bool alternating = false;      ///< and whether rows of up and of gate take turns before it
};

/// The matrices of all local experts, [L, n, k] in codes. Rows of the first one are up, then gate; gate alone where nothing multiplies it.
struct MoeMatrix {
  Tensor codes, scales;
  std::int64_t n = 0, k = 0;
  bool scales_in_tiles = true;  ///< of nvfp4; row by row otherwise
  bool block_major = false;     ///< [L, k / 128 bytes, n, 128 bytes] in memory
  /// The row that stored row r holds: of a shuffle, in an order of two halves that take turns, or r itself.
  std::int64_t shuffled = 0;
  bool alternating = false;
  /// Packed for fast mode, where it is: codes then have their shape alone, and so have scales that were packed with them.
  struct Packed {
    const Prepared* parts = nullptr;           ///< one for each expert
    std::int64_t codes_at = 0, scales_at = 0;  ///< bytes
  } packed = {};
};

/// Where a token goes: in order of slots, global ids.
struct TokenExperts {
  std::vector<std::int64_t> experts;
  std::vector<Bounded> weights;  ///< as the kernel multiplies them
  bool open = false;             ///< who else might be chosen is open: nothing is compared
};

/// One call, whatever its op. Tensors may be undefined where their docs say so.
struct WholeMoe {
  MoeScheme scheme;
  MoeActivation activation = {};
  Tensor x, x_scales;  ///< [T, H] codes, or numbers that rows_become; scales: f32 [H/128, T] of fp8_blocks, e4m3 [T, H/16] of nvfp4
  MoeMatrix first, second;
  Tensor gate_factor, up_factor, out_factor;  ///< f32 [L]; undefined: 1. Without up, up_factor is that of the activated gate
  Tensor first_bias, second_bias;             ///< f32 [L, n]
  Tensor rows_encode, activated_encode;       ///< f32 [L], or one: encode scales of what becomes of rows; undefined: 1
  Tensor alpha, beta, limit;                  ///< f32 [L], of the activation; undefined: 1, 0, none
  std::vector<TokenExperts> routes;
  std::int64_t first_expert = 0;  ///< that is local
  /// As golden mode of upstream's tests has it: nothing is rounded but what the second product takes, and that as bf16 numbers before
  /// up_factor / gate_factor (or where there is no up, up_factor) multiplies them.
  bool like_reference = false;
  bool factor_after_rounding = false;
  bool weighted_input = false;  ///< weights multiply the first product's sums instead of results

  Tensor output;                                   ///< bf16 or f16 [T, H]; undefined: not asked for
  Tensor results, result_weights, result_of_pair;  ///< bf16 [P, H], bf16 [T, slots], i32 [T * slots]; likewise
  std::int64_t tile = 1;                           ///< each expert's results begin at a multiple of it

  std::int64_t tokens() const { return x.size(0); }
  std::int64_t hidden() const { return second.n; }
  std::int64_t width() const { return second.k; }
  std::int64_t local_experts() const { return first.codes.size(0); }
};

/// Mistakes of such kernels.
enum class MoeMistake : std::uint8_t {
  none,
  gate_and_up_swapped,
  next_experts_scales,  ///< of weights
  next_experts_factors,
  weighted_twice,
  weighted_before_rounding,  ///< results are multiplied by their weights before they are rounded
  read_unshuffled,
  activated_in_fp32,  ///< not quantized between the products
  limit_misplaced,    ///< of what the gate becomes, or of the gate where it is that of the other
};

void golden_whole_moe(const WholeMoe& moe, const Exec& exec, Reference* reference, MoeMistake mistake = MoeMistake::none);
/// Fast mode, and a GPU's where exec.mode names one: products by its unit, the rest in fp32.
void run_whole_moe(const WholeMoe& moe, const Exec& exec);

/// Weights of one expert packed for fast mode: of `moe` numbers and matrices are looked at, both of one expert. fp8 and NVFP4 are packed as
/// other products have them, 16-bit numbers lie row by row; scales that `moe` has go with them. What order the raw ones lay in is noted.
std::int64_t whole_moe_packed_bytes(const WholeMoe& moe);
void pack_whole_moe(const WholeMoe& moe, std::byte* part, const Exec& exec);
/// Has `moe` read them. Throws Error where they were packed of weights in another order, or lack scales that are packed with the codes.
void take_packed(WholeMoe& moe, const Prepared& prepared);

double whole_moe_flops(const WholeMoe& moe);
/// Weights of the experts that have rows, and the rows.
double whole_moe_bytes(const WholeMoe& moe);

/// The row of a plain matrix [n, k] that stored row r of a shuffled one holds.
std::int64_t plain_row(const MoeMatrix& matrix, std::int64_t r);

extern const std::string_view whole_moe_contract;

// ---- kernels which layers ask too

/// trtllm-gen's: gate and up are quantized before the activation.
inline constexpr MoeScheme trtllm_fp8_blocks{.numbers = MoeNumbers::fp8_blocks,
                                             .sums = {Order::steps, &quant::tensor_core::sm100_fp8, 128},
                                             .sums_become = trtllm_fp8_groups,
                                             .activated_become = trtllm_fp8_groups,
                                             .shuffled = 16};
/// CUTLASS's in FlashInfer: bf16 tokens are quantized inside.
inline constexpr MoeScheme cutlass_fp8_blocks{.numbers = MoeNumbers::fp8_blocks,
                                              .sums = deep_gemm_fp8,
                                              .sums_become = rounded_to_bf16,
                                              .activated_become = bf16_inverse_fp8_groups,
                                              .rows_become = bf16_inverse_fp8_groups,
                                              .biases_behind = true,
                                              .weights_in_f32 = true};
/// trtllm-gen's of bf16: sums stay in fp32 until they are activated.
inline constexpr MoeScheme trtllm_bf16{.numbers = MoeNumbers::bf16,
                                       .sums = half_in_parts,
                                       .sums_become = kept_in_f32,
                                       .activated_become = rounded_to_bf16,
                                       .shuffled = 32,
                                       .alternating = true};
/// trtllm-gen's of NVFP4.
inline constexpr MoeScheme trtllm_nvfp4_blocks{.numbers = MoeNumbers::nvfp4,
                                               .sums = fp4_by_blocks,
                                               .sums_become = kept_in_f32,
                                               .activated_become = trtllm_nvfp4,
                                               .shuffled = 32,
                                               .alternating = true};
/// CUTLASS's of NVFP4, to bf16; 16-bit tokens are quantized inside.
inline constexpr MoeScheme cutlass_nvfp4_blocks{.numbers = MoeNumbers::nvfp4,
                                                .sums = fp4_by_blocks,
                                                .sums_become = rounded_to_bf16,
                                                .activated_become = encoded_nvfp4,
                                                .rows_become = encoded_nvfp4,
                                                .biases_behind = true,
                                                .weights_in_f32 = true};

}  // namespace dodona::ops
