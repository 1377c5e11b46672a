// Mistakes inside of what many kernels share: the sigmoid, the softmax, attention over tiles of keys. Golden mode makes them on demand, so
// that a judge may be asked whether it notices them, and outputs whether they come from them. What is asked is where they could be made at
// all: a golden run notes which of these functions it meets.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "dodona/dtype.h"
#include "dodona/exec.h"

namespace dodona {

/// Functions that many kernels have inside.
enum class Inner : unsigned {
  sigmoid = 1,    ///< 1 / (1 + exp(-x)), alone or in silu
  softmax = 2,    ///< exp(x - max) over its sum
  attention = 4,  ///< sums of values under such weights
  sinks = 8,      ///< attention whose sum of weights has a term without a value
  window = 16,    ///< attention to keys near the query alone
};

/// Attention whose numbers are kept in a narrower type than the contract has, in tiles of keys about a running maximum; or (undivided) not
/// divided by the sum of their weights.
struct NarrowAttention {
  enum class What { sums, weight_sum, weights, undivided };
  What what = What::sums;
  DType type = DType::bf16;
  std::int64_t tile = 64;        ///< keys after which sums are rounded
  bool weights_rounded = false;  ///< to the contract's type, before they multiply values
};

/// Attention whose sum of the weights has other terms than those of the keys that a query sees.
struct AttentionTerms {
  enum class Sink { right, twice, scaled };
  Sink sink = Sink::right;       ///< scaled: as if it were a product yet, and no score
  bool last_key_hidden = false;  ///< of each query
  std::int64_t empty = 0;        ///< so many terms of a score of 0 that belong to no key
  std::int64_t tile = 0;         ///< not 0: as many of those as fill the last tile of so many keys
  bool empty_capped = false;     ///< those have a score of -cap: the cap is applied behind the mask
  std::int64_t splits = 0;       ///< not 0: as many of those as there are splits without keys among so many
  std::int64_t split_unit = 1;   ///< splits hold a multiple of so many keys
  bool hidden_count = false;     ///< keys that the query does not see count, with a score of their own
  double hidden_score = 0;       ///< that one; with a cap it is -cap

  /// Splits of `keys` that hold none.
  std::int64_t empty_splits(std::int64_t keys) const {
    if (splits == 0 || keys <= 0) return 0;
    const std::int64_t each = ((keys + splits - 1) / splits + split_unit - 1) / split_unit * split_unit;
    return splits - (keys + each - 1) / each;
  }
};

/// Attention to some of the keys that a query should see, or to their values alone.
struct KeysSeen {
  enum class How {
    all,
    first,          ///< the first `number`
    last,           ///< the last `number`
    whole_tiles,    ///< those in whole tiles of `number`
    behind_first,   ///< those behind the first `number`
    one_of_each,    ///< the first of each `number`
    one_share,      ///< dealt out to as many shares as there are tiles of `number`: the first share
    more_or_fewer,  ///< `number` more than there should be
  };
  How how = How::all;
  std::int64_t number = 0;
  bool values_alone = false;  ///< the others' weights are in the sum of the weights all the same

  bool leaves_out(std::int64_t key, std::int64_t keys) const {
    switch (how) {
      case How::first: return key >= number;
      case How::last: return key < keys - number;
      case How::whole_tiles: return key >= keys / number * number;
      case How::behind_first: return key < number;
      case How::one_of_each: return key % number != 0;
      case How::one_share: return key % ((keys + number - 1) / number) != 0;
      default: return false;
    }
  }
};

class AttentionWatch;  // core/attention_watch.h

class Flaw {
 public:
  bool sigmoid_from_tanh = false;       ///< (tanh.approx(x / 2) + 1) / 2
  bool exponentials_unshifted = false;  ///< exp(x) in the place of exp(x - max): overflows fp32 from 88.7 on
  std::optional<NarrowAttention> attention = {};
  AttentionTerms terms = {};
  KeysSeen keys = {};
  std::int64_t window_tile = 0;     ///< n: windows begin with a whole tile of n keys; -n: with the tile that their first key is in
  AttentionWatch* watch = nullptr;  ///< no mistake: is shown what attention adds up

  void meet(Inner inner) const { met_.fetch_or(static_cast<unsigned>(inner), std::memory_order_relaxed); }
  unsigned met() const { return met_.load(std::memory_order_relaxed); }

 private:
  mutable std::atomic<unsigned> met_{0};
};

/// The flaw that golden mode has to heed in such a function, which it is told of; nullptr for none.
inline const Flaw* flaw_in(Inner inner, const Exec& exec) {
  if (exec.flaw != nullptr) exec.flaw->meet(inner);
  return exec.flaw;
}
inline bool sigmoid_is_from_tanh(const Exec& exec) {
  const Flaw* const flaw = flaw_in(Inner::sigmoid, exec);
  return flaw != nullptr && flaw->sigmoid_from_tanh;
}
inline bool exponentials_are_unshifted(const Exec& exec) {
  const Flaw* const flaw = flaw_in(Inner::softmax, exec);
  return flaw != nullptr && flaw->exponentials_unshifted;
}
/// Of keys near the query alone the number of the first, `first` but for a flaw. The last is always seen.
inline std::int64_t window_begin(std::int64_t first, std::int64_t last, std::int64_t tile) {
  if (tile == 0 || first <= 0) return first;
  const std::int64_t down = first / std::abs(tile) * std::abs(tile);
  return tile < 0 || down == first ? down : std::min(down + tile, last);
}
inline std::int64_t window_tile_of(const Exec& exec) {
  const Flaw* const flaw = flaw_in(Inner::window, exec);
  return flaw != nullptr ? flaw->window_tile : 0;
}
/// exp(x) as fp32 has it, which overflows beyond 88.7 and is nothing below -104.
double unshifted_exponential(double x);

}  // namespace dodona
