#include "oracle/faults/told/softmax.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "oracle/faults/rewritten.h"
#include "oracle/faults/softmax_rows.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

/// Columns that one thread, warp or block has: which of several a column belongs to.
struct Shares {
  std::string of;  ///< `columns c with (c mod 256) / 32 = `
  std::int64_t count;
  std::function<std::int64_t(std::int64_t)> owner;
};
std::vector<Shares> shares_of_threads(std::int64_t columns) {
  std::vector<Shares> found;
  // Vectors of so many columns, blocks of so many threads, warps of so many.
  for (const std::int64_t threads : {1024, 512, 256, 128, 64})
    for (const std::int64_t vector : {1, 2, 4, 8})
      for (const std::int64_t warp : {32, 64}) {
        if (warp >= threads || warp * vector >= columns || threads * vector > 2 * columns) continue;
        const std::string c = vector == 1 ? "c" : "c / " + std::to_string(vector);
        found.push_back({"columns c with (" + c + " mod " + std::to_string(threads) + ") / " + std::to_string(warp) + " = ", threads / warp,
                         [=](std::int64_t i) { return i / vector % threads / warp; }});
      }
  return found;
}
std::vector<Shares> residues(std::int64_t columns, const std::vector<std::int64_t>& periods) {
  std::vector<Shares> found;
  for (const std::int64_t p : periods)
    if (p < columns) found.push_back({"columns c with c mod " + std::to_string(p) + " = ", p, [p](std::int64_t i) { return i % p; }});
  return found;
}
std::vector<Shares> tiles(std::int64_t columns, const std::vector<std::int64_t>& sizes) {
  std::vector<Shares> found;
  for (const std::int64_t size : sizes)
    if (size < columns)
      found.push_back(
          {"columns c with c / " + std::to_string(size) + " = ", (columns + size - 1) / size, [size](std::int64_t i) { return i / size; }});
  return found;
}

class Told {
 public:
  Told(const FaultCase& call, const Softmax& softmax, const Tensor& actual) : call_(call), softmax_(softmax), actual_(actual) {}

  /// False where rows say nothing.
  bool read() {
    constexpr std::int64_t most_rows = 256;
    for (std::int64_t r = 0; r < std::min(softmax_.rows, most_rows); ++r) {
      auto row = softmax_row(call_, softmax_, r);
      if (!row) return false;
      rows_.push_back(std::move(*row));
    }
    return rows_.size() >= 2;
  }

  std::vector<std::vector<double>> parts_of_rows(const Shares& shares) const {
    std::vector<std::vector<double>> parts;
    for (const SoftmaxRow& row : rows_) parts.push_back(parts_of(row, shares));
    return parts;
  }

  /// Sums of shares, each about its own maximum, that are added as they are.
  std::optional<std::string> own_added(const std::vector<double>& left, const Shares& shares,
                                       const std::vector<std::vector<double>>& parts) {
    if (!sums_are(left, [&](std::size_t r) { return sum_of_own(rows_[r], shares, parts[r]) / rows_[r].sum; })) return std::nullopt;
    return softmax_.probs + ": the sum that a row is divided by is that of shares, each about its own maximum, as they are: they are " +
           "not rescaled to the row's maximum before they are added (" + shares.of + "k for each k)";
  }

  std::optional<std::string> other_sum() {
    std::vector<double> left;  // of each row's sum
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      const auto factor = common_factor(r, [](std::int64_t) { return 0; });
      if (!factor) return std::nullopt;
      left.push_back(1 / factor->at(0));
    }
    if (std::all_of(left.begin(), left.end(), [](double x) { return std::fabs(x - 1) < 1e-4; })) return std::nullopt;
    // Columns that fill a row up to whole tiles, or to a power of two, and hold zeros.
    for (const std::int64_t tile : {8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096}) {
      const std::int64_t more = (softmax_.columns + tile - 1) / tile * tile - softmax_.columns;
      if (more > 0 &&
          sums_are(left, [&](std::size_t r) { return 1 + static_cast<double>(more) * std::exp(-rows_[r].most) / rows_[r].sum; }))
        return softmax_.probs + ": the sum that a row is divided by has " + std::to_string(more) +
               " terms of a score of 0 too: of columns " + "behind the row's end, which fill it up to " +
               std::to_string(softmax_.columns + more) + " and are not masked";
    }
    if (auto words = narrow_sum(left)) return words;
    std::vector<Shares> all = tiles(softmax_.columns, {1024, 512, 256, 128, 64, 32, 16});
    for (Shares& shares : residues(softmax_.columns, {2, 4, 8, 16, 32})) all.push_back(std::move(shares));
    for (Shares& shares : shares_of_threads(softmax_.columns)) all.push_back(std::move(shares));
    for (const Shares& shares : all) {
      const auto parts = parts_of_rows(shares);
      if (auto words = own_added(left, shares, parts)) return words;
      for (std::int64_t k = 0; k < shares.count; ++k)
        for (const bool alone : {false, true}) {
          if (!sums_are(left, [&](std::size_t r) {
                const double part = parts[r][static_cast<std::size_t>(k)] / rows_[r].sum;
                return alone ? part : 1 - part;
              }))
            continue;
          return softmax_.probs + ": the sum that a row is divided by " + (alone ? "is that of " : "lacks the terms of ") + shares.of +
                 std::to_string(k) + (alone ? " alone: the others' parts are not added" : ": one part of it is lost before it is added");
        }
    }
    for (const Shares& shares : residues(softmax_.columns, {64, 128, 256, 512, 1024}))
      if (auto words = own_added(left, shares, parts_of_rows(shares))) return words;
    return std::nullopt;
  }

  /// Sums that are kept in 16 bits: rounded after each of so many columns, by one thread for all or by as many threads as take turns.
  std::optional<std::string> narrow_sum(const std::vector<double>& left) {
    for (const DType type : {DType::bf16, DType::f16})
      for (const std::int64_t tile : {1, 8, 16, 32, 64, 128, 256, 512, 1024})
        for (const std::int64_t lanes : {1, 32, 64, 128, 256, 512, 1024}) {
          if (tile * lanes >= softmax_.columns) continue;
          const auto sum = [&](std::size_t r) {
            const SoftmaxRow& row = rows_[r];
            std::vector<double> kept(static_cast<std::size_t>(lanes), 0.0);
            for (std::size_t c = 0; c < row.weights.size();) {
              for (double& own : kept) {
                double part = 0;
                for (std::int64_t k = 0; k < tile && c < row.weights.size(); ++k) part += row.weights[c++];
                own = quant::round_to(type, own + part);
              }
            }
            double all = 0;
            for (const double own : kept) all += own;
            return all / row.sum;
          };
          if (!sums_are(left, sum)) continue;
          return softmax_.probs + ": the sum of exponentials is kept in " + std::string(name(type)) + ": rounded after every " +
                 (tile == 1 ? "" : std::to_string(tile) + " ") + "column" + (tile == 1 ? "" : "s") +
                 (lanes == 1 ? "" : ", by each of " + std::to_string(lanes) + " threads that take turns");
        }
    return std::nullopt;
  }

  std::optional<std::string> own_maxima() {
    std::vector<Shares> all = residues(softmax_.columns, {32, 64, 128, 256, 512, 1024});
    for (Shares& shares : tiles(softmax_.columns, {1024, 512, 256, 128, 64, 32, 16})) all.push_back(std::move(shares));
    for (Shares& shares : shares_of_threads(softmax_.columns)) all.push_back(std::move(shares));
    for (const Shares& shares : all) {
      numbers_.clear();
      bool fits = true;
      for (std::size_t r = 0; r < rows_.size() && fits; ++r) fits = row_below(r, shares);
      if (!fits) continue;
      return softmax_.probs + ": each share of a row is taken below its own maximum, which is never brought to the row's: that of " +
             shares.of + "k for each k";
    }
    return std::nullopt;
  }

  /// Whether outputs with these numbers pass.
  std::optional<Explanation> verified(const std::string& words, const NamedTensors& actual, const JudgeOptions& options) const {
    const ReferenceOutput& said = *call_.golden.reference.find(softmax_.probs);
    if (numbers_.size() != said.exact.size()) return std::nullopt;
    std::vector<double> slack = said.slack;
    constexpr double of_numbers = 0x1p-18;
    for (std::size_t i = 0; i < slack.size(); ++i)
      slack[i] = (said.exact[i] > 0 ? slack[i] * std::fabs(numbers_[i]) / said.exact[i] : slack[i]) + of_numbers * std::fabs(numbers_[i]);
    GoldenRun run = call_.golden;
    fault_tools::put_numbers(run, softmax_.probs, numbers_, slack);
    const Verdict other = judge(call_.op, call_.inputs, run, actual, options);
    if (other.outcome != Outcome::pass) return std::nullopt;
    Explanation found{"softmax-told", words};
    found.outputs.push_back(softmax_.probs);
    found.complete = true;
    return found;
  }

 private:
  double given(std::size_t r, std::size_t c) const {
    return quant::get(actual_, static_cast<std::int64_t>(r) * softmax_.columns + static_cast<std::int64_t>(c));
  }
  /// Of columns of each kind that are large enough to tell by, what golden's are multiplied with; nothing where they differ.
  std::optional<std::map<std::int64_t, double>> common_factor(std::size_t r, const std::function<std::int64_t(std::int64_t)>& kind) const {
    constexpr double small = 1e-6, alike = 1e-4;
    const SoftmaxRow& row = rows_[r];
    std::map<std::int64_t, double> factors;
    for (std::size_t c = 0; c < row.weights.size(); ++c) {
      if (row.weights[c] < small) continue;
      const double factor = given(r, c) * row.sum / row.weights[c];
      if (!(factor > 0) || !std::isfinite(factor)) return std::nullopt;
      const auto [its, first] = factors.emplace(kind(static_cast<std::int64_t>(c)), factor);
      if (!first && std::fabs(its->second - factor) > alike * factor) return std::nullopt;
    }
    if (factors.empty()) return std::nullopt;
    return factors;
  }
  /// Whether each row is divided by what its sum is expected to be taken for, in parts of it; the numbers that this gives are kept.
  bool sums_are(const std::vector<double>& left, const std::function<double(std::size_t)>& expected) {
    for (std::size_t r = 0; r < rows_.size(); ++r)
      if (const double part = expected(r); !(std::fabs(left[r] - part) <= 1e-5 * (1 + part))) return false;
    numbers_.clear();
    for (std::size_t r = 0; r < rows_.size(); ++r)
      for (const double weight : rows_[r].weights) numbers_.push_back(weight / (rows_[r].sum * left[r]));
    return true;
  }
  static double sum_of_own(const SoftmaxRow& row, const Shares& shares, const std::vector<double>& parts) {
    std::vector<double> most(parts.size(), -std::numeric_limits<double>::infinity());
    for (std::size_t c = 0; c < row.scores.size(); ++c) {
      double& its = most[static_cast<std::size_t>(shares.owner(static_cast<std::int64_t>(c)))];
      its = std::max(its, row.scores[c]);
    }
    double sum = 0;
    for (std::size_t k = 0; k < parts.size(); ++k)
      if (std::isfinite(most[k])) sum += parts[k] * std::exp(row.most - most[k]);
    return sum;
  }
  static std::vector<double> parts_of(const SoftmaxRow& row, const Shares& shares) {
    std::vector<double> parts(static_cast<std::size_t>(shares.count));
    for (std::size_t c = 0; c < row.weights.size(); ++c)
      parts[static_cast<std::size_t>(shares.owner(static_cast<std::int64_t>(c)))] += row.weights[c];
    return parts;
  }
  /// The row's numbers with maxima of shares, where one factor makes them the given ones.
  bool row_below(std::size_t r, const Shares& shares) {
    if (!common_factor(r, shares.owner)) return false;
    const SoftmaxRow& row = rows_[r];
    std::vector<double> most(static_cast<std::size_t>(shares.count), -std::numeric_limits<double>::infinity());
    for (std::size_t c = 0; c < row.scores.size(); ++c) {
      double& its = most[static_cast<std::size_t>(shares.owner(static_cast<std::int64_t>(c)))];
      its = std::max(its, row.scores[c]);
    }
    double factor = 0;
    std::vector<double> terms;
    for (std::size_t c = 0; c < row.scores.size(); ++c) {
      terms.push_back(std::exp(row.scores[c] - most[static_cast<std::size_t>(shares.owner(static_cast<std::int64_t>(c)))]));
      if (terms.back() == 1 && factor == 0) factor = given(r, c);
    }
    for (std::size_t c = 0; c < terms.size(); ++c) {
      numbers_.push_back(terms[c] * factor);
      if (terms[c] > 1e-5 && std::fabs(numbers_.back() - given(r, c)) > 1e-3 * std::fabs(given(r, c))) return false;
    }
    return true;
  }

  const FaultCase& call_;
  const Softmax& softmax_;
  const Tensor& actual_;
  std::vector<SoftmaxRow> rows_;
  std::vector<double> numbers_;
};

}  // namespace

std::optional<Explanation> softmax_told(const FaultCase& call, const NamedTensors& actual, const Verdict&, const JudgeOptions& options) {
  const auto softmax = softmax_of(call);
  if (!softmax || softmax->logarithm) return std::nullopt;
  const Tensor* const given = find(actual, softmax->probs);
  if (given == nullptr || given->dtype() != DType::f32) return std::nullopt;
  Told told(call, *softmax, *given);
  if (!told.read()) return std::nullopt;
  if (const auto words = told.other_sum())
    if (auto found = told.verified(*words, actual, options)) return found;
  if (const auto words = told.own_maxima()) return told.verified(*words, actual, options);
  return std::nullopt;
}

}  // namespace dodona::oracle
