#include "ops/softmax/whole_heads.h"

#include <algorithm>
#include <vector>

#include "ops/base/index_at.h"
#include "quant/sizes.h"

namespace dodona::ops {
namespace {

/// Widths to which kernels give an order of their own, see triton_main_columns: narrower heads have none of it.
std::int64_t whole_width(std::int64_t width) {
  const std::int64_t whole = quant::align(width, 16);
  return whole == 192 || whole == 288 || whole == 576 ? whole + 16 : whole;
}
Dims whole_shape(const Tensor& t) {
  return {t.size(0), t.size(1), whole_width(t.size(2))};
}
std::byte* head(const Tensor& t, std::int64_t row, std::int64_t n) {
  return t.as<std::byte>() + (row * t.stride(0) + n * t.stride(1)) * bits(t.dtype()) / 8;
}
/// The elements that both have of each head.
void copy_heads(const Tensor& from, const Tensor& to) {
  const std::int64_t bytes = std::min(from.size(2), to.size(2)) * bits(from.dtype()) / 8;
  for (std::int64_t row = 0; row < to.size(0); ++row)
    for (std::int64_t n = 0; n < to.size(1); ++n) std::copy_n(head(from, row, n), bytes, head(to, row, n));
}
bool is_whole(const Tensor& t) {
  return t.size(2) % 16 == 0;
}
/// These slots of the pool, one behind the other.
Tensor copied_slots(const Tensor& pool, const std::vector<std::int64_t>& slots) {
  const Tensor copies(pool.dtype(),
                      {static_cast<std::int64_t>(slots.size()), pool.size(1), is_whole(pool) ? pool.size(2) : whole_width(pool.size(2))});
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    copy_heads(pool.slice(0, slots[i], slots[i] + 1), copies.slice(0, at, at + 1));
  }
  return copies;
}

}  // namespace

Tensor whole_heads(const Tensor& heads) {
  if (is_whole(heads)) return heads;
  const Tensor whole(heads.dtype(), whole_shape(heads));
  copy_heads(heads, whole);
  return whole;
}

Pools whole_pools(const Pools& pools, std::int64_t read) {
  if (is_whole(pools.keys) && is_whole(pools.values)) return pools;
  std::vector<std::int64_t> named(static_cast<std::size_t>(read));
  for (std::int64_t i = 0; i < read; ++i) named[static_cast<std::size_t>(i)] = index_at(pools.slots, i);
  const Tensor places(DType::i64, {read});
  std::vector<std::int64_t> each = named;
  std::sort(each.begin(), each.end());
  each.erase(std::unique(each.begin(), each.end()), each.end());
  for (std::int64_t i = 0; i < read; ++i)
    places.as<std::int64_t>()[i] = std::lower_bound(each.begin(), each.end(), named[static_cast<std::size_t>(i)]) - each.begin();
  return {copied_slots(pools.keys, each), copied_slots(pools.values, each), places};
}

Tensor whole_heads_of_output(const Tensor& out) {
  return is_whole(out) ? out : Tensor(out.dtype(), whole_shape(out));
}

void store_heads(const Tensor& whole, const Tensor& out) {
  if (!is_whole(out)) copy_heads(whole, out);
}

void attention_golden_of_heads(const Attention& attention, const Tensor& out, WeightSum sum, const Exec& exec, Reference* reference) {
  if (is_whole(out)) return attention_golden(attention, sum, exec, reference);
  Reference whole;
  attention_golden(attention, sum, exec, reference == nullptr ? nullptr : &whole);
  store_heads(attention.out, out);
  if (reference == nullptr) return;
  const ReferenceOutput& from = *whole.find(attention.out_name);
  ReferenceOutput& to = reference->output(attention.out_name, out.elements());
  const auto width = out.size(2), stride = attention.out.size(2);
  const auto take = [&](const auto& all, auto& some) {
    some.clear();
    for (auto first = all.begin(); first != all.end(); first += stride) some.insert(some.end(), first, first + width);
  };
  take(from.exact, to.exact);
  take(from.slack, to.slack);
  take(from.unspecified, to.unspecified);
}

}  // namespace dodona::ops
