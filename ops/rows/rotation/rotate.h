// What the two rope kernels share: heads in memory, and one token's rotation in each mode.
//
// A head's first R elements form R/2 pairs: (i, i + R/2) with neox, (2i, 2i + 1) without. With c and s of the token's position,
//     first <- first*c - second*s,   second <- second*c + first*s;   elements from R on are left alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dodona/exec.h"
#include "dodona/op.h"
#include "dodona/tensor.h"
#include "ops/base/bounded.h"
#include "simd/tier.h"

namespace dodona::ops {

/// A tensor [tokens, heads * size] or [tokens, heads, size], where tokens stand for one or two dimensions. Strides in bytes.
struct Heads {
  std::byte* data = nullptr;
  std::int64_t count = 0;  ///< heads of a token; 0 for a tensor that was not given
  std::int64_t inner_tokens = 1;
  std::int64_t outer_stride = 0, token_stride = 0, head_stride = 0;

  std::byte* head(std::int64_t token, std::int64_t h) const {
    return data + token / inner_tokens * outer_stride + token % inner_tokens * token_stride + h * head_stride;
  }
};

/// `token_dims` leading dimensions number the tokens; the rest is one dimension of heads * head_size, or heads and head_size.
Heads heads_of(const Tensor& tensor, int token_dims, std::int64_t head_size);

/// Throws bad_shape when the rows of the argument cos_sin_cache are wider than a head.
void check_table(const Tensor& cos_sin_cache, std::int64_t head_size);

/// When values are rounded.
enum class RotaryRounding {
  once,       ///< table in fp32; products and sum in fp32, either product may be fused with the sum; one rounding to the type
  each_step,  ///< table in the type (16 bits); every product and every sum rounds to the type
};

/// own*c + partner*s in fp32, before one rounding to `type`.
Bounded rotated_once(DType type, double own, double c, double partner, double s);

/// A rotation of all heads of query and key, in place.
struct Rotation {
  Tensor query, key;  ///< key may be undefined
  Tensor positions;   ///< i32 or i64, one or two dimensions, each below the rows of the table
  Tensor table;       ///< [rows, R]: R/2 cosines, then R/2 sines; contiguous
  std::int64_t head_size;
  bool neox;
  RotaryRounding rounding;
};

/// Writes query and key and, with a reference, records both.
void rotate_golden(const Rotation& rotation, const Exec& exec, Reference* reference);
void rotate_fast(const Rotation& rotation, const Exec& exec);

/// The product that an H200's compiler fused with the sum in the second output of a pair: of the element itself with the cosine, or of its
/// partner with the sine. The first output fuses its own product in both kernels. Without effect where each step rounds.
enum class FusedProduct { own, partner };
void rotate_hopper(const Rotation& rotation, FusedProduct second_output, const Exec& exec);

/// Bytes that a call reads: all of its tensors, but one row of the table per position.
double rope_bytes_read(const Tensor& positions, const Tensor& query, const Tensor& key, const Tensor& cos_sin_cache);

/// Heads of one token in fast mode.
struct RotateHeads {
  std::byte* heads;
  std::int64_t count, stride;  ///< stride in bytes
  const std::byte* cos_sin;    ///< the token's row of the table
  std::int64_t pairs;          ///< R/2
  DType type;
  bool neox;
  RotaryRounding rounding;
  bool avoid_denormals;  ///< take other ways to the same bits where the first elements are denormal, see simd/tiny.h
};

struct RotateKernel {
  template <class Tier>
  static void run(const RotateHeads& job);
};

}  // namespace dodona::ops
