#include "oracle/faults/told/parts_of_depth.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "oracle/faults/product_model.h"
#include "oracle/faults/rewritten.h"
#include "oracle/faults/tables/fault_tools.h"
#include "oracle/faults/told/least_squares.h"
#include "oracle/judge/pattern/samples.h"

namespace dodona::oracle {
namespace {

using Indices = std::vector<std::int64_t>;

constexpr std::int64_t most_parts = 128;
constexpr std::size_t most_equations = 4096, equations_a_part = 4;

/// The output of the product as the verdict has it, if it fails and its numbers have more than a few bits.
const OutputVerdict* failing_output(const Verdict& verdict, const std::string& name) {
  for (const OutputVerdict& output : verdict.outputs)
    if (output.name == name && output.failing > 0 && output.detail != nullptr && is_float(output.detail->actual.dtype()) &&
        bits(output.detail->actual.dtype()) > 8)
      return &output;
  return nullptr;
}

class Parts {
 public:
  Parts(const FaultCase& call, const ProductModel& model, const OutputVerdict& output)
      : call_(call), model_(model), output_(output), factors_(model.factors()) {}

  std::optional<Explanation> explanation(const NamedTensors& actual, const JudgeOptions& options) {
    const auto rest = model_.addends(factors_);
    if (!rest) return std::nullopt;
    rest_ = *rest;
    for (const std::int64_t size : {8, 16, 32, 64, 128, 256}) {
      if (model_.depth() % size != 0 || model_.depth() / size < 2) continue;
      size_ = size;
      const Indices sampled = equations();
      const std::int64_t parts = model_.depth() / size;
      if (parts > most_parts || sampled.size() < equations_a_part * static_cast<std::size_t>(parts)) continue;
      const auto counts = counted(sampled);
      if (!counts) continue;
      for (const bool everywhere : {true, false})
        if (auto found = verified(*counts, everywhere, actual, options)) return found;
      return std::nullopt;
    }
    return std::nullopt;
  }

 private:
  Indices equations() const {
    const Indices& failing = output_.detail->failing;
    Indices found;
    for (std::size_t k = 0; k < failing.size(); k += failing.size() / most_equations + 1)
      if (std::isfinite(quant::get(output_.detail->actual, failing[k]))) found.push_back(failing[k]);
    return found;
  }
  /// What each part adds to an element.
  std::vector<double> parts_of(std::int64_t i) const {
    const std::int64_t rows = model_.rows(), columns = model_.columns(), depth = model_.depth();
    const std::int64_t l = i / (rows * columns), m = i / columns % rows, n = i % columns;
    const float* const a = factors_.a.data() + (l * rows + m) * depth;
    const float* const b = factors_.b.data() + (l * columns + n) * depth;
    std::vector<double> sums(static_cast<std::size_t>(depth / size_));
    for (std::int64_t k = 0; k < depth; ++k)
      sums[static_cast<std::size_t>(k / size_)] += static_cast<double>(a[k]) * static_cast<double>(b[k]);
    for (double& sum : sums) sum *= factors_.outer[static_cast<std::size_t>(i)];
    return sums;
  }
  double room_of(std::int64_t i) const {
    const Tensor& actual = output_.detail->actual;
    const ReferenceOutput& reference = *call_.golden.reference.find(model_.output());
    return quant::ulp(actual.dtype(), quant::get(actual, i)) / 2 + reference.slack[static_cast<std::size_t>(i)] + 1e-30;
  }

  /// How often each part counts; nothing where the equations do not say it, or where all count once.
  std::optional<std::vector<double>> counted(const Indices& sampled) const {
    LeastSquares equations(static_cast<std::size_t>(model_.depth() / size_));
    for (const std::int64_t i : sampled)
      equations.add(parts_of(i), quant::get(output_.detail->actual, i) - rest_[static_cast<std::size_t>(i)], room_of(i));
    const auto solution = equations.solved();
    if (!solution) return std::nullopt;
    std::vector<double> counts;
    bool once = true;
    for (std::size_t p = 0; p < solution->x.size(); ++p) {
      constexpr double known = 0.05, near = 0.02;
      if (solution->room[p] > known) return std::nullopt;
      const double whole = std::round(solution->x[p]);
      const bool is_whole = std::fabs(solution->x[p] - whole) <= near + 4 * solution->room[p] && std::fabs(whole) <= 4;
      if (!is_whole) return std::nullopt;
      counts.push_back(whole);
      once = once && whole == 1;
    }
    // Where nothing is added at all nothing was written: that is seen without equations.
    const bool never = std::all_of(counts.begin(), counts.end(), [](double count) { return count == 0; });
    if (once || never) return std::nullopt;
    return counts;
  }

  /// Of all elements, or of those alone that fail.
  std::optional<Explanation> verified(const std::vector<double>& counts, bool everywhere, const NamedTensors& actual,
                                      const JudgeOptions& options) const {
    const ReferenceOutput& reference = *call_.golden.reference.find(model_.output());
    std::vector<double> exact = reference.exact, slack = reference.slack;
    const double most = std::fabs(*std::max_element(counts.begin(), counts.end()));
    const auto put = [&](std::int64_t i) {
      const std::vector<double> parts = parts_of(i);
      double sum = rest_[static_cast<std::size_t>(i)], magnitude = 0;
      for (std::size_t p = 0; p < parts.size(); ++p) sum += counts[p] * parts[p], magnitude += std::fabs(parts[p]);
      exact[static_cast<std::size_t>(i)] = sum;
      slack[static_cast<std::size_t>(i)] = std::fmax(1, most) * slack[static_cast<std::size_t>(i)] + 0x1p-20 * magnitude;
    };
    if (everywhere) {
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(exact.size()); ++i) put(i);
    } else {
      for (const std::int64_t i : output_.detail->failing) put(i);
    }
    GoldenRun run = call_.golden;
    fault_tools::put_numbers(run, model_.output(), exact, slack);
    const Verdict other = judge(call_.op, call_.inputs, run, actual, options);
    if (other.outcome != Outcome::pass) return std::nullopt;
    Explanation found{"parts-of-the-depth", words(counts) + (everywhere ? "" : ", where it fails: " + output_.pattern)};
    found.outputs.push_back(model_.output());
    found.complete = true;
    return found;
  }

  static std::string times(double count) {
    if (count == 0) return "are not added: dropped, left out";
    if (count == 2) return "are added twice: counted again";
    if (count < 0) return "are added with the other sign";
    return "are added " + std::to_string(static_cast<std::int64_t>(count)) + " times";
  }
  /// `of the 320 products of each sum 80..95, 160..175 are added twice`.
  std::string words(const std::vector<double>& counts) const {
    std::map<double, std::string> ranges;
    std::map<double, int> numbers;
    for (std::size_t p = 0, end = 0; p < counts.size(); p = end) {
      for (end = p + 1; end < counts.size() && counts[end] == counts[p];) ++end;
      constexpr int few = 6;
      if (counts[p] == 1 || ++numbers[counts[p]] > few) continue;
      std::string& text = ranges[counts[p]];
      text += (text.empty() ? "" : ", ") + std::to_string(static_cast<std::int64_t>(p) * size_) + ".." +
              std::to_string(static_cast<std::int64_t>(end) * size_ - 1);
    }
    std::string text;
    for (const auto& [count, its] : ranges)
      text += (text.empty() ? "" : "; ") + ("indices " + its + (numbers[count] > 6 ? "..." : "") + " " + times(count));
    return model_.output() + ": of the " + std::to_string(model_.depth()) + " products of each sum (along K) those of " + text;
  }

  const FaultCase& call_;
  const ProductModel& model_;
  const OutputVerdict& output_;
  const ProductModel::Factors factors_;
  std::vector<double> rest_;
  std::int64_t size_ = 1;
};

}  // namespace

std::optional<Explanation> parts_of_depth(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                          const JudgeOptions& options) {
  const auto model = ProductModel::of(call);
  if (!model) return std::nullopt;
  const OutputVerdict* const output = failing_output(verdict, model->output());
  const std::int64_t work = model->batches() * model->rows() * model->columns() * model->depth();
  constexpr std::int64_t most_work = std::int64_t{1} << 31;
  if (output == nullptr || work > most_work) return std::nullopt;
  return Parts(call, *model, *output).explanation(actual, options);
}

}  // namespace dodona::oracle
