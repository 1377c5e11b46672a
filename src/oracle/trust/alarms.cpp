#include "oracle/trust/alarms.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <set>

#include "core/call.h"
#include "core/fixed_math.h"
#include "core/random.h"
#include "core/threads.h"
#include "dodona/error.h"
#include "oracle/alternatives/alternative.h"
#include "oracle/cases/drawn_case.h"
#include "oracle/cases/generate.h"
#include "oracle/judge/judge.h"

namespace dodona::oracle {
namespace {

const Kept kept{.specials = true};

std::optional<NamedTensors> outputs_in(const Op& op, const Arguments& inputs, Mode mode, Exec exec) {
  Arguments arguments = runnable(op, inputs);
  if (!op.supports(arguments, mode)) return std::nullopt;
  exec.mode = mode;
  op.run(arguments, exec);
  return outputs_of(op, arguments);
}

std::optional<NamedTensors> outputs_otherwise(const Op& op, const Arguments& inputs, Way way) {
  if (!has_alternative(op.name())) return std::nullopt;
  Arguments arguments = runnable(op, inputs);
  op.prepare(arguments);
  if (!compute_otherwise(op, arguments, way)) return std::nullopt;
  return outputs_of(op, arguments);
}

/// What one case adds.
void judge_case(const Op& op, const DrawnCase& c, const Exec& exec, Alarms& found) {
  const GoldenRun golden = run_golden(op, c.inputs, exec);
  const std::string line = to_string(c.line);
  bool vacuous = false;
  const auto judged = [&](Producer producer, const std::optional<NamedTensors>& outputs) {
    if (!outputs) return;
    const Verdict verdict = judge(op, c.inputs, golden, *outputs, {Mode::golden, exec});
    ProducerTally& tally = found.tallies[static_cast<std::size_t>(producer)];
    ++tally.outputs;
    if (verdict.max_share() > tally.max_share) tally.max_share = verdict.max_share(), tally.line = line;
    vacuous = vacuous || verdict.outcome == Outcome::vacuous;
    for (const OutputVerdict& output : verdict.outputs)
      if (output.outcome == Outcome::fail)
        found.false_alarms.push_back({producer, line, output.name, output.pattern, output.worst.empty() ? 0.0 : output.worst[0].share});
  };
  judged(Producer::fast, outputs_in(op, c.inputs, Mode::fast, exec));
  judged(Producer::plain, outputs_otherwise(op, c.inputs, Way::reversed));
  judged(Producer::plain, outputs_otherwise(op, c.inputs, Way::strided));
  judged(Producer::tensor_core, outputs_otherwise(op, c.inputs, Way::tensor_core));
  judged(Producer::hopper, outputs_in(op, c.inputs, Mode::hopper, exec));
  judged(Producer::blackwell, outputs_in(op, c.inputs, Mode::blackwell, exec));
  ++found.cases;
  if (!vacuous) return;
  ++found.vacuous;
  found.vacuous_lines.push_back(line);
}

void add(Alarms& all, const Alarms& one) {
  all.cases += one.cases;
  all.vacuous += one.vacuous;
  all.vacuous_lines.insert(all.vacuous_lines.end(), one.vacuous_lines.begin(), one.vacuous_lines.end());
  all.false_alarms.insert(all.false_alarms.end(), one.false_alarms.begin(), one.false_alarms.end());
  for (std::size_t i = 0; i < producers.size(); ++i) {
    all.tallies[i].outputs += one.tallies[i].outputs;
    if (one.tallies[i].max_share <= all.tallies[i].max_share) continue;
    all.tallies[i].max_share = one.tallies[i].max_share;
    all.tallies[i].line = one.tallies[i].line;
  }
}

}  // namespace

std::string_view name(Producer producer) {
  constexpr std::array<std::string_view, producers.size()> names{"fast mode", "plain fp32", "tensor core", "hopper mode", "blackwell mode"};
  return names[static_cast<std::size_t>(producer)];
}

int Alarms::rejected() const {
  std::set<std::string> lines;
  for (const FalseAlarm& alarm : false_alarms) lines.insert(alarm.line);
  return static_cast<int>(lines.size());
}

double Alarms::max_share() const {
  double share = 0;
  for (const ProducerTally& tally : tallies) share = std::max(share, tally.max_share);
  return share;
}

CaseLine alarm_case(const Op& op, std::uint64_t seed, int index) {
  return drawn_case(op, seed, index, kept).line;
}

double elements_of(const Op& op) {
  return elements_of(std::string(op.name()) + " " + op.cases().front());
}

std::vector<int> share_out(int total) {
  std::vector<double> weights;
  double sum = 0;
  for (const auto& op : registry().all()) {
    weights.push_back(std::min(1.0, 0x1p19 / elements_of(*op)));
    sum += weights.back();
  }
  // Every op has a case of each distribution, however large its cases are.
  const int least = std::min(total, static_cast<int>(drawn_distributions.size()));
  std::vector<int> counts;
  counts.reserve(weights.size());
  for (const double weight : weights) counts.push_back(std::max(least, static_cast<int>(std::ceil(weight / sum * total))));
  return counts;
}

Alarms raise_alarms(const Op& op, int cases, std::uint64_t seed, const Exec& exec, const std::function<void(int)>& progress) {
  Exec single = exec;
  single.threads = 1;
  std::vector<Alarms> found(static_cast<std::size_t>(cases));
  std::vector<std::string> errors(found.size());
  std::mutex mutex;
  int done = 0;
  parallel_for(exec.threads, cases, 1e6, [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    try {
      judge_case(op, drawn_case(op, seed, static_cast<int>(i), kept), single, found[at]);
    } catch (const Error& error) {
      errors[at] = error.what();
    }
    const std::lock_guard lock(mutex);
    ++done;
    if (progress) progress(done);
  });
  Alarms all;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!errors[i].empty()) throw Error(ErrorCode::bad_value, "", "", errors[i]);
    add(all, found[i]);
  }
  return all;
}

}  // namespace dodona::oracle
