#include "ops/kv_cache/dequantize_k_cache.h"

#include "ops/schemes/k_cache.h"

namespace dodona::ops {
namespace {

KCacheRows rows_of(const DequantizeKCache& op) {
  return {op.quant_k_cache, {}, op.output};
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_dequantize_k_cache() {
  return define<ops::DequantizeKCache>({
      .contract = ops::k_cache_contract,
      .golden = [](const ops::DequantizeKCache& op, const Exec&,
                   Reference* reference) { ops::dequantize_elements(ops::rows_of(op), reference); },
      .fast = [](const ops::DequantizeKCache& op, const Exec& exec) { ops::dequantize_rows(ops::rows_of(op), exec); },
      .make_inputs = [](ops::DequantizeKCache& op, std::uint64_t seed) { ops::draw_k_cache(op.quant_k_cache, seed); },
      .cases = {"S=5", "S=1"},
      .bench_cases = {"S=4096"},
  });
}
}  // namespace dodona
