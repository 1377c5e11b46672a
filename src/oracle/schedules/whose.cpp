#include "oracle/schedules/whose.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <set>

#include "core/storage.h"
#include "dodona/error.h"
#include "io/sha256.h"
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

/// Where the time goes.
class Clock {
 public:
  explicit Clock(double seconds) : seconds_(seconds) {}
  bool up() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count() > seconds_; }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double seconds_;
};

struct Search {
  const WhoseOptions& options;
  Clock clock;
  int left = 0;

  /// Holds every schedule against the question; those that time leaves no room for are left out.
  std::vector<Compared> compare_all(const Question& question, const std::vector<Schedule>& schedules) {
    std::vector<Compared> results;
    for (std::size_t i = 0; i < schedules.size(); ++i) {
      if (clock.up()) {
        left = static_cast<int>(schedules.size() - i);
        break;
      }
      if (options.progress) options.progress(i, schedules.size(), name(schedules[i]));
      const auto outputs = outputs_by(question.op, question.inputs, schedules[i], options.exec);
      if (!outputs) continue;
      check_outputs(question.op, *outputs, question.actual);
      const auto [compared, differing] = compare(question.op, *outputs, question.actual, question.open);
      results.push_back({schedules[i], compared, differing});
    }
    return results;
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

/// What a schedule makes of inputs that tell most of it, in few rows.
std::string signature_of(const Question& question, const Schedule& schedule, const std::vector<Arguments>& probes, const Exec& exec) {
  std::string signature;
  for (const Arguments& inputs : probes)
    if (const auto outputs = outputs_by(question.op, inputs, schedule, exec))
      for (const auto& [name, tensor] : *outputs) signature += io::to_hex(io::tensor_digest(tensor)) + " ";
  return signature;
}

std::vector<Arguments> probes_of(const Question& question, const Exec& exec) {
  std::vector<Arguments> probes;
  const Arguments few = windowed(question.op, question.inputs, first_rows(question, 1024));
  for (const char* const dist : {"normal", "wide-exponent", "edge"}) {
    Arguments inputs = other_inputs(question.op, with_finest_outputs(question.op, few), dist, 1000 + probes.size(), exec.threads);
    if (probes.empty()) make_sums_cancel(question.op, inputs, question.actual);
    probes.push_back(std::move(inputs));
  }
  return probes;
}

/// Schedules by what they make of other inputs: those that agree there are one answer.
std::vector<std::vector<Schedule>> grouped(const Question& question, const std::vector<Schedule>& schedules, const Exec& exec) {
  if (schedules.empty()) return {};
  if (schedules.size() == 1) return {schedules};
  const std::vector<Arguments> probes = probes_of(question, exec);
  std::vector<std::vector<Schedule>> groups;
  std::map<std::string, std::size_t> known;
  for (const Schedule& schedule : schedules) {
    const auto [at, is_new] = known.emplace(signature_of(question, schedule, probes, exec), groups.size());
    if (is_new) groups.emplace_back();
    groups[at->second].push_back(schedule);
  }
  return groups;
}

std::vector<Schedule> take_equal(std::vector<Compared>& results) {
  std::vector<Schedule> equal;
  for (const Compared& result : results)
    if (result.differing == 0 && result.elements > 0) equal.push_back(result.schedule);
  std::erase_if(results, [](const Compared& result) { return result.differing == 0 && result.elements > 0; });
  return equal;
}

}  // namespace

std::string_view name(WhoseAnswer answer) {
  constexpr std::array<std::string_view, 3> names{"named", "unsure", "none"};
  return names[static_cast<std::size_t>(answer)];
}

Whose whose(const Op& op, const Arguments& inputs, const NamedTensors& actual, const WhoseOptions& options) {
  const std::vector<Schedule> schedules = schedules_of(op, inputs);
  const Question whole = question_of(op, inputs, actual, options.exec);
  Whose answer;
  answer.op = op.name();
  answer.elements = whole.elements();
  answer.several_machines = gpu_modes(op).size() > 1;
  Search search{options, Clock(options.seconds)};

  // A few rows first, where all of it would take long.
  const double cost = operations(op, inputs) * static_cast<double>(schedules.size());
  const Window window = cost > cheap ? first_rows(whole, first_elements) : Window{};
  const Question part = window.empty() ? whole : question_of(op, windowed(op, inputs, window), windowed(op, actual, window), options.exec);
  std::vector<Compared> results = search.compare_all(part, schedules);
  answer.tried = static_cast<int>(schedules.size()) - search.left;
  answer.left = search.left;
  answer.compared = part.elements();
  std::vector<Schedule> equal = take_equal(results);
  if (!window.empty() && !equal.empty()) {
    std::vector<Compared> again = search.compare_all(whole, equal);
    // What the time did not suffice for stays a candidate, on the rows that were compared.
    const std::vector<Schedule> untried(equal.end() - search.left, equal.end());
    if (untried.empty()) answer.compared = whole.elements();
    equal = take_equal(again);
    equal.insert(equal.end(), untried.begin(), untried.end());
    results.insert(results.end(), again.begin(), again.end());
  }
  answer.found = grouped(part, equal, options.exec);
  std::stable_sort(results.begin(), results.end(), [](const Compared& a, const Compared& b) {
    return static_cast<double>(a.differing) * static_cast<double>(b.elements) <
           static_cast<double>(b.differing) * static_cast<double>(a.elements);
  });
  answer.others = std::move(results);
  const bool complete = answer.left == 0 && answer.compared == answer.elements;
  answer.answer = answer.found.empty()                   ? (answer.left > 0 ? WhoseAnswer::unsure : WhoseAnswer::none)
                  : answer.found.size() == 1 && complete ? WhoseAnswer::named
                                                         : WhoseAnswer::unsure;
  return answer;
}

}  // namespace dodona::oracle
