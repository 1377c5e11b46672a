// Faults of what accumulators still hold, or what sums lack: sums of rows before, sums of a part of a row, terms that were not brought to
// the newest maximum, zero points that are off by one. Golden mode's answer is made anew from its exact numbers.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include "core/flaw.h"
#include "oracle/faults/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;
using Site = const FaultSite&;
using Values = std::vector<AttrValue>;

// ---- what accumulators still hold

/// Outputs whose exact numbers golden mode keeps.
const ReferenceOutput* kept_exactly(Site s, const std::string& name, const Tensor& tensor) {
  const ReferenceOutput* const said = s.call.golden.reference.find(name);
  const auto count = static_cast<std::size_t>(tensor.elements());
  return said != nullptr && said->exact.size() == count && said->slack.size() == count && tensor.elements() <= most_elements ? said
                                                                                                                             : nullptr;
}
/// The answer with other numbers. What they may be off is what the right ones may, for their size.
void put_numbers(GoldenRun& run, const std::string& name, const std::vector<double>& exact, const std::vector<double>& slack) {
  ReferenceOutput& record = run.reference.output(name, static_cast<std::int64_t>(exact.size()));
  for (auto& [output, tensor] : run.outputs) {
    if (output != name) continue;
    tensor = tensor.clone();
    for (std::size_t i = 0; i < exact.size(); ++i) quant::set(tensor, static_cast<std::int64_t>(i), exact[i]);
  }
  record.exact = exact;
  record.slack = slack;
}
/// `out 4`: a block has every fourth row, and adds each to what the ones before it left.
Values carried_sums(Site s) {
  Values values;
  for (const auto& [name, tensor] : s.call.golden.outputs) {
    if (!is_float(tensor.dtype()) || bits(tensor.dtype()) < 16 || tensor.rank() < 2 || kept_exactly(s, name, tensor) == nullptr) continue;
    const std::int64_t rows = tensor.elements() / std::max<std::int64_t>(tensor.size(-1), 1);
    for (std::int64_t step = 1; step < rows && step <= 256; step = step < 4 ? step + 1 : 2 * step)
      values.emplace_back(name + " " + std::to_string(step));
  }
  return values;
}
GoldenRun carry_sums(Site s) {
  GoldenRun run = s.call.golden;
  const std::string name = first_of(word(s));
  const Tensor& tensor = *find(s.call.golden.outputs, name);
  const ReferenceOutput& said = *kept_exactly(s, name, tensor);
  std::vector<double> exact = said.exact, slack = said.slack;
  const auto step = static_cast<std::size_t>(std::stoll(rest_of(word(s))) * tensor.size(-1));
  for (std::size_t i = step; i < exact.size(); ++i) {
    exact[i] += exact[i - step];
    slack[i] += slack[i - step] + 0x1p-22 * (std::fabs(said.exact[i]) + std::fabs(exact[i - step]));
  }
  put_numbers(run, name, exact, slack);
  return run;
}
std::string carried_in_words(Site s) {
  const std::string step = rest_of(word(s));
  return first_of(word(s)) + ": sums are not set back to zero: a row begins with what the row " + (step == "1" ? "" : step + " rows ") +
         "before it left";
}

// ---- zero points

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

// ---- what a softmax divides by

/// A softmax of rows of logits.
struct Normalised {
  std::string logits, probs;
  std::int64_t rows = 0, columns = 0;
};
std::optional<Normalised> normalised(Site s) {
  if ((s.call.golden.inner & static_cast<unsigned>(Inner::softmax)) == 0) return std::nullopt;
  for (const TensorSpec& spec : s.call.op.schema().tensors) {
    const Tensor* const logits = s.call.inputs.find(spec.name);
    if (spec.role != Role::logits || spec.direction != Direction::in || logits == nullptr || !logits->defined() || logits->rank() != 2)
      continue;
    for (const auto& [name, tensor] : s.call.golden.outputs)
      if (tensor.shape() == logits->shape() && is_float(tensor.dtype()) && kept_exactly(s, name, tensor) != nullptr)
        return Normalised{spec.name, name, logits->size(0), logits->size(1)};
  }
  return std::nullopt;
}
/// Of a row, by what golden mode has of it: exp(x - max), and what x is.
struct Row {
  std::vector<double> weights, scores;  ///< scores as they are divided by the temperature
  double sum = 0, most = 0;
};
std::optional<Row> row_of(Site s, const Normalised& call, std::int64_t row) {
  const Tensor& logits = *s.call.inputs.find(call.logits);
  const std::vector<double>& exact = s.call.golden.reference.find(call.probs)->exact;
  const auto first = static_cast<std::size_t>(row * call.columns);
  const auto largest = static_cast<std::size_t>(std::max_element(exact.begin() + static_cast<std::ptrdiff_t>(first),
                                                                 exact.begin() + static_cast<std::ptrdiff_t>(first) + call.columns) -
                                                exact.begin());
  if (!(exact[largest] > 0) || !std::isfinite(exact[largest])) return std::nullopt;
  Row found;
  found.sum = 1 / exact[largest];
  // The temperature is what makes a difference of logits one of logarithms.
  const double top = quant::get(logits, static_cast<std::int64_t>(largest));
  double slope = 0, farthest = 0;
  for (std::int64_t c = 0; c < call.columns; ++c) {
    const double p = exact[first + static_cast<std::size_t>(c)], below = top - quant::get(logits, row * call.columns + c);
    if (p > 0 && std::isfinite(below) && below > farthest) farthest = below, slope = std::log(exact[largest] / p) / below;
  }
  for (std::int64_t c = 0; c < call.columns; ++c) {
    found.weights.push_back(exact[first + static_cast<std::size_t>(c)] * found.sum);
    found.scores.push_back(slope * quant::get(logits, row * call.columns + c));
  }
  found.most = slope * top;
  return found;
}
/// `first 64`, `behind 64`, `last 64`: the sum is that of these columns; `whole 64`: of whole tiles; `restarted 64`: of the last tile;
/// `unscaled 64`: each tile's terms about the maximum as it was then; `tail 64`: the last tile's about none; `alone 64`: the first
/// columns make a row of their own, the others stay logits; `rows`: that of all rows; `across`: column j has row j's.
Values other_sums(Site s) {
  const auto call = normalised(s);
  if (!call) return {};
  Values values;
  for (const std::int64_t tile : {16, 32, 64, 128, 256, 512, 1024}) {
    if (tile >= call->columns) continue;
    for (const char* const how : {"first ", "behind ", "unscaled ", "tail ", "alone "}) values.emplace_back(how + std::to_string(tile));
    values.emplace_back((call->columns % tile == 0 ? "last " : "whole ") + std::to_string(tile));
    if (call->columns % tile == 0 && call->columns > 2 * tile) values.emplace_back("first " + std::to_string(call->columns - tile));
  }
  for (const std::int64_t parts : {2, 4, 8})
    if (call->columns % parts == 0) values.emplace_back("first " + std::to_string(call->columns / parts * (parts - 1)));
  if (call->rows >= 2) values.emplace_back(std::string("rows 0"));
  if (call->rows >= 2 && call->rows == call->columns) values.emplace_back(std::string("across 0"));
  std::set<std::string> seen;
  std::erase_if(values, [&](const AttrValue& value) { return !seen.insert(std::get<std::string>(value)).second; });
  return values;
}
double sum_of(const Row& row, const std::string& how, std::int64_t tile) {
  const auto columns = static_cast<std::int64_t>(row.weights.size());
  double sum = 0, running = -std::numeric_limits<double>::infinity();
  for (std::int64_t c = 0; c < columns; ++c) {
    const auto at = static_cast<std::size_t>(c);
    const bool in_tail = c >= (columns - 1) / tile * tile;
    if (how == "unscaled" && c % tile == 0)
      for (std::int64_t k = c; k < std::min(c + tile, columns); ++k) running = std::max(running, row.scores[static_cast<std::size_t>(k)]);
    if ((how == "first" && c >= tile) || (how == "behind" && c < tile) || (how == "last" && c < columns - tile) ||
        (how == "whole" && in_tail))
      continue;
    sum += how == "unscaled" ? std::exp(row.scores[at] - running) : how == "tail" && in_tail ? std::exp(row.scores[at]) : row.weights[at];
  }
  return sum;
}
GoldenRun with_other_sums(Site s) {
  GoldenRun run = s.call.golden;
  const Normalised call = *normalised(s);
  const std::string how = first_of(word(s));
  const std::int64_t tile = std::stoll(rest_of(word(s)));
  std::vector<Row> rows;
  double all = 0;
  for (std::int64_t r = 0; r < call.rows; ++r) {
    auto row = row_of(s, call, r);
    if (!row) return run;
    all += row->sum;
    rows.push_back(std::move(*row));
  }
  const ReferenceOutput& said = *s.call.golden.reference.find(call.probs);
  const Tensor& logits = *s.call.inputs.find(call.logits);
  std::vector<double> across;
  for (const Row& row : rows) {
    double sum = 0;
    for (std::size_t c = 0; c < row.scores.size() && how == "across"; ++c) sum += std::exp(row.scores[c] - rows[c].most);
    across.push_back(sum);
  }
  std::vector<double> exact = said.exact, slack = said.slack;
  for (std::int64_t r = 0; r < call.rows; ++r) {
    const Row& row = rows[static_cast<std::size_t>(r)];
    const double sum = how == "rows"     ? all
                       : how == "across" ? row.sum
                       : how == "alone"  ? sum_of(row, "first", tile)
                                         : sum_of(row, how, tile);
    double own_most = row.most;
    if (how == "alone") own_most = *std::max_element(row.scores.begin(), row.scores.begin() + tile);
    for (std::int64_t c = 0; c < call.columns; ++c) {
      const auto at = static_cast<std::size_t>(r * call.columns + c), column = static_cast<std::size_t>(c);
      double x = row.weights[column] / sum;
      if (how == "across") x = std::exp(row.scores[column] - rows[column].most) / across[column];
      if (how == "alone" && c >= tile) x = quant::get(logits, r * call.columns + c);
      // Terms that underflow about the row's own maximum may not do so about a part's.
      if (how == "alone" && c < tile && own_most < row.most)
        x = std::exp(row.scores[column] - own_most) / (sum * std::exp(row.most - own_most));
      constexpr double of_logarithms = 0x1p-18;
      slack[at] = said.exact[at] > 0 ? slack[at] * std::fabs(x) / said.exact[at] : slack[at];
      slack[at] += of_logarithms * std::fabs(x);
      exact[at] = x;
    }
  }
  put_numbers(run, call.probs, exact, slack);
  return run;
}
std::string other_sums_in_words(Site s) {
  const std::string how = first_of(word(s)), tile = rest_of(word(s)), of = normalised(s)->probs + ": ",
                    sum = of + "the sum that a row is divided by ";
  if (how == "rows") return sum + "is that of all rows";
  if (how == "across") return of + "maxima and sums of rows are spread over the columns: column j has those of row j, another axis'";
  if (how == "unscaled")
    return sum + "is added up in tiles of " + tile + ", each about the maximum as it was then: it is not rescaled when that grows";
  if (how == "tail") return sum + "has the last tile of " + tile + " columns as exponentials of scores that are not shifted by the maximum";
  if (how == "alone")
    return of + "the first " + tile + " columns alone are exponentiated and divided by their own sum, the others stay as they are";
  if (how == "whole") return sum + "lacks the last partial tile of " + tile + " columns";
  if (how == "behind") return sum + "lacks the first " + tile + " columns";
  return sum + (how == "last" ? "is that of the last " + tile + " columns: it begins anew with each tile"
                              : "is that of the first " + tile + " columns alone");
}

// ---- rows of a tile at another stride

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

constexpr Strikes call = Strikes::call;
constexpr Severity fine = Severity::fine;

constexpr std::array table{
    Fault{.id = "sums-carried-over",
          .summary = "sums are not set back to zero between rows",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = carried_sums,
          .words = carried_in_words,
          .far = true,
          .rerun = carry_sums},
    Fault{.id = "zero-points-moved",
          .summary = "every zero point is another number",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = other_zero_points,
          .words = zero_points_in_words,
          .far = true,
          .rerun = move_zero_points},
    Fault{.id = "divided-by-another-sum",
          .summary = "rows of a softmax are divided by the sum of other terms than theirs",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = other_sums,
          .words = other_sums_in_words,
          .far = true,
          .rerun = with_other_sums},
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

std::span<const Fault> held_faults() {
  return table;
}

}  // namespace dodona::oracle
