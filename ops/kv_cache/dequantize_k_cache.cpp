#include "ops/kv_cache/dequantize_k_cache.h"

#include "ops/schemes/k_cache.h"

namespace dodona::ops {
namespace {

KCacheRows rows_of(const DequantizeKCache& op) {
  return {op.quant_k_cache, {}, op.output};
}

/// Mistake: the fp32 scales are read as their exponents alone.
void golden_of_powers(const DequantizeKCache& op, const Exec&, Reference* reference) {
  const Tensor cut = op.quant_k_cache.clone();
  auto* const bytes = cut.as<std::uint8_t>();
  for (std::int64_t row = 0; row < cut.elements(); row += 656)
    for (std::int64_t scale = row + 512; scale < row + 528; scale += 4) bytes[scale] = bytes[scale + 1] = 0, bytes[scale + 2] &= 0x80;
  KCacheRows rows = rows_of(op);
  rows.cache = cut;
  dequantize_elements(rows, reference);
}

void fast(const DequantizeKCache& op, const Exec& exec) {
  dequantize_rows(rows_of(op), exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_dequantize_k_cache() {
  return define<ops::DequantizeKCache>({
      .contract = ops::k_cache_contract,
      .golden = [](const ops::DequantizeKCache& op, const Exec&,
                   Reference* reference) { ops::dequantize_elements(ops::rows_of(op), reference); },
      .fast = ops::fast,
      .hopper = ops::fast,
      .make_inputs = [](ops::DequantizeKCache& op, std::uint64_t seed) { ops::draw_k_cache(op.quant_k_cache, seed); },
      .mistakes = {{"scales-as-powers-of-two", "the scales of the cache are read as powers of two, their exponents alone",
                    ops::golden_of_powers}},
      .cases = {"S=5", "S=1"},
      .bench_cases = {"S=4096"},
  });
}
}  // namespace dodona
