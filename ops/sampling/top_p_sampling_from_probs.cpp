#include "ops/sampling/top_p_sampling_from_probs.h"

namespace dodona::ops {
namespace {

Sampling call_of(const TopPSamplingFromProbs& op) {
  Sampling call = sampling_of(op);
  for (std::int64_t b = 0; b < op.samples.size(0); ++b)
    call.rules.push_back({.accepts = {.count = {}, .mass = threshold_of(op.top_p_arr, op.top_p, call.source(b))}});
  return call;
}

void check(const TopPSamplingFromProbs& op) {
  require_rows(op.probs, op.indices, op.samples);
  require_positive(op.top_p_arr, op.top_p, "top_p");
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_top_p_sampling_from_probs() {
  auto op = ops::sampler<ops::TopPSamplingFromProbs, ops::call_of>();
  op.contract = R"(
Rejection with two pivots. low = 0, high = 1, q = 1. Each round: u = U * q, U in (0, 1] the next number of Philox4x32-10 (cuRAND's
curand_init(seed, output row, offset) and curand_uniform); the token t is the first in order with p > low up to which these add up to more than
u, and where sums leave none the last one with p > low; a = p_t, b = (a + high) / 2. With F(x) the sum of all p > x: t is the sample if F(a) <
top_p; else (low, high, q) = (a, b, F(a)) if F(b) < top_p, and (b, high, F(b)) if not. What rows lack of a sum of 1 goes to the last
positive token. NaN and negative numbers are passed over; a row with nothing positive is refused. Pivots in double; sums in
fp32, in chains of at most 64 + V/1024 additions: where u or top_p lies as close to a sum as such sums may be off, what follows either
way is right. Hopper mode: the sums of 1024 threads in chunks of 1024 gcd(4, V), threads, lanes in pairs, warps, chunks, and the running
sums of the chunk that reaches u, by an up-sweep and a down-sweep over lanes and warps (deterministic) or by distances 1 to 16 over lanes, with
warps in order.)";
  op.check = ops::check;
  op.mistakes.push_back(ops::mass_left_whole<ops::TopPSamplingFromProbs, ops::call_of>());
  op.cases = {"B=16 U=16 V=1000 --attr top_p=0.5 --attr philox_seed=1234", "B=9 U=4 V=3200 --with indices --with top_p",
              "B=7 U=7 V=257 --attr top_p=0.3 --attr deterministic=false --dist ties --attr philox_offset=7",
              "B=6 U=6 V=66 --dist edge --attr top_p=0.7"};
  op.bench_cases = {"B=1 U=1 V=129280 --attr top_p=0.95", "B=64 U=64 V=129280 --attr top_p=0.95"};
  return define<ops::TopPSamplingFromProbs>(std::move(op));
}
}  // namespace dodona
