#include "ops/kv_cache/get_mla_kv_buffer.h"

#include <cmath>

#include "ops/base/copy_row.h"
#include "ops/base/rows.h"
#include "ops/base/streaming.h"
#include "ops/rows/copies/cast_row.h"

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
    for (std::int64_t t = 0; t < op.loc.size(0); ++t)
      open_cast_nans(op.kv_buffer, slot_of(op, t) * width + column, part, reference, name, t * n, n);
  };
  get(op.cache_k_nope, "cache_k_nope", 0);
  get(op.cache_k_rope, "cache_k_rope", op.kv_lora_rank);
}

void fast(const GetMlaKvBuffer& op, const Exec& exec) {
  const DType type = op.kv_buffer.dtype(), to_type = op.dst_dtype;
  const int bytes = bits(type) / 8, to_bytes = bits(to_type) / 8;
  const std::int64_t tokens = op.loc.size(0), width = op.kv_buffer.size(-1);
  const bool streamed = type == to_type && !kept_by_caches(tokens * width * bytes);
  parallel_for_rows(exec.threads, tokens, static_cast<double>(width), streamed, width * bytes, [&](std::int64_t t, Writing writing) {
    const std::byte* const row = row_begin(op.kv_buffer, slot_of(op, t), bytes);
    if (t + 1 < tokens) fetch_row(row_begin(op.kv_buffer, slot_of(op, t + 1), bytes), width * bytes);
    const auto get = [&](const Tensor& part, std::int64_t column, std::int64_t n, Writing how) {
      std::byte* const to = row_begin_mutable(part, t, to_bytes);
      if (streamed) return dispatch<CopyRowKernel>(exec.isa, CopyRow{row + column * bytes, to, n * bytes, how});
      cast_row(type, row + column * bytes, to_type, to, n, exec);
    };
    get(op.cache_k_nope, 0, op.kv_lora_rank, writing == Writing::cached ? writing : Writing::streamed);
    get(op.cache_k_rope, op.kv_lora_rank, op.qk_rope_head_dim, writing);
  });
}

bool both_fp8_apart(const GetMlaKvBuffer& op) {
  return bits(op.kv_buffer.dtype()) == 8 && bits(op.dst_dtype) == 8 && op.kv_buffer.dtype() != op.dst_dtype;
}

std::optional<Refusal> unsupported(const GetMlaKvBuffer& op, Mode mode) {
  if (!of_a_gpu(mode) || !both_fp8_apart(op)) return {};
  return Refusal{"dst_dtype", "is the other fp8 type than kv_buffer's: Triton does not compile that cast"};
}

/// Of the part at `column` of each row.
bool explains_e5m2(const GetMlaKvBuffer& actual, const Tensor& part, std::int64_t column, std::int64_t linear) {
  if (actual.kv_buffer.dtype() != f8_e5m2 || part.dtype() != bf16) return false;
  const std::int64_t n = part.size(-1), from = slot_of(actual, linear / n) * actual.kv_buffer.size(-1) + column + linear % n;
  const auto code = static_cast<std::uint8_t>(quant::get_bits(actual.kv_buffer, from));
  return !std::isfinite(quant::get(actual.kv_buffer, from)) && quant::get_bits(part, linear) == e5m2_to_bf16_of_sm_90(code);
}
bool explains_e5m2_infinities(const GetMlaKvBuffer& actual, std::string_view output, std::int64_t linear) {
  if (output == "cache_k_nope") return explains_e5m2(actual, actual.cache_k_nope, 0, linear);
  return explains_e5m2(actual, actual.cache_k_rope, actual.kv_lora_rank, linear);
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
do. NaN stays NaN, of a cast any NaN (on sm_90 one of f16 or fp8 gives 7fffffff in f32, without its sign, and bf16 keeps its pattern
there). Upstream has no cast from one fp8 type to the other: that is ours. A slot out of range is an error; upstream does not look.)",
      .contract_version = 2,
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::fast,
      .unsupported = ops::unsupported,
      .bytes_read = ops::bytes_read,
      .defects = {{"e5m2-infinity-65536", "*",
                   "from e5m2 to bf16 infinities become 65536, and NaN 81920, 98304 and 114688 (7d, 7e, 7f), with their sign: Triton takes "
                   "their exponent for one like the others on sm_90",
                   ops::explains_e5m2_infinities}},
      .cases = {"S=64 T=5", "S=48 T=3 --dtype kv_buffer=f8_e4m3",
                "S=9 T=4 --attr kv_lora_rank=37 --attr qk_rope_head_dim=5 --attr dst_dtype=f32 --dtype kv_buffer=f32",
                "S=9 T=4 --attr kv_lora_rank=128 --attr dst_dtype=f8_e4m3 --dist outliers"},
      .bench_cases = {"S=8192 T=4096", "S=8192 T=4096 --dtype kv_buffer=f8_e4m3"},
  });
}
}  // namespace dodona
