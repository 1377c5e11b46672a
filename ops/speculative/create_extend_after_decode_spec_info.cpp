#include "ops/speculative/create_extend_after_decode_spec_info.h"

#include "ops/base/golden_output.h"
#include "ops/schemes/request_spans.h"

namespace dodona::ops {
namespace {

using Create = CreateExtendAfterDecodeSpecInfo;

/// The rule itself, and a mistake of such kernels.
enum class Rule { right, one_further };

void make_inputs(Create& op, std::uint64_t seed) {
  const std::int64_t requests = op.accept_lens.elements(), rest = std::max<std::int64_t>(0, op.verified_id.elements() - requests);
  put_all(op.accept_lens, shares(InputDraw(seed, "accept_lens"), requests, rest, rest), 1);
  const InputDraw draw(seed, "seq_lens");
  for (std::int64_t b = 0; b < requests; ++b)
    put_index(op.seq_lens, b, index_at(op.accept_lens, b) + static_cast<std::int64_t>(draw.below(b, 1000)));
}

void check(const Create& op) {
  check_whole(op.accept_lens, "accept_lens", 1, op.verified_id.elements());
  check_sum(op.accept_lens, "accept_lens", 0, op.verified_id.elements(), "verified_id");
}

template <Rule rule>
void create(const Create& op) {
  std::int64_t at = 0;
  for (std::int64_t b = 0; b < op.accept_lens.elements(); ++b) {
    const std::int64_t count = index_at(op.accept_lens, b), first = index_at(op.seq_lens, b) - count + (rule == Rule::one_further ? 1 : 0);
    for (std::int64_t j = 0; j < count; ++j) op.positions.as<std::int64_t>()[at++] = first + j;
    op.new_verified_id.as<std::int32_t>()[b] = static_cast<std::int32_t>(index_at(op.verified_id, at - 1));
  }
}

void fast(const Create& op, const Exec&) {
  create<Rule::right>(op);
}

template <Rule rule>
void golden(const Create& op, const Exec&, Reference* reference) {
  create<rule>(op);
  record_exact(op.positions, reference, "positions");
  record_exact(op.new_verified_id, reference, "new_verified_id");
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_create_extend_after_decode_spec_info() {
  return define<ops::CreateExtendAfterDecodeSpecInfo>({
      .contract = "Whole numbers. Lengths that do not add up to the tokens are an error here; upstream reads and writes outside.",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::fast,
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .mistakes = {{"one-further", "positions begin one further, as those of the draft steps do", ops::golden<ops::Rule::one_further>}},
      .cases = {"B=4 n=13", "B=7 n=7 --dtype verified_id=i64", "B=1 n=4 --dtype accept_lens=i64 --dtype seq_lens=i32"},
      .bench_cases = {"B=64 n=256"},
  });
}
}  // namespace dodona
