#include "ops/quantization/sgl_per_token_group_quant_fp8.h"

#include <algorithm>

#include "ops/rows/quantize/fp8_codes.h"
#include "quant/amax.h"

namespace dodona {
std::unique_ptr<Op> op_sgl_per_token_group_quant_fp8() {
  auto op = ops::group_quantizer<ops::SglPerTokenGroupQuantFp8>();
  op.contract_version = 2;
  op.mistakes.push_back({"largest-code-240", "the largest code is taken for 240, as on another vendor's e4m3",
                         [](const ops::SglPerTokenGroupQuantFp8& call, const Exec& exec, Reference* reference) {
                           ops::GroupQuant to_240 = ops::group_quant(call);
                           to_240.low = -(to_240.high = std::min(to_240.high, ops::largest_code_elsewhere));
                           ops::golden_group_quant(to_240, quant::amax, exec, reference);
                         }});
  op.customary = {
      {"output_s", CustomaryKind::close, 1e-3, 1e-5, "sgl-kernel/tests/test_per_token_group_quant_8bit.py"},
      {"output_q", CustomaryKind::close, 0.125, 0x1p-9, "sgl-kernel/tests/test_per_token_group_quant_8bit.py: codes at most one apart"}};
  op.cases = {"M=4 K=1536", "M=5 K=512 --dtype input=f16 --attr group_size=64", "M=3 K=640 --dist wide-exponent --attr scale_ue8m0=true",
              "M=3 K=256 --dtype input=f32 --attr divide=ieee"};
  op.bench_cases = {"M=1 K=7168", "M=512 K=7168", "M=4096 K=7168"};
  return define<ops::SglPerTokenGroupQuantFp8>(std::move(op));
}
}  // namespace dodona
