#include "oracle/faults/told/rows_of_requests.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "oracle/judge/pattern/index_rules.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

using pattern::IndexRule;

std::vector<std::int64_t> offsets_of(const Tensor& tensor, std::int64_t rows) {
  std::vector<std::int64_t> offsets;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) offsets.push_back(static_cast<std::int64_t>(quant::get(tensor, i)));
  const bool parts =
      offsets.size() >= 2 && offsets.front() == 0 && offsets.back() == rows && std::is_sorted(offsets.begin(), offsets.end());
  return parts ? offsets : std::vector<std::int64_t>{};
}

/// Of each row the row that it holds by the rule; -1: none of its request.
std::vector<std::int64_t> sources(const std::vector<std::int64_t>& offsets, const IndexRule& rule) {
  std::vector<std::int64_t> from;
  for (std::size_t b = 0; b + 1 < offsets.size(); ++b)
    for (std::int64_t row = offsets[b]; row < offsets[b + 1]; ++row) {
      const std::int64_t source = rule.from(row - offsets[b]);
      from.push_back(source >= 0 && offsets[b] + source < offsets[b + 1] ? offsets[b] + source : -1);
    }
  return from;
}

class Rows {
 public:
  Rows(const FaultCase& call, const OutputVerdict& output)
      : call_(call), output_(output), golden_(output.detail->golden), given_(output.detail->actual) {
    rows_ = golden_.size(0);
    width_ = golden_.elements() / rows_;
  }

  /// About as the judge will see it, of a few elements of each row. A row of zeros was not written, or may be any that golden has such.
  bool may_be(const std::vector<std::int64_t>& from) const {
    std::int64_t moved = 0;
    for (std::int64_t row = 0; row < rows_; ++row) {
      const std::int64_t source = from[static_cast<std::size_t>(row)];
      if (source < 0) continue;
      for (std::int64_t c = 0; c < width_; c += std::max<std::int64_t>(1, width_ / 4)) {
        const double a = quant::get(given_, row * width_ + c), g = quant::get(golden_, source * width_ + c);
        const double room = is_float(golden_.dtype()) ? 0.05 * std::fabs(g) + 1e-3 : 0.0;
        if (std::isnan(a) != std::isnan(g) || std::fabs(a - g) > room) return false;
      }
      moved += source != row && !is_zero(row) ? 1 : 0;
    }
    std::int64_t fail = 0, last = -1;
    for (const std::int64_t i : output_.detail->failing)
      if (i / width_ != last) last = i / width_, ++fail;
    return 2 * moved >= fail;
  }

  bool passes(const std::vector<std::int64_t>& from, const NamedTensors& actual, const JudgeOptions& options) const {
    GoldenRun run = call_.golden;
    const Tensor moved = golden_.clone();
    ReferenceOutput& record = run.reference.output(output_.name, golden_.elements());
    const ReferenceOutput before = record;
    record.unspecified.resize(static_cast<std::size_t>(golden_.elements()));
    for (std::int64_t i = 0; i < golden_.elements(); ++i) {
      const std::int64_t source = from[static_cast<std::size_t>(i / width_)];
      const auto at = static_cast<std::size_t>(i);
      if (source < 0) {
        record.unspecified[at] = 1;
        continue;
      }
      const auto there = static_cast<std::size_t>(source * width_ + i % width_);
      quant::set_bits(moved, i, quant::get_bits(golden_, source * width_ + i % width_));
      if (!before.exact.empty()) record.exact[at] = before.exact[there];
      if (!before.slack.empty()) record.slack[at] = before.slack[there];
      record.unspecified[at] = before.unspecified.empty() ? 0 : before.unspecified[there];
    }
    for (auto& [name, tensor] : run.outputs)
      if (name == output_.name) tensor = moved;
    const Verdict other = judge(call_.op, call_.inputs, run, actual, options);
    return other.outcome == Outcome::pass;
  }

 private:
  bool is_zero(std::int64_t row) const {
    for (std::int64_t i = row * width_; i < (row + 1) * width_; ++i)
      if (quant::get(given_, i) != 0) return false;
    return true;
  }

  const FaultCase& call_;
  const OutputVerdict& output_;
  const Tensor &golden_, &given_;
  std::int64_t rows_ = 0, width_ = 1;
};

}  // namespace

std::optional<Explanation> rows_of_requests(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                            const JudgeOptions& options) {
  for (const OutputVerdict& output : verdict.outputs) {
    if (output.failing == 0 || output.detail == nullptr || output.failing != verdict.failing()) continue;
    const Tensor& golden = output.detail->golden;
    constexpr std::int64_t most_elements = std::int64_t{1} << 24;
    const TensorSpec& spec = *call.op.schema().find_tensor(output.name);
    if (golden.rank() < 1 || golden.size(0) < 4 || golden.elements() == 0 || golden.elements() > most_elements ||
        spec.direction != Direction::out || (spec.judge != Judge::exact && spec.judge != Judge::budget))
      continue;
    const Rows rows(call, output);
    for (const TensorSpec& input : call.op.schema().tensors) {
      const Tensor* const tensor = call.inputs.find(input.name);
      if (input.role != Role::indptr || tensor == nullptr || !tensor->defined() || tensor->rank() != 1) continue;
      const std::vector<std::int64_t> offsets = offsets_of(*tensor, golden.size(0));
      std::int64_t longest = 0;
      for (std::size_t b = 0; b + 1 < offsets.size(); ++b) longest = std::max(longest, offsets[b + 1] - offsets[b]);
      if (longest < 4) continue;
      for (const IndexRule& rule : pattern::index_rules(longest)) {
        const std::vector<std::int64_t> from = sources(offsets, rule);
        if (!rows.may_be(from) || !rows.passes(from, actual, options)) continue;
        Explanation found{"rows-of-requests-elsewhere",
                          output.name + ": of each request, by " + input.name + ", row i holds what is golden's for row " + rule.words};
        found.outputs.push_back(output.name);
        found.complete = true;
        return found;
      }
    }
  }
  return std::nullopt;
}

}  // namespace dodona::oracle
