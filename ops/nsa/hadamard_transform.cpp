#include "ops/nsa/hadamard_transform.h"

namespace dodona {
std::unique_ptr<Op> op_hadamard_transform() {
  return define<ops::HadamardTransform>(ops::hadamard_op<ops::HadamardTransform>(
      {"T=5 D=128 --attr scale=0.08838834764831845", "T=3 D=137 --dtype x=f32", "T=2 D=512 --dtype x=f16 --attr scale=0.0442",
       "T=4 D=12 --dist edge", "T=2 D=2000 --dist outliers"},
      {"T=1 D=128", "T=131072 D=128", "T=64 D=8192"}));
}
}  // namespace dodona
