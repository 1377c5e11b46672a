// What the ops that read MLA's cache in fp8 share.
#pragma once

#include <string>

#include "core/define.h"

namespace dodona::ops {

struct KCacheRows {
  Tensor cache;   ///< [.., 656] bytes
  Tensor slots;   ///< row of each output, i32 or i64; undefined: in order
  Tensor output;  ///< bf16, 576 wide
};

extern const std::string k_cache_contract;

void dequantize_elements(const KCacheRows& rows, Reference* reference);
void dequantize_rows(const KCacheRows& rows, const Exec& exec);
/// A contiguous cache of a case line.
void draw_k_cache(const Tensor& cache, std::uint64_t seed);

}  // namespace dodona::ops
