#include "ops/quantization/sgl_per_token_group_quant_8bit.h"

#include <algorithm>

#include "ops/rows/quantize/fp8_codes.h"
#include "quant/amax.h"

namespace dodona {
std::unique_ptr<Op> op_sgl_per_token_group_quant_8bit() {
  const std::string int8 = " --attr fp8_min=-128 --attr fp8_max=127", v2 = " --attr enable_v2=true", powers = " --attr scale_ue8m0=true";
  auto op = ops::group_quantizer<ops::SglPerTokenGroupQuant8bit>();
  op.contract_version = 2;
  op.mistakes.push_back({"largest-code-240", "the largest code is taken for 240, as on another vendor's e4m3",
                         [](const ops::SglPerTokenGroupQuant8bit& call, const Exec& exec, Reference* reference) {
                           ops::GroupQuant to_240 = ops::group_quant(call);
                           to_240.low = -(to_240.high = std::min(to_240.high, ops::largest_code_elsewhere));
                           ops::golden_group_quant(to_240, quant::amax, exec, reference);
                         }});
  op.customary = {
      {"output_s", CustomaryKind::close, 1e-3, 1e-5, "sgl-kernel/tests/test_per_token_group_quant_8bit.py"},
      {"output_q", CustomaryKind::close, 0.125, 0x1p-9, "sgl-kernel/tests/test_per_token_group_quant_8bit.py: codes at most one apart"}};
  op.cases = {"M=4 K=1536",
              "M=3 K=512 --attr group_size=64 --dtype input=f16 --dist wide-exponent" + v2,
              "M=5 K=384 --dtype input=f32 --attr divide=ieee",
              "M=3 K=256" + int8,
              "M=3 K=640 --dist wide-exponent" + powers,
              "M=4 K=640" + powers + v2,
              "M=3 K=256 --attr group_size=32" + int8 + v2,
              "M=3 K=384 --attr fuse_silu_and_mul=true" + powers + v2,
              "M=6 K=512 E=2 --with masked_m --attr group_size=32 --attr fuse_silu_and_mul=true --seed 1" + powers + v2};
  op.bench_cases = {"M=1 K=7168", "M=512 K=7168", "M=512 K=7168" + powers + v2, "M=512 K=2048 --attr fuse_silu_and_mul=true" + powers + v2};
  return define<ops::SglPerTokenGroupQuant8bit>(std::move(op));
}
}  // namespace dodona
