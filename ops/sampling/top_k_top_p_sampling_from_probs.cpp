#include "ops/sampling/top_k_top_p_sampling_from_probs.h"

namespace dodona::ops {
namespace {

Sampling call_of(const TopKTopPSamplingFromProbs& op) {
  Sampling call = sampling_of(op);
  const bool joint = op.filter_apply_order == "joint";
  for (std::int64_t b = 0; b < op.samples.size(0); ++b) {
    const std::uint32_t count = count_of(op.top_k_arr, op.top_k, call.source(b));
    const float mass = threshold_of(op.top_p_arr, op.top_p, call.source(b));
    RowRule rule{.accepts = {.count = {}, .mass = mass}};
    if (joint)
      rule.accepts.count = count;
    else
      rule.top_k_first = Cut{.count = count, .mass = {}, .search = search_named(op.search)};
    call.rules.push_back(rule);
  }
  return call;
}

std::optional<Refusal> unsupported(const TopKTopPSamplingFromProbs& op, Mode mode) {
  if (mode != Mode::hopper || op.search == "thirds" || op.filter_apply_order == "joint") return {};
  return Refusal{"search", "'" + op.search + "' has no hopper mode, expected thirds"};
}

void check(const TopKTopPSamplingFromProbs& op) {
  require_rows(op.probs, op.indices, op.samples);
  require_positive(op.top_k_arr, static_cast<double>(static_cast<std::uint32_t>(op.top_k)), "top_k");
  require_positive(op.top_p_arr, op.top_p, "top_p");
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_top_k_top_p_sampling_from_probs() {
  auto op = ops::sampler<ops::TopKTopPSamplingFromProbs, ops::call_of>();
  op.contract = R"(
Rejection with two pivots. low = 0, high = 1, q = 1. Each round: u = U * q, U in (0, 1] the next number of Philox4x32-10 (cuRAND's
curand_init(seed, output row, offset) and curand_uniform); the token t is the first in order with p > low up to which these add up to more than
u, and where sums leave none the last one with p > low; a = p_t, b = (a + high) / 2. A pivot x is accepted if F(x) < top_p and, in joint order,
C(x) < top_k, with F the sum and C the count of all p > x, top_k as an unsigned number of 32 bits. t is the sample if a is accepted; else (low,
high, q) = (a, b, F(a)) if b is, and (b, high, F(b)) if not. In the order top_k_first p is what top_k_renorm_prob gives of the row, with the same search.
What rows lack of a sum of 1 goes to the last positive token. NaN and negative numbers are passed over; a row with nothing positive is
refused. Pivots in double; sums in fp32, in chains of at most 64 + V/1024 additions: where u or top_p lies as close to a sum as such sums
may be off (and, in the order top_k_first, the renormalised row), what follows either way is right. Hopper mode: the sums of 1024
threads in chunks of 1024 gcd(4, V), threads, lanes in pairs, warps, chunks, and the running sums of the chunk that reaches u, by an up-sweep
and a down-sweep over lanes and warps (deterministic) or by distances 1 to 16 over lanes, with warps in order.)";
  op.check = ops::check;
  op.unsupported = ops::unsupported;
  op.mistakes.push_back(ops::mass_left_whole<ops::TopKTopPSamplingFromProbs, ops::call_of>());
  op.cases = {"B=16 U=16 V=1000 --attr top_k=20 --attr top_p=0.5 --attr philox_seed=1234",
              "B=16 U=16 V=1000 --attr top_k=20 --attr top_p=0.4 --attr philox_seed=1234 --attr filter_apply_order=joint",
              "B=9 U=4 V=3200 --with indices --with top_k --with top_p",
              "B=7 U=7 V=257 --attr top_k=5 --attr top_p=0.9 --attr filter_apply_order=joint --attr deterministic=false --dist ties",
              "B=6 U=6 V=66 --dist edge --attr top_k=-1 --attr top_p=0.7 --attr philox_offset=7"};
  op.bench_cases = {"B=1 U=1 V=129280 --attr top_k=40 --attr top_p=0.95",
                    "B=1 U=1 V=129280 --attr top_k=1073741824 --attr top_p=0.95 --attr filter_apply_order=joint",
                    "B=64 U=64 V=129280 --attr top_k=1073741824 --attr top_p=0.95 --attr filter_apply_order=joint"};
  return define<ops::TopKTopPSamplingFromProbs>(std::move(op));
}
}  // namespace dodona
