#include "ops/attention/decode_attention_fwd.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/softmax/layouts/mla_decode.h"
#include "ops/softmax/triton/arithmetic.h"
#include "ops/softmax/triton/decode.h"
#include "ops/softmax/whole_heads.h"

namespace dodona::ops {
namespace {

TritonDecode call_of(const DecodeAttentionFwd& op) {
  const Tensor values = op.v_is_slice_of_k ? op.k_buffer.slice(2, 0, op.v_head_dim) : op.v_buffer;
  const Pools pools = whole_pools({op.k_buffer, values, op.kv_indices}, op.kv_indptr.as<const std::int32_t>()[op.kv_indptr.size(0) - 1]);
  return {.q = whole_heads(op.q),
          .k_buffer = pools.keys,
          .v_buffer = pools.values,
          .kv_indptr = op.kv_indptr,
          .kv_indices = pools.slots,
          .num_kv_splits = op.num_kv_splits,
          .o = whole_heads_of_output(op.o),
          .sm_scale = op.sm_scale,
          .cap = op.logit_cap,
          .temperature = std::max<std::int64_t>(0, op.xai_temperature_len),
          .sinks = op.sinks};
}

void check(const DecodeAttentionFwd& op) {
  check_mla_scale(op.sm_scale, "sm_scale");
  if (op.v_buffer.defined() == op.v_is_slice_of_k)
    throw Error(op.v_is_slice_of_k ? ErrorCode::bad_value : ErrorCode::missing_argument, "", "v_buffer",
                op.v_is_slice_of_k ? "is given, expected none with v_is_slice_of_k" : "is missing, expected it without v_is_slice_of_k");
  if (op.v_is_slice_of_k && op.v_head_dim > op.k_buffer.size(2))
    throw Error(ErrorCode::bad_value, "", "v_head_dim",
                "is " + std::to_string(op.v_head_dim) + ", expected at most the width of k_buffer " + to_string(op.k_buffer.shape()));
  check_temperature(op.xai_temperature_len);
  if (op.q.size(1) % op.k_buffer.size(1) != 0)
    throw Error(
        ErrorCode::bad_shape, "", "k_buffer",
        "has shape " + to_string(op.k_buffer.shape()) + ", expected heads that divide the " + std::to_string(op.q.size(1)) + " of q");
  for (std::int64_t b = 0; b < op.num_kv_splits.size(0); ++b)
    if (const std::int32_t splits = op.num_kv_splits.as<const std::int32_t>()[b]; splits < 1 || splits > op.max_kv_splits)
      throw Error(ErrorCode::bad_value, "", "num_kv_splits",
                  "holds " + std::to_string(splits) + " at element " + std::to_string(b) +
                      ", expected 1 to max_kv_splits = " + std::to_string(op.max_kv_splits));
  const auto* const at = op.kv_indptr.as<const std::int32_t>();
  for (std::int64_t b = 0; b < op.kv_indptr.size(0); ++b)
    if ((b == 0 && at[b] != 0) || (b > 0 && at[b] < at[b - 1]))
      throw Error(
          ErrorCode::bad_value, "", "kv_indptr",
          "holds " + std::to_string(at[b]) + " at element " + std::to_string(b) + ", expected offsets that begin at 0 and do not fall");
}

/// What the roundings of a score in the element type add up to: of the partial sums of each lane's products, eight or of keys of e4m3
/// sixteen, and of the sums over lanes and warps, each half a last place: `unit` of the power of two below it, or below a twentieth more
/// for what is rounded already.
template <int unit_exponent, std::int64_t elements>
double roundings_of_key(const double* query, const double* key, std::int64_t width) {
  const auto binade = [](double value) {
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(1.05 * std::fabs(value)) & 0x7ff0000000000000);
  };
  double nodes = 0;
  std::vector<double> sums;
  for (std::int64_t first = 0; first < width; first += elements) {
    double sum = 0;
    // The second product is the first to be rounded, and in some builds every other product is.
    for (std::int64_t n = 0; n < elements; ++n) {
      const std::int64_t i = n < 2 ? 1 - n : n;
      const double product = query[first + i] * key[first + i];
      sum += product;
      nodes += binade(sum) + (i % 2 == 1 ? binade(product) : 0.0);
    }
    sums.push_back(sum);
  }
  const auto halve = [&](std::size_t begin, std::size_t count, std::size_t stride) {
    for (std::size_t step = count / 2; step > 0; step /= 2)
      for (std::size_t i = 0; i < step; ++i) {
        double& sum = sums[begin + i * stride];
        sum += sums[begin + (i + step) * stride];
        nodes += binade(sum);
      }
  };
  sums.resize(std::bit_ceil(sums.size()), 0.0);
  constexpr std::size_t lanes = 32;
  const std::size_t warps = std::max<std::size_t>(1, sums.size() / lanes);
  for (std::size_t w = 0; w < warps; ++w) halve(w * lanes, sums.size() / warps, 1);
  halve(0, warps, lanes);
  return std::ldexp(nodes, unit_exponent);
}

/// Scores in the element type, of bf16 and of f16; the latter may also lose half of its smallest number each time, and overflow. Those of
/// bf16 with keys of e4m3 are fp32.
ScoreErrors errors_of_single_heads(const DecodeAttentionFwd& op) {
  const bool in_fp8 = op.k_buffer.dtype() == f8_e4m3;
  ScoreErrors errors = ScoreErrors::of_fp32(op.q.size(2));
  if (op.q.dtype() == f16) errors.of_key = in_fp8 ? roundings_of_key<-11, 16> : roundings_of_key<-11, 8>;
  if (op.q.dtype() == bf16 && !in_fp8) errors.of_key = roundings_of_key<-8, 8>;
  if (op.q.dtype() == f16) errors.absolute = 1.25 * static_cast<double>(op.q.size(2)) * 0x1p-25, errors.limit = 0x1p15;
  return errors;
}

void golden(const DecodeAttentionFwd& op, const Exec& exec, Reference* reference) {
  const TritonDecode call = call_of(op);
  TritonDecodeAttention attention(call);
  if (call.group() == 1) (attention.cached ? attention.cached->errors : attention.score_errors) = errors_of_single_heads(op);
  attention_golden_of_heads(attention, op.o, WeightSum::unrounded, exec, reference);
}

/// The sinks' terms are left out.
void golden_without_sinks(const DecodeAttentionFwd& op, const Exec& exec, Reference* reference) {
  DecodeAttentionFwd without = op;
  without.sinks = Tensor();
  golden(without, exec, reference);
}

void fast(const DecodeAttentionFwd& op, const Exec& exec) {
  const TritonDecode call = call_of(op);
  attention_fast(TritonDecodeAttention(call), exec);
  store_heads(call.o, op.o);
}

void hopper(const DecodeAttentionFwd& op, const Exec& exec) {
  const TritonDecode call = call_of(op);
  triton_decode_hopper(call, exec);
  store_heads(call.o, op.o);
}

std::optional<Refusal> unsupported(const DecodeAttentionFwd& op, Mode mode) {
  if (mode != Mode::hopper) return {};
  const std::int64_t group = op.q.size(1) / std::max<std::int64_t>(1, op.k_buffer.size(1));
  if (group > 16 && group % 16 != 0)
    return Refusal{"k_buffer", "has groups of " + std::to_string(group) +
                                   " query heads: the H200's kernel reads other key heads unless they are a multiple of 16"};
  if (op.k_buffer.dtype() == f8_e4m3 && (op.v_head_dim < 64 || op.k_buffer.size(2) < 64))
    return Refusal{"k_buffer", "of e4m3 with heads of fewer than 64 elements has no hopper mode: its order was not read"};
  if (group != 1) return {};
  if (op.v_head_dim % 16 != 0 || op.k_buffer.size(2) % 16 != 0)
    return Refusal{"k_buffer", "of single heads of no whole sixteens of elements has no hopper mode: its order was not read"};
  if (op.v_head_dim < 32 || op.k_buffer.size(2) < 32 || op.k_buffer.size(2) > 512)
    return Refusal{"k_buffer",
                   "of single heads of fewer than 32 or more than 512 elements has no hopper mode: its sums have another order"};
  // Seen to be as always with 128 and 256 elements, and other with 64, 80, 96 and 192.
  const std::int64_t width = op.q.size(2);
  if (width != 128 && width != 256 && (op.q.stride(0) % 16 != 0 || op.q.stride(1) % 16 != 0))
    return Refusal{"q", "whose strides are no multiple of 16 elements, with heads of " + std::to_string(width) +
                            " elements, has no hopper mode: its sums have another order"};
  for (const Tensor* buffer : {&op.k_buffer, op.v_is_slice_of_k ? &op.k_buffer : &op.v_buffer})
    if (buffer->stride(0) % 16 != 0 || buffer->stride(1) % 16 != 0)
      return Refusal{"k_buffer", "whose strides are no multiple of 16 elements has no hopper mode: its sums have another order"};
  return {};
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_decode_attention_fwd() {
  return define<ops::DecodeAttentionFwd>({
      .contract = R"(
Scores, softmax about a running maximum, weights rounded to the element type for their products with the values, sums of the unrounded
weights and of the products in fp32, splits merged in fp32, one rounding: the budget of cutlass_mla_decode. Where every query head has a key
head of its own (G = 1) upstream makes the scores in the element type, and weights are not rounded: scores may be off by half a last place of every
partial sum of a lane's eight products and of every sum over lanes and warps. A request without keys is
not judged (upstream divides 0 by 0; here 0). Hopper mode has the order of Triton 3.6's code: see ops/softmax/triton/decode.h. Here errors: offsets
that fall, slots out of range, num_kv_splits that is not positive, a temperature's length below 2. Caps, temperatures and
sinks as in extend_attention_fwd. Pools of e4m3 have no scale. Their keys are widened to the type of the queries, and weights rounded to e4m3 for
the products with their values: shares of trtllm_batch_decode_with_kv_cache_mla. With G = 1 weights are not rounded, and scores of bf16 queries are
fp32 sums; of f16 queries a lane has sixteen products. Widths that are no multiple of 16 are filled up with zeros, as the kernel's blocks are
(which need 9 elements at least).)",
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .check = ops::check,
      .flops = [](const ops::DecodeAttentionFwd& op) { return ops::attention_flops(ops::TritonDecodeAttention(ops::call_of(op))); },
      .mistakes = {{"sinks-left-out", "the sum of the weights has no term of the sink", ops::golden_without_sinks}},
      .cases = {"B=2 N=16 Nk=1 S=60 n=50 D=576 --attr v_is_slice_of_k=true --attr sm_scale=0.0721687836 --without v_buffer",
                ("B=2 N=4 Nk=2 S=90 n=140 D=192 --attr v_head_dim=128 --attr sm_scale=0.0721687836 --attr logit_cap=30 --attr "
                 "xai_temperature_len=20"),
                "B=2 N=4 Nk=2 S=20 n=30 D=72 --attr v_head_dim=40 --attr sm_scale=0.1",
                "B=2 N=2 Nk=2 S=12 n=9 D=192 --attr v_head_dim=128 --attr sm_scale=0.0721687836 --dtype q=f16",
                ("B=2 N=16 Nk=1 S=20 n=9 D=576 --with sinks --attr v_is_slice_of_k=true --attr sm_scale=0.002 --without v_buffer --dtype "
                 "k_buffer=f8_e4m3"),
                ("B=2 N=2 Nk=2 S=20 n=8 D=128 --with sinks --attr v_head_dim=128 --attr sm_scale=0.004 --dtype k_buffer=f8_e4m3 --dtype "
                 "sinks=f32")},
      .bench_cases =
          {"B=8 N=128 Nk=1 S=16384 n=8192 D=576 --attr v_is_slice_of_k=true --attr sm_scale=0.1352337788608801 --without v_buffer"},
  });
}
}  // namespace dodona
