#include "ops/nsa/fast_topk_transform_ragged_fused.h"

namespace dodona {
std::unique_ptr<Op> op_fast_topk_transform_ragged_fused() {
  return define<ops::FastTopkTransformRaggedFused>(ops::index_topk_op<ops::FastTopkTransformRaggedFused>(
      "Positions of the largest scores of each row, plus the row's offset (sums wrap).",
      [](const ops::FastTopkTransformRaggedFused& op) { ops::check_index_scores(op); },
      {"B=3 L=4096", "B=3 L=4500 --with row_starts --dist ties", "B=4 L=100"}, {"B=64 L=16384"}));
}
}  // namespace dodona
