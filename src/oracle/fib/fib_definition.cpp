#include "oracle/fib/fib_definition.h"

#include <algorithm>
#include <array>
#include <utility>

#include "dodona/error.h"
#include "io/mapped_file.h"
#include "io/text.h"

namespace dodona::oracle::fib {
namespace {

constexpr std::array<std::pair<std::string_view, DType>, 12> types{{{"float32", DType::f32},
                                                                    {"float16", DType::f16},
                                                                    {"bfloat16", DType::bf16},
                                                                    {"float8_e4m3fn", DType::f8_e4m3},
                                                                    {"float8_e5m2", DType::f8_e5m2},
                                                                    {"float4_e2m1", DType::f4_e2m1},
                                                                    {"int64", DType::i64},
                                                                    {"int32", DType::i32},
                                                                    {"int16", DType::i16},
                                                                    {"int8", DType::i8},
                                                                    {"bool", DType::boolean},
                                                                    {"uint8", DType::u8}}};  // the last one is fi_trace's

[[noreturn]] void fail(const std::string& where, const std::string& why) {
  throw Error(ErrorCode::bad_file, "", where, why);
}

std::string required_text(const io::Json& json, const char* key, const std::string& path) {
  std::string text = io::get_string(json, key, path);
  if (text.empty()) fail(path, std::string("has an empty ") + key);
  return text;
}

void read_axes(const io::Json& json, Definition& d) {
  for (const auto& [name, axis] : io::get_object(json, "axes", d.path).items()) {
    const std::string where = d.path + " axes." + name;
    const std::string type = io::get_string(axis, "type", where);
    if (type != "const" && type != "var") fail(where, "has type " + io::quote(type) + ", expected 'const' or 'var'");
    Axis read{name, std::nullopt};
    const io::Json* value = type == "const" ? io::find_field(axis, "value", where) : nullptr;
    if (type == "const" && (value == nullptr || value->is_null())) {
      d.deviations.push_back("axes." + name + " is const and has no value");
    } else if (type == "const") {
      read.value = io::get_int(axis, "value", where);
      if (*read.value < 0) fail(where, "has the negative value " + std::to_string(*read.value));
    }
    d.axes.push_back(read);
  }
}

bool has_axis(const Definition& d, const std::string& name) {
  return std::any_of(d.axes.begin(), d.axes.end(), [&](const Axis& axis) { return axis.name == name; });
}

std::vector<Field> read_fields(const io::Json& json, const char* side, Definition& d) {
  std::vector<Field> fields;
  for (const auto& [name, tensor] : io::get_object(json, side, d.path).items()) {
    const std::string at = std::string(side) + "." + name, where = d.path + " " + at;
    Field field{.name = name, .dtype = io::get_string(tensor, "dtype", where)};
    const io::Json& shape = io::get_field(tensor, "shape", where);
    field.scalar = shape.is_null();
    if (!field.scalar) field.shape = io::get_strings(tensor, "shape", where);
    if (field.shape.size() > static_cast<std::size_t>(max_rank))
      fail(where, "has " + std::to_string(field.shape.size()) + " dimensions, expected 6 at most");
    for (const std::string& axis : field.shape) {
      if (has_axis(d, axis)) continue;
      d.deviations.push_back(at + " uses the axis " + io::quote(axis) + ", which is not declared");
      d.axes.push_back({axis, std::nullopt});
    }
    const auto type = parse_fib_dtype(field.dtype);
    if (!type || *type == DType::u8) d.deviations.push_back(at + " has dtype " + io::quote(field.dtype));
    for (const char* key : {"optional", "param"})
      if (tensor.contains(key)) d.deviations.push_back(at + " has the field '" + key + "'");
    field.optional = io::get_bool_or(tensor, "optional", false, where);
    fields.push_back(std::move(field));
  }
  return fields;
}

/// A function called run that is not inside another one.
bool has_run(const std::string& reference) {
  for (std::size_t at = reference.find("def run"); at != std::string::npos; at = reference.find("def run", at + 1)) {
    const std::size_t end = reference.find_first_not_of(' ', at + 7);
    if ((at == 0 || reference[at - 1] == '\n') && end != std::string::npos && reference[end] == '(') return true;
  }
  return false;
}

Source read_source(const io::Json& json, const std::string& where) {
  const std::string type = io::get_string(json, "type", where);
  Source source;
  if (type == "random") return source;
  if (type == "scalar") {
    source.kind = Source::Kind::scalar;
    source.value = io::get_field(json, "value", where);
    if (!source.value.is_number() && !source.value.is_boolean()) fail(where, "has a scalar that is no number");
    return source;
  }
  if (type != "safetensors") fail(where, "has type " + io::quote(type) + ", expected 'random', 'scalar' or 'safetensors'");
  source.kind = Source::Kind::file;
  source.path = io::get_string(json, "path", where);
  source.key = io::get_string(json, "tensor_key", where);
  return source;
}

Workload parse_workload(const io::Json& trace, const std::string& where) {
  Workload workload;
  workload.where = where;
  workload.definition = required_text(trace, "definition", where);
  workload.json = io::get_object(trace, "workload", where);
  workload.uuid = required_text(workload.json, "uuid", where);
  for (const auto& [name, value] : io::get_object(workload.json, "axes", where).items()) {
    workload.axes[name] = io::get_int(workload.json["axes"], name, where + " axes");
    if (workload.axes[name] < 0) fail(where, "has the negative axis " + name);
  }
  for (const auto& [name, source] : io::get_object(workload.json, "inputs", where).items())
    workload.inputs[name] = read_source(source, where + " inputs." + name);
  return workload;
}

}  // namespace

std::optional<DType> parse_fib_dtype(std::string_view name) {
  for (const auto& [known, type] : types)
    if (known == name) return type;
  return std::nullopt;
}

bool fib_has(DType type) {
  return type != DType::u8 && std::any_of(types.begin(), types.end(), [&](const auto& entry) { return entry.second == type; });
}

bool stands_for(DType stored, DType meant) {
  return (bits(stored) == 8 && bits(meant) == 8) || (stored == DType::i64 && bits(meant) == 64);
}

std::string_view fib_dtype(DType type) {
  for (const auto& [name, known] : types)
    if (known == type && type != DType::u8) return name;
  return bits(type) == 64 ? "int64" : "int8";
}

const Field* Definition::input(std::string_view wanted) const {
  const auto found = std::find_if(inputs.begin(), inputs.end(), [&](const Field& field) { return field.name == wanted; });
  return found == inputs.end() ? nullptr : &*found;
}
const Field* Definition::output(std::string_view wanted) const {
  const auto found = std::find_if(outputs.begin(), outputs.end(), [&](const Field& field) { return field.name == wanted; });
  return found == outputs.end() ? nullptr : &*found;
}

std::string Definition::tag(std::string_view prefix) const {
  for (const std::string& tag : tags)
    if (tag.starts_with(prefix)) return tag.substr(prefix.size());
  return {};
}

Definition parse_definition(const io::Json& json, const std::string& path) {
  if (!json.is_object()) fail(path, "is no Definition: expected a JSON object");
  Definition d;
  d.path = path;
  d.name = required_text(json, "name", path);
  if (d.name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") != std::string::npos)
    fail(path, "has the name " + io::quote(d.name) + ", which cannot be part of a file name");
  d.op_type = required_text(json, "op_type", path);
  d.description = io::get_string_or(json, "description", "", path);
  read_axes(json, d);
  d.inputs = read_fields(json, "inputs", d);
  d.outputs = read_fields(json, "outputs", d);
  for (const Field& field : d.outputs)
    if (d.input(field.name) != nullptr) d.deviations.push_back(io::quote(field.name) + " is both an input and an output");
  if (json.contains("tags")) d.tags = io::get_strings(json, "tags", path);
  if (json.contains("constraints") && !json["constraints"].is_null()) d.constraints = io::get_strings(json, "constraints", path);
  const std::string reference = io::get_string_or(json, "reference", "", path);
  if (reference.empty()) {
    d.deviations.emplace_back("there is no reference");
  } else if (!has_run(reference)) {
    d.deviations.emplace_back("the reference has no top-level function 'run'");
  }
  return d;
}

Definition read_definition(const std::string& path) {
  return parse_definition(io::read_json(path), path);
}

std::vector<Workload> read_workloads(const std::string& path) {
  const auto file = io::MappedFile::open(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  std::vector<Workload> workloads;
  std::size_t line = 1;
  for (std::size_t at = 0; at < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view one = text.substr(at, end - at);
    const std::string where = path + " line " + std::to_string(line);
    if (one.find_first_not_of(" \t\r") != std::string_view::npos) workloads.push_back(parse_workload(io::parse_json(one, where), where));
    at = end + 1;
  }
  return workloads;
}

std::map<std::string, std::int64_t> axis_values(const Definition& definition, const Workload& workload) {
  std::map<std::string, std::int64_t> values;
  for (const Axis& axis : definition.axes) {
    const auto given = workload.axes.find(axis.name);
    if (axis.value && given != workload.axes.end() && given->second != *axis.value)
      fail(workload.where, "has axis " + axis.name + " = " + std::to_string(given->second) + ", which " + definition.name + " fixes at " +
                               std::to_string(*axis.value));
    if (!axis.value && given == workload.axes.end()) fail(workload.where, "does not give the axis " + axis.name + " of " + definition.name);
    values[axis.name] = axis.value ? *axis.value : given->second;
  }
  for (const auto& [name, value] : workload.axes)
    if (!values.contains(name)) fail(workload.where, "gives the axis " + name + ", which " + definition.name + " does not have");
  return values;
}

Dims shape_of(const Definition& definition, const Field& field, const std::map<std::string, std::int64_t>& axes) {
  Dims shape;
  for (const std::string& axis : field.shape) shape.push_back(axes.at(axis));
  try {
    element_count(shape);
  } catch (const Error& error) {
    fail(definition.path, field.name + ": " + error.message());
  }
  return shape;
}

}  // namespace dodona::oracle::fib
