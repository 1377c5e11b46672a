#include "ops/quantization/sgl_per_token_group_quant_int8.h"

namespace dodona {
std::unique_ptr<Op> op_sgl_per_token_group_quant_int8() {
  auto op = ops::group_quantizer<ops::SglPerTokenGroupQuantInt8>();
  op.contract_version = 2;
  op.customary = {{"output_s", CustomaryKind::close, 1e-3, 1e-5, "sgl-kernel/tests/test_per_token_group_quant_8bit.py"},
                  {"output_q", CustomaryKind::close, 0, 1, "sgl-kernel/tests/test_per_token_group_quant_8bit.py: codes at most one apart"}};
  op.cases = {"M=4 K=1536", "M=5 K=512 --dtype input=f16 --attr group_size=64 --dist wide-exponent",
              "M=3 K=256 --dtype input=f32 --attr divide=ieee"};
  op.bench_cases = {"M=1 K=7168", "M=512 K=7168", "M=4096 K=7168"};
  return define<ops::SglPerTokenGroupQuantInt8>(std::move(op));
}
}  // namespace dodona
