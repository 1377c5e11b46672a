#include "oracle/faults/told/rows_of_zeros.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "core/flaw.h"
#include "dodona/error.h"
#include "oracle/cases/window.h"
#include "oracle/faults/watched_run.h"
#include "oracle/judge/pattern/samples.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

struct Largest : AttentionWatch {
  std::map<std::int64_t, double> of_row;
  std::mutex guard;

  void see_largest(std::int64_t row, double score) override {
    const std::lock_guard lock(guard);
    of_row[row] = score;
  }
};

/// A chance of one in two hundred is none.
bool is_no_chance(std::size_t some, std::size_t all) {
  const auto n = static_cast<double>(all), k = static_cast<double>(some);
  return some > 0 && some < all && std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) > std::log(200.0);
}

}  // namespace

std::optional<Explanation> rows_of_zeros(const FaultCase& call, const NamedTensors&, const Verdict& verdict, const JudgeOptions&) {
  if ((call.golden.inner & static_cast<unsigned>(Inner::attention)) == 0) return std::nullopt;
  for (const OutputVerdict& output : verdict.outputs) {
    if (output.failing == 0 || output.detail == nullptr || output.failing != verdict.failing()) continue;
    const Tensor& given = output.detail->actual;
    if (!is_float(given.dtype()) || given.rank() < 2) continue;
    const std::int64_t width = given.size(-1);
    std::set<std::int64_t> wrong;
    for (const std::int64_t i : output.detail->failing) {
      if (quant::get(given, i) != 0) return std::nullopt;
      wrong.insert(i / width);
    }
    Largest largest;
    try {
      run_watched(call, largest);
    } catch (const Error&) {
      return std::nullopt;
    }
    double most_of_wrong = -std::numeric_limits<double>::infinity(), least_of_right = std::numeric_limits<double>::infinity();
    std::size_t seen = 0;
    for (const auto& [row, score] : largest.of_row) {
      if (!std::isfinite(score)) return std::nullopt;
      if (wrong.count(row) > 0) {
        ++seen;
        most_of_wrong = std::max(most_of_wrong, score);
      } else {
        least_of_right = std::min(least_of_right, score);
      }
    }
    if (seen != wrong.size() || !is_no_chance(seen, largest.of_row.size()) || !(most_of_wrong < least_of_right)) continue;
    Explanation found{
        "minus-infinity-is-finite",
        output.name + ": zeros are exactly the rows whose largest score is " + pattern::number(most_of_wrong) +
            " or less, of others it is " + pattern::number(least_of_right) +
            " or more: a running maximum begins at a finite number between, below which all scores lie and all weights vanish"};
    found.outputs.push_back(output.name);
    found.complete = true;
    return found;
  }
  return std::nullopt;
}

}  // namespace dodona::oracle
