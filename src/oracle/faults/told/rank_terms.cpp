#include "oracle/faults/told/rank_terms.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "oracle/faults/rewritten.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

/// What stands in the place of a rank's term; nothing where it is taken from nowhere.
struct Instead {
  std::string words;
  std::function<std::optional<double>(std::int64_t rank, std::int64_t element)> term;
};

class RankTerms {
 public:
  RankTerms(const FaultCase& call, const OutputVerdict& output, const ReferenceOutput& said, const std::string& name, const Tensor& terms)
      : call_(call), output_(output), given_(output.detail->actual), said_(said), name_(name), terms_(terms) {
    elements_ = given_.elements();
    ranks_ = terms.elements() / elements_;
    width_ = given_.size(-1);
  }

  /// Whether the output is nothing but the sum.
  bool is_sum() const {
    for (std::int64_t i = 0; i < elements_; i += std::max<std::int64_t>(1, elements_ / 64)) {
      double sum = 0, magnitude = 0;
      for (std::int64_t r = 0; r < ranks_; ++r) sum += term(r, i), magnitude += std::fabs(term(r, i));
      if (!(std::fabs(sum - said_.exact[static_cast<std::size_t>(i)]) <= 1e-5 * magnitude)) return false;
    }
    return true;
  }

  std::optional<Explanation> explanation(const NamedTensors& actual, const JudgeOptions& options) const {
    constexpr std::size_t enough = 16;
    if (output_.detail->failing.size() < enough) return std::nullopt;
    for (const Instead& instead : all())
      for (std::int64_t r = 0; r < ranks_; ++r)
        if (fits(r, instead))
          if (auto found = verified(r, instead, actual, options)) return found;
    return std::nullopt;
  }

 private:
  double term(std::int64_t rank, std::int64_t element) const { return quant::get(terms_, rank * elements_ + element); }

  std::vector<Instead> all() const {
    std::vector<Instead> found;
    for (std::int64_t other = 0; other < ranks_; ++other)
      found.push_back({"those of rank " + std::to_string(other) + " at the same place", [=, this](std::int64_t rank, std::int64_t i) {
                         return rank == other ? std::nullopt : std::optional(term(other, i));
                       }});
    found.push_back({"the sums of all ranks, which are stored there afterwards",
                     [this](std::int64_t, std::int64_t i) { return std::optional(said_.exact[static_cast<std::size_t>(i)]); }});
    const auto at = [&](std::int64_t step, const std::string& far) {
      for (const std::int64_t sign : {1, -1})
        found.push_back({"its own " + far + (sign > 0 ? " further on" : " before"), [=, this](std::int64_t rank, std::int64_t i) {
                           const std::int64_t from = i + sign * step;
                           return from >= 0 && from < elements_ ? std::optional(term(rank, from)) : std::nullopt;
                         }});
    };
    for (std::int64_t chunk = 16; chunk < elements_; chunk *= 2)
      for (const std::int64_t chunks : {1, 3}) at(chunks * chunk, std::to_string(chunks * chunk) + " elements");
    for (const std::int64_t rows : {1, 2, 4}) at(rows * width_, std::to_string(rows) + (rows == 1 ? " row" : " rows"));
    return found;
  }
  double with(std::int64_t rank, std::int64_t i, double other) const {
    return said_.exact[static_cast<std::size_t>(i)] - term(rank, i) + other;
  }
  bool fits(std::int64_t rank, const Instead& instead) const {
    for (const std::int64_t i : output_.detail->failing) {
      const auto other = instead.term(rank, i);
      if (!other) return false;
      const double expected = with(rank, i, *other), is = quant::get(given_, i);
      const double room = quant::ulp(given_.dtype(), is) + 2 * said_.slack[static_cast<std::size_t>(i)] + 1e-6 * std::fabs(*other);
      if (!(std::fabs(is - expected) <= room)) return false;
    }
    return true;
  }
  std::optional<Explanation> verified(std::int64_t rank, const Instead& instead, const NamedTensors& actual,
                                      const JudgeOptions& options) const {
    std::vector<double> exact = said_.exact, slack = said_.slack;
    for (const std::int64_t i : output_.detail->failing) {
      const auto at = static_cast<std::size_t>(i);
      const double other = *instead.term(rank, i);
      exact[at] = with(rank, i, other);
      slack[at] = 2 * slack[at] + 0x1p-20 * (std::fabs(other) + std::fabs(exact[at]));
    }
    GoldenRun run = call_.golden;
    put_numbers(run, output_.name, exact, slack);
    if (judge(call_.op, call_.inputs, run, actual, options).outcome != Outcome::pass) return std::nullopt;
    Explanation found{"terms-of-a-rank",
                      output_.name + ": in the place of the terms of " + name_ + " of rank " + std::to_string(rank) + " stand " +
                          instead.words +
                          ": as where its buffer is filled anew before all have read it; where it fails: " + output_.pattern};
    found.outputs.push_back(output_.name);
    found.complete = true;
    return found;
  }

  const FaultCase& call_;
  const OutputVerdict& output_;
  const Tensor& given_;
  const ReferenceOutput& said_;
  const std::string& name_;
  const Tensor& terms_;
  std::int64_t elements_ = 0, ranks_ = 0, width_ = 1;
};

}  // namespace

std::optional<Explanation> rank_terms(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                      const JudgeOptions& options) {
  if (call.op.info().category != Category::utility) return std::nullopt;
  const FaultSite site{call};
  for (const OutputVerdict& output : verdict.outputs) {
    if (output.failing == 0 || output.detail == nullptr || output.failing != verdict.failing()) continue;
    const Tensor& given = output.detail->actual;
    const ReferenceOutput* const said = kept_exactly(site, output.name, given);
    if (said == nullptr || !is_float(given.dtype()) || given.rank() < 1 || given.elements() == 0 || find(actual, output.name) == nullptr)
      continue;
    for (const TensorSpec& spec : call.op.schema().tensors) {
      const Tensor* const terms = call.inputs.find(spec.name);
      if (spec.direction != Direction::in || terms == nullptr || !terms->defined() || !is_float(terms->dtype()) || !terms->contiguous() ||
          terms->elements() < 2 * given.elements() || terms->elements() % given.elements() != 0)
        continue;
      const RankTerms told(call, output, *said, spec.name, *terms);
      if (!told.is_sum()) continue;
      if (auto found = told.explanation(actual, options)) return found;
    }
  }
  return std::nullopt;
}

}  // namespace dodona::oracle
