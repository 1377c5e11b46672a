#include "oracle/faults/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "dodona/error.h"
#include "oracle/faults/fault_tools.h"
#include "oracle/judge/pattern.h"

namespace dodona::oracle {
namespace {

using Site = const FaultSite&;

bool is_number(Site s) {
  return !s.attr->recipe && std::holds_alternative<double>(s.value) && std::isfinite(std::get<double>(s.value));
}
bool is_factor(Site s) {
  const bool fits = s.spec->role == Role::scale || s.spec->role == Role::weight;
  return fits && !s.spec->storage.code && is_float(s.tensor.dtype()) && bits(s.tensor.dtype()) > 8;
}
void times_number(Site s, const Tensor& changed) {
  fault_tools::each(changed, [&](double x, std::int64_t) { return x * std::get<double>(*s.taken); });
}

// Not of the library: which number they strike with is what is asked.
constexpr Fault number_of_attribute{"another-number", "a number is another one", Strikes::attribute, Severity::fine, is_number};
constexpr Fault factor_on_tensor{"another-factor", "every element has another factor", Strikes::input, Severity::fine, is_factor,
                                 times_number};

/// A number of the call that may have been another one: an attribute's value, or 1, which a tensor is multiplied with.
struct Unknown {
  Placed placed;

  bool tensor() const { return placed.fault == &factor_on_tensor; }
  const std::string& name() const { return placed.site.name; }
  double now() const { return tensor() ? 1 : std::get<double>(placed.site.value); }
  Arguments inputs_with(double value) const {
    Placed struck = placed;
    struck.site.taken = value;
    return oracle::inputs_with(struck);
  }
};

std::vector<Unknown> unknowns(const FaultCase& call) {
  std::vector<Unknown> found;
  for (const Fault* fault : {&number_of_attribute, &factor_on_tensor})
    for (Placed& placed : placements(*fault, call)) found.push_back({std::move(placed)});
  return found;
}

/// Elements of one output, and what the kernel gave. Not the failing ones alone: those are the ones whose rounding went the wrong way.
struct Fitted {
  std::string output;
  DType type;
  std::vector<std::size_t> at;
  std::vector<double> actual;
};

constexpr std::size_t most_elements = 8192;

std::vector<Fitted> elements_to_fit(const Verdict& verdict, const GoldenRun& golden) {
  std::vector<Fitted> found;
  for (const OutputVerdict& output : verdict.outputs) {
    const ReferenceOutput* reference = golden.reference.find(output.name);
    if (output.failing == 0 || output.detail == nullptr || reference == nullptr) continue;
    const Tensor& actual = output.detail->actual;
    const auto count = static_cast<std::size_t>(actual.elements());
    if (!is_float(actual.dtype()) || bits(actual.dtype()) <= 8 || reference->exact.size() != count) continue;
    Fitted fitted{output.name, actual.dtype(), {}, {}};
    for (std::size_t i = 0; i < count; i += count / most_elements + 1) {
      const double value = quant::get(actual, static_cast<std::int64_t>(i));
      if (!std::isfinite(value) || (!reference->unspecified.empty() && reference->unspecified[i] != 0)) continue;
      fitted.at.push_back(i);
      fitted.actual.push_back(value);
    }
    if (!fitted.at.empty()) found.push_back(std::move(fitted));
  }
  return found;
}

/// Value v of the sorted pairs (v, weight) below which half of all weight lies.
double weighted_median(std::vector<std::pair<double, double>> values) {
  std::sort(values.begin(), values.end());
  const double half = std::accumulate(values.begin(), values.end(), 0.0, [](double sum, const auto& v) { return sum + v.second; }) / 2;
  double below = 0;
  for (const auto& [value, weight] : values)
    if ((below += weight) >= half) return value;
  return 0;
}

class Fit {
 public:
  Fit(const Case& c, const NamedTensors& actual, const Verdict& verdict, const JudgeOptions& options, const std::vector<Fitted>& elements,
      const Unknown& unknown, const std::function<bool()>& time_is_up)
      : c_(c), actual_(actual), verdict_(verdict), options_(options), elements_(elements), unknown_(unknown), time_is_up_(time_is_up) {}

  std::optional<double> value() {
    // Steps of a few percent cannot tell where far away the number lies: decades first.
    double at = unknown_.now(), least = error_at(at).value_or(INFINITY);
    for (const double start : starts()) {
      if (time_is_up_()) return std::nullopt;
      if (const auto error = error_at(start); error && *error < least) at = start, least = *error;
    }
    for (int step = 0; step < 8; ++step) {
      if (time_is_up_()) return std::nullopt;
      const auto next = improved(at, least);
      if (!next) break;
      const bool close = std::fabs(*next - at) <= 1e-6 * std::fabs(at);
      at = *next;
      if (close) break;
    }
    for (int step = 0; step < 2 && !time_is_up_(); ++step) at = middle_of_possible(at);
    if (at == unknown_.now() || !reproduces(at)) return std::nullopt;
    return shortest(at);
  }

 private:
  std::vector<double> starts() const {
    std::vector<double> values;
    const double unit = unknown_.now() != 0 ? unknown_.now() : 1;
    for (const double by : {2.0, 0.5, 10.0, 0.1, -1.0, 100.0, 1e-2, 1e3, 1e-3, 1e4, 1e-4, 1e5, 1e-5, 1e6, 1e-6})
      values.push_back(unit * by);
    if (unknown_.now() != 0)
      values.push_back(0);
    else
      values.push_back(1);
    return values;
  }

  std::optional<GoldenRun> run(double value) const {
    try {
      return run_golden(*c_.op, unknown_.inputs_with(value), options_.exec);
    } catch (const Error&) {
      return std::nullopt;  // out of the op's range
    }
  }
  /// Sum of the distances from golden's unrounded numbers, relative to what the kernel gave.
  std::optional<double> error_of(const GoldenRun& golden) const {
    double sum = 0;
    for (const Fitted& fitted : elements_) {
      const ReferenceOutput* reference = golden.reference.find(fitted.output);
      if (reference == nullptr) return std::nullopt;
      for (std::size_t k = 0; k < fitted.at.size(); ++k) {
        const double exact = reference->exact[fitted.at[k]];
        sum += std::isfinite(exact) ? std::min(std::fabs(fitted.actual[k] - exact), 1e30) : 1e30;
      }
    }
    return sum;
  }
  std::optional<double> error_at(double value) const {
    const auto golden = run(value);
    return golden ? error_of(*golden) : std::nullopt;
  }

  /// What golden gives at a number, and how it changes there.
  struct Line {
    std::vector<double> distance, slope, room;  ///< of each element: actual - exact; of exact; half a place of actual and the slack
  };
  std::optional<Line> line_at(double at) const {
    const double h = at != 0 ? at * 0x1p-10 : 0x1p-10;
    const auto here = run(at), there = run(at + h);
    if (!here || !there) return std::nullopt;
    Line line;
    for (const Fitted& fitted : elements_) {
      const ReferenceOutput *e = here->reference.find(fitted.output), *f = there->reference.find(fitted.output);
      if (e == nullptr || f == nullptr) return std::nullopt;
      for (std::size_t k = 0; k < fitted.at.size(); ++k) {
        line.distance.push_back(fitted.actual[k] - e->exact[fitted.at[k]]);
        line.slope.push_back((f->exact[fitted.at[k]] - e->exact[fitted.at[k]]) / h);
        line.room.push_back(quant::ulp(fitted.type, fitted.actual[k]) / 2 + e->slack[fitted.at[k]]);
      }
    }
    return line;
  }
  /// One step of Gauss and Newton for the sum of distances: the weighted median of what each element asks for. Halved until it helps.
  std::optional<double> improved(double at, double& least) const {
    const auto line = line_at(at);
    if (!line) return std::nullopt;
    std::vector<std::pair<double, double>> asked;
    for (std::size_t k = 0; k < line->slope.size(); ++k) {
      const double asks = line->distance[k] / line->slope[k];
      if (std::isfinite(asks)) asked.emplace_back(asks, std::fabs(line->slope[k]));
    }
    if (asked.empty()) return std::nullopt;
    double step = weighted_median(std::move(asked));
    for (int halved = 0; halved < 6; ++halved, step /= 2)
      if (const auto error = error_at(at + step); error && *error < least) {
        least = *error;
        return at + step;
      }
    return std::nullopt;
  }
  /// The middle of the numbers with which every element is the rounding of what golden gives; `at` where there is none.
  double middle_of_possible(double at) const {
    const auto line = line_at(at);
    if (!line) return at;
    double low = -INFINITY, high = INFINITY;
    for (std::size_t k = 0; k < line->slope.size(); ++k) {
      const double a = (line->distance[k] - line->room[k]) / line->slope[k], b = (line->distance[k] + line->room[k]) / line->slope[k];
      if (!std::isfinite(a) || !std::isfinite(b)) continue;
      low = std::max(low, std::min(a, b));
      high = std::min(high, std::max(a, b));
    }
    return low <= high && std::isfinite(low) && std::isfinite(high) ? at + (low + high) / 2 : at;
  }

  bool reproduces(double value) const {
    try {
      const Arguments inputs = unknown_.inputs_with(value);
      const Verdict other = judge(*c_.op, inputs, run_golden(*c_.op, inputs, options_.exec), actual_, options_);
      if (other.outcome != Outcome::pass) return false;
      for (std::size_t i = 0; i < other.outputs.size(); ++i)
        if (other.outputs[i].compared < verdict_.outputs[i].compared) return false;
      return other.outputs.size() == verdict_.outputs.size();
    } catch (const Error&) {
      return false;
    }
  }
  double shortest(double value) const {
    for (int digits = 1; digits <= 8; ++digits) {
      std::array<char, 40> text;
      std::snprintf(text.data(), text.size(), "%.*g", digits, value);
      const double candidate = std::strtod(text.data(), nullptr);
      if (candidate == value || reproduces(candidate)) return candidate;
    }
    return value;
  }

  const Case& c_;
  const NamedTensors& actual_;
  const Verdict& verdict_;
  const JudgeOptions& options_;
  const std::vector<Fitted>& elements_;
  const Unknown& unknown_;
  const std::function<bool()>& time_is_up_;
};

std::string digits(double value) {
  std::array<char, 40> text;
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return text.data();
}

Explanation explanation_of(const Unknown& unknown, double value, const Verdict& verdict) {
  Explanation found{std::string(unknown.placed.fault->id) + ":" + unknown.name() + "=" + digits(value), {}, {}, true, 0};
  const double ratio = unknown.tensor() ? value : value / unknown.now();
  const std::string times = std::isfinite(ratio) ? digits(ratio) + " x the given one" + meaning_of_factor(ratio) : "";
  found.text = unknown.tensor() ? unknown.name() + ": every element is " + times
                                : "computed with " + unknown.name() + "=" + digits(value) + " instead of " + digits(unknown.now()) +
                                      (times.empty() ? "" : ": " + times);
  for (const OutputVerdict& output : verdict.outputs)
    if (output.failing > 0) found.outputs.push_back(output.name);
  return found;
}

}  // namespace

std::vector<Explanation> fitted_numbers(const Case& c, const GoldenRun& golden, const NamedTensors& actual, const Verdict& verdict,
                                        const JudgeOptions& options, const std::function<bool()>& time_is_up) {
  std::vector<Explanation> found;
  const std::vector<Fitted> elements = elements_to_fit(verdict, golden);
  if (elements.empty()) return found;
  const FaultCase call{*c.op, c.inputs, golden, options.exec};
  for (const Unknown& unknown : unknowns(call)) {
    if (time_is_up()) break;
    if (const auto value = Fit(c, actual, verdict, options, elements, unknown, time_is_up).value())
      found.push_back(explanation_of(unknown, *value, verdict));
  }
  return found;
}

}  // namespace dodona::oracle
