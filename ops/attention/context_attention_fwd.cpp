#include "ops/attention/context_attention_fwd.h"

#include <algorithm>
#include <cmath>

#include "core/random.h"
#include "ops/softmax/triton_context.h"
#include "quant/sizes.h"

namespace dodona::ops {
namespace {

using Call = ContextAttentionFwd;

/// The operands with heads of whole sixteens, as the kernel's blocks have them: zeros behind those that are not.
class Blocks {
 public:
  explicit Blocks(const Call& op) : op_(op), ragged_(ragged_of(op)) {
    if (op.q.size(2) % 16 == 0) return;
    ragged_.query = widened(op.q);
    ragged_.key = widened(op.k);
    ragged_.value = widened(op.v);
    ragged_.out = Tensor::uninitialized(op.o.dtype(), ragged_.query.shape());
  }
  const Ragged& call() const { return ragged_; }
  std::int64_t width() const { return ragged_.query.size(2); }

  /// What was computed, to the op's output.
  void store() const {
    if (width() == op_.q.size(2)) return;
    for_heads(op_.o, [&](std::int64_t t, std::int64_t n) { std::copy_n(head(ragged_.out, t, n), op_.o.size(2), head(op_.o, t, n)); });
  }

 private:
  static Ragged ragged_of(const Call& op) {
    return {.query = op.q, .key = op.k, .value = op.v, .out = op.o, .lse = {}, .scale = 1 / std::sqrt(static_cast<double>(op.q.size(2)))};
  }
  static std::uint16_t* head(const Tensor& t, std::int64_t token, std::int64_t n) {
    return t.as<std::uint16_t>() + token * t.stride(0) + n * t.stride(1);
  }
  template <class Body>
  static void for_heads(const Tensor& t, const Body& body) {
    for (std::int64_t token = 0; token < t.size(0); ++token)
      for (std::int64_t n = 0; n < t.size(1); ++n) body(token, n);
  }
  static Tensor widened(const Tensor& t) {
    const std::int64_t width = quant::align(t.size(2), 16);
    const Tensor wide = Tensor::uninitialized(t.dtype(), {t.size(0), t.size(1), width});
    for_heads(t, [&](std::int64_t token, std::int64_t n) {
      std::uint16_t* const to = head(wide, token, n);
      std::fill(std::copy_n(head(t, token, n), t.size(2), to), to + width, std::uint16_t{0});
    });
    return wide;
  }

  const Call& op_;
  Ragged ragged_;
};

/// Of the records of wide heads those that the op's output has.
void narrow(const ReferenceOutput& wide, std::int64_t wide_width, std::int64_t width, ReferenceOutput& to) {
  const auto take = [&](const auto& from, auto& into) {
    if (from.empty()) return;
    into.clear();
    for (std::size_t first = 0; first < from.size(); first += static_cast<std::size_t>(wide_width))
      into.insert(into.end(), from.begin() + static_cast<std::ptrdiff_t>(first), from.begin() + static_cast<std::ptrdiff_t>(first) + width);
  };
  take(wide.exact, to.exact);
  take(wide.slack, to.slack);
  take(wide.unspecified, to.unspecified);
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
  const Blocks blocks(op);
  RaggedAttention attention(blocks.call(), masked_by(mask, requests_of(op)));
  attention.out_name = "o";
  attention.weights_normalised = true;
  Reference wide;
  const bool same = blocks.width() == op.o.size(2);
  attention_golden(attention, WeightSum::unrounded, exec, same || reference == nullptr ? reference : &wide);
  blocks.store();
  if (!same && reference != nullptr) narrow(*wide.find("o"), blocks.width(), op.o.size(2), reference->output("o", op.o.elements()));
}

void fast(const Call& op, const Exec& exec) {
  const Blocks blocks(op);
  attention_fast(RaggedAttention(blocks.call(), requests_of(op)), exec);
  blocks.store();
}

void hopper(const Call& op, const Exec& exec) {
  const Blocks blocks(op);
  triton_context_hopper(blocks.call(), requests_of(op), exec);
  blocks.store();
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
ops/softmax/triton_context.h. Here errors: starts that are not the running sums of the lengths, lengths that do not add up to
the tokens of q.)",
      .golden = ops::golden<ops::CausalMask::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .flops =
          [](const ops::ContextAttentionFwd& op) {
            return ops::attention_flops(ops::RaggedAttention(ops::Blocks(op).call(), ops::requests_of(op)));
          },
      .mistakes = {{"own-key-hidden", "the causal mask hides a query's own key", ops::golden<ops::CausalMask::own_key_hidden>},
                   {"next-key-seen", "the causal mask shows a query the key behind its own", ops::golden<ops::CausalMask::next_key_seen>}},
      .cases = {"T=9 N=4 Nk=2 D=128 B=2", "T=20 N=2 Nk=2 D=64 B=1 --dtype q=f16 --attr is_causal=false", "T=5 N=1 Nk=1 D=192 B=3",
                "T=9 N=2 Nk=1 D=72 B=2"},
      .bench_cases = {"T=1024 N=16 Nk=16 D=128 B=1"},
  });
}
}  // namespace dodona
