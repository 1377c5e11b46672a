#include "oracle/faults/told/layernorm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
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
};
struct Guess {
  std::string words;
  std::function<Moments(std::int64_t row)> of;
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
    return all;
  }

  double value(std::int64_t row, std::int64_t column, const Moments& m) const {
    const double x = quant::get(input_, row * width_ + column);
    return (x - m.mean) / std::sqrt(m.variance + eps_) * quant::get(factor_, column) +
           (addend_ != nullptr ? quant::get(*addend_, column) : 0);
  }
  /// About as the judge will see it, of a few elements of each row.
  bool may_be(const Guess& guess, const Tensor& given) const {
    for (std::int64_t r = 0; r < rows_; ++r) {
      const Moments m = guess.of(r);
      for (std::int64_t c = 0; c < width_; c += std::max<std::int64_t>(1, width_ / 8)) {
        const double is = quant::get(given, r * width_ + c), expected = value(r, c, m);
        if (!(std::fabs(is - expected) <= 2 * quant::ulp(given.dtype(), std::fmax(std::fabs(is), std::fabs(expected))) + 1e-5))
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
        slack[at] += 1e-6 * (std::fabs(exact[at]) + (addend_ != nullptr ? std::fabs(quant::get(*addend_, c)) : 0));
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
  for (const Guess& guess : norm.guesses()) {
    if (!norm.may_be(guess, given) || !norm.passes(guess, output.name, actual, options)) continue;
    Explanation found{"layernorm-told", output.name + ": " + guess.words};
    found.outputs.push_back(output.name);
    found.complete = true;
    return found;
  }
  return std::nullopt;
}

}  // namespace dodona::oracle
