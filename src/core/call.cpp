#include "core/call.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "dodona/error.h"

namespace dodona {
namespace {

std::size_t index_of(int i) {
  return static_cast<std::size_t>(i);
}

/// Context of error messages.
struct Call {
  const OpInfo& info;
  const OpSchema& schema;

  const TensorSpec& spec(int i) const { return schema.tensors[index_of(i)]; }
  const CompiledSchema& compiled() const { return *schema.compiled; }
  [[noreturn]] void fail(ErrorCode code, const std::string& argument, const std::string& message) const {
    throw Error(code, std::string(info.name), argument, message);
  }
  /// `H = 7168 (from input [4, 7168])` for every symbol of the alternative that is bound.
  std::string witnesses(const ShapeAlternative& alternative, const SymbolValues& values, const Fields& fields) const {
    std::string text;
    const auto tell = [&](int symbol) {
      if (!values.bound(symbol)) return;
      const int witness = values.witness(symbol);
      text += (text.empty() ? " with " : ", ") + compiled().symbols.name(symbol) + " = " + std::to_string(values.value(symbol));
      if (witness >= 0) text += " (from " + spec(witness).name + " " + to_string(fields.tensors[index_of(witness)]->shape()) + ")";
    };
    if (alternative.pack >= 0) tell(alternative.pack);
    std::vector<int> seen;
    for (const DimExpr& dim : alternative.dims)
      for (const int symbol : dim.symbols())
        if (std::find(seen.begin(), seen.end(), symbol) == seen.end()) seen.push_back(symbol), tell(symbol);
    return text;
  }
};

std::string join(const std::vector<DType>& types) {
  std::string text;
  for (const DType t : types) text += (text.empty() ? "" : ", ") + std::string(name(t));
  return text;
}

template <class T>
std::string join_values(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) {
    if (!text.empty()) text += ", ";
    if constexpr (std::is_same_v<T, std::string>) {
      text += value;
    } else {
      text += std::to_string(value);
    }
  }
  return text;
}

// ---- attributes ----

const char* kind_name(const AttrValue& value) {
  constexpr const char* names[] = {"a whole number", "a number", "true or false", "a word", "a dtype"};
  return names[value.index()];
}

/// Converts `value` to the attribute's type where nothing is lost (whole numbers to numbers, words to dtypes).
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

void store(const AttrPointer& target, const AttrValue& value) {
  std::visit([&](auto* pointer) { *pointer = std::get<std::remove_pointer_t<decltype(pointer)>>(value); }, target);
}

void check_number(const Call& call, const AttrSpec& spec, double number, const std::string& shown) {
  if (!(number >= spec.minimum && number <= spec.maximum)) {
    std::string wanted = std::isinf(spec.maximum)
                             ? "at least " + to_string(AttrValue(spec.minimum))
                             : "from " + to_string(AttrValue(spec.minimum)) + " to " + to_string(AttrValue(spec.maximum));
    call.fail(ErrorCode::bad_value, spec.name, "must be " + wanted + ", got " + shown);
  }
}

void check_attr(const Call& call, const AttrSpec& spec, const AttrPointer& value) {
  if (const auto* number = std::get_if<std::int64_t*>(&value)) {
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

// ---- dtypes and shapes ----

void check_dtype(const Call& call, int i, const Fields& fields) {
  const TensorSpec& spec = call.spec(i);
  const auto& rules = call.compiled().tensors[index_of(i)];
  const DType actual = fields.tensors[index_of(i)]->dtype();
  const std::string got = "has dtype " + std::string(name(actual));
  if (rules.dtype_tensor >= 0) {
    const Tensor& other = *fields.tensors[index_of(rules.dtype_tensor)];
    if (other.defined() && other.dtype() != actual)
      call.fail(ErrorCode::bad_dtype, spec.name, got + ", expected " + std::string(name(other.dtype())) + " as " + spec.same_dtype_as);
  } else if (rules.dtype_attr >= 0) {
    const DType wanted = *std::get<DType*>(fields.attrs[index_of(rules.dtype_attr)]);
    if (wanted != actual)
      call.fail(ErrorCode::bad_dtype, spec.name,
                got + ", expected " + std::string(name(wanted)) + " (from attribute " + spec.dtype_attr + ")");
  } else if (std::find(spec.dtypes.begin(), spec.dtypes.end(), actual) == spec.dtypes.end()) {
    call.fail(ErrorCode::bad_dtype, spec.name, got + ", expected " + (spec.dtypes.size() > 1 ? "one of " : "") + join(spec.dtypes));
  }
}

/// Returns false when some dimension cannot be decided yet.
bool match_shape(const Call& call, int i, const Fields& fields, SymbolValues& values, bool last_pass) {
  const TensorSpec& spec = call.spec(i);
  const Tensor& tensor = *fields.tensors[index_of(i)];
  const ShapeExpr& shape = call.compiled().tensors[index_of(i)].shape;
  const ShapeAlternative* alternative = shape.for_rank(tensor.rank());
  if (alternative == nullptr) {
    std::string wanted;
    for (const auto& a : shape.alternatives()) wanted += (wanted.empty() ? "" : " or ") + a.text;
    call.fail(ErrorCode::bad_shape, spec.name,
              "has rank " + std::to_string(tensor.rank()) + " (shape " + to_string(tensor.shape()) + "), expected " + wanted);
  }
  const auto clash = [&] {
    call.fail(ErrorCode::bad_shape, spec.name,
              "has shape " + to_string(tensor.shape()) + ", expected " + alternative->text + call.witnesses(*alternative, values, fields));
  };
  const int packed = tensor.rank() - static_cast<int>(alternative->dims.size());
  if (alternative->pack >= 0) {
    std::int64_t product = 1;
    for (int d = 0; d < packed; ++d) product *= tensor.shape()[d];
    if (!values.bound(alternative->pack)) {
      values.bind(alternative->pack, product, i);
    } else if (values.value(alternative->pack) != product) {
      clash();
    }
  }
  bool resolved = true;
  for (std::size_t d = 0; d < alternative->dims.size(); ++d) {
    const std::int64_t actual = tensor.shape()[packed + static_cast<int>(d)];
    switch (alternative->dims[d].match(actual, values, i)) {
      case DimExpr::Match::equal: break;
      case DimExpr::Match::unequal: clash(); break;
      case DimExpr::Match::unresolved: resolved = false; break;
    }
  }
  if (!resolved && last_pass) clash();
  return resolved;
}

void match_shapes(const Call& call, const Fields& fields, SymbolValues& values) {
  std::vector<int> open;
  for (int i = 0; i < fields.tensor_count; ++i)
    if (fields.tensors[index_of(i)]->defined() && !match_shape(call, i, fields, values, false)) open.push_back(i);
  for (const int i : open) match_shape(call, i, fields, values, true);
}

void check_symbols(const Call& call, const SymbolValues& values, const Fields& fields) {
  const auto& rules = call.compiled().symbol_rules;
  for (int s = 0; s < call.compiled().symbols.count(); ++s) {
    const SymbolSpec* spec = rules[index_of(s)].spec;
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
    const std::string shape = witness >= 0 ? "has shape " + to_string(fields.tensors[index_of(witness)]->shape()) + ": " : "";
    call.fail(ErrorCode::bad_shape, where, shape + spec->name + " = " + std::to_string(value) + ", expected " + wanted);
  }
}

void allocate_outputs(const Call& call, Fields& fields, const SymbolValues& values) {
  for (int i = 0; i < fields.tensor_count; ++i) {
    const TensorSpec& spec = call.spec(i);
    Tensor& tensor = *fields.tensors[index_of(i)];
    if (const int source = call.compiled().tensors[index_of(i)].view_of; source >= 0) {
      if (tensor.defined())
        call.fail(ErrorCode::unknown_argument, spec.name, "is made by the op as a view of " + spec.view_of + " and cannot be given");
      tensor = fields.tensors[index_of(source)]->unowned();
      continue;
    }
    const int when = call.compiled().tensors[index_of(i)].when_attr;
    const bool wanted = when >= 0 ? *std::get<bool*>(fields.attrs[index_of(when)]) : !spec.optional;
    if (tensor.defined() || !wanted) continue;
    if (spec.direction != Direction::out) call.fail(ErrorCode::missing_argument, spec.name, "is missing");
    const auto& rules = call.compiled().tensors[index_of(i)];
    DType dtype = spec.dtypes.empty() ? DType::f32 : spec.dtypes.front();
    if (rules.dtype_tensor >= 0) dtype = fields.tensors[index_of(rules.dtype_tensor)]->dtype();
    if (rules.dtype_attr >= 0) dtype = *std::get<DType*>(fields.attrs[index_of(rules.dtype_attr)]);

    const ShapeAlternative& alternative = rules.shape.alternatives().front();
    Dims shape;
    if (alternative.pack >= 0) {
      // The leading dimensions are those of the tensor that brought the pack in.
      const int witness = values.witness(alternative.pack);
      if (witness >= 0) {
        const Tensor& source = *fields.tensors[index_of(witness)];
        const ShapeAlternative* from = call.compiled().tensors[index_of(witness)].shape.for_rank(source.rank());
        const int packed = from->pack == alternative.pack ? source.rank() - static_cast<int>(from->dims.size()) : 0;
        for (int d = 0; d < packed; ++d) shape.push_back(source.shape()[d]);
      } else {
        shape.push_back(values.value(alternative.pack));
      }
    }
    for (const DimExpr& dim : alternative.dims) {
      const std::int64_t size = dim.evaluate(values);
      if (size < 0)
        call.fail(ErrorCode::missing_argument, spec.name,
                  "is not given, and its shape " + alternative.text + " does not follow from the other arguments" +
                      call.witnesses(alternative, values, fields));
      shape.push_back(size);
    }
    try {
      tensor = Tensor(dtype, shape);
    } catch (const Error& error) {
      call.fail(error.code(), spec.name, error.message());
    }
  }
}

// ---- layout and aliasing ----

bool column_major(const Tensor& t) {
  return t.rank() >= 2 && t.transpose(-1, -2).contiguous();
}

void check_layout(const Call& call, int i, const Tensor& tensor) {
  const TensorSpec& spec = call.spec(i);
  const auto strides = [&] { return "has strides " + to_string(tensor.strides()) + " for shape " + to_string(tensor.shape()); };
  if (tensor.elements() == 0) return;
  if (tensor.data() == nullptr) call.fail(ErrorCode::bad_value, spec.name, "has no memory (null pointer)");
  for (int d = 0; d < tensor.rank(); ++d)
    if (tensor.stride(d) < 0) call.fail(ErrorCode::bad_stride, spec.name, strides() + ", negative strides are not accepted");
  const bool inner_dense = tensor.rank() == 0 || tensor.size(-1) == 1 || tensor.stride(-1) == 1;
  if (spec.layout == Layout::contiguous && !tensor.contiguous())
    call.fail(ErrorCode::bad_stride, spec.name, strides() + ", expected contiguous");
  if (spec.layout == Layout::column_major && !column_major(tensor))
    call.fail(ErrorCode::bad_stride, spec.name,
              strides() + ", expected column-major: the last two dimensions stored transposed, without gaps");
  if ((spec.layout == Layout::rows || is_packed(tensor.dtype())) && spec.layout != Layout::column_major && !inner_dense)
    call.fail(ErrorCode::bad_stride, spec.name, strides() + ", expected an inner stride of 1");

  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data());
  const int natural = std::max(1, bits(tensor.dtype()) / 8);
  const int alignment = std::max(natural, spec.alignment);
  if (address % static_cast<std::uintptr_t>(alignment) != 0)
    call.fail(ErrorCode::bad_alignment, spec.name,
              "begins " + std::to_string(address % static_cast<std::uintptr_t>(alignment)) + " bytes past a multiple of " +
                  std::to_string(alignment) + ", expected " + std::to_string(alignment) + "-byte alignment");
}

/// Sufficient test that no element is addressed twice: sorted by stride, each dimension steps over all smaller ones.
bool self_overlapping(const Tensor& t) {
  // Dimensions of size 1 address nothing: they sort behind all others and are skipped.
  std::array<std::pair<std::int64_t, std::int64_t>, max_rank> dims;
  dims.fill({std::numeric_limits<std::int64_t>::max(), 1});
  for (int d = 0; d < t.rank(); ++d)
    if (t.size(d) > 1) dims[index_of(d)] = {t.stride(d), t.size(d)};
  std::sort(dims.begin(), dims.end());
  std::int64_t reach = 0;
  for (const auto& [stride, size] : dims) {
    if (size == 1) break;
    if (stride <= reach) return true;
    reach += stride * (size - 1);
  }
  return false;
}

bool same_view(const Tensor& a, const Tensor& b) {
  return a.data() == b.data() && a.dtype() == b.dtype() && a.shape() == b.shape() && a.strides() == b.strides();
}

void check_memory(const Call& call, const Fields& fields) {
  for (int i = 0; i < fields.tensor_count; ++i) {
    const Tensor& tensor = *fields.tensors[index_of(i)];
    if (!tensor.defined()) continue;
    check_layout(call, i, tensor);
    const TensorSpec& spec = call.spec(i);
    if (spec.direction == Direction::in || !spec.view_of.empty()) continue;
    if (!tensor.writable()) call.fail(ErrorCode::bad_value, spec.name, "is read-only, expected writable memory");
    if (tensor.elements() == 0) continue;
    if (self_overlapping(tensor))
      call.fail(ErrorCode::bad_alias, spec.name,
                "has strides " + to_string(tensor.strides()) + " for shape " + to_string(tensor.shape()) + ": its own elements overlap");
    for (int j = 0; j < fields.tensor_count; ++j) {
      const Tensor& other = *fields.tensors[index_of(j)];
      const bool both_written = call.spec(j).direction != Direction::in;
      if (!call.spec(j).view_of.empty()) continue;
      if (j == i || !other.defined() || (both_written && j < i) || !share_memory(tensor, other)) continue;
      const bool allowed = call.compiled().tensors[index_of(i)].may_alias == j;
      if (allowed && same_view(tensor, other)) continue;
      call.fail(ErrorCode::bad_alias, spec.name,
                "shares memory with " + call.spec(j).name +
                    (allowed ? ", expected the very same view or separate memory" : ", expected separate memory"));
    }
  }
}

// ---- contents ----

template <class T>
void check_ids(const Call& call, const TensorSpec& spec, const Tensor& tensor, std::int64_t bound) {
  const std::int64_t least = spec.role == Role::lengths ? 1 : 0;
  const std::int64_t count = tensor.elements();
  const T* data = tensor.as<T>();
  const bool dense = tensor.contiguous();
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<std::int64_t>(data[dense ? i : tensor.offset(i)]);
    if (value < least || value >= bound)
      call.fail(ErrorCode::bad_value, spec.name,
                "holds " + std::to_string(value) + " at element " + std::to_string(i) + ", expected " + std::to_string(least) + " to " +
                    std::to_string(bound - 1) + " (below " + spec.bound + " = " + std::to_string(bound) + ")");
  }
}

void check_contents(const Call& call, const Fields& fields, const SymbolValues& values) {
  for (int i = 0; i < fields.tensor_count; ++i) {
    const TensorSpec& spec = call.spec(i);
    const Tensor& tensor = *fields.tensors[index_of(i)];
    if (!tensor.defined() || spec.direction == Direction::out) continue;
    const auto& bound = call.compiled().tensors[index_of(i)].bound;
    // The tensor that sets the bound may be optional and absent; then the op's own check has the word. So it has of page tables, whose
    // entries beyond a sequence's end are not looked at.
    const std::int64_t below = bound ? bound->evaluate(values) : -1;
    if (below >= 0 && spec.role != Role::page_table && !spec.may_stray) {
      // An indptr ends at the bound, ids stay below it.
      const std::int64_t limit = below + (spec.role == Role::indptr ? 1 : 0);
      if (tensor.dtype() == DType::i64) check_ids<std::int64_t>(call, spec, tensor, limit);
      if (tensor.dtype() == DType::i32) check_ids<std::int32_t>(call, spec, tensor, limit);
    }
    if (spec.role == Role::scale && tensor.dtype() == DType::f32) {
      const std::int64_t count = tensor.elements();
      for (std::int64_t k = 0; k < count; ++k)
        if (std::isnan(tensor.as<float>()[tensor.offset(k)]))
          call.fail(ErrorCode::bad_value, spec.name, "holds NaN at element " + std::to_string(k) + ", expected a scale");
    }
  }
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

}  // namespace

CompiledSchema::CompiledSchema(const OpInfo& info, const OpSchema& schema) : symbol_specs(schema.symbols) {
  const auto fail = [&](const std::string& what) { throw std::logic_error("schema of " + std::string(info.name) + ": " + what); };
  const auto require = [&](int found, const std::string& what) {
    if (found < 0) fail(what);
    return found;
  };
  for (const TensorSpec& spec : schema.tensors) {
    TensorRules rules;
    rules.shape = ShapeExpr::parse(spec.shape, symbols);
    if (!spec.same_dtype_as.empty())
      rules.dtype_tensor = require(tensor_index(schema, spec.same_dtype_as), "no tensor " + spec.same_dtype_as);
    if (!spec.view_of.empty()) rules.view_of = require(tensor_index(schema, spec.view_of), "no tensor " + spec.view_of);
    if (!spec.when.empty()) rules.when_attr = require(attr_index(schema, spec.when), "no attribute " + spec.when);
    if (!spec.dtype_attr.empty()) rules.dtype_attr = require(attr_index(schema, spec.dtype_attr), "no attribute " + spec.dtype_attr);
    tensors.push_back(std::move(rules));
  }
  for (std::size_t i = 0; i < schema.tensors.size(); ++i) {
    if (schema.tensors[i].bound.empty()) continue;
    const int known = symbols.count();
    tensors[i].bound = DimExpr::parse(schema.tensors[i].bound, symbols);
    if (symbols.count() > known) fail("no symbol " + symbols.name(known));
  }
  for (const auto& [output, input] : schema.properties.in_place)
    tensors[index_of(require(tensor_index(schema, output), "no tensor " + output))].may_alias =
        require(tensor_index(schema, input), "no tensor " + input);
  for (const std::string& symbol : schema.properties.rows_independent) require(symbols.find(symbol), "no symbol " + symbol);
  symbol_rules.resize(index_of(symbols.count()));
  for (int s = 0; s < symbols.count(); ++s) {
    auto& rules = symbol_rules[index_of(s)];
    const int attr = attr_index(schema, symbols.name(s));
    if (attr >= 0 && std::holds_alternative<std::int64_t>(schema.attrs[index_of(attr)].default_value)) rules.attr = attr;
    for (const SymbolSpec& spec : symbol_specs)
      if (spec.name == symbols.name(s)) rules.spec = &spec;
  }
  for (const SymbolSpec& spec : symbol_specs) require(symbols.find(spec.name), "no symbol " + spec.name);
}

void compile(const OpInfo& info, OpSchema& schema) {
  // What nothing rounds is compared by its bits, unless the schema says otherwise.
  for (TensorSpec& spec : schema.tensors)
    if (spec.direction != Direction::in && spec.judge == Judge::budget && !spec.dtypes.empty() && !is_float(spec.dtypes.front()))
      spec.judge = Judge::exact;
  schema.compiled = std::make_shared<const CompiledSchema>(info, schema);
}

void bind(const OpInfo& info, const OpSchema& schema, const Arguments& arguments, Fields& fields) {
  const Call call{info, schema};
  for (const auto& [argument, tensor] : arguments.tensors) {
    const int i = tensor_index(schema, argument);
    if (i < 0) {
      std::string known;
      for (const auto& spec : schema.tensors) known += (known.empty() ? "" : ", ") + spec.name;
      call.fail(ErrorCode::unknown_argument, argument, "is not an argument of this op; its tensors are " + known);
    }
    *fields.tensors[index_of(i)] = tensor;
  }
  for (const auto& [attribute, value] : arguments.attrs) {
    const int i = attr_index(schema, attribute);
    if (i < 0) {
      std::string known;
      for (const auto& spec : schema.attrs) known += (known.empty() ? "" : ", ") + spec.name;
      call.fail(ErrorCode::unknown_argument, attribute,
                "is not an attribute of this op" + (known.empty() ? "; it has none" : "; its attributes are " + known));
    }
    store(fields.attrs[index_of(i)], convert(call, schema.attrs[index_of(i)], value));
  }
  for (int i = 0; i < fields.attr_count; ++i) {
    const AttrSpec& spec = schema.attrs[index_of(i)];
    if (spec.required && arguments.find_attr(spec.name) == nullptr) call.fail(ErrorCode::missing_argument, spec.name, "is missing");
  }
}

SymbolValues validate(const OpInfo& info, const OpSchema& schema, Fields& fields) {
  const Call call{info, schema};
  const CompiledSchema& compiled = call.compiled();
  for (int i = 0; i < fields.attr_count; ++i) check_attr(call, schema.attrs[index_of(i)], fields.attrs[index_of(i)]);
  for (int i = 0; i < fields.tensor_count; ++i) {
    const TensorSpec& spec = call.spec(i);
    if (fields.tensors[index_of(i)]->defined()) {
      check_dtype(call, i, fields);
    } else if ((spec.direction != Direction::out && !spec.optional) || spec.given) {
      call.fail(ErrorCode::missing_argument, spec.name, "is missing");
    }
  }
  SymbolValues values(compiled.symbols.count());
  for (int s = 0; s < compiled.symbols.count(); ++s) {
    const int attr = compiled.symbol_rules[index_of(s)].attr;
    if (attr >= 0) values.bind(s, *std::get<std::int64_t*>(fields.attrs[index_of(attr)]), -1);
  }
  match_shapes(call, fields, values);
  check_symbols(call, values, fields);
  allocate_outputs(call, fields, values);
  check_memory(call, fields);
  check_contents(call, fields, values);
  return values;
}

void give_back(const OpSchema& schema, const Fields& fields, Arguments& arguments) {
  for (int i = 0; i < fields.tensor_count; ++i) {
    const TensorSpec& spec = schema.tensors[index_of(i)];
    if (spec.direction == Direction::out && fields.tensors[index_of(i)]->defined()) arguments.set(spec.name, *fields.tensors[index_of(i)]);
  }
}

bool share_memory(const Tensor& a, const Tensor& b) {
  const std::int64_t a_bytes = a.extent_bytes(), b_bytes = b.extent_bytes();
  if (a_bytes == 0 || b_bytes == 0) return false;
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a.data()), b_begin = reinterpret_cast<std::uintptr_t>(b.data());
  const auto a_end = a_begin + static_cast<std::uintptr_t>(a_bytes), b_end = b_begin + static_cast<std::uintptr_t>(b_bytes);
  if (a_end <= b_begin || b_end <= a_begin) return false;
  if (a.contiguous() && b.contiguous()) return true;
  // The extents overlap, the elements may still interleave (columns of one wider tensor): mark the bytes of one, look up the other's.
  const std::uintptr_t begin = std::max(a_begin, b_begin), end = std::min(a_end, b_end);
  std::vector<bool> touched(static_cast<std::size_t>(end - begin));
  const auto each_byte = [&](const Tensor& t, std::uintptr_t base, auto visit) {
    const std::int64_t count = t.elements();
    const int width = bits(t.dtype());
    for (std::int64_t i = 0; i < count; ++i) {
      const auto first = base + static_cast<std::uintptr_t>(t.offset(i) * width / 8);
      for (std::uintptr_t byte = first; byte < first + static_cast<std::uintptr_t>(std::max(1, width / 8)); ++byte)
        if (byte >= begin && byte < end && visit(static_cast<std::size_t>(byte - begin))) return true;
    }
    return false;
  };
  each_byte(a, a_begin, [&](std::size_t byte) {
    touched[byte] = true;
    return false;
  });
  return each_byte(b, b_begin, [&](std::size_t byte) { return touched[byte]; });
}

std::vector<PlannedTensor> plan(const OpInfo& info, const OpSchema& schema, const std::map<std::string, std::int64_t>& symbols,
                                const std::map<std::string, DType>& dtypes, const Arguments& attrs) {
  const Call call{info, schema};
  const CompiledSchema& compiled = call.compiled();
  SymbolValues values(compiled.symbols.count());
  for (int s = 0; s < compiled.symbols.count(); ++s) {
    const int attr = compiled.symbol_rules[index_of(s)].attr;
    if (attr < 0) continue;
    const AttrSpec& spec = schema.attrs[index_of(attr)];
    const AttrValue* given = attrs.find_attr(spec.name);
    values.bind(s, std::get<std::int64_t>(given ? convert(call, spec, *given) : spec.default_value), -1);
  }
  for (const auto& [symbol, value] : symbols) {
    const int s = compiled.symbols.find(symbol);
    if (s < 0) {
      std::string known;
      for (int k = 0; k < compiled.symbols.count(); ++k) known += (k ? ", " : "") + compiled.symbols.name(k);
      call.fail(ErrorCode::bad_shape, symbol, "is not a size of this op; its sizes are " + known);
    }
    if (value < 0) call.fail(ErrorCode::bad_shape, symbol, "must not be negative, got " + std::to_string(value));
    if (compiled.symbol_rules[index_of(s)].attr < 0) values.bind(s, value, -1);
  }
  // A size that can only be one number need not be given.
  for (int s = 0; s < compiled.symbols.count(); ++s) {
    const SymbolSpec* spec = compiled.symbol_rules[index_of(s)].spec;
    if (!values.bound(s) && spec != nullptr && spec->choices.size() == 1) values.bind(s, spec->choices.front(), -1);
  }
  Fields none;
  check_symbols(call, values, none);

  std::vector<PlannedTensor> planned;
  for (std::size_t i = 0; i < schema.tensors.size(); ++i) {
    const TensorSpec& spec = schema.tensors[i];
    const auto& rules = compiled.tensors[i];
    PlannedTensor tensor{&spec, spec.dtypes.empty() ? DType::f32 : spec.dtypes.front(), {}, 0};
    if (rules.dtype_tensor >= 0) {
      tensor.dtype = planned.at(index_of(rules.dtype_tensor)).dtype;
    } else if (rules.dtype_attr >= 0) {
      const AttrSpec& attr = schema.attrs[index_of(rules.dtype_attr)];
      const AttrValue* given = attrs.find_attr(attr.name);
      tensor.dtype = std::get<DType>(given ? convert(call, attr, *given) : attr.default_value);
    } else if (const auto given = dtypes.find(spec.name); given != dtypes.end()) {
      if (std::find(spec.dtypes.begin(), spec.dtypes.end(), given->second) == spec.dtypes.end())
        call.fail(ErrorCode::bad_dtype, spec.name,
                  "cannot be " + std::string(name(given->second)) + ", expected one of " + join(spec.dtypes));
      tensor.dtype = given->second;
    }
    const ShapeAlternative& alternative = rules.shape.alternatives().front();
    bool determined = true;
    const auto push = [&](std::int64_t size, const std::string& text) {
      if (size < 0 && spec.optional) determined = false;
      if (size < 0 && !spec.optional)
        call.fail(ErrorCode::bad_shape, spec.name, "has shape " + alternative.text + ", and the given sizes do not determine " + text);
      if (determined) tensor.shape.push_back(size);
    };
    if (alternative.pack >= 0) push(values.value(alternative.pack), compiled.symbols.name(alternative.pack));
    for (const DimExpr& dim : alternative.dims) push(dim.evaluate(values), dim.text());
    // Ids without the tensor that they point into are of no use.
    const std::int64_t below = rules.bound ? rules.bound->evaluate(values) : -1;
    if (spec.optional && rules.bound && below < 0) determined = false;
    if (!determined) tensor.spec = nullptr;
    if (below >= 0) tensor.bound = below;
    planned.push_back(tensor);
  }
  for (const auto& [argument, dtype] : dtypes)
    if (schema.find_tensor(argument) == nullptr) call.fail(ErrorCode::unknown_argument, argument, "is not an argument of this op");
  // Optional tensors whose sizes were not given are left out of the call.
  std::erase_if(planned, [](const PlannedTensor& t) { return t.spec == nullptr; });
  return planned;
}

}  // namespace dodona
