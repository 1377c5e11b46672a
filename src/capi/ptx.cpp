// Kernels as PTX, from C.
#include "dodona/ptx.h"

#include <memory>

#include "capi/guard.h"
#include "capi/record.h"
#include "dodona/error.h"
#include "io/json.h"

struct dodona_ptx {
  dodona::ptx::Module module;
  std::string described;
};

namespace dodona::capi {
namespace {

using io::Json;

Json sizes(const ptx::Dim3& d) {
  return Json::array({d.x, d.y, d.z});
}

Json to_json(const std::vector<ptx::OpenReading>& sums) {
  Json json = Json::array();
  for (const ptx::OpenReading& o : sums) json.push_back({{"line", o.line}, {"text", o.text}, {"place", o.place}, {"fused", o.fused}});
  return json;
}

std::string describe(const ptx::Module& module) {
  Json kernels = Json::array();
  for (const ptx::Kernel& k : module.kernels()) {
    Json parameters = Json::array();
    for (const ptx::Parameter& p : k.parameters)
      parameters.push_back({{"name", p.name}, {"type", p.type}, {"bytes", p.bytes}, {"align", p.align}, {"pointer", p.pointer}});
    kernels.push_back({{"name", k.name},
                       {"parameters", parameters},
                       {"block", k.block ? sizes(*k.block) : Json()},
                       {"max_threads", k.max_threads},
                       {"shared", k.static_shared},
                       {"extern_shared", k.dynamic_shared},
                       {"instructions", Json(k.instructions)},
                       {"missing", Json(k.missing)},
                       {"open", to_json(k.open)}});
  }
  return io::json_text({{"version", module.version()}, {"target", module.target()}, {"kernels", kernels}});
}

ptx::Dim3 dim(const unsigned* sizes) {
  return {sizes[0], sizes[1], sizes[2]};
}

template <class T>
std::vector<T> numbers(const Json& json, const std::string& name) {
  std::vector<T> found;
  if (!json.contains(name)) return found;
  const Json& list = json.at(name);
  if (!list.is_array()) throw Error(ErrorCode::bad_option, "", name, "must be a list of whole numbers");
  for (const Json& x : list) {
    if (!x.is_number_integer() || x.get<std::int64_t>() < 0)
      throw Error(ErrorCode::bad_option, "", name, "must be a list of whole numbers");
    found.push_back(x.get<T>());
  }
  return found;
}

ptx::TensorMap read_map(const char* text) {
  const Json json = io::parse_json(text, "tensor map");
  ptx::TensorMap map;
  const auto number = [&](const char* name) { return json.contains(name) ? io::get_int(json, name) : 0; };
  map.buffer = static_cast<std::size_t>(number("buffer"));
  map.offset = static_cast<std::uint64_t>(number("offset"));
  if (json.contains("dtype")) map.dtype = io::get_string(json, "dtype");
  map.shape = numbers<std::uint64_t>(json, "shape");
  map.strides = numbers<std::uint64_t>(json, "strides");
  map.box = numbers<std::uint32_t>(json, "box");
  map.element_strides = numbers<std::uint32_t>(json, "element_strides");
  map.swizzle = static_cast<int>(number("swizzle"));
  map.interleave = static_cast<int>(number("interleave"));
  map.nan_fill = json.contains("fill") && io::get_string(json, "fill") == "nan";
  return map;
}

ptx::Argument read_argument(const dodona_ptx_arg& arg, std::size_t index) {
  ptx::Argument a;
  switch (arg.kind) {
    case DODONA_PTX_BUFFER: a.kind = ptx::Argument::Kind::buffer; break;
    case DODONA_PTX_MEMORY: a.kind = ptx::Argument::Kind::memory; break;
    case DODONA_PTX_VALUE:
      a.kind = ptx::Argument::Kind::value;
      a.value.resize(arg.bytes);
      if (arg.data != nullptr && arg.bytes != 0) std::memcpy(a.value.data(), arg.data, arg.bytes);
      return a;
    case DODONA_PTX_TENSOR_MAP:
      a.kind = ptx::Argument::Kind::tensor_map;
      a.map = read_map(&required(static_cast<const char*>(arg.data), "the text of a tensor map"));
      return a;
    default: bad_call("argument " + std::to_string(index) + " has kind " + std::to_string(arg.kind) + ", which is none");
  }
  a.data = arg.data;
  a.bytes = arg.bytes;
  a.read_only = (arg.flags & DODONA_PTX_READ_ONLY) != 0;
  a.uninitialised = (arg.flags & DODONA_PTX_UNINITIALISED) != 0;
  return a;
}

ptx::Check read_check(const Json& options, const std::string& name) {
  const std::string word = io::get_string(options, name);
  if (word != "auto" && word != "on" && word != "off")
    throw Error(ErrorCode::bad_option, "", name, "must be auto, on or off, got '" + word + "'");
  return word == "auto" ? ptx::Check::automatic : word == "on" ? ptx::Check::on : ptx::Check::off;
}

std::uint64_t positive(const Json& options, const std::string& name) {
  const std::int64_t value = io::get_int(options, name);
  if (value < 0) throw Error(ErrorCode::bad_option, "", name, "must not be negative, got " + std::to_string(value));
  return static_cast<std::uint64_t>(value);
}

/// `request`: nullptr for a launch, whose options have nothing of a trace.
void read_options(const char* text, ptx::Launch& launch, ptx::TraceRequest* request) {
  if (text == nullptr) return;
  const Json options = io::parse_json(text, "options of a launch");
  if (!options.is_object()) throw Error(ErrorCode::bad_option, "", "options", "is no JSON object");
  for (const auto& [name, value] : options.items()) {
    if (name == "threads") {
      launch.threads = static_cast<int>(std::min<std::uint64_t>(positive(options, name), 4096));
    } else if (name == "race") {
      launch.race = read_check(options, name);
    } else if (name == "uninit") {
      launch.uninitialised = read_check(options, name);
    } else if (name == "contract") {
      constexpr ptx::Contract by_check[] = {ptx::Contract::customary, ptx::Contract::on, ptx::Contract::off};
      launch.contract = by_check[static_cast<std::size_t>(read_check(options, name))];
    } else if (name == "fused") {
      launch.fused = numbers<std::size_t>(options, name);
    } else if (name == "limit") {
      launch.limit = positive(options, name);
    } else if (name == "findings") {
      launch.findings = positive(options, name);
    } else if (name == "blocks") {
      const auto range = numbers<std::uint64_t>(options, name);
      if (range.size() != 2) throw Error(ErrorCode::bad_option, "", name, "must be [begin, end]");
      launch.blocks = {range[0], range[1]};
    } else if (request != nullptr && name == "arg") {
      request->argument = positive(options, name);
    } else if (request != nullptr && name == "offset") {
      request->offset = positive(options, name);
    } else if (request != nullptr && name == "bytes") {
      request->bytes = positive(options, name);
    } else if (request != nullptr && name == "depth") {
      request->depth = static_cast<int>(std::min<std::uint64_t>(positive(options, name), 1 << 30));
    } else if (request != nullptr && name == "terms") {
      request->terms = positive(options, name);
    } else {
      throw Error(ErrorCode::bad_option, "", name, "is no option of a launch");
    }
  }
}

ptx::Launch read_launch(const unsigned* grid, const unsigned* block, std::size_t dynamic_shared, const dodona_ptx_arg* args,
                        std::size_t arg_count) {
  ptx::Launch launch;
  launch.grid = dim(&required(grid, "grid"));
  launch.block = block == nullptr ? ptx::Dim3{0, 0, 0} : dim(block);
  launch.dynamic_shared = dynamic_shared;
  constexpr std::size_t most_arguments = 4096;
  if (arg_count > most_arguments) bad_call("a launch has at most 4096 arguments");
  for (std::size_t i = 0; i < arg_count; ++i) launch.arguments.push_back(read_argument((&required(args, "args"))[i], i));
  return launch;
}

Json to_json(const ptx::Place& p) {
  return {{"line", p.line},          {"instruction", p.instruction}, {"source", p.source},
          {"block", sizes(p.block)}, {"thread", sizes(p.thread)},    {"lane", p.lane},
          {"warp", p.warp}};
}

std::string report_text(const ptx::Report& r) {
  Json findings = Json::array();
  for (const ptx::Finding& f : r.findings) {
    Json finding = to_json(f.place);
    finding["kind"] = f.kind;
    finding["space"] = f.space;
    finding["address"] = f.address;
    finding["count"] = f.count;
    finding["text"] = f.text;
    if (f.other) finding["other"] = to_json(*f.other);
    findings.push_back(std::move(finding));
  }
  return io::json_text({{"kernel", r.kernel},
                        {"blocks", r.blocks},
                        {"threads_per_block", r.threads_per_block},
                        {"warp_instructions", r.warp_instructions},
                        {"lane_instructions", r.lane_instructions},
                        {"seconds", r.seconds},
                        {"checked", {{"race", r.race_checked}, {"uninit", r.uninitialised_checked}}},
                        {"findings", findings},
                        {"open", to_json(r.open)}});
}

}  // namespace
}  // namespace dodona::capi

int dodona_ptx_module(const char* text, const char* name, dodona_ptx** made) {
  using namespace dodona::capi;
  return guarded([&] {
    required(made, "the place for the result") = nullptr;
    dodona::ptx::Module module(&required(text, "text"), name == nullptr ? "ptx" : name);
    std::string described = describe(module);
    *made = new dodona_ptx{std::move(module), std::move(described)};
  });
}
const char* dodona_ptx_describe(const dodona_ptx* module) {
  return module == nullptr ? "" : module->described.c_str();
}
void dodona_ptx_free(dodona_ptx* module) {
  delete module;
}

int dodona_ptx_launch(const dodona_ptx* module, const char* kernel, const unsigned* grid, const unsigned* block, size_t dynamic_shared,
                      const dodona_ptx_arg* args, size_t arg_count, const char* options, dodona_record** report) {
  using namespace dodona::capi;
  return guarded([&] {
    if (report != nullptr) *report = nullptr;
    dodona::ptx::Launch launch = read_launch(grid, block, dynamic_shared, args, arg_count);
    read_options(options, launch, nullptr);
    const dodona::ptx::Report r = required(module, "module").module.launch(kernel == nullptr ? "" : kernel, launch);
    if (report != nullptr) *report = new dodona_record{report_text(r)};
  });
}

int dodona_ptx_readings(const dodona_ptx* module, const char* kernel, const char* options, dodona_record** record) {
  using namespace dodona::capi;
  return guarded([&] {
    required(record, "the place for the result") = nullptr;
    dodona::ptx::Toolchain tools = dodona::ptx::Toolchain::find();
    std::string machine_code;
    if (options != nullptr) {
      const Json given = dodona::io::parse_json(options, "options of readings");
      if (!given.is_object()) throw dodona::Error(dodona::ErrorCode::bad_option, "", "options", "is no JSON object");
      for (const auto& [name, value] : given.items()) {
        std::string& to = name == "ptxas"          ? tools.ptxas
                          : name == "disassembler" ? tools.disassembler
                          : name == "flags"        ? tools.flags
                          : name == "machine_code"
                              ? machine_code
                              : throw dodona::Error(dodona::ErrorCode::bad_option, "", name, "is no option of readings");
        to = dodona::io::get_string(given, name);
      }
    }
    const dodona::ptx::Readings r = required(module, "module").module.readings(kernel == nullptr ? "" : kernel, tools, machine_code);
    *record = new dodona_record{dodona::io::json_text(
        {{"kernel", r.kernel}, {"settled", r.settled}, {"said", r.said}, {"open", to_json(r.open)}, {"counts", Json(r.counts)}})};
  });
}

int dodona_ptx_trace(const dodona_ptx* module, const char* kernel, const unsigned* grid, const unsigned* block, size_t dynamic_shared,
                     const dodona_ptx_arg* args, size_t arg_count, const char* options, dodona_record** record) {
  using namespace dodona::capi;
  return guarded([&] {
    required(record, "the place for the result") = nullptr;
    dodona::ptx::Launch launch = read_launch(grid, block, dynamic_shared, args, arg_count);
    dodona::ptx::TraceRequest request;
    read_options(options, launch, &request);
    const dodona::ptx::Trace t = required(module, "module").module.trace(kernel == nullptr ? "" : kernel, launch, request);
    Json json = to_json(t.place);
    json["expression"] = t.expression;
    json["nodes"] = t.nodes;
    *record = new dodona_record{dodona::io::json_text(json)};
  });
}
