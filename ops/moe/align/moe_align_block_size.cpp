#include "ops/moe/align/moe_align_block_size.h"

#include <algorithm>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/grouping.h"
#include "core/threads.h"
#include "dodona/error.h"
#include "ops/base/golden_output.h"

namespace dodona::ops {
namespace {

/// Calls body(ids) with the ids as a pointer to their type.
template <class Body>
void with_ids(const Tensor& t, const Body& body) {
  switch (t.dtype()) {
    case i64: return body(t.as<const std::int64_t>());
    case i8: return body(t.as<const std::int8_t>());
    case u8: return body(t.as<const std::uint8_t>());
    default: return body(t.as<const std::int32_t>());
  }
}

/// Ids in each slot, and where its blocks begin; one more entry for the total.
struct Slots {
  std::vector<std::int32_t> count, begin;

  std::int64_t total() const { return begin.back(); }
};

[[noreturn]] void bad_id(const MoeAlignBlockSize& op, std::int64_t id, std::int64_t i) {
  throw Error(ErrorCode::bad_value, "", "topk_ids",
              "holds " + std::to_string(id) + " at element " + std::to_string(i) +
                  ", expected -1 to num_experts - 2 = " + std::to_string(op.num_experts - 2));
}

/// Throws for an id of no slot.
void check_ids(const MoeAlignBlockSize& op) {
  const std::int64_t n = op.topk_ids.elements();
  with_ids(op.topk_ids, [&](const auto* ids) {
    // Of slots neither this number nor what it lacks to the last one is negative.
    using Id = std::remove_cvref_t<decltype(*ids)>;
    using Bits = std::conditional_t<sizeof(Id) == 8, std::uint64_t, std::uint32_t>;
    const auto signs = [last = static_cast<Bits>(op.num_experts - 1)](Id id) {
      const Bits slot = static_cast<Bits>(id) + 1;
      return slot | (last - slot);
    };
    const auto is_slot = [&](Id id) { return static_cast<std::make_signed_t<Bits>>(signs(id)) >= 0; };
    Bits all = 0;
    for (std::int64_t i = 0; i < n; ++i) all |= signs(ids[i]);
    if (static_cast<std::make_signed_t<Bits>>(all) >= 0) return;
    const std::int64_t i = std::find_if_not(ids, ids + n, is_slot) - ids;
    bad_id(op, static_cast<std::int64_t>(ids[i]), i);  // NOLINT(bugprone-signed-char-misuse): ids of 8 bits are numbers
  });
}

/// Of ids that are slots.
Slots slots_of_counts(const MoeAlignBlockSize& op, std::vector<std::int32_t> count) {
  Slots slots{std::move(count), {0}};
  slots.begin.reserve(slots.count.size() + 1);
  for (const std::int32_t ids : slots.count) {
    const std::int64_t blocks = (ids + op.block_size - 1) / op.block_size;
    slots.begin.push_back(static_cast<std::int32_t>(slots.begin.back() + blocks * op.block_size));
  }
  return slots;
}

/// The ids from `first` to before `end` in each slot.
std::vector<std::int32_t> count_ids(const MoeAlignBlockSize& op, std::int64_t first, std::int64_t end) {
  // An id that is that of the one before it does not wait for its count.
  constexpr std::int64_t tables = 4;
  const auto experts = static_cast<std::size_t>(op.num_experts);
  std::vector<std::int32_t> counts(tables * experts, 0);
  std::int32_t* const count = counts.data();
  with_ids(op.topk_ids, [&](const auto* ids) {
    const auto at = [&](std::int64_t i) { return static_cast<std::size_t>(ids[i] + 1); };
    std::int64_t i = first;
    for (; i + tables <= end; i += tables)
      for (std::int64_t t = 0; t < tables; ++t) ++count[static_cast<std::size_t>(t) * experts + at(i + t)];
    for (; i < end; ++i) ++count[at(i)];
  });
  for (std::size_t s = 0; s < experts; ++s) counts[s] += counts[experts + s] + counts[2 * experts + s] + counts[3 * experts + s];
  counts.resize(experts);
  return counts;
}

Slots slots_of(const MoeAlignBlockSize& op) {
  return slots_of_counts(op, count_ids(op, 0, op.topk_ids.elements()));
}

void check(const MoeAlignBlockSize& op) {
  const std::int64_t n = op.topk_ids.elements();
  if (n + op.num_experts * (op.block_size - 1) > std::numeric_limits<std::int32_t>::max())
    throw Error(ErrorCode::bad_shape, "", "topk_ids",
                "has shape " + to_string(op.topk_ids.shape()) + ", expected so few ids that padded offsets fit 32 bits");
  check_ids(op);
  // Mostly there is room for any ids.
  const std::int64_t most = n + op.num_experts * (op.block_size - 1);
  if (op.sorted_token_ids.elements() >= most && op.experts_ids.elements() >= most / op.block_size) return;
  const std::int64_t total = slots_of(op).total();
  const auto require_room = [&](const Tensor& t, const char* name, std::int64_t needed) {
    if (t.elements() < needed)
      throw Error(ErrorCode::bad_shape, "", name,
                  "has " + std::to_string(t.elements()) + " elements, expected at least " + std::to_string(needed) +
                      " for these ids in blocks of " + std::to_string(op.block_size));
  };
  require_room(op.sorted_token_ids, "sorted_token_ids", total);
  require_room(op.experts_ids, "experts_ids", total / op.block_size);
}

void write_blocks(const MoeAlignBlockSize& op, const Slots& slots) {
  auto* experts = op.experts_ids.as<std::int32_t>();
  for (std::size_t s = 0; s + 1 < slots.begin.size(); ++s)
    std::fill(experts + slots.begin[s] / op.block_size, experts + slots.begin[s + 1] / op.block_size, static_cast<std::int32_t>(s) - 1);
  *op.num_tokens_post_pad.as<std::int32_t>() = static_cast<std::int32_t>(slots.total());
  if (op.is_small()) return;
  auto* ends = op.cumsum_buffer.as<std::int32_t>();
  for (std::size_t s = 0; s < slots.count.size(); ++s) ends[s] = slots.begin[s] + slots.count[s];
  ends[slots.count.size()] = slots.begin.back();
}

/// Everything but the ids themselves: what pads them, blocks and offsets.
void write_frame(const MoeAlignBlockSize& op, const Slots& slots) {
  write_blocks(op, slots);
  if (!op.pad_sorted_token_ids) return;
  auto* sorted = op.sorted_token_ids.as<std::int32_t>();
  const auto n = static_cast<std::int32_t>(op.topk_ids.elements());
  for (std::size_t s = 0; s < slots.count.size(); ++s) std::fill(sorted + slots.begin[s] + slots.count[s], sorted + slots.begin[s + 1], n);
  std::fill(sorted + slots.total(), sorted + op.sorted_token_ids.elements(), n);
}

/// The ids first, first + step... before `end` in turn.
void deal(const MoeAlignBlockSize& op, std::vector<std::int32_t>& next, std::int64_t first, std::int64_t end, std::int64_t step) {
  auto* const sorted = op.sorted_token_ids.as<std::int32_t>();
  std::int32_t* const to = next.data();
  with_ids(op.topk_ids, [&](const auto* ids) {
    for (std::int64_t i = first; i < end; i += step) sorted[to[static_cast<std::int64_t>(ids[i]) + 1]++] = static_cast<std::int32_t>(i);
  });
}

/// Threads take parts of the ids; those of a part stand behind those of the parts before it.
void fast(const MoeAlignBlockSize& op, const Exec& exec) {
  constexpr std::int64_t least = 4096;
  const std::int64_t n = op.topk_ids.elements(), parts = std::clamp<std::int64_t>(n / least, 1, exec.threads);
  const auto first = [&](std::int64_t part) { return n * part / parts; };
  std::vector<std::vector<std::int32_t>> counts(static_cast<std::size_t>(parts));
  const auto on_parts = [&](const auto& body) {
    parallel_for(exec.threads, parts, 1e6, [&](std::int64_t part) { body(part, counts[static_cast<std::size_t>(part)]); });
  };
  on_parts([&](std::int64_t part, auto& of_part) { of_part = count_ids(op, first(part), first(part + 1)); });
  std::vector<std::int32_t> count(static_cast<std::size_t>(op.num_experts), 0);
  for (const auto& of_part : counts)
    for (std::size_t s = 0; s < count.size(); ++s) count[s] += of_part[s];
  const Slots slots = slots_of_counts(op, std::move(count));
  std::vector<std::int32_t> next(slots.begin.begin(), slots.begin.end() - 1);
  for (auto& of_part : counts)
    for (std::size_t s = 0; s < next.size(); ++s) next[s] += std::exchange(of_part[s], next[s]);
  on_parts([&](std::int64_t part, auto& from) {
    if (part == 0) write_frame(op, slots);
    deal(op, from, first(part), first(part + 1), 1);
  });
}

/// The kernel of one block deals ids out to max(num_experts, 32) threads; each writes its own behind those of the threads before.
void hopper(const MoeAlignBlockSize& op, const Exec& exec) {
  if (!op.is_small()) return fast(op, exec);
  Slots slots = slots_of(op);
  write_frame(op, slots);
  const std::int64_t threads = std::max<std::int64_t>(op.num_experts, 32);
  for (std::int64_t thread = 0; thread < threads; ++thread) deal(op, slots.begin, thread, op.topk_ids.elements(), threads);
}

/// The rule itself, and mistakes of such kernels.
enum class Rule { right, id_in_its_own_slot, last_slot_missed, first_id_alone };

/// Which slot each element of sorted_token_ids belongs to, and what nobody writes.
void record_groups(const MoeAlignBlockSize& op, const Slots& slots, Reference* reference) {
  record_exact(op.sorted_token_ids, reference, "sorted_token_ids");
  record_exact(op.experts_ids, reference, "experts_ids");
  record_exact(op.num_tokens_post_pad, reference, "num_tokens_post_pad");
  record_exact(op.cumsum_buffer, reference, "cumsum_buffer");
  if (reference == nullptr) return;
  const auto room = static_cast<std::size_t>(op.sorted_token_ids.elements());
  ReferenceOutput& sorted = reference->output("sorted_token_ids", op.sorted_token_ids.elements());
  sorted.grouping = Grouping{"slot", std::vector<std::int32_t>(room, -1), ""};
  sorted.unspecified.assign(room, op.pad_sorted_token_ids ? 0 : 1);
  for (std::size_t s = 0; s < slots.count.size(); ++s)
    for (std::int32_t i = slots.begin[s]; i < slots.begin[s] + slots.count[s]; ++i) {
      sorted.grouping->group[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(s);
      sorted.unspecified[static_cast<std::size_t>(i)] = 0;
    }
}

/// As if nobody had chosen the last expert.
void miss_last_slot(const MoeAlignBlockSize& op, const Tensor& sorted_before, const Tensor& experts_before, Slots& slots) {
  slots.begin.back() = slots.begin[slots.begin.size() - 2];
  slots.count.back() = 0;
  const auto end = static_cast<std::int64_t>(slots.total());
  const auto padding = static_cast<std::int32_t>(op.topk_ids.elements());
  for (std::int64_t i = end; i < op.sorted_token_ids.elements(); ++i)
    op.sorted_token_ids.as<std::int32_t>()[i] = op.pad_sorted_token_ids ? padding : sorted_before.as<const std::int32_t>()[i];
  for (std::int64_t b = end / op.block_size; b < op.experts_ids.elements(); ++b)
    op.experts_ids.as<std::int32_t>()[b] = experts_before.as<const std::int32_t>()[b];
  op.num_tokens_post_pad.as<std::int32_t>()[0] = static_cast<std::int32_t>(end);
  if (!op.is_small()) op.cumsum_buffer.as<std::int32_t>()[op.num_experts] = static_cast<std::int32_t>(end);
}

template <Rule rule>
void golden(const MoeAlignBlockSize& op, const Exec& exec, Reference* reference) {
  const Tensor sorted_before = op.sorted_token_ids.clone(), experts_before = op.experts_ids.clone();
  fast(op, exec);
  Slots slots = slots_of(op);
  if (rule == Rule::last_slot_missed) miss_last_slot(op, sorted_before, experts_before, slots);
  if (rule == Rule::id_in_its_own_slot)
    for (std::int64_t b = 0; b < slots.total() / op.block_size; ++b) ++op.experts_ids.as<std::int32_t>()[b];
  if (rule == Rule::first_id_alone)
    for (std::size_t s = 0; s < slots.count.size(); ++s)
      for (std::int32_t i = slots.begin[s] + 1; i < slots.begin[s] + slots.count[s]; ++i)
        op.sorted_token_ids.as<std::int32_t>()[i] =
            op.pad_sorted_token_ids ? static_cast<std::int32_t>(op.topk_ids.elements()) : sorted_before.as<const std::int32_t>()[i];
  record_groups(op, slots, reference);
  // Where its ids belonged there is what was there before.
  if (rule == Rule::last_slot_missed && reference != nullptr)
    for (std::int64_t i = slots.total(); i < slots_of(op).total(); ++i)
      reference->output("sorted_token_ids", op.sorted_token_ids.elements()).unspecified[static_cast<std::size_t>(i)] = 0;
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_moe_align_block_size() {
  return define<ops::MoeAlignBlockSize>({
      .contract = R"(
Whole numbers, nothing rounded. The order of the ids of a slot is open where upstream leaves it to atomics, and here everywhere in
the order of the ids; hopper mode has upstream's for less than 1024 ids of at most 64 slots: max(num_experts, 32) threads take the ids in
turn, and each writes its own behind those of the threads before. Without pad_sorted_token_ids, what is no id is left as it was and
unspecified; experts_ids behind the last block is left as it was.)",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .check = ops::check,
      .mistakes = {{"slot-for-expert", "experts_ids holds slots, which are one more than experts",
                    ops::golden<ops::Rule::id_in_its_own_slot>},
                   {"first-id-alone", "of each expert's pairs the first alone is written, in the place of the others is padding",
                    ops::golden<ops::Rule::first_id_alone>},
                   {"last-expert-missed", "the ids of the last expert are not counted", ops::golden<ops::Rule::last_slot_missed>}},
      .customary = {{"num_tokens_post_pad", CustomaryKind::close, 0, 0, "sgl-kernel/tests/test_moe_align.py"},
                    {"experts_ids", CustomaryKind::close, 0, 0, "sgl-kernel/tests/test_moe_align.py"},
                    {"*", CustomaryKind::unchecked, 0, 0, "sgl-kernel/tests/test_moe_align.py (sets of the last expert only)"}},
      .cases = {"M=5 topk=8 S=2560 B=40 --attr num_experts=257 --attr block_size=64 --attr pad_sorted_token_ids=true",
                "M=64 topk=8 S=4367 B=273 --attr num_experts=257 --attr block_size=16",
                "M=7 topk=2 S=149 B=10 --attr num_experts=9 --attr block_size=16 --attr pad_sorted_token_ids=true",
                "M=130 topk=8 S=2024 B=254 --dtype topk_ids=i64 --attr num_experts=129 --attr block_size=8 "
                "--attr pad_sorted_token_ids=true"},
      .bench_cases = {"M=1 topk=8 S=512 B=8 --attr num_experts=257 --attr block_size=64 --attr pad_sorted_token_ids=true",
                      "M=4096 topk=8 S=48959 B=765 --attr num_experts=257 --attr block_size=64 --attr pad_sorted_token_ids=true"},
  });
}
}  // namespace dodona
