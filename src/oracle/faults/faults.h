// Faults: realistic mistakes of kernels, as data: to be injected where a check should notice them, and to be tried where one did.
//
// A fault strikes an output (what the kernel wrote), an input or an attribute (what it worked on), the call as a whole, or the kernel
// itself; in all but the first the op is computed anew. Which arguments a fault fits follows from the schema and the tensors alone: their
// roles, types, shapes and judges. An op needs no code of its own, but may declare mistakes that follow from no other call: Op::mistakes.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/flaw.h"
#include "oracle/judge/judge.h"

namespace dodona::oracle {

enum class Strikes { output, input, attribute, call, kernel };
std::string_view name(Strikes strikes);

/// gross: no budget may pass it where it changes anything. fine: it may move results by less than the contract leaves open.
enum class Severity { gross, fine };
std::string_view name(Severity severity);

/// One call and golden mode's answer to it.
struct FaultCase {
  const Op& op;
  const Arguments& inputs;
  const GoldenRun& golden;
  Exec exec;
};

/// Where a fault strikes.
struct FaultSite {
  const FaultCase& call;
  std::string name = {};                       ///< of the argument, or of the op's own mistake; empty for the call as a whole
  const TensorSpec* spec = nullptr;            ///< of a tensor
  Tensor tensor = {};                          ///< as it is; codes that are packed in bytes are one element each
  const ReferenceOutput* reference = nullptr;  ///< of an output, where golden mode keeps one
  const AttrSpec* attr = nullptr;              ///< of an attribute
  AttrValue value = {};                        ///< as it is
  std::optional<AttrValue> taken = {};         ///< what the fault has in its place; of a call, which of the fault's variants
};

/// Along a dimension, by its symbol, the indices that a fault changes.
struct ChangedIndices {
  std::string symbol;
  std::vector<bool> changed;
};

struct Fault {
  std::string_view id, summary;
  Strikes strikes;
  Severity severity;
  bool (*applies)(const FaultSite&) = nullptr;
  /// `changed` is a copy of the site's tensor.
  void (*spoil)(const FaultSite&, const Tensor& changed) = nullptr;
  /// Of an output, where its values are all still there: the other way round. The site's tensor is then what was written.
  void (*undo)(const FaultSite&, const Tensor& changed) = nullptr;
  /// What an attribute is taken for, or the variants of any other fault: each is a site of its own.
  std::vector<AttrValue> (*variants)(const FaultSite&) = nullptr;
  /// Changes the call as a whole, and what it wrote; `back` turns outputs with the fault into those without it.
  void (*recall)(const FaultSite&, Arguments& inputs) = nullptr;
  void (*rewrite)(const FaultSite&, NamedTensors& outputs, bool back) = nullptr;
  /// What happened, where the summary alone does not say it.
  std::string (*words)(const FaultSite&) = nullptr;
  /// The op that is computed in place of the call's.
  const Op& (*instead)(const FaultSite&) = nullptr;
  /// What the kernel reads lies partly beyond an operand's end, where nobody knows what is: NaN stands for it, and what NaN that makes of
  /// an output is not compared.
  bool reads_beyond = false;
  /// Takes what a row needs from rows far away, so that in some rows of a call alone it is not the same.
  bool far = false;
  /// Of a call: what golden mode would give with the fault, where no other inputs make it.
  GoldenRun (*rerun)(const FaultSite&) = nullptr;
  /// Moves elements within their rows: of members whose order the contract leaves open where they tie it may make another right choice.
  bool permutes = false;
  /// Of an output: numbers are cut toward zero (-1) or away from it (1), so that those within their slack of a number of the type may
  /// become that number or its neighbour.
  int cuts = 0;
  /// Somewhere a documented behaviour, which a case line may ask for: --variant, see variants.h. Mistakes that ops declare always are.
  bool variant = false;
  /// Comes to the same as likelier ones now and then: named behind them.
  bool unlikely = false;
  /// Of a call: what golden mode then makes inside of functions that many kernels share.
  void (*flaw)(const FaultSite&, Flaw&) = nullptr;
  /// What of a dimension it changes: where indices do not depend on each other and others fail too, it needs no run.
  std::optional<ChangedIndices> (*changes)(const FaultSite&) = nullptr;

  /// Whether it is the op as it is, of other inputs.
  bool changes_inputs() const { return strikes == Strikes::input || (strikes == Strikes::call && recall != nullptr); }
};

/// The library: the tables below, and the mistakes that ops declare.
std::span<const Fault> faults();
std::span<const Fault> output_faults();
std::span<const Fault> input_faults();
/// Of inputs: where they are looked for.
std::span<const Fault> address_faults();
/// Of inputs, and of the call as a whole: which rows belong to what.
std::span<const Fault> row_faults();
/// Of inputs and outputs: how numbers are converted, divided and chosen by.
std::span<const Fault> number_faults();
std::span<const Fault> attribute_faults();
std::span<const Fault> call_faults();
/// Of the call as a whole: rotations, and which heads belong together.
std::span<const Fault> head_faults();
/// Of the call as a whole: what sums are kept in, and which scales belong to which products.
std::span<const Fault> sum_faults();
/// Of the call as a whole: inside of what many kernels share, see core/flaw.h.
std::span<const Fault> inner_faults();
/// Of the call as a whole: where rows are stored.
std::span<const Fault> store_faults();
/// Of inputs, and of the call as a whole: another index along a dimension, other rows of a group. Not of the library: they are composed for
/// an explanation.
std::span<const Fault> axis_faults();
/// Likewise: a part of a dimension counted otherwise, pages and slots of another extent.
std::span<const Fault> part_faults();
/// Likewise, of the call as a whole: keys, or values, of other tokens in one of two passes; what accumulators still hold; zero points;
/// what a softmax divides by; where rows of a tile are stored.
std::span<const Fault> pass_faults();
std::span<const Fault> carried_faults();
std::span<const Fault> zero_point_faults();
std::span<const Fault> softmax_sum_faults();
std::span<const Fault> tile_store_faults();
/// Likewise: lengths and filters; how numbers lie in words; what maxima are taken over.
std::span<const Fault> limit_faults();
std::span<const Fault> word_faults();
std::span<const Fault> maximum_faults();
/// All that are composed for an explanation.
std::span<const Fault> composed_faults();
/// Likewise such as each row may have in a variant of its own.
std::span<const Fault> faults_by_row();
/// Of the call as a whole: one mistake in every output.
std::span<const Fault> every_output_faults();
/// One for each id that an op of the inventory declares.
std::span<const Fault> kernel_faults();

/// A fault and an argument of the call that it fits.
struct Placed {
  const Fault* fault;
  FaultSite site;

  /// `k-tile-dropped:A`, `other-recipe:gate_order=up_gate`, `bias-in-weights`.
  std::string id() const;
  /// What happened, for a reader.
  std::string text() const;
};
/// Inputs that hold elements, in the schema's order: where a fault of an input could strike.
std::vector<FaultSite> input_sites(const FaultCase& call);
/// Where one fault fits, arguments in the schema's order.
std::vector<Placed> placements(const Fault& fault, const FaultCase& call);
/// All that fit, fault by fault in the order of the library; arguments in the schema's order: inputs and outputs that hold elements,
/// attributes that have an effect.
std::vector<Placed> placements(const FaultCase& call, Strikes strikes);

/// What golden mode is to make inside of functions that many kernels share; nothing where the fault lies elsewhere.
std::unique_ptr<const Flaw> flaw_of(const Placed& placed);
/// The op that a kernel with the fault computes.
const Op& op_with(const Placed& placed);
/// The call with the fault, as a kernel without it would have to be called; the call itself where an output or the kernel is struck.
Arguments inputs_with(const Placed& placed);
/// What golden mode makes of `inputs`, which are inputs_with(placed); where an output is struck that cannot be restored, golden's own
/// answer with the values that the fault writes, as open as the right ones. Throws Error when the op refuses the changed call (an attribute
/// out of range).
GoldenRun run_with(const Placed& placed, const Arguments& inputs);
/// The outputs of the call with the fault.
NamedTensors inject(const Placed& placed);
/// `actual` outputs as they are to be held against run_with(): with the fault undone, where they can be restored.
NamedTensors restored(const Placed& placed, const NamedTensors& actual);

}  // namespace dodona::oracle
