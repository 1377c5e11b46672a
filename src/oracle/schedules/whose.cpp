#include "oracle/schedules/whose.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "core/storage.h"
#include "core/threads.h"
#include "dodona/error.h"
#include "io/sha256.h"
#include "io/stopwatch.h"
#include "oracle/cases/case_file.h"
#include "oracle/cases/generate.h"
#include "oracle/cases/window.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

/// Elements that tell most schedules apart: a rounding to bf16 hides all but every two hundredth of the differences between two orders.
constexpr std::int64_t first_elements = 8192;
/// Calls whose schedules together cost less than so many operations are compared whole at once.
constexpr double cheap = 4e9;
/// More schedules than this are first told apart on a call of a few elements: many are the same sums on several machines.
constexpr std::size_t few_schedules = 64;
/// Elements that show differences in the last bit of fp32 behind a rounding to 16 bits.
constexpr std::int64_t many_elements = 1 << 17;
/// Groups of schedules of which it is said how often they differ.
constexpr std::size_t most_told = 8;

/// One call and what is held against it.
struct Question {
  const Op& op;
  Arguments inputs;
  NamedTensors actual;
  Reference open;  ///< elements that the contract says nothing of

  std::int64_t elements() const {
    std::int64_t count = 0;
    for (const auto& [name, tensor] : actual) count += tensor.elements();
    return count;
  }
};

bool is_compared(const TensorSpec& spec) {
  return spec.direction != Direction::in && spec.judge != Judge::grouping;
}

std::optional<NamedTensors> outputs_by(const Op& op, const Arguments& inputs, const Schedule& schedule, Exec exec) {
  exec.mode = schedule.mode;
  try {
    Arguments arguments = runnable(op, schedule.of(inputs));
    op.run(arguments, exec);
    return outputs_of(op, arguments);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::out_of_memory) throw;
    return std::nullopt;  // no such schedule for these inputs after all
  }
}

/// Elements compared, and those whose bits differ.
std::pair<std::int64_t, std::int64_t> compare(const Op& op, const NamedTensors& a, const NamedTensors& b, const Reference& open) {
  std::int64_t compared = 0, differing = 0;
  for (const TensorSpec& spec : op.schema().tensors) {
    const Tensor *left = find(a, spec.name), *right = find(b, spec.name);
    if (!is_compared(spec) || left == nullptr || right == nullptr) continue;
    const Tensor x = as_codes(*left, spec.storage), y = as_codes(*right, spec.storage);
    const ReferenceOutput* reference = open.find(spec.name);
    for (std::int64_t i = 0; i < x.elements(); ++i) {
      if (reference != nullptr && !reference->unspecified.empty() && reference->unspecified[static_cast<std::size_t>(i)] != 0) continue;
      ++compared;
      differing += quant::get_bits(x, i) == quant::get_bits(y, i) ? 0 : 1;
    }
  }
  return {compared, differing};
}

Question question_of(const Op& op, Arguments inputs, NamedTensors actual, Exec exec) {
  Question question{op, std::move(inputs), std::move(actual), {}};
  const auto& specs = op.schema().tensors;
  if (std::none_of(specs.begin(), specs.end(), [](const TensorSpec& spec) { return spec.direction != Direction::in && spec.padded; }))
    return question;
  exec.mode = Mode::golden;
  Arguments arguments = runnable(op, question.inputs);
  op.reference(arguments, exec, question.open);
  return question;
}

double operations(const Op& op, const Arguments& inputs) {
  Arguments arguments = runnable(op, inputs);
  return op.cost(arguments).flops;
}

/// The first rows, as many as leave at most `most` elements of the outputs; empty where the call is no larger.
Window first_rows(const Question& question, std::int64_t most) {
  Window window;
  std::int64_t elements = question.elements();
  for (const std::string& symbol : question.op.schema().properties.rows_independent) {
    const std::int64_t rows = rows_along(question.op, question.inputs, symbol);
    if (elements <= most || rows < 2) continue;
    const std::int64_t kept = std::clamp<std::int64_t>(most / std::max<std::int64_t>(elements / rows, 1), 1, rows);
    window.push_back({symbol, 0, kept});
    elements = elements / rows * kept;
  }
  return window;
}

bool nearer(const Compared& a, const Compared& b) {
  return static_cast<double>(a.differing) * static_cast<double>(b.elements) <
         static_cast<double>(b.differing) * static_cast<double>(a.elements);
}

/// Where the time goes.
class Limit {
 public:
  explicit Limit(double seconds) : seconds_(seconds) {}
  bool up() const { return watch_.seconds() > seconds_; }

 private:
  io::Stopwatch watch_;
  double seconds_;
};

struct Search {
  const WhoseOptions& options;
  Limit clock;
  std::vector<Schedule> candidates;
  std::vector<Compared> others;  ///< that gave other bits

  /// Holds the candidates against a question. Those that give every bit stay, and those that time leaves no room for, which it returns.
  std::vector<Schedule> hold(const Question& question) {
    std::vector<Schedule> equal, untried;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if (clock.up()) {
        untried.assign(candidates.begin() + static_cast<std::ptrdiff_t>(i), candidates.end());
        break;
      }
      if (options.progress) options.progress(i, candidates.size(), name(candidates[i], question.op));
      const auto result = held(question, candidates[i]);
      if (!result) continue;
      result->differing == 0 && result->elements > 0 ? equal.push_back(candidates[i]) : others.push_back(*result);
    }
    candidates = std::move(equal);
    candidates.insert(candidates.end(), untried.begin(), untried.end());
    return untried;
  }

  /// The nearest of the others, held against more elements than those that told them.
  void hold_nearest(const Question& question) {
    constexpr std::size_t few = 8;
    std::stable_sort(others.begin(), others.end(), nearer);
    for (std::size_t i = 0; i < std::min(few, others.size()) && !clock.up(); ++i)
      if (others[i].elements < question.elements())
        if (const auto result = held(question, others[i].schedule)) others[i] = *result;
    std::stable_sort(others.begin(), others.end(), nearer);
  }

 private:
  std::optional<Compared> held(const Question& question, const Schedule& schedule) const {
    const auto outputs = outputs_by(question.op, question.inputs, schedule, options.exec);
    if (!outputs) return std::nullopt;
    check_outputs(question.op, *outputs, question.actual);
    const auto [compared, differing] = compare(question.op, *outputs, question.actual, question.open);
    return Compared{schedule, compared, differing};
  }
};

// ---- inputs that may tell what those of the question do not

bool is_free(const TensorSpec& spec, const Tensor& tensor) {
  const bool numbers = spec.role == Role::values || spec.role == Role::weight || spec.role == Role::logits || spec.role == Role::scale;
  return spec.direction != Direction::out && numbers && spec.kin.empty() && !spec.storage.code && tensor.defined() &&
         is_float(tensor.dtype());
}

Arguments other_inputs(const Op& op, const Arguments& inputs, const std::string& dist, std::uint64_t seed, int threads) {
  Arguments other = inputs;
  for (auto& [name, tensor] : other.tensors) {
    const TensorSpec* spec = op.schema().find_tensor(name);
    if (spec == nullptr || !is_free(*spec, tensor)) continue;
    const Tensor drawn(tensor.dtype(), tensor.shape());
    fill(drawn, spec->role, 0, dist, seed, name, threads);
    const Tensor strided = tensor.contiguous() ? drawn : make_strided(tensor.dtype(), tensor.shape(), tensor.strides());
    if (!tensor.contiguous()) copy(drawn, strided);
    tensor = strided;
  }
  return other;
}

/// The call with outputs of the finest types that it accepts, which round away least.
Arguments with_finest_outputs(const Op& op, Arguments inputs) {
  for (const TensorSpec& spec : op.schema().tensors) {
    const AttrSpec* attr = spec.dtype_attr.empty() || spec.direction == Direction::in ? nullptr : op.schema().find_attr(spec.dtype_attr);
    if (attr == nullptr || inputs.find(spec.name) != nullptr) continue;
    const auto coarser = [](DType a, DType b) { return quant::ulp(a, 1.0) > quant::ulp(b, 1.0); };
    if (!attr->dtypes.empty()) inputs.set_attr(attr->name, *std::max_element(attr->dtypes.begin(), attr->dtypes.end(), coarser));
  }
  return inputs;
}

/// An axis of an input that counts what products are summed over, or blocks of it.
struct SummedAxis {
  std::string tensor;
  int axis;
  bool blocks;
};

/// Of the size that two inputs share and no output has: `K`, with `K/128`.
std::vector<SummedAxis> summed_axes(const Op& op, const Arguments& inputs, const NamedTensors& outputs) {
  std::map<std::string, std::vector<SummedAxis>> axes;
  std::set<std::string> written;
  for (const TensorSpec& spec : op.schema().tensors) {
    const bool input = spec.direction == Direction::in;
    const Tensor* tensor = input ? inputs.find(spec.name) : find(outputs, spec.name);
    if (tensor == nullptr || !tensor->defined()) continue;
    const std::vector<std::string> dims = dims_of(spec.shape, tensor->rank());
    for (std::size_t i = 0; i < dims.size(); ++i) {
      const std::string symbol = dims[i].substr(0, dims[i].find('/'));
      if (!input) written.insert(symbol);
      if (input && is_free(spec, *tensor)) axes[symbol].push_back({spec.name, static_cast<int>(i), symbol != dims[i]});
    }
  }
  for (const auto& [symbol, found] : axes) {
    const auto whole = std::count_if(found.begin(), found.end(), [](const SummedAxis& axis) { return !axis.blocks; });
    if (whole == 2 && !written.contains(symbol)) return found;
  }
  return {};
}

/// Sums that come to nearly nothing, so that their outputs are what was lost on the way: element K-1-k of the one operand is that of k, of
/// the other its opposite; scales of blocks likewise are equal.
void make_sums_cancel(const Op& op, const Arguments& inputs, const NamedTensors& outputs) {
  bool opposite = true;
  for (const auto& [name, axis, blocks] : summed_axes(op, inputs, outputs)) {
    const Tensor& tensor = *inputs.find(name);
    const double sign = opposite && !blocks ? -1 : 1;
    opposite = opposite && blocks;
    for (std::int64_t k = 0; k < tensor.size(axis) / 2; ++k) {
      const Tensor first = tensor.slice(axis, k, k + 1), last = tensor.slice(axis, tensor.size(axis) - 1 - k, tensor.size(axis) - k);
      for (std::int64_t i = 0; i < first.elements(); ++i) quant::set(last, i, sign * quant::get(first, i));
    }
  }
}

// ---- schedules that are one and the same

/// What a schedule makes of inputs that tell most of it.
std::string signature_of(const Op& op, const Schedule& schedule, const std::vector<Arguments>& probes, const Exec& exec) {
  std::string signature;
  for (const Arguments& inputs : probes)
    if (const auto outputs = outputs_by(op, inputs, schedule, exec))
      for (const auto& [name, tensor] : *outputs) signature += io::to_hex(io::tensor_digest(tensor)) + " ";
  return signature;
}

/// Inputs that tell most of a schedule, in a call of this size: sums that cancel, wide exponents, edges.
std::vector<Arguments> probes_of(const Question& question, const Arguments& few, std::size_t count, int threads) {
  constexpr std::array<const char*, 3> dists{"normal", "wide-exponent", "edge"};
  std::vector<Arguments> probes;
  while (probes.size() < count) {
    const char* const dist = dists[probes.size() % dists.size()];
    Arguments inputs = other_inputs(question.op, with_finest_outputs(question.op, few), dist, 1000 + probes.size(), threads);
    if (probes.empty()) make_sums_cancel(question.op, inputs, question.actual);
    probes.push_back(std::move(inputs));
  }
  return probes;
}

using Groups = std::vector<std::vector<Schedule>>;

/// Schedules by what they make of the probes: those that agree there are one answer. `of_machines`: only where they differ in nothing but
/// the machine.
Groups grouped(const Op& op, const std::vector<Schedule>& schedules, const std::vector<Arguments>& probes, Exec exec, bool of_machines) {
  std::vector<std::string> signatures(schedules.size());
  const int threads = exec.threads;
  exec.threads = 1;
  constexpr double work = 1e6;  // more than starting a thread costs
  parallel_for(threads, static_cast<std::int64_t>(schedules.size()), work, [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    signatures[at] = signature_of(op, schedules[at], probes, exec);
    if (of_machines)
      for (const auto& [attr, value] : schedules[at].attrs) signatures[at] += attr + "=" + to_string(value) + " ";
  });
  Groups groups;
  std::map<std::string, std::size_t> known;
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    const auto [at, is_new] = known.emplace(signatures[i], groups.size());
    if (is_new) groups.emplace_back();
    groups[at->second].push_back(schedules[i]);
  }
  return groups;
}

/// Some of each size of the outputs that no sum runs over: so many columns, and in all about so many rows.
Window corner_of(const Question& question, std::int64_t rows, std::int64_t columns) {
  Window window;
  for (const TensorSpec& spec : question.op.schema().tensors) {
    const Tensor* const tensor = find(question.actual, spec.name);
    if (tensor == nullptr) continue;
    std::int64_t left = rows;
    const std::vector<std::string> dims = dims_of(spec.shape, tensor->rank());
    for (std::size_t i = 0; i < dims.size(); ++i) {
      const std::int64_t size = rows_along(question.op, question.inputs, dims[i]),
                         kept = std::min(size, i + 1 == dims.size() ? columns : left);
      if (kept == 0) continue;
      window.push_back({dims[i], 0, kept});
      left = std::max<std::int64_t>(left / kept, 1);
    }
  }
  return window;
}

/// A corner of the outputs, where bits do not depend on how many columns there are: nothing where they do.
std::optional<Question> corner_of(const Question& question, const Schedule& schedule, const Exec& exec) {
  const Window corner = corner_of(question, 16, 64);
  Window rows = corner;
  std::erase_if(rows, [&](const RowRange& range) {
    const auto& independent = question.op.schema().properties.rows_independent;
    return std::find(independent.begin(), independent.end(), range.symbol) == independent.end();
  });
  Question part{question.op, resized(question.op, question.inputs, corner), windowed(question.op, question.actual, corner), {}};
  const auto whole = outputs_by(question.op, windowed(question.op, question.inputs, rows), schedule, exec);
  const auto alone = outputs_by(question.op, part.inputs, schedule, exec);
  if (!whole || !alone || compare(question.op, windowed(question.op, *whole, corner), *alone, {}).second > 0) return std::nullopt;
  return part;
}

/// Where there are many: one schedule on machines that give equal bits in a miniature of the call, of which one alone is held against the
/// outputs.
Groups classes_of(const Question& question, const std::vector<Schedule>& schedules, const Exec& exec) {
  if (schedules.size() > few_schedules) {
    const Arguments miniature = resized(question.op, question.inputs, corner_of(question, 2, 16));
    return grouped(question.op, schedules, probes_of(question, miniature, 2, exec.threads), exec, true);
  }
  Groups groups;
  for (const Schedule& schedule : schedules) groups.push_back({schedule});
  return groups;
}

std::vector<Schedule> first_of_each(const Groups& groups) {
  std::vector<Schedule> firsts;
  for (const auto& group : groups) firsts.push_back(group.front());
  return firsts;
}

const std::vector<Schedule>& class_of(const Groups& classes, const Schedule& representative) {
  return *std::find_if(classes.begin(), classes.end(), [&](const auto& c) { return c.front() == representative; });
}

/// The classes of these representatives, those that more probes do not tell apart in one.
Groups found_of(const Question& question, const Groups& classes, const std::vector<Schedule>& equal, const Exec& exec) {
  if (equal.empty()) return {};
  Groups groups{equal};
  if (equal.size() > 1) {
    // Without sums over K there is nothing that cancels, and calls are cheap: the elements must be many.
    const bool sums = !summed_axes(question.op, question.inputs, question.actual).empty();
    const Arguments few = windowed(question.op, question.inputs, first_rows(question, sums ? 1024 : many_elements));
    const std::int64_t count =
        sums ? 3 : std::clamp<std::int64_t>(3 * many_elements / std::max<std::int64_t>(question.elements(), 1), 3, 48);
    groups = grouped(question.op, equal, probes_of(question, few, static_cast<std::size_t>(count), exec.threads), exec, false);
  }
  for (auto& group : groups)
    for (const Schedule& representative : std::vector<Schedule>(group)) {
      const std::vector<Schedule>& same = class_of(classes, representative);
      group.insert(group.end(), same.begin() + 1, same.end());
    }
  return groups;
}

/// Whether all that give the bits are one schedule but for what such outputs hardly show.
bool decided(const Groups& found) {
  const auto coarse = [](Schedule schedule) {
    std::erase_if(schedule.attrs, [](const auto& attr) { return is_fine(attr.first); });
    return schedule;
  };
  const Schedule first = coarse(found.front().front());
  return std::all_of(found.begin(), found.end(), [&](const auto& group) {
    return std::any_of(group.begin(), group.end(), [&](const Schedule& schedule) { return coarse(schedule) == first; });
  });
}

/// How often the groups differ from the first of them: of other inputs, in outputs of the question's own types.
std::vector<Compared> apart(const Question& question, const Groups& found, const Exec& exec) {
  std::vector<Compared> differences;
  if (found.size() < 2) return differences;
  const Arguments few = windowed(question.op, question.inputs, first_rows(question, first_elements));
  const Arguments inputs = other_inputs(question.op, few, "normal", 2000, exec.threads);
  const auto first = outputs_by(question.op, inputs, found.front().front(), exec);
  for (std::size_t i = 1; first && i < std::min(found.size(), most_told); ++i)
    if (const auto other = outputs_by(question.op, inputs, found[i].front(), exec)) {
      const auto [elements, differing] = compare(question.op, *first, *other, {});
      differences.push_back({found[i].front(), elements, differing});
    }
  return differences;
}

}  // namespace

std::string_view name(WhoseAnswer answer) {
  constexpr std::array<std::string_view, 3> names{"named", "unsure", "none"};
  return names[static_cast<std::size_t>(answer)];
}

Whose whose(const Op& op, const Arguments& inputs, const NamedTensors& actual, const WhoseOptions& options) {
  const std::vector<Schedule> schedules = schedules_of(op, inputs);
  Arguments shaped = runnable(op, inputs);
  op.prepare(shaped);
  check_outputs(op, outputs_of(op, shaped), actual);
  const Question whole = question_of(op, inputs, actual, options.exec);
  const Groups classes = classes_of(whole, schedules, options.exec);
  Whose answer;
  answer.op = op.name();
  answer.elements = whole.elements();
  answer.several_machines = gpu_modes(op).size() > 1;
  Search search{options, Limit(options.seconds), first_of_each(classes), {}};

  const auto hold = [&](const Question& part) {
    const std::vector<Schedule> untried = search.hold(part);
    if (answer.tried == 0) {
      // What has not been held against anything is no candidate.
      for (const Schedule& schedule : untried) answer.left += static_cast<int>(class_of(classes, schedule).size());
      search.candidates.resize(search.candidates.size() - untried.size());
      answer.tried = static_cast<int>(schedules.size()) - answer.left;
    }
    if (untried.empty() || answer.compared == 0) answer.compared = part.elements();
  };

  // A corner or a few rows first, where all of it would take long.
  if (search.candidates.size() > few_schedules)
    if (const auto corner = corner_of(whole, search.candidates.front(), options.exec)) hold(*corner);
  Window window;
  if (operations(op, inputs) * static_cast<double>(search.candidates.size()) > cheap) window = first_rows(whole, first_elements);
  const Question part = window.empty() ? whole : question_of(op, windowed(op, inputs, window), windowed(op, actual, window), options.exec);
  if (answer.tried == 0 || !search.candidates.empty()) hold(part);
  if (!window.empty() && !search.candidates.empty()) hold(whole);

  answer.found = found_of(part, classes, search.candidates, options.exec);
  answer.apart = apart(whole, answer.found, options.exec);
  if (!answer.found.empty()) search.hold_nearest(part);
  answer.others = std::move(search.others);
  const bool complete = answer.left == 0 && answer.compared == answer.elements;
  answer.answer = answer.found.empty()                ? (answer.left > 0 ? WhoseAnswer::unsure : WhoseAnswer::none)
                  : complete && decided(answer.found) ? WhoseAnswer::named
                                                      : WhoseAnswer::unsure;
  return answer;
}

}  // namespace dodona::oracle
