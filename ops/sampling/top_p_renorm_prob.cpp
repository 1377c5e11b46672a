#include "ops/sampling/top_p_renorm_prob.h"

#include "ops/draws/renorm_rows.h"
#include "ops/draws/sampling.h"

namespace dodona::ops {
namespace {

RenormRows rows_of(const TopPRenormProb& op) {
  // Rows below 2048 columns are left to the search in thirds, whose precision suffices there.
  const Search search = op.probs.size(1) < 2048 ? Search::thirds : search_named(op.search);
  RenormRows rows{op.probs, op.renorm_probs, {}};
  for (std::int64_t b = 0; b < op.probs.size(0); ++b)
    rows.cuts.push_back({.count = {}, .mass = threshold_of(op.top_p_arr, op.top_p, b), .search = search});
  return rows;
}

template <RenormMistake mistake>
void golden(const TopPRenormProb& op, const Exec& exec, Reference* reference) {
  golden_renorm_rows(rows_of(op), exec, reference, mistake);
}

void condition(const TopPRenormProb& actual, const Exec& exec, Reference& reference) {
  condition_renorm_rows(rows_of(actual), exec, reference);
}

void fast(const TopPRenormProb& op, const Exec& exec) {
  fast_renorm_rows(rows_of(op), exec);
}

void hopper(const TopPRenormProb& op, const Exec& exec) {
  hopper_renorm_rows(rows_of(op), exec);
}

std::optional<Refusal> unsupported(const TopPRenormProb& op, Mode mode) {
  if (mode != Mode::hopper || op.search == "thirds") return {};
  return Refusal{"search", "'" + op.search + "' has no hopper mode, expected thirds"};
}

bool explains_hidden_maximum(const TopPRenormProb& actual, std::string_view, std::int64_t linear) {
  return hides_maximum(rows_of(actual), linear / actual.probs.size(1));
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_top_p_renorm_prob() {
  return define<ops::TopPRenormProb>({
      .contract = R"(
top_p >= 1: out = rn(p / s), s the sum of the row, 1 where that is at most 1e-8. Otherwise out = rn(p / s) for every p > 0 with F(p) < top_p, F(x) the
sum of what is larger than x in fp32, so that the value at which the bound is met is kept with all that equal it; 0 for the others, NaN and
negative ones among them; s is the sum of what is kept, at least 1e-8. Upstream finds the threshold by a search in thirds of [0, max], in double;
where that never moves its lower end from 0 (the row's sum is below top_p, or the last third ends above the least positive one), s is 1.
Infinity is refused below top_p = 1: that search would not end. search=radix, from V = 2048 on: the bound is top_p times the row's sum, also from 1 on, where sums that
fall short may leave small values out; s is 1 where it is at most 1e-8; sums for the bound are atomics', V + 4 units of the row's sum; nothing is specified of
rows that hold negative numbers, infinity or NaN. Budget, in units of 2^-24 of out: 4 (an approximate reciprocal of 2, the product)
and 64 + V/1024 for the sum, whose chains have at most so many additions; a denormal number may be flushed, and -0 may stay -0. Where F lies so close to the bound that such sums may fall
on either side, any cut between is right, and its divisor follows. Hopper mode: the order of the sums by 1024 threads in chunks of
1024 gcd(4, V): threads, lanes in pairs, warps, chunks; with top_p >= 1 threads add up their elements of all chunks first;
the maximum from which it searches is upstream's, in which a NaN hides elements.)",
      .contract_version = 3,
      .golden = ops::golden<ops::RenormMistake::none>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .condition = ops::condition,
      .defects = {{"nan-hides-maximum", "renorm_probs",
                   "in a row with a NaN, below top_p = 1, too much may be kept: of two numbers the maximum from which upstream searches "
                   "takes the later one only if it is greater, so behind a NaN larger elements are lost (held to the largest elements over "
                   "their sum, or undivided)",
                   ops::explains_hidden_maximum}},
      .mistakes = {{"crossing-value-dropped", "the value at which the bound is met is not kept",
                    ops::golden<ops::RenormMistake::crossing_dropped>},
                   {"not-divided", "what is kept is not divided by its sum", ops::golden<ops::RenormMistake::not_divided>}},
      .customary = {{"renorm_probs", CustomaryKind::close, 1e-3, 1e-3, "sgl-kernel/tests/test_sampling.py"}},
      .cases = {"B=4 V=1000 --attr top_p=0.9", "B=5 V=257 --attr top_p=0.7 --dist ties", "B=3 V=3200 --with top_p",
                "B=3 V=96 --attr top_p=0.5 --dist edge", "B=2 V=4100 --attr top_p=0.3 --dist outliers", "B=2 V=64 --attr top_p=1"},
      .bench_cases = {"B=1 V=129280 --attr top_p=0.9", "B=64 V=129280 --attr top_p=0.9"},
  });
}
}  // namespace dodona
