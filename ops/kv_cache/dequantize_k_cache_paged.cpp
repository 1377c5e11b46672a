#include "ops/kv_cache/dequantize_k_cache_paged.h"

#include "ops/schemes/k_cache.h"

namespace dodona::ops {
namespace {

KCacheRows rows_of(const DequantizeKCachePaged& op) {
  return {op.quant_k_cache, op.page_table_1_flattened, op.output};
}

void fast(const DequantizeKCachePaged& op, const Exec& exec) {
  dequantize_rows(rows_of(op), exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_dequantize_k_cache_paged() {
  return define<ops::DequantizeKCachePaged>({
      .contract = ops::k_cache_contract + " Slots out of range are errors; upstream does not look.",
      .golden = [](const ops::DequantizeKCachePaged& op, const Exec&,
                   Reference* reference) { ops::dequantize_elements(ops::rows_of(op), reference); },
      .fast = ops::fast,
      .hopper = ops::fast,
      .make_inputs = [](ops::DequantizeKCachePaged& op, std::uint64_t seed) { ops::draw_k_cache(op.quant_k_cache, seed); },
      .bytes_read = [](const ops::DequantizeKCachePaged& op) { return 656.0 * static_cast<double>(op.page_table_1_flattened.elements()); },
      .cases = {"S=9 n=5", "S=2 n=7 --dtype page_table_1_flattened=i64"},
      .bench_cases = {"S=8192 n=4096"},
  });
}
}  // namespace dodona
