#include "model/layer/linear_method.h"

namespace dodona::model {

const LinearMethod& linear_method(WeightForm form, Rounding rounding) {
  switch (form) {
    case WeightForm::bf16: break;
    case WeightForm::nvfp4: return rounding == Rounding::off ? unscaled_method : nvfp4_method;
  }
  return bf16_method;
}

Work Projection::work(std::int64_t tokens, DType type) const {
  Work work;
  work.weight_bytes = static_cast<double>(weight.bytes());
  const auto t = static_cast<double>(tokens), n = static_cast<double>(rows()), k = static_cast<double>(columns());
  work.bytes = work.weight_bytes + t * (n + k) * static_cast<double>(bytes_for(type, 1));
  (method->narrow ? work.int8_ops : work.flops) = 2.0 * t * n * k;
  return work;
}

}  // namespace dodona::model
