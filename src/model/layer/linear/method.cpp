#include "model/layer/linear/method.h"

namespace dodona::model {

const LinearMethod& linear_method(WeightForm form, Rounding rounding, std::int64_t rows, std::string_view asked) {
  if (form == WeightForm::bf16) return bf16_method;
  if (rounding == Rounding::off) return unscaled_method;
  switch (form) {
    case WeightForm::bf16: break;
    case WeightForm::nvfp4: return nvfp4_method;
    case WeightForm::fp8_block: return rows % 128 == 0 && asked != deep_gemm_method.kernel ? fp8_block_method : deep_gemm_method;
    case WeightForm::fp8: return fp8_method;
    case WeightForm::int8: return int8_method;
    case WeightForm::qserve_channel: return qserve_channel_method;
    case WeightForm::qserve_group: return qserve_group_method;
    case WeightForm::w4a8: return w4a8_method;
  }
  return bf16_method;
}

Work Projection::product(std::int64_t tokens) const {
  Work work;
  work.bytes = work.weight_bytes = static_cast<double>(weight.bytes());
  (method->narrow ? work.int8_ops : work.flops) =
      2.0 * static_cast<double>(tokens) * static_cast<double>(rows()) * static_cast<double>(columns());
  return work;
}

Work Projection::work(std::int64_t tokens, DType type) const {
  Work work = product(tokens);
  work.bytes += static_cast<double>(bytes_for(type, tokens * columns()));
  return work;
}

}  // namespace dodona::model
