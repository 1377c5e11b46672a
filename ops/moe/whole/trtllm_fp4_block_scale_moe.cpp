#include "ops/moe/whole/trtllm_fp4_block_scale_moe.h"

#include "core/random.h"

namespace dodona::ops {
namespace {

/// The factors that upstream's tests make of encode scales.
void take_global_scales(const TrtllmFp4BlockScaleMoe& op, WholeMoe& moe) {
  const Dims each = op.gemm1_global_scale.shape();
  moe.gate_factor = Tensor(f32, each), moe.up_factor = Tensor(f32, each), moe.out_factor = Tensor(f32, each);
  const double activation = op.activation_global_scale == 0 ? 1.0 : op.activation_global_scale;
  const auto rows = static_cast<double>(*op.hidden_states_global_scale.as<float>());
  for (std::int64_t e = 0; e < each[0]; ++e) {
    const auto first = static_cast<double>(op.gemm1_global_scale.as<float>()[e]),
               second = static_cast<double>(op.gemm2_global_scale.as<float>()[e]);
    moe.gate_factor.as<float>()[e] = static_cast<float>(1.0 / (first * rows));
    moe.up_factor.as<float>()[e] = static_cast<float>(activation / (first * rows));
    moe.out_factor.as<float>()[e] = static_cast<float>(1.0 / (activation * second));
  }
}

WholeMoe whole(const TrtllmFp4BlockScaleMoe& op, std::vector<TokenExperts> routes) {
  WholeMoe moe = trtllm_moe(op, trtllm_nvfp4_blocks, std::move(routes));
  if (op.accumulator == "tcgen05") moe.scheme.sums = tcgen05_nvfp4;
  moe.x_scales = op.hidden_states_scale;
  moe.first.scales = op.gemm1_weights_scale;
  moe.second.scales = op.gemm2_weights_scale;
  moe.first_bias = op.gemm1_bias;
  moe.second_bias = op.gemm2_bias;
  moe.gate_factor = op.output1_scale_gate_scalar;
  moe.up_factor = op.output1_scale_scalar;
  moe.out_factor = op.output2_scale_scalar;
  moe.factor_after_rounding = moe.like_reference;
  moe.first.scales_in_tiles = moe.second.scales_in_tiles = !moe.like_reference;
  if (op.gemm1_global_scale.defined()) take_global_scales(op, moe);
  return moe;
}

void check(const TrtllmFp4BlockScaleMoe& op) {
  check_trtllm_moe(op);
  const bool some = op.hidden_states_global_scale.defined() || op.gemm1_global_scale.defined() || op.gemm2_global_scale.defined();
  if (some && op.arithmetic != "reference")
    throw Error(ErrorCode::bad_value, "", "arithmetic", "is kernel, expected reference where global scales stand for the factors");
  for (const auto& [name, scale] :
       {std::pair{"hidden_states_global_scale", &op.hidden_states_global_scale}, std::pair{"gemm1_global_scale", &op.gemm1_global_scale},
        std::pair{"gemm2_global_scale", &op.gemm2_global_scale}})
    if (some && !scale->defined())
      throw Error(ErrorCode::missing_argument, "", name, "is missing, expected all three global scales or none");
}

void make_inputs(TrtllmFp4BlockScaleMoe& op, std::uint64_t seed) {
  const auto fill = [seed](const Tensor& factors, const char* name, float unit) {
    if (!factors.defined()) return;
    const InputDraw draw(seed, name);
    for (std::int64_t e = 0; e < factors.elements(); ++e) factors.as<float>()[e] = static_cast<float>(128 + draw.below(e, 256)) * unit;
  };
  fill(op.output1_scale_scalar, "output1_scale_scalar", op.gated ? 0x1p-13f : 0x1p-7f);
  fill(op.output1_scale_gate_scalar, "output1_scale_gate_scalar", 0x1p-14f);
}

/// The factor of up without the encode scale, which is that of gate.
void golden_without_encode_scale(const TrtllmFp4BlockScaleMoe& op, const Exec& exec, Reference* reference) {
  TrtllmFp4BlockScaleMoe other = op;
  other.output1_scale_scalar = op.output1_scale_gate_scalar;
  TrtllmFunctions<TrtllmFp4BlockScaleMoe, whole>::golden<MoeMistake::none>(other, exec, reference);
}

using Functions = TrtllmFunctions<TrtllmFp4BlockScaleMoe, whole>;

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_trtllm_fp4_block_scale_moe() {
  Implementation<ops::TrtllmFp4BlockScaleMoe> all = ops::Functions::all();
  all.contract = std::string(ops::trtllm_router_contract) + std::string(ops::whole_moe_contract) + R"(
 acc = sum over blocks of 16 of x_scale * w_scale * (exact sum of e2m1 products), as cutlass_fp4_group_mm; acc + bias where there is one;
then times output1_scale_gate_scalar (gate), output1_scale_scalar (up), output2_scale_scalar (y), each rounded to fp32. h is quantized: of
each 16 s = e4m3(amax / 6), e2m1(h / s). y is rounded to bf16 before it is weighted. That h is quantized from fp32 is a model of closed
code.)" + std::string(ops::trtllm_moe_contract);
  all.contract_version = 2;
  all.prepare = ops::Functions::prepared({"gemm1_weights", "gemm1_weights_scale", "gemm2_weights", "gemm2_weights_scale"});
  all.make_inputs = ops::make_inputs;
  all.check = ops::check;
  all.mistakes.push_back({"next-experts-scales", "weights are multiplied with the block scales of the expert behind theirs",
                          ops::Functions::golden<ops::MoeMistake::next_experts_scales>});
  all.mistakes.push_back({"next-experts-factors", "sums are multiplied with the factors of the expert behind theirs",
                          ops::Functions::golden<ops::MoeMistake::next_experts_factors>});
  all.mistakes.push_back({"encode-scale-left-out", "up is multiplied with the factor of gate", ops::golden_without_encode_scale});
  all.mistakes.push_back(
      {"read-unshuffled", "shuffled weights are read row by row", ops::Functions::golden<ops::MoeMistake::read_unshuffled>});
  all.customary = {{"output", CustomaryKind::close, 0.85, 0.1, "tests/moe/trtllm_gen_fused_moe_utils.py (of 92.5 % of the elements)"}};
  all.cases = ops::trtllm_cases(" --attr accumulator=tcgen05");
  all.cases.push_back(ops::trtllm_grouped_case + " --with gemm1_bias --with gemm2_bias");
  all.cases.push_back(
      "T=3 H=128 --attr num_experts=4 --attr top_k=2 --attr routing_method_type=TopK --attr intermediate_size=128 --attr "
      "local_num_experts=4 "
      "--attr arithmetic=reference --attr activation_global_scale=0.5 --with hidden_states_global_scale --with gemm1_global_scale "
      "--with gemm2_global_scale --without output1_scale_scalar --without output1_scale_gate_scalar --without output2_scale_scalar");
  for (const std::string& line : ops::trtllm_activation_cases()) all.cases.push_back(line);
  all.bench_cases = ops::trtllm_bench_cases("");
  for (const std::string& line : ops::trtllm_activation_bench_cases()) all.bench_cases.push_back(line);
  return define<ops::TrtllmFp4BlockScaleMoe>(std::move(all));
}
}  // namespace dodona
