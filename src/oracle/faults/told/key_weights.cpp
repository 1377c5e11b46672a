#include "oracle/faults/told/key_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core/flaw.h"
#include "dodona/error.h"
#include "oracle/faults/rewritten.h"
#include "oracle/faults/tables/fault_tools.h"
#include "oracle/faults/told/least_squares.h"
#include "oracle/faults/watched_run.h"
#include "oracle/judge/pattern/samples.h"
#include "quant/sizes.h"

namespace dodona::oracle {
namespace {

using pattern::number;

/// What golden mode adds up for a row of the output.
struct Seen {
  std::vector<double> weights, values;

  std::int64_t keys() const { return static_cast<std::int64_t>(weights.size()); }
};
/// Rows that fail, and what is shown of them.
struct Watched : AttentionWatch {
  std::set<std::int64_t> rows;
  std::map<std::int64_t, Seen> seen;
  std::mutex guard;

  bool wants(std::int64_t row) const override { return rows.count(row) > 0; }
  void see(std::int64_t row, const std::vector<double>& weights, const std::vector<double>& values) override {
    const std::lock_guard lock(guard);
    seen[row] = {weights, values};
  }
};

/// Where each tile of a row's keys begins; the last number is theirs.
using Tiles = std::vector<std::int64_t>;
Tiles tiles_of(std::int64_t keys, std::int64_t tile) {
  Tiles begins;
  for (std::int64_t j = 0; j < keys; j += tile) begins.push_back(j);
  begins.push_back(keys);
  return begins;
}
/// The keys in so many splits: as even as can be, or each as long as the first, which is a multiple of something.
std::vector<Tiles> splits_of(std::int64_t keys, std::int64_t splits) {
  std::vector<Tiles> found;
  for (const std::int64_t whole : {1, 8, 16, 32})
    if (const std::int64_t length = quant::ceil_div(quant::ceil_div(keys, splits), whole) * whole; length < keys)
      found.push_back(tiles_of(keys, length));
  Tiles even;
  for (std::int64_t s = 0; s <= splits; ++s) even.push_back(s * (keys / splits) + std::min(s, keys % splits));
  found.push_back(std::move(even));
  return found;
}

/// What the keys of a row, in tiles, counted for.
struct Told {
  std::int64_t row, keys;
  Tiles tiles;
  bool splits;  ///< few and long, each with a count of its own
  std::vector<double> counts, room;
  double common = 1;  ///< of the keys that nothing happened to
  std::vector<bool> lost, twice;

  bool known(std::size_t t) const { return room[t] < 0.15; }
  double off(std::size_t t, double times) const { return std::fabs(counts[t] - times * common) - (0.05 * std::fabs(common) + 4 * room[t]); }
};

class KeyWeights {
 public:
  KeyWeights(const FaultCase& call, const OutputVerdict& output, const Tensor& actual)
      : call_(call), output_(output), actual_(actual), width_(actual.rank() > 0 ? actual.size(-1) : 1) {}

  std::optional<Explanation> explanation(const NamedTensors& actual, const JudgeOptions& options) {
    if (!watch()) return std::nullopt;
    if (auto found = by_counts(actual, options)) return found;
    return by_stale_tiles(actual, options);
  }

 private:
  std::optional<Explanation> by_counts(const NamedTensors& actual, const JudgeOptions& options) {
    for (const auto& [row, seen] : watched_.seen) {
      auto told = tell(row, seen);
      // Of a row of zeros, which may not have been written, no weights are told.
      if (!told || std::all_of(told->counts.begin(), told->counts.end(), [](double x) { return std::fabs(x) < 0.01; })) return std::nullopt;
      told_.push_back(std::move(*told));
    }
    if (std::all_of(told_.begin(), told_.end(), [](const Told& t) { return says_nothing(t); })) return std::nullopt;
    // Some are left out, or count twice; or else each tile has a factor of its own.
    if (std::all_of(told_.begin(), told_.end(), [&](Told& t) { return sorted(t); }))
      return verified(words_of_some(), true, actual, options);
    // Any weights at all fit another query's row: those of a few parts are no chance. Of few tiles nothing is known; most rows must have
    // more.
    const auto parts = std::count_if(told_.begin(), told_.end(), few_parts);
    const bool others_are_short = std::all_of(told_.begin(), told_.end(), [](const Told& t) { return few_parts(t) || is_short(t); });
    if (!others_are_short || 2 * parts < static_cast<std::ptrdiff_t>(told_.size())) return std::nullopt;
    return verified(words_of_tiles(), false, actual, options);
  }

  // ---- a tile that was not there yet

  /// Of the keys of one tile, or of all tiles that have one there, the weights or the values are those of another tile.
  struct Stale {
    enum class What { weights, weights_and_sum, values };
    What what;
    std::int64_t tile, which, step;  ///< which: -1 for all; step: tiles from there to where it was taken from
    bool holds(std::int64_t key, std::int64_t keys) const {
      const std::int64_t of = key / tile, from = of + step;
      return from >= 0 && from * tile < keys && (which < 0 || of == which);
    }
  };
  /// The row's element with it.
  double with(const Stale& s, const Seen& seen, double right, std::int64_t c) const {
    double more = 0, weight = 0, all = 0;
    const std::int64_t keys = seen.keys();
    for (std::int64_t j = 0; j < keys; ++j) {
      const double own = seen.weights[static_cast<std::size_t>(j)];
      all += own;
      if (!s.holds(j, keys)) continue;
      const std::int64_t from = j + s.step * s.tile;
      const bool there = from >= 0 && from < keys;
      const double value = seen.values[static_cast<std::size_t>(j * width_ + c)];
      if (s.what == Stale::What::values) {
        more += own * ((there ? seen.values[static_cast<std::size_t>(from * width_ + c)] : 0) - value);
      } else {
        const double other = (there ? seen.weights[static_cast<std::size_t>(from)] : 0) - own;
        more += other * value, weight += other;
      }
    }
    return s.what == Stale::What::weights_and_sum ? (right + more) * (all / (all + weight)) : right + more;
  }
  bool fits(const Stale& s) const {
    const ReferenceOutput& reference = *call_.golden.reference.find(output_.name);
    for (const auto& [row, seen] : watched_.seen) {
      if (s.which >= 0 && seen.keys() <= s.which * s.tile) return false;
      bool zeros = true;
      for (std::int64_t c = 0; c < width_; c += std::max<std::int64_t>(1, width_ / 16)) {
        const double right = reference.exact[static_cast<std::size_t>(row * width_ + c)], is = with(s, seen, right, c);
        if (!(std::fabs(quant::get(actual_, row * width_ + c) - is) <= 4 * room_of(row * width_ + c) + 0.02 * std::fabs(is - right)))
          return false;
        zeros = zeros && quant::get(actual_, row * width_ + c) == 0;
      }
      // What may not have been written tells no weights.
      if (zeros) return false;
    }
    return true;
  }
  std::optional<Explanation> by_stale_tiles(const NamedTensors& actual, const JudgeOptions& options) const {
    std::int64_t longest = 0;
    for (const auto& [row, seen] : watched_.seen) longest = std::max(longest, seen.keys());
    if (watched_.seen.size() < 2) return std::nullopt;
    for (const std::int64_t tile : {64, 32, 128, 16, 256}) {
      const std::int64_t tiles = (longest + tile - 1) / tile;
      constexpr std::int64_t most_tiles = 32;
      if (tiles < 2 || tiles > most_tiles) continue;
      for (const auto what : {Stale::What::weights, Stale::What::weights_and_sum, Stale::What::values})
        for (const std::int64_t step : {-1, 1, -2, 2})
          for (std::int64_t which = -1; which < tiles; ++which)
            if (const Stale stale{what, tile, which, step}; (which < 0 || which + step >= 0) && fits(stale))
              if (auto found = verified(stale, actual, options)) return found;
    }
    return std::nullopt;
  }
  std::string words_of(const Stale& s) const {
    const std::string others = (std::abs(s.step) == 1 ? "the tile " : "those two tiles ") + std::string(s.step < 0 ? "before" : "behind"),
                      keys = s.which < 0
                                 ? "of each tile of " + std::to_string(s.tile) + " keys"
                                 : "of keys " + std::to_string(s.which * s.tile) + ".." + std::to_string((s.which + 1) * s.tile - 1) +
                                       " (tile " + std::to_string(s.which) + " of " + std::to_string(s.tile) + ")";
    return output_.name + ": " + keys + " the " +
           (s.what == Stale::What::values            ? "values"
            : s.what == Stale::What::weights_and_sum ? "weights, and their sum,"
                                                     : "weights (their sum is right)") +
           " are those of " + others + ": as where a buffer is read before it is filled anew; where it fails: " + output_.pattern;
  }
  std::optional<Explanation> verified(const Stale& stale, const NamedTensors& actual, const JudgeOptions& options) const {
    const ReferenceOutput& reference = *call_.golden.reference.find(output_.name);
    std::vector<double> exact = reference.exact, slack = reference.slack;
    for (const auto& [row, seen] : watched_.seen)
      for (std::int64_t c = 0; c < width_; ++c) {
        const auto at = static_cast<std::size_t>(row * width_ + c);
        const double is = with(stale, seen, exact[at], c);
        slack[at] = 2 * slack[at] + 0x1p-9 * std::fabs(is - exact[at]);
        exact[at] = is;
      }
    GoldenRun run = call_.golden;
    fault_tools::put_numbers(run, output_.name, exact, slack);
    const Verdict other = judge(call_.op, call_.inputs, run, actual, options);
    for (const OutputVerdict& output : other.outputs)
      if (output.name == output_.name && output.failing > 0) return std::nullopt;
    Explanation found{"stale-tile-of-keys", words_of(stale)};
    found.outputs.push_back(output_.name);
    found.failing = other.failing();
    found.complete = other.outcome == Outcome::pass;
    return found;
  }

  bool watch() {
    constexpr std::size_t most_rows = 512;
    constexpr std::int64_t most_numbers = std::int64_t{1} << 24;
    for (const std::int64_t i : output_.detail->failing) {
      if (!std::isfinite(quant::get(actual_, i))) return false;
      watched_.rows.insert(i / width_);
    }
    if (watched_.rows.size() > most_rows) return false;
    run_watched(call_, watched_);
    std::int64_t numbers = 0;
    for (const auto& [row, seen] : watched_.seen) {
      numbers += static_cast<std::int64_t>(seen.values.size());
      if (seen.values.size() != seen.weights.size() * static_cast<std::size_t>(width_)) return false;
    }
    return watched_.seen.size() == watched_.rows.size() && numbers <= most_numbers;
  }

  double room_of(std::int64_t i) const {
    const ReferenceOutput& reference = *call_.golden.reference.find(output_.name);
    return quant::ulp(actual_.dtype(), quant::get(actual_, i)) / 2 + reference.slack[static_cast<std::size_t>(i)] + 1e-30;
  }
  /// What each tile adds to element c of the row.
  static std::vector<double> parts_of(const Seen& seen, const Tiles& tiles, std::int64_t c, std::int64_t width) {
    std::vector<double> parts(tiles.size() - 1);
    for (std::size_t t = 0; t + 1 < tiles.size(); ++t)
      for (std::int64_t j = tiles[t]; j < tiles[t + 1]; ++j)
        parts[t] += seen.weights[static_cast<std::size_t>(j)] * seen.values[static_cast<std::size_t>(j * width + c)];
    return parts;
  }
  /// `enough`: so many elements for each tile.
  std::optional<Told> tell(std::int64_t row, const Seen& seen, const Tiles& tiles, std::int64_t enough) const {
    if (enough * static_cast<std::int64_t>(tiles.size() - 1) > width_) return std::nullopt;
    LeastSquares equations(tiles.size() - 1);
    std::vector<std::vector<double>> parts;
    for (std::int64_t c = 0; c < width_; ++c) {
      parts.push_back(parts_of(seen, tiles, c, width_));
      equations.add(parts.back(), quant::get(actual_, row * width_ + c), room_of(row * width_ + c));
    }
    const auto solution = equations.solved();
    if (!solution) return std::nullopt;
    double wrong = 0;
    for (std::int64_t c = 0; c < width_; ++c) {
      double sum = 0;
      for (std::size_t t = 0; t + 1 < tiles.size(); ++t) sum += parts[static_cast<std::size_t>(c)][t] * solution->x[t];
      const double off = (quant::get(actual_, row * width_ + c) - sum) / room_of(row * width_ + c);
      wrong += off * off;
    }
    // Of another sum than one of these values nothing is told.
    if (wrong > 2.0 * static_cast<double>(width_)) return std::nullopt;
    Told told{row, seen.keys(), tiles, false, solution->x, solution->room, 1, {}, {}};
    told.common = common_of(told, seen);
    return told;
  }
  std::optional<Told> tell(std::int64_t row, const Seen& seen) const {
    if (auto told = tell(row, seen, tiles_of(seen.keys(), 1), 2)) return told;
    // Before tiles, which may lie across their borders.
    constexpr std::int64_t most_splits = 16;
    for (std::int64_t splits = 2; splits <= std::min(most_splits, seen.keys() / 2); ++splits)
      for (const Tiles& tiles : splits_of(seen.keys(), splits))
        if (auto told = tell(row, seen, tiles, 4)) {
          told->splits = true;
          return told;
        }
    for (std::int64_t tile = 2; tile < seen.keys(); tile *= 2)
      if (auto told = tell(row, seen, tiles_of(seen.keys(), tile), 2)) return told;
    return std::nullopt;
  }
  /// The count that most of the weight has, but for what is lost.
  static double common_of(const Told& told, const Seen& seen) {
    std::vector<std::pair<double, double>> counts;
    double all = 0;
    for (std::size_t t = 0; t < told.counts.size(); ++t) {
      if (!told.known(t) || std::fabs(told.counts[t]) < 0.1) continue;
      double weight = 0;
      for (std::int64_t j = told.tiles[t]; j < told.tiles[t + 1]; ++j) weight += std::fabs(seen.weights[static_cast<std::size_t>(j)]);
      counts.emplace_back(told.counts[t], weight);
      all += weight;
    }
    std::sort(counts.begin(), counts.end());
    double below = 0;
    for (const auto& [count, weight] : counts)
      if ((below += weight) >= all / 2) return count;
    return 1;
  }
  static bool says_nothing(const Told& t) {
    for (std::size_t k = 0; k < t.counts.size(); ++k)
      if (t.known(k) && t.off(k, 1) > 0) return false;
    return true;
  }
  /// Whether each tile is lost, counts twice, or like the others; and some are not.
  static bool sorted(Told& t) {
    t.lost.assign(t.counts.size(), false);
    t.twice.assign(t.counts.size(), false);
    for (std::size_t k = 0; k < t.counts.size(); ++k) {
      if (!t.known(k) || t.off(k, 1) <= 0) continue;
      if (t.off(k, 0) <= 0) {
        t.lost[k] = true;
      } else if (t.off(k, 2) <= 0) {
        t.twice[k] = true;
      } else {
        return false;
      }
    }
    return true;
  }

  /// Splits, or tiles of which many neighbours count alike.
  static bool few_parts(const Told& t) {
    std::size_t parts = 0;
    for (std::size_t k = 0; k < t.counts.size(); ++k)
      parts += k == 0 || std::fabs(t.counts[k] - t.counts[k - 1]) > 0.05 * std::fabs(t.counts[k]) + 4 * t.room[k] ? 1 : 0;
    return t.splits || 4 * parts <= t.counts.size();
  }
  /// Whether the weights of each of so many splits add up to the same.
  bool equal_parts(const Told& t, std::int64_t splits) const {
    const Seen& seen = watched_.seen.at(t.row);
    double all = 0;
    for (const double weight : seen.weights) all += weight;
    const auto equal = [&](const Tiles& parts) {
      for (std::size_t p = 0; p + 1 < parts.size(); ++p) {
        double sum = 0, room = 0.02;
        for (std::size_t k = 0; k < t.counts.size(); ++k) {
          if (t.tiles[k] < parts[p] || t.tiles[k] >= parts[p + 1]) continue;
          if (t.tiles[k + 1] > parts[p + 1]) return false;
          double weight = 0;
          for (std::int64_t j = t.tiles[k]; j < t.tiles[k + 1]; ++j) weight += seen.weights[static_cast<std::size_t>(j)] / all;
          sum += t.counts[k] * weight, room += 4 * t.room[k] * weight;
        }
        const auto count = static_cast<double>(parts.size() - 1);
        if (std::fabs(sum * count - 1) > room * count) return false;
      }
      return true;
    };
    const std::vector<Tiles> ways = splits_of(t.keys, splits);
    return std::any_of(ways.begin(), ways.end(), equal);
  }
  static bool is_short(const Told& t) {
    constexpr std::size_t few = 16;
    return t.counts.size() < few;
  }

  std::string row_name(const Told& t) const { return "row " + std::to_string(t.row); }
  static std::string ranges(const Told& t, const std::vector<bool>& of) {
    constexpr int few = 4;
    std::string text;
    int shown = 0;
    for (std::size_t k = 0, end = 0; k < of.size(); k = end) {
      for (end = k + 1; end < of.size() && of[end] == of[k];) ++end;
      if (!of[k]) continue;
      if (++shown > few) return text + "...";
      const std::int64_t first = t.tiles[k], last = t.tiles[end] - 1;
      text += (text.empty() ? "" : ", ") + (first == last ? std::to_string(first) : std::to_string(first) + ".." + std::to_string(last));
    }
    return text;
  }
  /// `keys 16..20 are left out (row 3, which has 21 keys)`, of the first rows; all alike are told once.
  std::string words_of_some() const {
    std::set<std::string> said;
    std::string text;
    for (const Told& t : told_) {
      const std::string lost = ranges(t, t.lost), twice = ranges(t, t.twice);
      std::string one = lost.empty() ? "" : "keys " + lost + " have no weight, left out";
      if (!twice.empty()) one += (one.empty() ? "" : "; ") + ("keys " + twice + " count twice");
      if (one.empty() || !said.insert(one).second) continue;
      constexpr std::size_t few = 3;
      if (said.size() > few) {
        text += "...";
        break;
      }
      text += (text.empty() ? "" : "; ") + one + " (" + row_name(t) + ", which sees " + std::to_string(t.keys) + ")";
    }
    const bool kept = std::all_of(told_.begin(), told_.end(), [](const Told& t) { return std::fabs(t.common - 1) < 0.02; });
    return output_.name + ": " + text +
           (kept ? "; the sum that it is divided by is that of all" : "; what is left is divided by its own sum, or another one");
  }
  std::string words_of_tiles() const {
    std::string text;
    std::size_t shown = 0;
    for (const Told& t : told_) {
      if (says_nothing(t)) continue;
      constexpr std::size_t few = 2;
      if (++shown > few) break;
      text += (text.empty() ? "" : "; ") + row_name(t) + ":";
      std::size_t parts = 0;
      for (std::size_t k = 0, end = 0; k < t.counts.size(); k = end) {
        for (end = k + 1;
             end < t.counts.size() && std::fabs(t.counts[end] - t.counts[k]) <= 0.05 * std::fabs(t.counts[k]) + 4 * t.room[end];)
          ++end;
        constexpr std::size_t most = 4;
        if (++parts > most) {
          text += "...";
          break;
        }
        text += " keys " + std::to_string(t.tiles[k]) + ".." + std::to_string(t.tiles[end] - 1) + " x " + number(t.counts[k]);
      }
    }
    const auto few = std::find_if(told_.begin(), told_.end(), [](const Told& t) { return t.splits; });
    if (few != told_.end()) {
      const auto splits = static_cast<std::int64_t>(few->counts.size());
      if (std::all_of(told_.begin(), told_.end(), [&](const Told& t) { return equal_parts(t, splits); }))
        return output_.name + ": each of " + std::to_string(splits) +
               " splits of the keys has the same, equal weight: they are merged as a mean, not by their log-sum-exps";
    }
    return output_.name + ": parts of the keys have weights with a factor of their own, as where parts are merged, or tiles rescaled, by " +
           "other maxima and sums than theirs (" + text + ")";
  }

  /// `whole`: with the counts that some have, 0 or 2 times the others'; else as they were told.
  std::optional<Explanation> verified(const std::string& words, bool whole, const NamedTensors& actual, const JudgeOptions& options) const {
    const ReferenceOutput& reference = *call_.golden.reference.find(output_.name);
    std::vector<double> exact = reference.exact, slack = reference.slack;
    for (const Told& t : told_) {
      const Seen& seen = watched_.seen.at(t.row);
      for (std::int64_t c = 0; c < width_; ++c) {
        const std::vector<double> parts = parts_of(seen, t.tiles, c, width_);
        double sum = 0, magnitude = 0;
        for (std::size_t k = 0; k < parts.size(); ++k) {
          const double count = !whole || !t.known(k) ? t.counts[k] : t.lost[k] ? 0 : t.twice[k] ? 2 * t.common : t.common;
          sum += count * parts[k], magnitude += std::fabs(count * parts[k]);
        }
        const auto at = static_cast<std::size_t>(t.row * width_ + c);
        exact[at] = sum;
        slack[at] = 2 * slack[at] + 0x1p-10 * magnitude;
      }
    }
    GoldenRun run = call_.golden;
    fault_tools::put_numbers(run, output_.name, exact, slack);
    const Verdict other = judge(call_.op, call_.inputs, run, actual, options);
    for (const OutputVerdict& output : other.outputs)
      if (output.name == output_.name && output.failing > 0) return std::nullopt;
    Explanation found{"weights-of-keys", words};
    found.outputs.push_back(output_.name);
    found.failing = other.failing();
    found.complete = other.outcome == Outcome::pass;
    return found;
  }

  const FaultCase& call_;
  const OutputVerdict& output_;
  const Tensor& actual_;
  std::int64_t width_;
  Watched watched_;
  std::vector<Told> told_;
};

}  // namespace

std::optional<Explanation> key_weights(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                       const JudgeOptions& options) {
  if ((call.golden.inner & static_cast<unsigned>(Inner::attention)) == 0) return std::nullopt;
  for (const OutputVerdict& output : verdict.outputs) {
    if (output.failing == 0 || output.detail == nullptr) continue;
    const Tensor& given = output.detail->actual;
    const ReferenceOutput* const reference = call.golden.reference.find(output.name);
    if (!is_float(given.dtype()) || bits(given.dtype()) <= 8 || given.rank() < 2 || reference == nullptr ||
        reference->exact.size() != static_cast<std::size_t>(given.elements()))
      continue;
    try {
      if (auto found = KeyWeights(call, output, given).explanation(actual, options)) return found;
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace dodona::oracle
