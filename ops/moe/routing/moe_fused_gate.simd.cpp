#include "ops/moe/routing/moe_fused_gate.h"

#include "ops/routing/choose_lanes.h"
#include "simd/math.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::GateRows;

/// Scores and keys of all experts, and the best two keys of every group.
template <class Lanes>
DODONA_INLINE void score_row(const GateRows& call, const SlotLayout& layout, const void* input, RouterRow& row) {
  const f32x16 lowest = Lanes::round(f32x16::splat(-__FLT_MAX__));
  const mask16 valid = mask16::from_bits(static_cast<std::uint16_t>(layout.valid));
  const int chunk_experts = layout.members < 16 ? layout.members : 16;
  for (int block = 0; block < layout.chunks; block += 16) {
    f32x16 keys[16];
    const int count = layout.chunks - block < 16 ? layout.chunks - block : 16;
    for (int i = 0; i < count; ++i) {
      const int chunk = block + i;
      const void* from = at<Lanes>(input, chunk * chunk_experts);
      const void* bias_from = at<Lanes>(call.bias, chunk * chunk_experts);
      const bool whole = chunk_experts == 16;
      const f32x16 x = whole ? Lanes::load(from) : Lanes::load_partial(from, chunk_experts);
      const f32x16 bias = whole ? Lanes::load(bias_from) : Lanes::load_partial(bias_from, chunk_experts);
      const f32x16 score = Lanes::round(sigmoid(x));
      keys[i] = select(valid, as_key(Lanes::round(score + bias)), f32x16::splat(-__builtin_inff()));
      score.store(row.score + 16 * chunk);
      keys[i].store(row.key + 16 * chunk);
    }
    rank_chunks(layout, keys, block, count, lowest, row);
  }
}

DODONA_INLINE void write_row(const GateRows& call, const SlotLayout& layout, const RouterRow& row, float* weights, std::int32_t* ids) {
  float sum = 0;
  for (int k = 0; k < call.routed; ++k) {
    const int slot = row.order[k];
    ids[k] = layout.expert(slot);
    weights[k] = row.score[slot];
    sum += row.score[slot];
  }
  for (int k = 0; k < call.shared; ++k) {
    ids[call.routed + k] = call.experts + k;
    weights[call.routed + k] = static_cast<float>(static_cast<double>(sum) / call.scaling);
  }
  const int columns = call.routed + call.shared;
  for (int k = 0; k < columns; k += 16) {
    const f32x16 share = f32x16::load_partial(weights + k, columns - k) / f32x16::splat(sum);
    canonical_nan(share).store_partial(weights + k, columns - k);
  }
  if (!call.apply_scaling) return;
  for (int k = 0; k < columns; ++k) {
    const auto scaled = static_cast<float>(static_cast<double>(weights[k]) * call.scaling);
    weights[k] = scaled == scaled ? scaled : weights[k];
  }
}

template <class Lanes>
DODONA_INLINE void gate_rows(const GateRows& call) {
  const ChoiceSizes sizes{call.experts, call.groups, call.kept_groups, call.routed};
  const SlotLayout layout = slot_layout(sizes);
  RouterRow row;
  for (int g = 0; g < most_groups; ++g) row.first[g] = row.second[g] = 0.0f;
  for (std::int64_t r = 0; r < call.rows; ++r) {
    score_row<Lanes>(call, layout, static_cast<const char*>(call.input) + r * call.input_stride, row);
    const Kept kept = keep_groups<Lanes>(sizes, row);
    choose(sizes, layout, kept, row);
    write_row(call, layout, row, call.weights + r * call.weights_stride, call.ids + r * call.ids_stride);
  }
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void MoeFusedGateKernel::run(const GateRows& call) {
  using namespace DODONA_TIER;
  with_lanes(call.type, [&](auto lanes) { gate_rows<decltype(lanes)>(call); });
}
template void MoeFusedGateKernel::run<tier::DODONA_TIER>(const GateRows&);

}  // namespace dodona::ops
