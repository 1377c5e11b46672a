#include "ops/gemm/dsv3_router_gemm.h"

#include <vector>

#include "core/threads.h"
#include "ops/sums/products.h"
#include "ops/tiles/dot/dot.h"
#include "ops/tiles/dot/thread_dots.h"
#include "quant/element.h"

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

void hopper(const Dsv3RouterGemm& op, const Exec& exec) {
  const std::int64_t tokens = op.hidden_states.size(0), experts = op.router_weights.size(0), hidden = op.hidden_states.size(1);
  const ThreadRows x(op.hidden_states.as<std::uint16_t>(), tokens, hidden, exec.isa);
  const int out_bytes = bits(op.out_dtype) / 8;
  parallel_for(exec.threads, experts, static_cast<double>(tokens * hidden), [&](std::int64_t expert) {
    const ThreadRows w(op.router_weights.as<std::uint16_t>() + expert * hidden, 1, hidden, exec.isa);
    std::vector<float> logits(static_cast<std::size_t>(tokens));
    thread_dots(x, w, 0, logits.data(), exec.isa);
    for (std::int64_t token = 0; token < tokens; ++token)
      quant::from_f32(op.out_dtype, &logits[static_cast<std::size_t>(token)],
                      op.output.as<std::byte>() + (token * experts + expert) * out_bytes, 1);
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
      .contract_version = 2,
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
