#include "ops/utility/trtllm_allreduce_fusion.h"

#include <cmath>
#include <vector>

#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/base/rows.h"
#include "ops/rows/norms/rms_mistakes.h"
#include "ops/rows/norms/rms_row.h"
#include "ops/rows/norms/root_mean_square.h"
#include "ops/rows/sums/rank_sums.h"
#include "quant/element.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

using Fusion = TrtllmAllreduceFusion;

int element_bytes(const Fusion& op) {
  return bits(op.allreduce_in.dtype()) / 8;
}

RankSum sum_of(const Fusion& op) {
  return {.type = op.allreduce_in.dtype(),
          .ranks = op.ranks(),
          .rounded_between = !op.fp32_acc,
          .flushes = true,
          .negative_zero = !op.use_oneshot};
}

RankRun run_of(const Fusion& op, std::int64_t t) {
  const std::int64_t row = op.width() * element_bytes(op);
  return {op.allreduce_in.as<const std::byte>() + t * row, op.tokens() * row, op.width()};
}

double cost_of_token(const Fusion& op) {
  return static_cast<double>((op.ranks() + 2) * op.width());
}

/// x itself where a build that flushes denormals has zero in its place, else 0.
double lost_if_flushed(double x) {
  return std::fabs(x) < flush_floor ? std::fabs(x) : 0.0;
}

/// What is normalised: the sum of ranks and residual, before its rounding to the type.
Bounded with_residual(const Bounded& sum, double residual, double copies) {
  const auto added = static_cast<double>(static_cast<float>(sum.exact) + static_cast<float>(residual * copies));
  // Behind a sum that is not fixed, the addition's own rounding is not either.
  const double lost = sum.slack > 0 ? sum.slack + f32_eps * std::fabs(added) : 0.0;
  return {added, lost + lost_if_flushed(sum.exact) + lost_if_flushed(residual) + lost_if_flushed(added), sum.open};
}

/// The rule itself, and mistakes of such kernels.
enum class Rule { right, residual_of_each_rank, sum_not_rounded, rank_left_out };

template <Rule rule, RmsFactorOf factor>
void golden_by(const Fusion& op, const Exec& exec, Reference* reference) {
  const GoldenOutput out(op.norm_out, reference, "norm_out"), sum_out(op.residual_out, reference, "residual_out");
  out.make_open();
  sum_out.make_open();
  const DType type = op.allreduce_in.dtype();
  const std::int64_t width = op.width();
  RankSum sum = sum_of(op);
  if (rule == Rule::rank_left_out) sum.left_out = 1;
  if (rule == Rule::sum_not_rounded) sum.rounded_between = false;
  std::vector<double> gamma(static_cast<std::size_t>(width));
  quant::to_f64(type, op.rms_gamma.data(), gamma.data(), width);
  parallel_for(exec.threads, op.tokens(), cost_of_token(op), [&](std::int64_t t) {
    const std::vector<Bounded> sums = golden_sums(sum, run_of(op, t));
    std::vector<double> residual(static_cast<std::size_t>(width)), x(residual.size()), lost(residual.size());
    quant::to_f64(type, row_begin(op.residual_in, t, element_bytes(op)), residual.data(), width);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double copies = rule == Rule::residual_of_each_rank ? static_cast<double>(op.ranks()) : 1.0;
      const Bounded reduced = rule == Rule::sum_not_rounded ? sums[i] : rounded_to(type, sums[i]);
      const Bounded added = with_residual(reduced, residual[i], copies);
      sum_out.put(t * width + static_cast<std::int64_t>(i), added);
      const Bounded rounded = rounded_to(type, added);
      x[i] = rounded.exact;
      lost[i] = rounded.slack;
    }
    golden_rms_row(out, type, t * width, x, lost, gamma, op.rms_eps, false, factor);
  });
}

void fast(const Fusion& op, const Exec& exec) {
  const std::int64_t tokens = op.tokens(), width = op.width();
  const int bytes = element_bytes(op);
  parallel_for(exec.threads, tokens, cost_of_token(op), [&](std::int64_t t) {
    std::byte* const norm = row_begin_mutable(op.norm_out, t, bytes);
    fast_sums(sum_of(op), run_of(op, t), norm, exec.isa);
    const std::byte* const residual = row_begin(op.residual_in, t, bytes);
    const RmsRow row{.input = norm,
                     .addend = residual,
                     .weight = op.rms_gamma.data(),
                     .output = norm,
                     .sum_output = row_begin_mutable(op.residual_out, t, bytes),
                     .next_input = norm,
                     .next_addend = next_row_begin(op.residual_in, t, bytes),
                     .n = width,
                     .type = op.allreduce_in.dtype(),
                     .eps = static_cast<float>(op.rms_eps),
                     .writing = Writing::cached,
                     .sum_rounded = true,
                     .weight_rounded = false};
    dispatch<RmsRowKernel>(exec.isa, row);
  });
}

/// Blocks of a cluster as the launcher chooses them, and why they are not known.
struct Launch {
  std::int64_t blocks = 1;
  const char* unknown = nullptr;
};
Launch launch_of(const Fusion& op) {
  const std::int64_t vector = 16 / element_bytes(op), multiprocessors = 132;
  if (op.width() % vector != 0) return {1, "is no multiple of 16 bytes wide"};
  const std::int64_t vectors = op.width() / vector;
  std::int64_t blocks = op.cluster_size > 0 ? op.cluster_size : 8;
  if (op.cluster_size > 0 && vectors % blocks != 0) return {1, "cannot be shared out among so many blocks"};
  if (op.cluster_size == 0) {
    while (vectors % blocks != 0) blocks /= 2;
    while (vectors / blocks < 128 && blocks >= 2) blocks /= 2;
    const std::int64_t clusters = op.use_oneshot ? op.tokens() : (op.tokens() + op.ranks() - 1) / op.ranks();
    // Blocks are doubled, up to 1024 threads, as long as the multiprocessors do not hold all; a thread has 255 registers at most.
    while (clusters * blocks > multiprocessors && blocks > 1 && vectors / blocks <= 512) {
      if (vectors / blocks > 128) return {1, "needs a choice that depends on the registers of the build: give cluster_size"};
      blocks /= 2;
    }
  }
  const std::int64_t threads = vectors / blocks;
  if (threads > 1024) return {1, "takes more than 1024 threads of a block"};
  if (threads % 32 != 0) return {1, "leaves a warp of a block unfilled, of which the kernel makes nothing that could be relied on"};
  return {blocks};
}

std::optional<Refusal> unsupported(const Fusion& op, Mode mode) {
  if (mode != Mode::hopper) return {};
  if (const char* const why = launch_of(op).unknown)
    return Refusal{"allreduce_in", "of width " + std::to_string(op.width()) + " and " + std::to_string(op.tokens()) + " tokens " + why +
                                       ": there is no hopper mode for that"};
  return {};
}

void hopper(const Fusion& op, const Exec& exec) {
  const DType type = op.allreduce_in.dtype();
  const std::int64_t width = op.width(), blocks = launch_of(op).blocks;
  std::vector<float> gamma(static_cast<std::size_t>(width));
  quant::to_f32(type, op.rms_gamma.data(), gamma.data(), width);
  parallel_for(exec.threads, op.tokens(), cost_of_token(op), [&](std::int64_t t) {
    std::byte* const stored = row_begin_mutable(op.residual_out, t, element_bytes(op));
    std::vector<float> x = hopper_sums(sum_of(op), run_of(op, t)), residual(x.size());
    quant::to_f32(type, row_begin(op.residual_in, t, element_bytes(op)), residual.data(), width);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = quant::hopper::add(static_cast<float>(quant::round_to(type, x[i])), residual[i]);
    quant::from_f32(type, x.data(), stored, width);
    quant::to_f32(type, stored, x.data(), width);
    hopper_rms_row(RmsKernel::flashinfer_unbiased, x, gamma, type, op.rms_eps, 0.0, blocks);
    quant::from_f32(type, x.data(), row_begin_mutable(op.norm_out, t, element_bytes(op)), width);
  });
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_trtllm_allreduce_fusion() {
  using ops::Rule;
  return define<ops::TrtllmAllreduceFusion>({
      .contract = R"(
Terms are added by rising rank in fp32, each sum rounded to the type (nearest even; fp32_acc: the last one alone); that plus residual_in, in
fp32, rounded to the type, is residual_out: nothing is open but what builds that flush denormals lose on the way. norm_out is
(residual_out*s)*rms_gamma as in rmsnorm, of the rounded sum, within its budget. Hopper mode has the bits of an H100: a thread for each 16
bytes of a row, squares of a vector by fma in order, butterflies over lanes and warps, the blocks of a cluster in order.)",
      .golden = ops::golden_by<Rule::right, ops::rms_factor_of>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .mistakes = ops::rms_mistakes<ops::TrtllmAllreduceFusion, 2>(
          []<ops::RmsFactorOf factor> { return ops::golden_by<Rule::right, factor>; },
          {{"residual-of-each-rank", "the residual is added on every rank",
            ops::golden_by<Rule::residual_of_each_rank, ops::rms_factor_of>},
           {"rank-left-out", "the terms of the last rank are missing", ops::golden_by<Rule::rank_left_out, ops::rms_factor_of>},
           {"sum-not-rounded", "the ranks' sum is not rounded to the type before the residual is added",
            ops::golden_by<Rule::sum_not_rounded, ops::rms_factor_of>, true}}),
      .customary = {{"*", CustomaryKind::close, 1e-2, 8e-1, "flashinfer tests/comm/test_trtllm_allreduce_fusion.py (bf16)"}},
      .cases = {"R=2 T=4 H=7168", "R=8 T=9 H=1024 --attr fp32_acc=true --attr use_oneshot=false", "R=4 T=2 H=520 --dtype allreduce_in=f16",
                "R=2 T=3 H=111 --dtype allreduce_in=f32"},
      .bench_cases = {"R=2 T=16 H=7168", "R=8 T=16 H=7168"},
  });
}
}  // namespace dodona
