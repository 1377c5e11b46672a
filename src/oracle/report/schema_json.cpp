#include "oracle/report/schema_json.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "ops/about.h"

namespace dodona::oracle {
namespace {

io::Json names_of(const std::vector<DType>& types) {
  io::Json list = io::Json::array();
  for (const DType type : types) list.push_back(std::string(name(type)));
  return list;
}

io::Json attr_json(const AttrValue& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return *whole;
  if (const auto* real = std::get_if<double>(&value)) return *real;
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  return to_string(value);
}

const char* kind_of(const AttrValue& value) {
  constexpr const char* names[] = {"int", "float", "bool", "word", "dtype"};
  return names[value.index()];
}

io::Json storage_json(const Storage& storage, const std::string& text) {
  io::Json json{{"text", text}};
  if (storage.code) json["codes"] = std::string(name(*storage.code));
  if (storage.scales) {
    const Storage::Scales& scales = *storage.scales;
    json["scales"] = {{"of", scales.of},
                      {"rows", scales.rows},
                      {"columns", scales.columns},
                      {"order", std::string(name(scales.order))},
                      {"by_expert", scales.by_expert}};
  }
  return json;
}

io::Json tensor_json(const TensorSpec& spec) {
  io::Json json{{"name", spec.name},
                {"direction", std::string(direction_name(spec))},
                {"dtypes", names_of(spec.dtypes)},
                {"shape", spec.shape},
                {"optional", spec.optional},
                {"role", std::string(name(spec.role))},
                {"layout", std::string(name(spec.layout))},
                {"alignment", spec.alignment},
                {"doc", spec.doc}};
  if (!spec.same_dtype_as.empty()) json["same_dtype_as"] = spec.same_dtype_as;
  if (!spec.dtype_attr.empty()) json["dtype_attr"] = spec.dtype_attr;
  if (!spec.bound.empty()) json["below"] = spec.bound;
  if (spec.direction != Direction::in) json["judge"] = std::string(name(spec.judge));
  if (!spec.view_of.empty()) json["view_of"] = spec.view_of;
  if (!spec.when.empty()) json["when"] = spec.when;
  if (spec.given) json["given"] = true;
  if (spec.on_request) json["on_request"] = true;
  if (spec.padded) json["padded"] = true;
  if (!spec.kin.empty()) json["made_of_other_inputs"] = spec.kin;
  if (const std::string stored = to_string(spec.storage); !stored.empty()) json["storage"] = storage_json(spec.storage, stored);
  return json;
}

io::Json attr_spec_json(const AttrSpec& spec) {
  io::Json json{{"name", spec.name},
                {"kind", kind_of(spec.default_value)},
                {"default", attr_json(spec.default_value)},
                {"required", spec.required},
                {"recipe", spec.recipe},
                {"no_effect", spec.ignored},
                {"doc", spec.doc}};
  if (!spec.choices.empty()) json["choices"] = spec.choices;
  if (!spec.dtypes.empty()) json["dtypes"] = names_of(spec.dtypes);
  if (std::isfinite(spec.minimum)) json["minimum"] = spec.minimum;
  if (std::isfinite(spec.maximum)) json["maximum"] = spec.maximum;
  for (const auto& [dialect, value] : spec.dialect_values) json["dialects"][dialect] = attr_json(value);
  return json;
}

io::Json parameter(std::string_view parameter_name, std::string_view field) {
  return {{"name", std::string(parameter_name)}, {"field", std::string(field)}};
}

/// Upstream's parameters; where the schema does not list them, the tensors that are read, then attributes, those without default first.
io::Json parameters_json(const Op& op) {
  const OpSchema& schema = op.schema();
  io::Json list = io::Json::array();
  if (schema.signature.empty()) {
    for (const TensorSpec& spec : schema.tensors)
      if ((spec.direction != Direction::out || spec.given) && !spec.optional) list.push_back(parameter(spec.name, spec.name));
    for (const bool required : {true, false})
      for (const AttrSpec& spec : schema.attrs)
        if (spec.required == required && !spec.recipe) list.push_back(parameter(spec.name, spec.name));
    return list;
  }
  std::string_view rest = schema.signature;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(", "), rest.size());
    const std::string_view item = rest.substr(0, comma);
    const std::size_t equals = item.find('=');
    const std::string_view field = equals == std::string_view::npos ? item : item.substr(equals + 1);
    if (!field.empty() && schema.find_tensor(field) == nullptr && schema.find_attr(field) == nullptr)
      throw std::logic_error("schema of " + std::string(op.name()) + ": its signature names " + std::string(field));
    list.push_back(parameter(item.substr(0, equals), field));
    rest.remove_prefix(std::min(comma + 2, rest.size()));
  }
  return list;
}

}  // namespace

std::string_view direction_name(const TensorSpec& spec) {
  switch (spec.direction) {
    case Direction::in: return "in";
    case Direction::out: return "out";
    case Direction::inout: return "in place";
  }
  return "";
}

io::Json schema_json(const Op& op) {
  io::Json tensors = io::Json::array(), attrs = io::Json::array(), defects = io::Json::array(), mistakes = io::Json::array(),
           modes = io::Json::array(), sources = io::Json::array();
  for (const TensorSpec& spec : op.schema().tensors) tensors.push_back(tensor_json(spec));
  for (const AttrSpec& spec : op.schema().attrs) attrs.push_back(attr_spec_json(spec));
  for (const KnownDefect& defect : op.defects())
    defects.push_back({{"id", std::string(defect.id)}, {"output", std::string(defect.output)}, {"summary", std::string(defect.summary)}});
  for (const Source source : op.info().sources) sources.push_back(std::string(name(source)));
  for (const KernelMistake& mistake : op.mistakes())
    mistakes.push_back({{"id", std::string(mistake.id)}, {"summary", std::string(mistake.text)}});
  io::Json caveats = io::Json::object();
  for (const Mode mode : op.modes()) {
    modes.push_back(std::string(name(mode)));
    if (!caveat(mode).empty()) caveats[std::string(name(mode))] = std::string(caveat(mode));
  }
  return {{"name", std::string(op.name())},
          {"about", std::string(ops::about(op.name()))},
          {"category", std::string(name(op.info().category))},
          {"sources", sources},
          {"modes", modes},
          {"caveats", caveats},
          {"parameters", parameters_json(op)},
          {"tensors", tensors},
          {"attributes", attrs},
          {"contract", op.contract()},
          {"contract_version", op.contract_version()},
          {"prepared", op.schema().properties.prepared},
          {"known_defects", defects},
          {"mistakes", mistakes},
          {"cases", op.cases()}};
}

}  // namespace dodona::oracle
