// Faults of the maximum that a quantizer makes its scale of: of a part of what shares the scale. What is larger than that saturates, as an
// input that was clamped to it would be.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>

#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

bool is_quantized(Site s) {
  const auto& outputs = s.call.golden.outputs;
  const bool codes = std::any_of(outputs.begin(), outputs.end(), [](const auto& output) { return is_code(output.second.dtype()); });
  return codes && s.call.op.info().category == Category::quantization && s.spec->direction == Direction::in && is_real(s.tensor.dtype()) &&
         bits(s.tensor.dtype()) >= 16 && s.tensor.rank() >= 1 && s.spec->role == Role::values && s.tensor.elements() <= most_elements;
}
/// How many elements share a scale: all, those of a row, those of a group. `12288 first 8192`, `512 last 256`.
Values parts_of_groups(Site s) {
  Values values;
  const auto add = [&](std::int64_t group, std::int64_t part) {
    if (part >= 1 && part < group)
      for (const char* const which : {" first ", " last "}) values.emplace_back(std::to_string(group) + which + std::to_string(part));
  };
  const std::int64_t all = s.tensor.elements(), width = s.tensor.size(-1);
  // The largest that fits first: what is largest in a part is so in its own parts too.
  for (const std::int64_t part : {65536, 32768, 16384, 8192, 4096, 2048, 1024}) add(all, part);
  if (all > 1) add(all, all / 2), add(all, width);
  for (const std::int64_t part : {1024, 512, 256, 128, 64, 32}) add(width, part);
  add(width, width / 2);
  for (const std::int64_t group : {16, 32, 64, 128})
    if (width % group == 0) add(group, group / 2), add(group, group - 1);
  return values;
}
void clamp_to_the_part(Site s, To t) {
  const std::string text = word(s);
  const std::int64_t group = std::stoll(text), part = std::stoll(rest_of(rest_of(text)));
  const bool first = first_of(rest_of(text)) == "first";
  for (std::int64_t begin = 0; begin < t.elements(); begin += group) {
    const std::int64_t end = std::min(begin + group, t.elements());
    double most = 0;
    for (std::int64_t i = first ? begin : std::max(begin, end - part); i < (first ? std::min(begin + part, end) : end); ++i)
      most = std::fmax(most, std::fabs(quant::get(s.tensor, i)));
    for (std::int64_t i = begin; i < end; ++i) {
      const double x = quant::get(s.tensor, i);
      if (std::fabs(x) > most) quant::set(t, i, std::copysign(most, x));
    }
  }
}
std::string maximum_in_words(Site s) {
  const std::string text = word(s), part = rest_of(text);
  const std::int64_t group = std::stoll(text);
  return s.name + ": the maximum that the scale is made of is taken over the " + part + " of " +
         (group == s.tensor.elements() ? "all " + std::to_string(group) + " elements"
          : group == s.tensor.size(-1) ? "a row's " + std::to_string(group)
                                       : "a group's " + std::to_string(group)) +
         " alone: what is larger saturates";
}

constexpr std::array table{
    Fault{.id = "maximum-of-a-part",
          .summary = "the maximum that a scale is made of is that of a part of what it belongs to",
          .strikes = input,
          .severity = fine,
          .applies = is_quantized,
          .spoil = clamp_to_the_part,
          .variants = parts_of_groups,
          .words = maximum_in_words,
          .far = true},
};

}  // namespace

std::span<const Fault> maximum_faults() {
  return table;
}

}  // namespace dodona::oracle
