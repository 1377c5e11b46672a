#include "core/call_context.h"

#include <algorithm>
#include <cmath>

namespace dodona::calls {

void Call::fail(ErrorCode code, const std::string& argument, const std::string& message) const {
  throw Error(code, std::string(info.name), argument, message);
}

std::string Call::witnesses(const ShapeAlternative& alternative, const SymbolValues& values, const Fields& fields) const {
  std::string text;
  const auto tell = [&](int symbol) {
    if (!values.bound(symbol)) return;
    const int witness = values.witness(symbol);
    text += (text.empty() ? " with " : ", ") + compiled().symbols.name(symbol) + " = " + std::to_string(values.value(symbol));
    if (witness >= 0) text += " (from " + spec(witness).name + " " + to_string(fields.tensors[slot(witness)]->shape()) + ")";
  };
  if (alternative.pack >= 0) tell(alternative.pack);
  std::vector<int> seen;
  for (const DimExpr& dim : alternative.dims)
    for (const int symbol : dim.symbols())
      if (std::find(seen.begin(), seen.end(), symbol) == seen.end()) seen.push_back(symbol), tell(symbol);
  return text;
}

std::string join(const std::vector<DType>& types) {
  std::string text;
  for (const DType t : types) text += (text.empty() ? "" : ", ") + std::string(name(t));
  return text;
}

int tensor_index(const OpSchema& schema, std::string_view name) {
  for (std::size_t i = 0; i < schema.tensors.size(); ++i)
    if (schema.tensors[i].name == name) return static_cast<int>(i);
  return -1;
}

int attr_index(const OpSchema& schema, std::string_view name) {
  for (std::size_t i = 0; i < schema.attrs.size(); ++i)
    if (schema.attrs[i].name == name) return static_cast<int>(i);
  return -1;
}

namespace {

const char* kind_name(const AttrValue& value) {
  constexpr const char* names[] = {"a whole number", "a number", "true or false", "a word", "a dtype"};
  return names[value.index()];
}

}  // namespace

namespace {

void check_number(const Call& call, const AttrSpec& spec, double number, const std::string& shown) {
  if (!(number >= spec.minimum && number <= spec.maximum)) {
    std::string wanted = std::isinf(spec.maximum)
                             ? "at least " + to_string(AttrValue(spec.minimum))
                             : "from " + to_string(AttrValue(spec.minimum)) + " to " + to_string(AttrValue(spec.maximum));
    call.fail(ErrorCode::bad_value, spec.name, "must be " + wanted + ", got " + shown);
  }
}

}  // namespace

bool is_size(const AttrValue& value) {
  return std::holds_alternative<std::int64_t>(value) || std::holds_alternative<bool>(value);
}
std::int64_t size_of(const AttrValue& value) {
  const auto* flag = std::get_if<bool>(&value);
  return flag != nullptr ? static_cast<std::int64_t>(*flag) : std::get<std::int64_t>(value);
}

AttrValue convert(const Call& call, const AttrSpec& spec, const AttrValue& value) {
  if (value.index() == spec.default_value.index()) return value;
  if (std::holds_alternative<double>(spec.default_value) && std::holds_alternative<std::int64_t>(value))
    return static_cast<double>(std::get<std::int64_t>(value));
  if (std::holds_alternative<std::int64_t>(spec.default_value) && std::holds_alternative<double>(value)) {
    const double number = std::get<double>(value);
    if (number == std::floor(number) && std::fabs(number) < 9e15) return static_cast<std::int64_t>(number);
  }
  if (std::holds_alternative<DType>(spec.default_value) && std::holds_alternative<std::string>(value))
    if (const auto dtype = parse_dtype(std::get<std::string>(value))) return *dtype;
  call.fail(ErrorCode::bad_value, spec.name, "must be " + std::string(kind_name(spec.default_value)) + ", got " + to_string(value));
}

void check_attr(const Call& call, const AttrSpec& spec, const AttrPointer& value) {
  if (const auto* number = std::get_if<std::int64_t*>(&value)) {
    // To shapes a size below 0 is one that is not known yet.
    if (**number < 0 && call.compiled().symbols.find(spec.name) >= 0)
      call.fail(ErrorCode::bad_value, spec.name, "is a size, and must be at least 0, got " + std::to_string(**number));
    if (spec.minimum > -INFINITY || spec.maximum < INFINITY)
      check_number(call, spec, static_cast<double>(**number), std::to_string(**number));
  } else if (const auto* real = std::get_if<double*>(&value)) {
    if (std::isnan(**real)) call.fail(ErrorCode::bad_value, spec.name, "must be a number, got NaN");
    check_number(call, spec, **real, to_string(AttrValue(**real)));
  } else if (const auto* text = std::get_if<std::string*>(&value)) {
    if (!spec.choices.empty() && std::find(spec.choices.begin(), spec.choices.end(), **text) == spec.choices.end())
      call.fail(ErrorCode::bad_value, spec.name, "must be one of " + join_values(spec.choices) + ", got '" + **text + "'");
  } else if (const auto* dtype = std::get_if<DType*>(&value)) {
    if (std::find(spec.dtypes.begin(), spec.dtypes.end(), **dtype) == spec.dtypes.end())
      call.fail(ErrorCode::bad_dtype, spec.name, "must be one of " + join(spec.dtypes) + ", got " + std::string(name(**dtype)));
  }
}

void check_symbols(const Call& call, const SymbolValues& values, const Fields& fields) {
  const auto& rules = call.compiled().symbol_rules;
  for (int s = 0; s < call.compiled().symbols.count(); ++s) {
    const SymbolSpec* spec = rules[slot(s)].spec;
    if (spec == nullptr || !values.bound(s)) continue;
    const std::int64_t value = values.value(s);
    std::string wanted;
    if (!spec->choices.empty()) {
      if (std::find(spec->choices.begin(), spec->choices.end(), value) == spec->choices.end())
        wanted = (spec->choices.size() > 1 ? "one of " : "") + join_values(spec->choices);
    } else if (value % spec->multiple_of != 0) {
      wanted = "a multiple of " + std::to_string(spec->multiple_of);
    } else if (value < spec->minimum || value > spec->maximum) {
      wanted = value < spec->minimum ? "at least " + std::to_string(spec->minimum) : "at most " + std::to_string(spec->maximum);
    }
    if (wanted.empty()) continue;
    const int witness = values.witness(s);
    const std::string where = witness >= 0 ? call.spec(witness).name : spec->name;
    const std::string shape = witness >= 0 ? "has shape " + to_string(fields.tensors[slot(witness)]->shape()) + ": " : "";
    call.fail(ErrorCode::bad_shape, where, shape + spec->name + " = " + std::to_string(value) + ", expected " + wanted);
  }
}

}  // namespace dodona::calls
