#include "ops/schemes/k_cache.h"

#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/base/index_at.h"
#include "ops/base/rows.h"
#include "ops/rows/cache/k_cache_row.h"

namespace dodona::ops {
namespace {

std::int64_t row_of(const KCacheRows& rows, std::int64_t i) {
  return rows.slots.defined() ? index_at(rows.slots, i) : i;
}

}  // namespace

const std::string k_cache_contract = R"(
Elements 0 to 511: bf16(fl32(code * s)), s the fp32 scale of the element's 128, whatever it is; the product of a code and a scale is rounded to
fp32 once and then to bf16. Elements 512 to 575 are copies of bits. Nothing is open.)";

void dequantize_elements(const KCacheRows& rows, Reference* reference) {
  const GoldenOutput out(rows.output, reference, "output");
  const std::int64_t width = k_cache_nope + k_cache_rope;
  for (std::int64_t i = 0; i < row_count(rows.output); ++i) {
    const std::byte* const row = row_begin(rows.cache, row_of(rows, i), 1);
    for (std::int64_t k = 0; k < k_cache_nope; ++k) {
      const double product = quant::load(DType::f8_e4m3, row, k) * static_cast<double>(k_cache_scale(row, k / k_cache_group));
      out.put(i * width + k, {quant::round_to(DType::f32, product)});
    }
    for (std::int64_t k = 0; k < k_cache_rope; ++k) {
      const std::uint64_t code = quant::load_bits(DType::bf16, row + k_cache_rope_at, k);
      out.put(i * width + k_cache_nope + k, {quant::load(DType::bf16, row + k_cache_rope_at, k)});
      quant::set_bits(rows.output, i * width + k_cache_nope + k, code);
    }
  }
}

void dequantize_rows(const KCacheRows& rows, const Exec& exec) {
  parallel_for(exec.threads, row_count(rows.output), 1e3, [&](std::int64_t i) {
    dequantize_k_cache_row(row_begin(rows.cache, row_of(rows, i), 1), row_begin_mutable(rows.output, i, 2), exec.isa);
  });
}

void draw_k_cache(const Tensor& cache, std::uint64_t seed) {
  draw_k_cache_rows(cache.as<std::byte>(), row_count(cache), seed, "quant_k_cache");
}

}  // namespace dodona::ops
