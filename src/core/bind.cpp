#include "core/call_context.h"

namespace dodona {

using namespace calls;

namespace {

void store(const AttrPointer& target, const AttrValue& value) {
  std::visit([&](auto* pointer) { *pointer = std::get<std::remove_pointer_t<decltype(pointer)>>(value); }, target);
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
  for (int i = 0; i < fields.attr_count; ++i) {
    const AttrSpec& spec = schema.attrs[slot(i)];
    if (spec.required && arguments.find_attr(spec.name) == nullptr) call.fail(ErrorCode::missing_argument, spec.name, "is missing");
  }
}

void give_back(const OpSchema& schema, const Fields& fields, Arguments& arguments) {
  for (int i = 0; i < fields.tensor_count; ++i) {
    const TensorSpec& spec = schema.tensors[slot(i)];
    if (spec.direction == Direction::out && fields.tensors[slot(i)]->defined()) arguments.set(spec.name, *fields.tensors[slot(i)]);
  }
}

}  // namespace dodona
