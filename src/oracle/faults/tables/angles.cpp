// Faults composed of where a rotation looks for its cosines and sines: at another index of a row's halves, in rows that are taken to lie at
// another distance. Read from memory as it lies, tried where no mistake that has a name of its own reproduces the outputs.
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "oracle/faults/tables/composed.h"
#include "oracle/faults/tables/fault_tools.h"
#include "quant/sizes.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

bool table_of_angles(Site s) {
  return s.spec->direction == Direction::in && s.spec->role == Role::cos_sin && s.tensor.rank() == 2 && s.tensor.contiguous() &&
         is_real(s.tensor.dtype()) && s.tensor.size(1) >= 4 && s.tensor.elements() <= most_elements;
}
/// `times 2`: angle i is looked for at 2 i; `over 2`, `mod 8`, `first 2`, `plus 1`; `backward 0`: the last one first; `apart 128`: rows are
/// 128 apart; `behind 64`: sines are 64 behind the cosines.
Values other_angles(Site s) {
  const std::int64_t width = s.tensor.size(1), half = width / 2;
  Values values;
  const auto add = [&](const char* how, std::int64_t n) { values.emplace_back(how + std::string(" ") + std::to_string(n)); };
  for (const std::int64_t n : {2, 4}) add("times", n), add("over", n), add("first", n);
  for (const std::int64_t n : {2, 4, 8, 16, 32, 64})
    if (n < half) add("mod", n);
  for (const std::int64_t n : {1, -1}) add("plus", n);
  add("backward", 0);
  std::set<std::int64_t> rows{half, 2 * width, width + 1, width - 1}, behind{width, half / 2, half + 1, half - 1};
  for (const std::int64_t n : {16, 32, 64, 128, 256}) rows.insert(quant::align(width, n)), behind.insert(n);
  // Tables as wide as a head, though a part of it is rotated.
  for (const AttrSpec& spec : s.call.op.schema().attrs) {
    const AttrValue* const given = s.call.inputs.find_attr(spec.name);
    if (given == nullptr || !std::holds_alternative<std::int64_t>(*given) || spec.name.find("head") == std::string::npos) continue;
    const std::int64_t head = std::get<std::int64_t>(*given);
    rows.insert({head, head / 2, 2 * head}), behind.insert({head, head / 2});
  }
  for (const std::int64_t n : rows)
    if (n >= 1 && n != width) add("apart", n);
  for (const std::int64_t n : behind)
    if (n >= 1 && n != half) add("behind", n);
  return values;
}
/// Where a row's angle is read, from the table's begin.
std::int64_t place_of_angle(const std::string& how, std::int64_t n, std::int64_t row, std::int64_t is_sine, std::int64_t i,
                            std::int64_t half) {
  std::int64_t apart = 2 * half, behind = half;
  if (how == "apart") apart = n;
  if (how == "behind") behind = n;
  if (how == "times") i *= n;
  if (how == "over") i /= n;
  if (how == "first") i = i / n * n;
  if (how == "mod") i %= n;
  if (how == "plus") i += n;
  if (how == "backward") i = half - 1 - i;
  return row * apart + is_sine * behind + i;
}
void read_other_angles(Site s, To t) {
  const std::string how = first_of(word(s));
  const std::int64_t n = std::stoll(rest_of(word(s))), half = s.tensor.size(1) / 2, total = s.tensor.elements();
  for (std::int64_t i = 0; i < total; ++i) {
    const std::int64_t row = i / (2 * half), column = i % (2 * half),
                       from = place_of_angle(how, n, row, column / half, column % half, half);
    if (from >= 0 && from < total) {
      quant::set_bits(t, i, quant::get_bits(s.tensor, from));
    } else {
      quant::set(t, i, std::numeric_limits<double>::quiet_NaN());
    }
  }
}
std::string other_angles_in_words(Site s) {
  const std::string how = first_of(word(s)), n = rest_of(word(s)), name = s.name + ": ",
                    angle = name + "the angle of pair i is looked for at ";
  if (how == "apart")
    return name + "rows are looked for at a stride of " + n + ", where they lie " + std::to_string(s.tensor.size(1)) +
           " apart: as wide as something else, a head or its half";
  if (how == "behind")
    return name + "sines are looked for " + n + " behind the cosines, where they lie " + std::to_string(s.tensor.size(1) / 2) + " behind";
  if (how == "times") return angle + n + " i: one for each element, not for each pair, or for another width";
  if (how == "over") return angle + "i / " + n + ": each " + n + " pairs share one";
  if (how == "first") return angle + "the first of each " + n;
  if (how == "mod") return angle + "i mod " + n + ": the first " + n + " are used again and again";
  if (how == "plus") return angle + "i " + (n.front() == '-' ? "- 1" : "+ 1") + ": that of the neighbour";
  return angle + "the other end: the last one first";
}

constexpr std::array table{
    Fault{.id = "angles-elsewhere",
          .summary = "cosines and sines are looked for elsewhere in their table",
          .strikes = input,
          .severity = fine,
          .applies = table_of_angles,
          .spoil = read_other_angles,
          .variants = other_angles,
          .words = other_angles_in_words,
          .reads_beyond = true,
          .far = true},
};

}  // namespace

std::span<const Fault> angle_faults() {
  return table;
}

}  // namespace dodona::oracle
