#include <array>

#include "dodona/op.h"

namespace dodona {

// Seen on an H200 with the kernels named; golden mode never imitates them, hopper mode does where it exists.
std::span<const KnownDefect> known_defects() {
  static constexpr std::array<KnownDefect, 10> ledger{{
      {"sgl_per_token_quant_fp8", "zero-row-448", "output_q",
       "an all-zero row gets scale 0 and the code 0x7E (448) everywhere below 16 tokens per SM: 0 * inf = NaN, which the clamp turns into "
       "+448"},
      {"sgl_per_tensor_quant_fp8", "zero-tensor-448", "output_q", "an all-zero tensor gets scale 0 and the code 0x7E (448) everywhere"},
      {"sgl_per_token_group_quant_8bit", "v1-ue8m0-exponent", "output_s",
       "version 1 with scale_ue8m0 stores the exponent one too high for every scale below 1: (int)log2f cuts toward zero"},
      {"moe_sum_reduce", "unwritten-tail", "output_tensor",
       "bf16, more than 256 tokens, hidden size a multiple of 8 but not of 16: the last 8 columns are never written"},
      {"fast_topk_v2", "crowded-bin", "indices",
       "at most 16,384 candidates of the threshold's coarse bin are kept: scores crowded into one or two bins lose members"},
      {"merge_state", "no-launch-128-heads", "v_merged",
       "bf16 with 128 heads x 128 dims does not launch (2048 threads); there is no fp32 either"},
      {"silu_and_mul", "misaligned-half-row", "out",
       "half the row must be a multiple of 8 for 16-bit types: otherwise a misaligned-address fault; the Python check looks at the whole "
       "row only"},
      {"gelu_and_mul", "misaligned-half-row", "out", "as silu_and_mul"},
      {"gelu_tanh_and_mul", "misaligned-half-row", "out", "as silu_and_mul"},
      {"get_cutlass_w4a8_moe_mm_data", "unwritten-permutations", "input_permutation",
       "input_permutation and output_permutation are never written at the recorded commit"},
  }};
  return ledger;
}

}  // namespace dodona
