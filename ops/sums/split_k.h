// Products whose K is split: cuBLAS's kernels, of which the number of chunks is all that their bits depend on. They count K in tiles of
// 128 bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/describe.h"
#include "dodona/exec.h"
#include "dodona/op.h"
#include "ops/sums/accumulator.h"

namespace dodona::ops {

inline constexpr std::int64_t most_chunks = half_in_parts.parts;

/// The attribute of an op with such a kernel.
void describe_split_k(auto& op, std::int64_t& split_k) {
  op.attr("split_k", split_k, between(1, static_cast<double>(most_chunks)))
      .recipe()
      .doc("chunks of K that the kernel sums apart, in hopper mode; see the contract. `dodona whose` reads it off a kernel's outputs");
}

/// What multiplies numbers of `type`, with K shared out to so many chunks.
Accumulator in_chunks(Accumulator accumulator, std::int64_t split_k, DType type);
/// Throws Error naming the splits that `k` numbers of `type` allow.
void check_split_k(std::int64_t split_k, std::int64_t k, DType type);
/// What a GPU's mode does not know of `left` times `right`, the arguments of these names.
std::optional<Refusal> unknown_half_product(Mode mode, std::string_view left_name, DType left, std::string_view right_name, DType right);

/// The contract's words on hopper mode.
extern const std::string_view split_k_contract;

}  // namespace dodona::ops
