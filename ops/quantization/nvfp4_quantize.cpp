#include "ops/quantization/nvfp4_quantize.h"

#include "ops/base/rows.h"
#include "ops/rows/quantize/fp4_quantizer.h"

namespace dodona::ops {
namespace {

Fp4Quantizer call_of(const Nvfp4Quantize& op) {
  return {.input = op.a,
          .codes = op.x_q,
          .scales = op.sf,
          .codes_name = "x_q",
          .scales_name = "sf",
          .encode_scale = encode_scale_of(op.a_global_sf),
          .inversed = false,
          .size = 16,
          .powers = false,
          .layout = scale_layout(op.is_sf_swizzled_layout, op.is_sf_8x4_layout),
          .shuffled = op.do_shuffle,
          .zero_padding = op.padding == "zeros",
          .row_scales = op.per_token_activation ? op.per_token_scale : Tensor(),
          .row_scales_name = "per_token_scale"};
}

void check(const Nvfp4Quantize& op) {
  if (op.per_token_activation && op.a.dtype() == f8_e4m3)
    throw Error(ErrorCode::bad_dtype, "", "a", "has dtype f8_e4m3, expected bf16 or f16 with per_token_activation=true");
  if (!op.do_shuffle) return;
  if (!op.is_sf_swizzled_layout || op.is_sf_8x4_layout)
    throw Error(ErrorCode::bad_value, "", "do_shuffle", "is true, expected false unless scales lie in tiles of 128 x 4");
  if (row_count(op.a) % 32 != 0)
    throw Error(ErrorCode::bad_shape, "", "a",
                "has " + std::to_string(row_count(op.a)) + " rows, expected a multiple of 32 with do_shuffle=true");
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_nvfp4_quantize() {
  auto op = ops::fp4_quantizer_functions<ops::Nvfp4Quantize, ops::call_of>();
  op.contract_version = 2;
  op.check = ops::check;
  op.cases = {"M=4 K=768",
              "M=33 K=80 --dtype a=f16 --attr is_sf_swizzled_layout=false",
              "M=32 K=64 --attr do_shuffle=true",
              "M=9 K=96 --dtype a=f8_e4m3 --attr is_sf_8x4_layout=true",
              "M=5 K=96 --dtype a=f16 --attr per_token_activation=true",
              "M=32 K=64 --dtype a=f16 --attr per_token_activation=true --attr do_shuffle=true"};
  op.mistakes.push_back({"one-scale-for-all-rows", "every row is quantized with the scale of the first",
                         [](const ops::Nvfp4Quantize& call, const Exec& exec, Reference* reference) {
                           ops::golden_fp4_quantize(ops::call_of(call), ops::Fp4Rule::one_scale_for_all_rows, exec, reference);
                         }});
  op.bench_cases = {"M=512 K=7168", "M=512 K=7168 --attr per_token_activation=true"};
  return define<ops::Nvfp4Quantize>(std::move(op));
}
}  // namespace dodona
