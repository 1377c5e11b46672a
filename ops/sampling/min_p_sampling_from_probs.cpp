#include "ops/sampling/min_p_sampling_from_probs.h"

#include <string>

#include "quant/element.h"

namespace dodona::ops {
namespace {

Sampling call_of(const MinPSamplingFromProbs& op) {
  Sampling call = sampling_of(op);
  for (std::int64_t b = 0; b < op.samples.size(0); ++b) call.rules.push_back({.min_p = threshold_of(op.min_p_arr, op.min_p, b)});
  return call;
}

void check(const MinPSamplingFromProbs& op) {
  require_rows(op.probs, op.indices, op.samples);
  for (std::int64_t b = 0; op.min_p_arr.defined() && b < op.min_p_arr.elements(); ++b) {
    const double share = quant::get(op.min_p_arr, b);
    if (!(share >= 0 && share <= 1))
      throw Error(ErrorCode::bad_value, "", "min_p",
                  "holds " + std::to_string(share) + " in row " + std::to_string(b) + ", expected 0 to 1");
  }
}

bool explains_hidden_maximum(const MinPSamplingFromProbs& actual, std::string_view, std::int64_t linear) {
  return may_be_behind_nan(call_of(actual), linear);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_min_p_sampling_from_probs() {
  auto op = ops::sampler<ops::MinPSamplingFromProbs, ops::call_of>();
  op.contract = R"(
t = fl32(max(0, max p) * min_p); u = U * q, U in (0, 1] the first number of Philox4x32-10 (cuRAND's curand_init(seed, output row, offset) and
curand_uniform), q the sum of all p >= t. The sample is the first token in order with p >= t up to which these add up to more than u; where sums
leave none, the last one with p >= t. So a row of zeros gives token V-1, and so may min_p = 0, which keeps tokens of probability 0. NaN and
what is below t are passed over. Sums are fp32 in chains of at most 64 + V/1024 additions: where u lies as close to the end of
a token's share as such sums may be off, its neighbour is right too. Hopper mode: the sums of 1024 threads in chunks of 1024 gcd(4, V),
threads, lanes in pairs, warps, chunks, and the running sums of the chunk that reaches u, by an up-sweep and a down-sweep over lanes and
warps (deterministic) or by distances 1 to 16 over lanes, with warps in order; max p is upstream's, in which a NaN hides elements.)";
  op.contract_version = 2;
  op.defects = {
      {"nan-hides-maximum", "samples",
       "in a row with a NaN too much may be kept: of two numbers upstream's maximum takes the later one only if it is greater, so "
       "behind a NaN larger ones are lost",
       ops::explains_hidden_maximum}};
  op.check = ops::check;
  op.cases = {"B=16 U=16 V=1000 --attr min_p=0.1 --attr philox_seed=1234", "B=9 U=4 V=3200 --with indices --with min_p",
              "B=5 U=5 V=257 --attr min_p=0.02 --attr deterministic=false --dist ties --attr philox_offset=7",
              "B=6 U=6 V=66 --dist edge --attr min_p=0.3"};
  op.bench_cases = {"B=1 U=1 V=129280 --attr min_p=0.02", "B=64 U=64 V=129280 --attr min_p=0.02"};
  return define<ops::MinPSamplingFromProbs>(std::move(op));
}
}  // namespace dodona
