#include "ops/nsa/hadamard_transform_12n.h"

namespace dodona {
std::unique_ptr<Op> op_hadamard_transform_12n() {
  return define<ops::HadamardTransform12n>(ops::hadamard_op<ops::HadamardTransform12n>(
      {"T=3 D=192 --attr scale=0.05", "T=2 D=45 --dtype x=f32", "T=2 D=240 --dtype x=f16 --attr scale=0.02 --dist ties"}, {"T=64 D=3072"}));
}
}  // namespace dodona
