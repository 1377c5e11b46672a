// Between the structs of the C interface and the library's own types.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dodona/c.h"
#include "dodona/op.h"

/// Tensors with names that C can read.
struct dodona_tensors {
  std::vector<std::pair<std::string, dodona::Tensor>> list;
};

namespace dodona::capi {

/// A view of the caller's memory. Throws Error naming `op` and the tensor, or a bad call.
std::pair<std::string, Tensor> to_tensor(std::string_view op, const dodona_tensor& tensor);
std::vector<std::pair<std::string, Tensor>> to_tensors(std::string_view op, const dodona_tensor* tensors, std::size_t count);
/// Tensors and attributes of one call; no name may come twice.
Arguments to_arguments(const Op& op, const dodona_tensor* tensors, std::size_t tensor_count, const dodona_attr* attrs,
                       std::size_t attr_count);
/// nullptr: the defaults with `mode`.
Exec to_exec(const dodona_exec* exec, Mode mode = Mode::fast);
dodona_tensor describe(const std::string& name, const Tensor& tensor);

}  // namespace dodona::capi
