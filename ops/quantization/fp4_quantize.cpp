#include "ops/quantization/fp4_quantize.h"

#include "ops/base/rows.h"
#include "ops/rows/quantize/fp4_quantizer.h"

namespace dodona::ops {
namespace {

quant::ScaleLayout layout_of(const Fp4Quantize& op) {
  return scale_layout(op.is_sf_swizzled_layout, op.is_sf_8x4_layout);
}

Fp4Quantizer call_of(const Fp4Quantize& op) {
  return {.input = op.input,
          .codes = op.x_q,
          .scales = op.sf,
          .codes_name = "x_q",
          .scales_name = "sf",
          .encode_scale = encode_scale_of(op.global_scale, op.is_global_scale_inversed),
          .inversed = op.is_global_scale_inversed,
          .size = op.sf_vec_size,
          .powers = op.sf_use_ue8m0,
          .layout = layout_of(op),
          .zero_padding = op.padding == "zeros"};
}

/// Nothing is certain of the arguments.
void make_outputs(Fp4Quantize& op) {
  if (op.sf.defined() || !op.sf_use_ue8m0 || !op.input.defined() || op.input.rank() == 0 || op.sf_vec_size < 1) return;
  const quant::PaddedSize size = quant::padded_size(layout_of(op), row_count(op.input), op.input.size(-1) / op.sf_vec_size);
  op.sf = Tensor(f8_e8m0, {size.rows, size.columns});
}

void check(const Fp4Quantize& op) {
  const auto refuse = [](ErrorCode code, const char* argument, const std::string& message) { throw Error(code, "", argument, message); };
  const std::int64_t size = op.sf_use_ue8m0 ? 32 : 16;
  const std::string with = std::string(" with sf_use_ue8m0=") + (op.sf_use_ue8m0 ? "true" : "false");
  if (op.sf_vec_size != size)
    refuse(ErrorCode::bad_value, "sf_vec_size", "is " + std::to_string(op.sf_vec_size) + ", expected " + std::to_string(size) + with);
  const DType type = op.sf_use_ue8m0 ? f8_e8m0 : f8_e4m3;
  if (op.sf.dtype() != type)
    refuse(ErrorCode::bad_dtype, "sf", "has dtype " + std::string(name(op.sf.dtype())) + ", expected " + std::string(name(type)) + with);
  if (!op.sf_use_ue8m0 && !op.global_scale.defined()) refuse(ErrorCode::missing_argument, "global_scale", "is missing, expected" + with);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_fp4_quantize() {
  const std::string mx = " --attr sf_use_ue8m0=true --attr sf_vec_size=32", rows = " --attr is_sf_swizzled_layout=false",
                    eights = " --attr is_sf_8x4_layout=true";
  auto op = ops::fp4_quantizer_functions<ops::Fp4Quantize, ops::call_of>();
  op.contract_version = 2;
  op.make_outputs = ops::make_outputs;
  op.check = ops::check;
  op.cases = {"M=4 K=1536" + eights,
              "M=33 K=80 --dtype input=f16" + rows,
              "M=3 K=256 --dtype input=f8_e4m3",
              "M=5 K=480 --without global_scale" + mx,
              "M=9 K=96 --dtype input=f16 --dist wide-exponent" + mx + eights,
              "M=2 K=160 --attr is_global_scale_inversed=true",
              "M=3 K=64 --dtype input=f8_e4m3" + mx + rows};
  op.bench_cases = {"M=512 K=7168", "M=512 K=7168" + rows, "M=512 K=7168 --without global_scale" + mx};
  return define<ops::Fp4Quantize>(std::move(op));
}
}  // namespace dodona
