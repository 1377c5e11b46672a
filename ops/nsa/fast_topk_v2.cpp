#include "ops/nsa/fast_topk_v2.h"

namespace dodona {
std::unique_ptr<Op> op_fast_topk_v2() {
  return define<ops::FastTopkV2>(ops::index_topk_op<ops::FastTopkV2>(
      "Positions of the largest scores of each row.", [](const ops::FastTopkV2& op) { ops::check_index_scores(op); },
      {"B=3 L=4096", "B=3 L=4500 --with row_starts --dist ties", "B=2 L=2049 --dist edge", "B=4 L=100"}, {"B=1 L=65536", "B=64 L=16384"}));
}
}  // namespace dodona
