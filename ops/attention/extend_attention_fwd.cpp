#include "ops/attention/extend_attention_fwd.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/flaw.h"
#include "core/random.h"
#include "ops/base/index_at.h"
#include "ops/softmax/layouts/mla_decode.h"
#include "ops/softmax/layouts/offsets.h"
#include "ops/softmax/leaked_values.h"
#include "ops/softmax/triton/arithmetic.h"
#include "ops/softmax/triton/extend.h"
#include "ops/softmax/whole_heads.h"

namespace dodona::ops {
namespace {

using Call = ExtendAttentionFwd;

Extend call_of(const Call& op) {
  const std::int64_t width = op.q_extend.size(2);
  const Tensor query = whole_heads(op.q_extend);
  const Tensor cached_values = op.v_is_slice_of_k ? op.k_buffer.slice(2, 0, op.v_extend.size(2)) : op.v_buffer;
  const Pools pools =
      whole_pools({op.k_buffer, cached_values, op.kv_indices}, op.kv_indptr.as<const std::int32_t>()[op.kv_indptr.size(0) - 1]);
  return {.query = query,
          .key = whole_heads(op.k_extend),
          .value = whole_heads(op.v_extend),
          .key_pool = pools.keys,
          .value_pool = pools.values,
          .cached_query = op.k_buffer.dtype() == f8_e4m3 ? rounded_queries(query) : Tensor(),
          .sinks = op.sinks,
          .slots = pools.slots,
          .out = whole_heads_of_output(op.o_extend),
          .scale = op.sm_scale != 0 ? op.sm_scale : 1 / std::sqrt(static_cast<double>(width)),
          .cap = op.logit_cap,
          .causal = op.is_causal,
          .mask_on_prefix = !op.skip_prefix_custom_mask,
          .block_rows = op.BLOCK_M != 0 ? op.BLOCK_M : triton_extend_rows(width),
          .window = std::max<std::int64_t>(0, op.sliding_window_size),
          .temperature = std::max<std::int64_t>(0, op.xai_temperature_len)};
}

/// Keys that rows of a request's mask begin with before those of its prefix.
std::int64_t mask_lead(const Call& op, std::int64_t b) {
  return op.window_kv_offsets.defined() && op.sliding_window_size > 0 ? op.window_kv_offsets.as<const std::int32_t>()[b] : 0;
}

std::vector<ExtendRequest> requests_of(const Call& op) {
  std::vector<ExtendRequest> requests;
  const auto *const q = op.qo_indptr.as<const std::int32_t>(), *const kv = op.kv_indptr.as<const std::int32_t>();
  for (std::int64_t b = 0; b + 1 < op.qo_indptr.size(0); ++b) {
    ExtendRequest& r = requests.emplace_back(ExtendRequest{q[b], q[b + 1] - q[b], kv[b], kv[b + 1] - kv[b]});
    if (!op.custom_mask.defined()) continue;
    r.mask = op.custom_mask.as<const std::uint8_t>() + index_at(op.mask_indptr, b) + mask_lead(op, b);
    r.mask_stride = r.keys() + mask_lead(op, b);
  }
  return requests;
}

void make_inputs(Call& op, std::uint64_t seed) {
  const InputDraw draw(seed, "window_kv_offsets");
  const std::int64_t requests = op.qo_indptr.elements() - 1;
  for (std::int64_t b = 0; op.window_kv_offsets.defined() && b < requests; ++b)
    op.window_kv_offsets.as<std::int32_t>()[b] = static_cast<std::int32_t>(draw.below(b, 4));
  if (!op.mask_indptr.defined()) return;
  const auto *const q = op.qo_indptr.as<const std::int32_t>(), *const kv = op.kv_indptr.as<const std::int32_t>();
  std::int64_t end = 0;
  for (std::int64_t b = 0; b <= requests; ++b) {
    quant::set(op.mask_indptr, b, static_cast<double>(end));
    if (b < requests) end += (q[b + 1] - q[b]) * (kv[b + 1] - kv[b] + q[b + 1] - q[b] + mask_lead(op, b));
  }
}

void check_masks(const Call& op) {
  if (op.custom_mask.defined() != op.mask_indptr.defined())
    throw Error(op.custom_mask.defined() ? ErrorCode::missing_argument : ErrorCode::bad_value, "", "mask_indptr",
                op.custom_mask.defined() ? "is missing, expected it with custom_mask" : "is given, expected none without custom_mask");
  if (!op.custom_mask.defined()) return;
  const auto *const q = op.qo_indptr.as<const std::int32_t>(), *const kv = op.kv_indptr.as<const std::int32_t>();
  for (std::int64_t b = 0; b + 1 < op.qo_indptr.size(0); ++b) {
    const std::int64_t lead = mask_lead(op, b), queries = q[b + 1] - q[b], keys = kv[b + 1] - kv[b] + queries + lead;
    if (lead < 0)
      throw Error(ErrorCode::bad_value, "", "window_kv_offsets",
                  "holds " + std::to_string(lead) + " at element " + std::to_string(b) + ", expected at least 0");
    const std::int64_t begin = index_at(op.mask_indptr, b), room = op.custom_mask.size(0) - queries * keys;
    if (begin < 0 || begin > room)
      throw Error(ErrorCode::bad_value, "", "mask_indptr",
                  "holds " + std::to_string(begin) + " at element " + std::to_string(b) + ", expected " +
                      (room < 0 ? "custom_mask " + to_string(op.custom_mask.shape()) + " to have room" : "0 to " + std::to_string(room)) +
                      " for the mask of request " + std::to_string(b) + ", " + std::to_string(queries) + " queries and " +
                      std::to_string(keys) + " keys");
  }
}

void check(const Call& op) {
  if (op.sm_scale != 0) check_mla_scale(op.sm_scale, "sm_scale");
  if (op.v_buffer.defined() == op.v_is_slice_of_k)
    throw Error(op.v_is_slice_of_k ? ErrorCode::bad_value : ErrorCode::missing_argument, "", "v_buffer",
                op.v_is_slice_of_k ? "is given, expected none with v_is_slice_of_k" : "is missing, expected it without v_is_slice_of_k");
  const std::int64_t value_width = op.v_extend.size(2);
  if (op.v_is_slice_of_k && value_width > op.k_buffer.size(2))
    throw Error(ErrorCode::bad_shape, "", "v_extend",
                "has shape " + to_string(op.v_extend.shape()) + ", expected values no wider than keys of k_buffer " +
                    to_string(op.k_buffer.shape()) + " with v_is_slice_of_k");
  if (op.v_head_dim != 0 && op.v_head_dim != value_width)
    throw Error(ErrorCode::bad_value, "", "v_head_dim",
                "is " + std::to_string(op.v_head_dim) + ", expected " + std::to_string(value_width) + " as v_extend has");
  if (op.q_extend.size(1) % op.k_extend.size(1) != 0)
    throw Error(ErrorCode::bad_shape, "", "k_extend",
                "has shape " + to_string(op.k_extend.shape()) + ", expected heads that divide the " + std::to_string(op.q_extend.size(1)) +
                    " of q_extend");
  check_offsets(op.qo_indptr, "qo_indptr", op.q_extend.size(0), tokens_of("q_extend", op.q_extend), true);
  check_offsets(op.kv_indptr, "kv_indptr", op.kv_indices.size(0), "the number of kv_indices", false);
  check_temperature(op.xai_temperature_len);
  check_masks(op);
}

/// What steps of a chain over all of the key may lose, or of two chains where kernels add the last columns up by themselves.
double lost_by_fp8_parts(const double* query, const double* key, std::int64_t width) {
  const std::int64_t first = triton_main_columns(width);
  const double whole = lost_by_fp8_steps(query, key, width);
  if (first == width) return whole;
  return std::fmax(whole, lost_by_fp8_steps(query, key, first) + lost_by_fp8_steps(query + first, key + first, width - first));
}

ExtendAttention attention_of(const Extend& call, const Call& op, const std::vector<ExtendRequest>& requests) {
  ExtendAttention attention(call, requests);
  attention.out_name = "o_extend";
  attention.none_is_open = !op.sinks.defined();
  // Blocks of 128 queries lie on the fp8 tensor core where keys are e4m3; blocks of fewer are widened to f16, which loses nothing.
  if (attention.cached && triton_extend_rows(attention.key_width) == triton_wide_rows) {
    attention.cached->errors = ScoreErrors::of_fp32(attention.key_width);
    attention.cached->errors->of_key = lost_by_fp8_parts;
    attention.value_unit = &quant::tensor_core::fp8_wgmma;
  }
  return attention;
}
ExtendAttention attention_of(const Extend& call, const Call& op) {
  return attention_of(call, op, requests_of(op));
}

void golden(const Call& op, const Exec& exec, Reference* reference) {
  Extend call = call_of(op);
  if (call.window > 0) call.window_tile = window_tile_of(exec);
  attention_golden_of_heads(attention_of(call, op), op.o_extend, WeightSum::unrounded, exec, reference);
}

/// The sinks' terms are left out.
void golden_without_sinks(const Call& op, const Exec& exec, Reference* reference) {
  Extend call = call_of(op);
  call.sinks = Tensor();
  attention_golden_of_heads(attention_of(call, op), op.o_extend, WeightSum::unrounded, exec, reference);
}

/// Keys W before the query are left out too.
void golden_with_short_window(const Call& op, const Exec& exec, Reference* reference) {
  Extend call = call_of(op);
  if (call.window > 1) call.window -= 1;
  attention_golden_of_heads(attention_of(call, op), op.o_extend, WeightSum::unrounded, exec, reference);
}

/// Rows of masks follow each other as if they had no keys of the prefix.
void golden_with_narrow_masks(const Call& op, const Exec& exec, Reference* reference) {
  std::vector<ExtendRequest> requests = requests_of(op);
  for (ExtendRequest& r : requests) r.mask_stride -= r.mask != nullptr ? r.prefix : 0;
  attention_golden_of_heads(attention_of(call_of(op), op, requests), op.o_extend, WeightSum::unrounded, exec, reference);
}

void fast(const Call& op, const Exec& exec) {
  const Extend call = call_of(op);
  attention_fast(attention_of(call, op), exec);
  store_heads(call.out, op.o_extend);
}

/// Whether a value of the request's prefix is not finite in this column.
bool prefix_holds_infinite_value(const Call& op, const ExtendRequest& request, std::int64_t kv_head, std::int64_t i) {
  const Tensor& pool = op.v_is_slice_of_k ? op.k_buffer : op.v_buffer;
  for (std::int64_t n = request.first_slot; n < request.first_slot + request.prefix; ++n)
    if (holds_infinite_value(pool, {index_at(op.kv_indices, n), 1}, kv_head, i)) return true;
  return false;
}

/// Whether a NaN is what tokens whom a mask or a window may hide left in the query's block.
bool explains_hidden_tokens(const Call& actual, std::string_view output, std::int64_t linear) {
  const std::int64_t width = actual.v_extend.size(2), heads = actual.q_extend.size(1);
  const std::int64_t token = linear / (heads * width), kv_head = linear / width % heads / (heads / actual.k_extend.size(1));
  const bool anywhere = actual.custom_mask.defined() || actual.sliding_window_size > 0;
  if (output != "o_extend" || !std::isnan(quant::get(actual.o_extend, linear))) return false;
  for (const ExtendRequest& request : requests_of(actual)) {
    const std::int64_t first = anywhere ? request.first_query : token + 1, end = request.first_query + request.queries;
    if (token >= request.first_query && token < end && (actual.is_causal || anywhere))
      return holds_infinite_value(actual.v_extend, {first, end - first}, kv_head, linear % width) ||
             (anywhere && prefix_holds_infinite_value(actual, request, kv_head, linear % width));
  }
  return false;
}

void hopper(const Call& op, const Exec& exec) {
  const Extend call = call_of(op);
  triton_extend_hopper(call, requests_of(op), exec);
  store_heads(call.out, op.o_extend);
}

/// What Triton 3.6 compiles of these blocks for an H200 gives no weighted means: of equal values others.
bool few_value_columns(const Call& op) {
  return op.v_extend.size(2) <= 32 && op.q_extend.size(2) > 32;
}

std::optional<Refusal> unsupported(const Call& op, Mode mode) {
  const std::int64_t own = triton_extend_rows(op.q_extend.size(2));
  if (mode == Mode::hopper && op.k_buffer.dtype() == f8_e4m3 && (op.q_extend.size(2) < 32 || op.v_extend.size(2) < 32))
    return Refusal{"k_buffer", "of e4m3 with heads of fewer than 32 elements has no hopper mode: its order was not read"};
  if (mode == Mode::hopper && few_value_columns(op))
    return Refusal{"v_extend", "has values of " + std::to_string(op.v_extend.size(2)) +
                                   " elements: an H200's kernel is wrong for 32 and fewer beside keys of more"};
  if (mode != Mode::hopper || op.BLOCK_M == 0 || op.BLOCK_M == own) return {};
  return Refusal{"BLOCK_M", "is " + std::to_string(op.BLOCK_M) + ", expected " + std::to_string(own) + ", upstream's choice for heads of " +
                                std::to_string(op.q_extend.size(2)) + ": other blocks have another order"};
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_extend_attention_fwd() {
  return define<ops::ExtendAttentionFwd>({
      .contract = R"(
Scores, softmax about a running maximum, weights rounded to the element type for their products with the values, sums of the unrounded
weights and of the products in fp32, one rounding: the budget of cutlass_mla_decode. A cap adds 1.25 * 2^-20 of itself to the error of a score, a
temperature 8 units of 2^-24 of the score. Keys are the prefix's, then the new tokens; those that masks or windows hide have no effect. A query that
sees no key is not judged (upstream divides 0 by 0; here 0). Hopper mode has the order of Triton 3.6's code: see ops/softmax/triton/extend.h; there
keys that are hidden within a block are multiplied by 0, so that what is not finite among their values shows. A sink s adds exp(s) to the sum of the weights; with sinks a query that sees no key gives
zeros, and is judged. Pools of e4m3 have no scale (upstream divides keys and values by theirs before it stores them): their keys meet queries
rounded to e4m3, saturating, and their weights are rounded to e4m3 for the products with their values: shares of
trtllm_batch_decode_with_kv_cache_mla, beside which heads of up to 256 elements have what the fp8 tensor core's steps may lose of scores, in one
chain or two, and of the products with the pool's values. New tokens stay as they are. Widths that are no multiple of 16 are filled up with zeros, as the kernel's blocks are (which need 9 elements at least). Fast mode has the keys of such pools in splits of their own. Here errors: offsets that
fall, slots out of range, masks too short, a temperature's length below 2.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .flops = [](const ops::ExtendAttentionFwd& op) { return ops::attention_flops(ops::attention_of(ops::call_of(op), op)); },
      .defects =
          {{"few-value-columns", "o_extend",
            "Dv of 32 and less with D above 32, compiled by Triton 3.6 for an H200: sums are not those of the weights, and of equal "
            "values others come out"},
           {"hidden-tokens-show", "o_extend",
            "tokens that a mask hides are multiplied by weights of 0 in a query's block: what is not finite among their values gives NaN",
            ops::explains_hidden_tokens}},
      .mistakes = {{"window-one-short", "the sliding window leaves out the key that lies its whole width before the query",
                    ops::golden_with_short_window},
                   {"mask-without-prefix", "rows of custom_mask are taken to hold the new tokens alone", ops::golden_with_narrow_masks},
                   {"sinks-left-out", "the sum of the weights has no term of the sink", ops::golden_without_sinks}},
      .cases =
          {"T=9 N=4 Nk=4 D=192 Dv=128 B=2 S=40 n=30 --attr sm_scale=0.0721687836",
           "T=5 N=16 Nk=1 D=576 Dv=512 B=1 S=90 n=70 --attr v_is_slice_of_k=true --attr sm_scale=0.1352337788608801 --without v_buffer",
           // NOLINTNEXTLINE(bugprone-suspicious-missing-comma)
           "T=6 N=4 Nk=2 D=64 Dv=64 B=2 S=30 n=20 masked=160 --with custom_mask --with mask_indptr --attr "
           "skip_prefix_custom_mask=false --dtype q_extend=f16",
           "T=7 N=2 Nk=1 D=128 Dv=128 B=1 S=30 n=20 --attr sliding_window_size=9 --attr logit_cap=30 --attr xai_temperature_len=8",
           "T=5 N=2 Nk=2 D=288 Dv=256 B=2 S=30 n=12 masked=100 --with custom_mask --with mask_indptr --with window_kv_offsets --attr "
           "sliding_window_size=12 --dtype custom_mask=u8",
           "T=6 N=16 Nk=2 D=192 Dv=128 B=3 S=20 n=3 --with sinks --attr sm_scale=0.05 --dtype k_buffer=f8_e4m3",
           "T=4 N=16 Nk=1 D=576 Dv=512 B=2 S=20 n=3 --with sinks --attr v_is_slice_of_k=true --attr sm_scale=0.03 --without v_buffer "
           "--dtype k_buffer=f8_e4m3 --dtype sinks=f32",
           "T=7 N=4 Nk=2 D=72 Dv=40 B=2 S=20 n=9"},
      .bench_cases = {"T=1024 N=16 Nk=16 D=192 Dv=128 B=1 S=1100 n=1024",
                      "T=64 N=128 Nk=1 D=576 Dv=512 B=1 S=1100 n=1024 --attr v_is_slice_of_k=true --without v_buffer"},
  });
}
}  // namespace dodona
