#include "oracle/faults/told/layernorm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "oracle/faults/rewritten.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

struct Moments {
  double mean = 0, variance = 0;
  std::optional<double> divisor = {};  ///< where it is not the root of the variance and epsilon
};
struct Guess {
  std::string words;
  std::function<Moments(std::int64_t row)> of;
  double room = 1e-6;  ///< how well the moments are known: of a number, in parts of its own size and of its column's factor
};

class LayerNorm {
 public:
  LayerNorm(const FaultCase& call, const Tensor& input, const Tensor& factor, const Tensor* addend, double eps)
      : call_(call), input_(input), factor_(factor), addend_(addend), eps_(eps), width_(input.size(-1)), rows_(input.elements() / width_) {}

  std::vector<Guess> guesses() const {
    std::vector<Guess> all;
    std::set<std::int64_t> widths;
    for (const std::int64_t tile : {16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192})
      if (const std::int64_t padded = (width_ + tile - 1) / tile * tile; padded != width_) widths.insert(padded);
    for (const std::int64_t w : widths) add_padded(all, w);
    for (const std::int64_t n : {16, 32, 64, 128, 256, 512, 1024, 2048, 4096}) {
      if (n >= width_) break;
      add_part(all, 0, n), add_part(all, 0, width_ / n * n), add_part(all, n, width_);
    }
    add_part(all, 0, width_ / 2), add_part(all, width_ / 2, width_);
    for (const std::int64_t step : {1, -1, 2, -2, 4, -4})
      all.push_back({"each row has the mean and the variance of the row " + std::to_string(std::abs(step)) +
                         (step > 0 ? " behind" : " before") + " it",
                     [=, this](std::int64_t r) { return moments(std::clamp<std::int64_t>(r + step, 0, rows_ - 1), 0, width_); }});
    for (const std::int64_t n : {2, 4, 8, 16, 32, 64})
      all.push_back({"of each " + std::to_string(n) + " rows all have the mean and the variance of the first",
                     [=, this](std::int64_t r) { return moments(r / n * n, 0, width_); }});
    all.push_back({"all rows have the mean and the variance of the first", [this](std::int64_t) { return moments(0, 0, width_); }});
    add_formulas(all);
    return all;
  }
  /// Rows as they are, of means and variances that one pass over the numbers gives in fp32: the mean of squares less the square of the
  /// mean. What it loses is no more than the rounding of a sum of squares, which is much where the mean is large.
  std::optional<Guess> cancelled(const Tensor& given) const {
    std::vector<Moments> found;
    bool other = false;
    for (std::int64_t r = 0; r < rows_; ++r) {
      const Moments right = moments(r, 0, width_);
      if (right.variance == 0) {
        found.push_back(right);
        continue;
      }
      const auto line = line_of(r, given);
      if (!line || !(line->slope > 0)) return std::nullopt;
      const double scale = std::sqrt(right.variance), squares = right.mean * right.mean + right.variance,
                   variance = 1 / (line->slope * line->slope) - eps_, mean = -line->intercept / line->slope,
                   lost = static_cast<double>(width_) * 0x1p-24 * squares;
      // Means that are small lose nothing that a result would show.
      if (std::fabs(variance - right.variance) > lost + 0.002 * right.variance ||
          std::fabs(mean - right.mean) > 0.002 * scale + 0x1p-20 * std::fabs(right.mean))
        return std::nullopt;
      other = other || std::fabs(variance - right.variance) > 0.002 * right.variance;
      found.push_back({mean, std::max(variance, 0.0)});
    }
    if (!other) return std::nullopt;
    return Guess{
        "the variance is off by what is lost where the square of a large mean is taken off the mean of squares, in one pass and in "
        "fp32: it cancels",
        [=](std::int64_t r) { return found[static_cast<std::size_t>(r)]; },
        // Told from numbers that are rounded themselves.
        4 * quant::ulp(given.dtype(), 1.0) / std::sqrt(static_cast<double>(width_))};
  }

  double value(std::int64_t row, std::int64_t column, const Moments& m) const {
    const double x = quant::get(input_, row * width_ + column);
    return (x - m.mean) / m.divisor.value_or(std::sqrt(m.variance + eps_)) * quant::get(factor_, column) +
           (addend_ != nullptr ? quant::get(*addend_, column) : 0);
  }
  /// About as the judge will see it, of a few elements of each row.
  bool may_be(const Guess& guess, const Tensor& given) const {
    for (std::int64_t r = 0; r < rows_; ++r) {
      const Moments m = guess.of(r);
      for (std::int64_t c = 0; c < width_; c += std::max<std::int64_t>(1, width_ / 8)) {
        const double is = quant::get(given, r * width_ + c), expected = value(r, c, m);
        const double about = 1e-5 + (guess.room > 1e-6 ? 4 * guess.room * std::fabs(quant::get(factor_, c)) : 0);
        if (!(std::fabs(is - expected) <= 2 * quant::ulp(given.dtype(), std::fmax(std::fabs(is), std::fabs(expected))) + about))
          return false;
      }
    }
    return true;
  }
  bool passes(const Guess& guess, const std::string& output, const NamedTensors& actual, const JudgeOptions& options) const {
    const ReferenceOutput& said = *call_.golden.reference.find(output);
    std::vector<double> exact = said.exact, slack = said.slack;
    for (std::int64_t r = 0; r < rows_; ++r) {
      const Moments m = guess.of(r);
      for (std::int64_t c = 0; c < width_; ++c) {
        const auto at = static_cast<std::size_t>(r * width_ + c);
        exact[at] = value(r, c, m);
        slack[at] += guess.room * (std::fabs(exact[at]) + (addend_ != nullptr ? std::fabs(quant::get(*addend_, c)) : 0));
        if (guess.room > 1e-6) slack[at] += guess.room * std::fabs(quant::get(factor_, c));
      }
    }
    GoldenRun run = call_.golden;
    put_numbers(run, output, exact, slack);
    return judge(call_.op, call_.inputs, run, actual, options).outcome == Outcome::pass;
  }

 private:
  double sum(std::int64_t row, std::int64_t begin, std::int64_t end, const std::function<double(double)>& of) const {
    double all = 0;
    for (std::int64_t c = begin; c < end; ++c) all += of(quant::get(input_, row * width_ + c));
    return all;
  }
  Moments moments(std::int64_t row, std::int64_t begin, std::int64_t end) const {
    const auto count = static_cast<double>(end - begin);
    const double mean = sum(row, begin, end, [](double x) { return x; }) / count;
    return {mean, sum(row, begin, end, [&](double x) { return (x - mean) * (x - mean); }) / count};
  }
  /// Rows that are taken to be `w` wide.
  void add_padded(std::vector<Guess>& all, std::int64_t w) const {
    const std::string wide = std::to_string(w) + " columns, to which rows of " + std::to_string(width_) + " are filled up";
    const auto wider = static_cast<double>(w), own = static_cast<double>(width_);
    for (const bool of_mean : {true, false})
      for (const bool zeros : {true, false})
        for (const bool of_variance : {true, false}) {
          if (!of_mean && !zeros && !of_variance) continue;
          const std::string words = std::string(of_mean && of_variance ? "mean and variance are taken over "
                                                : of_mean              ? "the mean is taken over "
                                                                       : "the variance is taken over ") +
                                    wide + (zeros ? ": zeros of the padding count in the variance, each with the mean's square" : "") +
                                    (of_variance ? "" : "; the variance is divided by the row's own number");
          all.push_back({words, [=, this](std::int64_t r) {
                           const double mean = sum(r, 0, width_, [](double x) { return x; }) / (of_mean ? wider : own);
                           const double squares = sum(r, 0, width_, [&](double x) { return (x - mean) * (x - mean); });
                           return Moments{mean, (squares + (zeros ? (wider - own) * mean * mean : 0)) / (of_variance ? wider : own)};
                         }});
        }
  }
  /// Other formulas of all of a row's numbers.
  void add_formulas(std::vector<Guess>& all) const {
    const auto add = [&](const char* words, const std::function<Moments(const Moments&)>& other) {
      all.push_back({words, [=, this](std::int64_t r) { return other(moments(r, 0, width_)); }});
    };
    const double eps = eps_, unbiased = static_cast<double>(width_) / static_cast<double>(std::max<std::int64_t>(width_ - 1, 1));
    const auto divided_by = [&](const char* words, const std::function<double(double)>& divisor) {
      add(words, [=](const Moments& m) { return Moments{m.mean, m.variance, divisor(m.variance)}; });
    };
    divided_by("rows are divided by the variance squared, where its root belongs", [=](double v) { return (v + eps) * (v + eps); });
    divided_by("rows are divided by the variance: no root is taken", [=](double v) { return v + eps; });
    divided_by("rows are multiplied with the root of the variance, not divided by it", [=](double v) { return 1 / std::sqrt(v + eps); });
    divided_by("epsilon is added to the root of the variance, not below it", [=](double v) { return std::sqrt(v) + eps; });
    divided_by("the variance is taken for at least epsilon: epsilon is not added to it",
               [=](double v) { return std::sqrt(std::max(v, eps)); });
    divided_by("rows are not divided by anything: no variance is taken", [](double) { return 1; });
    divided_by("the variance is divided by one less than the number of columns", [=](double v) { return std::sqrt(v * unbiased + eps); });
    add("the mean of squares is taken, not the variance about the mean", [](const Moments& m) {
      return Moments{m.mean, m.variance + m.mean * m.mean};
    });
    // Each number on the way, kept in each of the narrow types.
    for (const DType type : {DType::bf16, DType::f16}) {
      const std::string in = " in " + std::string(name(type));
      const auto kept = [type](double x) { return through(type, x); };
      const auto narrow = [&](const std::string& what, const std::function<Moments(const Moments&)>& other) {
        all.push_back({what + in, [=, this](std::int64_t r) { return other(moments(r, 0, width_)); }});
      };
      narrow("the variance with epsilon is kept", [=](const Moments& m) { return Moments{m.mean, 0, std::sqrt(kept(m.variance + eps))}; });
      narrow("the variance is kept", [=](const Moments& m) { return Moments{m.mean, kept(m.variance)}; });
      narrow("the mean is kept", [=](const Moments& m) {
        const double mean = kept(m.mean);
        return Moments{mean, m.variance + (m.mean - mean) * (m.mean - mean)};
      });
      narrow("the root of the variance is kept", [=](const Moments& m) { return Moments{m.mean, 0, kept(std::sqrt(m.variance + eps))}; });
      narrow("the reciprocal of the root of the variance is kept", [=](const Moments& m) {
        return Moments{m.mean, 0, 1 / kept(1 / std::sqrt(m.variance + eps))};
      });
      for (const bool mean_too : {true, false})
        narrow(std::string("the variance is the mean of squares less the square of the mean, which cancels: ") +
                   (mean_too ? "both are kept" : "the first is kept"),
               [=](const Moments& m) {
                 const double squares = kept(m.variance + m.mean * m.mean), mean = mean_too ? kept(m.mean) : m.mean;
                 return Moments{m.mean, std::fmax(squares - mean * mean, 0)};
               });
    }
    add("no mean is taken off: the root of the mean of squares is divided by", [](const Moments& m) {
      return Moments{0, m.variance + m.mean * m.mean};
    });
    add("the mean is not taken off what is divided", [](const Moments& m) { return Moments{0, m.variance}; });
  }
  struct Line {
    double slope, intercept;
  };
  /// What was done to the row's numbers before the factor and the addend of each column.
  std::optional<Line> line_of(std::int64_t row, const Tensor& given) const {
    double n = 0, x1 = 0, x2 = 0, y1 = 0, xy = 0;
    const double about = moments(row, 0, width_).mean;
    for (std::int64_t c = 0; c < width_; ++c) {
      const double factor = quant::get(factor_, c), x = quant::get(input_, row * width_ + c) - about;
      const double y = quant::get(given, row * width_ + c) - (addend_ != nullptr ? quant::get(*addend_, c) : 0);
      if (!std::isfinite(y)) return std::nullopt;
      // Each number's rounding is about its own size: all count alike where the factor weighs them.
      n += factor * factor, x1 += factor * factor * x, x2 += factor * factor * x * x, y1 += factor * y, xy += factor * x * y;
    }
    const double spread = n * x2 - x1 * x1;
    if (!(spread > 0)) return std::nullopt;
    const double slope = (n * xy - x1 * y1) / spread;
    return Line{slope, (y1 - slope * x1) / n - slope * about};
  }
  void add_part(std::vector<Guess>& all, std::int64_t begin, std::int64_t end) const {
    if (end <= begin || (begin == 0 && end == width_)) return;
    all.push_back({"mean and variance are those of columns " + std::to_string(begin) + ".." + std::to_string(end - 1) + " alone",
                   [=, this](std::int64_t r) { return moments(r, begin, end); }});
  }

  const FaultCase& call_;
  const Tensor& input_;
  const Tensor& factor_;
  const Tensor* addend_;
  double eps_;
  std::int64_t width_, rows_;
};

}  // namespace

std::optional<Explanation> layernorm_told(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                          const JudgeOptions& options) {
  const OpInfo& info = call.op.info();
  if (info.category != Category::normalization || info.name.find("layernorm") == std::string::npos || verdict.outputs.size() != 1)
    return std::nullopt;
  const OutputVerdict& output = verdict.outputs.front();
  if (output.failing == 0 || output.detail == nullptr || call.golden.reference.find(output.name) == nullptr) return std::nullopt;
  const Tensor &given = output.detail->actual, *input = nullptr, *factor = nullptr, *addend = nullptr;
  for (const TensorSpec& spec : call.op.schema().tensors) {
    const Tensor* const tensor = call.inputs.find(spec.name);
    if (spec.direction != Direction::in || tensor == nullptr || !tensor->defined()) continue;
    if (tensor->shape() == given.shape()) input = tensor;
    if (tensor->rank() == 1) (spec.role == Role::weight ? factor : addend) = tensor;
  }
  const AttrValue* eps = call.inputs.find_attr("eps");
  if (const AttrSpec* const spec = call.op.schema().find_attr("eps"); eps == nullptr && spec != nullptr) eps = &spec->default_value;
  if (input == nullptr || factor == nullptr || eps == nullptr || !std::holds_alternative<double>(*eps)) return std::nullopt;
  const LayerNorm norm(call, *input, *factor, addend, std::get<double>(*eps));
  std::vector<Guess> guesses = norm.guesses();
  if (auto guess = norm.cancelled(given)) guesses.push_back(std::move(*guess));
  for (const Guess& guess : guesses) {
    if (!norm.may_be(guess, given) || !norm.passes(guess, output.name, actual, options)) continue;
    Explanation found{"layernorm-told", output.name + ": " + guess.words};
    found.outputs.push_back(output.name);
    found.complete = true;
    return found;
  }
  return std::nullopt;
}

}  // namespace dodona::oracle
