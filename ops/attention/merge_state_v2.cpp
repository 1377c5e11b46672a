#include "ops/attention/merge_state_v2.h"

namespace dodona::ops {
namespace {

template <MergeRule rule>
void golden(const MergeStateV2& op, const Exec& exec, Reference* reference) {
  merge_golden(partial_merge(op, true), exec, reference, rule);
}

void fast(const MergeStateV2& op, const Exec& exec) {
  merge_fast(partial_merge(op, true), exec);
}

std::optional<Refusal> unsupported(const MergeStateV2& op, Mode mode) {
  if (mode != Mode::hopper) return {};
  if (op.both_empty != "nan") return Refusal{"both_empty", "'zero' has no hopper mode: the H200's kernel gives NaN"};
  const std::int64_t width = op.v_a.size(2);
  if (bytes_for(op.v_a.dtype(), width) % 16 != 0)
    return Refusal{"v_a", "has D = " + std::to_string(width) + ": the H200's kernel takes rows of whole 16 bytes"};
  return {};
}

void hopper(const MergeStateV2& op, const Exec& exec) {
  merge_hopper(partial_merge(op, true), exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_merge_state_v2() {
  return define<ops::MergeStateV2>({
      .contract = R"(
As merge_state, in base e: m = max(s_a, s_b) after s = +inf was taken for -inf, weights exp(s - m), each divided by their sum; v
= v_a*p_a + v_b*p_b in fp32, rounded once to the type (nearest even); s = m + ln(sum). Log-sum-exps are natural logarithms:
those of a base-2 kernel must be multiplied by ln 2 first. A side with s = -inf or +inf leaves the other unchanged. Both so:
NaN, or v = 0 and s = -inf with both_empty=zero. A NaN gives NaN. Budget, in units of 2^-24: the smaller weight's relative error
2.25*|s_a - s_b| + 4 moves v along v_a - v_b; 6 of |v_a*p_a| + |v_b*p_b| and, for 16-bit types, 1 of |v|; s: 6.1 + the sum's
error + its logarithm's rounding; plus what flushed denormals carry. An infinite v whose weight may be flushed is open.)",
      .golden = ops::golden<ops::MergeRule::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .mistakes = {{"shares-not-normalized", "the weights are not divided by their sum",
                    ops::golden<ops::MergeRule::shares_not_normalized>},
                   {"logarithm-left-out", "the larger log-sum-exp is written, without the logarithm of the sum",
                    ops::golden<ops::MergeRule::logarithm_left_out>},
                   {"infinity-not-empty", "a log-sum-exp of +inf is not taken for a side without keys",
                    ops::golden<ops::MergeRule::infinity_otherwise>}},
      .customary = {{"*", CustomaryKind::close, 1e-3, 1e-3, "sgl-kernel/tests/test_merge_state_v2.py (rtol 1e-2 for bf16)"}},
      .cases = {"T=3 N=16 D=128", "T=2 N=5 D=64 --dtype v_a=f16", "T=2 N=17 D=48 --dtype v_a=f32", "T=2 N=128 D=128 --dialect flashinfer",
                "T=3 N=6 D=32 --special infinite-lse"},
      .bench_cases = {"T=1 N=128 D=128", "T=256 N=128 D=128", "T=1024 N=128 D=128"},
  });
}
}  // namespace dodona
