#include "ops/attention/decode_attention_fwd_grouped_rope.h"

#include <cmath>
#include <vector>

#include "ops/base/golden_output.h"
#include "ops/base/index_at.h"
#include "ops/softmax/layouts/mla_decode.h"
#include "ops/softmax/triton/arithmetic.h"
#include "ops/softmax/triton/decode.h"

namespace dodona::ops {
namespace {

using Call = DecodeAttentionFwdGroupedRope;

/// Element i of a rotated vector: x * cos + partner * sin, the partner with its sign.
struct Rotation {
  double x, cos, partner, sin;

  /// Upstream rounds both products and their sum to the element type, less one of them where the sum is fused with a product.
  /// Zeros have either sign.
  Bounded value(DType type) const {
    const double a = x * cos, b = partner * sin, unit = type == bf16 ? 0x1p-8 : 0x1p-11, least = type == bf16 ? 0x1p-133 : 0x1p-24;
    return {a + b, unit * (std::fabs(a) + std::fabs(b)) + least};
  }
  /// Of the H200 one product is rounded: in pairs (2i, 2i + 1) of queries the one with the cosine, which comes from another layout.
  double on_hopper(DType type, bool cosine_rounded) const {
    const triton::ElementMath t(type);
    return cosine_rounded ? t.fma(partner, sin, t.mul(x, cos)) : t.fma(x, cos, t.mul(partner, sin));
  }
};

Rotation rotation_of(const Call& op, std::int64_t b, const std::vector<double>& x, std::int64_t i) {
  const std::int64_t half = op.rotary_dim / 2, angle = op.is_neox_style ? i % half : i / 2;
  const bool first = op.is_neox_style ? i < half : i % 2 == 0;
  const double partner = x[static_cast<std::size_t>(op.is_neox_style ? (i + half) % op.rotary_dim : i ^ 1)];
  const std::int64_t row = index_at(op.positions, b) * op.rotary_dim;
  return {x[static_cast<std::size_t>(i)], quant::get(op.cos_sin_cache, row + angle), first ? 0.0 - partner : partner,
          quant::get(op.cos_sin_cache, row + half + angle)};
}

TritonDecode call_of(const Call& op) {
  return {.q = op.q,
          .k_buffer = op.k_buffer,
          .v_buffer = op.v_buffer,
          .kv_indptr = op.kv_indptr,
          .kv_indices = op.kv_indices,
          .o = op.o,
          .sm_scale = op.sm_scale,
          .cap = op.logit_cap,
          .splits = op.num_kv_splits,
          .split_granule = 1,
          .first_columns = op.rotary_dim};
}

/// The call with copies of queries and of the requests' last keys, rotated, and how far other honest roundings lie from their elements.
struct RotatedCall {
  TritonDecode call;
  std::vector<double> query_errors, key_errors;

  RotatedCall(const Call& op, bool hopper) : call(call_of(op)) {
    const std::int64_t requests = op.q.size(0), heads = op.q.size(1), width = op.q.size(2);
    if (!op.use_rope) return;
    call.q = op.q.clone();
    call.last_keys = Tensor(op.q.dtype(), {requests, width});
    query_errors.resize(static_cast<std::size_t>(requests * heads * width));
    key_errors.resize(static_cast<std::size_t>(requests * width));
    for (std::int64_t b = 0; b < requests; ++b) {
      for (std::int64_t h = 0; h < heads; ++h) rotate(op, b, call.q, b * heads + h, hopper, true);
      if (call.length(b) == 0) continue;
      const std::int64_t slot = call.slot(b, call.length(b) - 1);
      const Tensor last = op.k_buffer.slice(0, slot, slot + 1);
      for (std::int64_t i = 0; i < width; ++i) quant::set(call.last_keys, b * width + i, quant::get(last, i));
      rotate(op, b, call.last_keys, b, hopper, false);
    }
  }

 private:
  void rotate(const Call& op, std::int64_t b, const Tensor& rows, std::int64_t row, bool hopper, bool query) {
    const DType type = rows.dtype();
    const std::int64_t begin = row * (op.kv_lora_rank + op.rotary_dim) + op.kv_lora_rank;
    std::vector<double> x;
    for (std::int64_t i = 0; i < op.rotary_dim; ++i) x.push_back(quant::get(rows, begin + i));
    for (std::int64_t i = 0; i < op.rotary_dim; ++i) {
      const Rotation rotation = rotation_of(op, b, x, i);
      const Bounded value = rounded_to(type, rotation.value(type));
      quant::set(rows, begin + i, hopper ? rotation.on_hopper(type, query && !op.is_neox_style) : value.exact);
      (query ? query_errors : key_errors)[static_cast<std::size_t>(begin + i)] = value.slack;
    }
  }
};

class RotatedAttention final : public TritonDecodeAttention {
 public:
  explicit RotatedAttention(const RotatedCall& rotated) : TritonDecodeAttention(rotated.call), rotated_(rotated) {}
  const double* query_errors(std::int64_t row, std::int64_t query) const override {
    return rotated_.query_errors.empty() ? nullptr : rotated_.query_errors.data() + (row * heads + query) * key_width;
  }
  const double* key_errors(std::int64_t row, std::int64_t key) const override {
    return rotated_.key_errors.empty() || key + 1 < visible(row) ? nullptr : rotated_.key_errors.data() + row * key_width;
  }

 private:
  const RotatedCall& rotated_;
};

void check(const Call& op) {
  check_mla_scale(op.sm_scale, "sm_scale");
  for (const auto& [tensor, name] : {std::pair(&op.cos_sin_cache, "cos_sin_cache"), {&op.positions, "positions"}})
    if (op.use_rope && !tensor->defined()) throw Error(ErrorCode::missing_argument, "", name, "is missing, expected it with use_rope");
  if (!op.use_rope && op.k_pe_tokens.defined())
    throw Error(ErrorCode::bad_value, "", "k_pe_tokens", "is given, expected none without use_rope");
  const auto* const at = op.kv_indptr.as<const std::int32_t>();
  for (std::int64_t b = 0; b < op.kv_indptr.size(0); ++b)
    if ((b == 0 && at[b] != 0) || (b > 0 && at[b] < at[b - 1]))
      throw Error(
          ErrorCode::bad_value, "", "kv_indptr",
          "holds " + std::to_string(at[b]) + " at element " + std::to_string(b) + ", expected offsets that begin at 0 and do not fall");
}

void golden(const Call& op, const Exec& exec, Reference* reference) {
  const RotatedCall rotated(op, false);
  attention_golden(RotatedAttention(rotated), WeightSum::unrounded, exec, reference);
  if (!op.use_rope) return;
  const GoldenOutput tokens(op.k_pe_tokens, reference, "k_pe_tokens");
  tokens.make_open();
  for (std::int64_t b = 0; b < op.q.size(0); ++b) {
    const std::int64_t count = rotated.call.length(b), slot = count > 0 ? rotated.call.slot(b, count - 1) : 0;
    std::vector<double> x;
    for (std::int64_t i = 0; count > 0 && i < op.rotary_dim; ++i)
      x.push_back(quant::get(op.k_buffer, slot * op.k_buffer.size(2) + op.kv_lora_rank + i));
    for (std::int64_t i = 0; i < op.rotary_dim; ++i)
      if (count > 0) {
        tokens.put(b * op.rotary_dim + i, rotation_of(op, b, x, i).value(op.q.dtype()));
      } else {
        tokens.leave_open(b * op.rotary_dim + i);
      }
  }
}

/// A mistake: the last key is taken from the pool as it is.
void golden_without_key(const Call& op, const Exec& exec, Reference* reference) {
  golden(op, exec, reference);
  RotatedCall rotated(op, false);
  rotated.call.last_keys = Tensor();
  attention_golden(RotatedAttention(rotated), WeightSum::unrounded, exec, reference);
}

void write_tokens(const Call& op, const TritonDecode& call) {
  if (!op.use_rope) return;
  const std::int64_t width = call.last_keys.size(1);
  for (std::int64_t b = 0; b < op.q.size(0); ++b)
    for (std::int64_t i = 0; i < op.rotary_dim; ++i)
      quant::set_bits(op.k_pe_tokens, b * op.rotary_dim + i, quant::get_bits(call.last_keys, b * width + op.kv_lora_rank + i));
}

void fast(const Call& op, const Exec& exec) {
  const RotatedCall rotated(op, false);
  attention_fast(RotatedAttention(rotated), exec);
  write_tokens(op, rotated.call);
}

void hopper(const Call& op, const Exec& exec) {
  const RotatedCall rotated(op, true);
  triton_decode_hopper(rotated.call, exec);
  write_tokens(op, rotated.call);
}

std::optional<Refusal> unsupported(const Call& op, Mode mode) {
  if (mode != Mode::hopper) return {};
  if (op.q.stride(0) % 16 != 0 || op.q.stride(1) % 16 != 0)
    return Refusal{"q", "whose strides are no multiple of 16 elements has no hopper mode: it is rotated in another order"};
  return {};
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_decode_attention_fwd_grouped_rope() {
  return define<ops::DecodeAttentionFwdGroupedRope>({
      .contract = R"(
The rotated parts of queries and of each request's last key are rounded to the element type once or, as upstream has them, product by product:
two units of their products, which the budget of the scores carries on. Then as decode_attention_fwd with groups of heads: scores, softmax about a
running maximum, weights rounded to the element type for their products with the values, fp32 sums, splits merged in fp32, one rounding. Splits
are of ceil(L / num_kv_splits) keys. A request without keys is not judged (upstream reads a slot before its first; here 0). Hopper mode has
the order of Triton 3.6's code for the kernel without its debug assertion, which that version does not compile, merged as decode_attention_fwd merges: rotated
columns are multiplied first; a rotated element is one rounded product and one fused operation. Here errors: offsets that
fall, slots and positions out of range.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .check = ops::check,
      .flops =
          [](const ops::DecodeAttentionFwdGroupedRope& op) { return ops::attention_flops(ops::TritonDecodeAttention(ops::call_of(op))); },
      .mistakes = {{"last-key-not-rotated", "the last token's key is taken as the pool has it", ops::golden_without_key}},
      .cases = {"B=2 N=16 S=60 n=50 P=90 --attr use_rope=true --attr sm_scale=0.1352337788608801",
                "B=1 N=4 S=40 n=33 P=70 --attr use_rope=true --attr is_neox_style=true --attr logit_cap=30 --attr sm_scale=0.0721687836 "
                "--dtype q=f16",
                "B=2 N=3 S=30 n=20 --attr sm_scale=0.0721687836 --without cos_sin_cache --without positions"},
      .bench_cases = {"B=8 N=128 S=16384 n=8192 P=8192 --attr use_rope=true --attr sm_scale=0.1352337788608801"},
  });
}
}  // namespace dodona
