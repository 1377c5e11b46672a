#include <algorithm>

#include "core/call_context.h"

namespace dodona {

using namespace calls;

namespace {

void store(const AttrPointer& target, const AttrValue& value) {
  std::visit([&](auto* pointer) { *pointer = std::get<std::remove_pointer_t<decltype(pointer)>>(value); }, target);
}

/// Weights to be packed: what else a call needs is not asked for.
bool are_weights_alone(const OpSchema& schema, const Arguments& arguments) {
  const std::vector<std::string>& names = schema.properties.prepared;
  const auto is_prepared = [&](const auto& entry) { return std::find(names.begin(), names.end(), entry.first) != names.end(); };
  return !arguments.tensors.empty() && std::all_of(arguments.tensors.begin(), arguments.tensors.end(), is_prepared);
}

}  // namespace

void bind(const OpInfo& info, const OpSchema& schema, const Arguments& arguments, Fields& fields) {
  const Call call{info, schema};
  for (const auto& [argument, tensor] : arguments.tensors) {
    const int i = tensor_index(schema, argument);
    if (i < 0) {
      std::string known;
      for (const auto& spec : schema.tensors) known += (known.empty() ? "" : ", ") + spec.name;
      call.fail(ErrorCode::unknown_argument, argument, "is not an argument of this op; its tensors are " + known);
    }
    *fields.tensors[slot(i)] = tensor;
  }
  stand_in(info, schema, arguments.prepared, fields);
  for (const auto& [attribute, value] : arguments.attrs) {
    const int i = attr_index(schema, attribute);
    if (i < 0) {
      std::string known;
      for (const auto& spec : schema.attrs) known += (known.empty() ? "" : ", ") + spec.name;
      call.fail(ErrorCode::unknown_argument, attribute,
                "is not an attribute of this op" + (known.empty() ? "; it has none" : "; its attributes are " + known));
    }
    store(fields.attrs[slot(i)], convert(call, schema.attrs[slot(i)], value));
  }
  if (are_weights_alone(schema, arguments)) return;
  for (int i = 0; i < fields.attr_count; ++i) {
    const AttrSpec& spec = schema.attrs[slot(i)];
    if (spec.required && arguments.find_attr(spec.name) == nullptr) call.fail(ErrorCode::missing_argument, spec.name, "is missing");
  }
}

void stand_in(const OpInfo& info, const OpSchema& schema, const Prepared& prepared, Fields& fields) {
  if (!prepared.defined()) return;
  const Call call{info, schema};
  if (prepared.op() != info.name)
    call.fail(ErrorCode::bad_value, "prepared", "holds weights of " + std::string(prepared.op()) + ", expected those of this op");
  for (const Prepared::Argument& argument : prepared.arguments()) {
    const std::size_t i = slot(tensor_index(schema, argument.name));
    if (fields.tensors[i]->defined())
      call.fail(ErrorCode::unknown_argument, argument.name, "is given, and prepared weights stand for it: expected one of the two");
    *fields.tensors[i] = Tensor(static_cast<const void*>(nullptr), argument.dtype, argument.shape, argument.strides);
    fields.stands_in[i] = true;
  }
}

void refuse_prepared(const OpInfo& info, const Prepared& prepared, std::string_view reader) {
  if (!prepared.defined()) return;
  std::string names;
  for (const Prepared::Argument& argument : prepared.arguments()) names += (names.empty() ? "" : ", ") + argument.name;
  throw Error(ErrorCode::unsupported, std::string(info.name), "prepared",
              "weights are read by fast mode alone, " + std::string(reader) + " needs the arguments that they stand for: " + names);
}

void give_back(const OpSchema& schema, const Fields& fields, Arguments& arguments) {
  for (int i = 0; i < fields.tensor_count; ++i) {
    const TensorSpec& spec = schema.tensors[slot(i)];
    if (spec.direction == Direction::out && fields.tensors[slot(i)]->defined()) arguments.set(spec.name, *fields.tensors[slot(i)]);
  }
}

Arguments arguments_of(const OpSchema& schema, const Fields& fields) {
  Arguments arguments;
  for (std::size_t i = 0; i < schema.tensors.size(); ++i)
    if (fields.tensors[i]->defined()) arguments.set(schema.tensors[i].name, *fields.tensors[i]);
  for (std::size_t i = 0; i < schema.attrs.size(); ++i)
    std::visit([&](const auto* value) { arguments.set_attr(schema.attrs[i].name, AttrValue(*value)); }, fields.attrs[i]);
  return arguments;
}

}  // namespace dodona
