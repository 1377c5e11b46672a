#include "ops/draws/rounds.h"

#include <algorithm>
#include <cmath>

#include "ops/base/bounded.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {

ExactDraws::ExactDraws(std::span<const float> row, double more_units)
    : row_(row), sorted_(row), units_(f32_eps * (additions_of(static_cast<std::int64_t>(row.size())) + more_units)) {}

std::int64_t ExactDraws::draw(const Bar& bar, double u) const {
  double sum = 0;
  std::int64_t last = -1;
  for (std::size_t i = 0; i < row_.size(); ++i) {
    if (!bar.passes(row_[i])) continue;
    sum += static_cast<double>(row_[i]);
    last = static_cast<std::int64_t>(i);
    if (sum > u) return last;
  }
  return last;
}

double ExactDraws::sum(const Bar& bar) const {
  return sorted_.sum_above(bar.inclusive ? std::nextafter(bar.value, -1.0) : bar.value);
}

std::int64_t ExactDraws::rejection(const Acceptance& accepts, PhiloxStream stream, DrawRule rule) const {
  State state;
  for (;;) {
    const double whole = rule == DrawRule::mass_left_whole ? 1.0 : state.mass;
    const std::int64_t token = draw({state.low}, static_cast<double>(stream.next_uniform()) * whole);
    if (token < 0) return token;
    const double first = row_[static_cast<std::size_t>(token)], second = (first + state.high) / 2;
    const double above_first = sorted_.sum_above(first), above_second = sorted_.sum_above(second);
    if (accepts(sorted_.count_above(first), above_first)) return token;
    if (accepts(sorted_.count_above(second), above_second)) {
      state = {first, second, above_first};
    } else {
      state = {second, state.high, above_second};
    }
    if (!(state.low < state.high)) return token;
  }
}

std::int64_t ExactDraws::above(const Bar& bar, PhiloxStream stream) const {
  return draw(bar, static_cast<double>(stream.next_uniform()) * sum(bar));
}

// ---- what honest sums may lead to

std::vector<std::int64_t> ExactDraws::near(const Bar& bar, double u, double error) const {
  std::vector<std::int64_t> found;
  double before = 0;
  std::int64_t last = -1, last_normal = -1;
  for (std::size_t i = 0; i < row_.size() && before <= u + error; ++i) {
    if (!bar.passes(row_[i])) continue;
    last = static_cast<std::int64_t>(i);
    if (!may_flush(row_[i])) last_normal = last;
    const double after = before + static_cast<double>(row_[i]);
    if (after >= u - error) found.push_back(last);
    before = after;
  }
  // Builds that flush denormals do not see a last element that is one.
  if (before <= u + error)
    for (const std::int64_t token : {last, last_normal})
      if (token >= 0 && std::find(found.begin(), found.end(), token) == found.end()) found.push_back(token);
  return found;
}

/// Follows every course that sums within their error may take.
struct ExactDraws::Search {
  std::int64_t wanted;
  const Acceptance& accepts;
  bool found = false;
  int courses = 0;
  static constexpr int most_courses = 20000;

  /// Whether a sum within `units` of this one may be accepted, and whether all are.
  bool may_accept(std::int64_t count, double sum, double units) const { return accepts(count, sum * (1 - units)); }
  bool must_accept(std::int64_t count, double sum, double units) const { return accepts(count, sum * (1 + units)); }
};

void ExactDraws::explore(Search& search, const State& state, PhiloxStream stream) const {
  // A course that splits without end says nothing of what is possible: then everything is.
  if (search.found || ++search.courses > Search::most_courses) {
    search.found = true;
    return;
  }
  const double uniform = stream.next_uniform(), u = uniform * state.mass;
  const std::vector<std::int64_t> tokens = near({state.low}, u, uniform * state.mass_error + (units_ + 4 * f32_eps) * u);
  double done = -1;  // tokens of one probability take the same courses
  for (const std::int64_t token : tokens) {
    const double first = row_[static_cast<std::size_t>(token)], second = (first + state.high) / 2;
    const double sum = sorted_.sum_above(first);
    const std::int64_t count = sorted_.count_above(first);
    if (token == search.wanted && search.may_accept(count, sum, units_)) search.found = true;
    if (search.must_accept(count, sum, units_) || first == done) continue;
    done = first;
    const double beyond = sorted_.sum_above(second);
    const std::int64_t beyond_count = sorted_.count_above(second);
    const auto go_on = [&](const State& next) {
      if (next.low < next.high) {
        explore(search, next, stream);
      } else {
        search.found = search.found || token == search.wanted;
      }
    };
    if (search.may_accept(beyond_count, beyond, units_)) go_on({first, second, sum, sum * units_});
    if (!search.must_accept(beyond_count, beyond, units_)) go_on({second, state.high, beyond, beyond * units_});
    if (search.found) return;
  }
}

bool ExactDraws::may_reject_to(std::int64_t token, const Acceptance& accepts, PhiloxStream stream) const {
  Search search{token, accepts};
  explore(search, {}, stream);
  return search.found;
}

bool ExactDraws::may_be_above(std::int64_t token, const Bar& bar, PhiloxStream stream) const {
  const double mass = sum(bar), u = static_cast<double>(stream.next_uniform()) * mass;
  const std::vector<std::int64_t> tokens = near(bar, u, (2 * units_ + 4 * f32_eps) * u);
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

// ---- hopper

std::int64_t hopper_rejection(const BlockedRow& row, const Acceptance& accepts, PhiloxStream stream, Scan scan) {
  const auto count_above = [&](double x) {
    std::int64_t count = 0;
    for (const float element : row.elements()) count += static_cast<double>(element) > x ? 1 : 0;
    return count;
  };
  double low = 0, high = 1;
  float mass = 1;
  std::int64_t token = -1;
  for (;;) {
    token = row.draw({low}, quant::hopper::mul(stream.next_uniform(), mass), scan, token);
    if (token < 0) return token;
    const double first = row.at(token), second = (first + high) / 2;
    const auto sum = [&](double bar) { return accepts.count ? row.sum_beside_count({bar}) : row.sum({bar}); };
    const float above_first = sum(first), above_second = sum(second);
    if (accepts(accepts.count ? count_above(first) : 0, above_first)) return token;
    if (accepts(accepts.count ? count_above(second) : 0, above_second)) {
      low = first;
      high = second;
      mass = above_first;
    } else {
      low = second;
      mass = above_second;
    }
    if (!(low < high)) return token;
  }
}

std::int64_t hopper_above(const BlockedRow& row, const Bar& bar, PhiloxStream stream, Scan scan) {
  return row.draw(bar, quant::hopper::mul(stream.next_uniform(), row.sum(bar)), scan, -1);
}

}  // namespace dodona::ops
