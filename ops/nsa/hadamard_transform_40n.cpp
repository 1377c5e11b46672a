#include "ops/nsa/hadamard_transform_40n.h"

namespace dodona {
std::unique_ptr<Op> op_hadamard_transform_40n() {
  return define<ops::HadamardTransform40n>(ops::hadamard_op<ops::HadamardTransform40n>(
      {"T=3 D=640 --attr scale=0.05", "T=2 D=157 --dtype x=f32", "T=2 D=800 --dtype x=f16 --attr scale=0.02 --dist ties"},
      {"T=64 D=10240"}));
}
}  // namespace dodona
