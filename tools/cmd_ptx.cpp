#include "cmd_ptx.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common.h"
#include "dodona/error.h"
#include "dodona/ptx.h"
#include "io/safetensors.h"
#include "oracle/cases/case_file.h"
#include "oracle/cases/generate.h"

namespace dodona::tools {
namespace {

struct PtxOptions : ExecOptions {
  std::string action, file, kernel, race = "auto", uninit = "auto", contract = "off", output, element;
  std::vector<std::string> case_words, arguments;
  std::vector<std::uint32_t> grid{1}, block;
  std::size_t shared = 0;
  std::uint64_t limit = 20'000'000, findings = 32, terms = 4096;
  int depth = 0;
};

std::string read_text(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw Error(ErrorCode::bad_file, "", path, "cannot be read");
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

ptx::Dim3 dim(const std::vector<std::uint32_t>& sizes, ptx::Dim3 otherwise) {
  if (sizes.empty()) return otherwise;
  return {sizes[0], sizes.size() > 1 ? sizes[1] : 1, sizes.size() > 2 ? sizes[2] : 1};
}

ptx::Check check(const std::string& word) {
  return word == "on" ? ptx::Check::on : word == "off" ? ptx::Check::off : ptx::Check::automatic;
}

[[noreturn]] void bad_argument(const std::string& text, const std::string& what) {
  throw Error(ErrorCode::bad_option, "", "--arg", "'" + text + "' " + what);
}

/// A number of --arg as the parameter's bytes.
ptx::Argument number_of(const std::string& text, const ptx::Parameter& parameter) {
  const std::string& type = parameter.type;
  const char *const begin = text.data(), *const end = begin + text.size();
  if (type == "f32" || type == "f64" || text.find_first_of(".") != std::string::npos || text == "inf" || text == "nan") {
    double value = 0;
    const auto [stop, error] = std::from_chars(begin, end, value);
    if (error != std::errc() || stop != end) bad_argument(text, "is no number");
    if (parameter.bytes == 8) return ptx::value(value);
    if (parameter.bytes == 4) return ptx::value(static_cast<float>(value));
    bad_argument(text, "is a float, parameter " + parameter.name + " has " + std::to_string(parameter.bytes) + " bytes");
  }
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || stop != end) bad_argument(text, "is neither an argument of the case, nor a number, nor DTYPE[sizes]");
  if (parameter.bytes > 8)
    bad_argument(text, "is a number, parameter " + parameter.name + " has " + std::to_string(parameter.bytes) + " bytes");
  ptx::Argument argument;
  argument.value.resize(parameter.bytes);
  std::memcpy(argument.value.data(), &value, parameter.bytes);
  return argument;
}

/// `NAME=f32[4,8]`: fresh memory, zeros.
std::optional<Tensor> fresh_memory(const std::string& text, std::string& name) {
  const std::size_t equals = text.find('='), open = text.find('[');
  if (equals == std::string::npos || open == std::string::npos || open < equals || text.back() != ']') return std::nullopt;
  name = text.substr(0, equals);
  const auto dtype = parse_dtype(text.substr(equals + 1, open - equals - 1));
  if (!dtype) bad_argument(text, "names no element type");
  std::vector<std::int64_t> shape;
  std::stringstream sizes(text.substr(open + 1, text.size() - open - 2));
  for (std::string size; std::getline(sizes, size, ',');) {
    std::int64_t n = -1;
    const auto [stop, error] = std::from_chars(size.data(), size.data() + size.size(), n);
    if (error != std::errc() || stop != size.data() + size.size() || n < 0) bad_argument(text, "has a size that is none");
    shape.push_back(n);
  }
  if (shape.size() > static_cast<std::size_t>(max_rank)) bad_argument(text, "has more dimensions than a tensor may have");
  return Tensor(*dtype, Dims(std::span<const std::int64_t>(shape)));
}

std::size_t bytes_of(const Tensor& t) {
  return static_cast<std::size_t>((t.elements() * bits(t.dtype()) + 7) / 8);
}

struct Prepared {
  std::shared_ptr<ptx::Module> module;
  std::string kernel;
  ptx::Launch launch;
  NamedTensors memory;  ///< what the launch reads and writes, by the names of --arg
};

Prepared prepare(const PtxOptions& options) {
  Prepared p;
  p.module = std::make_shared<ptx::Module>(read_text(options.file), std::filesystem::path(options.file).filename().string());
  const ptx::Kernel& kernel = p.module->kernel(options.kernel);
  p.kernel = kernel.name;
  const Exec exec = options.exec();
  oracle::Case c;
  if (!options.case_words.empty()) {
    std::string text;
    for (const std::string& word : options.case_words) text += (text.empty() ? "" : " ") + word;
    if (std::filesystem::exists(text)) {
      c = oracle::load_case(text, exec.threads);
    } else {
      const CaseLine line = parse_case_line(text);
      c.op = &registry().at(line.op);
      c.inputs = oracle::generate(line, exec.threads);
    }
  }
  std::size_t parameter = 0;
  for (const std::string& text : options.arguments) {
    std::string name;
    if (text.starts_with("in.")) {
      name = text.substr(3);
      const auto& inputs = c.inputs.tensors;
      const auto found = std::find_if(inputs.begin(), inputs.end(), [&](const auto& input) { return input.first == name; });
      if (found == inputs.end()) bad_argument(text, "is no input of the case");
      p.memory.emplace_back(name, found->second.clone());
    } else if (auto fresh = fresh_memory(text, name)) {
      p.memory.emplace_back(name, std::move(*fresh));
    } else {
      if (parameter >= kernel.parameters.size())
        bad_argument(text, "is one too many: the kernel has " + std::to_string(kernel.parameters.size()) + " parameters");
      p.launch.arguments.push_back(number_of(text, kernel.parameters[parameter++]));
      continue;
    }
    ++parameter;
    const Tensor& tensor = p.memory.back().second;
    ptx::Argument argument = ptx::buffer(tensor.data(), bytes_of(tensor));
    argument.uninitialised = !text.starts_with("in.");
    p.launch.arguments.push_back(std::move(argument));
  }
  p.launch.grid = dim(options.grid, {1, 1, 1});
  p.launch.block = dim(options.block, {0, 0, 0});
  p.launch.dynamic_shared = options.shared;
  p.launch.threads = exec.threads;
  p.launch.race = check(options.race);
  p.launch.uninitialised = check(options.uninit);
  p.launch.contract = options.contract == "on";
  p.launch.limit = options.limit;
  p.launch.findings = options.findings;
  return p;
}

io::Json place_json(const ptx::Place& p) {
  return {{"line", p.line}, {"instruction", p.instruction}, {"source", p.source}, {"lane", p.lane}, {"warp", p.warp}};
}

int run(const PtxOptions& options) {
  Prepared p = prepare(options);
  const ptx::Report report = p.module->launch(p.kernel, p.launch);
  if (!options.output.empty()) {
    io::write_safetensors(options.output, p.memory);
  }
  if (options.json) {
    io::Json findings = io::Json::array(), open = io::Json::array();
    for (const ptx::Finding& f : report.findings) {
      io::Json finding = place_json(f.place);
      finding["kind"] = f.kind;
      finding["address"] = f.address;
      finding["count"] = f.count;
      finding["text"] = f.text;
      findings.push_back(std::move(finding));
    }
    for (const ptx::OpenReading& o : report.open) open.push_back({{"line", o.line}, {"text", o.text}});
    fmt::print("{}\n", io::json_text({{"kernel", report.kernel},
                                      {"blocks", report.blocks},
                                      {"lane_instructions", report.lane_instructions},
                                      {"seconds", report.seconds},
                                      {"findings", findings},
                                      {"open", open}},
                                     2));
  } else {
    fmt::print("{}: {} blocks of {} threads, {} instructions of lanes in {:.3g} s\n", report.kernel, report.blocks,
               report.threads_per_block, report.lane_instructions, report.seconds);
    fmt::print("watched for races: {}; for what nobody has written: {}\n", report.race_checked ? "yes" : "no",
               report.uninitialised_checked ? "yes" : "no");
    for (const ptx::OpenReading& o : report.open) fmt::print("open: line {}: {}\n", o.line, o.text);
    for (const ptx::Finding& f : report.findings) fmt::print("{}\n", f.text);
    if (report.findings.empty()) fmt::print("no findings\n");
  }
  return report.findings.empty() ? exit_pass : exit_fail;
}

/// `out[17]`.
ptx::TraceRequest element_of(const PtxOptions& options, const Prepared& p) {
  const std::string& text = options.element;
  const std::size_t open = text.find('[');
  const auto fail = [&](const std::string& what) { throw Error(ErrorCode::bad_option, "", "--element", "'" + text + "' " + what); };
  if (open == std::string::npos || text.back() != ']') fail("is no ARGUMENT[INDEX]");
  std::int64_t index = -1;
  const char *const begin = text.data() + open + 1, *const end = text.data() + text.size() - 1;
  const auto [stop, error] = std::from_chars(begin, end, index);
  ptx::TraceRequest request;
  request.depth = options.depth;
  request.terms = options.terms;
  std::size_t tensor = 0;
  for (std::size_t i = 0; i < p.launch.arguments.size(); ++i) {
    if (p.launch.arguments[i].kind != ptx::Argument::Kind::buffer) continue;
    const auto& [name, memory] = p.memory[tensor++];
    if (name != text.substr(0, open)) continue;
    if (error != std::errc() || stop != end || index < 0 || index >= memory.elements())
      fail("has an index outside of the tensor's " + std::to_string(memory.elements()) + " elements");
    const auto size = static_cast<std::size_t>(std::max(bits(memory.dtype()) / 8, 1));
    request.argument = i;
    request.bytes = size;
    request.offset = static_cast<std::size_t>(index) * static_cast<std::size_t>(bits(memory.dtype())) / 8;
    return request;
  }
  fail("names no argument of this launch");
  return request;
}

int trace(const PtxOptions& options) {
  const Prepared p = prepare(options);
  const ptx::Trace found = p.module->trace(p.kernel, p.launch, element_of(options, p));
  if (options.json) {
    io::Json json = place_json(found.place);
    json["expression"] = found.expression;
    json["nodes"] = found.nodes;
    fmt::print("{}\n", io::json_text(json, 2));
  } else {
    fmt::print("{}", found.expression);
  }
  return exit_pass;
}

int list(const PtxOptions& options) {
  const ptx::Module module(read_text(options.file), std::filesystem::path(options.file).filename().string());
  fmt::print("PTX {}, {}\n", module.version(), module.target());
  for (const ptx::Kernel& k : module.kernels()) {
    fmt::print("{}{}, {} bytes of shared memory{}\n", k.name,
               k.block ? fmt::format(", blocks of {} x {} x {}", k.block->x, k.block->y, k.block->z) : "", k.static_shared,
               k.dynamic_shared ? " and what a launch gives" : "");
    for (const ptx::Parameter& p : k.parameters) fmt::print("  .{} {}, {} bytes\n", p.type, p.name, p.bytes);
    for (const std::string& missing : k.missing) fmt::print("  not there: {}\n", missing);
  }
  return exit_pass;
}

int act(const PtxOptions& options) {
  return options.action == "list" ? list(options) : options.action == "trace" ? trace(options) : run(options);
}

}  // namespace

void add_ptx(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<PtxOptions>();
  auto* command = app.add_subcommand("ptx", "Run any kernel's PTX to a Hopper GPU's bits, and name what it does that it must not");
  command
      ->add_option("ACTION", options->action,
                   "run: a launch; trace: a launch, and how one element was computed; list: the file's kernels and their parameters")
      ->required()
      ->check(CLI::IsMember({"run", "trace", "list"}));
  command->add_option("FILE", options->file, "The kernel's PTX, as Triton and nvcc write it for sm_80 to sm_90a")->required();
  command->add_option("CASE", options->case_words, "A case file, or a case line: where arguments in.NAME come from");
  command->add_option("--kernel", options->kernel, "Which kernel, where the file has several");
  command->add_option("--grid", options->grid, "Blocks: X, X,Y or X,Y,Z")->delimiter(',')->expected(1, 3)->capture_default_str();
  command->add_option("--block", options->block, "Threads of a block (default: what the kernel requires)")->delimiter(',')->expected(1, 3);
  command->add_option("--shared", options->shared, "Bytes of dynamic shared memory")->capture_default_str();
  command
      ->add_option("--arg", options->arguments,
                   "The next parameter, repeated in order: in.NAME (an input of the case), NAME=DTYPE[SIZES] (fresh memory, zeros), or a "
                   "number. Pointers at the end that are left off are null")
      ->expected(1)
      ->take_all();
  command->add_option("--race", options->race, "Watch for races: on, off, auto (launches of at most 16384 threads)")
      ->capture_default_str()
      ->check(CLI::IsMember({"on", "off", "auto"}));
  command->add_option("--uninit", options->uninit, "Watch for reads of what nobody has written, likewise")
      ->capture_default_str()
      ->check(CLI::IsMember({"on", "off", "auto"}));
  command->add_option("--contract", options->contract, "Read mul then add, both without a rounding, as one fma: on, off")
      ->capture_default_str()
      ->check(CLI::IsMember({"on", "off"}));
  command->add_option("--limit", options->limit, "Instructions of a warp, then it counts as an endless loop")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--findings", options->findings, "At most so many findings")->capture_default_str();
  command->add_option("-o,--output", options->output, "Write the memory of the arguments afterwards (safetensors): for `dodona check`");
  command->add_option("--element", options->element, "trace: the element, ARGUMENT[INDEX] in row-major order");
  command->add_option("--depth", options->depth, "trace: operations below the element that are written out; 0: all")->capture_default_str();
  command->add_option("--terms", options->terms, "trace: at most so many definitions")->capture_default_str();
  options->add_threads_and_isa(*command);
  options->add_json(*command);
  command->footer(
      "Exit code 0: it ran and nothing was found; 1: something was (the kernel went on all the same); 2: it cannot be run.\n"
      "  dodona ptx run add.ptx --grid 4 --arg in.input --arg in.weight --arg out=f32[4,64] --arg 64 rmsnorm T=4 H=64\n"
      "What is known of the bits, what is watched, and what is not there: docs/ptx.md.");
  command->callback([options, &exit_code] { exit_code = act(*options); });
}

}  // namespace dodona::tools
