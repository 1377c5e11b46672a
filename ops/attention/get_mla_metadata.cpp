#include "ops/attention/get_mla_metadata.h"

#include <algorithm>

#include "ops/base/golden_output.h"
#include "ops/softmax/flash_mla/schedule.h"

namespace dodona::ops {
namespace {

FlashMlaKernel kernel_of(const GetMlaMetadata& op) {
  return op.topk > 0 ? FlashMlaKernel::sparse : op.is_fp8_kvcache ? FlashMlaKernel::dense_fp8 : FlashMlaKernel::dense;
}

/// Heads and tokens of the sparse kernel make whole ones.
void check_heads(const GetMlaMetadata& op) {
  if (op.topk != 0 && (op.num_heads_q <= 0 || op.num_heads_q % op.num_heads_k != 0))
    throw Error(
        ErrorCode::bad_value, "", "num_heads_q",
        "is " + std::to_string(op.num_heads_q) + ", expected a multiple of num_heads_k = " + std::to_string(op.num_heads_k) + " with topk");
}

std::int64_t parts_of(const GetMlaMetadata& op) {
  return flash_mla_parts(kernel_of(op), op.sm_count, op.num_heads_k, op.num_heads_q, op.num_q_tokens_per_head_k);
}

FlashMlaWork work_of(const GetMlaMetadata& op) {
  const auto* const lengths = op.cache_seqlens.as<const std::int32_t>();
  FlashMlaWork work{kernel_of(op), {lengths, lengths + op.cache_seqlens.size(0)}, op.tile_scheduler_metadata, op.num_splits};
  if (op.topk > 0) std::fill(work.lengths.begin(), work.lengths.end(), static_cast<std::int32_t>(op.topk));
  return work;
}

void make_outputs(GetMlaMetadata& op) {
  // Numbers that the schema refuses are left to it.
  const bool valid = op.num_heads_k > 0 && op.num_q_tokens_per_head_k > 0 && op.sm_count > 0 && op.sm_count <= 1 << 20;
  if (op.tile_scheduler_metadata.defined() || !valid) return;
  check_heads(op);
  op.tile_scheduler_metadata = Tensor(i32, {parts_of(op), 8});
}

void check(const GetMlaMetadata& op) {
  if (op.topk > 0 && !op.is_fp8_kvcache)
    throw Error(ErrorCode::unsupported, "", "is_fp8_kvcache",
                "is false, expected true with topk: the sparse kernel reads fp8 caches alone");
  check_heads(op);
  if (parts_of(op) == 0)
    throw Error(ErrorCode::bad_value, "", "num_q_tokens_per_head_k",
                "is " + std::to_string(op.num_q_tokens_per_head_k) +
                    ", whose blocks of 64 leave no part of sm_count = " + std::to_string(op.sm_count) + " to a kernel of e4m3 caches");
  if (op.tile_scheduler_metadata.size(0) != parts_of(op))
    throw Error(ErrorCode::bad_shape, "", "tile_scheduler_metadata",
                "has shape " + to_string(op.tile_scheduler_metadata.shape()) + ", expected [" + std::to_string(parts_of(op)) + ", 8] for " +
                    std::to_string(op.num_q_tokens_per_head_k) + " rows on sm_count = " + std::to_string(op.sm_count));
}

void fast(const GetMlaMetadata& op, const Exec&) {
  write_flash_mla_schedule(work_of(op));
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
    const std::int32_t request = op.tile_scheduler_metadata.as<const std::int32_t>()[8 * p];
    const bool idle = request < 0 || request >= op.cache_seqlens.size(0);
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
fits; else, if more than 5 is left to it, so many blocks less 5 of it, and is full. Of e4m3 caches n = ceil(tokens / 64), and there is no part where the quotient is 0; the
second and the fourth number are tokens, a last block's end the request's. With topk requests have topk tokens, and parts = max(sm_count / 2 / num_heads_k / (ceil(num_heads_q / num_heads_k / 128) *
query tokens), 1). A part with nothing to do begins at request -1, of e4m3 caches at B; its other numbers are not judged, nor the last three of any.)",
      .contract_version = 2,
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::fast,
      .make_outputs = ops::make_outputs,
      .check = ops::check,
      .cases = {"B=3 parts=66 --attr num_q_tokens_per_head_k=128 --attr num_heads_k=1",
                "B=7 parts=2 --attr num_q_tokens_per_head_k=300 --attr num_heads_k=2 --attr sm_count=20",
                "B=4 parts=33 --attr num_q_tokens_per_head_k=256 --attr num_heads_k=1 --attr num_heads_q=128 --attr topk=2048 --attr "
                "is_fp8_kvcache=true",
                "B=3 parts=26 --attr num_q_tokens_per_head_k=300 --attr num_heads_k=1 --attr is_fp8_kvcache=true"},
      .bench_cases = {"B=64 parts=66 --attr num_q_tokens_per_head_k=128 --attr num_heads_k=1"},
  });
}
}  // namespace dodona
