#include "ops/kv_cache/set_mla_kv_buffer.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "ops/base/copy_row.h"
#include "ops/base/golden_output.h"
#include "ops/base/last_writers.h"
#include "ops/base/rows.h"
#include "ops/base/streaming.h"
#include "ops/rows/copies/cast_row.h"

namespace dodona::ops {
namespace {

std::int64_t slot_of(const SetMlaKvBuffer& op, std::int64_t t) {
  const std::int64_t at = t * op.loc.stride(0);
  return op.loc.dtype() == i64 ? op.loc.as<std::int64_t>()[at] : op.loc.as<std::int32_t>()[at];
}

/// Tokens of a slot that is kept for padding are not stored.
bool dropped(const SetMlaKvBuffer& op, std::int64_t t) {
  return op.slot_zero == "reserved" && slot_of(op, t) == 0;
}

/// One element: its bits where the types agree, else the framework's cast.
void store_element(const Tensor& from, std::int64_t from_linear, const Tensor& to, std::int64_t to_linear) {
  if (from.dtype() == to.dtype()) {
    quant::set_bits(to, to_linear, quant::get_bits(from, from_linear));
  } else {
    quant::set(to, to_linear, quant::get(from, from_linear));
  }
}

void golden(const SetMlaKvBuffer& op, const Exec&, Reference* reference) {
  const std::int64_t tokens = op.loc.size(0), nope = op.k_nope.size(-1), rope = op.k_rope.size(-1), width = nope + rope;
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (dropped(op, t)) continue;
    const std::int64_t begin = slot_of(op, t) * width;
    for (std::int64_t i = 0; i < nope; ++i) store_element(op.k_nope, t * nope + i, op.kv_buffer, begin + i);
    for (std::int64_t i = 0; i < rope; ++i) store_element(op.k_rope, t * rope + i, op.kv_buffer, begin + nope + i);
  }
  record_exact(op.kv_buffer, reference, "kv_buffer");
  if (reference == nullptr) return;
  // Slots that several tokens name are left to a race upstream.
  const GoldenOutput out(op.kv_buffer, reference, "kv_buffer");
  out.make_open();
  ReferenceOutput& record = reference->output("kv_buffer", op.kv_buffer.elements());
  std::vector<std::uint8_t> named(static_cast<std::size_t>(row_count(op.kv_buffer)));
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (dropped(op, t)) continue;
    std::uint8_t& again = named[static_cast<std::size_t>(slot_of(op, t))];
    const std::int64_t begin = slot_of(op, t) * width;
    open_cast_nans(op.k_nope, t * nope, op.kv_buffer, reference, "kv_buffer", begin, nope);
    open_cast_nans(op.k_rope, t * rope, op.kv_buffer, reference, "kv_buffer", begin + nope, rope);
    for (std::int64_t i = 0; i < width && again; ++i) record.unspecified[static_cast<std::size_t>(begin + i)] = 1;
    again = 1;
  }
}

/// What torch's kernels make of a NaN in f32, by its type's bits.
std::uint32_t widened_nan(DType type, std::uint64_t code) {
  constexpr std::uint32_t canonical = 0x7FFFFFFF, e4m3_nan = 0x7FF00000;
  const auto sign = static_cast<std::uint32_t>(code >> 7 & 1) << 31;
  switch (type) {
    case bf16: return static_cast<std::uint32_t>(code) << 16;
    case f8_e4m3: return sign | e4m3_nan;
    case f8_e5m2: return sign | canonical;
    default: return canonical;
  }
}

/// The patterns of NaN that torch's kernels give for a cast to f32, and to fp8 by way of it.
void put_torch_nans(DType from_type, const std::byte* from, DType to_type, std::byte* to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    if (!std::isnan(quant::load(from_type, from, i))) continue;
    const std::uint32_t wide = widened_nan(from_type, quant::load_bits(from_type, from, i));
    quant::store_bits(to_type, to, i, to_type == f32 ? wide : (wide >> 24 & 0x80) | 0x7F);
  }
}

void convert(DType from_type, const std::byte* from, DType to_type, std::byte* to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) quant::store(to_type, to, i, quant::load(from_type, from, i));
}

/// A token's part of one source.
void store_part(const SetMlaKvBuffer& op, const Tensor& from, std::int64_t t, std::int64_t to_column, Writing writing, const Exec& exec) {
  const DType type = from.dtype(), to_type = op.kv_buffer.dtype();
  const int to_bytes = bits(to_type) / 8;
  const std::int64_t n = from.size(-1);
  const std::byte* const source = row_begin(from, t, bits(type) / 8);
  std::byte* const target = row_begin_mutable(op.kv_buffer, slot_of(op, t), to_bytes) + to_column * to_bytes;
  if (type == to_type) {
    dispatch<CopyRowKernel>(exec.isa, CopyRow{source, target, n * to_bytes, writing});
  } else {
    convert(type, source, to_type, target, n);
    if (exec.mode == Mode::hopper) put_torch_nans(type, source, to_type, target, n);
  }
}

void fast(const SetMlaKvBuffer& op, const Exec& exec) {
  const std::int64_t tokens = op.loc.size(0), nope = op.k_nope.size(-1), width = nope + op.k_rope.size(-1),
                     bytes = bytes_for(op.kv_buffer.dtype(), width);
  const std::vector<std::uint8_t> superseded =
      superseded_writes(tokens, row_count(op.kv_buffer), [&](std::int64_t t) { return dropped(op, t) ? -1 : slot_of(op, t); });
  parallel_for_rows(exec.threads, tokens, static_cast<double>(width), !kept_by_caches(tokens * bytes), bytes,
                    [&](std::int64_t t, Writing writing) {
                      if (!dropped(op, t) && superseded[static_cast<std::size_t>(t)] == 0) {
                        store_part(op, op.k_nope, t, 0, writing, exec);
                        store_part(op, op.k_rope, t, nope, writing, exec);
                      }
                      if (writing == Writing::streamed_last) dispatch<CopyRowKernel>(exec.isa, CopyRow{nullptr, nullptr, 0, writing});
                    });
}

/// Casts whose every pattern an H100 was asked for.
bool cast_is_known(DType from, DType to) {
  const bool to_fp8 = to == f8_e4m3 || to == f8_e5m2;
  return from == to || (to == f32 && from != f32) || (to_fp8 && (from == bf16 || from == f16));
}

std::optional<Refusal> unsupported(const SetMlaKvBuffer& op, Mode mode) {
  if (mode != Mode::hopper || cast_is_known(op.k_nope.dtype(), op.kv_buffer.dtype())) return {};
  return Refusal{"kv_buffer", "is " + std::string(name(op.kv_buffer.dtype())) + " and k_nope " + std::string(name(op.k_nope.dtype())) +
                                  ": hopper mode has casts to f32 and from 16-bit types to fp8, what others give was not recorded"};
}

double bytes_read(const SetMlaKvBuffer& op) {
  return static_cast<double>(bytes_for(op.k_nope.dtype(), op.k_nope.elements() + op.k_rope.elements()) +
                             bytes_for(op.loc.dtype(), op.loc.elements()));
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_set_mla_kv_buffer() {
  return define<ops::SetMlaKvBuffer>({
      .contract = R"(
Row loc[t] of kv_buffer becomes k_nope[t], then k_rope[t]: a copy of bits where the types agree. Else the framework's cast, to
nearest even and without any scale: beyond 464 e4m3 becomes NaN with its sign, it does not saturate (the fused quantizing path
hands over e4m3 parts that did). NaN stays NaN, any NaN; torch on sm_90 keeps the sign but for f16, and in f32 the pattern of bf16.
A slot that several tokens name takes any of them (here the last) and is not judged; upstream
sends the writes of padded tokens to slot 0 (slot_zero=reserved: newer upstreams drop them). A slot out of range is an error; upstream does not look. An extension of this
library, not upstream: buffers and parts in f32, which leave out the rounding between ops.)",
      .contract_version = 2,
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::fast,
      .unsupported = ops::unsupported,
      .bytes_read = ops::bytes_read,
      .cases = {"S=64 T=5 Dn=512 Dr=64", "S=48 T=3 Dn=512 Dr=64 --dtype kv_buffer=f8_e4m3 --dist outliers",
                "S=9 T=4 Dn=37 Dr=5 --dtype kv_buffer=f32 --dtype k_nope=f32", "S=4 T=4 Dn=40 Dr=8 --attr slot_zero=reserved",
                "S=5 T=2 Dn=512 Dr=64 --dtype kv_buffer=f16 --dtype k_nope=f16 --dist edge"},
      .bench_cases = {"S=1 T=1 Dn=512 Dr=64", "S=4096 T=4096 Dn=512 Dr=64"},
  });
}
}  // namespace dodona
