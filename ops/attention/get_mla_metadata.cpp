#include "ops/attention/get_mla_metadata.h"

#include "ops/base/golden_output.h"
#include "ops/softmax/flash_mla.h"

namespace dodona::ops {
namespace {

std::int64_t parts_of(const GetMlaMetadata& op) {
  return flash_mla_parts(op.sm_count, op.num_heads_k, op.num_q_tokens_per_head_k);
}

void make_outputs(GetMlaMetadata& op) {
  if (!op.tile_scheduler_metadata.defined() && op.num_heads_k > 0 && op.num_q_tokens_per_head_k > 0 && op.sm_count > 0)
    op.tile_scheduler_metadata = Tensor(i32, {parts_of(op), 8});
}

void check(const GetMlaMetadata& op) {
  if (op.is_fp8_kvcache)
    throw Error(ErrorCode::unsupported, "", "is_fp8_kvcache", "is true, expected false: the dense kernel of 16-bit caches");
  if (op.tile_scheduler_metadata.size(0) != parts_of(op))
    throw Error(ErrorCode::bad_shape, "", "tile_scheduler_metadata",
                "has shape " + to_string(op.tile_scheduler_metadata.shape()) + ", expected [" + std::to_string(parts_of(op)) + ", 8] for " +
                    std::to_string(op.num_q_tokens_per_head_k) + " rows on sm_count = " + std::to_string(op.sm_count));
}

void fast(const GetMlaMetadata& op, const Exec&) {
  write_flash_mla_schedule(op.cache_seqlens, op.tile_scheduler_metadata, op.num_splits);
}

void golden(const GetMlaMetadata& op, const Exec& exec, Reference* reference) {
  fast(op, exec);
  record_exact(op.tile_scheduler_metadata, reference, "tile_scheduler_metadata");
  record_exact(op.num_splits, reference, "num_splits");
  if (reference == nullptr) return;
  GoldenOutput(op.tile_scheduler_metadata, reference, "tile_scheduler_metadata").make_open();
  ReferenceOutput& record = reference->output("tile_scheduler_metadata", op.tile_scheduler_metadata.elements());
  const std::int64_t parts = op.tile_scheduler_metadata.size(0);
  for (std::int64_t p = 0; p < parts; ++p) {
    const bool idle = op.tile_scheduler_metadata.as<const std::int32_t>()[8 * p] >= op.cache_seqlens.size(0);
    for (std::int64_t i = idle ? 1 : 5; i < 8; ++i) record.unspecified[static_cast<std::size_t>(8 * p + i)] = 1;
  }
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_get_mla_metadata() {
  return define<ops::GetMlaMetadata>({
      .contract = R"(
Whole numbers. parts = max(sm_count / num_heads_k / ceil(rows / 64), 1), divided from left to right; a request has n = max(tokens - 1, 0) / 64 +
1 blocks; a part may take payload = ceil(sum of (n + 5) / parts) + 5. Each part takes requests in order: what is left of one, with 5, if that
fits; else, if more than 5 is left to it, so many blocks less 5 of it, and is full. The last three numbers of a row, and those of a
part with nothing to do behind its first request, B, are not judged.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .make_outputs = ops::make_outputs,
      .check = ops::check,
      .cases = {"B=3 parts=66 --attr num_q_tokens_per_head_k=128 --attr num_heads_k=1",
                "B=7 parts=2 --attr num_q_tokens_per_head_k=300 --attr num_heads_k=2 --attr sm_count=20"},
      .bench_cases = {"B=64 parts=66 --attr num_q_tokens_per_head_k=128 --attr num_heads_k=1"},
  });
}
}  // namespace dodona
