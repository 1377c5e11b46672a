#include "model/layer/linear_method.h"

namespace dodona::model {

const LinearMethod& linear_method(WeightForm form, Rounding rounding) {
  switch (form) {
    case WeightForm::bf16: break;
    case WeightForm::nvfp4: return rounding == Rounding::off ? unscaled_method : nvfp4_method;
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
