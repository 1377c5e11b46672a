// silu(gate) * up of rows, to e4m3 under a static scale: what sglang's Triton kernels do between two products of W4A8 experts.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/define.h"
#include "ops/base/golden_output.h"

namespace dodona::ops {

using enum DType;

struct SiluFp8 {
  Tensor input;   ///< [rows, 2 * N], dense: gate and up, halves of each row
  Tensor output;  ///< e4m3 [rows, N], dense
  Tensor scale;   ///< f32 [1]: numbers are multiplied with its reciprocal
  /// Rows that there are, of each room of rows; the others are unspecified.
  std::vector<std::int64_t> counts;
  bool round_activation = false;  ///< to the input's type, before its product with up
  bool clamps = false;            ///< products below -448 and above 448 become those before they are codes: of NaN that leaves anything

  std::int64_t room() const;
  bool has_row(std::int64_t row) const;
  float divisor() const { return *scale.as<float>(); }
};

/// Mistakes of such kernels.
enum class SiluFp8Mistake { none, scale_left_out, multiplied, gate_and_up_swapped };

/// The words of both kernels' contracts on what is open.
extern const std::string_view silu_fp8_budget;

void golden_silu_fp8(const SiluFp8& call, const Exec& exec, Reference* reference, SiluFp8Mistake mistake = SiluFp8Mistake::none);
void fast_silu_fp8(const SiluFp8& call, const Exec& exec);
/// Triton's division and exponential on an H200, denormals kept.
void hopper_silu_fp8(const SiluFp8& call, const Exec& exec);

/// Counts of rows that an argument gives.
std::vector<std::int64_t> counts_of(const Tensor& rows);

template <class Op, SiluFp8 (*rows_of)(const Op&), SiluFp8Mistake mistake>
void golden_silu_fp8_of(const Op& op, const Exec& exec, Reference* reference) {
  golden_silu_fp8(rows_of(op), exec, reference, mistake);
}
/// Another number of roundings: the activation is rounded where the kernel does not round it, and the other way about.
template <class Op, SiluFp8 (*rows_of)(const Op&)>
void golden_silu_fp8_rounded_otherwise(const Op& op, const Exec& exec, Reference* reference) {
  SiluFp8 call = rows_of(op);
  call.round_activation = !call.round_activation;
  golden_silu_fp8(call, exec, reference);
}

/// All of an op that is this, but its contract, its case lines and the name of the mistake golden_silu_fp8_rounded_otherwise.
template <class Op, SiluFp8 (*rows_of)(const Op&)>
Implementation<Op> silu_fp8() {
  using enum SiluFp8Mistake;
  Implementation<Op> all;
  all.golden = golden_silu_fp8_of<Op, rows_of, none>;
  all.fast = [](const Op& op, const Exec& exec) { fast_silu_fp8(rows_of(op), exec); };
  all.hopper = [](const Op& op, const Exec& exec) { hopper_silu_fp8(rows_of(op), exec); };
  all.mistakes = {{"scale-left-out", "products are not divided by the scale", golden_silu_fp8_of<Op, rows_of, scale_left_out>},
                  {"multiplied", "products are multiplied by the scale", golden_silu_fp8_of<Op, rows_of, multiplied>},
                  {"gate-and-up-swapped", "up goes through the activation", golden_silu_fp8_of<Op, rows_of, gate_and_up_swapped>}};
  return all;
}

}  // namespace dodona::ops
