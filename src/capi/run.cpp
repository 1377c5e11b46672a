// Running an op by name, from C.
#include <algorithm>
#include <memory>

#include "capi/guard.h"
#include "capi/translate.h"
#include "dodona/error.h"

namespace dodona::capi {
namespace {

bool given(const Arguments& arguments, const std::string& name) {
  return arguments.find(name) != nullptr;
}

/// Without a place to hand them over, every output that the call makes must have been given.
void check_outputs_given(const Op& op, const Arguments& arguments) {
  for (const TensorSpec& spec : op.schema().tensors)
    if (spec.direction == Direction::out && !spec.optional && !given(arguments, spec.name))
      throw Error(ErrorCode::missing_argument, std::string(op.name()), spec.name, "is not given, and there is no place for what is made");
}

void run(const char* name, const dodona_tensor* tensors, std::size_t tensor_count, const dodona_attr* attrs, std::size_t attr_count,
         const dodona_exec* exec, dodona_tensors** made) {
  const Op& op = registry().at(&required(name, "op"));
  Arguments arguments = to_arguments(op, tensors, tensor_count, attrs, attr_count);
  const Exec how = to_exec(exec);
  if (made == nullptr) {
    check_outputs_given(op, arguments);
    op.run(arguments, how);
    return;
  }
  std::vector<std::string> missing;
  for (const TensorSpec& spec : op.schema().tensors)
    if (spec.direction == Direction::out && !given(arguments, spec.name)) missing.push_back(spec.name);
  op.run(arguments, how);
  auto result = std::make_unique<dodona_tensors>();
  for (std::string& output : missing)
    if (const Tensor* tensor = arguments.find(output); tensor != nullptr && tensor->defined())
      result->list.emplace_back(std::move(output), *tensor);
  *made = result.release();
}

}  // namespace
}  // namespace dodona::capi

int dodona_run(const char* op, const dodona_tensor* tensors, std::size_t tensor_count, const dodona_attr* attrs, std::size_t attr_count,
               const dodona_exec* exec, dodona_tensors** made) {
  return dodona::capi::guarded([&] {
    if (made != nullptr) *made = nullptr;
    dodona::capi::run(op, tensors, tensor_count, attrs, attr_count, exec, made);
  });
}
