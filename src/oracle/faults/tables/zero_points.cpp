// Faults of zero points: each a number off, from golden mode's exact numbers; or the middle of the codes for all of them.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "oracle/faults/rewritten.h"
#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

/// Zero points in words, and a scale for as many columns as the output has, of which each belongs to as many rows.
struct ZeroPoints {
  std::string zeros, scales, out;
  std::int64_t columns = 0, per_scale = 1;  ///< rows of the output
};
std::optional<ZeroPoints> zero_points_of(Site s) {
  for (const TensorSpec& zeros : s.call.op.schema().tensors) {
    const Tensor* const words = s.call.inputs.find(zeros.name);
    if (zeros.direction != Direction::in || zeros.name.find("zero") == std::string::npos || words == nullptr || !words->defined() ||
        !is_whole(words->dtype()) || words->rank() != 2)
      continue;
    for (const TensorSpec& spec : s.call.op.schema().tensors)
      for (const auto& [name, tensor] : s.call.golden.outputs) {
        const Tensor* const scales = s.call.inputs.find(spec.name);
        if (spec.role != Role::scale || scales == nullptr || !scales->defined() || scales->rank() != 2 || tensor.rank() != 2 ||
            scales->size(0) != words->size(0) || scales->size(1) != tensor.size(1) || tensor.size(0) % scales->size(0) != 0 ||
            kept_exactly(s, name, tensor) == nullptr)
          continue;
        return ZeroPoints{zeros.name, spec.name, name, tensor.size(1), tensor.size(0) / scales->size(0)};
      }
  }
  return std::nullopt;
}
Values other_zero_points(Site s) {
  if (!zero_points_of(s)) return {};
  return {std::string("more"), std::string("less")};
}
GoldenRun move_zero_points(Site s) {
  const ZeroPoints of = *zero_points_of(s);
  GoldenRun run = s.call.golden;
  const Tensor& scales = *s.call.inputs.find(of.scales);
  const ReferenceOutput& said = *s.call.golden.reference.find(of.out);
  std::vector<double> exact = said.exact;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(exact.size()); ++i) {
    const double step = quant::get(scales, i / of.columns / of.per_scale * of.columns + i % of.columns);
    exact[static_cast<std::size_t>(i)] += word(s) == "more" ? -step : step;
  }
  put_numbers(run, of.out, exact, said.slack);
  return run;
}
std::string zero_points_in_words(Site s) {
  return zero_points_of(s)->zeros + ": every zero point is taken for 1 " + word(s) + ", as formats that store them otherwise have it";
}

// ---- formats without zero points

/// Words of zero points whose formats have none: 8, the middle of four bits.
bool words_of_zero_points(Site s) {
  return s.spec->direction == Direction::in && s.spec->name.find("zero") != std::string::npos && s.tensor.dtype() == DType::i32 &&
         s.tensor.elements() <= most_elements;
}
void middle_for_zero_points(Site, To t) {
  constexpr std::uint64_t middles = 0x88888888;
  for (std::int64_t i = 0; i < t.elements(); ++i) quant::set_bits(t, i, middles);
}

constexpr std::array table{
    Fault{.id = "zero-points-moved",
          .summary = "every zero point is another number",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = other_zero_points,
          .words = zero_points_in_words,
          .far = true,
          .rerun = move_zero_points},
    Fault{.id = "middle-for-zero-points",
          .summary = "every zero point is taken for 8, the middle of the codes, as in symmetric formats",
          .strikes = input,
          .severity = fine,
          .applies = words_of_zero_points,
          .spoil = middle_for_zero_points},
};

}  // namespace

std::span<const Fault> zero_point_faults() {
  return table;
}

}  // namespace dodona::oracle
