#include "ops/kv_cache/get_mla_kv_buffer.h"

#include "core/threads.h"
#include "ops/base/rows.h"
#include "ops/rows/cast_row.h"

namespace dodona::ops {
namespace {

std::int64_t slot_of(const GetMlaKvBuffer& op, std::int64_t t) {
  const std::int64_t at = t * op.loc.stride(0);
  return op.loc.dtype() == i64 ? op.loc.as<std::int64_t>()[at] : op.loc.as<std::int32_t>()[at];
}

void golden(const GetMlaKvBuffer& op, const Exec&, Reference* reference) {
  const std::int64_t width = op.kv_buffer.size(-1);
  const auto get = [&](const Tensor& part, std::string_view name, std::int64_t column) {
    const GoldenOutput out(part, reference, name);
    const std::int64_t n = part.size(-1);
    for (std::int64_t t = 0; t < op.loc.size(0); ++t)
      for (std::int64_t i = 0; i < n; ++i) cast_element(op.kv_buffer, slot_of(op, t) * width + column + i, part, out, t * n + i);
    if (part.dtype() == op.kv_buffer.dtype()) record_exact(part, reference, name);
  };
  get(op.cache_k_nope, "cache_k_nope", 0);
  get(op.cache_k_rope, "cache_k_rope", op.kv_lora_rank);
}

void fast(const GetMlaKvBuffer& op, const Exec& exec) {
  const DType type = op.kv_buffer.dtype(), to_type = op.dst_dtype;
  const int bytes = bits(type) / 8, to_bytes = bits(to_type) / 8;
  parallel_for(exec.threads, op.loc.size(0), static_cast<double>(op.kv_buffer.size(-1)), [&](std::int64_t t) {
    const std::byte* const row = row_begin(op.kv_buffer, slot_of(op, t), bytes);
    cast_row(type, row, to_type, row_begin_mutable(op.cache_k_nope, t, to_bytes), op.kv_lora_rank, exec.isa);
    cast_row(type, row + op.kv_lora_rank * bytes, to_type, row_begin_mutable(op.cache_k_rope, t, to_bytes), op.qk_rope_head_dim, exec.isa);
  });
}

double bytes_read(const GetMlaKvBuffer& op) {
  return static_cast<double>(op.loc.size(0)) * static_cast<double>(bytes_for(op.kv_buffer.dtype(), op.kv_buffer.size(-1)));
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_get_mla_kv_buffer() {
  return define<ops::GetMlaKvBuffer>({
      .contract = R"(
The first kv_lora_rank elements of row loc[t] of kv_buffer, and the others: a copy of bits where the types agree. From fp8 to wider
types that is exact, and no scale is applied; else one rounding to nearest even, to fp8 with saturation, as Triton's stores
do. A slot out of range is an error; upstream does not look.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::fast,
      .bytes_read = ops::bytes_read,
      .cases = {"S=64 T=5", "S=48 T=3 --dtype kv_buffer=f8_e4m3",
                "S=9 T=4 --attr kv_lora_rank=37 --attr qk_rope_head_dim=5 --attr dst_dtype=f32 --dtype kv_buffer=f32",
                "S=9 T=4 --attr kv_lora_rank=128 --attr dst_dtype=f8_e4m3 --dist outliers"},
      .bench_cases = {"S=8192 T=4096", "S=8192 T=4096 --dtype kv_buffer=f8_e4m3"},
  });
}
}  // namespace dodona
