// Faults composed of where and how: along one dimension of an operand, or of all operands that have it, what belongs to index i is looked
// for at another index, or is not there at all; of groups of rows between offsets other rows are taken. The op is computed anew. They are
// tried where no mistake that has a name of its own reproduces the outputs.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include "core/flaw.h"
#include "core/storage.h"
#include "oracle/cases/window.h"
#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

// ---- another index along a dimension

/// `1 mod 32`: along dimension 1 index i is looked for at i mod 32. Of maps: `mod P`; `first P`, the first of each P; `over P`, i / P;
/// `end P`, nothing from P on; `from P`, nothing
/// before P; `next P`, a tile of P further, the last tile for itself; `back P`, the other end of its P, of 1 that of the whole; `half P`,
/// tiles of P as if they lay half as far apart.
struct IndexMap {
  int dim = 0;
  std::string how;
  std::int64_t p = 1, extent = 1;

  static IndexMap of(const std::string& text, const Dims& shape) {
    const int dim = std::stoi(text);
    return {dim, first_of(rest_of(text)), std::stoll(rest_of(rest_of(text))), shape[dim]};
  }
  /// -1 for nothing.
  std::int64_t operator()(std::int64_t i) const {
    if (how == "mod") return i % p;
    if (how == "first") return i / p * p;
    if (how == "over") return i / p;
    if (how == "end") return i < p ? i : -1;
    if (how == "from") return i < p ? -1 : i;
    if (how == "half") return i / p * (p / 2) + i % p;
    if (how == "back") return p == 1 ? extent - 1 - i : std::min(i / p * p + p - 1 - i % p, extent - 1);
    return i + p < extent ? i + p : i;
  }
  std::string words(const std::string& symbol) const {
    const std::string number = std::to_string(p), along = "along " + symbol + " ";
    if (how == "mod") return along + "index i is looked for at i mod " + number + ": every " + number + " are the first " + number;
    if (how == "first") return along + "the first of each " + number + " is used for all of them";
    if (how == "over") return along + "index i is looked for at i / " + number + ": as if groups were " + number + " times as large";
    if (how == "end") return along + "nothing counts from index " + number + " on, as if there were no more than " + number;
    if (how == "from") return along + "nothing counts before index " + number + (p + 1 == extent ? ": the last one alone is left" : "");
    if (how == "half")
      return along + "each tile of " + number + " is looked for half as far on as it lies: tiles are taken to lie " +
             std::to_string(p / 2) + " apart";
    if (how == "back") return along + (p == 1 ? "the order is reversed" : "each " + number + " are in reverse order");
    return along + "each tile of " + number + " is the next one, which was loaded over it before it was read";
  }
};

bool has_dimensions(Site s) {
  return s.spec->direction == Direction::in && s.tensor.rank() >= 1 && s.tensor.elements() <= most_elements &&
         bits(s.tensor.dtype()) >= 4 &&
         (s.spec->role == Role::values || s.spec->role == Role::weight || s.spec->role == Role::scale || s.spec->role == Role::logits ||
          s.spec->storage.scales);
}
/// Columns of matrices in whole tiles of usual widths are another fault's, first-tile-everywhere.
bool has_its_own(Site s, int dim, std::int64_t p) {
  return s.tensor.rank() >= 2 && dim == s.tensor.rank() - 1 && (s.spec->role == Role::values || s.spec->role == Role::weight) &&
         s.tensor.size(dim) >= 64 && s.tensor.size(dim) % p == 0 && (p == 32 || p == 64 || p == 128 || p == 256);
}
bool of_an_output(Site s, const std::string& symbol) {
  return std::any_of(s.call.golden.outputs.begin(), s.call.golden.outputs.end(), [&](const auto& output) {
    const auto dims = dims_of(s.call.op.schema().find_tensor(output.first)->shape, output.second.rank());
    return std::find(dims.begin(), dims.end(), symbol) != dims.end();
  });
}
void add_maps(Site s, int dim, Values& values) {
  const std::int64_t extent = s.tensor.size(dim);
  std::set<std::string> seen;
  const auto add = [&](const char* how, std::int64_t p) {
    if (p >= extent) return;
    std::string text = std::to_string(dim) + " " + how + " " + std::to_string(p);
    if (seen.insert(text).second) values.emplace_back(std::move(text));
  };
  for (const std::int64_t p : {2, 4, 8, 16, 32, 64, 128, 256, 512})
    if (!has_its_own(s, dim, p)) add("mod", p);
  for (const std::int64_t p : {2, 4, 8, 16, 32, 64}) add("first", p);
  for (const std::int64_t p : {2, 4, 8, 16, 32}) add("over", p);
  std::set<std::int64_t> ends{16, 32, 64, 128, 256, 512, 1024};
  if (extent >= 4) ends.insert(extent / 2);
  // Along a dimension of the outputs it leaves zeros, or what was there: that is seen without a run.
  if (!of_an_output(s, symbol_of(s, dim))) {
    for (const std::int64_t p : ends) add("end", p);
    for (const std::int64_t p : {extent / 2, extent - 1})
      if (p >= 1) add("from", p);
    for (const std::int64_t p : {16, 32, 64, 128, 256})
      if (2 * p <= extent) add("half", p);
  }
  if (dim == s.tensor.rank() - 1)
    for (const std::int64_t p : {16, 32, 64, 128})
      if (extent % p == 0) add("next", p);
  // As many as something else of the call: choices of a token, heads, groups.
  for (const std::int64_t p : numbers_of(s.call)) {
    if (extent % p != 0 && p > extent / 2) continue;
    if (!has_its_own(s, dim, p)) add("mod", p);
    add("first", p), add("over", p);
  }
  if (dim > 0) add("back", 1);
  for (const std::int64_t p : {2, 4, 8, 16}) add("back", p);
}
Values maps_of_rows(Site s) {
  Values values;
  if (s.tensor.size(0) >= 2) add_maps(s, 0, values);
  return values;
}
Values maps_within_rows(Site s) {
  Values values;
  for (int d = 1; d < s.tensor.rank(); ++d)
    if (s.tensor.size(d) >= 2) add_maps(s, d, values);
  return values;
}
void at_another_index(Site s, To t) {
  const IndexMap map = IndexMap::of(word(s), s.tensor.shape());
  std::int64_t below = 1;
  for (int d = map.dim + 1; d < s.tensor.rank(); ++d) below *= s.tensor.size(d);
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    const std::int64_t index = i / below % map.extent, from = map(index);
    if (from == index) continue;
    quant::set_bits(t, i, from < 0 ? 0 : quant::get_bits(s.tensor, i + (from - index) * below));
  }
}
std::string index_in_words(Site s) {
  const IndexMap map = IndexMap::of(word(s), s.tensor.shape());
  return s.name + ": " + map.words(symbol_of(s, map.dim));
}
/// Along a dimension of the outputs whose indices do not depend on each other only these can be wrong.
std::optional<ChangedIndices> changed_by_map(Site s) {
  const IndexMap map = IndexMap::of(word(s), s.tensor.shape());
  ChangedIndices found{symbol_of(s, map.dim), std::vector<bool>(static_cast<std::size_t>(map.extent))};
  for (std::int64_t i = 0; i < map.extent; ++i) found.changed[static_cast<std::size_t>(i)] = map(i) != i;
  return found;
}

// ---- of all operands that have the dimension

const Fault& fault_called(std::string_view id) {
  return *std::find_if(axis_faults().begin(), axis_faults().end(), [&](const Fault& fault) { return fault.id == id; });
}
/// Inner dimensions first.
struct OneOperand {
  std::string_view id;
  Values (*maps)(Site);
};
constexpr std::array one_operand{OneOperand{"column-at-another-index", maps_within_rows}, OneOperand{"row-at-another-index", maps_of_rows}};
/// Those whose dimension is called so, one for each operand: `G over 2`.
std::vector<Placed> along(Site s, const std::string& text) {
  const std::size_t space = text.find(' ');
  const std::string symbol = text.substr(0, space), how = text.substr(space);
  std::vector<Placed> found;
  std::vector<FaultSite> operands = input_sites(s.call);
  for (const OneOperand& one : one_operand)
    for (FaultSite& operand : operands) {
      if (operand.taken || !has_dimensions(operand)) continue;
      for (const AttrValue& value : one.maps(operand)) {
        const std::string& own = std::get<std::string>(value);
        if (operand.taken || own.substr(own.find(' ')) != how || symbol_of(operand, std::stoi(own)) != symbol) continue;
        operand.taken = value;
        found.push_back({&fault_called(one.id), operand});
      }
    }
  return found;
}
/// Along a dimension of the outputs it would move these, which is seen without a run.
Values maps_of_every_operand(Site s) {
  std::vector<std::string> seen, twice;
  for (const OneOperand& one : one_operand)
    for (const FaultSite& operand : input_sites(s.call)) {
      if (!has_dimensions(operand)) continue;
      for (const AttrValue& value : one.maps(operand)) {
        const std::string &own = std::get<std::string>(value), symbol = symbol_of(operand, std::stoi(own));
        if (symbol.find(' ') != std::string::npos || of_an_output(s, symbol)) continue;
        const std::string text = symbol + own.substr(own.find(' '));
        if (std::find(seen.begin(), seen.end(), text) == seen.end()) {
          seen.push_back(text);
        } else if (std::find(twice.begin(), twice.end(), text) == twice.end()) {
          twice.push_back(text);
        }
      }
    }
  return {twice.begin(), twice.end()};
}
void every_operand_at_another_index(Site s, Arguments& inputs) {
  for (const Placed& placed : along(s, word(s))) inputs.set(placed.site.name, *inputs_with(placed).find(placed.site.name));
}
std::string every_index_in_words(Site s) {
  std::string names;
  const std::vector<Placed> all = along(s, word(s));
  for (const Placed& placed : all) names += (names.empty() ? "" : ", ") + placed.site.name;
  const IndexMap map = IndexMap::of(std::get<std::string>(*all.front().site.taken), all.front().site.tensor.shape());
  return names + ": " + map.words(word(s).substr(0, word(s).find(' ')));
}

// ---- exponents in words

/// Scales that are exponents, four in a word.
bool exponents_in_words(const FaultCase& call, const TensorSpec& spec) {
  const Tensor* const tensor = call.inputs.find(spec.name);
  return spec.direction == Direction::in && tensor != nullptr && tensor->defined() && tensor->dtype() == DType::i32 &&
         (spec.role == Role::scale || spec.storage.scales);
}
Values exponents_of_words(Site s) {
  Values values;
  std::size_t count = 0;
  for (const TensorSpec& spec : s.call.op.schema().tensors)
    if (exponents_in_words(s.call, spec)) values.emplace_back(spec.name), ++count;
  if (count >= 2) values.insert(values.begin(), std::string("all of them"));
  return values;
}
void first_of_each_word(Site s, Arguments& inputs) {
  for (const TensorSpec& spec : s.call.op.schema().tensors) {
    if (!exponents_in_words(s.call, spec) || (word(s) != "all of them" && word(s) != spec.name)) continue;
    const Tensor& words = *s.call.inputs.find(spec.name);
    const Tensor changed = make_strided(words.dtype(), words.shape(), words.strides());
    for (std::int64_t i = 0; i < words.elements(); ++i) quant::set_bits(changed, i, (quant::get_bits(words, i) & 255) * 0x01010101u);
    inputs.set(spec.name, changed);
  }
}
std::string word_in_words(Site s) {
  std::string names;
  for (const TensorSpec& spec : s.call.op.schema().tensors)
    if (exponents_in_words(s.call, spec) && (word(s) == "all of them" || word(s) == spec.name))
      names += (names.empty() ? "" : ", ") + spec.name;
  return names + ": the first of the four exponents in a word is used for all four groups";
}

// ---- groups of rows between offsets

struct Group {
  std::int64_t begin, end;
};
/// Offsets, and the operands that have as many rows as they end with; none of them an output.
struct Ragged {
  const TensorSpec* offsets;
  std::vector<std::string> operands;
};
std::int64_t number_at(const Tensor& numbers, std::int64_t i) {
  return static_cast<std::int64_t>(quant::get(numbers, i));
}
std::vector<Ragged> ragged_operands(const FaultCase& call) {
  std::vector<Ragged> found;
  for (const TensorSpec& spec : call.op.schema().tensors) {
    const Tensor* const offsets = call.inputs.find(spec.name);
    if (spec.direction != Direction::in || spec.role != Role::indptr || spec.bound.empty() || offsets == nullptr || !offsets->defined() ||
        offsets->rank() != 1 || offsets->size(0) < 2)
      continue;
    Ragged ragged{&spec, {}};
    bool fits = true;
    for (const TensorSpec& other : call.op.schema().tensors) {
      const Tensor* tensor = call.inputs.find(other.name);
      if (tensor == nullptr || !tensor->defined()) tensor = find(call.golden.outputs, other.name);
      if (tensor == nullptr || !tensor->defined() || tensor->rank() < 1) continue;
      const auto dims = dims_of(other.shape, tensor->rank());
      if (dims.empty() || dims.front() != spec.bound) continue;
      fits = fits && other.direction == Direction::in && !other.storage.code;
      ragged.operands.push_back(other.name);
    }
    if (fits && !ragged.operands.empty()) found.push_back(std::move(ragged));
  }
  return found;
}
/// What a request takes instead of its own rows; of the first and the last one, which have none before or behind them, their own.
Group taken_instead(const std::string& how, const Tensor& offsets, std::int64_t b) {
  const std::int64_t requests = offsets.elements() - 1, total = number_at(offsets, requests);
  const auto rows_of = [&](std::int64_t request) { return Group{number_at(offsets, request), number_at(offsets, request + 1)}; };
  const Group own = rows_of(b);
  if (how == "of the one before") return rows_of(std::max<std::int64_t>(b - 1, 0));
  if (how == "of the next") return rows_of(std::min(b + 1, requests - 1));
  if (how == "of the first") return rows_of(0);
  if (how == "of the last") return rows_of(requests - 1);
  if (how == "to the end") return {own.begin, total};
  if (how == "from the start") return {0, own.end};
  if (how == "none") return {own.begin, own.begin};
  if (how == "first left out") return {std::min(own.begin + 1, own.end), own.end};
  if (how == "last left out") return {own.begin, std::max(own.end - 1, own.begin)};
  if (how == "one more") return {own.begin, std::min(own.end + 1, total)};
  const std::int64_t p = std::stoll(how.substr(how.find(' ') + 1));
  if (how.starts_with("share")) return {own.begin, own.begin + (own.end - own.begin + p - 1) / p};
  if (how.starts_with("first")) return {own.begin, std::min(own.end, own.begin + p)};
  if (how.starts_with("last")) return {std::max(own.begin, own.end - p), own.end};
  return {own.begin, own.begin + (own.end - own.begin) / p * p};  // whole
}
Values other_groups(Site s) {
  Values values;
  for (const Ragged& ragged : ragged_operands(s.call)) {
    const Tensor& offsets = *s.call.inputs.find(ragged.offsets->name);
    std::int64_t longest = 0;
    for (std::int64_t b = 0; b + 1 < offsets.elements(); ++b)
      longest = std::max(longest, number_at(offsets, b + 1) - number_at(offsets, b));
    for (const char* const how : {"none", "first left out", "last left out", "to the end", "from the start", "one more",
                                  "of the one before", "of the next", "of the first", "of the last"})
      values.emplace_back(ragged.offsets->name + " " + how);
    for (const char* const share : {" share 2", " share 4", " share 8"}) values.emplace_back(ragged.offsets->name + share);
    for (const std::int64_t p : {16, 32, 64, 128, 256, 512})
      if (p < longest)
        for (const char* const how : {" first ", " last ", " whole "}) values.emplace_back(ragged.offsets->name + how + std::to_string(p));
  }
  return values;
}
void take_other_groups(Site s, Arguments& inputs) {
  const std::string name = first_of(word(s)), how = rest_of(word(s));
  for (const Ragged& ragged : ragged_operands(s.call)) {
    if (ragged.offsets->name != name) continue;
    const Tensor offsets = *s.call.inputs.find(name), changed = offsets.clone();
    const std::int64_t requests = offsets.elements() - 1;
    std::vector<std::int64_t> rows;
    std::vector<std::int64_t> before, after;
    for (std::int64_t b = 0; b < requests; ++b) {
      const Group own{number_at(offsets, b), number_at(offsets, b + 1)}, taken = taken_instead(how, offsets, b);
      quant::set(changed, b, static_cast<double>(rows.size()));
      for (std::int64_t row = taken.begin; row < taken.end; ++row) rows.push_back(row);
      before.push_back(own.end - own.begin), after.push_back(std::max<std::int64_t>(taken.end - taken.begin, 0));
    }
    quant::set(changed, requests, static_cast<double>(rows.size()));
    inputs.set(name, changed);
    for (const std::string& operand : ragged.operands) {
      const Tensor& tensor = *s.call.inputs.find(operand);
      const std::int64_t unit = tensor.elements() / std::max<std::int64_t>(tensor.size(0), 1);
      // What no request has stays behind the others', so that an operand is never empty.
      Dims shape = tensor.shape();
      shape[0] = std::max<std::int64_t>(static_cast<std::int64_t>(rows.size()), operand == name ? 0 : 1);
      const Tensor taken(tensor.dtype(), shape);
      for (std::int64_t i = 0; i < taken.elements(); ++i) {
        const auto row = static_cast<std::size_t>(i / unit);
        quant::set_bits(taken, i, quant::get_bits(tensor, (row < rows.size() ? rows[row] : 0) * unit + i % unit));
      }
      inputs.set(operand, taken);
    }
    // Lengths beside the offsets say the same.
    for (const TensorSpec& spec : s.call.op.schema().tensors) {
      const Tensor* const lengths = s.call.inputs.find(spec.name);
      if (lengths == nullptr || !lengths->defined() || !is_whole(lengths->dtype()) || lengths->elements() != requests) continue;
      bool same = true;
      for (std::int64_t b = 0; b < requests; ++b) same = same && number_at(*lengths, b) == before[static_cast<std::size_t>(b)];
      if (!same) continue;
      const Tensor other = lengths->clone();
      for (std::int64_t b = 0; b < requests; ++b) quant::set(other, b, static_cast<double>(after[static_cast<std::size_t>(b)]));
      inputs.set(spec.name, other);
    }
  }
}
std::string other_groups_in_words(Site s) {
  const std::string name = first_of(word(s)), how = rest_of(word(s));
  std::string operands;
  for (const Ragged& ragged : ragged_operands(s.call))
    if (ragged.offsets->name == name)
      for (const std::string& operand : ragged.operands) operands += (operands.empty() ? "" : ", ") + operand;
  const std::string of = operands + " by " + name + ": of each request ";
  if (how == "to the end") return of + "all rows to the end of the operand count, those of the requests behind it too";
  if (how == "from the start") return of + "all rows from the operand's start on count, those of the requests before it too";
  if (how == "none") return of + "no row counts: prefix, cache or keys are not looked at";
  if (how == "first left out") return of + "the first row (its first, oldest key) is left out";
  if (how == "last left out") return of + "the last row (its last, newest key) is left out";
  if (how == "one more") return of + "one row more counts, the next request's first";
  if (how.starts_with("of the")) return of + "not its own rows count but those " + how + " (another request's)";
  const std::string p = how.substr(how.find(' ') + 1);
  if (how.starts_with("share")) return of + "the first of " + p + " shares of the rows alone counts, as if every split had that one";
  if (how.starts_with("first")) return of + "the first " + p + " rows alone count";
  if (how.starts_with("last")) return of + "the last " + p + " rows alone count";
  return of + "whole tiles of " + p + " rows alone count: the last partial one is left out";
}

// ---- where a request's rows begin

/// Operands whose rows, and an output's, lie between the same offsets: it is the operand alone that is looked for elsewhere.
std::vector<Ragged> operands_beside_outputs(const FaultCase& call) {
  std::vector<Ragged> found;
  for (const TensorSpec& spec : call.op.schema().tensors) {
    const Tensor* const offsets = call.inputs.find(spec.name);
    if (spec.direction != Direction::in || spec.role != Role::indptr || offsets == nullptr || !offsets->defined() || offsets->rank() != 1 ||
        offsets->size(0) < 3)
      continue;
    const std::int64_t total = number_at(*offsets, offsets->elements() - 1);
    for (const TensorSpec& other : call.op.schema().tensors) {
      const Tensor* const tensor = call.inputs.find(other.name);
      if (other.direction != Direction::in || tensor == nullptr || !tensor->defined() || tensor->rank() < 2 || tensor->size(0) != total ||
          !is_float(tensor->dtype()) || tensor->elements() > most_elements)
        continue;
      const auto dims = dims_of(other.shape, tensor->rank());
      if (!dims.empty() && of_an_output(FaultSite{call}, dims.front())) found.push_back({&spec, {other.name}});
    }
  }
  return found;
}
/// -1 where that lies beyond the operand.
std::int64_t begin_instead(const std::string& how, const Tensor& offsets, std::int64_t b) {
  const std::int64_t requests = offsets.elements() - 1;
  std::int64_t longest = 0;
  for (std::int64_t r = 0; r < requests; ++r) longest = std::max(longest, number_at(offsets, r + 1) - number_at(offsets, r));
  if (how == "number") return b;
  if (how == "longest") return b * longest;
  if (how == "first") return 0;
  if (how == "before") return number_at(offsets, std::max<std::int64_t>(b - 1, 0));
  if (how == "next") return number_at(offsets, b + 1);
  return number_at(offsets, b) + (how == "later" ? 1 : -1);
}
constexpr const char* beginnings[] = {"number", "longest", "first", "before", "next", "later", "earlier"};
Values other_beginnings(Site s) {
  Values values;
  for (const Ragged& ragged : operands_beside_outputs(s.call))
    for (const char* const how : beginnings) values.emplace_back(ragged.offsets->name + " " + ragged.operands.front() + " " + how);
  return values;
}
void begin_elsewhere(Site s, Arguments& inputs) {
  const std::string name = first_of(word(s)), operand = first_of(rest_of(word(s))), how = rest_of(rest_of(word(s)));
  const Tensor &offsets = *s.call.inputs.find(name), &tensor = *s.call.inputs.find(operand), changed = tensor.clone();
  const std::int64_t unit = tensor.elements() / tensor.size(0);
  for (std::int64_t b = 0; b + 1 < offsets.elements(); ++b)
    for (std::int64_t row = number_at(offsets, b); row < number_at(offsets, b + 1); ++row) {
      const std::int64_t from = begin_instead(how, offsets, b) + row - number_at(offsets, b);
      for (std::int64_t i = 0; i < unit; ++i) {
        if (from < 0 || from >= tensor.size(0)) {
          quant::set(changed, row * unit + i, std::numeric_limits<double>::quiet_NaN());
        } else {
          quant::set_bits(changed, row * unit + i, quant::get_bits(tensor, from * unit + i));
        }
      }
    }
  inputs.set(operand, changed);
}
std::string beginnings_in_words(Site s) {
  const std::string name = first_of(word(s)), operand = first_of(rest_of(word(s))), how = rest_of(rest_of(word(s)));
  const std::string of = operand + ": by " + name + ", rows of request b are looked for from ";
  if (how == "number") return of + "row b on: a request's stride is taken for one row";
  if (how == "longest") return of + "b times the longest request on, as if all were as long";
  if (how == "first") return of + "the first row on, whatever request it is: no offset is added";
  if (how == "before") return of + "where the request before it begins";
  if (how == "next") return of + "where the request behind it begins";
  return of + "one row " + (how == "later" ? "too late" : "too early");
}

// ---- some of the keys

using How = KeysSeen::How;

bool has_attention(Site s) {
  return (s.call.golden.inner & static_cast<unsigned>(Inner::attention)) != 0;
}
struct WayToSee {
  const char* name;
  How how;
  const char* before;
  const char* behind;
};
constexpr std::array ways_to_see{
    WayToSee{"first", How::first, "the first ", " keys of each query alone count"},
    WayToSee{"last", How::last, "the last ", " keys of each query alone count"},
    WayToSee{"whole", How::whole_tiles, "keys in whole tiles of ", " alone count: a query's last partial tile is left out"},
    WayToSee{"behind", How::behind_first, "the first ", " keys of each query are left out"},
    WayToSee{"each", How::one_of_each, "of every ", " keys the first alone counts"},
    WayToSee{"share", How::one_share, "keys are dealt out in turn to as many shares as there are tiles of ",
             ", and the first share alone counts"},
};
/// `whole 64`, `values whole 64`.
KeysSeen seen_of(const std::string& text) {
  const std::string rest = text.starts_with("values ") ? rest_of(text) : text;
  for (const WayToSee& way : ways_to_see)
    if (first_of(rest) == way.name) return {way.how, std::stoll(rest_of(rest)), rest != text};
  return {How::more_or_fewer, std::stoll(rest_of(rest)), false};
}
Values some_keys(Site) {
  Values values;
  for (const char* const what : {"", "values "})
    for (const WayToSee& way : ways_to_see)
      for (const std::int64_t number : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512}) {
        const bool few = number < 16, fits = way.how == How::one_of_each    ? number >= 2 && number <= 8
                                             : way.how == How::behind_first ? number == 1 || !few
                                             : way.how == How::one_share    ? number == 64 || number == 128
                                             : way.how == How::whole_tiles  ? !few && number <= 128
                                                                            : !few;
        if (fits) values.emplace_back(what + std::string(way.name) + " " + std::to_string(number));
      }
  return values;
}
void see_some_keys(Site s, Flaw& flaw) {
  flaw.keys = seen_of(word(s));
}
std::string some_keys_in_words(Site s) {
  const KeysSeen seen = seen_of(word(s));
  for (const WayToSee& way : ways_to_see)
    if (way.how == seen.how)
      return (seen.values_alone ? "weighted values (the sum of the weights is whole): " : "attention: ") + std::string(way.before) +
             std::to_string(seen.number) + way.behind;
  return {};
}

// ---- a number of keys of each query's own

Values more_or_fewer(Site) {
  Values values;
  for (std::int64_t number = 1; number <= 24; ++number)
    values.emplace_back("by " + std::to_string(-number)), values.emplace_back("by " + std::to_string(number));
  return values;
}
std::string more_or_fewer_in_words(Site s) {
  const std::int64_t number = seen_of(word(s)).number;
  return std::to_string(std::abs(number)) + (number < 0 ? " fewer" : " more");
}

// ---- one value of a scale

bool scale_of_codes(Site s) {
  return s.spec->direction == Direction::in && (s.spec->role == Role::scale || s.spec->storage.scales) && is_code(s.tensor.dtype()) &&
         s.tensor.elements() <= most_elements;
}
/// `nan 128`: scales of 128 count as NaN; `zero`: those below the least normal number of their type count as zeros.
Values values_of_scales(Site s) {
  constexpr std::size_t few = 12;
  std::set<double> found;
  for (std::int64_t i = 0; i < s.tensor.elements() && found.size() <= few; ++i) found.insert(quant::get(s.tensor, i));
  Values values;
  if (s.tensor.dtype() != DType::f8_e8m0) values.emplace_back("zero");
  if (found.size() <= few)
    for (const double value : found)
      if (std::isfinite(value) && value != 0) values.emplace_back("nan " + to_string(AttrValue(value)));
  return values;
}
double least_normal(DType type) {
  return type == DType::f8_e5m2 ? 0x1p-14 : 0x1p-6;
}
void one_value_otherwise(Site s, To t) {
  const bool zero = word(s) == "zero";
  const double value = zero ? 0 : std::stod(rest_of(word(s))), least = least_normal(s.tensor.dtype());
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    const double x = quant::get(s.tensor, i);
    if (zero && std::fabs(x) < least) quant::set_bits(t, i, 0);
    if (!zero && x == value) quant::set(t, i, std::nan(""));
  }
}
std::string one_value_in_words(Site s) {
  if (word(s) == "zero") return s.name + ": denormal scales, without a leading bit, count as zero: they are flushed";
  return s.name + ": a scale of " + rest_of(word(s)) + " is taken for NaN: for the code that stands for none";
}

constexpr std::array table{
    Fault{.id = "column-at-another-index",
          .summary = "along an inner dimension of an operand another index is read, or none",
          .strikes = input,
          .severity = fine,
          .applies = has_dimensions,
          .spoil = at_another_index,
          .variants = maps_within_rows,
          .words = index_in_words,
          .changes = changed_by_map},
    Fault{.id = "row-at-another-index",
          .summary = "along the outermost dimension of an operand another index is read, or none",
          .strikes = input,
          .severity = fine,
          .applies = has_dimensions,
          .spoil = at_another_index,
          .variants = maps_of_rows,
          .words = index_in_words,
          .far = true,
          .changes = changed_by_map},
    Fault{.id = "every-operand-at-another-index",
          .summary = "along a dimension of several operands another index is read, or none",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = maps_of_every_operand,
          .recall = every_operand_at_another_index,
          .words = every_index_in_words,
          .far = true},
    Fault{.id = "first-exponent-of-each-word",
          .summary = "the first of the four exponents in a word is used for all of them",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = exponents_of_words,
          .recall = first_of_each_word,
          .words = word_in_words},
    Fault{.id = "other-rows-of-groups",
          .summary = "of the rows between two offsets others are taken",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = other_groups,
          .recall = take_other_groups,
          .words = other_groups_in_words,
          .far = true},
    Fault{.id = "rows-of-requests-begin-elsewhere",
          .summary = "an operand's rows of each request are looked for from another row on",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = other_beginnings,
          .recall = begin_elsewhere,
          .words = beginnings_in_words,
          .reads_beyond = true,
          .far = true},
    Fault{.id = "one-value-otherwise",
          .summary = "one value of a scale, or the denormal ones, are taken for NaN or zero",
          .strikes = input,
          .severity = fine,
          .applies = scale_of_codes,
          .spoil = one_value_otherwise,
          .variants = values_of_scales,
          .words = one_value_in_words},
    Fault{.id = "some-of-the-keys",
          .summary = "attention takes some of the keys that a query should see",
          .strikes = call,
          .severity = fine,
          .applies = has_attention,
          .variants = some_keys,
          .words = some_keys_in_words,
          .flaw = see_some_keys},
};
constexpr std::array rows_table{
    Fault{.id = "keys-more-or-fewer",
          .summary = "each query sees fewer or more keys than it should",
          .strikes = call,
          .severity = fine,
          .applies = has_attention,
          .variants = more_or_fewer,
          .words = more_or_fewer_in_words,
          .flaw = see_some_keys},
};

}  // namespace

std::span<const Fault> axis_faults() {
  return table;
}

std::span<const Fault> faults_by_row() {
  return rows_table;
}

}  // namespace dodona::oracle
