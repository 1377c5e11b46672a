// Faults of limits: lengths one too large, filters that keep everything, windows that reach ahead.
#include <array>
#include <optional>
#include <string>

#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

// ---- lengths

bool lengths_of_requests(Site s) {
  const Category category = s.call.op.info().category;
  return s.spec->direction == Direction::in && is_whole(s.tensor.dtype()) && s.tensor.rank() == 1 && s.tensor.size(0) >= 2 &&
         (s.spec->role == Role::lengths || s.spec->role == Role::positions) &&
         (category == Category::attention || category == Category::nsa);
}
/// Of every request, where there is room: the longest too.
void one_more(Site, To t) {
  each(t, [](double x) { return x + 1; });
}

// ---- filters

bool number_of_kept(Site s) {
  return s.call.op.info().category == Category::sampling && std::holds_alternative<std::int64_t>(s.value) &&
         s.name.find("top_k") != std::string::npos;
}
Values all_of_a_row(Site s) {
  for (const TensorSpec& spec : s.call.op.schema().tensors)
    if (const Tensor* const tensor = s.call.inputs.find(spec.name);
        (spec.role == Role::probs || spec.role == Role::logits) && tensor != nullptr && tensor->defined() && tensor->rank() >= 1)
      return {tensor->size(-1)};
  return {};
}

// ---- windows

/// New tokens of requests behind a prefix, which see keys near themselves, of an op that takes masks as well.
struct Windows {
  Tensor queries, prefixes;  ///< offsets
  std::int64_t width;

  std::int64_t requests() const { return queries.elements() - 1; }
  static std::int64_t at(const Tensor& offsets, std::int64_t b) { return static_cast<std::int64_t>(quant::get(offsets, b)); }
  std::int64_t fresh(std::int64_t b) const { return at(queries, b + 1) - at(queries, b); }
  std::int64_t keys(std::int64_t b) const { return fresh(b) + at(prefixes, b + 1) - at(prefixes, b); }
};
std::optional<Windows> windows_of(Site s) {
  const OpSchema& schema = s.call.op.schema();
  const AttrValue* const width = s.call.inputs.find_attr("sliding_window_size");
  const Tensor* const queries = s.call.inputs.find("qo_indptr");
  const Tensor* const prefixes = s.call.inputs.find("kv_indptr");
  const Tensor* const mask = s.call.inputs.find("custom_mask");
  if (schema.find_tensor("custom_mask") == nullptr || schema.find_tensor("mask_indptr") == nullptr ||
      schema.find_attr("skip_prefix_custom_mask") == nullptr || (mask != nullptr && mask->defined()) || width == nullptr ||
      queries == nullptr || prefixes == nullptr || queries->elements() != prefixes->elements())
    return std::nullopt;
  const auto keys = std::get<std::int64_t>(*width);
  if (keys <= 0) return std::nullopt;
  Windows found{*queries, *prefixes, keys};
  // Behind its block of queries, of which the narrower have more, a kernel loads no more for one with a mask.
  constexpr std::int64_t most = std::int64_t{1} << 24;
  const Tensor* const query = s.call.inputs.find("q_extend");
  const std::int64_t least_block = query != nullptr && query->rank() == 3 && query->size(2) <= 256 ? 128 : 32;
  std::int64_t numbers = 0;
  for (std::int64_t b = 0; b < found.requests(); ++b) {
    if (found.fresh(b) > least_block) return std::nullopt;
    numbers += found.fresh(b) * found.keys(b);
  }
  return numbers <= most ? std::optional(found) : std::nullopt;
}
Values windows_ahead(Site s) {
  if (!windows_of(s)) return {};
  return {std::string("both sides"), std::string("ahead alone"), std::string("beyond"), std::string("new alone"),
          std::string("prefix alone")};
}
void look_ahead(Site s, Arguments& inputs) {
  const Windows windows = *windows_of(s);
  const Tensor begins(DType::i64, {windows.requests() + 1});
  std::int64_t total = 0;
  for (std::int64_t b = 0; b < windows.requests(); ++b) {
    quant::set(begins, b, static_cast<double>(total));
    total += windows.fresh(b) * windows.keys(b);
  }
  quant::set(begins, windows.requests(), static_cast<double>(total));
  const Tensor mask(DType::u8, {total});
  for (std::int64_t b = 0, i = 0; b < windows.requests(); ++b)
    for (std::int64_t q = 0; q < windows.fresh(b); ++q)
      for (std::int64_t j = 0; j < windows.keys(b); ++j, ++i) {
        const std::int64_t own = windows.keys(b) - windows.fresh(b) + q;
        const bool near = j >= own - windows.width, ahead = j <= own + windows.width;
        const bool past = j <= own, prefix = j < windows.keys(b) - windows.fresh(b);
        quant::set(mask, i,
                   word(s) == "both sides"    ? near && ahead
                   : word(s) == "ahead alone" ? ahead
                   : word(s) == "beyond"      ? past || !ahead
                   : word(s) == "new alone"   ? past && (near || prefix)
                                              : past && (near || !prefix));
      }
  inputs.set("custom_mask", mask);
  inputs.set("mask_indptr", begins);
  inputs.set_attr("skip_prefix_custom_mask", false);
  inputs.set_attr("sliding_window_size", std::int64_t{-1});
}
std::string windows_in_words(Site s) {
  const std::string width = std::to_string(windows_of(s)->width);
  if (word(s) == "both sides")
    return "the window reaches as far ahead of a query as behind it: keys of the future are seen, " + width + " of them";
  if (word(s) == "ahead alone")
    return "the window bounds what lies ahead of a query, " + width + " keys, and not what lies behind: nothing of the past is hidden";
  if (word(s) == "new alone")
    return "the window of " + width + " keys is looked at among the new tokens alone: nothing of the prefix is hidden, masked";
  if (word(s) == "prefix alone")
    return "the window of " + width + " keys is looked at over the prefix alone: of the new tokens before a query none is hidden";
  return "the window is cut out on the wrong side: nothing of the past is hidden, and keys more than " + width +
         " ahead of a query are seen";
}

constexpr std::array table{
    Fault{.id = "every-length-one-more",
          .summary = "every length is one too large: a mask off by one, each query sees one key more",
          .strikes = input,
          .severity = fine,
          .applies = lengths_of_requests,
          .spoil = one_more},
    Fault{.id = "filter-not-applied",
          .summary = "everything is kept, nothing is cut",
          .strikes = attribute,
          .severity = fine,
          .applies = number_of_kept,
          .variants = all_of_a_row},
    Fault{.id = "window-ahead",
          .summary = "a window of keys reaches ahead of the query",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = windows_ahead,
          .recall = look_ahead,
          .words = windows_in_words},
};

}  // namespace

std::span<const Fault> limit_faults() {
  return table;
}

}  // namespace dodona::oracle
