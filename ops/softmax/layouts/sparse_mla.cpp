#include "ops/softmax/layouts/sparse_mla.h"

#include <limits>

#include "ops/rows/cache/k_cache_row.h"
#include "ops/softmax/layouts/mla_decode.h"

namespace dodona::ops {

SparseMlaAttention::SparseMlaAttention(const SparseMla& call) : call_(call) {
  rows = call.q.size(0) * call.q.size(1);
  heads = call.q.size(2);
  key_width = mla_width;
  value_width = mla_latent;
  values_in_keys = true;
  key_rows = call.key_rows;
  scale = call.scale;
  out = call.out;
  lse = call.lse;
  top = call.top;
  if (call.flash_mla) {
    natural_lse = true;
    lse_step = call.q.size(1);
    lse_of_none = std::numeric_limits<double>::infinity();
  }
  first_.push_back(0);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int32_t* const named = call.indices.as<const std::int32_t>() + row / call.indices.size(1) * call.indices.stride(0) +
                                      row % call.indices.size(1) * call.indices.stride(1);
    for (std::int64_t i = 0; i < call.indices.size(2); ++i)
      if (slot_of(named[i], call.cache_rows) >= 0) slots_.push_back(named[i]);
    first_.push_back(static_cast<std::int64_t>(slots_.size()));
  }
}

std::int64_t SparseMlaAttention::lse_row(std::int64_t row) const {
  const std::int64_t queries = call_.q.size(1);
  return call_.flash_mla ? row / queries * heads * queries + row % queries : out_row(row);
}

std::int64_t SparseMlaAttention::visible(std::int64_t row) const {
  return first_[static_cast<std::size_t>(row) + 1] - first_[static_cast<std::size_t>(row)];
}

QueryParts SparseMlaAttention::queries(std::int64_t row) const {
  const Tensor& q = call_.q;
  const std::int64_t offset = row / q.size(1) * q.stride(0) + row % q.size(1) * q.stride(1), bytes = bits(q.dtype()) / 8;
  return {QueryPart{q.as<const std::byte>() + offset * bytes, q.stride(2) * bytes, mla_width}, QueryPart{}};
}

void SparseMlaAttention::list(std::int64_t row, std::int64_t first, std::int64_t count, const std::byte** keys, const std::byte**) const {
  const std::int32_t* const slots = slots_.data() + first_[static_cast<std::size_t>(row)] + first;
  for (std::int64_t i = 0; i < count; ++i) keys[i] = call_.cache + slots[i] * call_.cache_stride;
}

double SparseMlaAttention::bytes_read() const {
  const double row = static_cast<double>(key_rows == KeyRows::k_cache ? k_cache_row_bytes : 2 * mla_width);
  return row * static_cast<double>(slots_.size()) + static_cast<double>(rows * heads * 2 * mla_width);
}

}  // namespace dodona::ops
