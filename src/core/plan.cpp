#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "core/call_context.h"
#include "core/case_line.h"

namespace dodona {

using namespace calls;

namespace {

void check_presence(const Call& call, const CaseLine& line) {
  for (const auto* names : {&line.with, &line.without})
    for (const std::string& argument : *names) {
      const TensorSpec* spec = call.schema.find_tensor(argument);
      const std::string option = names == &line.with ? "--with" : "--without";
      if (spec == nullptr) call.fail(ErrorCode::unknown_argument, argument, "is not an argument of this op, " + option + " names it");
      if (!spec->optional) call.fail(ErrorCode::bad_option, argument, "is not optional, " + option + " names it");
      if (names == &line.without && spec->direction == Direction::out)
        call.fail(ErrorCode::bad_option, argument,
                  "is an output" + (spec->when.empty() ? "" : " that attribute " + spec->when + " asks for") + ", --without names it");
    }
}

/// Throws Error for the type of a tensor that the call has not, and whose type no other one takes.
void require_heard(const Call& call, const std::vector<PlannedTensor>& planned, const std::string& argument, DType dtype) {
  for (const PlannedTensor& tensor : planned)
    if (tensor.spec != nullptr && (tensor.spec->name == argument || tensor.spec->same_dtype_as == argument)) return;
  call.fail(ErrorCode::bad_option, argument, "is not in this call, --dtype says that it is " + std::string(name(dtype)));
}

/// The sizes that a case line gives: each is read by a tensor of the call, or the line says something that the call does not hear.
class GivenSizes {
 public:
  /// Binds them. Throws Error for what is no size of the op, and for attributes, which bind theirs themselves.
  GivenSizes(const Call& call, const std::map<std::string, std::int64_t>& sizes, SymbolValues& values) : call_(&call) {
    for (const auto& [symbol, value] : sizes) {
      const CompiledSchema& compiled = call.compiled();
      const int s = compiled.symbols.find(symbol);
      if (s < 0)
        call.fail(ErrorCode::bad_shape, symbol, "is not a size of this op; its sizes are " + list([&](int k) { return !attr(k); }));
      if (attr(s))
        call.fail(ErrorCode::bad_shape, symbol,
                  "is an attribute of this op, expected --attr " + symbol + "=" + std::to_string(value) + " instead of a size");
      if (value < 0) call.fail(ErrorCode::bad_shape, symbol, "must not be negative, got " + std::to_string(value));
      values.bind(s, value, -1);
      unread_.insert(s);
    }
    given_ = unread_;
  }

  /// The first shape that has every given size which one of the tensor's shapes has; the first of all where none does.
  const ShapeAlternative& choose(const ShapeExpr& shape) const {
    std::set<int> wanted;
    for (const ShapeAlternative& alternative : shape.alternatives())
      for (const int s : symbols_of(alternative))
        if (given_.count(s) != 0) wanted.insert(s);
    for (const ShapeAlternative& alternative : shape.alternatives()) {
      const std::set<int> has = symbols_of(alternative);
      if (std::includes(has.begin(), has.end(), wanted.begin(), wanted.end())) return alternative;
    }
    return shape.alternatives().front();
  }

  void read(const ShapeAlternative& alternative, const std::optional<DimExpr>& bound) {
    std::set<int> symbols = symbols_of(alternative);
    if (bound) symbols.insert(bound->symbols().begin(), bound->symbols().end());
    for (const int s : symbols) unread_.erase(s);
    read_.insert(symbols.begin(), symbols.end());
  }

  /// Throws Error for a size that no tensor of the call has.
  void require_all_read() const {
    if (unread_.empty()) return;
    const int s = *unread_.begin();
    call_->fail(ErrorCode::bad_shape, call_->compiled().symbols.name(s),
                "is a size of no tensor of this call; their sizes are " + list([&](int k) { return !attr(k) && read_.count(k) != 0; }) +
                    optional_ones(s));
  }

 private:
  bool attr(int symbol) const { return call_->compiled().symbol_rules[slot(symbol)].attr >= 0; }
  template <class Wanted>
  std::string list(const Wanted& wanted) const {
    std::string names;
    for (int k = 0; k < call_->compiled().symbols.count(); ++k)
      if (wanted(k)) names += (names.empty() ? "" : ", ") + call_->compiled().symbols.name(k);
    return names.empty() ? "none" : names;
  }
  /// "; bias, which is optional and not there, has N": who would read it.
  std::string optional_ones(int symbol) const {
    std::string names;
    for (std::size_t i = 0; i < call_->schema.tensors.size(); ++i)
      for (const ShapeAlternative& alternative : call_->compiled().tensors[i].shape.alternatives())
        if (call_->schema.tensors[i].optional && symbols_of(alternative).count(symbol) != 0)
          names += "; " + call_->schema.tensors[i].name + " " + alternative.text + " is optional and not there";
    return names;
  }
  static std::set<int> symbols_of(const ShapeAlternative& alternative) {
    std::set<int> symbols;
    if (alternative.pack >= 0) symbols.insert(alternative.pack);
    for (const DimExpr& dim : alternative.dims) symbols.insert(dim.symbols().begin(), dim.symbols().end());
    return symbols;
  }

  const Call* call_;
  std::set<int> given_, unread_, read_;
};

}  // namespace

std::vector<PlannedTensor> plan(const OpInfo& info, const OpSchema& schema, const CaseLine& line, const Arguments& attrs) {
  const Call call{info, schema};
  const CompiledSchema& compiled = call.compiled();
  const auto& dtypes = line.dtypes;
  check_presence(call, line);
  for (const AttrSpec& spec : schema.attrs) {
    const AttrValue* given = attrs.find_attr(spec.name);
    if (given == nullptr) continue;
    AttrValue value = convert(call, spec, *given);
    check_attr(call, spec, std::visit([](auto& v) { return AttrPointer(&v); }, value));
  }
  SymbolValues values(compiled.symbols.count());
  for (int s = 0; s < compiled.symbols.count(); ++s) {
    const int attr = compiled.symbol_rules[slot(s)].attr;
    if (attr < 0) continue;
    const AttrSpec& spec = schema.attrs[slot(attr)];
    const AttrValue* given = attrs.find_attr(spec.name);
    values.bind(s, size_of(given ? convert(call, spec, *given) : spec.default_value), -1);
  }
  GivenSizes sizes(call, line.symbols, values);
  // A size that can only be one number need not be given.
  for (int s = 0; s < compiled.symbols.count(); ++s) {
    const SymbolSpec* spec = compiled.symbol_rules[slot(s)].spec;
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
      tensor.dtype = planned.at(slot(rules.dtype_tensor)).dtype;
      const auto given = dtypes.find(spec.name);
      if (given != dtypes.end() && !spec.dtypes.empty() && given->second != tensor.dtype) {
        if (std::find(spec.dtypes.begin(), spec.dtypes.end(), given->second) == spec.dtypes.end())
          call.fail(ErrorCode::bad_dtype, spec.name,
                    "cannot be " + std::string(name(given->second)) + ", expected " + std::string(name(tensor.dtype)) + " as " +
                        spec.same_dtype_as + " or " + join(spec.dtypes));
        tensor.dtype = given->second;
      }
    } else if (rules.dtype_attr >= 0) {
      const AttrSpec& attr = schema.attrs[slot(rules.dtype_attr)];
      const AttrValue* given = attrs.find_attr(attr.name);
      tensor.dtype = std::get<DType>(given ? convert(call, attr, *given) : attr.default_value);
    } else if (const auto given = dtypes.find(spec.name); given != dtypes.end()) {
      if (std::find(spec.dtypes.begin(), spec.dtypes.end(), given->second) == spec.dtypes.end())
        call.fail(ErrorCode::bad_dtype, spec.name,
                  "cannot be " + std::string(name(given->second)) + ", expected one of " + join(spec.dtypes));
      tensor.dtype = given->second;
    }
    const ShapeAlternative& alternative = sizes.choose(rules.shape);
    const bool asked = line.with.count(spec.name) != 0, left_out = line.without.count(spec.name) != 0 || (spec.on_request && !asked);
    const bool may_lack = spec.optional && !asked;
    bool determined = !left_out;
    const auto push = [&](std::int64_t size, const std::string& text) {
      if (size < 0 && may_lack) determined = false;
      if (size < 0 && !may_lack)
        call.fail(ErrorCode::bad_shape, spec.name, "has shape " + alternative.text + ", and the given sizes do not determine " + text);
      if (determined) tensor.shape.push_back(size);
    };
    if (alternative.pack >= 0) push(values.value(alternative.pack), compiled.symbols.name(alternative.pack));
    for (const DimExpr& dim : alternative.dims) push(dim.evaluate(values), dim.text());
    // Ids without the tensor that they point into are of no use.
    const std::int64_t below = rules.bound ? rules.bound->evaluate(values) : -1;
    if (may_lack && rules.bound && below < 0) determined = false;
    // Of what the line leaves out by name it may well give the sizes.
    if (determined || line.without.count(spec.name) != 0) sizes.read(alternative, rules.bound);
    if (!determined) tensor.spec = nullptr;
    if (below >= 0) tensor.bound = below;
    planned.push_back(tensor);
  }
  for (const auto& [argument, dtype] : dtypes) {
    if (schema.find_tensor(argument) == nullptr) call.fail(ErrorCode::unknown_argument, argument, "is not an argument of this op");
    require_heard(call, planned, argument, dtype);
    for (const PlannedTensor& tensor : planned)
      if (tensor.spec != nullptr && tensor.spec->name == argument && tensor.dtype != dtype)
        call.fail(ErrorCode::bad_dtype, argument,
                  "cannot be " + std::string(name(dtype)) + ", expected " + std::string(name(tensor.dtype)) +
                      (tensor.spec->same_dtype_as.empty() ? ", which attribute " + tensor.spec->dtype_attr + " says"
                                                          : " as " + tensor.spec->same_dtype_as));
  }
  sizes.require_all_read();
  // Optional tensors that are not wanted, or whose sizes were not given, are left out of the call.
  std::erase_if(planned, [](const PlannedTensor& t) { return t.spec == nullptr; });
  return planned;
}

}  // namespace dodona
