// Faults composed of which dimension of an operand, and how far apart its indices are taken to lie in memory: padded or not, as another
// size is long, not at all. Like those of another index they are tried where no mistake that has a name of its own reproduces the outputs.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/storage.h"
#include "oracle/faults/rewritten.h"
#include "oracle/faults/tables/composed.h"
#include "oracle/faults/tables/fault_tools.h"
#include "quant/sizes.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

bool lies_in_memory(Site s) {
  const bool known_type = is_real(s.tensor.dtype()) && bits(s.tensor.dtype()) >= 8;
  return s.spec->direction == Direction::in && known_type && !s.spec->storage.code && s.tensor.rank() >= 2 &&
         s.tensor.elements() <= most_elements &&
         (s.spec->role == Role::values || s.spec->role == Role::weight || s.spec->role == Role::scale || s.spec->role == Role::logits);
}
std::int64_t elements_in_memory(const Tensor& tensor) {
  return tensor.extent_bytes() * 8 / bits(tensor.dtype());
}

/// `0 8`: along dimension 0 indices are 8 elements apart; `flat`: the outermost index alone counts elements, whatever lies within.
struct Strides {
  Dims taken;
  int dim = 0;

  static Strides of(const std::string& text, const Tensor& tensor) {
    Strides found{tensor.strides(), 0};
    if (text == "flat") {
      for (int d = 0; d < tensor.rank(); ++d) found.taken[d] = d == 0 ? 1 : 0;
      return found;
    }
    found.dim = std::stoi(text);
    found.taken[found.dim] = std::stoll(rest_of(text));
    return found;
  }
};

Values other_strides(Site s) {
  Values values;
  for (int d = 0; d < s.tensor.rank(); ++d) {
    const std::int64_t own = s.tensor.stride(d);
    if (s.tensor.size(d) < 2) continue;
    std::vector<std::int64_t> taken{0};
    if (own > 1)
      for (const std::int64_t padding : {4, 8, 16, 32, 64, 128}) taken.push_back(quant::align(own, padding));
    if (own > 1)
      for (const std::int64_t other : {own / 2, 2 * own, std::int64_t{1}, own - 1, own + 1}) taken.push_back(other);
    // As long as another dimension is.
    for (int k = 0; k < s.tensor.rank(); ++k)
      if (own > 1 && k != d) taken.push_back(s.tensor.size(k)), taken.push_back(s.tensor.size(d));
    if (own == 1) taken.push_back(2);
    for (std::size_t i = 0; i < taken.size(); ++i)
      if (taken[i] != own && std::find(taken.begin(), taken.begin() + static_cast<std::ptrdiff_t>(i), taken[i]) ==
                                 taken.begin() + static_cast<std::ptrdiff_t>(i))
        values.emplace_back(std::to_string(d) + " " + std::to_string(taken[i]));
  }
  if (s.tensor.size(0) >= 2) values.emplace_back(std::string("flat"));
  return values;
}
/// What lies beyond the end nobody knows; whether there is any.
bool read_with_beyond(Site s, To t, double beyond) {
  const Dims strides = Strides::of(word(s), s.tensor).taken;
  const std::int64_t end = elements_in_memory(s.tensor);
  bool any = false;
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    const Dims at = index_of(i, s.tensor.shape());
    std::int64_t offset = 0;
    for (int d = 0; d < at.rank(); ++d) offset += at[d] * strides[d];
    if (offset < end) {
      quant::set_bits(t, i, quant::load_bits(s.tensor.dtype(), s.tensor.data(), offset));
    } else {
      quant::set(t, i, beyond);
      any = true;
    }
  }
  return any;
}
void read_at_other_strides(Site s, To t) {
  read_with_beyond(s, t, 1);
}
/// Of the outputs that depends on what lies beyond nothing is asked: with another number there it is another.
GoldenRun with_other_strides(Site s) {
  const auto run_with_beyond = [&](double beyond, bool& any) {
    const Tensor changed = make_strided(s.tensor.dtype(), s.tensor.shape(), s.tensor.strides());
    any = read_with_beyond(s, changed, beyond);
    Arguments inputs = s.call.inputs;
    inputs.set(s.name, changed);
    return run_golden(s.call.op, inputs, s.call.exec);
  };
  bool beyond = false;
  GoldenRun run = run_with_beyond(1, beyond);
  if (!beyond) return run;
  leave_differences_open(run, run_with_beyond(4, beyond));
  return run;
}
std::string other_strides_in_words(Site s) {
  if (word(s) == "flat")
    return s.name + ": index i along " + symbol_of(s, 0) + " has element i of the whole for all that is its own, as if it had one number";
  const Strides strides = Strides::of(word(s), s.tensor);
  const std::int64_t own = s.tensor.stride(strides.dim), taken = strides.taken[strides.dim];
  const std::string along = s.name + ": along " + symbol_of(s, strides.dim) + " ";
  if (taken == 0) return along + "all indices have what the first one has, row 0: a stride of 0";
  return along + "rows are looked for at a stride of " + std::to_string(taken) + ", where they lie " + std::to_string(own) + " apart" +
         (taken > own && taken - own < 128 ? ": as if they were padded" : "");
}
/// The first index lies where it should.
std::optional<ChangedIndices> changed_by_strides(Site s) {
  const int dim = word(s) == "flat" ? 0 : Strides::of(word(s), s.tensor).dim;
  ChangedIndices found{symbol_of(s, dim), std::vector<bool>(static_cast<std::size_t>(s.tensor.size(dim)), true)};
  found.changed.front() = word(s) == "flat";
  return found;
}

constexpr std::array table{
    Fault{.id = "dimension-at-another-stride",
          .summary = "along a dimension of an operand indices are taken to lie so far apart as they do not",
          .strikes = input,
          .severity = fine,
          .applies = lies_in_memory,
          .spoil = read_at_other_strides,
          .variants = other_strides,
          .words = other_strides_in_words,
          .reads_beyond = true,
          .far = true,
          .rerun = with_other_strides,
          .changes = changed_by_strides},
};

}  // namespace

std::span<const Fault> stride_faults() {
  return table;
}

}  // namespace dodona::oracle
