#include "oracle/faults/told/holds_inputs.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "oracle/faults/tables/fault_tools.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

/// So many neighbours of different bits are found nowhere by chance.
constexpr std::int64_t together = 4;
using Bits = std::array<std::uint64_t, together>;

/// Where in a tensor such neighbours begin, first of all.
class Neighbours {
 public:
  explicit Neighbours(const Tensor& tensor) : tensor_(tensor), width_(tensor.size(-1)) {
    for (std::int64_t i = 0; i + together <= tensor.elements(); ++i)
      if (i % width_ + together <= width_) places_.emplace(bits_at(tensor, i), i);
  }
  static Bits bits_at(const Tensor& tensor, std::int64_t i) {
    Bits found;
    for (std::int64_t k = 0; k < together; ++k) found[static_cast<std::size_t>(k)] = quant::get_bits(tensor, i + k);
    return found;
  }
  std::optional<std::int64_t> find(const Bits& wanted) const {
    const auto found = places_.find(wanted);
    return found != places_.end() ? std::optional(found->second) : std::nullopt;
  }
  const Tensor& tensor() const { return tensor_; }
  std::int64_t width() const { return width_; }

 private:
  const Tensor& tensor_;
  std::int64_t width_;
  std::map<Bits, std::int64_t> places_;
};

/// `24..27 as 32..35`: rows of an output and of what they hold.
struct Held {
  std::int64_t row, source, columns;  ///< columns: how far to the right the source's are
};

/// Rows that fail, each as a run of elements from the first that fails to the last.
std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> runs_of(const OutputVerdict& output, std::int64_t width) {
  std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> runs;
  for (const std::int64_t i : output.detail->failing) {
    auto& [first, last] = runs.try_emplace(i / width, i, i).first->second;
    first = std::min(first, i), last = std::max(last, i);
  }
  return runs;
}

std::optional<std::vector<Held>> held_by(const OutputVerdict& output, const Neighbours& source) {
  const Tensor& given = output.detail->actual;
  const std::int64_t width = given.size(-1);
  std::vector<Held> held;
  for (const auto& [row, run] : runs_of(output, width)) {
    const std::int64_t begin = std::min(run.first, (row + 1) * width - together);
    if (begin < row * width) return std::nullopt;
    const Bits wanted = Neighbours::bits_at(given, begin);
    // What is a copy of the source anyway has other rows of it: where these lie says more.
    if (source.find(Neighbours::bits_at(output.detail->golden, begin))) return std::nullopt;
    const std::set<std::uint64_t> different(wanted.begin(), wanted.end());
    const auto at = different.size() >= 3 ? source.find(wanted) : std::nullopt;
    if (!at || *at + (run.second - begin) >= source.tensor().elements()) return std::nullopt;
    for (std::int64_t i = begin; i <= run.second; ++i)
      if (quant::get_bits(given, i) != quant::get_bits(source.tensor(), *at + (i - begin))) return std::nullopt;
    held.push_back({row, *at / source.width(), *at % source.width() - begin % width});
  }
  return held;
}

std::string words_of(const std::string& output, const std::string& source, const std::vector<Held>& held, const std::string& pattern) {
  std::string examples;
  for (std::size_t k = 0; k < held.size() && k < 3; ++k)
    examples += (examples.empty() ? "" : ", ") + ("row " + std::to_string(held[k].row) + " that of row " + std::to_string(held[k].source));
  const std::int64_t moved = held.front().columns;
  const bool all = std::all_of(held.begin(), held.end(), [&](const Held& h) { return h.columns == moved; });
  const std::string columns = all && moved != 0 ? ", " + std::to_string(moved) + " columns further" : "";
  return output + " holds what is " + source + "'s, bit by bit (" + examples + (held.size() > 3 ? "..." : "") + columns +
         "): one was stored in the other's place, or their buffer was filled anew before it was stored; " + pattern;
}

}  // namespace

std::optional<Explanation> holds_inputs(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                        const JudgeOptions& options) {
  static_cast<void>(actual), static_cast<void>(options);
  constexpr std::int64_t most = std::int64_t{1} << 20;
  Explanation found{"holds-an-input", ""};
  const OpSchema& schema = call.op.schema();
  for (const OutputVerdict& output : verdict.outputs) {
    if (output.failing == 0) continue;
    constexpr std::size_t enough = 8;
    if (output.detail == nullptr || output.detail->failing.size() < enough) return std::nullopt;
    const Tensor& given = output.detail->actual;
    if (given.rank() < 2 || given.size(-1) < together || given.elements() > most || bits(given.dtype()) < 8) return std::nullopt;
    std::string words;
    const auto try_source = [&](const std::string& name, const Tensor& tensor) {
      if (!words.empty() || tensor.dtype() != given.dtype() || tensor.rank() < 1 || tensor.elements() > most || tensor.size(-1) < together)
        return;
      if (const auto held = held_by(output, Neighbours(tensor))) words = words_of(output.name, name, *held, output.pattern);
    };
    for (const TensorSpec& spec : schema.tensors) {
      if (spec.direction == Direction::in)
        if (const Tensor* const tensor = call.inputs.find(spec.name); tensor != nullptr && tensor->defined())
          try_source(spec.name, *tensor);
      if (const Tensor* const other = find(call.golden.outputs, spec.name); other != nullptr && spec.name != output.name)
        try_source(spec.name, *other);
    }
    if (words.empty()) return std::nullopt;
    found.text += (found.text.empty() ? "" : "; ") + words;
    found.outputs.push_back(output.name);
  }
  found.complete = !found.outputs.empty();
  return found.complete ? std::optional(found) : std::nullopt;
}

}  // namespace dodona::oracle
