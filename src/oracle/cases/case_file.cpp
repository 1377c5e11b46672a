#include "oracle/cases/case_file.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "dodona/error.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "io/sha256.h"
#include "oracle/cases/generate.h"
#include "oracle/cases/generated_tensor.h"

namespace dodona::oracle {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::bad_file, "", path, why);
}

Dims dims_from(const io::Json& json, const std::string& path, const std::string& key) {
  Dims dims;
  if (!json.is_array()) fail(path, "has strides of " + key + " that are no list");
  for (const auto& value : json) {
    if (!value.is_number_integer()) fail(path, "has strides of " + key + " that are no whole numbers");
    dims.push_back(value.get<std::int64_t>());
  }
  return dims;
}

/// Attributes as typed values; null means "not given". The fields of an object are attributes of their own, and so are the elements of a
/// list, NAME_0, NAME_1...
void read_attr(const std::string& key, const io::Json& value, const OpSchema& schema, Case& c) {
  if (value.is_null()) return;
  if (schema.find_attr(key) == nullptr) {
    const auto before = c.ignored.size();
    std::size_t read = 0;
    if (value.is_object())
      for (const auto& [field, inner] : value.items()) read_attr(field, inner, schema, c), ++read;
    if (value.is_array())
      for (std::size_t i = 0; i < value.size(); ++i) read_attr(key + "_" + std::to_string(i), value[i], schema, c), ++read;
    if (read > c.ignored.size() - before) return;
    c.ignored.resize(before);
  }
  if (schema.find_attr(key) == nullptr || value.is_object() || value.is_array()) {
    c.ignored.push_back("attrs." + key);
  } else if (value.is_boolean()) {
    c.inputs.set_attr(key, value.get<bool>());
  } else if (value.is_number_integer()) {
    c.inputs.set_attr(key, value.get<std::int64_t>());
  } else if (value.is_number()) {
    c.inputs.set_attr(key, value.get<double>());
  } else {
    c.inputs.set_attr(key, value.get<std::string>());
  }
}

void read_attrs(const io::Json& json, const OpSchema& schema, Case& c) {
  for (const auto& [key, value] : json.items())
    if (key != "strides" && key != "generated") read_attr(key, value, schema, c);
}

/// Recordings of what upstream's tests compare with say so by where they come from: of ops that compute that too.
void read_arithmetic(const OpSchema& schema, Case& c) {
  if (schema.find_attr("arithmetic") == nullptr || c.inputs.find_attr("arithmetic") != nullptr) return;
  if (c.provenance.find("upstream-test-reference") != std::string::npos) c.inputs.set_attr("arithmetic", std::string("reference"));
}

/// Between rows that are slices of wider ones: NaN, or -1. Nothing may depend on it.
constexpr std::byte gap{0xFF};

/// The tensor in the layout that the real argument had.
Tensor restore_strides(const Tensor& stored, const io::Json& attrs, const std::string& key, const std::string& path) {
  const io::Json* strides = io::find_field(attrs, "strides", path);
  const io::Json* mine = strides != nullptr ? io::find_field(*strides, key, path) : nullptr;
  if (mine == nullptr) return stored;
  const Dims dims = dims_from(*mine, path, key);
  // A slice of a far wider tensor may not cost more memory than the file could ever have held.
  Tensor strided = [&] {
    try {
      Tensor probe(static_cast<const void*>(nullptr), stored.dtype(), stored.shape(), dims);
      if (probe.extent_bytes() > 4096 * (bytes_for(stored.dtype(), stored.elements()) + 1024))
        throw Error(ErrorCode::bad_stride, "", "",
                    "strides " + to_string(dims) + " spread the tensor over " + std::to_string(probe.extent_bytes()) + " bytes");
      return make_strided(stored.dtype(), stored.shape(), dims, gap);
    } catch (const Error& error) {
      throw Error(ErrorCode::bad_file, "", path, "has an impossible layout for " + key + ": " + error.message());
    }
  }();
  copy(stored, strided);
  return strided;
}

/// Inputs that the file describes instead of storing them, each checked against its stored sample.
void read_generated(const io::SafetensorsFile& file, const io::Json& attrs, Case& c) {
  const io::Json* rules = io::find_field(attrs, "generated", c.path);
  if (rules == nullptr || rules->is_null()) return;
  if (!rules->is_object()) fail(c.path, "has attrs.generated that is no JSON object");
  for (const auto& [argument, rule] : rules->items()) {
    const TensorSpec* spec = c.op->schema().find_tensor(argument);
    if (spec == nullptr || spec->direction == Direction::out) {
      c.ignored.push_back("attrs.generated." + argument);
      continue;
    }
    const Tensor tensor = generated_tensor(rule, c.path, argument);
    const std::string sample = "in." + argument + "_sample";
    for (const auto& entry : file.entries())
      if (entry.name == sample) check_sample(tensor, file.tensor(entry), c.path, argument);
    std::erase(c.ignored, sample);
    c.inputs.set(argument, tensor);
  }
}

std::string metadata_or_empty(const io::SafetensorsFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end() ? std::string() : found->second;
}

/// Where a tensor lies in a file says nothing of the call that was recorded: what the op wants aligned is copied to where it is.
Tensor aligned(const Tensor& tensor, int alignment) {
  const bool fits = reinterpret_cast<std::uintptr_t>(tensor.data()) % static_cast<std::uintptr_t>(alignment) == 0;
  return fits ? tensor : tensor.clone();
}

Tensor clone_with_layout(const Tensor& tensor) {
  if (tensor.contiguous()) return tensor.clone();
  Tensor result = make_strided(tensor.dtype(), tensor.shape(), tensor.strides(), gap);
  copy(tensor, result);
  return result;
}

/// What a generated case says of itself.
void read_generation(const io::SafetensorsFile& file, Case& c) {
  c.line = metadata_or_empty(file, "line");
  if (c.line.empty()) return;
  c.input_plan = metadata_or_empty(file, "inputs");
  c.name = c.line;
  c.compact = file.entries().empty();
  const std::string version = metadata_or_empty(file, "contract_version"), digests = metadata_or_empty(file, "digests");
  const auto end = version.data() + version.size();
  if (const auto read = std::from_chars(version.data(), end, c.contract_version); read.ec != std::errc{} || read.ptr != end)
    fail(c.path, "has a contract_version that is no whole number: '" + version + "'");
  const io::Json json = io::parse_json(digests, c.path + " digests");
  if (!json.is_object()) fail(c.path, "has digests that are no JSON object");
  for (const auto& [name, digest] : json.items()) {
    if (!digest.is_string()) fail(c.path, "has a digest of " + name + " that is no text");
    c.digests[name] = digest.get<std::string>();
  }
}

/// Makes the inputs of a compact case, and makes sure that they are those it was made of.
void make_inputs(Case& c, int threads) {
  CaseLine line;
  try {
    line = parse_case_line(c.line);
  } catch (const Error& error) {
    fail(c.path, std::string("has an impossible line: ") + error.what());
  }
  if (line.op != c.op->name()) fail(c.path, "is a case of " + std::string(c.op->name()) + " with a line of '" + line.op + "'");
  c.inputs = generate(line, threads);
  for (const auto& [argument, tensor] : c.inputs.tensors) {
    const auto stored = c.digests.find("in." + argument);
    const std::string digest = io::to_hex(io::tensor_digest(tensor));
    if (stored == c.digests.end()) fail(c.path, "has no digest of in." + argument);
    if (stored->second != digest)
      fail(c.path, "was made of another in." + argument + " than its line gives now: digest " + stored->second.substr(0, 16) +
                       "... is stored, " + digest.substr(0, 16) + "... is made");
  }
}

void cut_window(Case& c, const std::string& text) {
  if (text.empty()) return;
  try {
    c.window = parse_window(text);
    c.inputs = windowed(*c.op, c.inputs, c.window);
  } catch (const Error& error) {
    fail(c.path, std::string("has an impossible window: ") + error.message());
  }
}

}  // namespace

std::string case_op(const std::string& path) {
  return metadata_or_empty(io::SafetensorsFile::open(path), "op");
}

bool asked_for_by_memory(const TensorSpec& spec) {
  return spec.direction == Direction::out && (spec.given || (spec.optional && spec.when.empty()));
}

bool is_memory_of_output(const TensorSpec& spec) {
  return spec.direction == Direction::out && spec.optional && !spec.given;
}

Case load_case(const std::string& path, int threads) {
  const auto file = io::SafetensorsFile::open(path);
  Case c;
  c.path = path;
  const std::string op = metadata_or_empty(file, "op");
  if (op.empty()) fail(path, "is no case: its metadata names no op");
  c.op = &registry().at(op);
  c.name = op + "/" + metadata_or_empty(file, "case");
  c.match = metadata_or_empty(file, "match");
  c.provenance = metadata_or_empty(file, "provenance");
  c.notes = metadata_or_empty(file, "notes");
  const std::string attr_text = metadata_or_empty(file, "attrs");
  const io::Json attrs = attr_text.empty() ? io::Json::object() : io::parse_json(attr_text, path + " attrs");
  if (!attrs.is_object()) fail(path, "has attrs that are no JSON object");
  const OpSchema& schema = c.op->schema();
  read_generation(file, c);
  const bool holds_inputs =
      std::any_of(file.entries().begin(), file.entries().end(), [](const auto& entry) { return entry.name.starts_with("in."); });
  if (c.compact || (!c.line.empty() && c.recorded() && !holds_inputs)) {
    make_inputs(c, threads);
    cut_window(c, metadata_or_empty(file, "window"));
    if (c.compact) return c;
  } else {
    read_attrs(attrs, schema, c);
    read_arithmetic(schema, c);
  }
  for (const auto& entry : file.entries()) {
    const bool input = entry.name.starts_with("in."), output = entry.name.starts_with("out.");
    std::string argument = entry.name.substr(input ? 3 : output ? 4 : 0);
    if (!c.line.empty() && (entry.name.starts_with("exact.") || entry.name.starts_with("slack.") || entry.name.starts_with("open."))) {
      c.budgets.emplace_back(entry.name, file.tensor(entry));
      continue;
    }
    const TensorSpec* spec = schema.find_tensor(argument);
    // An output that upstream calls as it calls an input is out_NAME here.
    if (output && spec != nullptr && spec->direction == Direction::in && schema.find_tensor("out_" + argument) != nullptr)
      spec = schema.find_tensor(argument = "out_" + argument);
    const bool fits =
        spec != nullptr && (input ? spec->direction != Direction::out || spec->given : output && spec->direction != Direction::in);
    if (!fits) {
      c.ignored.push_back(entry.name);
      continue;
    }
    if (output && asked_for_by_memory(*spec) && c.inputs.find(argument) == nullptr) {
      // The call needs memory of that shape, or writes it only when it is there; what it holds before is of no consequence.
      const Tensor recorded = file.tensor(entry);
      c.inputs.set(argument, Tensor(recorded.dtype(), recorded.shape()));
    }
    if (input) {
      c.inputs.set(argument, aligned(restore_strides(file.tensor(entry), attrs, entry.name, path), spec->alignment));
    } else {
      c.outputs.emplace_back(argument, file.tensor(entry));
    }
  }
  read_generated(file, attrs, c);
  return c;
}

std::string attrs_text(const Op& op, const Arguments& inputs) {
  io::Json attrs = io::Json::object();
  for (const auto& [key, value] : inputs.attrs) {
    if (const auto* whole = std::get_if<std::int64_t>(&value)) {
      attrs[key] = *whole;
    } else if (const auto* real = std::get_if<double>(&value)) {
      attrs[key] = *real;
    } else if (const auto* flag = std::get_if<bool>(&value)) {
      attrs[key] = *flag;
    } else {
      attrs[key] = to_string(value);
    }
  }
  io::Json strides = io::Json::object();
  for (const auto& [name, tensor] : inputs.tensors) {
    if (const TensorSpec* spec = op.schema().find_tensor(name); spec != nullptr && is_memory_of_output(*spec)) continue;
    if (!tensor.contiguous()) strides["in." + name] = std::vector<std::int64_t>(tensor.strides().begin(), tensor.strides().end());
  }
  if (!strides.empty()) attrs["strides"] = strides;
  return io::json_text(attrs);
}

void save_case(const Case& c, const std::string& path) {
  io::NamedTensors tensors = c.compact ? NamedTensors{} : c.budgets;
  for (const auto& [name, tensor] : c.inputs.tensors) {
    const TensorSpec* spec = c.op->schema().find_tensor(name);
    if (!c.compact && (spec == nullptr || !is_memory_of_output(*spec))) tensors.emplace_back("in." + name, tensor);
  }
  if (!c.compact || c.recorded())
    for (const auto& [name, tensor] : c.outputs) tensors.emplace_back("out." + name, tensor);
  // Generated cases are named by their line: where the file lies does not change its bytes.
  io::Metadata metadata{{"op", std::string(c.op->name())},
                        {"case", c.line.empty() ? std::filesystem::path(path).stem().string() : c.line},
                        {"attrs", attrs_text(*c.op, c.inputs)}};
  if (!c.line.empty()) {
    metadata["line"] = c.line;
    metadata["contract_version"] = std::to_string(c.contract_version);
    metadata["digests"] = io::json_text(io::Json(c.digests));
    metadata["inputs"] = c.input_plan;
    if (!c.window.empty()) metadata["window"] = to_string(c.window);
  }
  for (const auto& [key, text] :
       {std::pair<std::string, const std::string&>("match", c.match), {"provenance", c.provenance}, {"notes", c.notes}})
    if (!text.empty()) metadata[key] = text;
  io::write_safetensors(path, tensors, metadata);
}

Arguments runnable(const Op& op, const Arguments& inputs) {
  Arguments result = inputs;
  for (auto& [name, tensor] : result.tensors) {
    const TensorSpec* spec = op.schema().find_tensor(name);
    if (spec != nullptr && spec->direction != Direction::in && spec->view_of.empty() && tensor.defined())
      tensor = clone_with_layout(tensor);
  }
  return result;
}

NamedTensors outputs_of(const Op& op, const Arguments& arguments) {
  NamedTensors outputs;
  for (const TensorSpec& spec : op.schema().tensors) {
    if (spec.direction == Direction::in) continue;
    if (const Tensor* tensor = arguments.find(spec.name); tensor != nullptr && tensor->defined()) outputs.emplace_back(spec.name, *tensor);
  }
  return outputs;
}

Arguments with_actual(const Op& op, const Arguments& inputs, const NamedTensors& actual) {
  Arguments result = runnable(op, inputs);
  for (const auto& [name, tensor] : actual) {
    const TensorSpec* spec = op.schema().find_tensor(name);
    // Judges read the actual outputs through the schema, whose memory rules (alignment, writability) are those of a call.
    if (spec != nullptr && spec->direction == Direction::out && spec->view_of.empty()) result.set(name, tensor.clone());
  }
  return result;
}

void check_outputs(const Op& op, const NamedTensors& expected, const NamedTensors& actual) {
  const std::string op_name(op.name());
  for (const auto& [name, tensor] : expected) {
    const Tensor* given = find(actual, name);
    if (given == nullptr) throw Error(ErrorCode::missing_argument, op_name, name, "is missing from the outputs to judge");
    if (given->dtype() != tensor.dtype())
      throw Error(
          ErrorCode::bad_dtype, op_name, name,
          "to judge has dtype " + std::string(dodona::name(given->dtype())) + ", expected " + std::string(dodona::name(tensor.dtype())));
    if (!(given->shape() == tensor.shape()))
      throw Error(ErrorCode::bad_shape, op_name, name,
                  "to judge has shape " + to_string(given->shape()) + ", expected " + to_string(tensor.shape()));
  }
}

}  // namespace dodona::oracle
