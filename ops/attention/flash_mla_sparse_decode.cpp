#include "ops/attention/flash_mla_sparse_decode.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/random.h"
#include "ops/rows/cache/k_cache_row.h"
#include "ops/softmax/flash_mla/sparse.h"
#include "ops/softmax/layouts/mla_decode.h"
#include "quant/element.h"

namespace dodona::ops {
namespace {

SparseMla call_of(const FlashMlaSparseDecode& op) {
  return {.q = op.q,
          .cache = op.k_cache.as<const std::byte>(),
          .cache_rows = op.k_cache.size(0) * flash_mla_block,
          .cache_stride = k_cache_row_bytes,
          .key_rows = KeyRows::k_cache,
          .indices = op.indices,
          .out = op.out,
          .lse = op.softmax_lse,
          .scale = op.softmax_scale == 0 ? 1 / std::sqrt(static_cast<double>(mla_width)) : op.softmax_scale,
          .flash_mla = true};
}

FlashMlaWork work_of(const FlashMlaSparseDecode& op) {
  return {FlashMlaKernel::sparse,
          std::vector<std::int32_t>(static_cast<std::size_t>(op.q.size(0)), static_cast<std::int32_t>(op.indices.size(2))),
          op.tile_scheduler_metadata, op.num_splits};
}

/// Of ten numbers nine name slots, the others are -1. Scales keep scores in bounds.
void make_inputs(FlashMlaSparseDecode& op, std::uint64_t seed) {
  draw_k_cache_rows(op.k_cache.as<std::byte>(), op.k_cache.size(0) * flash_mla_block, seed, "k_cache", 4);
  const InputDraw draw(seed, "indices");
  const auto slots = static_cast<std::uint64_t>(op.k_cache.size(0) * flash_mla_block);
  for (std::int64_t i = 0; i < op.indices.elements(); ++i)
    op.indices.as<std::int32_t>()[i] = draw.below_again(i, 10) == 9 || slots == 0 ? -1 : static_cast<std::int32_t>(draw.below(i, slots));
  write_flash_mla_schedule(work_of(op));
}

void check(const FlashMlaSparseDecode& op) {
  check_mla_scale(call_of(op).scale, "softmax_scale");
  check_flash_mla_schedule(work_of(op));
}

void golden_of(const FlashMlaSparseDecode& op, const SparseMla& call, const Exec& exec, Reference* reference) {
  SparseMlaAttention attention(call);
  attention.lse_name = "softmax_lse";
  attention.nan_is_open = true;
  attention.splits_merged_by_lse = most_splits(op.num_splits);
  attention.score_errors = flash_mla_score_errors(bf16, call.scale);
  attention_golden(attention, WeightSum::unrounded, exec, reference);
}

void golden(const FlashMlaSparseDecode& op, const Exec& exec, Reference* reference) {
  golden_of(op, call_of(op), exec, reference);
}

void fast(const FlashMlaSparseDecode& op, const Exec& exec) {
  attention_fast(SparseMlaAttention(call_of(op)), exec);
}

void hopper(const FlashMlaSparseDecode& op, const Exec& exec) {
  flash_mla_sparse_decode_hopper(call_of(op), work_of(op), exec);
}

/// -1 is taken for the first slot.
void first_slot(const FlashMlaSparseDecode& op, const Exec& exec, Reference* reference) {
  Tensor slots(i32, op.indices.shape());
  for (std::int64_t i = 0; i < slots.elements(); ++i)
    slots.as<std::int32_t>()[i] = std::max(static_cast<std::int32_t>(quant::get(op.indices, i)), 0);
  SparseMla call = call_of(op);
  call.indices = slots;
  golden_of(op, call, exec, reference);
}

/// Each 128 elements take the scale of the 128 before them.
void shifted_scales(const FlashMlaSparseDecode& op, const Exec& exec, Reference* reference) {
  Tensor cache(op.k_cache.dtype(), op.k_cache.shape());
  std::memcpy(cache.as<std::byte>(), op.k_cache.as<const std::byte>(), static_cast<std::size_t>(cache.elements()));
  for (std::int64_t r = 0; r < call_of(op).cache_rows; ++r)
    for (std::int64_t g = 0; g < k_cache_groups; ++g)
      set_k_cache_scale(cache.as<std::byte>() + r * k_cache_row_bytes, (g + 1) % k_cache_groups,
                        k_cache_scale(op.k_cache.as<const std::byte>() + r * k_cache_row_bytes, g));
  SparseMla call = call_of(op);
  call.cache = cache.as<const std::byte>();
  golden_of(op, call, exec, reference);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_flash_mla_sparse_decode() {
  return define<ops::FlashMlaSparseDecode>({
      .contract = R"(
Keys and values are bf16: bf16(code * bf16(scale)), the scale of its 128 rounded first (dequantize_k_cache does not round it), and the rotated
part as it is. With these as flash_mla_sparse_fwd: softmax over the slots that the query's list names, in any order, each as often as it is named;
weights rounded to bf16 for their products, their sum taken over the unrounded ones; splits are merged as those of flash_mla_with_kvcache. softmax_lse is the natural logarithm, a product with
ln 2 of that in base 2: one unit of 2^-24 more. A query that names no slot gives zeros and +inf; one with a NaN among
its scores is not judged. How the work is cut shows in the H200's bits
alone: blocks of 64 numbers of the list, one by one, in splits by tile_scheduler_metadata. Numbers other than -1 that are no slots count as
absent, as upstream's documentation has it; its kernel reads wherever they point. Here errors: metadata that do not cut every request's list into the splits
that num_splits has, a scale that is not positive.)",
      .contract_version = 2,
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .flops = [](const ops::FlashMlaSparseDecode& op) { return ops::attention_flops(ops::SparseMlaAttention(ops::call_of(op))); },
      .bytes_read = [](const ops::FlashMlaSparseDecode& op) { return ops::SparseMlaAttention(ops::call_of(op)).bytes_read(); },
      .mistakes = {{"absent_slot_read", "-1 taken for the first slot", ops::first_slot},
                   {"scale_of_the_group_before", "each 128 elements multiplied with the scale of the 128 before them",
                    ops::shifted_scales}},
      .customary = {{"out", CustomaryKind::close, 2.01 / 128, 1e-3, "FlashMLA tests/test_flash_mla_decoding.py"},
                    {"softmax_lse", CustomaryKind::close, 8.01 / 65536, 1e-6, "FlashMLA tests/test_flash_mla_decoding.py"}},
      .cases = {"B=2 Q=1 N=3 pages=2 topk=128 parts=3 --attr softmax_scale=0.0721687836",
                "B=1 Q=2 N=5 pages=1 topk=192 parts=2 --attr softmax_scale=0.02 --dtype k_cache=f8_e4m3"},
      .bench_cases = {"B=1 Q=1 N=128 pages=128 topk=2048 parts=66 --attr softmax_scale=0.1352337788608801",
                      "B=8 Q=1 N=128 pages=128 topk=2048 parts=66 --attr softmax_scale=0.1352337788608801"},
  });
}
}  // namespace dodona
