#include "oracle/cases/window.h"

#include <algorithm>
#include <optional>
#include <sstream>

#include "dodona/error.h"

namespace dodona::oracle {
namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

bool names(const std::string& expression, std::string_view symbol) {
  const auto letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (std::size_t at = expression.find(symbol); at != std::string::npos; at = expression.find(symbol, at + 1)) {
    const std::size_t end = at + symbol.size();
    if ((at == 0 || !letter(expression[at - 1])) && (end == expression.size() || !letter(expression[end]))) return true;
  }
  return false;
}

/// The axis of a tensor that counts these rows: -1 for none, nothing where rows are part of another size.
std::optional<int> axis_of(const TensorSpec& spec, int rank, std::string_view symbol) {
  const std::vector<std::string> dims = dims_of(spec.shape, rank);
  for (std::size_t i = 0; i < dims.size(); ++i)
    if (dims[i] == symbol) return static_cast<int>(i);
  if (names(spec.shape, symbol)) return std::nullopt;
  return -1;
}

[[noreturn]] void fail(const Op& op, const RowRange& range, const std::string& why) {
  throw Error(ErrorCode::bad_option, std::string(op.name()), "--window", to_string(Window{range}) + " " + why);
}

Tensor cut(const Op& op, const TensorSpec& spec, const Tensor& tensor, const RowRange& range) {
  const auto axis = axis_of(spec, tensor.rank(), range.symbol);
  if (!axis) fail(op, range, "cannot be cut out of " + spec.name + ", of shape " + spec.shape);
  if (*axis < 0) return tensor;
  const std::int64_t size = tensor.size(*axis);
  if (range.end > size) fail(op, range, "is beyond the " + std::to_string(size) + " rows of " + spec.name);
  const Tensor part = tensor.slice(*axis, range.begin, range.end);
  if (spec.layout == Layout::contiguous) return part.contiguous() ? part : part.clone();
  if (spec.layout == Layout::column_major) return part.transpose(-1, -2).clone().transpose(-1, -2);
  return part;
}

}  // namespace

/// Of the alternative that has this rank; a pack `T...` stands for one dimension where that gives the rank.
std::vector<std::string> dims_of(const std::string& shape, int rank) {
  std::istringstream alternatives(shape);
  for (std::string alternative; std::getline(alternatives, alternative, '|');) {
    std::vector<std::string> dims = words_of(alternative);
    if (static_cast<int>(dims.size()) != rank) continue;
    if (!dims.empty() && dims.front().ends_with("...")) dims.front().resize(dims.front().size() - 3);
    return dims;
  }
  return {};
}

void require_independent(const Op& op, const Window& window) {
  const auto& independent = op.schema().properties.rows_independent;
  for (const RowRange& range : window) {
    if (std::find(independent.begin(), independent.end(), range.symbol) != independent.end()) continue;
    std::string known;
    for (const std::string& symbol : independent) known += (known.empty() ? "" : ", ") + symbol;
    fail(op, range,
         known.empty() ? "is impossible: rows of this op depend on each other" : "is impossible: rows are independent along " + known);
  }
}

std::vector<std::pair<std::int64_t, std::int64_t>> part_of(const Op& op, const TensorSpec& spec, const Dims& shape, const Window& window) {
  std::vector<std::pair<std::int64_t, std::int64_t>> part;
  for (int i = 0; i < shape.rank(); ++i) part.emplace_back(0, shape[i]);
  for (const RowRange& range : window) {
    const auto axis = axis_of(spec, shape.rank(), range.symbol);
    if (!axis) fail(op, range, "cannot be cut out of " + spec.name + ", of shape " + spec.shape);
    if (*axis < 0) continue;
    if (range.end > shape[*axis]) fail(op, range, "is beyond the " + std::to_string(shape[*axis]) + " rows of " + spec.name);
    part[static_cast<std::size_t>(*axis)] = {range.begin, range.end};
  }
  return part;
}

Arguments windowed(const Op& op, const Arguments& inputs, const Window& window) {
  require_independent(op, window);
  return resized(op, inputs, window);
}

Arguments resized(const Op& op, const Arguments& inputs, const Window& window) {
  Arguments part = inputs;
  for (const RowRange& range : window) {
    if (rows_along(op, inputs, range.symbol) == 0) fail(op, range, "is impossible: the call has no such rows");
    for (auto& [name, tensor] : part.tensors)
      if (const TensorSpec* spec = op.schema().find_tensor(name); spec != nullptr && tensor.defined())
        tensor = cut(op, *spec, tensor, range);
  }
  return part;
}

NamedTensors windowed(const Op& op, const NamedTensors& outputs, const Window& window) {
  NamedTensors part = outputs;
  for (const RowRange& range : window)
    for (auto& [name, tensor] : part)
      if (const TensorSpec* spec = op.schema().find_tensor(name); spec != nullptr) tensor = cut(op, *spec, tensor, range);
  return part;
}

std::int64_t rows_along(const Op& op, const Arguments& inputs, std::string_view symbol) {
  std::int64_t rows = 0;
  for (const auto& [name, tensor] : inputs.tensors) {
    const TensorSpec* spec = op.schema().find_tensor(name);
    if (spec == nullptr || !tensor.defined()) continue;
    const auto axis = axis_of(*spec, tensor.rank(), symbol);
    if (!axis) return 0;
    if (*axis >= 0) rows = tensor.size(*axis);
  }
  return rows;
}

}  // namespace dodona::oracle
