// Faults of one of two passes: keys, or values, that are looked for at other tokens than the other pass has.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "core/flaw.h"
#include "core/storage.h"
#include "oracle/cases/window.h"
#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

// ---- one of two passes

/// Pools of keys and of values, which one list of slots, request by request, is of.
struct Pools {
  const TensorSpec *offsets = nullptr, *slots = nullptr;
  std::string keys, values;
};
std::optional<Pools> pools_of(Site s) {
  if ((s.call.golden.inner & static_cast<unsigned>(Inner::attention)) == 0) return std::nullopt;
  for (const TensorSpec& slots : s.call.op.schema().tensors) {
    const Tensor* const list = s.call.inputs.find(slots.name);
    if (slots.direction != Direction::in || slots.bound.empty() || list == nullptr || !list->defined() || list->rank() != 1 ||
        !is_whole(list->dtype()))
      continue;
    Pools pools{nullptr, &slots, {}, {}};
    const auto dims = dims_of(slots.shape, 1);
    for (const TensorSpec& spec : s.call.op.schema().tensors) {
      const Tensor* const tensor = s.call.inputs.find(spec.name);
      if (spec.direction != Direction::in || tensor == nullptr || !tensor->defined()) continue;
      if (spec.role == Role::indptr && !dims.empty() && spec.bound == dims.front()) pools.offsets = &spec;
      const auto own = dims_of(spec.shape, tensor->rank());
      if (tensor->rank() != 3 || own.empty() || own.front() != slots.bound || tensor->elements() > most_elements) continue;
      (pools.keys.empty() ? pools.keys : pools.values) = spec.name;
    }
    if (pools.offsets != nullptr && !pools.values.empty()) return pools;
  }
  return std::nullopt;
}
/// `values blocks 192 128`: of each 192 keys the values are looked for in blocks of 128, and those behind them are left out;
/// `values shifted 1`: that of the next token.
Values one_pass_otherwise(Site s) {
  const auto pools = pools_of(s);
  if (!pools) return {};
  Values values;
  const std::int64_t wide = s.call.inputs.find(pools->keys)->size(2), narrow = s.call.inputs.find(pools->values)->size(2);
  for (const char* const which : {"values", "keys"}) {
    const std::string pass = which;
    if (wide > narrow) values.emplace_back(pass + " blocks " + std::to_string(wide) + " " + std::to_string(narrow));
    for (const char* const step : {" shifted 1", " shifted -1"}) values.emplace_back(pass + step);
    for (const std::int64_t tile : {16, 32, 64, 128, 256})
      for (const char* const how : {" mod ", " next "}) values.emplace_back(pass + how + std::to_string(tile));
  }
  return values;
}
/// Which token of a request with so many is taken; -1 for none.
std::int64_t token_taken(const std::string& how, std::int64_t i, std::int64_t count) {
  const std::string numbers = rest_of(how);
  const std::int64_t n = std::stoll(numbers);
  if (how.starts_with("blocks")) {
    const std::int64_t narrow = std::stoll(rest_of(numbers));
    return i % n < narrow ? i / n * narrow + i % n : -1;
  }
  if (how.starts_with("mod")) return i % n;
  if (how.starts_with("next")) return i + n < count ? i + n : i;
  return std::clamp<std::int64_t>(i + n, 0, count - 1);
}
void take_in_one_pass(Site s, Arguments& inputs) {
  const Pools pools = *pools_of(s);
  const std::string which = first_of(word(s)), how = rest_of(word(s));
  const Tensor &slots = *s.call.inputs.find(pools.slots->name), &offsets = *s.call.inputs.find(pools.offsets->name);
  const std::int64_t total = slots.elements();
  const Tensor in_order(slots.dtype(), {total});
  for (std::int64_t i = 0; i < total; ++i) quant::set(in_order, i, static_cast<double>(i));
  for (const bool of_values : {false, true}) {
    const Tensor& pool = *s.call.inputs.find(of_values ? pools.values : pools.keys);
    const std::int64_t unit = pool.size(1) * pool.size(2);
    const Tensor rows(pool.dtype(), {std::max<std::int64_t>(total, 1), pool.size(1), pool.size(2)});
    for (std::int64_t i = 0; i < rows.elements(); ++i) quant::set_bits(rows, i, 0);
    for (std::int64_t b = 0; b + 1 < offsets.elements(); ++b) {
      const auto begin = static_cast<std::int64_t>(quant::get(offsets, b)),
                 count = static_cast<std::int64_t>(quant::get(offsets, b + 1)) - begin;
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t token = (which == "values") == of_values ? token_taken(how, i, count) : i;
        if (token < 0) continue;
        const auto slot = static_cast<std::int64_t>(quant::get(slots, begin + token));
        for (std::int64_t k = 0; k < unit; ++k) quant::set_bits(rows, (begin + i) * unit + k, quant::get_bits(pool, slot * unit + k));
      }
    }
    inputs.set(of_values ? pools.values : pools.keys, rows);
  }
  inputs.set(pools.slots->name, in_order);
}
std::string one_pass_in_words(Site s) {
  const Pools pools = *pools_of(s);
  const std::string how = rest_of(word(s)), n = first_of(rest_of(how));
  const std::string of = (first_of(word(s)) == "values" ? pools.values + ": in the pass over the values, not in that over the keys, "
                                                        : pools.keys + ": in the pass over the keys, not in that over the values, ");
  if (how.starts_with("blocks"))
    return of + "a request's tokens are walked in blocks of " + rest_of(rest_of(how)) +
           ", as wide as they are, where the other pass has blocks of " + n;
  if (how.starts_with("mod")) return of + "every tile of " + n + " tokens is the request's first";
  if (how.starts_with("next")) return of + "each tile of " + n + " tokens is the next one";
  return of + (n == "1" ? "the next token's are taken" : "those of the token before are taken");
}

constexpr std::array table{
    Fault{.id = "one-pass-otherwise",
          .summary = "keys, or values, alone are looked for at other tokens of their request",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = one_pass_otherwise,
          .recall = take_in_one_pass,
          .words = one_pass_in_words,
          .far = true},
};

}  // namespace

std::span<const Fault> pass_faults() {
  return table;
}

}  // namespace dodona::oracle
