// Ops that draw one token for each output row: their schema but for the thresholds, and all of their functions but check.
#pragma once

#include "core/define.h"
#include "ops/draws/sampling.h"

namespace dodona::ops {

using enum DType;

/// `Op` has probs, indices, samples, deterministic, philox_seed and philox_offset. Before the thresholds:
template <class Op>
void describe_sampled_rows(auto& op, Op& fields, const char* probs) {
  op.in("probs", fields.probs, {f32}, "U V").layout(Layout::contiguous).role(Role::probs).doc(probs);
  op.in("indices", fields.indices, {i32}, "B")
      .layout(Layout::contiguous)
      .role(Role::positions, "U")
      .on_request()
      .doc("the row of probs that each output row draws from; without them its own");
}
/// How rows are cut before they are divided.
void describe_search(auto& op, std::string& search) {
  op.choice("search", search, {"thirds", "radix"})
      .recipe()
      .dialect("flashinfer", "radix")
      .doc("how rows are cut: thirds: sgl-kernel's search; radix: FlashInfer's from 0.6 on");
}
/// Behind them:
template <class Op>
void describe_draws(auto& op, Op& fields) {
  op.attr("deterministic", fields.deterministic).doc("whether the GPU's running sums are upstream's own scan or its library's");
  op.attr("philox_seed", fields.philox_seed).doc("key of the stream, read as unsigned");
  op.attr("philox_offset", fields.philox_offset, at_least(0)).doc("position in the stream; output row b draws from subsequence b");
  op.out("samples", fields.samples, {i32}, "B").layout(Layout::contiguous).judged(Judge::top_k).doc("a token of each output row");
  op.symbol("V", {.minimum = 1});
}

/// A call that has no rules yet.
template <class Op>
Sampling sampling_of(const Op& op) {
  return {
      op.probs,         op.indices, op.samples, static_cast<std::uint64_t>(op.philox_seed), static_cast<std::uint64_t>(op.philox_offset),
      op.deterministic, {}};
}

template <class Op, Sampling (*call_of)(const Op&), SamplingMistake mistake>
void golden_sampler(const Op& op, const Exec& exec, Reference* reference) {
  golden_samples(call_of(op), exec, reference, mistake);
}

/// All of an op but its contract, check and case lines. `call_of` gives the call with its rules.
template <class Op, Sampling (*call_of)(const Op&)>
Implementation<Op> sampler() {
  Implementation<Op> all;
  all.golden = golden_sampler<Op, call_of, SamplingMistake::none>;
  all.fast = [](const Op& op, const Exec& exec) { fast_samples(call_of(op), exec); };
  all.hopper = [](const Op& op, const Exec& exec) { hopper_samples(call_of(op), exec); };
  all.make_outputs = [](Op& op) { make_samples(op.probs, op.indices, op.samples); };
  all.condition = [](const Op& actual, const Exec& exec, Reference& reference) { condition_samples(call_of(actual), exec, reference); };
  all.mistakes = {{"one-subsequence", "every row draws with the numbers of the first one's subsequence",
                   golden_sampler<Op, call_of, SamplingMistake::one_subsequence>}};
  all.customary = {{"samples", CustomaryKind::unchecked, 0, 0, "sgl-kernel/tests/test_sampling.py"}};
  return all;
}
/// The mistake of ops that reject.
template <class Op, Sampling (*call_of)(const Op&)>
MistakeOf<Op> mass_left_whole() {
  return {"mass-left-whole", "after a rejection numbers still count for the whole row",
          golden_sampler<Op, call_of, SamplingMistake::mass_left_whole>};
}

}  // namespace dodona::ops
