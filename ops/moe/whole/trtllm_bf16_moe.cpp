#include "ops/moe/whole/trtllm_bf16_moe.h"

namespace dodona::ops {
namespace {

WholeMoe whole(const TrtllmBf16Moe& op, std::vector<TokenExperts> routes) {
  return trtllm_moe(op, trtllm_bf16, std::move(routes));
}

using Functions = TrtllmFunctions<TrtllmBf16Moe, whole>;

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_trtllm_bf16_moe() {
  Implementation<ops::TrtllmBf16Moe> all = ops::Functions::all();
  all.contract = std::string(ops::trtllm_router_contract) + std::string(ops::whole_moe_contract) + R"(
 h is rounded to bf16, and so is y before it is weighted. Both sums: )" +
                 std::string(ops::half_sum_contract) + std::string(ops::trtllm_moe_contract);
  all.contract_version = 3;
  all.prepare = ops::Functions::prepared({"gemm1_weights", "gemm2_weights"});
  all.mistakes.push_back(
      {"read-unshuffled", "shuffled weights are read row by row", ops::Functions::golden<ops::MoeMistake::read_unshuffled>});
  all.customary = {{"output", CustomaryKind::close, 0.85, 0.1, "tests/moe/trtllm_gen_fused_moe_utils.py (of 92.5 % of the elements)"}};
  all.cases = ops::trtllm_cases("");
  for (const std::string& line : ops::trtllm_activation_cases()) all.cases.push_back(line);
  all.bench_cases = ops::trtllm_bench_cases("");
  for (const std::string& line : ops::trtllm_activation_bench_cases()) all.bench_cases.push_back(line);
  return define<ops::TrtllmBf16Moe>(std::move(all));
}
}  // namespace dodona
