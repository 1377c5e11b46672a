#include "ops/routing/topk_rows.h"

#include "ops/routing/choose_lanes.h"
#include "simd/math.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::RouterScale;
using ops::RouterScore;
using ops::RouterWeight;
using ops::TopkRows;

/// Groups of 32 slots, all of them kept, stand for a row without groups; slots behind the last expert are padding with key -inf.
constexpr int group_slots = 32;

DODONA_INLINE f32x16 bias_of(const TopkRows& call, int e) {
  return call.bias != nullptr ? f32x16::load_partial(call.bias + e, call.experts - e) : f32x16::zero();
}

DODONA_INLINE f32x16 minus_infinity() {
  return f32x16::splat(-__builtin_inff());
}

DODONA_INLINE float reached(const TopkRows& call, f32x16 best, RouterRow& row) {
  return call.chosen <= 16 ? reached_by_lanes(best, call.chosen, row) : -__builtin_inff();
}

/// A row's keys by slot, as yet unranked, and what their best ones reach.
struct Scored {
  float bound;
  float share = 1;  ///< factor of scores
};

/// row.key = what `key` makes of the sixteen experts from e on.
template <class Key>
DODONA_INLINE f32x16 store_keys(const TopkRows& call, RouterRow& row, const Key& key) {
  f32x16 best = minus_infinity();
  for (int e = 0; e < call.experts; e += 16) {
    const f32x16 keys = select(mask16::first(call.experts - e), as_key(key(e)), minus_infinity());
    keys.store(row.key + e);
    best = max(keys, best);
  }
  return best;
}

/// Softmax rises with the logits, so these are compared; but shares that underflow tie, whatever the logits were.
template <class Lanes>
DODONA_INLINE Scored softmax_row(const TopkRows& call, const void* input, RouterRow& row) {
  const f32x16 cap = f32x16::splat(call.softcap);
  const f32x16 best = store_keys(call, row, [&](int e) {
    f32x16 x = Lanes::load_partial(at<Lanes>(input, e), call.experts - e);
    if (call.softcap != 0) x = tanh(x / cap) * cap;
    if (call.bias != nullptr) x = x + bias_of(call, e);
    select(mask16::first(call.experts - e), x, minus_infinity()).store(row.score + e);
    return x;
  });
  const float most = reduce_max(best);
  const f32x16 shift = f32x16::splat(most);
  f32x16 sums = f32x16::zero();
  for (int e = 0; e < call.experts; e += 16) {
    const f32x16 y = exp(f32x16::load(row.score + e) - shift);
    y.store(row.score + e);
    sums = sums + y;
  }
  const Scored scored{reached(call, best, row), 1.0f / reduce_add(sums)};
  // A row without a softmax has no order either.
  if (!(scored.bound - most <= -80.0f) || scored.share != scored.share) return scored;
  const f32x16 share = f32x16::splat(scored.share);
  return {reached(call, store_keys(call, row, [&](int e) { return f32x16::load(row.score + e) * share; }), row), scored.share};
}

/// row.score = sigmoid of the logits, row.key = that and the bias.
template <class Lanes>
DODONA_INLINE Scored sigmoid_row(const TopkRows& call, const void* input, RouterRow& row) {
  const f32x16 best = store_keys(call, row, [&](int e) {
    const f32x16 score = sigmoid(Lanes::load_partial(at<Lanes>(input, e), call.experts - e));
    score.store(row.score + e);
    return score + bias_of(call, e);
  });
  return {reached(call, best, row)};
}

/// Without a bias the logits are compared, and scores are made of the chosen alone; but not where scores saturate and tie.
template <class Lanes>
DODONA_INLINE bool choose_by_logits(const TopkRows& call, const void* input, RouterRow& row, Scored& scored) {
  if (call.bias != nullptr) return false;
  const f32x16 best = store_keys(call, row, [&](int e) { return Lanes::load_partial(at<Lanes>(input, e), call.experts - e); });
  scored = {reached(call, best, row)};
  return scored.bound > -80.0f && reduce_max(best) < 16.0f;
}

DODONA_INLINE void score_chosen(const TopkRows& call, RouterRow& row) {
  alignas(64) float some[16];
  for (int k = 0; k < call.chosen; k += 16) {
    const int count = call.chosen - k < 16 ? call.chosen - k : 16;
    for (int i = 0; i < count; ++i) some[i] = row.key[row.order[k + i]];
    sigmoid(f32x16::load_partial(some, count)).store(some);
    for (int i = 0; i < count; ++i) row.score[row.order[k + i]] = some[i];
  }
}

DODONA_INLINE float weight_of(const TopkRows& call, const RouterRow& row, int expert) {
  if (call.weight == RouterWeight::score || call.bias == nullptr) return row.score[expert];
  return (row.score[expert] + call.bias[expert]) - call.bias[expert];
}

DODONA_INLINE void write_row(const TopkRows& call, const RouterRow& row, float share, float* weights, std::int32_t* ids) {
  float sum = 0;
  for (int k = 0; k < call.chosen; ++k) {
    ids[k] = row.order[k];
    weights[k] = weight_of(call, row, row.order[k]) * share;
    sum += weights[k];
  }
  const bool scaled = call.scale == RouterScale::reciprocal || (call.scale == RouterScale::quotient && sum != 0);
  const f32x16 divisor = f32x16::splat(sum), factor = f32x16::splat(call.factor);
  for (int k = 0; k < call.chosen; k += 16) {
    f32x16 w = f32x16::load_partial(weights + k, call.chosen - k);
    if (scaled) w = (call.scale == RouterScale::reciprocal ? w * (f32x16::splat(1.0f) / divisor) : w / divisor) * factor;
    canonical_nan(w).store_partial(weights + k, call.chosen - k);
  }
}

template <class Lanes>
DODONA_INLINE void topk_rows(const TopkRows& call) {
  const int groups = (call.experts + group_slots - 1) / group_slots;
  const ChoiceSizes sizes{groups * group_slots, groups, groups, call.chosen};
  const SlotLayout layout = slot_layout(sizes);
  const auto all = static_cast<std::uint32_t>((std::uint64_t{1} << groups) - 1);
  RouterRow row;
  for (int e = (call.experts + 15) / 16 * 16; e < sizes.experts; ++e) row.key[e] = -__builtin_inff();
  for (std::int64_t r = 0; r < call.rows; ++r) {
    const void* input = static_cast<const char*>(call.input) + r * call.input_stride;
    Scored scored{};
    bool unscored = false;
    if (call.score == RouterScore::softmax) {
      scored = softmax_row<Lanes>(call, input, row);
    } else {
      unscored = choose_by_logits<Lanes>(call, input, row, scored);
      if (!unscored) scored = sigmoid_row<Lanes>(call, input, row);
    }
    choose(sizes, layout, {all, scored.bound}, row);
    if (unscored) score_chosen(call, row);
    write_row(call, row, scored.share, call.weights + r * call.weights_stride, call.ids + r * call.ids_stride);
  }
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void TopkRowsKernel::run(const TopkRows& call) {
  using namespace DODONA_TIER;
  with_lanes(call.type, [&](auto lanes) { topk_rows<decltype(lanes)>(call); });
}
template void TopkRowsKernel::run<tier::DODONA_TIER>(const TopkRows&);

}  // namespace dodona::ops
