#include <algorithm>
#include <cmath>

#include "core/call_context.h"
#include "core/row_lengths.h"

namespace dodona {

using namespace calls;

namespace {

// ---- dtypes and shapes ----

void check_dtype(const Call& call, int i, const Fields& fields) {
  const TensorSpec& spec = call.spec(i);
  const auto& rules = call.compiled().tensors[slot(i)];
  const DType actual = fields.tensors[slot(i)]->dtype();
  const std::string got = "has dtype " + std::string(name(actual));
  const auto among = [&](const std::vector<DType>& types) { return std::find(types.begin(), types.end(), actual) != types.end(); };
  const auto refuse = [&](const std::vector<DType>& types) {
    call.fail(ErrorCode::bad_dtype, spec.name, got + ", expected " + (types.size() > 1 ? "one of " : "") + join(types));
  };
  if (rules.dtype_tensor >= 0) {
    // Where the other is not there, as weights that are packed know nothing of rows, it counts what it could be.
    const std::vector<DType>& could_be = call.spec(rules.dtype_tensor).dtypes;
    const Tensor& other = *fields.tensors[slot(rules.dtype_tensor)];
    if (!other.defined() && !could_be.empty() && !among(could_be) && !among(spec.dtypes)) refuse(could_be);
    if (other.defined() && other.dtype() != actual && !among(spec.dtypes))
      call.fail(ErrorCode::bad_dtype, spec.name,
                got + ", expected " + std::string(name(other.dtype())) + " as " + spec.same_dtype_as +
                    (spec.dtypes.empty() ? "" : " or " + join(spec.dtypes)));
  } else if (rules.dtype_attr >= 0) {
    const DType wanted = *std::get<DType*>(fields.attrs[slot(rules.dtype_attr)]);
    if (wanted != actual)
      call.fail(ErrorCode::bad_dtype, spec.name,
                got + ", expected " + std::string(name(wanted)) + " (from attribute " + spec.dtype_attr + ")");
  } else if (!among(spec.dtypes)) {
    refuse(spec.dtypes);
  }
}

/// Returns false when some dimension cannot be decided yet.
bool match_shape(const Call& call, int i, const Fields& fields, SymbolValues& values, bool last_pass) {
  const TensorSpec& spec = call.spec(i);
  const Tensor& tensor = *fields.tensors[slot(i)];
  const ShapeExpr& shape = call.compiled().tensors[slot(i)].shape;
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
    if (fields.tensors[slot(i)]->defined() && !match_shape(call, i, fields, values, false)) open.push_back(i);
  for (const int i : open) match_shape(call, i, fields, values, true);
}

void allocate_outputs(const Call& call, Fields& fields, const SymbolValues& values) {
  for (int i = 0; i < fields.tensor_count; ++i) {
    const TensorSpec& spec = call.spec(i);
    Tensor& tensor = *fields.tensors[slot(i)];
    if (const int source = call.compiled().tensors[slot(i)].view_of; source >= 0) {
      if (tensor.defined())
        call.fail(ErrorCode::unknown_argument, spec.name, "is made by the op as a view of " + spec.view_of + " and cannot be given");
      tensor = fields.tensors[slot(source)]->unowned();
      continue;
    }
    const int when = call.compiled().tensors[slot(i)].when_attr;
    const bool wanted = when >= 0 ? *std::get<bool*>(fields.attrs[slot(when)]) : !spec.optional;
    if (tensor.defined() || !wanted) continue;
    if (spec.direction != Direction::out) call.fail(ErrorCode::missing_argument, spec.name, "is missing");
    const auto& rules = call.compiled().tensors[slot(i)];
    DType dtype = spec.dtypes.empty() ? DType::f32 : spec.dtypes.front();
    if (rules.dtype_tensor >= 0) dtype = fields.tensors[slot(rules.dtype_tensor)]->dtype();
    if (rules.dtype_attr >= 0) dtype = *std::get<DType*>(fields.attrs[slot(rules.dtype_attr)]);

    const ShapeAlternative& alternative = rules.shape.alternatives().front();
    Dims shape;
    if (alternative.pack >= 0) {
      // The leading dimensions are those of the tensor that brought the pack in.
      const int witness = values.witness(alternative.pack);
      if (witness >= 0) {
        const Tensor& source = *fields.tensors[slot(witness)];
        const ShapeAlternative* from = call.compiled().tensors[slot(witness)].shape.for_rank(source.rank());
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

/// Which rows of a tensor are somebody's: memory behind a group's length and rows of no group (-1) are as the allocator gave them.
class RowsThatCount {
 public:
  RowsThatCount(const Call& call, const Fields& fields, const TensorSpec& spec, const Tensor& tensor) {
    const std::string_view dims = spec.shape;
    const std::size_t first_end = dims.find(' ');
    if (first_end == std::string_view::npos || tensor.rank() < 2) return;
    const std::string_view first = dims.substr(0, first_end), rest = dims.substr(first_end + 1), second = rest.substr(0, rest.find(' '));
    for (int i = 0; i < fields.tensor_count; ++i) {
      const TensorSpec& its = call.spec(i);
      const Tensor& t = *fields.tensors[slot(i)];
      if (its.direction != Direction::in || !t.defined() || t.dtype() != DType::i32 || t.rank() != 1 || its.shape != first) continue;
      if (holds_row_lengths(its, first, second)) {
        lengths_ = &t;
      } else if (its.bound.empty()) {
        groups_ = &t;
      }
    }
    width_ = std::max<std::int64_t>(tensor.elements() / std::max<std::int64_t>(tensor.size(0), 1), 1);
    of_row_ = std::max<std::int64_t>(width_ / std::max<std::int64_t>(tensor.size(1), 1), 1);
  }
  bool hold(std::int64_t element) const {
    const std::int64_t first = element / width_;
    if (lengths_ != nullptr && element % width_ / of_row_ >= lengths_->as<std::int32_t>()[lengths_->offset(first)]) return false;
    return groups_ == nullptr || groups_->as<std::int32_t>()[groups_->offset(first)] >= 0;
  }

 private:
  const Tensor* lengths_ = nullptr;  ///< of each of the first dimension, along the second
  const Tensor* groups_ = nullptr;   ///< a choice for each of the first dimension, -1 for none
  std::int64_t width_ = 1, of_row_ = 1;
};

void check_contents(const Call& call, const Fields& fields, const SymbolValues& values) {
  for (int i = 0; i < fields.tensor_count; ++i) {
    const TensorSpec& spec = call.spec(i);
    const Tensor& tensor = *fields.tensors[slot(i)];
    if (!tensor.defined() || spec.direction == Direction::out || fields.stands_in[slot(i)]) continue;
    const auto& bound = call.compiled().tensors[slot(i)].bound;
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
      const RowsThatCount rows(call, fields, spec, tensor);
      for (std::int64_t k = 0; k < count; ++k)
        if (std::isnan(tensor.as<float>()[tensor.offset(k)]) && rows.hold(k))
          call.fail(ErrorCode::bad_value, spec.name, "holds NaN at element " + std::to_string(k) + ", expected a scale");
    }
  }
}

/// Sizes that are attributes which count.
template <class Counts>
void bind_attributes(const Call& call, const Fields& fields, const Counts& counts, SymbolValues& values) {
  const CompiledSchema& compiled = call.compiled();
  for (int s = 0; s < compiled.symbols.count(); ++s) {
    const int attr = compiled.symbol_rules[slot(s)].attr;
    if (attr >= 0 && counts(call.schema.attrs[slot(attr)]))
      values.bind(s, std::visit([](const auto* field) { return size_of(*field); }, fields.attrs[slot(attr)]), -1);
  }
}

}  // namespace

SymbolValues validate(const OpInfo& info, const OpSchema& schema, Fields& fields) {
  const Call call{info, schema};
  const CompiledSchema& compiled = call.compiled();
  for (int i = 0; i < fields.attr_count; ++i) check_attr(call, schema.attrs[slot(i)], fields.attrs[slot(i)]);
  for (int i = 0; i < fields.tensor_count; ++i) {
    const TensorSpec& spec = call.spec(i);
    if (fields.tensors[slot(i)]->defined()) {
      check_dtype(call, i, fields);
    } else if ((spec.direction != Direction::out && !spec.optional) || spec.given) {
      call.fail(ErrorCode::missing_argument, spec.name, "is missing");
    }
  }
  SymbolValues values(compiled.symbols.count());
  bind_attributes(
      call, fields, [](const AttrSpec&) { return true; }, values);
  match_shapes(call, fields, values);
  check_symbols(call, values, fields);
  allocate_outputs(call, fields, values);
  check_memory(call, fields);
  check_contents(call, fields, values);
  return values;
}

void validate_weights(const OpInfo& info, const OpSchema& schema, Fields& fields) {
  const Call call{info, schema};
  const std::vector<std::string>& names = schema.properties.prepared;
  if (names.empty()) call.fail(ErrorCode::unsupported, "", "has nothing to prepare: fast mode reads its arguments as they are");
  for (int i = 0; i < fields.tensor_count; ++i) {
    const std::string& argument = call.spec(i).name;
    const bool wanted = std::find(names.begin(), names.end(), argument) != names.end(), given = fields.tensors[slot(i)]->defined();
    if (given && !wanted) call.fail(ErrorCode::unknown_argument, argument, "is not prepared; expected " + join_values(names));
    if (!given && wanted && !call.spec(i).optional) call.fail(ErrorCode::missing_argument, argument, "is missing");
    if (given) check_dtype(call, i, fields);
  }
  // Of attributes those count that a call may leave out: what a call has to say follows from the weights here.
  SymbolValues values(call.compiled().symbols.count());
  bind_attributes(
      call, fields, [](const AttrSpec& spec) { return !spec.required; }, values);
  match_shapes(call, fields, values);
  check_symbols(call, values, fields);
  check_memory(call, fields);
  check_contents(call, fields, values);
}

}  // namespace dodona
