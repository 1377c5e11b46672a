#include "ops/gemm/dsv3_fused_a_gemm.h"

#include <algorithm>
#include <vector>

#include "core/threads.h"
#include "ops/sums/half_gemm.h"
#include "quant/element.h"
#include "quant/hopper/fast_math.h"
#include "quant/hopper/tensor_core.h"

namespace dodona::ops {
namespace {

HalfGemm gemm_of(const Dsv3FusedAGemm& op) {
  return {batch_of_one(op.mat_a), batch_of_one(op.mat_b), batch_of_one(op.output)};
}

void golden(const Dsv3FusedAGemm& op, const Exec& exec, Reference* reference) {
  half_gemm_golden(gemm_of(op), exec, reference, "output");
}

void fast(const Dsv3FusedAGemm& op, const Exec& exec) {
  half_gemm_fast(gemm_of(op), exec);
}

/// Below eight rows a weight byte is used too seldom for anything but memory to be the limit.
double flops(const Dsv3FusedAGemm& op) {
  return op.mat_a.size(0) < 8 ? 0.0 : half_gemm_flops(gemm_of(op));
}

void hopper(const Dsv3FusedAGemm& op, const Exec& exec) {
  namespace hw = quant::hopper;
  const std::int64_t tokens = op.mat_a.size(0), k = op.mat_a.size(1), n = op.mat_b.size(1);
  constexpr std::int64_t parts = 4;   // warps, each with its part of K
  constexpr std::int64_t group = 64;  // columns decoded at a time
  const hw::MmaRows a(hw::half_mma, bf16, op.mat_a.data(), tokens, k);
  parallel_for(exec.threads, (n + group - 1) / group, static_cast<double>(tokens * k * group), [&](std::int64_t task) {
    const std::int64_t first = task * group, columns = std::min(group, n - first);
    const hw::MmaColumns b(hw::half_mma, bf16, op.mat_b.as<std::uint16_t>() + first * k, columns, k);
    std::vector<float> sums(static_cast<std::size_t>(tokens * columns)), part(sums.size());
    for (std::int64_t p = 0; p < parts; ++p) {
      std::fill(part.begin(), part.end(), 0.0f);
      hw::accumulate(a, b, k / parts * p, k / parts * (p + 1), part.data(), columns);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = p == 0 ? part[i] : hw::add(sums[i], part[i]);
    }
    for (std::int64_t i = 0; i < tokens; ++i)
      quant::from_f32(bf16, sums.data() + i * columns, op.output.as<std::uint16_t>() + i * n + first, columns);
  });
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_dsv3_fused_a_gemm() {
  return define<ops::Dsv3FusedAGemm>({
      .contract = R"(
Upstream's order, and hopper mode's: K in four contiguous quarters, each summed by tensor-core steps of 16 products; the four
fp32 sums added left to right. Other orders are as good:
)" + std::string(ops::half_sum_contract),
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .flops = ops::flops,
      .cases = {"T=1"},
      .bench_cases = {"T=1", "T=16"},
  });
}
}  // namespace dodona
