#include "ops/nsa/set_index_k_scale_buffer.h"

#include "ops/schemes/index_k.h"

namespace dodona::ops {
namespace {

void store(const SetIndexKScaleBuffer& op, const Exec&) {
  for (std::int64_t i = 0; i < op.loc.size(0); ++i) {
    const IndexKPlace place = index_k_place(index_at(op.loc, i), 64);
    std::memcpy(op.buf.as<std::byte>() + place.key, op.index_k.as<const std::byte>() + i * op.index_k.stride(0), index_k_width);
    std::memcpy(op.buf.as<std::byte>() + place.scale, op.index_k_scale.as<const float>() + i * op.index_k_scale.stride(0), 4);
  }
}

template <bool interleaved>
void golden(const SetIndexKScaleBuffer& op, const Exec& exec, Reference* reference) {
  store(op, exec);
  if (interleaved)
    for (std::int64_t i = 0; i < op.loc.size(0); ++i) {
      const std::int64_t slot = index_at(op.loc, i), at = slot / 64 * 64 * index_k_bytes + slot % 64 * index_k_bytes;
      std::memcpy(op.buf.as<std::byte>() + at, op.index_k.as<const std::byte>() + i * op.index_k.stride(0), index_k_width);
      std::memcpy(op.buf.as<std::byte>() + at + index_k_width, op.index_k_scale.as<const float>() + i * op.index_k_scale.stride(0), 4);
    }
  record_exact(op.buf, reference, "buf");
  open_shared_slots(op.loc, 64, op.buf, reference, "buf");
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_set_index_k_scale_buffer() {
  return define<ops::SetIndexKScaleBuffer>({
      .contract = R"(
Copies of bits: 128 codes and an fp32 scale for each token. A slot that several tokens name takes any of them (here the last) and is not
judged; upstream sends padded tokens to slot 0. A slot out of range is an error; upstream does not look.)",
      .golden = ops::golden<false>,
      .fast = ops::store,
      .hopper = ops::store,
      .bytes_read = [](const ops::SetIndexKScaleBuffer& op) { return 140.0 * static_cast<double>(op.loc.elements()); },
      .mistakes = {{"key-and-scale-together", "each slot's scale is stored behind its key, as the buffer's four dimensions would have it",
                    ops::golden<true>}},
      .cases = {"pages=3 n=5", "pages=1 n=64 --dtype loc=i32"},
      .bench_cases = {"pages=1024 n=16384"},
  });
}
}  // namespace dodona
