#include "oracle/faults/told/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/threads.h"
#include "dodona/error.h"
#include "oracle/faults/tables/fault_tools.h"
#include "oracle/judge/pattern.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

bool is_number(Site s) {
  return !s.attr->recipe && std::holds_alternative<double>(s.value) && std::isfinite(std::get<double>(s.value));
}
/// A number for each row of others, whatever it is called: far fewer of them than of what they multiply.
bool is_for_rows(Site s) {
  constexpr std::int64_t a_row = 16;
  return s.spec->role == Role::values &&
         std::any_of(s.call.op.schema().tensors.begin(), s.call.op.schema().tensors.end(), [&](const TensorSpec& spec) {
           const Tensor* const other = s.call.inputs.find(spec.name);
           return spec.direction == Direction::in && other != nullptr && other->defined() && is_float(other->dtype()) &&
                  other->elements() >= a_row * s.tensor.elements();
         });
}
bool is_factor(Site s) {
  const bool fits = s.spec->role == Role::scale || s.spec->role == Role::weight || is_for_rows(s);
  return fits && !s.spec->storage.code && is_float(s.tensor.dtype()) && bits(s.tensor.dtype()) > 8;
}
void times_number(Site s, const Tensor& changed) {
  each(changed, [&](double x) { return x * std::get<double>(*s.taken); });
}

std::string digits(double value) {
  std::array<char, 40> text;
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return text.data();
}
/// Products and quotients of up to two of the call's other numbers, and what they are called.
struct Product {
  double value;
  std::string text;
};
/// Sizes, which means are taken over, and their roots.
std::vector<Product> sizes_of_call(Site s) {
  std::vector<Product> found;
  std::set<std::string> seen;
  for (const TensorSpec& spec : s.call.op.schema().tensors) {
    const Tensor* const tensor = s.call.inputs.find(spec.name);
    if (tensor == nullptr || !tensor->defined()) continue;
    const auto dims = dims_of(spec.shape, tensor->rank());
    for (int d = 0; d < tensor->rank() && static_cast<int>(dims.size()) == tensor->rank(); ++d) {
      const std::string& symbol = dims[static_cast<std::size_t>(d)];
      constexpr std::int64_t least = 16;
      if (tensor->size(d) < least || !seen.insert(symbol).second) continue;
      const auto size = static_cast<double>(tensor->size(d));
      found.push_back({size, "the size " + symbol});
      found.push_back({1 / size, "1 / the size " + symbol});
      found.push_back({std::sqrt(size), "the root of the size " + symbol});
      found.push_back({1 / std::sqrt(size), "1 / the root of the size " + symbol + ", as a sum taken for a mean gives"});
    }
  }
  return found;
}
std::vector<Product> products_of_numbers(Site s) {
  std::vector<Product> one;
  const auto add = [&](double x, const std::string& name) {
    if (std::isfinite(x) && x > 0 && x != 1 && name != s.name) one.push_back({x, name});
  };
  for (const AttrSpec& spec : s.call.op.schema().attrs) {
    const AttrValue* const given = s.call.inputs.find_attr(spec.name);
    if (given != nullptr && std::holds_alternative<double>(*given) && !spec.recipe) add(std::get<double>(*given), spec.name);
  }
  for (const TensorSpec& spec : s.call.op.schema().tensors)
    if (const Tensor* const tensor = s.call.inputs.find(spec.name);
        tensor != nullptr && tensor->defined() && tensor->elements() == 1 && is_float(tensor->dtype()))
      add(quant::get(*tensor, 0), spec.name);
  std::vector<Product> found = sizes_of_call(s);
  for (std::size_t a = 0; a < one.size(); ++a) {
    found.push_back(one[a]);
    found.push_back({1 / one[a].value, "1 / " + one[a].text});
    for (std::size_t b = a + 1; b < one.size(); ++b) {
      const std::string both = one[a].text + " * " + one[b].text;
      found.push_back({one[a].value * one[b].value, both});
      found.push_back({1 / (one[a].value * one[b].value), "1 / (" + both + ")"});
      found.push_back({one[a].value / one[b].value, one[a].text + " / " + one[b].text});
      found.push_back({one[b].value / one[a].value, one[b].text + " / " + one[a].text});
    }
  }
  return found;
}
/// A known factor, or one that other numbers of the call make.
std::string meaning_in(Site s, double ratio) {
  const std::string known = meaning_of_factor(ratio);
  if (!known.empty()) return known;
  for (const Product& product : products_of_numbers(s))
    if (std::fabs(ratio / product.value - 1) < 1e-9)
      return ", which is " + product.text + (product.text.starts_with("1 /") ? ": left out" : ": once too often");
  return {};
}
std::string number_in_words(Site s) {
  const double value = std::get<double>(*s.taken), given = std::get<double>(s.value), ratio = value / given;
  return "computed with " + s.name + "=" + digits(value) + " instead of " + digits(given) +
         (std::isfinite(ratio) ? ": " + digits(ratio) + " x the given one" + meaning_in(s, ratio) : "");
}
std::string factor_in_words(Site s) {
  const double factor = std::get<double>(*s.taken);
  return s.name + ": every element is " + digits(factor) + " x the given one" + meaning_in(s, factor);
}

// Not of the library: which number they strike with is what is asked.
constexpr Fault number_of_attribute{.id = "another-number",
                                    .summary = "a number is another one",
                                    .strikes = attribute,
                                    .severity = fine,
                                    .applies = is_number,
                                    .words = number_in_words};
constexpr Fault factor_on_tensor{.id = "another-factor",
                                 .summary = "every element has another factor",
                                 .strikes = input,
                                 .severity = fine,
                                 .applies = is_factor,
                                 .spoil = times_number,
                                 .words = factor_in_words};

/// The number as the call has it: an attribute's value, or 1, which a tensor is multiplied with.
double now(const Placed& placed) {
  return placed.fault == &factor_on_tensor ? 1.0 : std::get<double>(placed.site.value);
}
Placed struck_with(const Placed& placed, double value) {
  Placed struck = placed;
  struck.site.taken = value;
  return struck;
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

/// What a kernel's numbers are to golden's, of outputs of which no bit is open: a median, known to a few digits. Roundings on the way to
/// them hide how they follow a number.
std::optional<double> ratio_of_bits(const Verdict& verdict, const GoldenRun& golden) {
  constexpr std::size_t enough = 64;
  std::vector<std::pair<double, double>> ratios;
  for (const OutputVerdict& output : verdict.outputs) {
    const ReferenceOutput* const reference = golden.reference.find(output.name);
    if (output.failing == 0 || output.detail == nullptr) continue;
    if (reference != nullptr && std::any_of(reference->slack.begin(), reference->slack.end(), [](double x) { return x > 0; })) continue;
    const Tensor& actual = output.detail->actual;
    if (!is_float(actual.dtype()) || bits(actual.dtype()) <= 8) continue;
    for (std::size_t k = 0; k < output.detail->failing.size(); k += output.detail->failing.size() / most_elements + 1) {
      const double g = quant::get(output.detail->golden, output.detail->failing[k]);
      const double ratio = quant::get(actual, output.detail->failing[k]) / g;
      if (std::isfinite(ratio)) ratios.emplace_back(ratio, std::fabs(g));
    }
  }
  if (ratios.size() < enough) return std::nullopt;
  return weighted_median(std::move(ratios));
}

class Fit {
 public:
  Fit(const Placed& number, const NamedTensors& actual, const Verdict& verdict, const JudgeOptions& options,
      const std::vector<Fitted>& elements, std::optional<double> ratio, const std::function<bool()>& time_is_up)
      : number_(number),
        actual_(actual),
        verdict_(verdict),
        options_(options),
        elements_(elements),
        ratio_(ratio),
        time_is_up_(time_is_up) {}

  /// What reproduces everything, with as few digits as do.
  std::optional<Explanation> explanation() const {
    if (!elements_.empty())
      if (const auto value = fitted(); value && *value != now(number_))
        if (auto found = reproduced(*value)) {
          constexpr int all_there_are = 8;
          auto simpler = simplest(*value, all_there_are);
          return simpler ? simpler : found;
        }
    // Of a ratio of rounded numbers no more is known.
    constexpr int few = 4;
    return ratio_ ? simplest(now(number_) * *ratio_, few) : std::nullopt;
  }

 private:
  std::optional<Explanation> simplest(double value, int most_digits) const {
    constexpr double near = 0.02;
    for (const Product& product : products_of_numbers(number_.site))
      if (const double x = now(number_) * product.value; std::fabs(x / value - 1) < near)
        if (auto found = reproduced(x)) return found;
    for (int digits = 1; digits <= most_digits; ++digits) {
      // A number of few digits, or so many times the given one where that is clearly nearer.
      std::vector<double> rounded{shortened(value, digits)};
      if (const double given = now(number_); given != 0 && number_.fault != &factor_on_tensor) {
        const double multiple = given * shortened(value / given, digits);
        const bool nearer = std::fabs(multiple - value) < 0.5 * std::fabs(rounded.front() - value);
        rounded.insert(nearer ? rounded.begin() : rounded.end(), multiple);
      }
      for (const double x : rounded)
        if (auto found = reproduced(x)) return found;
    }
    return std::nullopt;
  }
  static double shortened(double value, int digits) {
    std::array<char, 40> text;
    std::snprintf(text.data(), text.size(), "%.*g", digits, value);
    return std::strtod(text.data(), nullptr);
  }
  std::optional<double> fitted() const {
    // Steps of a few percent cannot tell where far away the number lies: decades first.
    double at = now(number_), least = error_at(at).value_or(INFINITY);
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
    return at;
  }
  std::vector<double> starts() const {
    std::vector<double> values;
    const double unit = now(number_) != 0 ? now(number_) : 1;
    for (const double by : {2.0, 0.5, 10.0, 0.1, -1.0, 100.0, 1e-2, 1e3, 1e-3, 1e4, 1e-4, 1e5, 1e-5, 1e6, 1e-6})
      values.push_back(unit * by);
    values.push_back(now(number_) != 0 ? 0.0 : 1.0);
    return values;
  }

  std::optional<GoldenRun> run(double value) const {
    try {
      const Placed struck = struck_with(number_, value);
      return run_with(struck, inputs_with(struck));
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

  std::optional<Explanation> reproduced(double value) const {
    auto found = replay(struck_with(number_, value), actual_, verdict_, options_);
    if (found && !found->complete) found.reset();
    return found;
  }

  const Placed& number_;
  const NamedTensors& actual_;
  const Verdict& verdict_;
  const JudgeOptions& options_;
  const std::vector<Fitted>& elements_;
  std::optional<double> ratio_;
  const std::function<bool()>& time_is_up_;
};

}  // namespace

std::vector<Explanation> fitted_numbers(const Case& c, const GoldenRun& golden, const NamedTensors& actual, const Verdict& verdict,
                                        const JudgeOptions& options, const std::function<bool()>& time_is_up) {
  std::vector<Explanation> found;
  const std::vector<Fitted> elements = elements_to_fit(verdict, golden);
  const std::optional<double> ratio = ratio_of_bits(verdict, golden);
  if (elements.empty() && !ratio) return found;
  JudgeOptions alone = options;
  alone.exec.threads = 1;
  const FaultCase call{*c.op, c.inputs, golden, alone.exec};
  std::vector<Placed> numbers;
  for (const Fault* fault : {&number_of_attribute, &factor_on_tensor})
    for (Placed& number : placements(*fault, call)) numbers.push_back(std::move(number));
  std::vector<std::optional<Explanation>> fitted(numbers.size());
  constexpr double worth_a_team = 1e9;
  parallel_for(options.exec.threads, static_cast<std::int64_t>(numbers.size()), worth_a_team, [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    if (!time_is_up()) fitted[at] = Fit(numbers[at], actual, verdict, alone, elements, ratio, time_is_up).explanation();
  });
  for (auto& explanation : fitted)
    if (explanation) found.push_back(std::move(*explanation));
  return found;
}

}  // namespace dodona::oracle
