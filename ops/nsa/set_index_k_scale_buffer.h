#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Stores keys of the indexer and their scales in the slots loc of a paged buffer: of slot s, page s / 64 has the key at byte 128 (s mod
/// 64) and the scale, fp32 little-endian, at byte 8192 + 4 (s mod 64). Source: SGLang `set_index_k_scale_buffer` (index_buf_accessor's
/// `SetKAndS`, Triton).
struct SetIndexKScaleBuffer {
  Tensor buf, loc, index_k, index_k_scale;

  static constexpr OpInfo info{"set_index_k_scale_buffer", Category::nsa, Source::triton};
  void describe(auto& op) {
    op.inout("buf", buf, {u8}, "pages 8448")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("pages of 64 keys, then 64 scales; other slots keep their bits");
    op.in("loc", loc, {i64, i32}, "n")
        .role(Role::indices, "pages*64")
        .doc("slot of each token; of tokens that share one the last is stored");
    op.in("index_k", index_k, {f8_e4m3}, "n 128").doc("keys; rows may be strided");
    op.in("index_k_scale", index_k_scale, {f32}, "n | n 1").role(Role::scale).doc("their scales, whose bits are copied");
  }
};

}  // namespace dodona::ops
