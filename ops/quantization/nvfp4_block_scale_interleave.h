#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Matrices of block scales from rows to tiles of 128 x 4, one behind the other, each padded to whole tiles.
/// Source: FlashInfer `nvfp4_block_scale_interleave` (also called `block_scale_interleave`).
struct Nvfp4BlockScaleInterleave {
  Tensor unswizzled_sf, swizzled_sf;

  static constexpr OpInfo info{"nvfp4_block_scale_interleave", Category::quantization, Source::flashinfer};
  void describe(auto& op) {
    op.signature("unswizzled_sf");
    op.in("unswizzled_sf", unswizzled_sf, {u8, bf16}, "E... R C").layout(Layout::contiguous).doc("scales, a matrix for each expert");
    op.out("swizzled_sf", swizzled_sf, same_as("unswizzled_sf"), "E*align(R,128)*align(C,4)")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc(
            "element (r, c) of a matrix is in tile (r / 128) * ceil(C / 4) + c / 4 at (r mod 32) * 16 + (r mod 128) / 32 * 4 + c mod 4; "
            "what "
            "pads is 0");
  }
};

}  // namespace dodona::ops
