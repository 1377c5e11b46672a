#include "ops/moe/moe_fused_gate.h"
#include "ops/base/row_lanes.h"
#include "simd/math.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::GateRows;

constexpr int most_experts = 1024, most_groups = 32;

/// A row's experts in chunks of sixteen lanes, at least one chunk a group; lanes beyond a group's members are padding.
struct SlotLayout {
  int members;       ///< experts a group
  int group_chunks;  ///< 1 or 2
  int chunks;
  std::uint32_t valid;  ///< lanes of a chunk that hold experts

  DODONA_INLINE int group_slots() const { return 16 * group_chunks; }
  /// The expert in a slot (lane of a chunk).
  DODONA_INLINE int expert(int slot) const { return members >= 16 ? slot : slot / 16 * members + slot % 16; }
};

/// A row at work. Keys and scores by slot.
struct Row {
  alignas(64) float score[most_experts], key[most_experts];
  alignas(64) float first[most_groups], second[most_groups], group_score[most_groups];  ///< by group: best two keys, their rounded sum
  alignas(64) float candidate[most_experts + 16];                                       ///< keys, in order of slots
  alignas(64) std::int32_t rank[16];
  std::int32_t candidate_slot[most_experts], order[most_experts];
};

DODONA_INLINE SlotLayout slot_layout(const GateRows& call) {
  SlotLayout layout{};
  layout.members = call.experts / call.groups;
  layout.group_chunks = layout.members > 16 ? 2 : 1;
  layout.chunks = call.groups * layout.group_chunks;
  layout.valid = layout.members >= 16 ? 0xFFFFu : (1u << layout.members) - 1u;
  return layout;
}

/// NaN counts as -inf.
DODONA_INLINE f32x16 as_key(f32x16 x) {
  return select(x == x, x, f32x16::splat(-__builtin_inff()));
}

/// How many of keys[0, n) stand before each of the sixteen from `begin` on: greater, or equal and earlier.
DODONA_INLINE i32x16 ranks(const float* keys, int n, int begin) {
  const f32x16 x = f32x16::load(keys + begin);
  const i32x16 one = i32x16::splat(1);
  i32x16 count = i32x16::zero();
  const auto add = [&](mask16 before) { count = count + select(before, one, i32x16::zero()); };
  const int end = begin + 16 < n ? begin + 16 : n;
  int j = 0;
  for (; j < begin; ++j) add(f32x16::splat(keys[j]) >= x);
  for (; j < end; ++j) {
    const f32x16 y = f32x16::splat(keys[j]);
    add((y > x) | ((y == x) & mask16::from_bits(static_cast<std::uint16_t>(0xFFFEu << (j - begin)))));
  }
  for (; j < n; ++j) add(f32x16::splat(keys[j]) > x);
  return count;
}

/// Scores and keys of all experts, and the best two keys of every group.
template <class Lanes>
DODONA_INLINE void score_row(const GateRows& call, const SlotLayout& layout, const void* input, Row& row) {
  const f32x16 lowest = Lanes::round(f32x16::splat(-__FLT_MAX__));
  const mask16 valid = mask16::from_bits(static_cast<std::uint16_t>(layout.valid));
  const int chunk_experts = layout.members < 16 ? layout.members : 16;
  for (int block = 0; block < layout.chunks; block += 16) {
    // Chunks become lanes: the best two of a chunk are found without reductions.
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
    for (int i = count; i < 16; ++i) keys[i] = lowest;
    transpose(keys);
    f32x16 first = lowest, second = lowest;
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      second = max(second, min(first, keys[i]));
      first = max(first, keys[i]);
    }
    if (layout.group_chunks == 1) {
      first.store_partial(row.first + block, count);
      second.store_partial(row.second + block, count);
    } else {
      const f32x16_pair best = deinterleave(first, first), next = deinterleave(second, second);
      max(best.first, best.second).store_partial(row.first + block / 2, count / 2);
      max(min(best.first, best.second), max(next.first, next.second)).store_partial(row.second + block / 2, count / 2);
    }
  }
}

/// The kept groups, one bit each, and a key that at least `routed` of their experts reach.
struct Kept {
  std::uint32_t groups;
  float bound;
};

template <class Lanes>
DODONA_INLINE Kept keep_groups(const GateRows& call, Row& row) {
  const f32x16 infinity = f32x16::splat(__builtin_inff());
  for (int g = 0; g < call.groups; g += 16)
    as_key(Lanes::round(f32x16::load(row.first + g) + f32x16::load(row.second + g))).store(row.group_score + g);
  // Every kept group has one expert at its best key, and two at or above its second best.
  const float* reached = call.routed <= call.kept_groups ? row.first : row.second;
  Kept kept{0, 0};
  f32x16 bound = infinity;
  for (int g = 0; g < call.groups; g += 16) {
    const i32x16 rank = ranks(row.group_score, call.groups, g);
    const mask16 keep = (rank < i32x16::splat(call.kept_groups)) & mask16::first(call.groups - g);
    kept.groups |= static_cast<std::uint32_t>(keep.bits()) << g;
    bound = min(select(keep, f32x16::load(reached + g), infinity), bound);
  }
  kept.bound = reduce_min(bound);
  // A second best of -FLT_MAX may be none.
  if (call.routed > 2 * call.kept_groups || !(kept.bound > -__FLT_MAX__)) kept.bound = -__builtin_inff();
  return kept;
}

/// Calls body(slot) for every slot of the kept groups, in order, whose key `test` accepts.
template <class Test, class Body>
DODONA_INLINE void for_each_slot(const SlotLayout& layout, std::uint32_t groups, const Row& row, const Test& test, const Body& body) {
  int begins[4];
  while (groups != 0) {
    std::uint64_t word = 0;
    int held = 0;
    for (; groups != 0 && held + layout.group_chunks <= 4; groups &= groups - 1) {
      const int slot = __builtin_ctz(groups) * layout.group_slots();
      for (int c = 0; c < layout.group_chunks; ++c, ++held) {
        const std::uint32_t bits = test(f32x16::load(row.key + slot + 16 * c)).bits() & layout.valid;
        word |= static_cast<std::uint64_t>(bits) << (16 * held);
        begins[held] = slot + 16 * c;
      }
    }
    for (; word != 0; word &= word - 1) {
      const int bit = __builtin_ctzll(word);
      if (!body(begins[bit >> 4] + (bit & 15))) return;
    }
  }
}

/// Candidates: the slots of the kept groups whose keys are above the bound. Returns their number.
DODONA_INLINE int collect(const SlotLayout& layout, const Kept& kept, Row& row) {
  const f32x16 bound = f32x16::splat(kept.bound);
  int count = 0;
  for_each_slot(
      layout, kept.groups, row, [&](f32x16 key) { return key > bound; },
      [&](int slot) {
        row.candidate[count] = row.key[slot];
        row.candidate_slot[count++] = slot;
        return true;
      });
  return count;
}

/// A bound that holds where groups fall steeply: each lane's best key stands for an expert of its own, so the best `routed` of them do.
DODONA_INLINE float lane_bound(const SlotLayout& layout, std::uint32_t groups, int routed, Row& row) {
  const f32x16 infinity = f32x16::splat(__builtin_inff());
  f32x16 best = -infinity;
  for (; groups != 0; groups &= groups - 1) {
    const float* keys = row.key + __builtin_ctz(groups) * layout.group_slots();
    for (int c = 0; c < layout.group_chunks; ++c) best = max(f32x16::load(keys + 16 * c), best);
  }
  best.store(row.candidate);
  return reduce_min(select(ranks(row.candidate, 16, 0) < i32x16::splat(routed), best, infinity));
}

/// row.order: the slots of the chosen experts. Those above the bound are ranked; those at the bound follow in order of slots.
DODONA_INLINE void choose(const GateRows& call, const SlotLayout& layout, Kept kept, Row& row) {
  int above = collect(layout, kept, row);
  if (above > 32 && call.routed <= 16) {
    const float higher = lane_bound(layout, kept.groups, call.routed, row);
    kept.bound = higher > kept.bound ? higher : kept.bound;
    above = collect(layout, kept, row);
  }
  for (int begin = 0; begin < above; begin += 16) {
    ranks(row.candidate, above, begin).store(row.rank);
    const int end = above - begin < 16 ? above - begin : 16;
    for (int i = 0; i < end; ++i) row.order[row.rank[i]] = row.candidate_slot[begin + i];
  }
  if (above >= call.routed) return;
  const f32x16 bound = f32x16::splat(kept.bound);
  for_each_slot(
      layout, kept.groups, row, [&](f32x16 key) { return key == bound; },
      [&](int slot) {
        row.order[above++] = slot;
        return above < call.routed;
      });
}

DODONA_INLINE void write_row(const GateRows& call, const SlotLayout& layout, const Row& row, float* weights, std::int32_t* ids) {
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
  const SlotLayout layout = slot_layout(call);
  Row row;
  for (int g = 0; g < most_groups; ++g) row.first[g] = row.second[g] = 0.0f;
  for (std::int64_t r = 0; r < call.rows; ++r) {
    score_row<Lanes>(call, layout, static_cast<const char*>(call.input) + r * call.input_stride, row);
    const Kept kept = keep_groups<Lanes>(call, row);
    choose(call, layout, kept, row);
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
