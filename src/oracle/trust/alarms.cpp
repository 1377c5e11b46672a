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
#include "oracle/cases/generate.h"
#include "oracle/judge/judge.h"

namespace dodona::oracle {
namespace {

constexpr std::array<const char*, 6> distributions{"normal", "uniform", "outliers", "wide-exponent", "ties", "edge"};
constexpr int attempts = 30;          // at a combination that the op takes
constexpr int attempts_at_sizes = 6;  // then the op's own sizes, with other seeds

/// Numbers in the order in which they are asked for.
class Draws {
 public:
  Draws(std::uint64_t seed, const Op& op, int index, int attempt)
      : stream_(seed, "alarms/" + std::string(op.name()) + "/" + std::to_string(index) + "/" + std::to_string(attempt)) {}
  std::uint64_t below(std::uint64_t n) { return integer_below(stream_, next_++, n); }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  double unit() { return static_cast<double>(uniform(stream_, 2 * (std::uint64_t{1} << 20) + next_++)); }

 private:
  Stream stream_;
  std::uint64_t next_ = 0;
};

/// Small sizes are as likely as large ones: uniform in the logarithm, up to that of the op's own line.
std::int64_t drawn_size(Draws& draws, const OpSchema& schema, const std::string& symbol, std::int64_t own) {
  const auto spec = std::find_if(schema.symbols.begin(), schema.symbols.end(), [&](const SymbolSpec& s) { return s.name == symbol; });
  const SymbolSpec rules = spec != schema.symbols.end() ? *spec : SymbolSpec{};
  if (!rules.choices.empty()) return rules.choices[draws.below(rules.choices.size())];
  const double units = static_cast<double>(own) / static_cast<double>(rules.multiple_of);
  const auto count = static_cast<std::int64_t>(fixed::exp(draws.unit() * fixed::log(units + 1.0)));
  return std::clamp(std::max<std::int64_t>(1, count) * rules.multiple_of, std::max<std::int64_t>(rules.minimum, 1), rules.maximum);
}

void draw_attributes(Draws& draws, const OpSchema& schema, CaseLine& line) {
  for (const AttrSpec& spec : schema.attrs) {
    if ((spec.ignored && !spec.recipe) || !draws.one_in(2)) continue;
    if (!spec.choices.empty()) line.attrs.set_attr(spec.name, spec.choices[draws.below(spec.choices.size())]);
    if (!spec.dtypes.empty()) line.attrs.set_attr(spec.name, std::string(name(spec.dtypes[draws.below(spec.dtypes.size())])));
    if (std::holds_alternative<bool>(spec.default_value)) line.attrs.set_attr(spec.name, draws.one_in(2));
  }
}

void draw_types(Draws& draws, const OpSchema& schema, CaseLine& line) {
  for (const TensorSpec& spec : schema.tensors)
    if (spec.direction != Direction::out && spec.dtypes.size() > 1 && draws.one_in(2))
      line.dtypes[spec.name] = spec.dtypes[draws.below(spec.dtypes.size())];
}

/// Optional inputs that the line has are left out, and those that it lacks are asked for.
void draw_presence(Draws& draws, const OpSchema& schema, CaseLine& line) {
  for (const TensorSpec& spec : schema.tensors) {
    if (!spec.optional || spec.direction != Direction::in || !draws.one_in(4)) continue;
    const bool asked = line.with.erase(spec.name) + line.without.count(spec.name) > 0;
    if (!asked) (spec.on_request ? line.with : line.without).insert(spec.name);
  }
}

/// The inputs of a line, or nothing when the op refuses them.
std::optional<Arguments> inputs_of(const Op& op, const CaseLine& line) {
  try {
    Arguments inputs = generate(line);
    Arguments probe = runnable(op, inputs);
    op.prepare(probe);
    return inputs;
  } catch (const Error&) {
    return std::nullopt;
  }
}

CaseLine drawn_line(const Op& op, std::uint64_t seed, int index, int attempt) {
  Draws draws(seed, op, index, attempt);
  const auto own = static_cast<std::size_t>(index) / distributions.size() % op.cases().size();
  CaseLine line = parse_case_line(std::string(op.name()) + " " + op.cases()[own]);
  line.dist = distributions[static_cast<std::size_t>(index) % distributions.size()];
  line.seed = draws.below(1000000);
  if (attempt >= attempts_at_sizes) return line;
  for (auto& [symbol, size] : line.symbols)
    if (!draws.one_in(4)) size = drawn_size(draws, op.schema(), symbol, size);
  // Later attempts ask for less.
  if (attempt < 4) draw_types(draws, op.schema(), line);
  if (attempt < 2) draw_attributes(draws, op.schema(), line);
  if (attempt < 2) draw_presence(draws, op.schema(), line);
  return line;
}

struct GeneratedCase {
  CaseLine line;
  Arguments inputs;
};

GeneratedCase generated_case(const Op& op, std::uint64_t seed, int index) {
  for (int attempt = 0; attempt < attempts; ++attempt) {
    CaseLine line = drawn_line(op, seed, index, attempt);
    if (auto inputs = inputs_of(op, line)) return {std::move(line), std::move(*inputs)};
  }
  CaseLine line = parse_case_line(std::string(op.name()) + " " + op.cases().front());
  Arguments inputs = generate(line);
  return {std::move(line), std::move(inputs)};
}

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
void judge_case(const Op& op, const GeneratedCase& c, const Exec& exec, Alarms& found) {
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

double elements_of(const Op& op) {
  const CaseLine line = parse_case_line(std::string(op.name()) + " " + op.cases().front());
  double elements = 1;
  for (const InputPlan& input : plan_inputs(line)) elements += static_cast<double>(element_count(input.shape));
  return elements;
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
  return generated_case(op, seed, index).line;
}

std::vector<int> share_out(int total) {
  std::vector<double> weights;
  double sum = 0;
  for (const auto& op : registry().all()) {
    weights.push_back(std::min(1.0, 0x1p19 / elements_of(*op)));
    sum += weights.back();
  }
  // Every op has a case of each distribution, however large its cases are.
  const int least = std::min(total, static_cast<int>(distributions.size()));
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
      judge_case(op, generated_case(op, seed, static_cast<int>(i)), single, found[at]);
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
