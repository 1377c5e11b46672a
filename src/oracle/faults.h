// Faults: realistic mistakes of kernels, as data, to be injected where a check should notice them.
//
// A fault strikes an output (what the kernel wrote), an input or an attribute (what it worked on; the op is computed anew). Which arguments
// a fault fits follows from the schema and the tensors alone: their roles, types, shapes and judges. An op needs no code of its own.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "oracle/judge.h"

namespace dodona::oracle {

enum class Strikes { output, input, attribute };
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

/// The argument that a fault strikes.
struct FaultSite {
  const FaultCase& call;
  std::string name;
  const TensorSpec* spec = nullptr;            ///< of a tensor
  Tensor tensor = {};                          ///< as it is; codes that are packed in bytes are one element each
  const ReferenceOutput* reference = nullptr;  ///< of an output, where golden mode keeps one
  const AttrSpec* attr = nullptr;              ///< of an attribute
  AttrValue value = {};                        ///< as it is
};

struct Fault {
  std::string_view id, summary;
  Strikes strikes;
  Severity severity;
  bool (*applies)(const FaultSite&);
  void (*spoil)(const FaultSite&, const Tensor& changed) = nullptr;  ///< `changed` is a copy of the site's tensor
  AttrValue (*replace)(const FaultSite&) = nullptr;                  ///< for attributes
};

/// The library.
std::span<const Fault> faults();
std::span<const Fault> output_faults();
std::span<const Fault> input_faults();
std::span<const Fault> attribute_faults();

/// Every argument of the call, in the schema's order: inputs and outputs that hold elements, attributes that have an effect.
std::vector<FaultSite> sites(const FaultCase& call, Strikes strikes);

/// The outputs of the call with the fault. The site must be one that the fault applies to. Throws Error when the op refuses the changed
/// call (an attribute out of range).
NamedTensors inject(const Fault& fault, const FaultSite& site);

}  // namespace dodona::oracle
