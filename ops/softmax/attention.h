// Attention to rows of keys and values in memory, as golden and fast mode take it: an op says what lies where, and nothing else.
//
// A row is one query token's heads that share their keys. With the keys that it sees
//     z[j] = q . k[j],   p = softmax(scale * z),   out = out_scale * sum over j of p[j] * v[j].
// Masks, causal or any other, are the keys that a row does not list.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dodona/exec.h"
#include "dodona/op.h"
#include "dodona/tensor.h"

namespace dodona::ops {

/// Columns of the queries of one row: `width` of them, a multiple of 16, head after head.
struct QueryPart {
  const std::byte* first_head = nullptr;
  std::int64_t head_stride = 0;  ///< bytes
  std::int64_t width = 0;
};
/// One after the other they make a query; the second may have no columns.
using QueryParts = std::array<QueryPart, 2>;

class Attention {
 public:
  std::int64_t rows = 0, heads = 0;
  std::int64_t key_width = 0, value_width = 0;  ///< elements, multiples of 16
  bool values_in_keys = false;                  ///< a value is the beginning of its key
  DType type = DType::bf16;                     ///< of queries, keys and values
  double scale = 1, out_scale = 1;              ///< narrowed to fp32, as kernels take them
  Tensor out;                                   ///< rows*heads rows of value_width, inner stride 1
  Tensor lse;                                   ///< f32, rows*heads, contiguous: log2 of the sum of exp(scale * z); may be undefined

  virtual ~Attention() = default;
  /// Keys that the row sees. Without any it gives zeros and -inf.
  virtual std::int64_t visible(std::int64_t row) const = 0;
  virtual QueryParts queries(std::int64_t row) const = 0;
  /// Addresses of `count` of these keys from number `first` on, and unless values_in_keys of their values.
  virtual void list(std::int64_t row, std::int64_t first, std::int64_t count, const std::byte** keys, const std::byte** values) const = 0;
};

/// Where the sum of the weights is taken: over the fp32 weights, or where the contract leaves it open over the rounded ones.
enum class WeightSum { unrounded, open };

/// Writes out and lse, and with a reference records them.
void attention_golden(const Attention& call, WeightSum sum, const Exec& exec, Reference* reference);
/// As attend.h says.
void attention_fast(const Attention& call, const Exec& exec);

/// Two products of every query with every key that it sees.
double attention_flops(const Attention& call);

}  // namespace dodona::ops
