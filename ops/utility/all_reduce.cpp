#include "ops/utility/all_reduce.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/rows/sums/rank_sums.h"

namespace dodona::ops {
namespace {

/// The rule itself, and mistakes of such kernels.
enum class Rule { right, rounded_between, rank_left_out };

int element_bytes(const AllReduce& op) {
  return bits(op.inp.dtype()) / 8;
}

bool two_stages(const AllReduce& op) {
  if (op.algorithm != "auto") return op.algorithm == "two_stage";
  const std::int64_t bytes = op.elements() * element_bytes(op);
  return op.ranks() > 2 && bytes >= (op.ranks() <= 4 ? 512 : 256) * 1024;
}

RankSum sum_of(const AllReduce& op) {
  return {.type = op.inp.dtype(), .ranks = op.ranks(), .any_order = op.algorithm == "any", .flushes = true};
}

/// In two stages rank p sums the p-th part, of whole vectors of 16 bytes, and begins with its own terms. The last part has the rest.
std::vector<RankRun> runs_of(const AllReduce& op, bool in_parts) {
  const std::int64_t vector = 16 / element_bytes(op), part = op.elements() / vector / op.ranks() * vector;
  std::vector<RankRun> runs;
  for (std::int64_t p = 0; p < (in_parts ? op.ranks() : 1); ++p) {
    const std::int64_t begin = p * part, end = in_parts && p + 1 < op.ranks() ? begin + part : op.elements();
    const RankRun run{op.inp.as<const std::byte>() + begin * element_bytes(op), op.elements() * element_bytes(op), end - begin, p};
    for (const RankRun& piece : cut(run, op.inp.dtype())) runs.push_back(piece);
  }
  return runs;
}

/// body(run, position of its first element).
template <class Body>
void each_run(const AllReduce& op, const Exec& exec, const std::vector<RankRun>& runs, const Body& body) {
  const auto count = static_cast<std::int64_t>(runs.size());
  parallel_for(exec.threads, count, static_cast<double>(op.ranks() * op.elements() / std::max<std::int64_t>(1, count)),
               [&](std::int64_t i) {
                 const RankRun& run = runs[static_cast<std::size_t>(i)];
                 body(run, (run.terms - op.inp.as<const std::byte>()) / element_bytes(op));
               });
}

template <Rule rule>
void golden(const AllReduce& op, const Exec& exec, Reference* reference) {
  const GoldenOutput out(op.out, reference, "out");
  out.make_open();
  RankSum sum = sum_of(op);
  if (rule == Rule::rounded_between) sum.rounded_between = true;
  if (rule == Rule::rank_left_out) sum.left_out = 1;
  const auto runs = runs_of(op, two_stages(op));
  each_run(op, exec, runs, [&](const RankRun& run, std::int64_t first) {
    const std::vector<Bounded> sums = golden_sums(sum, run);
    for (std::size_t i = 0; i < sums.size(); ++i) out.put(first + static_cast<std::int64_t>(i), sums[i]);
  });
}

void fast(const AllReduce& op, const Exec& exec) {
  each_run(op, exec, runs_of(op, two_stages(op)), [&](const RankRun& run, std::int64_t first) {
    fast_sums(sum_of(op), run, op.out.as<std::byte>() + first * element_bytes(op), exec.isa);
  });
}

void hopper(const AllReduce& op, const Exec& exec) {
  each_run(op, exec, runs_of(op, two_stages(op)), [&](const RankRun& run, std::int64_t first) {
    quant::from_f32(op.inp.dtype(), hopper_sums(sum_of(op), run).data(), op.out.as<std::byte>() + first * element_bytes(op), run.elements);
  });
}

std::optional<Refusal> unsupported(const AllReduce& op, Mode mode) {
  if (mode == Mode::hopper && op.algorithm == "any") return Refusal{"algorithm", "'any' has no bits, and so no hopper mode"};
  return {};
}

void check(const AllReduce& op) {
  if (op.elements() * element_bytes(op) % 16 != 0)
    throw Error(ErrorCode::bad_shape, "", "inp",
                "has " + std::to_string(op.elements()) + " elements in a rank, expected T*H elements of " +
                    std::to_string(element_bytes(op)) +
                    " bytes that are a multiple of 16 bytes, with H = " + std::to_string(op.inp.size(2)));
  if (!op.full_nvlink && op.ranks() > 2)
    throw Error(ErrorCode::unsupported, "", "full_nvlink",
                "is false with " + std::to_string(op.ranks()) + " ranks: upstream launches no kernel then, and leaves out as it was");
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_all_reduce() {
  return define<ops::AllReduce>({
      .contract = R"(
Terms widened to fp32, added rank by rank, each sum rounded to fp32; one rounding to the type (nearest even). one_stage: by rising rank from
rank 0. two_stage: a rank's elements, in vectors of 16 bytes, are R parts of the same number of vectors, the last one with what is left over;
part p is added from rank p on, in a ring. Every rank is given the same bits. Nothing is open but what builds that flush denormals lose: where
a term or a partial sum is denormal, 2 * R * 2^-126 and R - 1 roundings of the sum of magnitudes. algorithm=any: R - 1 roundings to the type
and as many to fp32 of the sum of magnitudes; partial sums that may be beyond the type leave the result open.)",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .check = ops::check,
      .mistakes = {{"sums-rounded", "each sum is rounded to the type", ops::golden<ops::Rule::rounded_between>, true},
                   {"rank-left-out", "the terms of the last rank are missing", ops::golden<ops::Rule::rank_left_out>}},
      .customary = {{"out", CustomaryKind::close, 1.6e-2, 1e-5, "sgl-kernel/tests/test_custom_allreduce.py (whole numbers 1 to 15)"}},
      .cases = {"R=2 T=4 H=7168", "R=4 T=3 H=520 --dtype inp=f16", "R=8 T=3 H=1048 --dtype inp=f32 --attr algorithm=two_stage",
                "R=8 T=5 H=256 --attr algorithm=any", "R=6 T=1 H=104 --attr algorithm=two_stage"},
      .bench_cases = {"R=2 T=16 H=7168", "R=8 T=16 H=7168", "R=8 T=512 H=7168"},
  });
}
}  // namespace dodona
