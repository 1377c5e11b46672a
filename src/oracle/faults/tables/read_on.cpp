// Faults composed of which dimension of all operands that have it is taken for longer than it is: the last tile is not masked, and rows are
// taken to go on into what lies behind them, or into zeros that fill them up. Tried where no mistake that has a name of its own reproduces
// the outputs.
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/storage.h"
#include "oracle/faults/tables/composed.h"
#include "oracle/faults/tables/fault_tools.h"
#include "quant/sizes.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

/// Which dimension of an input a symbol is; -1: of none.
int dimension_of(const TensorSpec& spec, const Tensor* tensor, const std::string& symbol) {
  if (spec.direction != Direction::in || tensor == nullptr || !tensor->defined() || !is_float(tensor->dtype()) ||
      bits(tensor->dtype()) < 8 || spec.storage.code || tensor->elements() > most_elements)
    return -1;
  const auto dims = dims_of(spec.shape, tensor->rank());
  const auto found = std::find(dims.begin(), dims.end(), symbol);
  return found == dims.end() ? -1 : static_cast<int>(found - dims.begin());
}
/// Symbols that operands have and no output has: along which is added.
std::set<std::string> symbols_added_along(Site s) {
  std::multiset<std::string> of_operands;
  std::set<std::string> of_outputs, found;
  for (const TensorSpec& spec : s.call.op.schema().tensors) {
    const Tensor* const tensor = s.call.inputs.find(spec.name);
    if (spec.direction != Direction::in) {
      if (const Tensor* const output = find(s.call.golden.outputs, spec.name))
        for (const std::string& symbol : dims_of(spec.shape, output->rank())) of_outputs.insert(symbol);
    } else if (tensor != nullptr && tensor->defined()) {
      for (const std::string& symbol : dims_of(spec.shape, tensor->rank()))
        if (dimension_of(spec, tensor, symbol) >= 0) of_operands.insert(symbol);
    }
  }
  for (const std::string& symbol : of_operands)
    if (of_operands.count(symbol) >= 2 && of_outputs.count(symbol) == 0 && !symbol.empty() &&
        std::isalpha(static_cast<unsigned char>(symbol[0])) != 0)
      found.insert(symbol);
  return found;
}
std::int64_t extent_of(Site s, const std::string& symbol) {
  for (const TensorSpec& spec : s.call.op.schema().tensors) {
    const Tensor* const tensor = s.call.inputs.find(spec.name);
    if (const int d = dimension_of(spec, tensor, symbol); d >= 0) return tensor->size(d);
  }
  return 0;
}
/// `K 256`.
Values longer(Site s) {
  if (s.call.op.info().category != Category::gemm) return {};
  Values values;
  for (const std::string& symbol : symbols_added_along(s)) {
    const std::int64_t own = extent_of(s, symbol);
    std::set<std::int64_t> taken;
    for (const std::int64_t tile : {8, 16, 32, 64, 128, 256}) taken.insert(quant::align(own, tile));
    for (const std::int64_t extent : taken)
      if (extent != own) values.emplace_back(symbol + " " + std::to_string(extent));
  }
  return values;
}
/// Operands that have the word's symbol, as long along it as the word says: put(longer one, its element i, where that is, operand,
/// dimension).
template <class Put>
void lengthen(Site s, Arguments& inputs, const Put& put) {
  const std::string symbol = first_of(word(s));
  for (const TensorSpec& spec : s.call.op.schema().tensors) {
    const Tensor* const tensor = s.call.inputs.find(spec.name);
    const int d = dimension_of(spec, tensor, symbol);
    if (d < 0) continue;
    Dims shape = tensor->shape();
    shape[d] = std::stoll(rest_of(word(s)));
    const Tensor longer_one(tensor->dtype(), shape);
    for (std::int64_t i = 0; i < longer_one.elements(); ++i) put(longer_one, i, index_of(i, shape), *tensor, d);
    inputs.set(spec.name, longer_one);
  }
}
/// Their names.
std::string lengthened(Site s) {
  std::string names;
  for (const TensorSpec& spec : s.call.op.schema().tensors)
    if (dimension_of(spec, s.call.inputs.find(spec.name), first_of(word(s))) >= 0) names += (names.empty() ? "" : ", ") + spec.name;
  return names;
}
void read_on(Site s, Arguments& inputs) {
  lengthen(s, inputs, [](const Tensor& to, std::int64_t i, const Dims& at, const Tensor& tensor, int) {
    const std::int64_t end = tensor.extent_bytes() * 8 / bits(tensor.dtype());
    std::int64_t offset = 0;
    for (int k = 0; k < at.rank(); ++k) offset += at[k] * tensor.stride(k);
    if (offset < end) {
      quant::set_bits(to, i, quant::load_bits(tensor.dtype(), tensor.data(), offset));
    } else {
      quant::set(to, i, std::numeric_limits<double>::quiet_NaN());
    }
  });
}
std::string read_on_in_words(Site s) {
  const std::string symbol = first_of(word(s)), taken = rest_of(word(s));
  return lengthened(s) + ": " + symbol + " is taken for " + taken + ", a whole number of tiles, where it is " +
         std::to_string(extent_of(s, symbol)) + ": rows are taken to go on into what lies behind them, the last tile is not masked";
}

// ---- columns of zeros behind a row's end

/// Along which rows are chosen from, or divided by the sum of: in no output, and last in an operand.
std::set<std::string> symbols_chosen_from(Site s) {
  std::set<std::string> of_outputs, found;
  for (const auto& [name, tensor] : s.call.golden.outputs)
    for (const std::string& symbol : dims_of(s.call.op.schema().find_tensor(name)->shape, tensor.rank())) of_outputs.insert(symbol);
  for (const TensorSpec& spec : s.call.op.schema().tensors) {
    const Tensor* const tensor = s.call.inputs.find(spec.name);
    if (spec.direction != Direction::in || tensor == nullptr || !tensor->defined() || tensor->rank() < 2 || !is_float(tensor->dtype()))
      continue;
    const auto dims = dims_of(spec.shape, tensor->rank());
    if (!dims.empty() && dimension_of(spec, tensor, dims.back()) == tensor->rank() - 1 && of_outputs.count(dims.back()) == 0)
      found.insert(dims.back());
  }
  return found;
}
Values filled_up(Site s) {
  const Category category = s.call.op.info().category;
  if (category != Category::moe && category != Category::speculative && category != Category::sampling && category != Category::nsa)
    return {};
  Values values;
  for (const std::string& symbol : symbols_chosen_from(s)) {
    const std::int64_t own = extent_of(s, symbol);
    std::set<std::int64_t> taken;
    for (const std::int64_t tile : {4, 8, 16, 32, 64, 128, 256, 512, 1024}) taken.insert(quant::align(own, tile));
    for (std::int64_t power = 1; power < 2 * own; power *= 2)
      if (power > own) taken.insert(power);
    for (const std::int64_t extent : taken)
      if (extent != own && extent < 2 * own) values.emplace_back(symbol + " " + std::to_string(extent));
  }
  return values;
}
void fill_up(Site s, Arguments& inputs) {
  lengthen(s, inputs, [](const Tensor& to, std::int64_t i, const Dims& at, const Tensor& tensor, int d) {
    std::int64_t own = 0;
    for (int k = 0; k < at.rank(); ++k) own = own * tensor.size(k) + at[k];
    quant::set_bits(to, i, at[d] < tensor.size(d) ? quant::get_bits(tensor, own) : 0);
  });
}
std::string filled_up_in_words(Site s) {
  const std::string symbol = first_of(word(s)), taken = rest_of(word(s));
  return lengthened(s) + ": rows of " + std::to_string(extent_of(s, symbol)) + " (" + symbol + ") are filled up to " + taken +
         " with zeros, which take part: columns of padding behind a row's end are not masked";
}

constexpr std::array table{
    Fault{.id = "last-tile-not-masked",
          .summary = "operands are read on beyond their rows' ends, up to a whole tile",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = longer,
          .recall = read_on,
          .words = read_on_in_words,
          .reads_beyond = true,
          .far = true},
    Fault{.id = "padding-takes-part",
          .summary = "columns of zeros behind a row's end take part in a choice or a sum",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = filled_up,
          .recall = fill_up,
          .words = filled_up_in_words},
};

}  // namespace

std::span<const Fault> read_on_faults() {
  return table;
}

}  // namespace dodona::oracle
