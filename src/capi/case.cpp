// Cases and verdicts, from C.
#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>

#include "capi/guard.h"
#include "capi/translate.h"
#include "core/case_line.h"
#include "dodona/error.h"
#include "io/json.h"
#include "oracle/cases/generate.h"
#include "oracle/cases/make_case.h"
#include "oracle/faults/variants.h"
#include "oracle/judge/actual.h"
#include "oracle/report/check.h"
#include "oracle/report/report.h"
#include "oracle/report/report_text.h"
#include "oracle/schedules/whose.h"

struct dodona_case {
  dodona::oracle::Case content;
  dodona_tensors inputs, recorded;
  std::string attrs;
  /// Golden mode's answer, once somebody has asked for it. It does not depend on threads or instruction sets.
  mutable std::mutex mutex;
  mutable std::shared_ptr<const dodona::oracle::GoldenRun> golden;
};

struct dodona_verdict {
  dodona::oracle::CheckResult result;
  std::string text, json;
  mutable std::once_flag drawn;
  mutable std::string html;
};

struct dodona_whose {
  std::string text, json;
};

namespace dodona::capi {
namespace {

io::Json value_json(const AttrValue& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return *whole;
  if (const auto* real = std::get_if<double>(&value)) return *real;
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  return to_string(value);
}

dodona_case* handle_of(oracle::Case content) {
  auto made = std::make_unique<dodona_case>();
  made->inputs.list = content.inputs.tensors;
  made->recorded.list = content.outputs;
  io::Json attrs = io::Json::object();
  for (const auto& [name, value] : content.inputs.attrs) attrs[name] = value_json(value);
  made->attrs = io::json_text(attrs);
  made->content = std::move(content);
  return made.release();
}

oracle::Case from_line(const char* text, const Exec& exec) {
  const CaseLine line = parse_case_line(text);
  oracle::Case c;
  c.op = &registry().at(line.op);
  c.line = to_string(line);
  c.name = c.line;
  c.contract_version = c.op->contract_version();
  c.inputs = oracle::generate(line, exec.threads);
  return c;
}

/// Whoever made the inputs may change or free them while the case lives. Layouts are kept: ops ask for them.
Tensor kept(const Tensor& tensor) {
  if (tensor.contiguous()) return tensor.clone();
  Tensor copied = make_strided(tensor.dtype(), tensor.shape(), tensor.strides());
  // What lies in the gaps too: a kernel may have read it.
  std::memcpy(copied.data(), tensor.data(), static_cast<std::size_t>(tensor.extent_bytes()));
  return copied;
}

oracle::Case from_call(const char* name, const dodona_tensor* inputs, std::size_t input_count, const dodona_attr* attrs,
                       std::size_t attr_count) {
  oracle::Case c;
  c.op = &registry().at(&required(name, "op"));
  c.name = std::string(c.op->name()) + " (inputs of the caller)";
  c.contract_version = c.op->contract_version();
  c.inputs = to_arguments(*c.op, inputs, input_count, attrs, attr_count);
  // The call is checked as it stands: what a copy would heal must still be told.
  Arguments probe = c.inputs;
  for (const auto& [argument, tensor] : c.inputs.tensors) {
    const TensorSpec* spec = c.op->schema().find_tensor(argument);
    if (spec != nullptr && spec->direction != Direction::in) probe.set(argument, kept(tensor));
  }
  c.op->prepare(probe);
  for (auto& entry : c.inputs.tensors) entry.second = kept(entry.second);
  return c;
}

std::shared_ptr<const oracle::GoldenRun> golden_of(const dodona_case& c, const Exec& exec) {
  const std::lock_guard lock(c.mutex);
  if (!c.golden) c.golden = std::make_shared<const oracle::GoldenRun>(oracle::run_variant(c.content, exec));
  return c.golden;
}

/// Outputs to judge, by the op's own names; unknown ones are refused here, missing ones by the judge.
oracle::NamedTensors actual_outputs(const dodona_case& c, const dodona_tensor* actual, std::size_t count) {
  const Op& op = *c.content.op;
  oracle::NamedTensors outputs = to_tensors(op.name(), actual, count);
  const auto expected = oracle::expected_outputs(op, c.content.inputs);
  for (auto& [name, tensor] : outputs) {
    if (std::none_of(expected.begin(), expected.end(), [&name = name](const auto& output) { return output.name == name; })) {
      std::string known;
      for (const auto& output : expected) known += (known.empty() ? "" : ", ") + output.name;
      throw Error(ErrorCode::unknown_argument, std::string(op.name()), name, "is no output of this call; they are " + known);
    }
    tensor = tensor.clone();  // the verdict outlives the caller's memory
  }
  return outputs;
}

dodona_verdict* check(const dodona_case& c, const dodona_tensor* actual, std::size_t count, const dodona_exec* exec, double explain_seconds,
                      const oracle::Sample& sample = {}) {
  const Exec how = to_exec(exec, Mode::golden);
  const oracle::NamedTensors outputs = actual_outputs(c, actual, count);
  auto verdict = std::make_unique<dodona_verdict>();
  const Mode mode = of_a_gpu(how.mode) ? how.mode : Mode::golden;
  const oracle::JudgeOptions options{mode, how};
  const oracle::ExplainOptions explaining{explain_seconds > 0, explain_seconds};
  verdict->result = sample.rows > 0 ? oracle::check(c.content, outputs, options, explaining, sample)
                                    : oracle::check(c.content, *golden_of(c, how), outputs, options, explaining);
  verdict->text = oracle::report_text(verdict->result);
  verdict->json = io::json_text(oracle::to_json(verdict->result));
  return verdict.release();
}

dodona_whose* whose(const dodona_case& c, const dodona_tensor* actual, std::size_t count, const dodona_exec* exec, double seconds) {
  const oracle::Whose answer =
      oracle::whose(*c.content.op, c.content.inputs, actual_outputs(c, actual, count), {to_exec(exec, Mode::golden), seconds});
  return new dodona_whose{oracle::text_of(answer), io::json_text(oracle::to_json(answer))};
}

void save(const dodona_case& c, const char* path, bool compact, const Exec& exec) {
  if (c.content.line.empty()) {
    if (compact) throw Error(ErrorCode::unsupported, std::string(c.content.op->name()), "", "a case without a line cannot be compact");
    oracle::Case whole = c.content;
    whole.outputs = golden_of(c, exec)->outputs;
    whole.match = "golden";
    oracle::save_case(whole, path);
    return;
  }
  oracle::save_case(oracle::make_variant_case(parse_case_line(c.content.line), exec, compact), path);
}

}  // namespace
}  // namespace dodona::capi

namespace {
/// Gives `*place` what `make` returns; null when it fails.
template <class Handle, class Make>
int make(Handle** place, Make&& make) {
  return dodona::capi::guarded([&] {
    dodona::capi::required(place, "the place for the result") = nullptr;
    *place = make();
  });
}
}  // namespace

using dodona::Mode;
using dodona::capi::required;
using dodona::capi::to_exec;

int dodona_case_from_line(const char* line, const dodona_exec* exec, dodona_case** made) {
  return make(made, [&] { return dodona::capi::handle_of(dodona::capi::from_line(&required(line, "line"), to_exec(exec))); });
}

int dodona_case_from_call(const char* op, const dodona_tensor* inputs, std::size_t input_count, const dodona_attr* attrs,
                          std::size_t attr_count, dodona_case** made) {
  return make(made, [&] { return dodona::capi::handle_of(dodona::capi::from_call(op, inputs, input_count, attrs, attr_count)); });
}

int dodona_case_load(const char* path, const dodona_exec* exec, dodona_case** made) {
  return make(made, [&] {
    const dodona::Exec how = to_exec(exec);
    dodona::oracle::Case c = dodona::oracle::load_case(&required(path, "path"), how.threads);
    dodona::oracle::complete(c, how);
    return dodona::capi::handle_of(std::move(c));
  });
}

int dodona_case_save(const dodona_case* c, const char* path, int compact, const dodona_exec* exec) {
  return dodona::capi::guarded(
      [&] { dodona::capi::save(required(c, "case"), &required(path, "path"), compact != 0, to_exec(exec, Mode::golden)); });
}

void dodona_case_free(dodona_case* c) {
  delete c;
}

const char* dodona_case_op(const dodona_case* c) {
  return c == nullptr ? nullptr : c->content.op->name().data();
}
const char* dodona_case_line(const dodona_case* c) {
  return c == nullptr ? nullptr : c->content.line.c_str();
}
const char* dodona_case_attrs(const dodona_case* c) {
  return c == nullptr ? nullptr : c->attrs.c_str();
}
const dodona_tensors* dodona_case_inputs(const dodona_case* c) {
  return c == nullptr ? nullptr : &c->inputs;
}
const dodona_tensors* dodona_case_recorded(const dodona_case* c) {
  return c == nullptr ? nullptr : &c->recorded;
}

int dodona_case_run(const dodona_case* c, const dodona_exec* exec, dodona_tensors** outputs) {
  return make(outputs, [&] {
    const auto& content = required(c, "case").content;
    dodona::Arguments arguments = dodona::oracle::runnable(*content.op, content.inputs);
    content.op->run(arguments, to_exec(exec));
    auto made = std::make_unique<dodona_tensors>();
    // Views of an argument are told by their values: the argument may be gone before the handle is.
    for (auto& [name, tensor] : dodona::oracle::outputs_of(*content.op, arguments))
      made->list.emplace_back(name, tensor.owner() ? tensor : tensor.clone());
    return made.release();
  });
}

int dodona_case_check(const dodona_case* c, const dodona_tensor* actual, std::size_t actual_count, const dodona_exec* exec,
                      dodona_verdict** verdict) {
  return dodona_case_explain(c, actual, actual_count, exec, 0, verdict);
}

int dodona_case_explain(const dodona_case* c, const dodona_tensor* actual, std::size_t actual_count, const dodona_exec* exec,
                        double seconds, dodona_verdict** verdict) {
  return make(verdict, [&] { return dodona::capi::check(required(c, "case"), actual, actual_count, exec, seconds); });
}

int dodona_case_sample(const dodona_case* c, const dodona_tensor* actual, std::size_t actual_count, const dodona_exec* exec, size_t rows,
                       size_t seed, dodona_verdict** verdict) {
  return make(verdict, [&] {
    if (rows < 1) throw dodona::Error(dodona::ErrorCode::bad_option, "", "rows", "must be at least 1, got " + std::to_string(rows));
    return dodona::capi::check(required(c, "case"), actual, actual_count, exec, 0, {static_cast<std::int64_t>(rows), seed});
  });
}

int dodona_case_whose(const dodona_case* c, const dodona_tensor* actual, std::size_t actual_count, const dodona_exec* exec, double seconds,
                      dodona_whose** answer) {
  return make(answer, [&] { return dodona::capi::whose(required(c, "case"), actual, actual_count, exec, seconds); });
}
const char* dodona_whose_text(const dodona_whose* answer) {
  return answer == nullptr ? "" : answer->text.c_str();
}
const char* dodona_whose_json(const dodona_whose* answer) {
  return answer == nullptr ? "" : answer->json.c_str();
}
void dodona_whose_free(dodona_whose* answer) {
  delete answer;
}

int dodona_verdict_outcome(const dodona_verdict* verdict) {
  return verdict == nullptr ? DODONA_FAIL : static_cast<int>(verdict->result.outcome);
}
int dodona_verdict_passes(const dodona_verdict* verdict) {
  const int outcome = dodona_verdict_outcome(verdict);
  return outcome == DODONA_PASS || outcome == DODONA_KNOWN_DEFECT ? 1 : 0;
}
const char* dodona_verdict_text(const dodona_verdict* verdict) {
  return verdict == nullptr ? "" : verdict->text.c_str();
}
const char* dodona_verdict_json(const dodona_verdict* verdict) {
  return verdict == nullptr ? "" : verdict->json.c_str();
}
const char* dodona_verdict_html(const dodona_verdict* verdict) {
  if (verdict == nullptr) return "";
  dodona::capi::guarded([&] { std::call_once(verdict->drawn, [&] { verdict->html = dodona::oracle::html_page(verdict->result); }); });
  return verdict->html.c_str();
}
void dodona_verdict_free(dodona_verdict* verdict) {
  delete verdict;
}
