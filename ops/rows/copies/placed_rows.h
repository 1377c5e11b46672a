// Rows of tokens that are sent to where experts want them: data, and in golden mode what is known of them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/storage.h"
#include "dodona/exec.h"
#include "dodona/op.h"
#include "dodona/tensor.h"

namespace dodona::ops {

/// Received row r holds token tokens[r] of `sent` [tokens, bytes of a row], -1: none, then it is zero. All rows are dense.
void place_rows(std::span<const std::int64_t> tokens, const Tensor& sent, const Tensor& received, const Exec& exec);

/// What is known of received rows: what `sent`, an output of the quantizer, says of their tokens, or the bits that `received` holds where
/// that is nullptr. Rows of no token are open. Codes packed in bytes are as `storage` says. Numbers in rows whose order the contract fixes
/// must have their bits.
enum class RowOrder : std::uint8_t { open, fixed };
void record_placed(std::span<const std::int64_t> tokens, const Tensor& received, const ReferenceOutput* sent, Reference& reference,
                   std::string_view name, const Storage& storage = {}, RowOrder order = RowOrder::open);

}  // namespace dodona::ops
