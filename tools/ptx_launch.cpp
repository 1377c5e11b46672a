#include "ptx_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/case_line.h"
#include "dodona/error.h"
#include "oracle/cases/generate.h"

namespace dodona::tools {
namespace {

ptx::Dim3 dim(const std::vector<std::uint32_t>& sizes, ptx::Dim3 otherwise) {
  if (sizes.empty()) return otherwise;
  return {sizes[0], sizes.size() > 1 ? sizes[1] : 1, sizes.size() > 2 ? sizes[2] : 1};
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

/// Places of the sums that ptxas made one fma of. A reading that the machine code does not settle is an error: nobody asked for a guess.
std::vector<std::size_t> fused_of(const ptx::Readings& readings) {
  if (!readings.settled) throw Error(ErrorCode::bad_option, readings.kernel, "--contract", "ptxas is not settled: " + readings.said);
  std::vector<std::size_t> places;
  for (const ptx::OpenReading& o : readings.open)
    if (o.fused) places.push_back(o.place);
  return places;
}

}  // namespace

void PtxLaunchOptions::add_file_options(CLI::App& app) {
  app.add_option("--kernel", kernel, "Which kernel, where the file has several");
  app.add_option("--machine-code", machine_code,
                 "A cubin, or what cuobjdump -sass or nvdisasm say of it: compared in place of what ptxas makes of the PTX");
  app.add_option("--ptxas", ptxas, "The assembler (default: $TRITON_PTXAS_PATH, the PATH, CUDA's folder)");
  app.add_option("--ptxas-flags", ptxas_flags, "Its further options, as `--fmad=false`");
  app.add_option("--disassembler", disassembler, "cuobjdump or nvdisasm (default: beside ptxas, the PATH)");
  app.add_option("--contract", contract,
                 "Sums of products that PTX leaves open (mul then add, neither with a rounding): auto: as ptxas is known to read them; "
                 "ptxas: as the machine code says that it did; on: one rounding each; off: two")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "ptxas", "on", "off"}));
}
void PtxLaunchOptions::add_launch_options(CLI::App& app) {
  app.add_option("--grid", grid, "Blocks: X, X,Y or X,Y,Z")->delimiter(',')->expected(1, 3)->capture_default_str();
  app.add_option("--block", block, "Threads of a block (default: what the kernel requires)")->delimiter(',')->expected(1, 3);
  app.add_option("--shared", shared, "Bytes of dynamic shared memory")->capture_default_str();
  app.add_option("--arg", arguments,
                 "The next parameter, repeated in order: in.NAME (an input of the case), NAME=DTYPE[SIZES] (fresh memory, zeros), or a "
                 "number. Pointers at the end that are left off are null")
      ->expected(1)
      ->take_all();
  app.add_option("--limit", limit, "Instructions of a warp, then it counts as an endless loop")->capture_default_str()->check(above_zero());
  app.add_option("--element", element, "Of a trace: the element, ARGUMENT[INDEX] in row-major order");
  app.add_option("--depth", depth, "Of a trace: operations below the element that are written out; 0: all")->capture_default_str();
  app.add_option("--terms", terms, "Of a trace: at most so many definitions")->capture_default_str();
}

oracle::Case inputs_of(const std::string& text, int threads) {
  if (std::filesystem::exists(text)) return oracle::load_case(text, threads);
  if (text.find('=') == std::string::npos && text.find(' ') == std::string::npos)
    throw Error(ErrorCode::bad_file, "", text, "does not exist, and is no case line");
  const CaseLine line = parse_case_line(text);
  refuse_variants(line, "a schedule");
  oracle::Case c;
  c.op = &registry().at(line.op);
  c.line = to_string(line);
  c.inputs = oracle::generate(line, threads);
  return c;
}

std::string read_text(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw Error(ErrorCode::bad_file, "", path, "cannot be read");
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

ptx::Toolchain tools_of(const PtxLaunchOptions& options) {
  ptx::Toolchain tools = ptx::Toolchain::find();
  if (!options.ptxas.empty()) tools.ptxas = options.ptxas;
  if (!options.disassembler.empty()) tools.disassembler = options.disassembler;
  tools.flags = options.ptxas_flags;
  return tools;
}

std::string text_of(const ptx::OpenReading& o) {
  return fmt::format("open: line {}: {}: {}", o.line, o.text, o.fused ? "one rounding" : "two roundings");
}

PtxLaunch prepare(const PtxLaunchOptions& options, const oracle::Case& c, int threads) {
  PtxLaunch p;
  p.module = std::make_shared<ptx::Module>(read_text(options.file), std::filesystem::path(options.file).filename().string());
  const ptx::Kernel& kernel = p.module->kernel(options.kernel);
  p.kernel = kernel.name;
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
  p.launch.threads = threads;
  p.launch.contract = options.contract == "on"    ? ptx::Contract::on
                      : options.contract == "off" ? ptx::Contract::off
                                                  : ptx::Contract::customary;
  if (options.contract == "ptxas") p.launch.fused = fused_of(p.module->readings(p.kernel, tools_of(options), options.machine_code));
  p.launch.limit = options.limit;
  return p;
}

/// `out[17]`.
ptx::TraceRequest element_of(const PtxLaunchOptions& options, const PtxLaunch& p) {
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

}  // namespace dodona::tools
