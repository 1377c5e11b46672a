#include "ops/speculative/assign_req_to_token_pool.h"

#include "ops/base/golden_output.h"
#include "ops/schemes/request_spans.h"

namespace dodona::ops {
namespace {

using Assign = AssignReqToTokenPool;

/// The rule itself, and a mistake of such kernels.
enum class Rule { right, each_from_the_first };

void make_inputs(Assign& op, std::uint64_t seed) {
  const std::int64_t columns = op.req_to_token.size(1), requests = op.req_pool_indices.elements();
  const auto lengths = shares(InputDraw(seed, "end_offset"), requests, columns, op.out_cache_loc.elements());
  const InputDraw starts(seed, "start_offset");
  for (std::int64_t b = 0; b < requests; ++b) {
    const std::int64_t length = lengths[static_cast<std::size_t>(b)];
    const auto start = static_cast<std::int64_t>(starts.below(b, static_cast<std::uint64_t>(columns - length + 1)));
    put_index(op.start_offset, b, start);
    put_index(op.end_offset, b, start + length);
  }
}

void check(const Assign& op) {
  const std::int64_t columns = op.req_to_token.size(1);
  check_whole(op.start_offset, "start_offset", 0, columns);
  std::int64_t total = 0;
  for (std::int64_t b = 0; b < op.end_offset.elements(); ++b) {
    const std::int64_t start = index_at(op.start_offset, b), end = index_at(op.end_offset, b);
    if (end < start || end > columns)
      bad_whole("end_offset", end, b,
                "start_offset, " + std::to_string(start) + ", to the columns of req_to_token, " + std::to_string(columns));
    total += end - start;
  }
  if (total > op.out_cache_loc.elements())
    throw Error(ErrorCode::bad_shape, "", "out_cache_loc",
                "has " + std::to_string(op.out_cache_loc.elements()) + " elements, expected the " + std::to_string(total) +
                    " that the offsets ask for");
}

template <Rule rule>
void assign(const Assign& op) {
  std::int64_t next = 0;
  for (std::int64_t b = 0; b < op.req_pool_indices.elements(); ++b) {
    auto* const row = op.req_to_token.as<std::int32_t>() + index_at(op.req_pool_indices, b) * op.req_to_token.size(1);
    if (rule == Rule::each_from_the_first) next = 0;
    for (std::int64_t j = index_at(op.start_offset, b); j < index_at(op.end_offset, b); ++j)
      row[j] = static_cast<std::int32_t>(index_at(op.out_cache_loc, next++));
  }
}

void fast(const Assign& op, const Exec&) {
  assign<Rule::right>(op);
}

template <Rule rule>
void golden(const Assign& op, const Exec&, Reference* reference) {
  assign<rule>(op);
  record_exact(op.req_to_token, reference, "req_to_token");
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_assign_req_to_token_pool() {
  return define<ops::AssignReqToTokenPool>({
      .contract = R"(
Whole numbers, copied and narrowed to 32 bits. Here errors, where upstream reads or writes outside: requests and offsets beyond
req_to_token, more slots than out_cache_loc has.)",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::fast,
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .mistakes = {{"each-from-the-first", "every request gets the first of the new slots", ops::golden<ops::Rule::each_from_the_first>}},
      .cases = {"R=9 C=40 B=5 n=30", "R=3 C=300 B=3 n=500 --dtype out_cache_loc=i32", "R=4 C=8 B=1 n=8 --dtype req_pool_indices=i32"},
      .bench_cases = {"R=128 C=4096 B=64 n=4096"},
  });
}
}  // namespace dodona
