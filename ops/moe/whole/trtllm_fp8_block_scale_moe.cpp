#include "ops/moe/whole/trtllm_fp8_block_scale_moe.h"

#include "core/random.h"

namespace dodona::ops {
namespace {

WholeMoe whole(const TrtllmFp8BlockScaleMoe& op, std::vector<TokenExperts> routes) {
  WholeMoe moe = trtllm_moe(op, trtllm_fp8_blocks, std::move(routes));
  moe.x_scales = op.hidden_states_scale;
  moe.first.scales = op.gemm1_weights_scale;
  moe.second.scales = op.gemm2_weights_scale;
  return moe;
}

void make_inputs(TrtllmFp8BlockScaleMoe& op, std::uint64_t seed) {
  const InputDraw draw(seed, "hidden_states_scale");
  for (std::int64_t i = 0; i < op.hidden_states_scale.elements(); ++i)
    op.hidden_states_scale.as<float>()[i] = static_cast<float>(128 + draw.below(i, 256)) * 0x1p-19f;
}

using Functions = TrtllmFunctions<TrtllmFp8BlockScaleMoe, whole>;

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_trtllm_fp8_block_scale_moe() {
  Implementation<ops::TrtllmFp8BlockScaleMoe> all = ops::Functions::all();
  all.contract = std::string(ops::trtllm_router_contract) + std::string(ops::whole_moe_contract) + R"(
 Both products restart every 128 of K: t = sum of the products, acc = fma(t, fl32(scale_x * scale_w), acc); budget of t: the steps of a
B200's fp8 unit, as deep_gemm's fp8_gemm_nt has them, and 128 units of 2^-24 in any order. [u; g] is quantized before the activation (the
products' kernel keeps it in fp8), and so is h: of each 128 s = max(amax / 448, 2^-126), e4m3(x / s), saturating. y is rounded to bf16
before it is weighted. The quantization of [u; g] lies in closed code: a model.)" +
                 std::string(ops::trtllm_moe_contract);
  all.contract_version = 2;
  all.prepare = ops::Functions::prepared({"gemm1_weights", "gemm1_weights_scale", "gemm2_weights", "gemm2_weights_scale"});
  all.make_inputs = ops::make_inputs;
  all.mistakes.push_back({"next-experts-scales", "weights are multiplied with the scales of the expert behind theirs",
                          ops::Functions::golden<ops::MoeMistake::next_experts_scales>});
  all.customary = {{"output", CustomaryKind::close, 0.85, 0.1, "tests/moe/test_dpsk_fused_moe_fp8.py (of 79 % of the elements)"}};
  all.cases = ops::trtllm_cases(" --attr use_shuffled_weight=true");
  all.cases.push_back(ops::trtllm_grouped_case + " --attr num_fused_shared_experts=1 --attr arithmetic=kernel");
  all.bench_cases = ops::trtllm_bench_cases("");
  return define<ops::TrtllmFp8BlockScaleMoe>(std::move(all));
}
}  // namespace dodona
