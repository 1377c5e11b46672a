#include "oracle/faults/told/depth_elsewhere.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "oracle/faults/product_model.h"
#include "oracle/faults/rewritten.h"
#include "oracle/faults/tables/fault_tools.h"
#include "oracle/faults/told/least_squares.h"
#include "oracle/judge/pattern/index_rules.h"

namespace dodona::oracle {
namespace {

/// A part of the depth, and where the numbers that stand there came from.
struct Elsewhere {
  bool of_columns = false;          ///< the operand whose rows are the output's columns
  std::int64_t begin = 0, end = 0;  ///< of the depth
  std::int64_t row = 0, depth = 0;  ///< how far away: rows of the operand, numbers along the depth
};

class DepthElsewhere {
 public:
  DepthElsewhere(const FaultCase& call, const ProductModel& model, const OutputVerdict& output)
      : call_(call), model_(model), output_(output), factors_(model.factors()) {}

  std::optional<Explanation> explanation(const NamedTensors& actual, const JudgeOptions& options) {
    const auto rest = model_.addends(factors_);
    if (!rest) return std::nullopt;
    rest_ = *rest;
    sample();
    if (sampled_.size() < enough) return std::nullopt;
    for (const bool of_columns : {false, true})
      for (const std::int64_t tile : {256, 128, 64, 32, 16})
        if (auto found = at_known_places(of_columns, tile, actual, options)) return found;
    for (const bool of_columns : {false, true})
      if (auto found = by_a_rule(of_columns, actual, options)) return found;
    for (const bool of_columns : {false, true})
      for (const std::int64_t tile : {16, 32, 64})
        if (auto found = at_no_known_place(of_columns, tile, actual, options)) return found;
    return std::nullopt;
  }

 private:
  static constexpr std::size_t enough = 16, most_sampled = 48;
  static constexpr std::int64_t most_tiles = 64;

  struct Place {
    std::int64_t l, m, n;
  };
  Place place_of(std::int64_t i) const {
    return {i / (model_.rows() * model_.columns()), i / model_.columns() % model_.rows(), i % model_.columns()};
  }
  std::int64_t extent(bool of_columns) const { return of_columns ? model_.columns() : model_.rows(); }
  const float* line(bool of_columns, std::int64_t l, std::int64_t row) const {
    const std::vector<float>& all = of_columns ? factors_.b : factors_.a;
    return all.data() + (l * extent(of_columns) + row) * model_.depth();
  }
  double room_of(std::int64_t i) const {
    const ReferenceOutput& reference = *call_.golden.reference.find(model_.output());
    const double given = quant::get(output_.detail->actual, i);
    return quant::ulp(output_.detail->actual.dtype(), given) / 2 + reference.slack[static_cast<std::size_t>(i)] + 1e-30;
  }
  /// What the element has too much.
  double excess(std::int64_t i) const {
    const ReferenceOutput& reference = *call_.golden.reference.find(model_.output());
    return quant::get(output_.detail->actual, i) - reference.exact[static_cast<std::size_t>(i)];
  }
  /// Elements that fail by far more than they may, from everywhere.
  void sample() {
    const std::vector<std::int64_t>& failing = output_.detail->failing;
    for (std::size_t k = 0; k < failing.size() && sampled_.size() < most_sampled; k += failing.size() / most_sampled + 1)
      if (const double x = excess(failing[k]); std::isfinite(x) && std::fabs(x) > 4 * room_of(failing[k])) sampled_.push_back(failing[k]);
  }

  double added(const Elsewhere& e, const Place& p) const {
    const std::int64_t row = e.of_columns ? p.n : p.m, from = row + e.row;
    if (from < 0 || from >= extent(e.of_columns)) return 0;
    const float *const own = line(e.of_columns, p.l, row), *const theirs = line(e.of_columns, p.l, from) + e.depth,
                       *const other = line(!e.of_columns, p.l, e.of_columns ? p.m : p.n);
    double sum = 0;
    for (std::int64_t k = e.begin; k < e.end; ++k)
      sum += (static_cast<double>(theirs[k]) - static_cast<double>(own[k])) * static_cast<double>(other[k]);
    return sum;
  }
  bool fits(const Elsewhere& e) const {
    return std::all_of(sampled_.begin(), sampled_.end(), [&](std::int64_t i) {
      const double wrong = added(e, place_of(i)) * factors_.outer[static_cast<std::size_t>(i)], is = excess(i);
      return std::fabs(is - wrong) <= 4 * room_of(i) + 0.01 * std::fabs(wrong);
    });
  }
  /// Every number along the depth is looked for elsewhere, by one rule: tiles at another distance, two orders of the same numbers.
  std::optional<Explanation> by_a_rule(bool of_columns, const NamedTensors& actual, const JudgeOptions& options) const {
    const std::int64_t depth = model_.depth();
    std::vector<std::int64_t> from(static_cast<std::size_t>(depth));
    for (const pattern::IndexRule& rule : pattern::index_rules(depth)) {
      bool whole = true;
      for (std::int64_t k = 0; k < depth && whole; ++k) whole = (from[static_cast<std::size_t>(k)] = rule.from(k)) >= 0;
      if (!whole) continue;
      const auto wrong = [&](std::int64_t i) {
        const Place p = place_of(i);
        const float *const own = line(of_columns, p.l, of_columns ? p.n : p.m), *const other =
                                                                                    line(!of_columns, p.l, of_columns ? p.m : p.n);
        double sum = 0;
        for (std::int64_t k = 0; k < depth; ++k)
          sum +=
              (static_cast<double>(own[from[static_cast<std::size_t>(k)]]) - static_cast<double>(own[k])) * static_cast<double>(other[k]);
        return sum * factors_.outer[static_cast<std::size_t>(i)];
      };
      const bool fit = std::all_of(sampled_.begin(), sampled_.end(), [&](std::int64_t i) {
        const double is = wrong(i);
        return std::fabs(excess(i) - is) <= 4 * room_of(i) + 0.01 * std::fabs(is);
      });
      if (!fit) continue;
      // Where each number stands somewhere, the other operand may as well be the one that is in another order.
      std::vector<std::int64_t> sorted = from;
      std::sort(sorted.begin(), sorted.end());
      const bool permutes = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
      const std::string words = model_.operand(of_columns) + ": along the depth (K) at index i stands what belongs at " + rule.words +
                                (permutes ? "; or " + model_.operand(!of_columns) + " is in the inverse order" : "");
      for (const bool everywhere : {true, false})
        if (auto found = verified(words, everywhere, actual, options, wrong)) return found;
    }
    return std::nullopt;
  }
  std::optional<Explanation> at_known_places(bool of_columns, std::int64_t tile, const NamedTensors& actual,
                                             const JudgeOptions& options) const {
    const std::int64_t depth = model_.depth(), tiles = depth / tile;
    if (tiles < 2 || tiles > most_tiles) return std::nullopt;
    std::vector<Elsewhere> tried;
    for (std::int64_t t = 0; t < tiles; ++t) {
      const std::int64_t begin = t * tile;
      for (std::int64_t from = 0; from < tiles; ++from)
        if (from != t) tried.push_back({of_columns, begin, begin + tile, 0, (from - t) * tile});
      for (const std::int64_t step : {1, 2, 4, 8, 16, 32, 64, 128})
        for (const std::int64_t row : {step, -step}) {
          if (step >= extent(of_columns)) continue;
          tried.push_back({of_columns, begin, begin + tile, row, 0});
          if (t > 0) tried.push_back({of_columns, begin, depth, row, 0}), tried.push_back({of_columns, 0, begin, row, 0});
        }
      for (std::int64_t step = 1; step <= begin; step *= 2) tried.push_back({of_columns, begin, depth, 0, -step});
    }
    for (const Elsewhere& e : tried)
      if (fits(e))
        for (const bool everywhere : {true, false})
          if (auto found = verified(words(e), everywhere, actual, options,
                                    [&](std::int64_t i) { return added(e, place_of(i)) * factors_.outer[static_cast<std::size_t>(i)]; }))
            return found;
    return std::nullopt;
  }

  /// Numbers of the operand in the tile, row by row: each output of the row is an equation in them, and there have to be many more.
  std::optional<Explanation> at_no_known_place(bool of_columns, std::int64_t tile, const NamedTensors& actual,
                                               const JudgeOptions& options) const {
    constexpr std::size_t most_rows = 64;
    const std::int64_t tiles = model_.depth() / tile, others = extent(!of_columns);
    if (tiles < 2 || tiles > most_tiles || others < 2 * tile) return std::nullopt;
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::int64_t>> by_row;
    for (const std::int64_t i : output_.detail->failing) {
      const Place p = place_of(i);
      by_row[{p.l, of_columns ? p.n : p.m}].push_back(i);
    }
    const auto all = static_cast<std::size_t>(model_.batches() * extent(of_columns));
    if (by_row.size() > most_rows || 2 * by_row.size() > all) return std::nullopt;
    for (std::int64_t t = 0; t < tiles; ++t) {
      std::map<std::int64_t, double> excesses;
      bool fit = true;
      for (const auto& [row, failing] : by_row) {
        fit = failing.size() >= static_cast<std::size_t>(tile) && told(of_columns, t * tile, tile, row, excesses);
        if (!fit) break;
      }
      if (!fit) continue;
      const std::string place = std::to_string(t * tile) + ".." + std::to_string(t * tile + tile - 1);
      const std::string what =
          model_.operand(of_columns) + ": along the depth (K) what lies at " + place +
          " was not what is multiplied there: other numbers of no known place, as of a buffer that was overwritten, or "
          "that was not yet loaded";
      // What the equations say is as sure as they are.
      constexpr double rooms = 2;
      const auto told_there = [&](std::int64_t i) {
        const auto known = excesses.find(i);
        return known != excesses.end() ? known->second : 0.0;
      };
      if (auto found = verified(what, false, actual, options, told_there, rooms)) return found;
    }
    return std::nullopt;
  }
  bool told(bool of_columns, std::int64_t begin, std::int64_t tile, const std::pair<std::int64_t, std::int64_t>& row,
            std::map<std::int64_t, double>& excesses) const {
    const std::int64_t others = extent(!of_columns);
    LeastSquares equations(static_cast<std::size_t>(tile));
    std::vector<std::vector<double>> terms;
    std::vector<std::int64_t> elements;
    for (std::int64_t o = 0; o < others; ++o) {
      const std::int64_t m = of_columns ? o : row.second, n = of_columns ? row.second : o;
      const std::int64_t i = (row.first * model_.rows() + m) * model_.columns() + n;
      const double x = excess(i);
      if (!std::isfinite(x)) continue;
      const float* const other = line(!of_columns, row.first, o) + begin;
      std::vector<double> its(other, other + tile);
      for (double& term : its) term *= factors_.outer[static_cast<std::size_t>(i)];
      equations.add(its, x, room_of(i));
      terms.push_back(std::move(its)), elements.push_back(i);
    }
    const auto solution = elements.size() >= 2 * static_cast<std::size_t>(tile) ? equations.solved() : std::nullopt;
    if (!solution) return false;
    double off = 0, before = 0;
    for (std::size_t e = 0; e < elements.size(); ++e) {
      double sum = 0;
      for (std::size_t k = 0; k < solution->x.size(); ++k) sum += solution->x[k] * terms[e][k];
      const double room = room_of(elements[e]), x = excess(elements[e]);
      off += (x - sum) * (x - sum) / (room * room), before += x * x / (room * room);
      excesses[elements[e]] = sum;
    }
    // Far from what any numbers there could make of errors of another origin.
    constexpr double far = 64;
    const auto left = static_cast<double>(elements.size()) - static_cast<double>(tile);
    return off <= 2 * left && before > far * static_cast<double>(elements.size());
  }

  template <class Added>
  std::optional<Explanation> verified(const std::string& what, bool everywhere, const NamedTensors& actual, const JudgeOptions& options,
                                      const Added& too_much, double rooms = 0) const {
    const ReferenceOutput& reference = *call_.golden.reference.find(model_.output());
    std::vector<double> exact = reference.exact, slack = reference.slack;
    const auto put = [&](std::int64_t i) {
      const double more = too_much(i);
      exact[static_cast<std::size_t>(i)] += more;
      slack[static_cast<std::size_t>(i)] = 2 * slack[static_cast<std::size_t>(i)] + 0x1p-10 * std::fabs(more) + rooms * room_of(i);
    };
    if (everywhere) {
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(exact.size()); ++i) put(i);
    } else {
      for (const std::int64_t i : output_.detail->failing) put(i);
    }
    GoldenRun run = call_.golden;
    fault_tools::put_numbers(run, model_.output(), exact, slack);
    if (judge(call_.op, call_.inputs, run, actual, options).outcome != Outcome::pass) return std::nullopt;
    Explanation found{"depth-elsewhere", what + (everywhere ? "" : "; where it fails: " + output_.pattern)};
    found.outputs.push_back(model_.output());
    found.complete = true;
    return found;
  }
  std::string words(const Elsewhere& e) const {
    const std::string place = e.begin == 0 && e.end < model_.depth() && e.row != 0 ? "before " + std::to_string(e.end)
                              : e.end == model_.depth() && e.row != 0              ? "from " + std::to_string(e.begin) + " on"
                                                                      : std::to_string(e.begin) + ".." + std::to_string(e.end - 1);
    const std::string steps = std::to_string(std::abs(e.row)) + (std::abs(e.row) == 1 ? " row" : " rows");
    if (e.row == 0 && e.end == model_.depth() && e.depth < 0)
      return model_.operand(e.of_columns) + ": along the depth (K) from " + std::to_string(e.begin) + " on stands what belongs " +
             std::to_string(-e.depth) + " before: the place is not moved on by as much as was read";
    const std::string from = e.row != 0 ? "what belongs " + steps + (e.row > 0 ? " further on (a row behind, the next)" : " before")
                                        : "the tile at " + std::to_string(e.begin + e.depth) + ".." + std::to_string(e.end - 1 + e.depth);
    return model_.operand(e.of_columns) + ": along the depth (K) " +
           (e.row != 0 && (e.begin == 0 || e.end == model_.depth()) ? "" : "at ") + place + " stands " + from +
           ", as where a tile was overwritten before it was read, or not yet loaded";
  }

  const FaultCase& call_;
  const ProductModel& model_;
  const OutputVerdict& output_;
  const ProductModel::Factors factors_;
  std::vector<double> rest_;
  std::vector<std::int64_t> sampled_;
};

}  // namespace

std::optional<Explanation> depth_elsewhere(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                           const JudgeOptions& options) {
  const auto model = ProductModel::of(call);
  constexpr std::int64_t most_work = std::int64_t{1} << 31;
  if (!model || model->batches() * model->rows() * model->columns() * model->depth() > most_work) return std::nullopt;
  for (const OutputVerdict& output : verdict.outputs)
    if (output.name == model->output() && output.failing > 0 && output.detail != nullptr && is_float(output.detail->actual.dtype()) &&
        bits(output.detail->actual.dtype()) > 8)
      return DepthElsewhere(call, *model, output).explanation(actual, options);
  return std::nullopt;
}

}  // namespace dodona::oracle
