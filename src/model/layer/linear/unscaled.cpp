// Quantized weights whose products are not rounded between ops.
#include "core/define.h"
#include "model/layer/linear/method.h"
#include "model/layer/values.h"
#include "ops/gemm/linear.h"

namespace dodona::model {
namespace {

void prepare(Projection& p, const Exec& exec) {
  if (p.unscaled.defined()) return;
  if (p.weight.form == WeightForm::nvfp4) {
    p.unscaled = dequantize_unscaled(p.weight, exec.threads);
  } else {
    p.unscaled = dequantize(p.weight, exec.threads, DType::f32);
  }
  p.weight.weight = p.weight.weight_scale = p.weight.group_scales = p.weight.zeros = Tensor();
}

Tensor apply(const Projection& p, const Tensor& x, DType out, const Exec& exec) {
  const Tensor y = ops::run(ops::Linear{.input = x, .weight = p.unscaled, .out_dtype = DType::f32}, exec).output;
  if (p.weight.weight_scale_2 != 1)
    for (std::int64_t i = 0; i < y.elements(); ++i) y.as<float>()[i] *= p.weight.weight_scale_2;
  return out == DType::f32 ? y : rounded(y, out);
}

}  // namespace

const LinearMethod unscaled_method{.name = "unrounded", .kernel = "linear", .prepare = prepare, .apply = apply};

}  // namespace dodona::model
