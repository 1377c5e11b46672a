#include "ops/nsa/hadamard_transform_20n.h"

namespace dodona {
std::unique_ptr<Op> op_hadamard_transform_20n() {
  return define<ops::HadamardTransform20n>(ops::hadamard_op<ops::HadamardTransform20n>(
      {"T=3 D=320 --attr scale=0.05", "T=2 D=77 --dtype x=f32", "T=2 D=400 --dtype x=f16 --attr scale=0.02 --dist ties"}, {"T=64 D=5120"}));
}
}  // namespace dodona
