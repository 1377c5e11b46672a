#include "ops/attention/batch_prefill_with_ragged_kv_cache.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <string>

#include "core/flaw.h"
#include "ops/softmax/flashinfer/ragged.h"
#include "ops/softmax/flashinfer/ragged_fa2.h"
#include "ops/softmax/layouts/mla_decode.h"
#include "ops/softmax/layouts/offsets.h"
#include "ops/softmax/leaked_values.h"
#include "ops/softmax/split_traces.h"
#include "quant/element.h"

namespace dodona::ops {
namespace {

using Call = BatchPrefillWithRaggedKvCache;

Ragged call_of(const Call& op) {
  return {.query = op.q,
          .key = op.k,
          .value = op.v,
          .out = op.out,
          .lse = op.lse,
          .sinks = op.sinks,
          .scale = op.sm_scale != 0 ? op.sm_scale : 1 / std::sqrt(static_cast<double>(op.q.size(2))),
          .cap = op.logits_soft_cap};
}

std::vector<RaggedRequest> whole_requests_of(const Call& op) {
  const auto *const q = op.qo_indptr.as<const std::int32_t>(), *const kv = op.kv_indptr.as<const std::int32_t>();
  std::vector<RaggedRequest> requests;
  for (std::int64_t b = 0; b + 1 < op.qo_indptr.size(0); ++b)
    requests.push_back({q[b], q[b + 1] - q[b], kv[b], kv[b + 1] - kv[b], op.causal, 0, op.window_left});
  return requests;
}

/// Where there is a window, queries one by one.
std::vector<RaggedRequest> in_window(const Call& op, const std::vector<RaggedRequest>& requests, std::int64_t tile = 0) {
  return op.window_left < 0 ? requests : one_by_one(requests, tile);
}
std::vector<RaggedRequest> requests_of(const Call& op) {
  return in_window(op, whole_requests_of(op));
}

void check(const Call& op) {
  const std::int64_t width = op.q.size(2), value_width = width == 192 ? 128 : width;
  if (op.v.size(2) != value_width)
    throw Error(ErrorCode::bad_shape, "", "v",
                "has shape " + to_string(op.v.shape()) + ", expected heads of " + std::to_string(value_width) + " beside those of " +
                    std::to_string(width) + " of q " + to_string(op.q.shape()));
  if (op.q.size(1) % op.k.size(1) != 0)
    throw Error(ErrorCode::bad_shape, "", "k",
                "has shape " + to_string(op.k.shape()) + ", expected heads that divide the " + std::to_string(op.q.size(1)) + " of q");
  if (op.sm_scale != 0) check_mla_scale(op.sm_scale, "sm_scale");
  check_offsets(op.qo_indptr, "qo_indptr", op.q.size(0), tokens_of("q", op.q), true);
  check_offsets(op.kv_indptr, "kv_indptr", op.k.size(0), tokens_of("k", op.k), false);
}

RaggedAttention attention_of(const Call& op, const std::vector<RaggedRequest>& requests) {
  RaggedAttention attention(call_of(op), requests);
  attention.natural_lse = op.return_lse_base_on_e;
  return attention;
}

template <CausalMask mask>
void golden(const Call& op, const Exec& exec, Reference* reference) {
  const std::int64_t tile = op.window_left < 0 ? 0 : window_tile_of(exec);
  RaggedAttention attention = attention_of(op, in_window(op, masked_by(mask, whole_requests_of(op)), tile));
  attention.score_errors = ScoreErrors::of_rounded_maximum(attention.key_width, attention.type, attention.scale);
  attention.cap_error = cap_of_instruction;
  attention.nan_is_open = true;
  const bool rounded = op.backend == "fa2";
  attention.lse_of_rounded_weights = rounded;
  // Of each split, and of each group of threads' mean of its splits.
  attention.partials_rounded = rounded ? 2 : 0;
  attention_golden(attention, rounded ? WeightSum::open : WeightSum::unrounded, exec, reference);
}

/// The sinks' terms are left out.
void golden_without_sinks(const Call& op, const Exec& exec, Reference* reference) {
  Call other = op;
  other.sinks = Tensor();
  golden<CausalMask::right>(other, exec, reference);
}
/// Keys W before the query are left out too.
void golden_with_short_window(const Call& op, const Exec& exec, Reference* reference) {
  Call other = op;
  if (op.window_left > 0) other.window_left -= 1;
  golden<CausalMask::right>(other, exec, reference);
}
/// Scores are not capped.
void golden_without_cap(const Call& op, const Exec& exec, Reference* reference) {
  Call other = op;
  other.logits_soft_cap = 0;
  golden<CausalMask::right>(other, exec, reference);
}

std::optional<Refusal> unsupported(const Call& op, Mode mode) {
  if (mode != Mode::hopper) return {};
  if (op.backend == "fa2") {
    if (op.return_lse_base_on_e) return Refusal{"return_lse_base_on_e", "is true, and the kernel whose bits are known has base 2"};
    return {};
  }
  if (op.sinks.defined()) return Refusal{"sinks", "are there, with which no kernel's bits are known"};
  if (op.window_left >= 0)
    return Refusal{"window_left", "is " + std::to_string(op.window_left) + ", expected -1: no kernel's bits are known with windows"};
  if (op.return_lse_base_on_e) return Refusal{"return_lse_base_on_e", "is true, and the kernel whose bits are known has base 2"};
  if (op.logits_soft_cap != 0) return Refusal{"logits_soft_cap", "is not 0, with which no kernel's bits are known"};
  return {};
}

void fast(const Call& op, const Exec& exec) {
  attention_fast(attention_of(op, whole_requests_of(op)), exec);
}

/// Whether a NaN is what keys that the query does not see, but another one of its block of rows or their tiles hold, or rows behind the
/// request in the last tile, left.
bool explains_hidden_keys(const Call& actual, std::string_view output, std::int64_t linear) {
  const std::int64_t width = actual.v.size(2), heads = actual.q.size(1);
  const std::int64_t token = linear / (heads * width), head = linear / width % heads;
  constexpr std::int64_t longest_tile = 192, most_rows = 192;
  if (output != "out" || !std::isnan(quant::get(actual.out, linear))) return false;
  for (const RaggedRequest& request : whole_requests_of(actual)) {
    if (token < request.first_query || token >= request.first_query + request.queries) continue;
    const std::int64_t own = token - request.first_query + request.keys - request.queries;
    const std::int64_t begin = actual.window_left < 0 ? 0 : std::max<std::int64_t>(0, own - actual.window_left - most_rows - longest_tile);
    const std::int64_t last = request.causal ? std::clamp<std::int64_t>(own + most_rows, 0, request.keys) : request.keys;
    const std::int64_t first = request.first_key + std::min(begin, last),
                       end = std::min(actual.k.size(0), request.first_key + last + longest_tile);
    return holds_infinite_value(actual.v, {first, end - first}, head / (heads / actual.k.size(1)), linear % width);
  }
  return false;
}

/// Whether the log-sum-exp of a query that sees no key is its sink's, all that its sum has.
bool explains_sink_alone(const Call& actual, std::string_view output, std::int64_t linear) {
  if (output != "lse" || !actual.sinks.defined()) return false;
  const std::int64_t heads = actual.q.size(1), token = linear / heads;
  for (const RaggedRequest& request : requests_of(actual)) {
    if (token < request.first_query || token >= request.first_query + request.queries) continue;
    const bool sees = request.causal ? token - request.first_query + request.keys - request.queries >= 0 : request.keys > 0;
    const double sink = quant::get(actual.sinks, linear % heads) * (actual.return_lse_base_on_e ? 1.0 : std::numbers::log2e);
    const double lse = quant::get(actual.lse, linear);
    // About the maximum that kernels begin with, 0, exp of a large sink leaves fp32.
    constexpr double beyond = 88.0;
    return !sees &&
           (std::fabs(lse - sink) <= 8 * f32_eps * std::fmax(1.0, std::fabs(sink)) || (lse > 0 && std::isinf(lse) && sink > beyond));
  }
  return false;
}

/// Whether the log-sum-exp is that of a call without any key.
bool explains_no_key_at_all(const Call& actual, std::string_view output, std::int64_t linear) {
  return output == "lse" && actual.k.size(0) == 0 && quant::get(actual.lse, linear) == std::numeric_limits<double>::infinity();
}

SeenKeys keys_seen_by(const Call& op, std::int64_t token, std::int64_t head) {
  return keys_seen(call_of(op), requests_of(op), token, head);
}

/// Whether a number stands where golden has NaN because a split that holds it was left out.
bool explains_split_of_no_weight(const Call& actual, std::string_view output, std::int64_t linear) {
  const std::int64_t width = actual.v.size(2), heads = actual.q.size(1), row = linear / width;
  return output == "out" && lacks_splits_of_no_weight(call_of(actual), keys_seen_by(actual, row / heads, row % heads), linear % width,
                                                      quant::get(actual.out, linear));
}

/// Whether the first split's infinite sum of weights made zeros, and NaN of the log-sum-exp.
bool explains_sink_of_first_split(const Call& actual, std::string_view output, std::int64_t linear) {
  const std::int64_t heads = actual.q.size(1), row = output == "out" ? linear / actual.v.size(2) : linear;
  const bool left = output == "out" ? quant::get(actual.out, linear) == 0 : std::isnan(quant::get(actual.lse, linear));
  return left && sink_may_overflow_first_split(call_of(actual), keys_seen_by(actual, row / heads, row % heads));
}

void hopper(const Call& op, const Exec& exec) {
  if (op.backend == "fa2")
    flashinfer_ragged_fa2_hopper(call_of(op), whole_requests_of(op), op.fixed_split_size, exec);
  else
    flashinfer_ragged_hopper(call_of(op), requests_of(op), exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_batch_prefill_with_ragged_kv_cache() {
  return define<ops::BatchPrefillWithRaggedKvCache>({
      .contract = R"(
Scores, softmax about a running maximum, weights rounded to the element type for their products with the values, sums of the unrounded
weights and of the products in fp32, times the reciprocal of the sum, one rounding: the budget of cutlass_mla_decode. backend=fa2: the rounded weights may be
added up, for out and lse, outputs of splits rounded to the type before groups of threads merge them, and what each group has once more before those are merged. Kernels round the largest score m, times
sm_scale * log2 e, before they take it from a fused product: weights are off by a common power of 2, and where the sum of |q * k| times that factor
reaches 2^30 (f16: 2^27), so that they may leave their type, nothing is compared. lse is base 2 unless return_lse_base_on_e. What has a NaN among its
scores is not judged: maxima drop it. Releases of FlashInfer up to 0.6.18 begin their maximum at -5e4, and lose rows whose largest q . k lies below. The keys
are those that a query sees; what others hold has no effect in golden and fast mode. A query that sees none gives zeros and -inf. Hopper mode has the order of
FlashInfer's fa3 kernels (ops/softmax/flashinfer/ragged.h), from their source and their machine code, without windows, caps and sinks; there keys that are hidden within a
tile, and rows of other requests that lie in it, are multiplied by 0, so that what is not finite among their values shows. With backend=fa2 it has that of the fa2
kernels as of 2026-08-22 (ops/softmax/flashinfer/ragged_fa2.h), windows, caps and sinks (scores of AttentionSink) among it, as planned for 132 multiprocessors, where they go wrong too: causal
requests of more queries than keys, and windows of calls that are not causal whose keys are split. Releases up to 0.6.18 give other bits in rows that see no key, or none whose q . k
is above -5e4. Here errors: offsets that
fall or lead outside, a scale that is not positive. Caps: tanh by the approximate instruction, which moves a capped score by up to
2^-11 of the cap. A sink is exp of its number, in fp32, in the sum of the weights and in lse; lse is open where a sink is more than 126 ln 2 above every score, so that its weight about the largest leaves fp32. Positions and e4m3 are not taken.)",
      .contract_version = 4,
      .golden = ops::golden<ops::CausalMask::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .check = ops::check,
      .flops =
          [](const ops::BatchPrefillWithRaggedKvCache& op) {
            return ops::attention_flops(ops::RaggedAttention(ops::call_of(op), ops::whole_requests_of(op)));
          },
      .defects =
          {{"hidden-keys-show", "out",
            "keys that a query does not see, and rows of other requests that lie in its last tile, are multiplied by weights of 0: what is "
            "not finite among their values gives NaN",
            ops::explains_hidden_keys},
           {"sink-of-no-keys", "lse",
            "a query that sees no key has the sink's number as its log-sum-exp, +inf of one that is too large for fp32, where its tile has "
            "other queries: -inf elsewhere",
            ops::explains_sink_alone},
           {"no-key-at-all", "lse", "FlashAttention 3 fills the log-sum-exps of a call without any key with +inf",
            ops::explains_no_key_at_all},
           {"splits-of-no-weight", "out",
            "a split of the keys whose weight about the largest is 0 in fp32 is not added: what is not finite among its values does "
            "not show, where it gives NaN unsplit",
            ops::explains_split_of_no_weight},
           {"sink-of-first-split", "out",
            "the first split of the keys takes the sink: of a sink that is more than 126 ln 2 above every score there the sum is "
            "infinite, and the merged row is zeros, its log-sum-exp NaN",
            ops::explains_sink_of_first_split}},
      .mistakes = {{"causal-mask-from-first-key", "the causal mask is aligned to the first key, not to the last",
                    ops::golden<ops::CausalMask::from_first_key>},
                   {"own-key-hidden", "the causal mask hides a query's own key", ops::golden<ops::CausalMask::own_key_hidden>},
                   {"next-key-seen", "the causal mask shows a query the key behind its own", ops::golden<ops::CausalMask::next_key_seen>},
                   {"window-one-short", "the sliding window leaves out the key that lies its whole width before the query",
                    ops::golden_with_short_window},
                   {"sinks-left-out", "the sum of the weights has no term of the sink", ops::golden_without_sinks},
                   {"cap-left-out", "scores are not capped", ops::golden_without_cap}},
      .cases =
          {"Tq=5 Tk=9 N=4 Nk=4 D=192 Dv=128 B=2 --attr causal=true --attr sm_scale=0.0721687836 --attr return_lse=true",
           "Tq=3 Tk=210 N=2 Nk=1 D=128 Dv=128 B=2 --attr sm_scale=0.09",
           "Tq=4 Tk=70 N=2 Nk=2 D=256 Dv=256 B=1 --attr causal=true --attr return_lse=true --dtype q=f16",
           "Tq=6 Tk=40 N=3 Nk=1 D=64 Dv=64 B=3 --attr sm_scale=0.125",
           "Tq=5 Tk=70 N=4 Nk=2 D=128 Dv=128 B=2 --attr causal=true --attr window_left=9 --attr return_lse=true",
           "Tq=4 Tk=30 N=4 Nk=1 D=64 Dv=64 B=2 --attr causal=true --with sinks --attr return_lse=true --attr return_lse_base_on_e=true",
           "Tq=4 Tk=30 N=2 Nk=2 D=128 Dv=128 B=2 --attr logits_soft_cap=2 --attr sm_scale=0.3 --attr return_lse=true",
           "Tq=6 Tk=90 N=4 Nk=2 D=64 Dv=64 B=2 --attr causal=true --attr backend=fa2 --attr fixed_split_size=16 --attr return_lse=true"},
      .bench_cases = {"Tq=1024 Tk=1024 N=16 Nk=16 D=192 Dv=128 B=1 --attr causal=true --attr sm_scale=0.1352337788608801",
                      "Tq=1024 Tk=1024 N=16 Nk=4 D=128 Dv=128 B=1 --attr causal=true --attr window_left=255",
                      "Tq=1024 Tk=1024 N=16 Nk=4 D=128 Dv=128 B=1 --attr causal=true --attr logits_soft_cap=30",
                      "Tq=64 Tk=8192 N=16 Nk=4 D=128 Dv=128 B=64 --attr causal=true --with sinks"},
  });
}
}  // namespace dodona
