#include "ops/nsa/hadamard_transform_28n.h"

namespace dodona {
std::unique_ptr<Op> op_hadamard_transform_28n() {
  return define<ops::HadamardTransform28n>(ops::hadamard_op<ops::HadamardTransform28n>(
      {"T=3 D=448 --attr scale=0.05", "T=2 D=109 --dtype x=f32", "T=2 D=560 --dtype x=f16 --attr scale=0.02 --dist ties"},
      {"T=64 D=7168"}));
}
}  // namespace dodona
