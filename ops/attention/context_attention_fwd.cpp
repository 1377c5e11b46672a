#include "ops/attention/context_attention_fwd.h"

#include <algorithm>
#include <cmath>

#include "core/random.h"
#include "ops/softmax/leaked_values.h"
#include "ops/softmax/triton/context.h"
#include "ops/softmax/whole_heads.h"

namespace dodona::ops {
namespace {

using Call = ContextAttentionFwd;

Ragged call_of(const Call& op) {
  return {.query = whole_heads(op.q),
          .key = whole_heads(op.k),
          .value = whole_heads(op.v),
          .out = whole_heads_of_output(op.o),
          .lse = {},
          .scale = 1 / std::sqrt(static_cast<double>(op.q.size(2)))};
}

std::vector<RaggedRequest> requests_of(const Call& op) {
  std::vector<RaggedRequest> requests;
  for (std::int64_t b = 0; b < op.b_seq_len.size(0); ++b) {
    const std::int64_t first = op.b_start_loc.as<const std::int32_t>()[b], tokens = op.b_seq_len.as<const std::int32_t>()[b];
    requests.push_back({first, tokens, first, tokens, op.is_causal});
  }
  return requests;
}

void make_inputs(Call& op, std::uint64_t seed) {
  const InputDraw draw(seed, "b_seq_len");
  const std::int64_t requests = op.b_seq_len.elements(), tokens = op.q.size(0);
  std::vector<std::int64_t> ends{0};
  for (std::int64_t b = 0; b + 1 < requests; ++b)
    ends.push_back(static_cast<std::int64_t>(draw.below(b, static_cast<std::uint64_t>(tokens + 1))));
  ends.push_back(tokens);
  std::sort(ends.begin(), ends.end());
  for (std::int64_t b = 0; b < requests; ++b) {
    const auto i = static_cast<std::size_t>(b);
    op.b_start_loc.as<std::int32_t>()[b] = static_cast<std::int32_t>(ends[i]);
    op.b_seq_len.as<std::int32_t>()[b] = static_cast<std::int32_t>(ends[i + 1] - ends[i]);
  }
}

void check(const Call& op) {
  if (op.q.size(1) % op.k.size(1) != 0)
    throw Error(ErrorCode::bad_shape, "", "k",
                "has shape " + to_string(op.k.shape()) + ", expected heads that divide the " + std::to_string(op.q.size(1)) + " of q");
  std::int64_t end = 0;
  for (const RaggedRequest& request : requests_of(op)) {
    if (request.first_query != end)
      throw Error(ErrorCode::bad_value, "", "b_start_loc",
                  "holds " + std::to_string(request.first_query) + ", expected " + std::to_string(end) + ", the running sum of b_seq_len");
    end += request.queries;
  }
  if (end != op.q.size(0))
    throw Error(ErrorCode::bad_value, "", "b_seq_len",
                "adds up to " + std::to_string(end) + ", expected " + std::to_string(op.q.size(0)) + ", the tokens of q " +
                    to_string(op.q.shape()));
}

template <CausalMask mask>
void golden(const Call& op, const Exec& exec, Reference* reference) {
  RaggedAttention attention(call_of(op), masked_by(mask, requests_of(op)));
  attention.out_name = "o";
  attention.weights_normalised = true;
  attention_golden_of_heads(attention, op.o, WeightSum::unrounded, exec, reference);
}

void fast(const Call& op, const Exec& exec) {
  const Ragged call = call_of(op);
  attention_fast(RaggedAttention(call, requests_of(op)), exec);
  store_heads(call.out, op.o);
}

/// Whether a NaN is what tokens behind this one, whom the mask hides, left in its block.
bool explains_hidden_tokens(const Call& actual, std::string_view output, std::int64_t linear) {
  const std::int64_t width = actual.v.size(2), heads = actual.q.size(1);
  const std::int64_t token = linear / (heads * width), head = linear / width % heads, kv_head = head / (heads / actual.k.size(1));
  if (output != "o" || !actual.is_causal || !std::isnan(quant::get(actual.o, linear))) return false;
  for (const RaggedRequest& request : requests_of(actual)) {
    const Tokens hidden{token + 1, request.first_query + request.queries - token - 1};
    if (token < request.first_query || hidden.count < 0) continue;
    return holds_infinite_value(actual.v, hidden, kv_head, linear % width) ||
           may_have_infinite_score(actual.q, token, head, actual.k, hidden, kv_head);
  }
  return false;
}

void hopper(const Call& op, const Exec& exec) {
  const Ragged call = call_of(op);
  triton_context_hopper(call, requests_of(op), exec);
  store_heads(call.out, op.o);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_context_attention_fwd() {
  return define<ops::ContextAttentionFwd>({
      .contract = R"(
Scores, softmax about a running maximum, weights rounded to the element type for their products with the values, fp32 sums, one rounding: the
budget of cutlass_mla_decode, with weights that are rounded after their division by the sum so far, as upstream has them, or before it. The
scale is D^-0.5, rounded to fp32 once; a D that is no multiple of 16 is filled up with zeros, as the kernel's blocks are (which need 9
elements at least). Requests lie one behind the other, as upstream's callers have them. Hopper mode has the order of Triton 3.6's code: see
ops/softmax/triton/context.h; there what is not finite among values or scores of tokens that are hidden within a block shows. Here errors: starts that are not the running sums of the lengths, lengths that do not add up to
the tokens of q.)",
      .golden = ops::golden<ops::CausalMask::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .flops =
          [](const ops::ContextAttentionFwd& op) {
            return ops::attention_flops(ops::RaggedAttention(ops::call_of(op), ops::requests_of(op)));
          },
      .defects = {{"hidden-tokens-show", "o",
                   "tokens behind a query in its block are multiplied by weights of 0, and the mask is added to their scores: what is not "
                   "finite among their values or scores gives NaN",
                   ops::explains_hidden_tokens}},
      .mistakes = {{"own-key-hidden", "the causal mask hides a query's own key", ops::golden<ops::CausalMask::own_key_hidden>},
                   {"next-key-seen", "the causal mask shows a query the key behind its own", ops::golden<ops::CausalMask::next_key_seen>}},
      .cases = {"T=9 N=4 Nk=2 D=128 B=2", "T=20 N=2 Nk=2 D=64 B=1 --dtype q=f16 --attr is_causal=false", "T=5 N=1 Nk=1 D=192 B=3",
                "T=9 N=2 Nk=1 D=72 B=2"},
      .bench_cases = {"T=1024 N=16 Nk=16 D=128 B=1"},
  });
}
}  // namespace dodona
