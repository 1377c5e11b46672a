#include "ops/gemm/dsv3_router_gemm.h"

#include <array>

#include "core/threads.h"
#include "ops/sums/products.h"
#include "ops/tiles/dot.h"
#include "quant/element.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

DotProduct product_of(const Dsv3RouterGemm& op) {
  return {batch_of_one(op.hidden_states), batch_of_one(op.router_weights.transpose(0, 1)), batch_of_one(op.output)};
}

void golden(const Dsv3RouterGemm& op, const Exec& exec, Reference* reference) {
  golden_products(batched_products(batch_of_one(op.hidden_states), batch_of_one(op.router_weights.transpose(0, 1))), half_in_parts,
                  op.output, reference, "output", exec);
}

void fast(const Dsv3RouterGemm& op, const Exec& exec) {
  dot_multiply(product_of(op), exec);
}

double flops(const Dsv3RouterGemm& op) {
  return dot_flops(product_of(op));
}

// ---- hopper

constexpr std::size_t threads = 128, warp = 32, loaded = 8, hidden = 7168;

/// What a block of threads adds up, in its order.
float block_dot(const float* x, const float* w) {
  namespace hw = quant::hopper;
  std::array<float, threads> sums{};
  for (std::size_t begin = 0; begin < hidden; begin += threads * loaded)
    for (std::size_t thread = 0; thread < threads; ++thread)
      for (std::size_t k = begin + thread * loaded; k < begin + (thread + 1) * loaded; ++k)
        sums[thread] = hw::fma(x[k], w[k], sums[thread]);
  float total = 0;
  for (std::size_t first = 0; first < threads; first += warp) {
    // After each exchange the lower lanes hold what all lanes hold: addition commutes.
    for (std::size_t other = warp / 2; other > 0; other /= 2)
      for (std::size_t lane = 0; lane < other; ++lane) sums[first + lane] = hw::add(sums[first + lane], sums[first + lane + other]);
    total = hw::add(total, sums[first]);
  }
  return total;
}

void hopper(const Dsv3RouterGemm& op, const Exec& exec) {
  const std::int64_t tokens = op.hidden_states.size(0), experts = op.router_weights.size(0);
  std::vector<float> x(static_cast<std::size_t>(tokens) * hidden);
  quant::to_f32(bf16, op.hidden_states.data(), x.data(), static_cast<std::int64_t>(x.size()));
  parallel_for(exec.threads, experts, static_cast<double>(tokens) * 10 * hidden, [&](std::int64_t expert) {
    std::array<float, hidden> w;
    quant::to_f32(bf16, op.router_weights.as<std::uint16_t>() + expert * static_cast<std::int64_t>(hidden), w.data(), hidden);
    for (std::int64_t token = 0; token < tokens; ++token) {
      const float logit = block_dot(x.data() + static_cast<std::size_t>(token) * hidden, w.data());
      quant::from_f32(op.out_dtype, &logit, op.output.as<std::byte>() + (token * experts + expert) * (bits(op.out_dtype) / 8), 1);
    }
  });
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_dsv3_router_gemm() {
  return define<ops::Dsv3RouterGemm>({
      .contract = R"(
Upstream's order, and hopper mode's: thread r of 128 adds k = 1024 j + 8 r + u, j outer and u inner, by fused multiply-adds;
each warp adds its threads by xor 16, 8, 4, 2, 1; then ((((0 + w0) + w1) + w2) + w3). Other orders are as good:
)" + std::string(ops::half_sum_contract),
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .flops = ops::flops,
      .customary = {{"*", CustomaryKind::close, 1e-2, 1e-3, "sgl-kernel/tests/test_dsv3_router_gemm.py, torch.allclose"}},
      .cases = {"T=2 E=256 --attr out_dtype=f32", "T=1 E=256 --attr out_dtype=f32 --dist wide-exponent"},
      .bench_cases = {"T=1 E=256 --attr out_dtype=f32", "T=16 E=256 --attr out_dtype=f32"},
  });
}
}  // namespace dodona
