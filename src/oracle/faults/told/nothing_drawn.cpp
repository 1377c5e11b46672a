#include "oracle/faults/told/nothing_drawn.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

/// A row of probabilities, and where its numbers stand.
struct Row {
  const Tensor& probs;
  std::int64_t first, width;

  double at(std::int64_t token) const { return quant::get(probs, first + token); }
  bool none_is(std::int64_t token, bool larger) const {
    for (std::int64_t i = 0; i < width; ++i)
      if (at(i) > 0 && (larger ? at(i) > at(token) : at(i) < at(token))) return false;
    return true;
  }
};

struct Place {
  const char* words;
  bool (*holds)(const Row&, std::int64_t token);
};
constexpr std::array places{
    Place{"the most probable token of each row is taken", [](const Row& row, std::int64_t token) { return row.none_is(token, true); }},
    Place{"the least probable token of each row is taken", [](const Row& row, std::int64_t token) { return row.none_is(token, false); }},
    Place{"the first token is taken of every row", [](const Row&, std::int64_t token) { return token == 0; }},
    Place{"the last token is taken of every row", [](const Row& row, std::int64_t token) { return token == row.width - 1; }},
};

}  // namespace

std::optional<Explanation> nothing_drawn(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                         const JudgeOptions& /*options*/) {
  if (call.op.info().category != Category::sampling) return std::nullopt;
  constexpr std::size_t enough = 4;
  for (const OutputVerdict& output : verdict.outputs) {
    const Tensor* const samples = find(actual, output.name);
    if (output.failing < static_cast<std::int64_t>(enough) || samples == nullptr || !is_whole(samples->dtype())) continue;
    for (const TensorSpec& spec : call.op.schema().tensors) {
      const Tensor* const probs = call.inputs.find(spec.name);
      if (spec.role != Role::probs || spec.direction != Direction::in || probs == nullptr || !probs->defined() || probs->rank() != 2)
        continue;
      const Tensor* const rows = call.inputs.find("indices");
      const bool listed = rows != nullptr && rows->defined();
      if ((listed ? rows->elements() : probs->size(0)) != samples->elements()) continue;
      for (const Place& place : places) {
        bool all = true;
        for (std::int64_t b = 0; all && b < samples->elements(); ++b) {
          const std::int64_t from = listed ? static_cast<std::int64_t>(quant::get(*rows, b)) : b;
          const auto token = static_cast<std::int64_t>(quant::get(*samples, b));
          all = token >= 0 && token < probs->size(1) && place.holds({*probs, from * probs->size(1), probs->size(1)}, token);
        }
        if (!all) continue;
        Explanation found{"nothing-drawn", output.name + ": " + place.words + ": nothing is drawn"};
        found.outputs.push_back(output.name);
        found.complete = output.failing == verdict.failing();
        return found;
      }
    }
  }
  return std::nullopt;
}

}  // namespace dodona::oracle
