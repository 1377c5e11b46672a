// Faults in where the rows of a tile are stored: the tile begins where it should, its rows lie at another dimension's stride.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

/// `o 4 8`: a tile of four rows begins where it should, and its rows are eight apart.
Values rows_of_tiles(Site s) {
  Values values;
  for (const auto& [name, tensor] : s.call.golden.outputs) {
    const TensorSpec& spec = *s.call.op.schema().find_tensor(name);
    if (spec.direction != Direction::out || spec.storage.code || bits(tensor.dtype()) < 8 || tensor.rank() < 3 || tensor.size(-1) < 2 ||
        tensor.elements() > most_elements)
      continue;
    const std::int64_t rows = tensor.elements() / tensor.size(-1), stride = tensor.size(-2);
    for (const std::int64_t tile : {2, 4, 8, 16, 32, 64})
      if (stride > 1 && tile <= rows) values.emplace_back(name + " " + std::to_string(tile) + " " + std::to_string(stride));
  }
  return values;
}
GoldenRun store_tiles_apart(Site s) {
  GoldenRun run = s.call.golden;
  const std::string name = first_of(word(s)), numbers = rest_of(word(s));
  const std::int64_t tile = std::stoll(numbers), stride = std::stoll(rest_of(numbers));
  const Tensor written = *find(s.call.golden.outputs, name);
  const std::int64_t width = written.size(-1), rows = written.elements() / width;
  const ReferenceOutput before = run.reference.output(name, written.elements());
  ReferenceOutput& record = run.reference.output(name, written.elements());
  const Tensor stored(written.dtype(), written.shape());
  for (std::int64_t i = 0; i < stored.elements(); ++i) quant::set_bits(stored, i, 0);
  std::fill(record.exact.begin(), record.exact.end(), 0.0);
  std::fill(record.slack.begin(), record.slack.end(), 0.0);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t to = row / tile * tile + row % tile * stride;
    for (std::int64_t c = 0; c < width && to < rows; ++c) {
      const auto from_at = static_cast<std::size_t>(row * width + c), at = static_cast<std::size_t>(to * width + c);
      quant::set_bits(stored, to * width + c, quant::get_bits(written, row * width + c));
      if (!before.exact.empty()) record.exact[at] = before.exact[from_at];
      if (!before.slack.empty()) record.slack[at] = before.slack[from_at];
      if (!before.unspecified.empty()) record.unspecified[at] = before.unspecified[from_at];
    }
  }
  for (auto& [output, tensor] : run.outputs)
    if (output == name) tensor = stored;
  return run;
}
std::string tiles_apart_in_words(Site s) {
  const std::string numbers = rest_of(word(s));
  return first_of(word(s)) + ": tiles of " + first_of(numbers) + " rows begin where they should, but their rows are stored " +
         rest_of(numbers) + " apart: at another dimension's stride";
}

constexpr std::array table{
    Fault{.id = "rows-of-tiles-apart",
          .summary = "rows of a tile are stored at another dimension's stride",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = rows_of_tiles,
          .words = tiles_apart_in_words,
          .far = true,
          .rerun = store_tiles_apart},
};

}  // namespace

std::span<const Fault> tile_store_faults() {
  return table;
}

}  // namespace dodona::oracle
