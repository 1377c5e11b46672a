#include "ops/speculative/filter_finished_cache_loc_kernel.h"

#include <algorithm>

#include "ops/base/golden_output.h"
#include "ops/schemes/request_spans.h"

namespace dodona::ops {
namespace {

using Filter = FilterFinishedCacheLocKernel;

/// The rule itself, and a mistake of such kernels.
enum class Rule { right, roots_not_counted };

void make_inputs(Filter& op, std::uint64_t seed) {
  const std::int64_t requests = op.accept_length.elements(), accepted = std::max<std::int64_t>(0, op.tgt_cache_loc.elements() - requests);
  std::vector<std::int64_t> slots = shares(InputDraw(seed, "accept_length"), requests, accepted, accepted);
  put_all(op.accept_length, slots);
  for (std::int64_t& count : slots) ++count;
  put_all(op.accept_length_filter, shares(InputDraw(seed, "accept_length_filter"), slots, op.out_cache_loc.elements()));
}

void check(const Filter& op) {
  check_whole(op.accept_length, "accept_length", 0, op.tgt_cache_loc.elements());
  check_sum(op.accept_length, "accept_length", 1, op.tgt_cache_loc.elements(), "tgt_cache_loc");
  for (std::int64_t b = 0; b < op.accept_length.elements(); ++b)
    if (const std::int64_t count = index_at(op.accept_length_filter, b), most = index_at(op.accept_length, b) + 1;
        count < 0 || count > most)
      bad_whole("accept_length_filter", count, b, "0 to " + std::to_string(most) + ", accept_length + 1");
  check_sum(op.accept_length_filter, "accept_length_filter", 0, op.out_cache_loc.elements(), "out_cache_loc");
}

template <Rule rule>
void filter(const Filter& op) {
  const auto* from = op.tgt_cache_loc.as<const std::int64_t>();
  auto* to = op.out_cache_loc.as<std::int64_t>();
  for (std::int64_t b = 0; b < op.accept_length.elements(); ++b) {
    to = std::copy_n(from, index_at(op.accept_length_filter, b), to);
    from += index_at(op.accept_length, b) + (rule == Rule::roots_not_counted ? 0 : 1);
  }
}

void fast(const Filter& op, const Exec&) {
  filter<Rule::right>(op);
}

template <Rule rule>
void golden(const Filter& op, const Exec&, Reference* reference) {
  filter<rule>(op);
  record_exact(op.out_cache_loc, reference, "out_cache_loc");
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_filter_finished_cache_loc_kernel() {
  return define<ops::FilterFinishedCacheLocKernel>({
      .contract = "Whole numbers, copied. Lengths that do not add up to the slots are an error here; upstream reads and writes outside.",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::fast,
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .mistakes = {{"roots-not-counted", "a request's slots are counted without its root's", ops::golden<ops::Rule::roots_not_counted>}},
      .cases = {"B=4 n=13 m=9", "B=9 n=20 m=20 --dtype accept_length=i64", "B=2 n=6 m=0"},
      .bench_cases = {"B=64 n=256 m=200"},
  });
}
}  // namespace dodona
