#include "oracle/faults/told/norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "oracle/faults/rewritten.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

/// What a row's factor may be, by its columns.
struct Factor {
  double least = 0, most = std::numeric_limits<double>::infinity();
  bool holds(double factor) const { return factor >= least * (1 - 2e-6) && factor <= most * (1 + 2e-6); }
};

class Norm {
 public:
  Norm(Tensor numbers, double eps, std::vector<Factor> factors) : numbers_(std::move(numbers)), eps_(eps), factors_(std::move(factors)) {
    const Rows rows(numbers_);
    width_ = rows.width;
    for (std::int64_t r = 0; r < rows.count; ++r) {
      std::vector<double>& sums = squares_.emplace_back(1, 0.0);
      double magnitudes = 0, sum = 0, largest = 0;
      for (std::int64_t c = 0; c < width_; ++c) {
        const double x = quant::get(numbers_, rows.at(r, c));
        sums.push_back(sums.back() + x * x);
        magnitudes += std::fabs(x);
        sum += x;
        largest = std::max(largest, std::fabs(x));
      }
      magnitudes_.push_back(magnitudes / columns());
      means_.push_back(sum / columns());
      largest_.push_back(largest);
    }
  }

  /// Which mistake gives all rows' factors, and what they are then.
  std::optional<std::string> told() {
    if (auto words = of_other_numbers()) return words;
    if (auto words = by_another_count()) return words;
    if (auto words = of_other_rows()) return words;
    if (auto words = of_first_or_last()) return words;
    if (auto words = of_parts_of_blocks()) return words;
    return of_shares();
  }
  const std::vector<double>& factors() const { return found_; }

 private:
  double columns() const { return static_cast<double>(width_); }
  double sum(std::size_t r) const { return squares_[r].back(); }
  double root(std::size_t r) const { return std::sqrt(sum(r) / columns() + eps_); }
  std::size_t rows() const { return squares_.size(); }

  /// Rows that were divided by this.
  bool divided_by(const std::function<double(std::size_t)>& divisor) {
    for (std::size_t r = 0; r < rows(); ++r)
      if (!factors_[r].holds(root(r) / divisor(r))) return false;
    found_.clear();
    for (std::size_t r = 0; r < rows(); ++r) found_.push_back(root(r) / divisor(r));
    return true;
  }
  /// Rows whose mean of squares was taken for this.
  bool mean_is(const std::function<double(std::size_t)>& mean) {
    return divided_by([&](std::size_t r) { return std::sqrt(mean(r) + eps_); });
  }

  std::optional<std::string> of_other_numbers() {
    if (divided_by([&](std::size_t r) { return std::sqrt(sum(r) / columns()) + eps_; }))
      return "epsilon is added to the root, not to the mean of squares below it";
    if (divided_by([&](std::size_t r) { return std::sqrt(std::max(sum(r) / columns(), eps_)); }))
      return "the mean of squares is taken for at least epsilon: epsilon is not added to it";
    if (divided_by([&](std::size_t r) { return std::sqrt(sum(r) / columns() + eps_ * eps_); })) return "epsilon is squared";
    if (divided_by([&](std::size_t r) { return std::sqrt(sum(r) + eps_); }))
      return "the sum of squares is not divided by the number of columns: no mean is taken";
    if (divided_by([&](std::size_t r) { return sum(r) / columns() + eps_; }))
      return "rows are divided by the mean of squares: no root is taken";
    if (divided_by([&](std::size_t r) { return std::pow(root(r), 4); }))
      return "rows are divided by the mean of squares squared, where its root belongs";
    if (divided_by([&](std::size_t r) { return 1 / root(r); }))
      return "rows are multiplied with the root of the mean of squares, not divided by it: as divided by what is its inverse already";
    if (divided_by([](std::size_t) { return 1; })) return "rows are not divided by the root of the mean of squares: nothing is normalized";
    if (mean_is([&](std::size_t r) { return sum(r) / columns() - means_[r] * means_[r]; }))
      return "the variance about a row's mean is taken, not the mean of its squares";
    if (divided_by([&](std::size_t r) { return magnitudes_[r]; }) || divided_by([&](std::size_t r) { return magnitudes_[r] + eps_; }))
      return "the mean of magnitudes is taken, not the root of that of squares";
    if (divided_by([&](std::size_t r) { return largest_[r]; }) || divided_by([&](std::size_t r) { return largest_[r] + eps_; }))
      return "the largest magnitude is taken, not the root of the mean of squares";
    return std::nullopt;
  }

  std::optional<std::string> by_another_count() {
    std::set<std::int64_t> counts{width_ - 1, width_ + 1, 2 * width_, width_ / 2};
    for (const std::int64_t tile : {16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192}) {
      counts.insert((width_ + tile - 1) / tile * tile);
      counts.insert(width_ / tile * tile);
      counts.insert(tile);
    }
    for (const std::int64_t count : counts)
      if (count > 0 && count != width_ && mean_is([&](std::size_t r) { return sum(r) / static_cast<double>(count); }))
        return "the sum of squares is divided by " + std::to_string(count) + ", not by the " + std::to_string(width_) + " columns";
    return std::nullopt;
  }

  std::optional<std::string> of_other_rows() {
    const auto last = static_cast<std::int64_t>(rows()) - 1;
    const auto of_row = [&](const std::function<std::int64_t(std::int64_t)>& other) {
      return mean_is([&](std::size_t r) {
        return sum(static_cast<std::size_t>(std::clamp<std::int64_t>(other(static_cast<std::int64_t>(r)), 0, last))) / columns();
      });
    };
    if (of_row([](std::int64_t) { return 0; })) return "all rows have the mean of squares of the first";
    for (const std::int64_t step : {-1, 1, -2, 2, -4, 4})
      if (of_row([=](std::int64_t r) { return r + step; }) || of_row([=](std::int64_t r) { return (r + step + last + 1) % (last + 1); }))
        return "each row has the mean of squares of the row " +
               (std::abs(step) == 1 ? std::string{} : std::to_string(std::abs(step)) + " rows ") + (step < 0 ? "before" : "behind") + " it";
    for (const std::int64_t n : {2, 4, 8, 16, 32, 64}) {
      if (of_row([=](std::int64_t r) { return r / n * n; }))
        return "of each " + std::to_string(n) + " rows all have the mean of squares of the first";
      if (of_row([=](std::int64_t r) { return r / n; })) return "row r has the mean of squares of row r / " + std::to_string(n);
      if (of_row([=](std::int64_t r) { return r % n; })) return "row r has the mean of squares of row r mod " + std::to_string(n);
    }
    // Sums that rows share, or that go on from the row before.
    for (const std::int64_t n : {2, 4, 8, 16, 32, 64, 128, 1 << 30}) {
      const std::string of = n == 1 << 30 ? "" : " of the same " + std::to_string(n);
      const auto up_to = [&](std::int64_t from, std::int64_t to) {
        double all = 0;
        for (std::int64_t r = from; r < std::min(to, last + 1); ++r) all += sum(static_cast<std::size_t>(r));
        return all / columns();
      };
      if (mean_is([&](std::size_t r) {
            const auto row = static_cast<std::int64_t>(r);
            return up_to(row / n * n, row + 1);
          }))
        return "a row's sum of squares goes on from those of the rows before it" + of + ": it does not begin at zero, it is not reset";
      if (n <= last + 1 && mean_is([&](std::size_t r) {
            const auto first = static_cast<std::int64_t>(r) / n * n;
            return up_to(first, first + n);
          }))
        return "the squares of " + std::to_string(n) + " rows are added up to one sum";
    }
    return std::nullopt;
  }

  std::optional<std::string> of_first_or_last() {
    for (std::int64_t n = 1; n < width_; ++n) {
      const auto part = [&](std::size_t r) { return squares_[r][static_cast<std::size_t>(n)]; };
      const auto rest = [&](std::size_t r) { return sum(r) - part(r); };
      const std::string first = "the first " + std::to_string(n) + " columns", end = "the last " + std::to_string(width_ - n) + " columns";
      const std::string of_all = ", which are not all, are added up, and divided by the number of all";
      if (mean_is([&](std::size_t r) { return part(r) / columns(); }))
        return "the squares of " + first + of_all + ": " + end + " are left out of the sum";
      if (mean_is([&](std::size_t r) { return rest(r) / columns(); }))
        return "the squares of " + end + of_all + ": " + first + " are left out of the sum";
      if (mean_is([&](std::size_t r) { return part(r) / static_cast<double>(n); }))
        return "the mean of squares is that of " + first + " alone: " + end + " are left out of it";
      if (mean_is([&](std::size_t r) { return rest(r) / static_cast<double>(width_ - n); }))
        return "the mean of squares is that of " + end + " alone: " + first + " are left out of it";
      if (mean_is([&](std::size_t r) { return (sum(r) + part(r)) / columns(); })) return "the squares of " + first + " are added twice";
      if (mean_is([&](std::size_t r) { return (sum(r) + rest(r)) / columns(); })) return "the squares of " + end + " are added twice";
    }
    return std::nullopt;
  }

  /// Blocks of threads that share a row out among them, and each lacks its end: the last warp is no whole one, or a vector too many.
  std::optional<std::string> of_parts_of_blocks() {
    for (std::int64_t blocks = 2; blocks <= 16; ++blocks) {
      if (width_ % blocks != 0) continue;
      const std::int64_t each = width_ / blocks;
      for (std::int64_t n = each - 1; n > 0; --n) {
        const auto kept = [&](std::size_t r) {
          double all = 0;
          for (std::int64_t b = 0; b < blocks; ++b)
            all += squares_[r][static_cast<std::size_t>(b * each + n)] - squares_[r][static_cast<std::size_t>(b * each)];
          return all;
        };
        const std::string of = "of each " + std::to_string(each) + " columns the squares of the first " + std::to_string(n),
                          left = " alone are in the sum: the last " + std::to_string(each - n) + " are left out of it";
        if (mean_is([&](std::size_t r) { return kept(r) / columns(); })) return of + left;
        if (mean_is([&](std::size_t r) { return kept(r) / static_cast<double>(n * blocks); })) return of + left + ", and of the number";
      }
    }
    return std::nullopt;
  }

  /// One share of the columns lost, counted alone, or twice: every so manyth, or one tile.
  std::optional<std::string> of_shares() {
    for (const bool tiles : {true, false})
      for (const std::int64_t n : {2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}) {
        if (n >= width_) continue;
        const std::int64_t count = tiles ? (width_ + n - 1) / n : n;
        std::vector<std::vector<double>> parts(rows(), std::vector<double>(static_cast<std::size_t>(count)));
        for (std::size_t r = 0; r < rows(); ++r)
          for (std::int64_t c = 0; c < width_; ++c)
            parts[r][static_cast<std::size_t>(tiles ? c / n : c % n)] +=
                squares_[r][static_cast<std::size_t>(c + 1)] - squares_[r][static_cast<std::size_t>(c)];
        for (std::int64_t k = 0; k < count; ++k) {
          const auto part = [&](std::size_t r) { return parts[r][static_cast<std::size_t>(k)]; };
          const double size = tiles ? static_cast<double>(std::min(n, width_ - k * n))
                                    : std::ceil(static_cast<double>(width_ - k) / static_cast<double>(n));
          const std::string of = "columns c with c " + std::string(tiles ? "/ " : "mod ") + std::to_string(n) + " = " + std::to_string(k);
          if (mean_is([&](std::size_t r) { return (sum(r) - part(r)) / columns(); }))
            return "the sum of squares lacks " + of + ": one part of it is lost before it is added";
          if (mean_is([&](std::size_t r) { return part(r) / columns(); }))
            return "the sum of squares is that of " + of + " alone: the others' parts are not added";
          if (mean_is([&](std::size_t r) { return part(r) / size; }))
            return "the mean of squares is that of " + of + " alone: the others are left out of it";
          if (mean_is([&](std::size_t r) { return (sum(r) + part(r)) / columns(); })) return "the squares of " + of + " are added twice";
        }
      }
    return std::nullopt;
  }

  Tensor numbers_;
  double eps_;
  std::vector<Factor> factors_;
  std::int64_t width_ = 0;
  std::vector<std::vector<double>> squares_;  ///< of each row, sums of those of its first n columns
  std::vector<double> magnitudes_, means_, largest_, found_;
};

/// Of a norm alone, or of one behind something else in one kernel.
const AttrSpec* eps_of_root(const FaultCase& call) {
  const OpInfo& info = call.op.info();
  const bool alone = info.category == Category::normalization && info.name.find("rmsnorm") != std::string::npos;
  return call.op.schema().find_attr(alone ? "eps" : "rms_eps");
}
double value_of(const FaultCase& call, const AttrSpec* spec) {
  const AttrValue* given = spec != nullptr ? call.inputs.find_attr(spec->name) : nullptr;
  if (given == nullptr && spec != nullptr) given = &spec->default_value;
  return given != nullptr && std::holds_alternative<double>(*given) ? std::get<double>(*given) : 0;
}

/// What golden's rows are to be multiplied with; nothing where one factor does not do, or all may be 1.
std::optional<std::vector<Factor>> factors_of(const Tensor& actual, const ReferenceOutput& said) {
  const Rows rows(actual);
  // Numbers that are rounded once, or twice on their way.
  for (const double ulps : {0.51, 1.6}) {
    std::vector<Factor> factors(static_cast<std::size_t>(rows.count));
    bool hold = true, other = false;
    for (std::int64_t r = 0; r < rows.count && hold; ++r) {
      Factor& factor = factors[static_cast<std::size_t>(r)];
      for (std::int64_t c = 0; c < rows.width; ++c) {
        const double a = quant::get(actual, rows.at(r, c)), e = said.exact[static_cast<std::size_t>(r * rows.width + c)];
        if (!std::isfinite(a) || !std::isfinite(e)) return std::nullopt;
        if (a == 0 && std::fabs(e) < 1e-20) continue;
        if (e == 0 || a / e < 0) return std::nullopt;
        const double room = ulps * quant::ulp(actual.dtype(), std::fabs(a)) + 1e-6 * std::fabs(a);
        factor.least = std::max(factor.least, (std::fabs(a) - room) / std::fabs(e));
        factor.most = std::min(factor.most, (std::fabs(a) + room) / std::fabs(e));
      }
      hold = factor.least <= factor.most;
      other = other || factor.least > 1 + 2e-5 || factor.most < 1 - 2e-5;
    }
    if (hold) return other ? std::optional(factors) : std::nullopt;
  }
  return std::nullopt;
}

/// What is normalized may be other numbers than those whose squares were added up, where a pass reads what another one has stored by then:
/// one addend alone, or the sum with one of them once more.
std::optional<Explanation> of_other_numbers(const FaultCase& call, const Tensor& numbers, const std::string& output, const Tensor& given,
                                            const ReferenceOutput& said, const NamedTensors& actual, const JudgeOptions& options) {
  constexpr double anything = 1e6;
  for (const TensorSpec& spec : call.op.schema().tensors) {
    const Tensor* const input = call.inputs.find(spec.name);
    if (spec.direction == Direction::out || input == nullptr || !input->defined() || !(input->shape() == given.shape()) ||
        !is_float(input->dtype()))
      continue;
    for (const bool alone : {true, false}) {
      std::vector<double> exact = said.exact, slack = said.slack;
      bool known = true;
      for (std::int64_t i = 0; i < given.elements() && known; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const double own = quant::get(numbers, i), added = quant::get(*input, i), taken = alone ? added : own + added;
        // Where the sum is zero golden's number says nothing of its row's and its column's factors.
        const double times = own != 0 ? taken / own : 0;
        // The sum is known as it is stored, rounded.
        const double rounded = 0x1p-8 * std::fabs(exact[at]);
        exact[at] *= times;
        slack[at] = own != 0 ? slack[at] * std::fabs(times) + 0x1p-8 * std::fabs(exact[at]) + rounded : anything;
        known = std::isfinite(exact[at]);
      }
      if (!known) continue;
      GoldenRun run = call.golden;
      put_numbers(run, output, exact, slack);
      if (judge(call.op, call.inputs, run, actual, options).outcome != Outcome::pass) continue;
      Explanation found{"norm-of-other-numbers",
                        output + ": what is normalized is " +
                            (alone ? spec.name + " alone, not the sum" : "the sum with " + spec.name + " added again, twice") +
                            ", by the root of the sum's squares: the second pass reads other numbers than the first"};
      found.outputs.push_back(output);
      found.complete = true;
      return found;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Explanation> norm_told(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                     const JudgeOptions& options) {
  const AttrSpec* const eps = eps_of_root(call);
  if (eps == nullptr) return std::nullopt;
  const OutputVerdict* failing = nullptr;
  for (const OutputVerdict& output : verdict.outputs) {
    if (output.failing == 0) continue;
    if (failing != nullptr) return std::nullopt;
    failing = &output;
  }
  if (failing == nullptr) return std::nullopt;
  const Tensor& given = *find(actual, failing->name);
  const FaultSite site{call};
  const ReferenceOutput* const said = kept_exactly(site, failing->name, given);
  if (said == nullptr || !is_float(given.dtype()) || bits(given.dtype()) < 16 || given.rank() < 2 || given.size(0) < 2) return std::nullopt;
  const auto factors = factors_of(given, *said);
  // What is normalized: a sum that is stored as well, or the input.
  const Tensor* numbers = nullptr;
  for (const auto& [name, tensor] : call.golden.outputs)
    if (name != failing->name && tensor.shape() == given.shape()) numbers = &tensor;
  for (const TensorSpec& spec : call.op.schema().tensors) {
    const Tensor* const input = call.inputs.find(spec.name);
    if (numbers == nullptr && spec.direction != Direction::out && input != nullptr && input->defined() && input->shape() == given.shape())
      numbers = input;
  }
  if (numbers == nullptr || !is_float(numbers->dtype())) return std::nullopt;
  if (!factors) return of_other_numbers(call, *numbers, failing->name, given, *said, actual, options);
  Norm norm(*numbers, value_of(call, eps), *factors);
  const auto words = norm.told();
  if (!words) return std::nullopt;
  std::vector<double> exact = said->exact, slack = said->slack;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double factor = norm.factors()[i / static_cast<std::size_t>(given.size(-1))];
    exact[i] *= factor;
    slack[i] = slack[i] * factor + 2e-6 * std::fabs(exact[i]);
  }
  GoldenRun run = call.golden;
  put_numbers(run, failing->name, exact, slack);
  if (judge(call.op, call.inputs, run, actual, options).outcome != Outcome::pass) return std::nullopt;
  Explanation found{"norm-told", failing->name + ": " + *words};
  found.outputs.push_back(failing->name);
  found.complete = true;
  return found;
}

}  // namespace dodona::oracle
