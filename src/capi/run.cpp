// Running an op by name, from C, and preparing weights for it.
#include <algorithm>
#include <memory>

#include "capi/guard.h"
#include "capi/translate.h"
#include "dodona/error.h"

struct dodona_prepared {
  dodona::Prepared content;
};

namespace dodona::capi {
namespace {

/// The most experts that a call may name.
constexpr std::size_t most_parts = std::size_t{1} << 20;

bool given(const Arguments& arguments, const std::string& name) {
  return arguments.find(name) != nullptr;
}

/// Without a place to hand them over, every output that the call makes must have been given.
void check_outputs_given(const Op& op, const Arguments& arguments) {
  for (const TensorSpec& spec : op.schema().tensors)
    if (spec.direction == Direction::out && !spec.optional && !given(arguments, spec.name))
      throw Error(ErrorCode::missing_argument, std::string(op.name()), spec.name, "is not given, and there is no place for what is made");
}

void run(const char* name, const Prepared& prepared, const dodona_tensor* tensors, std::size_t tensor_count, const dodona_attr* attrs,
         std::size_t attr_count, const dodona_exec* exec, dodona_tensors** made) {
  const Op& op = registry().at(&required(name, "op"));
  Arguments arguments = to_arguments(op, tensors, tensor_count, attrs, attr_count);
  arguments.prepared = prepared;
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

dodona_prepared* prepare(const char* name, const dodona_tensor* weights, std::size_t weight_count, const dodona_attr* attrs,
                         std::size_t attr_count, const dodona_exec* exec) {
  const Op& op = registry().at(&required(name, "op"));
  const Arguments arguments = to_arguments(op, weights, weight_count, attrs, attr_count);
  return std::make_unique<dodona_prepared>(dodona_prepared{op.pack(arguments, to_exec(exec))}).release();
}

dodona_prepared* gather(std::size_t count, const std::size_t* index, const dodona_prepared* const* parts, std::size_t part_count) {
  if (count > most_parts || part_count > count)
    bad_call("parts are " + std::to_string(part_count) + " of " + std::to_string(count) + ", which cannot be");
  std::vector<Prepared::Place> places;
  for (std::size_t i = 0; i < part_count; ++i) {
    const std::size_t at = (&required(index, "index"))[i];
    if (at >= count) bad_call("index " + std::to_string(at) + " is asked for, of " + std::to_string(count));
    places.push_back({static_cast<std::int64_t>(at), &required((&required(parts, "parts"))[i], "a part").content});
  }
  return std::make_unique<dodona_prepared>(dodona_prepared{Prepared::gather(static_cast<std::int64_t>(count), places)}).release();
}

}  // namespace
}  // namespace dodona::capi

int dodona_run(const char* op, const dodona_tensor* tensors, std::size_t tensor_count, const dodona_attr* attrs, std::size_t attr_count,
               const dodona_exec* exec, dodona_tensors** made) {
  return dodona::capi::guarded([&] {
    if (made != nullptr) *made = nullptr;
    dodona::capi::run(op, {}, tensors, tensor_count, attrs, attr_count, exec, made);
  });
}

int dodona_prepare(const char* op, const dodona_tensor* weights, std::size_t weight_count, const dodona_exec* exec,
                   dodona_prepared** made) {
  return dodona_prepare_for(op, weights, weight_count, nullptr, 0, exec, made);
}

int dodona_prepare_for(const char* op, const dodona_tensor* weights, std::size_t weight_count, const dodona_attr* attrs,
                       std::size_t attr_count, const dodona_exec* exec, dodona_prepared** made) {
  return dodona::capi::guarded([&] {
    auto& place = dodona::capi::required(made, "made");
    place = nullptr;
    place = dodona::capi::prepare(op, weights, weight_count, attrs, attr_count, exec);
  });
}

int dodona_prepared_gather(std::size_t count, const std::size_t* index, const dodona_prepared* const* parts, std::size_t part_count,
                           dodona_prepared** made) {
  return dodona::capi::guarded([&] {
    auto& place = dodona::capi::required(made, "made");
    place = nullptr;
    place = dodona::capi::gather(count, index, parts, part_count);
  });
}

int dodona_run_prepared(const char* op, const dodona_prepared* prepared, const dodona_tensor* tensors, std::size_t tensor_count,
                        const dodona_attr* attrs, std::size_t attr_count, const dodona_exec* exec, dodona_tensors** made) {
  return dodona::capi::guarded([&] {
    if (made != nullptr) *made = nullptr;
    dodona::capi::run(op, dodona::capi::required(prepared, "prepared").content, tensors, tensor_count, attrs, attr_count, exec, made);
  });
}

std::size_t dodona_prepared_bytes(const dodona_prepared* prepared) {
  return prepared == nullptr ? 0 : static_cast<std::size_t>(prepared->content.bytes());
}

void dodona_prepared_free(dodona_prepared* prepared) {
  delete prepared;
}
