#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/case_line.h"
#include "dodona/error.h"
#include "oracle/cases/generate.h"
#include "oracle/cases/make_case.h"
#include "oracle/cases/window.h"
#include "oracle/judge/actual.h"
#include "oracle/schedules/whose.h"
#include "tools/common.h"
#include "tools/ptx_launch.h"

namespace dodona::tools {
namespace {

struct WhoseOptions : ExecOptions {
  std::string case_text, outputs;
  std::vector<std::string> window;
  double seconds = 60;
  bool ops = false;
  PtxLaunchOptions ptx;
};

int exit_code_of(oracle::WhoseAnswer answer) {
  return answer == oracle::WhoseAnswer::named ? exit_pass : exit_fail;
}

int list_ops() {
  for (const oracle::Variety& variety : oracle::varieties()) fmt::print("{:<40} {}\n", variety.op, fmt::join(variety.by, ", "));
  return exit_pass;
}

/// A kernel's PTX, run on the case: whether its outputs are those in question, and how one element of them was made.
struct PtxAnswer {
  std::string kernel, element, expression;
  struct Output {
    std::string name;
    std::int64_t elements = 0, differing = 0, first = -1;
  };
  std::vector<Output> outputs;
  bool same() const {
    return std::all_of(outputs.begin(), outputs.end(), [](const Output& o) { return o.differing == 0; });
  }
};

PtxAnswer::Output compared(const std::string& name, const Tensor& made, const Tensor& given) {
  if (made.dtype() != given.dtype() || made.elements() != given.elements())
    throw Error(ErrorCode::bad_option, "", "--arg", "'" + name + "' has another type or size than the output of that name");
  PtxAnswer::Output output{name, made.elements()};
  const auto size = static_cast<std::size_t>(std::max(bits(made.dtype()) / 8, 1));
  const auto *const here = static_cast<const std::byte*>(made.data()), *const there = static_cast<const std::byte*>(given.data());
  const std::int64_t pieces = made.elements() * bits(made.dtype()) / 8 / static_cast<std::int64_t>(size);
  for (std::int64_t k = 0; k < pieces; ++k) {
    const std::size_t at = static_cast<std::size_t>(k) * size;
    if (std::memcmp(here + at, there + at, size) == 0) continue;
    if (output.differing++ == 0) output.first = k;
  }
  return output;
}

PtxAnswer ask_ptx(PtxLaunchOptions options, const oracle::Case& c, const oracle::NamedTensors& actual, int threads) {
  PtxLaunch p = prepare(options, c, threads);
  PtxAnswer answer;
  answer.kernel = p.kernel;
  p.module->launch(p.kernel, p.launch);
  for (const auto& [name, given] : actual)
    for (const auto& [made_name, made] : p.memory)
      if (name == made_name) answer.outputs.push_back(compared(name, made, given));
  if (answer.outputs.empty())
    throw Error(ErrorCode::bad_option, "", "--arg", "names no output: the memory of one is called as the output is, NAME=DTYPE[SIZES]");
  if (options.element.empty()) {
    const auto differs = std::find_if(answer.outputs.begin(), answer.outputs.end(), [](const auto& o) { return o.differing > 0; });
    const PtxAnswer::Output& o = differs == answer.outputs.end() ? answer.outputs.front() : *differs;
    options.element = o.name + "[" + std::to_string(std::max<std::int64_t>(o.first, 0)) + "]";
  }
  answer.element = options.element;
  // Fresh memory and inputs once more: the launch has written into these.
  p = prepare(options, c, threads);
  answer.expression = p.module->trace(p.kernel, p.launch, element_of(options, p)).expression;
  return answer;
}

std::string text_of(const PtxAnswer& answer) {
  std::string text;
  for (const PtxAnswer::Output& o : answer.outputs)
    text += o.differing == 0 ? fmt::format("{} (PTX) gives every bit of {}: {} elements\n", answer.kernel, o.name, o.elements)
                             : fmt::format("{} (PTX) gives other bits in {} of {} elements of {}, the first at [{}]\n", answer.kernel,
                                           o.differing, o.elements, o.name, o.first);
  return text + answer.element + " by this kernel:\n" + answer.expression;
}
io::Json to_json(const PtxAnswer& answer) {
  io::Json outputs = io::Json::array();
  for (const PtxAnswer::Output& o : answer.outputs)
    outputs.push_back({{"name", o.name}, {"elements", o.elements}, {"differing", o.differing}, {"first", o.first}});
  return {{"kernel", answer.kernel}, {"outputs", outputs}, {"element", answer.element}, {"expression", answer.expression}};
}

bool has_schedules(const Op& op) {
  const auto varieties = oracle::varieties();
  return std::any_of(varieties.begin(), varieties.end(), [&](const oracle::Variety& v) { return v.op == op.name(); });
}

int whose(const WhoseOptions& options) {
  if (options.ops) return list_ops();
  if (options.case_text.empty()) throw Error(ErrorCode::bad_option, "", "CASE", "is missing: a case file, or a case line in quotes");
  const Exec exec = options.exec(Mode::golden);
  oracle::Case c = inputs_of(options.case_text, exec.threads);
  std::string window;
  for (const std::string& range : options.window) window += range + " ";
  c.inputs = oracle::windowed(*c.op, c.inputs, oracle::parse_window(window));
  const oracle::NamedTensors actual = options.outputs.empty() ? c.outputs : oracle::load_actual(options.outputs, *c.op, c.inputs);
  if (actual.empty())
    throw Error(ErrorCode::bad_file, std::string(c.op->name()), options.case_text, "holds no outputs, and no file of them is given");
  std::optional<PtxAnswer> ptx;
  if (!options.ptx.file.empty()) ptx = ask_ptx(options.ptx, c, actual, exec.threads);
  if (ptx && !has_schedules(*c.op)) {
    fmt::print("{}{}", options.json ? io::json_text({{"op", c.op->name()}, {"ptx", to_json(*ptx)}}, 2) : text_of(*ptx),
               options.json ? "\n" : "");
    return ptx->same() ? exit_pass : exit_fail;
  }
  Progress progress(options.json || options.quiet);
  const oracle::Whose answer = oracle::whose(
      *c.op, c.inputs, actual,
      {exec, options.seconds, [&](std::size_t done, std::size_t total, const std::string& what) { progress.step(done, total, what); }});
  progress.finish();
  if (options.json) {
    io::Json json = oracle::to_json(answer);
    if (ptx) json["ptx"] = to_json(*ptx);
    fmt::print("{}\n", io::json_text(json, 2));
  } else {
    fmt::print("{}{}\n{}", oracle::text_of(answer), oracle::name(answer.answer), ptx ? text_of(*ptx) : "");
  }
  return ptx && ptx->same() ? exit_pass : exit_code_of(answer.answer);
}

}  // namespace

void add_whose(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<WhoseOptions>();
  auto* command = app.add_subcommand("whose", "Which kernel made these numbers? Tries every schedule of the op, bit by bit");
  command->add_option("CASE", options->case_text, "A case file, or a case line in quotes: the inputs that the kernel was given");
  command->add_option("OUTPUTS", options->outputs,
                      "What it gave, as for `dodona check`; without it the outputs in the case file are asked about");
  command->add_option("--window", options->window,
                      "OUTPUTS holds these rows of the call alone: T=0..8 (repeatable; sizes that `dodona info OP` calls independent)");
  command->add_option("--seconds", options->seconds, "How long to look")->capture_default_str()->check(not_below_zero());
  options->add_threads_and_isa(*command);
  options->add_json(*command);
  command->add_flag("-q,--quiet", options->quiet, "No progress");
  command->add_option(
      "--ptx", options->ptx.file,
      "A kernel's PTX: it is run on the case's inputs, held against OUTPUTS, and the order of arithmetic behind one element is "
      "written out (--element; otherwise the first that differs); its launch is given as to `dodona ptx`");
  options->ptx.add_file_options(*command);
  options->ptx.add_launch_options(*command);
  command->add_flag("--ops", options->ops, "Name the ops with more than one schedule and what those differ in, and exit");
  command->footer(
      "A schedule is a value for each recipe attribute that the op leaves to its kernel (`dodona info OP`: split_k, chunk_order, "
      "accumulator,\n"
      "kernel...) in a mode whose bits are a GPU's; --ops lists the ops that have several. Exit code 0: one schedule gives every bit (or "
      "several\n"
      "that no inputs tell apart, or that differ in chunk_order alone, which a rounding to 16 bits hides); 1: none does, or these outputs "
      "do not\n"
      "tell several apart, and the answer says which and how many elements might; 2: bad input, or an op with one schedule only.\n"
      "With --ptx: 0 too where that kernel gives every bit.\n"
      "That no schedule gives the bits accuses nobody: the kernel may be one that is not known here.");
  command->callback([options, &exit_code] { exit_code = whose(*options); });
}

}  // namespace dodona::tools
