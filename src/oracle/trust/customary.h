// What upstream's own tests of an op compare, and how closely: recorded as data, to be held against the same faults as our judges.
#pragma once

#include <span>
#include <string_view>

#include "oracle/judge/judge.h"

namespace dodona::oracle {

enum class CustomaryKind {
  close,       ///< |actual - expected| <= atol + rtol |expected| everywhere
  below,       ///< largest |actual - expected| < atol
  cosine,      ///< cosine similarity over the whole output > atol
  sorted,      ///< as close, after sorting each row
  round_trip,  ///< input_permutation undoes output_permutation; the experts are not looked at
  unchecked,   ///< the test does not look at this output
};

struct Customary {
  std::string_view op, output;  ///< `*` for every output that has no line of its own
  CustomaryKind kind;
  double rtol, atol;
  std::string_view source;
};

/// The recorded ones. A type that upstream's test does not run is given the larger of the recorded rtol and what
/// `torch.testing.assert_close` uses for it.
std::span<const Customary> customary_checks();
/// The check of an output. Ops without a recorded test get the defaults of `torch.testing.assert_close` for the output's type.
Customary customary_check(std::string_view op, std::string_view output, DType type);

/// Whether the customary checks of all outputs pass. Elements that the contract leaves unspecified are not compared.
bool customary_pass(const Op& op, const GoldenRun& golden, const NamedTensors& actual);

}  // namespace dodona::oracle
