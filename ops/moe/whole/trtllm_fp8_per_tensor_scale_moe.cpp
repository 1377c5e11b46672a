#include "ops/moe/whole/trtllm_fp8_per_tensor_scale_moe.h"

#include "core/random.h"

namespace dodona::ops {
namespace {

constexpr MoeScheme scheme{.numbers = MoeNumbers::fp8,
                           .sums = {Order::steps, &quant::tensor_core::sm100_fp8},
                           .sums_become = kept_in_f32,
                           .activated_become = static_fp8,
                           .shuffled = 32,
                           .alternating = true};

WholeMoe whole(const TrtllmFp8PerTensorScaleMoe& op, std::vector<TokenExperts> routes) {
  WholeMoe moe = trtllm_moe(op, scheme, std::move(routes));
  moe.gate_factor = op.output1_scales_gate_scalar;
  moe.up_factor = op.output1_scales_scalar;
  moe.out_factor = op.output2_scales_scalar;
  moe.factor_after_rounding = moe.like_reference;
  moe.weighted_input = op.use_routing_scales_on_input;
  return moe;
}

void make_inputs(TrtllmFp8PerTensorScaleMoe& op, std::uint64_t seed) {
  const auto fill = [seed](const Tensor& factors, const char* name, float unit) {
    const InputDraw draw(seed, name);
    for (std::int64_t e = 0; e < factors.elements(); ++e) factors.as<float>()[e] = static_cast<float>(128 + draw.below(e, 256)) * unit;
  };
  fill(op.output1_scales_scalar, "output1_scales_scalar", op.gated ? 0x1p-15f : 0x1p-4f);
  fill(op.output1_scales_gate_scalar, "output1_scales_gate_scalar", 0x1p-19f);
}

void check(const TrtllmFp8PerTensorScaleMoe& op) {
  check_trtllm_moe(op);
  if (op.use_routing_scales_on_input && op.top_k != 1)
    throw Error(ErrorCode::bad_value, "", "use_routing_scales_on_input",
                "is true with top_k = " + std::to_string(op.top_k) + ", expected one expert a token");
}

using Functions = TrtllmFunctions<TrtllmFp8PerTensorScaleMoe, whole>;

/// The two factors of the first product exchanged.
void golden_with_factors_exchanged(const TrtllmFp8PerTensorScaleMoe& op, const Exec& exec, Reference* reference) {
  TrtllmFp8PerTensorScaleMoe other = op;
  std::swap(other.output1_scales_scalar, other.output1_scales_gate_scalar);
  Functions::golden<MoeMistake::none>(other, exec, reference);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_trtllm_fp8_per_tensor_scale_moe() {
  Implementation<ops::TrtllmFp8PerTensorScaleMoe> all = ops::Functions::all();
  all.contract = std::string(ops::trtllm_router_contract) + std::string(ops::whole_moe_contract) + R"(
 acc = sum of the products over all of K; budget: the steps of a B200's fp8 unit and K units of 2^-24 in any order. acc times
output1_scales_gate_scalar (gate), output1_scales_scalar (up), output2_scales_scalar (y), each rounded to fp32; with
use_routing_scales_on_input gate and up times the weight, which results are then not multiplied by. h becomes e4m3(h), saturating at 448.
y is rounded to bf16 before it is weighted.)" +
                 std::string(ops::trtllm_moe_contract);
  all.contract_version = 2;
  all.prepare = ops::Functions::prepared({"gemm1_weights", "gemm2_weights"});
  all.make_inputs = ops::make_inputs;
  all.check = ops::check;
  all.mistakes.push_back({"next-experts-factors", "sums are multiplied with the factors of the expert behind theirs",
                          ops::Functions::golden<ops::MoeMistake::next_experts_factors>});
  all.mistakes.push_back(
      {"factors-exchanged", "gate is multiplied with the factor of up, and up with that of gate", ops::golden_with_factors_exchanged});
  all.mistakes.push_back(
      {"read-unshuffled", "shuffled weights are read row by row", ops::Functions::golden<ops::MoeMistake::read_unshuffled>});
  all.customary = {{"output", CustomaryKind::close, 0.85, 0.1, "tests/moe/trtllm_gen_fused_moe_utils.py (of 92.5 % of the elements)"}};
  all.cases = ops::trtllm_cases("");
  all.cases.push_back(
      "T=4 H=128 --attr num_experts=4 --attr top_k=1 --attr routing_method_type=Llama4 --attr intermediate_size=128 "
      "--attr local_num_experts=4 --attr use_routing_scales_on_input=true");
  for (const std::string& line : ops::trtllm_activation_cases()) all.cases.push_back(line);
  all.bench_cases = ops::trtllm_bench_cases("");
  for (const std::string& line : ops::trtllm_activation_bench_cases()) all.bench_cases.push_back(line);
  return define<ops::TrtllmFp8PerTensorScaleMoe>(std::move(all));
}
}  // namespace dodona
