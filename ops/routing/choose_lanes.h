// Choosing experts in vector code: sixteen slots at a time, ranks instead of sorting. Included by *.simd.cpp only.
#pragma once

#include <cstdint>

#include "ops/base/row_lanes.h"

namespace dodona::DODONA_TIER {

constexpr int most_experts = 1024, most_groups = 32;

/// What is chosen of one row: the best groups by the sum of their two best keys, of those the best experts; ties to the lower index.
struct ChoiceSizes {
  int experts, groups, kept_groups, chosen;
};

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
struct RouterRow {
  alignas(64) float score[most_experts], key[most_experts];
  alignas(64) float first[most_groups], second[most_groups], group_score[most_groups];  ///< by group: best two keys, their rounded sum
  alignas(64) float candidate[most_experts + 16];                                       ///< keys, in order of slots
  alignas(64) std::int32_t rank[16];
  std::int32_t candidate_slot[most_experts + 16];
  std::int32_t order[most_experts], lane[16];
};

DODONA_INLINE SlotLayout slot_layout(const ChoiceSizes& sizes) {
  SlotLayout layout{};
  layout.members = sizes.experts / sizes.groups;
  layout.group_chunks = layout.members > 16 ? 2 : 1;
  layout.chunks = sizes.groups * layout.group_chunks;
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

/// The kept groups, one bit each, and a key that at least `chosen` of their experts reach.
struct Kept {
  std::uint32_t groups;
  float bound;
};

/// The best two keys of every group, once all of its keys are known; `keys` of up to sixteen chunks from `block` on, which it uses up.
DODONA_INLINE void rank_chunks(const SlotLayout& layout, f32x16 (&keys)[16], int block, int count, f32x16 lowest, RouterRow& row) {
  // Chunks become lanes: the best two of a chunk are found without reductions.
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

template <class Lanes>
DODONA_INLINE Kept keep_groups(const ChoiceSizes& sizes, RouterRow& row) {
  const f32x16 infinity = f32x16::splat(__builtin_inff());
  for (int g = 0; g < sizes.groups; g += 16)
    as_key(Lanes::round(f32x16::load(row.first + g) + f32x16::load(row.second + g))).store(row.group_score + g);
  // Every kept group has one expert at its best key, and two at or above its second best.
  const float* reached = sizes.chosen <= sizes.kept_groups ? row.first : row.second;
  Kept kept{0, 0};
  f32x16 bound = infinity;
  for (int g = 0; g < sizes.groups; g += 16) {
    const i32x16 rank = ranks(row.group_score, sizes.groups, g);
    const mask16 keep = (rank < i32x16::splat(sizes.kept_groups)) & mask16::first(sizes.groups - g);
    kept.groups |= static_cast<std::uint32_t>(keep.bits()) << g;
    bound = min(select(keep, f32x16::load(reached + g), infinity), bound);
  }
  kept.bound = reduce_min(bound);
  // A second best of -FLT_MAX may be none.
  if (sizes.chosen > 2 * sizes.kept_groups || !(kept.bound > -__FLT_MAX__)) kept.bound = -__builtin_inff();
  return kept;
}

/// Calls body(slot) for every slot of the kept groups, in order, whose key `test` accepts.
template <class Test, class Body>
DODONA_INLINE void for_each_slot(const SlotLayout& layout, std::uint32_t groups, const RouterRow& row, const Test& test, const Body& body) {
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
DODONA_INLINE int collect(const SlotLayout& layout, const Kept& kept, RouterRow& row) {
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

/// Keeps what was stored in memory, and a loop scalar: vector code would wait for elements that have just been stored one by one.
DODONA_INLINE void settle() {
  asm volatile("" : : : "memory");
}

/// How many of sixteen keys are above each of them; `keys` is where they go.
DODONA_INLINE i32x16 above_each(f32x16 x, float* keys) {
  x.store(keys);
  settle();
  const i32x16 one = i32x16::splat(1);
  i32x16 even = i32x16::zero(), odd = i32x16::zero();
#pragma GCC unroll 8
  for (int j = 0; j < 16; j += 2) {
    even = select(f32x16::splat(keys[j]) > x, even + one, even);
    odd = select(f32x16::splat(keys[j + 1]) > x, odd + one, odd);
  }
  return even + odd;
}

/// The key that the best `chosen` (16 at most) of sixteen lanes reach: where each lane's best key stands for an expert of its own, as many
/// experts reach it.
DODONA_INLINE float reached_by_lanes(f32x16 best, int chosen, RouterRow& row) {
  const mask16 among = above_each(best, row.candidate) < i32x16::splat(chosen);
  return reduce_min(select(among, best, f32x16::splat(__builtin_inff())));
}

/// A bound that holds where groups fall steeply.
DODONA_INLINE float lane_bound(const SlotLayout& layout, std::uint32_t groups, int chosen, RouterRow& row) {
  f32x16 best = f32x16::splat(-__builtin_inff());
  for (; groups != 0; groups &= groups - 1) {
    const float* keys = row.key + __builtin_ctz(groups) * layout.group_slots();
    for (int c = 0; c < layout.group_chunks; ++c) best = max(f32x16::load(keys + 16 * c), best);
  }
  return reached_by_lanes(best, chosen, row);
}

// ---- a row without groups, of which as a rule no more than sixteen keys reach the bound: hardly a branch depends on which

/// What choose_among_few wants of a row that nothing has been done with: keys behind the experts are -inf as far as whole words of 64.
DODONA_INLINE void begin_row(int experts, RouterRow& row) {
  for (int e = (experts + 15) / 16 * 16; e < (experts + 63) / 64 * 64; ++e) row.key[e] = -__builtin_inff();
  for (int i = 0; i < 16; ++i) row.candidate_slot[i] = 0;
}

/// row.candidate_slot: the slots whose keys reach the bound, and row.candidate: sixteen of these. Returns their number.
DODONA_INLINE int collect_few(int slots, f32x16 bound, RouterRow& row) {
  constexpr int as_a_rule = 6;  // as many or fewer of a word
  int count = 0;
  for (int begin = 0; begin < slots; begin += 64) {
    std::uint64_t word = 0;
    for (int c = 0; c < 4; ++c) word |= static_cast<std::uint64_t>((f32x16::load(row.key + begin + 16 * c) >= bound).bits()) << (16 * c);
    std::int32_t* to = row.candidate_slot + count;
    count += __builtin_popcountll(word);
    for (int i = 0; i < as_a_rule; ++i, word &= word - 1, settle()) to[i] = begin + __builtin_ctzll(word | std::uint64_t{1} << 63);
    for (to += as_a_rule; word != 0; word &= word - 1) *to++ = begin + __builtin_ctzll(word);
  }
  for (int i = 0; i < 16; ++i, settle()) row.candidate[i] = row.key[row.candidate_slot[i]];
  return count;
}

/// row.order of `count` collected ones, and row.lane: which of them. False where they are too many.
DODONA_INLINE bool choose_among_few(int count, int chosen, RouterRow& row) {
  if (count > 16 || count < chosen) return false;
  const f32x16 keys = select(mask16::first(count), f32x16::load(row.candidate), f32x16::splat(-__builtin_inff()));
  const i32x16 rank = above_each(keys, row.candidate);
  // Equal keys share a rank, and the ranks behind it are nobody's.
  std::uint32_t equals = 0;
  for (int k = 0; k < chosen; ++k, equals &= equals - 1) {
    equals |= (rank == i32x16::splat(k)).bits();
    row.lane[k] = __builtin_ctz(equals);
    row.order[k] = row.candidate_slot[row.lane[k]];
  }
  return true;
}

// ---- any row

/// row.order: the slots of the chosen experts. Those above the bound are ranked; those at the bound follow in order of slots.
DODONA_INLINE void choose(const ChoiceSizes& sizes, const SlotLayout& layout, Kept kept, RouterRow& row) {
  int above = collect(layout, kept, row);
  if (above > 32 && sizes.chosen <= 16) {
    const float higher = lane_bound(layout, kept.groups, sizes.chosen, row);
    kept.bound = higher > kept.bound ? higher : kept.bound;
    above = collect(layout, kept, row);
  }
  for (int begin = 0; begin < above; begin += 16) {
    ranks(row.candidate, above, begin).store(row.rank);
    const int end = above - begin < 16 ? above - begin : 16;
    for (int i = 0; i < end; ++i) row.order[row.rank[i]] = row.candidate_slot[begin + i];
  }
  if (above >= sizes.chosen) return;
  const f32x16 bound = f32x16::splat(kept.bound);
  for_each_slot(
      layout, kept.groups, row, [&](f32x16 key) { return key == bound; },
      [&](int slot) {
        row.order[above++] = slot;
        return above < sizes.chosen;
      });
}

}  // namespace dodona::DODONA_TIER
