#include "ops/attention/flash_mla_sparse_fwd.h"

#include <algorithm>
#include <limits>
#include <set>

#include "core/random.h"
#include "ops/softmax/flash_mla/sparse.h"
#include "ops/softmax/layouts/mla_decode.h"
#include "quant/element.h"

namespace dodona::ops {
namespace {

SparseMla call_of(const FlashMlaSparseFwd& op) {
  // One query token to a request.
  const Tensor q(op.q.as<const std::byte>(), bf16, {op.q.size(0), 1, op.q.size(1), op.q.size(2)},
                 {op.q.stride(0), 0, op.q.stride(1), op.q.stride(2)});
  return {.q = q,
          .cache = op.kv.as<const std::byte>(),
          .cache_rows = op.kv.size(0),
          .cache_stride = 2 * op.kv.stride(0),
          .key_rows = KeyRows::elements,
          .indices = op.indices,
          .out = op.out,
          .lse = op.lse,
          .top = op.max_logits,
          .scale = op.sm_scale};
}

/// Of ten numbers eight name rows; the others are -1, or lie behind the last row.
void make_inputs(FlashMlaSparseFwd& op, std::uint64_t seed) {
  const InputDraw draw(seed, "indices");
  const std::int64_t rows = op.kv.size(0);
  for (std::int64_t i = 0; i < op.indices.elements(); ++i) {
    const auto kind = draw.below_again(i, 10);
    const auto slot = static_cast<std::int32_t>(draw.below(i, static_cast<std::uint64_t>(std::max<std::int64_t>(rows, 1))));
    op.indices.as<std::int32_t>()[i] = kind == 9 || rows == 0 ? -1 : kind == 8 ? static_cast<std::int32_t>(rows) + slot : slot;
  }
}

void check(const FlashMlaSparseFwd& op) {
  check_mla_scale(op.sm_scale, "sm_scale");
}

SparseMlaAttention attention_of(const FlashMlaSparseFwd& op, const SparseMla& call) {
  SparseMlaAttention attention(call);
  attention.natural_lse = op.logarithms == "natural";
  if (attention.natural_lse) attention.lse_of_none = std::numeric_limits<double>::infinity();
  return attention;
}

void golden_of(const FlashMlaSparseFwd& op, const SparseMla& call, const Exec& exec, Reference* reference) {
  SparseMlaAttention attention = attention_of(op, call);
  attention.score_errors = flash_mla_score_errors(bf16, call.scale);
  attention_golden(attention, WeightSum::unrounded, exec, reference);
}

void golden(const FlashMlaSparseFwd& op, const Exec& exec, Reference* reference) {
  golden_of(op, call_of(op), exec, reference);
}

void fast(const FlashMlaSparseFwd& op, const Exec& exec) {
  attention_fast(attention_of(op, call_of(op)), exec);
}

void hopper(const FlashMlaSparseFwd& op, const Exec& exec) {
  flash_mla_sparse_prefill_hopper(call_of(op), exec);
}

std::optional<Refusal> unsupported(const FlashMlaSparseFwd& op, Mode mode) {
  if (mode != Mode::hopper || op.logarithms == "base_2") return {};
  return Refusal{"logarithms", "is 'natural', which has no hopper mode: it is sgl-kernel 0.3.21's kernel"};
}

/// Numbers that name no row are taken for the nearest row.
void clamped(const FlashMlaSparseFwd& op, const Exec& exec, Reference* reference) {
  Tensor rows(i32, op.indices.shape());
  for (std::int64_t i = 0; i < rows.elements(); ++i) {
    const auto index = static_cast<std::int64_t>(quant::get(op.indices, i));
    rows.as<std::int32_t>()[i] =
        static_cast<std::int32_t>(std::clamp<std::int64_t>(index, 0, std::max<std::int64_t>(op.kv.size(0) - 1, 0)));
  }
  SparseMla call = call_of(op);
  call.indices = rows;
  golden_of(op, call, exec, reference);
}

/// A row that the list names again is left out.
void once(const FlashMlaSparseFwd& op, const Exec& exec, Reference* reference) {
  Tensor rows(i32, op.indices.shape());
  const std::int64_t width = op.indices.size(2);
  for (std::int64_t t = 0; t < op.indices.size(0); ++t) {
    std::set<std::int64_t> seen;
    for (std::int64_t i = t * width; i < (t + 1) * width; ++i) {
      const auto index = static_cast<std::int64_t>(quant::get(op.indices, i));
      rows.as<std::int32_t>()[i] = seen.insert(index).second ? static_cast<std::int32_t>(index) : -1;
    }
  }
  SparseMla call = call_of(op);
  call.indices = rows;
  golden_of(op, call, exec, reference);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_flash_mla_sparse_fwd() {
  return define<ops::FlashMlaSparseFwd>({
      .contract = R"(
As cutlass_mla_decode, of which it has the budget: z[i] one fp32 sum of 576 exact products; softmax about a running maximum over the rows that
the token's list names, in any order, each as often as it is named; weights rounded to bf16 for their products with the latents, their sum
taken over the unrounded ones; fp32 sums, times the reciprocal of the sum of the weights, one rounding. lse and max_logits are base 2, as sgl-kernel
0.3.21 has them, or with logarithms=natural, as later versions of FlashMLA do, times ln 2, with one rounding more; budget of max_logits: what
the scores may be off. A token that names no row gives zeros and -inf in both, but a natural lse of infinity. Heads are not judged whose scores may come to
2^30, for the kernel's weights may then overflow: the maximum that is taken from a score is rounded, the score is not. The H200's bits go by the list:
64 numbers make a block, and blocks are taken in pairs. Here any number of heads; upstream asks for multiples of 64, and 128 on a B200, and is
given heads of zeros. Here an error: a scale that is not positive. Later versions also take a length and a sink for each token, which
are not taken here.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .flops = [](const ops::FlashMlaSparseFwd& op) { return ops::attention_flops(ops::SparseMlaAttention(ops::call_of(op))); },
      .bytes_read = [](const ops::FlashMlaSparseFwd& op) { return ops::SparseMlaAttention(ops::call_of(op)).bytes_read(); },
      .mistakes = {{"absent_rows_clamped", "numbers that name no row taken for the nearest row", ops::clamped},
                   {"repeated_rows_once", "a row that is named again left out", ops::once}},
      .customary = {{"out", CustomaryKind::close, 3.01 / 128, 8e-4, "FlashMLA tests/test_flash_mla_prefill.py"},
                    {"*", CustomaryKind::close, 2.01 / 65536, 1e-6, "FlashMLA tests/test_flash_mla_prefill.py"}},
      .cases = {"T=2 N=3 S=70 topk=128 --attr sm_scale=0.0721687836", "T=1 N=17 S=40 topk=256 --attr sm_scale=0.1352337788608801",
                "T=2 N=2 S=30 topk=128 --attr sm_scale=0.0721687836 --attr logarithms=natural"},
      .bench_cases = {"T=4 N=128 S=8192 topk=2048 --attr sm_scale=0.1352337788608801"},
  });
}
}  // namespace dodona
