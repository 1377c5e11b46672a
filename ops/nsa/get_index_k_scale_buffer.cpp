#include "ops/nsa/get_index_k_scale_buffer.h"

#include "core/threads.h"
#include "ops/schemes/index_k.h"

namespace dodona::ops {
namespace {

template <bool whole_page_first>
void gather(const GetIndexKScaleBuffer& op, const Exec& exec) {
  parallel_for(exec.threads, op.seq_len, index_k_width / 8.0, [&](std::int64_t i) {
    IndexKPlace place = index_k_place(index_at(op.page_indices, i / 64) * 64 + i % 64, 64);
    if (whole_page_first) place.scale = place.key + index_k_width;
    std::memcpy(op.index_k.as<std::byte>() + i * index_k_width, op.buf.as<const std::byte>() + place.key, index_k_width);
    std::memcpy(op.index_k_scale.as<std::byte>() + 4 * i, op.buf.as<const std::byte>() + place.scale, 4);
  });
}

template <bool mistaken>
void golden(const GetIndexKScaleBuffer& op, const Exec& exec, Reference* reference) {
  gather<mistaken>(op, exec);
  record_exact(op.index_k, reference, "index_k");
  record_exact(op.index_k_scale, reference, "index_k_scale");
}

void check(const GetIndexKScaleBuffer& op) {
  if (op.seq_len > 64 * op.page_indices.size(0))
    throw Error(ErrorCode::bad_shape, "", "page_indices",
                "has " + std::to_string(op.page_indices.size(0)) + " elements, expected a page for every 64 of " +
                    std::to_string(op.seq_len) + " tokens");
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_get_index_k_scale_buffer() {
  return define<ops::GetIndexKScaleBuffer>({
      .contract = "Copies of bits. Errors, where upstream reads outside: pages out of range, fewer pages than tokens take.",
      .golden = ops::golden<false>,
      .fast = ops::gather<false>,
      .hopper = ops::gather<false>,
      .check = ops::check,
      .bytes_read = [](const ops::GetIndexKScaleBuffer& op) { return 132.0 * static_cast<double>(op.seq_len); },
      .mistakes = {{"scale-behind-key", "the scale is read from behind the key", ops::golden<true>}},
      .cases = {"pages=4 P=3 --attr seq_len=150", "pages=2 P=1 --attr seq_len=64 --dtype page_indices=i64"},
      .bench_cases = {"pages=1024 P=256 --attr seq_len=16384"},
  });
}
}  // namespace dodona
