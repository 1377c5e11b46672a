#include "ops/sampling/top_k_renorm_prob.h"

#include "ops/draws/renorm_rows.h"
#include "ops/draws/sampling.h"

namespace dodona::ops {
namespace {

RenormRows rows_of(const TopKRenormProb& op) {
  RenormRows rows{op.probs, op.renorm_probs, {}};
  for (std::int64_t b = 0; b < op.probs.size(0); ++b)
    rows.cuts.push_back({.count = count_of(op.top_k_arr, op.top_k, b), .mass = {}, .search = search_named(op.search)});
  return rows;
}

template <RenormMistake mistake>
void golden(const TopKRenormProb& op, const Exec& exec, Reference* reference) {
  golden_renorm_rows(rows_of(op), exec, reference, mistake);
}

void fast(const TopKRenormProb& op, const Exec& exec) {
  fast_renorm_rows(rows_of(op), exec);
}

void hopper(const TopKRenormProb& op, const Exec& exec) {
  hopper_renorm_rows(rows_of(op), exec);
}

std::optional<Refusal> unsupported(const TopKRenormProb& op, Mode mode) {
  if (mode != Mode::hopper || op.search == "thirds") return {};
  return Refusal{"search", "'" + op.search + "' has no hopper mode, expected thirds"};
}

bool explains_hidden_maximum(const TopKRenormProb& actual, std::string_view, std::int64_t linear) {
  return hides_maximum(rows_of(actual), linear / actual.probs.size(1));
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_top_k_renorm_prob() {
  return define<ops::TopKRenormProb>({
      .contract = R"(
k as an unsigned number of 32 bits. k >= V: out = probs, bit for bit (builds with fast math flush denormals), NaN and -inf zero. Otherwise out = rn(p / s)
for every p > 0 of which fewer than k are larger, so that all that equal the k-th are kept, and 0 for the others, NaN and negative ones among
them; s is the sum of what is kept, in fp32, at least 1e-8. Upstream finds the threshold by a search in thirds of [0, max], in double;
where that never moves its lower end from 0 (fewer than k are positive, or the last third ends above the least positive one),
s is 1; where it moves only by a denormal, s is open. Infinity is refused: that search would not end.
search=radix: k >= V keeps all of the row, k = 0 nothing, s is the sum of what is kept, at least 1e-8, whatever a search would do; nothing is specified of rows that hold
negative numbers, infinity or NaN. Budget, in units of 2^-24 of out: 4 (an approximate reciprocal of 2, the product) and
64 + V/1024 for the sum, whose chains have at most so many additions; a denormal number may be flushed, and -0 may stay -0. Hopper mode: the order of the sum by 1024 threads in chunks of
1024 gcd(4, V): threads, lanes in pairs, warps, chunks; the maximum from which it searches is upstream's, in which a NaN hides elements.)",
      .contract_version = 4,
      .golden = ops::golden<ops::RenormMistake::none>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .defects = {{"nan-hides-maximum", "renorm_probs",
                   "in a row with a NaN, below top_k = V, too much may be kept: of two numbers the maximum from which upstream searches "
                   "takes the later one only if it is greater, so behind a NaN larger elements are lost (held to the largest elements over "
                   "their sum, or undivided)",
                   ops::explains_hidden_maximum}},
      .mistakes = {{"ties-are-cut", "exactly k are kept, of equals the first ones", ops::golden<ops::RenormMistake::ties_are_cut>},
                   {"not-divided", "what is kept is not divided by its sum", ops::golden<ops::RenormMistake::not_divided>}},
      .customary = {{"renorm_probs", CustomaryKind::close, 1e-3, 1e-3, "sgl-kernel/tests/test_sampling.py"}},
      .cases = {"B=4 V=1000 --attr top_k=50", "B=5 V=257 --attr top_k=8 --dist ties", "B=3 V=3200 --with top_k",
                "B=3 V=96 --attr top_k=70 --dist edge", "B=2 V=4100 --attr top_k=300 --dist outliers", "B=2 V=64 --attr top_k=64"},
      .bench_cases = {"B=1 V=129280 --attr top_k=40", "B=64 V=129280 --attr top_k=40"},
  });
}
}  // namespace dodona
