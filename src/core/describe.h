// What an op's `describe` talks to. One pass over the same function either writes the schema or collects the fields of an instance.
//
//   void describe(auto& op) {
//     op.in("input", input, {bf16, f16, f32}, "T... H").doc("...");
//     op.in("weight", weight, same_as("input"), "H");
//     op.attr("eps", eps, at_least(0.0));
//     op.out("output", output, same_as("input"), "T... H");
//   }
#pragma once

#include <array>
#include <initializer_list>
#include <stdexcept>
#include <string_view>
#include <type_traits>

#include "dodona/op.h"

namespace dodona {

struct SameAs {
  std::string_view argument;
};
struct DTypeFrom {
  std::string_view attribute;
};
constexpr SameAs same_as(std::string_view argument) {
  return {argument};
}
/// The dtype that the attribute of this name holds.
constexpr DTypeFrom dtype_of_attr(std::string_view attribute) {
  return {attribute};
}

struct Range {
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
};
constexpr Range at_least(double minimum) {
  return {minimum, std::numeric_limits<double>::infinity()};
}
constexpr Range between(double minimum, double maximum) {
  return {minimum, maximum};
}

/// The accepted element types of an argument, in any of three ways.
struct DTypeRule {
  std::initializer_list<DType> list = {};
  std::string_view same, attr;
  DTypeRule(std::initializer_list<DType> types) : list(types) {}
  DTypeRule(SameAs rule) : same(rule.argument) {}
  DTypeRule(DTypeFrom rule) : attr(rule.attribute) {}
};

using AttrPointer = std::variant<std::int64_t*, double*, bool*, std::string*, DType*>;

/// Pointers to the fields of one op instance, in the order of its schema.
struct Fields {
  /// compile() refuses a schema that has more of either.
  static constexpr int capacity = 48;
  std::array<Tensor*, capacity> tensors;
  std::array<AttrPointer, capacity> attrs;
  std::array<bool, capacity> stands_in = {};  ///< the tensor has a dtype and a shape but no memory: prepared weights hold what it was
  int tensor_count = 0, attr_count = 0;
};

/// Collects fields; every description is ignored.
class FieldCollector {
 public:
  explicit FieldCollector(Fields& fields) : fields_(fields) {}

  struct Ignore {
    Ignore& doc(std::string_view) { return *this; }
    Ignore& role(Role, std::string_view = {}) { return *this; }
    Ignore& layout(Layout) { return *this; }
    Ignore& codes(DType) { return *this; }
    Ignore& scales(std::string_view, std::int64_t, std::int64_t, ScaleOrder = ScaleOrder::linear) { return *this; }
    Ignore& by_expert() { return *this; }
    Ignore& aligned(int) { return *this; }
    Ignore& judged(Judge) { return *this; }
    Ignore& optional() { return *this; }
    Ignore& on_request() { return *this; }
    Ignore& kin(std::string_view) { return *this; }
    Ignore& padded() { return *this; }
    Ignore& view_of(std::string_view) { return *this; }
    Ignore& may_stray() { return *this; }
    Ignore& given() { return *this; }
    Ignore& when(std::string_view) { return *this; }
    Ignore& required() { return *this; }
    Ignore& ignored() { return *this; }
    Ignore& recipe() { return *this; }
    template <class V>
    Ignore& dialect(std::string_view, const V&) {
      return *this;
    }
  };

  Ignore in(std::string_view, Tensor& t, const DTypeRule&, std::string_view) { return add(t); }
  Ignore out(std::string_view, Tensor& t, const DTypeRule&, std::string_view) { return add(t); }
  Ignore inout(std::string_view, Tensor& t, const DTypeRule&, std::string_view) { return add(t); }
  template <class T>
  Ignore attr(std::string_view, T& value, Range = {}) {
    return add_attr(value);
  }
  Ignore choice(std::string_view, std::string& value, std::initializer_list<std::string_view>) { return add_attr(value); }
  Ignore dtype_attr(std::string_view, DType& value, std::initializer_list<DType>) { return add_attr(value); }
  void signature(std::string_view) {}
  void symbol(std::string_view, const SymbolSpec&) {}
  void rows_independent(std::string_view) {}
  void in_place(std::string_view, std::string_view) {}

 private:
  static void require_room(int count) {
    if (count >= Fields::capacity) throw std::logic_error("an op describes more fields than Fields::capacity");
  }
  Ignore add(Tensor& t) {
    require_room(fields_.tensor_count);
    fields_.tensors[static_cast<std::size_t>(fields_.tensor_count++)] = &t;
    return {};
  }
  template <class T>
  Ignore add_attr(T& value) {
    require_room(fields_.attr_count);
    fields_.attrs[static_cast<std::size_t>(fields_.attr_count++)] = &value;
    return {};
  }
  Fields& fields_;
};

/// Writes the schema.
class SchemaWriter {
 public:
  explicit SchemaWriter(OpSchema& schema) : schema_(schema) {}

  /// Refers to the spec by position: the vectors grow while handles live.
  struct TensorHandle {
    OpSchema& schema;
    std::size_t index;
    TensorSpec& spec() const { return schema.tensors[index]; }
    TensorHandle& doc(std::string_view text) { return spec().doc = text, *this; }
    /// `bound` is the dimension expression that every id, position or length must be below.
    TensorHandle& role(Role role, std::string_view bound = {}) { return spec().role = role, spec().bound = bound, *this; }
    TensorHandle& layout(Layout layout) { return spec().layout = layout, *this; }
    /// The bytes hold codes of this type, the first in the low bits.
    TensorHandle& codes(DType code) { return spec().storage.code = code, *this; }
    /// One scale for each `rows` x `columns` elements of the tensor `of`, 0 for all of them.
    TensorHandle& scales(std::string_view of, std::int64_t rows, std::int64_t columns, ScaleOrder order = ScaleOrder::linear) {
      return spec().storage.scales = {std::string(of), rows, columns, order}, *this;
    }
    /// Behind scales(): each expert's rows begin a tile of their own.
    TensorHandle& by_expert() { return spec().storage.scales.value().by_expert = true, *this; }
    TensorHandle& aligned(int bytes) { return spec().alignment = bytes, *this; }
    TensorHandle& judged(Judge judge) { return spec().judge = judge, *this; }
    TensorHandle& optional() { return spec().optional = true, *this; }
    /// Optional, and left out of case lines that do not ask for it: `--with NAME`.
    TensorHandle& on_request() { return spec().on_request = true, optional(); }
    /// Made of other inputs by Implementation::make_inputs, and how, in words.
    TensorHandle& kin(std::string_view how) { return spec().kin = how, *this; }
    TensorHandle& padded() { return spec().padded = true, *this; }
    /// The output is a view of `argument`, which the call itself makes: never given, never allocated, not owning.
    TensorHandle& view_of(std::string_view argument) { return spec().view_of = argument, spec().layout = Layout::any, *this; }
    /// Values outside the bound are legal.
    TensorHandle& may_stray() { return spec().may_stray = true, *this; }
    /// The caller gives the output's memory, for its shape follows from no other argument.
    TensorHandle& given() { return spec().given = true, *this; }
    /// An optional output that is made when the attribute is true, and written whenever it is given.
    TensorHandle& when(std::string_view attribute) { return spec().when = attribute, spec().optional = true, *this; }
  };
  struct AttrHandle {
    OpSchema& schema;
    std::size_t index;
    AttrSpec& spec() const { return schema.attrs[index]; }
    AttrHandle& doc(std::string_view text) { return spec().doc = text, *this; }
    AttrHandle& required() { return spec().required = true, *this; }
    AttrHandle& ignored() { return spec().ignored = true, *this; }
    /// A numerics choice; `dialect` then says what other upstreams choose.
    AttrHandle& recipe() { return spec().recipe = true, *this; }
    template <class V>
    AttrHandle& dialect(std::string_view dialect, const V& value) {
      spec().recipe = true;
      if constexpr (std::is_convertible_v<V, std::string_view>) {
        spec().dialect_values.emplace_back(dialect, std::string(value));
      } else {
        spec().dialect_values.emplace_back(dialect, value);
      }
      return *this;
    }
  };

  TensorHandle in(std::string_view name, Tensor&, const DTypeRule& rule, std::string_view shape) {
    return add(name, Direction::in, rule, shape);
  }
  TensorHandle out(std::string_view name, Tensor&, const DTypeRule& rule, std::string_view shape) {
    return add(name, Direction::out, rule, shape);
  }
  TensorHandle inout(std::string_view name, Tensor&, const DTypeRule& rule, std::string_view shape) {
    return add(name, Direction::inout, rule, shape);
  }
  /// The field's initial value is the default.
  template <class T>
  AttrHandle attr(std::string_view name, const T& value, Range range = {}) {
    AttrSpec spec;
    spec.name = name;
    spec.default_value = value;
    spec.minimum = range.minimum;
    spec.maximum = range.maximum;
    return push(std::move(spec));
  }
  AttrHandle choice(std::string_view name, const std::string& value, std::initializer_list<std::string_view> choices) {
    AttrSpec spec;
    spec.name = name;
    spec.default_value = value;
    for (const std::string_view c : choices) spec.choices.emplace_back(c);
    return push(std::move(spec)).recipe();
  }
  AttrHandle dtype_attr(std::string_view name, DType value, std::initializer_list<DType> accepted) {
    AttrSpec spec;
    spec.name = name;
    spec.default_value = value;
    spec.dtypes = accepted;
    return push(std::move(spec));
  }
  /// Upstream's parameters in their order, where that is not the order here: see OpSchema::signature.
  void signature(std::string_view parameters) { schema_.signature = parameters; }
  void symbol(std::string_view name, SymbolSpec spec) {
    spec.name = name;
    schema_.symbols.push_back(std::move(spec));
  }
  void rows_independent(std::string_view symbol) { schema_.properties.rows_independent.emplace_back(symbol); }
  /// `output` may be the very memory of `input`.
  void in_place(std::string_view output, std::string_view input) { schema_.properties.in_place.emplace_back(output, input); }

 private:
  TensorHandle add(std::string_view name, Direction direction, const DTypeRule& rule, std::string_view shape);
  AttrHandle push(AttrSpec spec) {
    schema_.attrs.push_back(std::move(spec));
    return {schema_, schema_.attrs.size() - 1};
  }
  OpSchema& schema_;
};

inline SchemaWriter::TensorHandle SchemaWriter::add(std::string_view name, Direction direction, const DTypeRule& rule,
                                                    std::string_view shape) {
  TensorSpec spec;
  spec.name = name;
  spec.direction = direction;
  spec.dtypes = rule.list;
  spec.same_dtype_as = rule.same;
  spec.dtype_attr = rule.attr;
  spec.shape = shape;
  schema_.tensors.push_back(std::move(spec));
  return {schema_, schema_.tensors.size() - 1};
}

}  // namespace dodona
