#include "oracle/report/check.h"

#include <algorithm>
#include <optional>

#include "dodona/error.h"
#include "io/sha256.h"
#include "oracle/faults/variants.h"
#include "oracle/judge/terms.h"
#include "oracle/schedules/whose.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

/// Whether golden mode still makes what the case was made with. A new contract is worth a note; else something is not what it says it is.
void compare_with_digest(const Case& c, const OutputVerdict& output, std::vector<std::string>& notes) {
  const auto stored = c.digests.find("out." + output.name);
  if (stored == c.digests.end() || stored->second == io::to_hex(io::tensor_digest(output.detail->expected))) return;
  const int now = c.op->contract_version();
  if (c.contract_version == now)
    throw Error(ErrorCode::bad_file, "", c.path,
                "has a digest of out." + output.name + " that golden mode does not give: the file was changed, or golden mode was");
  notes.push_back("golden's " + output.name + " is not what it was when the case was made: the contract went from version " +
                  std::to_string(c.contract_version) + " to " + std::to_string(now));
}

/// What schedules say of outputs that fail for their bits; empty for ops with one.
std::string whose_bits(const Case& c, const NamedTensors& actual, const Exec& exec) {
  constexpr double seconds = 3;
  try {
    return line_of(whose(*c.op, c.inputs, actual, {exec, seconds}));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return {};
  }
}

/// Rows of a window that fail from one on, which is the first whose offset in some argument is beyond 32 bits.
std::optional<std::string> beyond_32_bits(const Case& c, const std::vector<std::int64_t>& failing, const Dims& shape) {
  const Window window = c.window.empty() && !c.line.empty() ? parse_case_line(c.line).window : c.window;
  if (failing.empty() || shape.rank() < 1 || shape[0] == 0 || window.size() != 1 || shape[0] != window.front().end - window.front().begin)
    return std::nullopt;
  const std::int64_t below = element_count(shape) / shape[0], begin = window.front().begin, first = begin + failing.front() / below;
  std::vector<bool> fails(static_cast<std::size_t>(shape[0]));
  for (const std::int64_t i : failing) fails[static_cast<std::size_t>(i / below)] = true;
  if (std::find(fails.begin() + static_cast<std::ptrdiff_t>(first - begin), fails.end(), false) != fails.end()) return std::nullopt;
  for (const TensorSpec& spec : c.op->schema().tensors) {
    const Tensor* tensor = c.inputs.find(spec.name);
    if (tensor == nullptr) tensor = find(c.outputs, spec.name);
    if (tensor == nullptr || !tensor->defined() || tensor->rank() < 1 || dims_of(spec.shape, tensor->rank()).empty() ||
        dims_of(spec.shape, tensor->rank()).front() != window.front().symbol || tensor->size(0) != shape[0])
      continue;
    const std::int64_t row = tensor->elements() / tensor->size(0);
    for (const int power : {31, 32})
      for (const std::int64_t unit : {std::int64_t{1}, std::int64_t{bits(tensor->dtype())} / 8}) {
        const std::int64_t most = (std::int64_t{1} << power) / std::max<std::int64_t>(unit, 1);
        if (row > 0 && (most + row - 1) / row == first && first > begin)
          return "from row " + std::to_string(first) + " on, where offsets in " + spec.name + " reach 2^" + std::to_string(power) +
                 (unit == 1 ? " elements" : " bytes") + ": an offset of 32 bits overflows";
      }
  }
  return std::nullopt;
}

/// `whole`: golden holds all elements.
CheckResult check_with(const Case& c, const GoldenRun& golden, const NamedTensors& actual, const JudgeOptions& options,
                       const ExplainOptions& explaining, bool whole) {
  if (options.mode != Mode::golden && has_variants(c))
    throw Error(ErrorCode::bad_option, std::string(c.op->name()), "--variant", "is golden mode's: a GPU's bits are those of its kernel");
  CheckResult result;
  result.op = c.op->name();
  result.case_name = c.name;
  result.case_path = c.path;
  result.line = c.line;
  result.contract_version = c.op->contract_version();
  if (const auto known = caveat(options.mode); !known.empty()) result.notes.emplace_back(known);
  JudgeOptions detailed = options;
  detailed.details = true;
  const Verdict verdict = judge(*c.op, c.inputs, golden, actual, detailed);
  result.outcome = verdict.outcome;
  for (const OutputVerdict& output : verdict.outputs) {
    OutputCheck entry;
    entry.verdict = output;
    const Tensor& given = *find(actual, output.name);
    entry.dtype = given.dtype();
    entry.shape = given.shape();
    const OutputDetail& detail = *output.detail;
    entry.statistics = statistics_of(output, options.exec.threads);
    entry.view = logical_view(*c.op, *c.op->schema().find_tensor(output.name), detail.golden.shape(), c.inputs);
    entry.relations = relations_of(detail.failing, detail.golden, detail.actual, detail.exact, entry.view.shape);
    for (std::string& term : terms_of(c.op->schema(), c.inputs, detail.failing, detail.golden, detail.actual, detail.exact))
      entry.relations.insert(entry.relations.begin(), std::move(term));
    if (auto outside = outside_of(c.op->schema(), c.inputs, detail.failing, detail.golden, detail.actual))
      entry.relations.insert(entry.relations.begin(), std::move(*outside));
    for (std::string& owner : owners_of(c.op->schema(), c.inputs, detail.failing, entry.view.shape))
      entry.relations.insert(entry.relations.begin(), std::move(owner));
    if (auto overflow = beyond_32_bits(c, detail.failing, entry.view.shape))
      entry.relations.insert(entry.relations.begin(), std::move(*overflow));
    // Where bits of a GPU are asked for, `expected` holds those.
    if (options.mode == Mode::golden && whole) compare_with_digest(c, output, result.notes);
    result.outputs.push_back(std::move(entry));
  }
  if (options.mode != Mode::golden && result.outcome == Outcome::fail) result.whose = whose_bits(c, actual, options.exec);
  if (explaining.on && result.outcome == Outcome::fail)
    result.explained = explain(c, golden, actual, verdict, options, explaining.seconds, explaining.progress);
  return result;
}

}  // namespace

CheckResult check(const Case& c, const NamedTensors& actual, const JudgeOptions& options, const ExplainOptions& explaining,
                  const Sample& sample) {
  if (has_variants(c)) {
    if (sample.rows > 0)
      throw Error(ErrorCode::bad_option, std::string(c.op->name()), "--variant", "is judged in all rows: without --sample");
    return check_with(c, run_variant(c, options.exec), actual, options, explaining, true);
  }
  const SampledGolden some = run_golden(*c.op, c.inputs, options.exec, sample);
  CheckResult result = check_with(c, some.golden, actual, options, explaining, some.taken.empty());
  for (OutputCheck& output : result.outputs) output.sample = text_of(some.taken, output.verdict.name, sample);
  return result;
}

CheckResult check(const Case& c, const GoldenRun& golden, const NamedTensors& actual, const JudgeOptions& options,
                  const ExplainOptions& explaining) {
  return check_with(c, golden, actual, options, explaining, true);
}

namespace {

/// Of one element or two many mistakes are the cause, as far as anyone can tell.
std::string doubt_about(const CheckResult& result) {
  std::int64_t failing = 0;
  bool all_nan = true;
  for (const OutputCheck& output : result.outputs) {
    failing += output.verdict.failing;
    const bool nan = output.relations.size() == 1 && output.relations.front().starts_with("NaN where");
    all_nan = all_nan && (output.verdict.failing == 0 || nan);
  }
  if (all_nan) return "perhaps, for NaN alone fails: ";
  return failing > 2 ? "" : "perhaps, for " + std::string(failing == 1 ? "one element alone fails" : "two elements alone fail") + ": ";
}

}  // namespace

std::string likely_cause(const CheckResult& result) {
  if (result.outcome != Outcome::fail) return {};
  if (result.explained)
    for (const Explanation& e : result.explained->found)
      if (e.complete && e.narrow) return doubt_about(result) + e.text;
  // A mistake made with the outputs that fail alone.
  if (result.explained)
    for (const Explanation& e : result.explained->found)
      if (e.of_all_failing) {
        std::string names;
        for (const std::string& output : e.outputs) names += (names.empty() ? "" : ", ") + output;
        return "of " + names + " alone: " + e.text;
      }
  // Or in the place that fails alone: with one tile, one request.
  if (result.explained)
    for (const Explanation& e : result.explained->found)
      if (!e.part.empty()) return "in " + e.part + ", alone: " + e.text;
  // A rounding that fell the other way now and then leaves a few.
  std::int64_t failing = 0;
  for (const OutputCheck& output : result.outputs) failing += output.verdict.failing;
  const auto leaves_one_in = [&](std::int64_t share) -> std::string {
    if (result.explained)
      for (const Explanation& e : result.explained->found)
        if (!e.complete && share * e.failing < failing)
          return "consistent with, but for " + std::to_string(e.failing) + " of the " + std::to_string(failing) +
                 " elements that fail: " + e.text;
    return {};
  };
  if (std::string most = leaves_one_in(20); !most.empty()) return most;
  // What follows from another output says less than what is wrong with that one.
  const auto follows = [](const OutputCheck& output) {
    return !output.relations.empty() && output.relations.front().starts_with("golden's own");
  };
  const bool another = std::any_of(result.outputs.begin(), result.outputs.end(),
                                   [&](const OutputCheck& output) { return output.verdict.failing > 0 && !follows(output); });
  for (const OutputCheck& output : result.outputs)
    if (output.verdict.failing > 0 && !output.relations.empty() && !(another && follows(output))) {
      const std::string &relation = output.relations.front(), &place = output.verdict.pattern;
      // What says where by itself has no need of the place.
      const bool says_where = (relation.find("rows") != std::string::npos && !relation.starts_with("shifted")) ||
                              relation.find("first at") != std::string::npos || relation.find("groups") != std::string::npos ||
                              place == "every element";
      // Whose rows fail, and then what they hold.
      const bool whose = (relation.starts_with("exactly the") || relation.starts_with("only group")) && output.relations.size() >= 2;
      return output.verdict.name + ": " + relation + (whose ? ": " + output.relations[1] : says_where ? "" : "; " + place);
    }
  if (result.explained)
    for (const Explanation& e : result.explained->found)
      if (e.complete) return doubt_about(result) + e.text;
  // What leaves a tenth says more than that it fails here and there.
  const bool nowhere = std::all_of(result.outputs.begin(), result.outputs.end(), [](const OutputCheck& output) {
    const std::string& place = output.verdict.pattern;
    return output.verdict.failing == 0 || place.starts_with("scattered") || place.starts_with("sporadic");
  });
  if (std::string most = leaves_one_in(10); nowhere && !most.empty()) return most;
  for (const OutputCheck& output : result.outputs)
    if (output.verdict.failing > 0 && !(another && follows(output))) return output.verdict.name + ": fails at " + output.verdict.pattern;
  return {};
}

std::string compared_as(const OutputCheck& output) {
  const Tensor& golden = output.verdict.detail->golden;
  if (golden.dtype() == output.dtype) return {};
  return ", compared as " + std::string(name(golden.dtype())) + " codes " + to_string(golden.shape());
}

std::int64_t ulps_of(const OutputVerdict& verdict, std::int64_t linear) {
  const OutputDetail& detail = *verdict.detail;
  return ulp_distance(detail.golden.dtype(), quant::get_bits(detail.golden, linear), quant::get_bits(detail.actual, linear));
}

}  // namespace dodona::oracle
