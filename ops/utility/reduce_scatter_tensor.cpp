#include "ops/utility/reduce_scatter_tensor.h"

#include <algorithm>
#include <vector>

#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/rows/sums/rank_sums.h"

namespace dodona::ops {
namespace {

/// The rule itself, and mistakes of such kernels.
enum class Rule { right, rounded_once, rank_left_out, part_of_the_next };

int element_bytes(const ReduceScatterTensor& op) {
  return bits(op.input.dtype()) / 8;
}

RankSum sum_of(const ReduceScatterTensor& op) {
  return {.type = op.input.dtype(), .ranks = op.ranks(), .rounded_between = true, .any_order = op.order == "any"};
}

/// body(run, position of its first sum in the output).
template <class Body>
void each_run(const ReduceScatterTensor& op, const Exec& exec, const Body& body) {
  const std::int64_t part_bytes = op.part() * element_bytes(op);
  std::vector<RankRun> runs;
  for (std::int64_t r = 0; r < op.ranks(); ++r) {
    const RankRun part{op.input.as<const std::byte>() + r * part_bytes, op.ranks() * part_bytes, op.part(), (r + 1) % op.ranks()};
    for (const RankRun& piece : cut(part, op.input.dtype())) runs.push_back(piece);
  }
  const auto count = static_cast<std::int64_t>(runs.size());
  const double cost = static_cast<double>(op.input.elements() / std::max<std::int64_t>(1, count));
  parallel_for(exec.threads, count, cost, [&](std::int64_t i) {
    const RankRun& run = runs[static_cast<std::size_t>(i)];
    body(run, (run.terms - op.input.as<const std::byte>()) / element_bytes(op));
  });
}

template <Rule rule>
void golden(const ReduceScatterTensor& op, const Exec& exec, Reference* reference) {
  const GoldenOutput out(op.output, reference, "output");
  out.make_open();
  RankSum sum = sum_of(op);
  if (rule == Rule::rounded_once) sum.rounded_between = false;
  if (rule == Rule::rank_left_out) sum.left_out = 1;
  const std::int64_t all = op.ranks() * op.part();
  each_run(op, exec, [&](const RankRun& run, std::int64_t first) {
    const std::vector<Bounded> sums = golden_sums(sum, run);
    const std::int64_t shift = rule == Rule::part_of_the_next ? op.part() : 0;
    for (std::size_t i = 0; i < sums.size(); ++i) out.put((first + shift + static_cast<std::int64_t>(i)) % all, sums[i]);
  });
}

void fast(const ReduceScatterTensor& op, const Exec& exec) {
  each_run(op, exec, [&](const RankRun& run, std::int64_t first) {
    fast_sums(sum_of(op), run, op.output.as<std::byte>() + first * element_bytes(op), exec.isa);
  });
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_reduce_scatter_tensor() {
  return define<ops::ReduceScatterTensor>({
      .contract = R"(
order=ring: part r is added from rank r + 1 on, in a ring, up to rank r; every sum is rounded to the type (nearest even), for it travels so,
and no denormal is flushed: no bit is open. order=any: R - 1 roundings to the type and as many to fp32 of the sum of magnitudes, and what
flushed denormals lose; partial sums that may be beyond the type leave the result open. Fast mode has the ring's bits.)",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::fast,
      .mistakes = {{"rounded-once", "sums travel in fp32 and are rounded once", ops::golden<ops::Rule::rounded_once>, true},
                   {"rank-left-out", "a rank's own terms are missing in its part", ops::golden<ops::Rule::rank_left_out>},
                   {"part-of-the-next", "each rank is given the part of the rank before it", ops::golden<ops::Rule::part_of_the_next>}},
      .cases = {"R=4 T=2 H=1024 --attr order=ring", "R=3 T=3 H=111", "R=8 T=1 H=520 --dtype input=f16 --attr order=ring",
                "R=2 T=4 H=64 --dtype input=f32"},
      .bench_cases = {"R=8 T=2 H=7168", "R=8 T=64 H=7168"},
  });
}
}  // namespace dodona
