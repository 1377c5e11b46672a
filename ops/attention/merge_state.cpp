#include "ops/attention/merge_state.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "quant/element.h"

namespace dodona::ops {
namespace {

template <MergeRule rule>
void golden(const MergeState& op, const Exec& exec, Reference* reference) {
  merge_golden(partial_merge(op, false), exec, reference, rule);
}

void fast(const MergeState& op, const Exec& exec) {
  merge_fast(partial_merge(op, false), exec);
}

std::optional<Refusal> unsupported(const MergeState& op, Mode mode) {
  if (mode != Mode::hopper) return {};
  if (op.both_empty != "nan") return Refusal{"both_empty", "'zero' has no hopper mode: the H200's kernel gives NaN"};
  const std::int64_t heads = op.v_a.size(1), width = op.v_a.size(2);
  if (width != 64 && width != 128 && width != 256 && width != 512)
    return Refusal{"v_a", "has D = " + std::to_string(width) + ": the H200's kernel takes 64, 128, 256 and 512"};
  // One block holds all heads of a token, max(8, D / 32) elements a thread.
  if (const std::int64_t threads = heads * width / std::max<std::int64_t>(8, width / 32); threads > 1024)
    return Refusal{"v_a", "has N = " + std::to_string(heads) + " heads of D = " + std::to_string(width) +
                              ": the H200's kernel does not launch with " + std::to_string(threads) + " threads, more than 1024"};
  return {};
}

/// The weighted sum, before its division by the sum of the weights, is beyond fp32.
bool explains_sum_beyond_fp32(const MergeState& actual, std::string_view output, std::int64_t linear) {
  if (output != "v_merged" || !std::isinf(quant::get(actual.v_merged, linear))) return false;
  const std::int64_t row = linear / actual.v_a.size(2);
  const double s_a = quant::get(actual.s_a, row), s_b = quant::get(actual.s_b, row), top = std::fmax(s_a, s_b);
  const double sum = quant::get(actual.v_a, linear) * std::exp2(s_a - top) + quant::get(actual.v_b, linear) * std::exp2(s_b - top);
  constexpr double largest = std::numeric_limits<float>::max();
  return std::isfinite(sum) && std::fabs(sum) > largest * (1 - 0x1p-18) && (sum > 0) == (quant::get(actual.v_merged, linear) > 0);
}

void hopper(const MergeState& op, const Exec& exec) {
  merge_hopper(partial_merge(op, false), exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_merge_state() {
  return define<ops::MergeState>({
      .contract = R"(
fp32: m = max(s_a, s_b), weights 2^(s - m), each divided by their sum; v = v_a*p_a + v_b*p_b, rounded once to the type (nearest
even); s = m + log2(sum). Log-sum-exps are in base 2. A side with s = -inf leaves the other unchanged. Both -inf: NaN, or v = 0
and s = -inf with both_empty=zero. s = +inf or NaN on either side gives NaN. (With both_empty=zero such a row is open, as
is one of two empty sides where v is not finite: FlashInfer's maximum drops NaN there, and its weights of 0 meet v.) Budget, in
units of 2^-24: the smaller weight's relative error 0.7*|s_a - s_b| + 4 moves v along v_a - v_b; 6 of |v_a*p_a| + |v_b*p_b| and
1 of |v|; s: 4 + 1.45 of the sum's error + its own; plus what flushed denormals carry. An infinite v whose weight may be flushed is
open.)",
      .contract_version = 2,
      .golden = ops::golden<ops::MergeRule::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .defects =
          {{"no-launch-128-heads", "v_merged", "bf16 with 128 heads x 128 dims does not launch (2048 threads); there is no fp32 either"},
           {"sum-beyond-fp32", "v_merged",
            "FlashInfer's Triton kernels divide v_a * w_a + v_b * w_b, the larger weight 1, by the sum of the weights at last: of values "
            "near the largest numbers of fp32 the sum is infinite",
            ops::explains_sum_beyond_fp32}},
      .mistakes = {{"shares-not-normalized", "the weights are not divided by their sum",
                    ops::golden<ops::MergeRule::shares_not_normalized>},
                   {"logarithm-left-out", "the larger log-sum-exp is written, without the logarithm of the sum",
                    ops::golden<ops::MergeRule::logarithm_left_out>},
                   {"infinity-as-empty", "a log-sum-exp of +inf is taken for a side without keys, as kernels in base e do",
                    ops::golden<ops::MergeRule::infinity_otherwise>}},
      .customary = {{"*", CustomaryKind::close, 1e-5, 1e-2, "sgl-kernel/tests/test_merge_state.py (f16), torch.allclose"}},
      .cases = {"T=3 N=16 D=128", "T=2 N=5 D=64 --dtype v_a=f16", "T=2 N=17 D=512 --dialect flashinfer", "T=3 N=7 D=31",
                "T=3 N=6 D=32 --special infinite-lse"},
      .bench_cases = {"T=1 N=64 D=128", "T=256 N=64 D=128", "T=2048 N=32 D=128"},
  });
}
}  // namespace dodona
