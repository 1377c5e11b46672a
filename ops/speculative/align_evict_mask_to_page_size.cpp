#include "ops/speculative/align_evict_mask_to_page_size.h"

#include <algorithm>

#include "ops/base/golden_output.h"
#include "ops/schemes/request_spans.h"

namespace dodona::ops {
namespace {

using Align = AlignEvictMaskToPageSize;

/// The rule itself, and a mistake of such kernels.
enum class Rule { right, page_behind };

void make_inputs(Align& op, std::uint64_t seed) {
  const InputDraw draw(seed, "seq_lens");
  for (std::int64_t b = 0; b < op.seq_lens.elements(); ++b) put_index(op.seq_lens, b, static_cast<std::int64_t>(draw.below(b, 1000)));
}

void check(const Align& op) {
  check_whole(op.seq_lens, "seq_lens", 0, std::int64_t{1} << 31);
}

template <Rule rule>
void align(const Align& op) {
  const std::int64_t width = op.num_draft_tokens, page = op.page_size;
  for (std::int64_t b = 0; b < op.seq_lens.elements(); ++b) {
    auto* const row = op.evict_mask.as<std::uint8_t>() + b * width;
    const std::int64_t length = index_at(op.seq_lens, b),
                       kept = width - std::count_if(row, row + width, [](std::uint8_t m) { return m != 0; });
    const std::int64_t last = length + kept - (rule == Rule::page_behind ? 0 : 1), start = last / page * page - length;
    for (std::int64_t i = std::max<std::int64_t>(start, 0); i < std::min(start + page, width); ++i) row[i] = 0;
  }
}

void fast(const Align& op, const Exec&) {
  align<Rule::right>(op);
}

template <Rule rule>
void golden(const Align& op, const Exec&, Reference* reference) {
  align<rule>(op);
  record_exact(op.evict_mask, reference, "evict_mask");
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_align_evict_mask_to_page_size() {
  return define<ops::AlignEvictMaskToPageSize>({
      .contract = "Whole numbers; what is kept is counted before anything is written.",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::fast,
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .defects =
          {{"unsigned-start", "evict_mask",
            "with i32 seq_lens the sum of the mask makes the page's begin unsigned, and a bound of 0 does nothing: where the page begins "
            "before the draft, upstream writes 4 GiB behind evict_mask too; with i64 it does not"}},
      .mistakes = {{"page-behind", "the page of the token behind the last kept one is cleared", ops::golden<ops::Rule::page_behind>}},
      .cases = {"B=5 --attr page_size=4 --attr num_draft_tokens=8", "B=9 --attr page_size=64 --attr num_draft_tokens=4",
                "B=3 --attr page_size=1 --attr num_draft_tokens=5",
                "B=4 --attr page_size=3 --attr num_draft_tokens=20 --dtype seq_lens=i32"},
      .bench_cases = {"B=64 --attr page_size=4 --attr num_draft_tokens=64"},
  });
}
}  // namespace dodona
