#include "ops/routing/topk_rows.h"

#include <type_traits>

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

const float gpu_nan = __builtin_bit_cast(float, 0x7FFFFFFF);

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

/// Elements of a row from e on: sixteen of them, or what is left, and then zeros.
template <class Lanes, bool whole>
DODONA_INLINE f32x16 load_row(const TopkRows& call, const void* row, int e) {
  return whole ? Lanes::load(at<Lanes>(row, e)) : Lanes::load_partial(at<Lanes>(row, e), call.experts - e);
}

/// row.key = what `key` makes of the experts from e on, sixteen at once.
template <class Key>
DODONA_INLINE f32x16 store_keys(const TopkRows& call, RouterRow& row, const Key& key) {
  const int experts = call.experts;
  f32x16 best = minus_infinity();
  int e = 0;
  for (; e + 16 <= experts; e += 16) {
    const f32x16 keys = as_key(key(e, std::true_type{}));
    keys.store(row.key + e);
    best = max(keys, best);
  }
  if (e == experts) return best;
  const f32x16 keys = select(mask16::first(experts - e), as_key(key(e, std::false_type{})), minus_infinity());
  keys.store(row.key + e);
  return max(keys, best);
}

/// Softmax rises with the logits, so these are compared. Returns the largest of each lane.
template <class Lanes>
DODONA_INLINE f32x16 softmax_keys(const TopkRows& call, const void* input, RouterRow& row) {
  const auto stored = [&](f32x16 x, int e, auto whole) {
    if (!whole) x = select(mask16::first(call.experts - e), x, minus_infinity());
    x.store(row.score + e);
    return x;
  };
  if (call.softcap == 0 && call.bias == nullptr)
    return store_keys(call, row, [&](int e, auto whole) { return stored(load_row<Lanes, whole>(call, input, e), e, whole); });
  const f32x16 cap = f32x16::splat(call.softcap);
  return store_keys(call, row, [&](int e, auto whole) {
    f32x16 x = load_row<Lanes, whole>(call, input, e);
    if (call.softcap != 0) x = tanh(x / cap) * cap;
    if (call.bias != nullptr) x = x + load_row<F32Lanes, whole>(call, call.bias, e);
    return stored(x, e, whole);
  });
}

/// Shares that underflow tie, whatever the logits were.
DODONA_INLINE Scored softmax_row(const TopkRows& call, f32x16 best, RouterRow& row) {
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
  return {reached(call, store_keys(call, row, [&](int e, auto) { return f32x16::load(row.score + e) * share; }), row), scored.share};
}

/// row.score = sigmoid of the logits, row.key = that and the bias.
template <class Lanes>
DODONA_INLINE Scored sigmoid_row(const TopkRows& call, const void* input, RouterRow& row) {
  const f32x16 best = store_keys(call, row, [&](int e, auto whole) {
    const f32x16 score = sigmoid(load_row<Lanes, whole>(call, input, e));
    score.store(row.score + e);
    return call.bias != nullptr ? score + load_row<F32Lanes, whole>(call, call.bias, e) : score + f32x16::zero();
  });
  return {reached(call, best, row)};
}

/// Without a bias the logits are compared, and scores are made of the chosen alone; but not where scores saturate and tie.
template <class Lanes>
DODONA_INLINE bool choose_by_logits(const TopkRows& call, const void* input, RouterRow& row, Scored& scored) {
  if (call.bias != nullptr) return false;
  const f32x16 best = store_keys(call, row, [&](int e, auto whole) { return load_row<Lanes, whole>(call, input, e); });
  scored = {reached(call, best, row)};
  return scored.bound > -80.0f && reduce_max(best) < 16.0f;
}

DODONA_INLINE void score_few(const TopkRows& call, RouterRow& row) {
  sigmoid(f32x16::load(row.candidate)).store(row.candidate);
  for (int k = 0; k < call.chosen; ++k, settle()) row.score[row.order[k]] = row.candidate[row.lane[k]];
}
DODONA_INLINE void score_many(const TopkRows& call, RouterRow& row) {
  alignas(64) float some[16];
  for (int k = 0; k < call.chosen; k += 16) {
    const int count = call.chosen - k < 16 ? call.chosen - k : 16;
    for (int i = 0; i < count; ++i) some[i] = row.key[row.order[k + i]];
    sigmoid(f32x16::load_partial(some, count)).store(some);
    for (int i = 0; i < count; ++i) row.score[row.order[k + i]] = some[i];
  }
}

DODONA_INLINE void write_row(const TopkRows& call, const RouterRow& row, float share, float* weights, std::int32_t* ids) {
  // What settle() would have read again for each of them.
  const int chosen = call.chosen;
  const float* const bias = call.weight == RouterWeight::score ? nullptr : call.bias;
  const RouterScale scale = call.scale;
  float sum = 0;
  for (int k = 0; k < chosen; ++k, settle()) {
    const int expert = row.order[k];
    const float w = (bias == nullptr ? row.score[expert] : (row.score[expert] + bias[expert]) - bias[expert]) * share;
    ids[k] = expert;
    weights[k] = w == w ? w : gpu_nan;
    sum += w;
  }
  if (scale == RouterScale::none || (scale == RouterScale::quotient && sum == 0)) return;
  const float factor = call.factor, reciprocal = 1.0f / sum;
  for (int k = 0; k < chosen; ++k, settle()) {
    const float w = (scale == RouterScale::reciprocal ? weights[k] * reciprocal : weights[k] / sum) * factor;
    weights[k] = w == w ? w : gpu_nan;
  }
}

/// A row on its way.
struct RowAtWork {
  RouterRow row;
  f32x16 best;
  Scored scored;
  bool unscored, few;
};

/// As many as wait for one another's results together: each step is a long chain, of which a core hides one behind another's.
constexpr int rows_at_once = 4;

template <class Lanes>
DODONA_INLINE void topk_rows(const TopkRows& call) {
  const int groups = (call.experts + group_slots - 1) / group_slots;
  const ChoiceSizes sizes{groups * group_slots, groups, groups, call.chosen};
  const SlotLayout layout = slot_layout(sizes);
  const auto all = static_cast<std::uint32_t>((std::uint64_t{1} << groups) - 1);
  RowAtWork rows[rows_at_once];
  for (RowAtWork& work : rows) begin_row(call.experts, work.row);
  for (std::int64_t first = 0; first < call.rows; first += rows_at_once) {
    const int count = call.rows - first < rows_at_once ? static_cast<int>(call.rows - first) : rows_at_once;
    for (int r = 0; r < count; ++r) {
      RowAtWork& work = rows[r];
      const void* input = static_cast<const char*>(call.input) + (first + r) * call.input_stride;
      work.unscored = false;
      if (call.score == RouterScore::softmax) {
        work.best = softmax_keys<Lanes>(call, input, work.row);
      } else {
        work.unscored = choose_by_logits<Lanes>(call, input, work.row, work.scored);
        if (!work.unscored) work.scored = sigmoid_row<Lanes>(call, input, work.row);
      }
    }
    if (call.score == RouterScore::softmax)
      for (int r = 0; r < count; ++r) rows[r].scored = softmax_row(call, rows[r].best, rows[r].row);
    int found[rows_at_once];
    for (int r = 0; r < count; ++r) found[r] = collect_few(sizes.experts, f32x16::splat(rows[r].scored.bound), rows[r].row);
    for (int r = 0; r < count; ++r) rows[r].few = choose_among_few(found[r], call.chosen, rows[r].row);
    for (int r = 0; r < count; ++r) {
      RowAtWork& work = rows[r];
      if (!work.few) choose(sizes, layout, {all, work.scored.bound}, work.row);
      if (work.unscored && work.few) score_few(call, work.row);
      if (work.unscored && !work.few) score_many(call, work.row);
    }
    for (int r = 0; r < count; ++r)
      write_row(call, rows[r].row, rows[r].scored.share, call.weights + (first + r) * call.weights_stride,
                call.ids + (first + r) * call.ids_stride);
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
