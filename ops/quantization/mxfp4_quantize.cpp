#include "ops/quantization/mxfp4_quantize.h"

#include "ops/rows/quantize/fp4_quantizer.h"

namespace dodona::ops {
namespace {

Fp4Quantizer call_of(const Mxfp4Quantize& op) {
  return {.input = op.a,
          .codes = op.x_q,
          .scales = op.sf,
          .codes_name = "x_q",
          .scales_name = "sf",
          .encode_scale = 1.0f,
          .inversed = false,
          .size = 32,
          .powers = true,
          .layout = scale_layout(op.is_sf_swizzled_layout, op.is_sf_8x4_layout),
          .zero_padding = op.padding == "zeros"};
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_mxfp4_quantize() {
  auto op = ops::fp4_quantizer_functions<ops::Mxfp4Quantize, ops::call_of>();
  op.contract_version = 2;
  op.cases = {"M=4 K=1536", "M=33 K=96 --dtype a=f16 --attr is_sf_swizzled_layout=false",
              "M=9 K=160 --dist wide-exponent --attr is_sf_8x4_layout=true", "M=5 K=96 --attr padding=zeros"};
  op.bench_cases = {"M=512 K=7168"};
  return define<ops::Mxfp4Quantize>(std::move(op));
}
}  // namespace dodona
