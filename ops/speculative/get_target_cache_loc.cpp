#include "ops/speculative/get_target_cache_loc.h"

#include <algorithm>

#include "ops/base/golden_output.h"
#include "ops/schemes/request_spans.h"

namespace dodona::ops {
namespace {

/// The rule itself, and mistakes of such kernels.
enum class Rule { right, root_forgotten, freed_from_the_front };

void make_inputs(GetTargetCacheLoc& op, std::uint64_t seed) {
  const std::int64_t requests = op.accept_length.elements(), width = op.num_verify_tokens;
  const std::int64_t accepted = std::max<std::int64_t>(0, op.tgt_cache_loc.elements() - requests);
  put_all(op.accept_length, shares(InputDraw(seed, "accept_length"), requests, width - 1, accepted));
  put_all(op.to_free_num_slots, shares(InputDraw(seed, "to_free_num_slots"), requests, width, op.to_free_slots.elements()));
}

void check(const GetTargetCacheLoc& op) {
  check_whole(op.accept_length, "accept_length", 0, op.num_verify_tokens - 1);
  check_whole(op.to_free_num_slots, "to_free_num_slots", 0, op.num_verify_tokens);
  check_sum(op.accept_length, "accept_length", 1, op.tgt_cache_loc.elements(), "tgt_cache_loc");
  check_sum(op.to_free_num_slots, "to_free_num_slots", 0, op.to_free_slots.elements(), "to_free_slots");
}

template <Rule rule>
void part(const GetTargetCacheLoc& op) {
  auto *target = op.tgt_cache_loc.as<std::int64_t>(), *free = op.to_free_slots.as<std::int64_t>();
  const std::int64_t width = op.num_verify_tokens;
  for (std::int64_t b = 0; b < op.accept_length.elements(); ++b) {
    const auto* const slots = op.out_cache_loc.as<const std::int64_t>() + b * width;
    const std::int64_t kept = index_at(op.accept_length, b) + 1, freed = index_at(op.to_free_num_slots, b);
    const bool root_there = rule != Rule::root_forgotten;
    target = std::copy_n(slots + (root_there || kept == width ? 0 : 1), kept, target);
    free = std::copy_n(slots + (rule == Rule::freed_from_the_front ? 0 : width - freed), freed, free);
  }
}

void fast(const GetTargetCacheLoc& op, const Exec&) {
  part<Rule::right>(op);
}

template <Rule rule>
void golden(const GetTargetCacheLoc& op, const Exec&, Reference* reference) {
  part<rule>(op);
  record_exact(op.tgt_cache_loc, reference, "tgt_cache_loc");
  record_exact(op.to_free_slots, reference, "to_free_slots");
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_get_target_cache_loc() {
  return define<ops::GetTargetCacheLoc>({
      .contract = "Whole numbers, copied. Lengths that do not add up to the outputs are an error here; upstream writes outside.",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::fast,
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .mistakes = {{"root-forgotten", "slots begin behind the root's", ops::golden<ops::Rule::root_forgotten>},
                   {"freed-from-the-front", "the first slots are freed instead of the last", ops::golden<ops::Rule::freed_from_the_front>}},
      .cases = {"B=4 n=13 f=15 --attr num_verify_tokens=8", "B=9 n=20 f=9 --attr num_verify_tokens=4",
                "B=2 n=2 f=0 --attr num_verify_tokens=5"},
      .bench_cases = {"B=64 n=200 f=1000 --attr num_verify_tokens=64"},
  });
}
}  // namespace dodona
