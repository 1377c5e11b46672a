#include "ops/softmax/layouts/mla_decode.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>

#include "dodona/error.h"
#include "quant/sizes.h"

namespace dodona::ops {

MlaAttention::MlaAttention(const MlaDecode& decode) : decode_(decode) {
  rows = decode.q_nope.size(0) * decode.q_nope.size(1);
  heads = decode.q_nope.size(2);
  key_width = mla_width;
  value_width = mla_latent;
  values_in_keys = true;
  type = decode.cache.dtype();
  scale = decode.scale;
  out_scale = decode.out_scale;
  out = decode.out;
  lse = decode.lse;
  for (std::int64_t row = 0; decode.chosen && row < rows; ++row) {
    const auto* const tokens = decode.page_table.as<const std::int32_t>() + row * decode.page_table.size(2);
    std::copy_if(tokens, tokens + decode.page_table.size(2), std::back_inserter(lists_.emplace_back()),
                 [](std::int32_t t) { return t >= 0; });
  }
  if (!decode.flash_mla) return;
  natural_lse = true;
  lse_step = decode.q_nope.size(1);
  lse_of_none = std::numeric_limits<double>::infinity();
}

std::int64_t MlaAttention::lse_row(std::int64_t row) const {
  const std::int64_t queries = decode_.q_nope.size(1);
  return decode_.flash_mla ? row / queries * heads * queries + row % queries : out_row(row);
}

std::int64_t MlaAttention::visible(std::int64_t row) const {
  if (decode_.chosen) return static_cast<std::int64_t>(lists_[static_cast<std::size_t>(row)].size());
  const std::int64_t queries = decode_.q_nope.size(1), length = decode_.seq_lens.as<std::int32_t>()[row / queries];
  return decode_.causal ? std::max<std::int64_t>(0, length - queries + 1 + (decode_.as_first ? 0 : row % queries)) : length;
}

bool MlaAttention::open_for_none(std::int64_t row) const {
  return decode_.empty_is_open && decode_.seq_lens.as<std::int32_t>()[row / decode_.q_nope.size(1)] == 0;
}

QueryParts MlaAttention::queries(std::int64_t row) const {
  const auto part = [&](const Tensor& q) {
    const std::int64_t offset = row / q.size(1) * q.stride(0) + row % q.size(1) * q.stride(1), bytes = bits(q.dtype()) / 8;
    return QueryPart{q.as<const std::byte>() + offset * bytes, q.stride(2) * bytes, q.size(3)};
  };
  return {part(decode_.q_nope), part(decode_.q_pe)};
}

void MlaAttention::list(std::int64_t row, std::int64_t first, std::int64_t count, const std::byte** keys, const std::byte**) const {
  const std::int64_t page_size = decode_.cache.size(1), row_bytes = bytes_for(decode_.cache.dtype(), mla_width);
  if (decode_.chosen) {
    const auto* const tokens = lists_[static_cast<std::size_t>(row)].data() + first;
    for (std::int64_t i = 0; i < count; ++i) keys[i] = decode_.cache.as<const std::byte>() + tokens[i] * row_bytes;
    return;
  }
  const auto* const pages = decode_.page_table.as<const std::int32_t>() + row / decode_.q_nope.size(1) * decode_.page_table.size(1);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t j = first + i;
    keys[i] = decode_.cache.as<const std::byte>() + (pages[j / page_size] * page_size + j % page_size) * row_bytes;
  }
}

double MlaAttention::bytes_read() const {
  double tokens = 0;
  for (const auto& list : lists_) tokens += static_cast<double>(list.size());
  for (std::int64_t b = 0; !decode_.chosen && b < decode_.seq_lens.size(0); ++b)
    tokens += static_cast<double>(decode_.seq_lens.as<std::int32_t>()[b]);
  const double row = static_cast<double>(bytes_for(decode_.cache.dtype(), mla_width));
  return row * (tokens + static_cast<double>(rows * heads));
}

void check_mla_pages(const MlaDecode& call, std::string_view table_name) {
  const std::int64_t pages = call.cache.size(0), page_size = call.cache.size(1), width = call.page_table.size(1);
  if (call.chosen) {
    for (std::int64_t i = 0; i < call.page_table.elements(); ++i)
      if (const std::int32_t token = call.page_table.as<std::int32_t>()[i]; token >= pages * page_size)
        throw Error(ErrorCode::bad_value, "", std::string(table_name),
                    "holds token " + std::to_string(token) + " at element " + std::to_string(i) + ", expected below " +
                        std::to_string(pages * page_size) + ", the rows of " + std::to_string(pages) + " pages of " +
                        std::to_string(page_size));
    return;
  }
  for (std::int64_t b = 0; b < call.seq_lens.size(0); ++b) {
    const std::int64_t used = quant::ceil_div(call.seq_lens.as<std::int32_t>()[b], page_size);
    for (std::int64_t i = 0; i < used; ++i) {
      const std::int64_t page = call.page_table.as<std::int32_t>()[b * width + i];
      if (page < 0 || page >= pages)
        throw Error(ErrorCode::bad_value, "", std::string(table_name),
                    "holds page " + std::to_string(page) + " at [" + std::to_string(b) + ", " + std::to_string(i) + "], expected 0 to " +
                        std::to_string(pages - 1) + ": sequence " + std::to_string(b) + " has " +
                        std::to_string(call.seq_lens.as<std::int32_t>()[b]) + " tokens in pages of " + std::to_string(page_size));
    }
  }
}

ScoreErrors flash_mla_score_errors(DType type, double scale) {
  return ScoreErrors::of_rounded_maximum(mla_width, type, scale);
}

void check_mla_scale(double scale, std::string_view name) {
  const float narrow = static_cast<float>(scale);
  if (!(narrow > 0) || !std::isfinite(narrow))
    throw Error(ErrorCode::bad_value, "", std::string(name), "must be positive and finite in fp32, got " + to_string(AttrValue(scale)));
}

}  // namespace dodona::ops
