#include "ops/nsa/fast_topk_transform_fused.h"

#include <algorithm>

namespace dodona::ops {

std::int64_t FastTopkTransformFused::request_of(std::int64_t b) const {
  const std::int64_t requests = page_table_size_1.size(0);
  if (!row_starts.defined() && requests == score.size(0)) return b;
  const auto* const begins = cu_seqlens_q.as<const std::int32_t>();
  std::int64_t found = -1;
  for (std::int64_t q = 0; q < requests; ++q)
    if (begins[q] >= 0 && b >= begins[q] && b < begins[q + 1]) found = found < 0 ? q : requests;
  return found < requests ? found : -1;
}

std::vector<IndexRow> FastTopkTransformFused::rows() const {
  std::vector<IndexRow> rows;
  for (std::int64_t b = 0; b < lengths.elements(); ++b) {
    rows.push_back(row(b));
    rows.back().table = page_table_size_1.as<const std::int32_t>() + request_of(b) * page_table_size_1.stride(0);
  }
  return rows;
}

namespace {

void check(const FastTopkTransformFused& op) {
  check_index_scores(op);
  const std::int64_t requests = op.page_table_size_1.size(0), width = op.page_table_size_1.size(1);
  if (requests > op.score.size(0))
    throw Error(ErrorCode::bad_shape, "", "page_table_size_1",
                "has " + std::to_string(requests) + " rows, expected at most those of score, " + std::to_string(op.score.size(0)));
  for (std::int64_t b = 0; b < op.lengths.elements(); ++b) {
    if (op.request_of(b) < 0)
      throw Error(ErrorCode::bad_value, "", "cu_seqlens_q",
                  "leaves row " + std::to_string(b) + " to no request or to several, expected one");
    const std::int64_t length = op.lengths.as<const std::int32_t>()[b];
    if (length > width)
      throw Error(ErrorCode::bad_value, "", "lengths",
                  "holds " + std::to_string(length) + " at element " + std::to_string(b) +
                      ", expected at most the columns of page_table_size_1, " + std::to_string(width));
  }
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_fast_topk_transform_fused() {
  return define<ops::FastTopkTransformFused>(ops::index_topk_op<ops::FastTopkTransformFused>(
      "Entries of the row's request in page_table_size_1 for the positions of the largest scores. Errors, where upstream reads outside or "
      "what it never wrote: rows longer than the table, rows of no request or of several.",
      ops::check,
      {"B=3 L=4096 R=3 W=4096", "B=4 L=4500 R=2 W=4500 --with row_starts --dist ties", "B=5 L=3000 R=2 W=3100", "B=4 L=100 R=2 W=100"},
      {"B=64 L=16384 R=64 W=16384"}));
}
}  // namespace dodona
