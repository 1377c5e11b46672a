#include "ops/softmax/layouts/paged_mla.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "ops/softmax/layouts/mla_decode.h"
#include "quant/element.h"

namespace dodona::ops {
namespace {

const std::byte* row_of(const Tensor& t, std::int64_t i, std::int64_t j) {
  return t.as<const std::byte>() + (i * t.stride(0) + j * t.stride(1)) * (bits(t.dtype()) / 8);
}

}  // namespace

PagedMlaAttention::PagedMlaAttention(const PagedMla& call) : call_(call) {
  const auto* const ends = call.query_offsets.as<const std::int32_t>();
  const auto* const lengths = call.lengths.as<const std::int32_t>();
  const std::int64_t requests = call.lengths.size(0), element = bits(call.ckv.dtype()) / 8;
  const bool in_fp8 = call.ckv.dtype() == DType::f8_e4m3;
  for (std::int64_t b = 0; b < requests; ++b)
    for (std::int64_t i = ends[b]; i < ends[b + 1]; ++i)
      rows_.push_back(
          {b, call.causal ? std::max<std::int64_t>(0, lengths[b] - (ends[b + 1] - (call.as_first ? ends[b] : i)) + 1) : lengths[b]});
  rows = static_cast<std::int64_t>(rows_.size());
  heads = call.q_nope.size(1);
  key_width = mla_width;
  value_width = mla_latent;
  values_in_keys = true;
  type = call.q_nope.dtype();
  scale = call.scale;
  out = call.out;
  lse = call.lse;
  const bool one_pool = !in_fp8 && call.kpe.as<const std::byte>() == call.ckv.as<const std::byte>() + mla_latent * element &&
                        call.ckv.stride(0) == call.kpe.stride(0) && call.ckv.stride(1) == call.kpe.stride(1);
  for (std::int64_t b = 0; !one_pool && b < requests; ++b) {
    const Tensor& copy = copies_.emplace_back(type, Dims{lengths[b], mla_width});
    for (std::int64_t j = 0; j < lengths[b]; ++j) {
      const Place at = place(b, j);
      if (in_fp8) {
        widen(at, copy.as<std::uint16_t>() + j * mla_width);
        continue;
      }
      std::byte* const to = copy.as<std::byte>() + j * mla_width * element;
      std::memcpy(to, row_of(call.ckv, at.page, at.slot), static_cast<std::size_t>(mla_latent * element));
      std::memcpy(to + mla_latent * element, row_of(call.kpe, at.page, at.slot), static_cast<std::size_t>(mla_rope * element));
    }
  }
}

void PagedMlaAttention::widen(const Place& at, std::uint16_t* row) const {
  std::array<float, static_cast<std::size_t>(mla_width)> values;
  quant::to_f32(call_.ckv.dtype(), row_of(call_.ckv, at.page, at.slot), values.data(), mla_latent);
  quant::to_f32(call_.kpe.dtype(), row_of(call_.kpe, at.page, at.slot), values.data() + mla_latent, mla_rope);
  const auto in_bf16 = [](float x) { return static_cast<float>(quant::round_to(DType::bf16, static_cast<double>(x))); };
  const Tensor& scales = call_.ckv_scales;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto column = static_cast<std::int64_t>(i);
    const float factor = column >= mla_latent ? in_bf16(call_.kpe_scale)
                         : scales.defined()   ? scales.as<const float>()[(at.page * scales.size(1) + at.slot) * 4 + column / 128]
                                              : in_bf16(call_.ckv_scale);
    constexpr float of_nan_code = 480;
    if (call_.nan_codes_count && std::isnan(values[i])) values[i] = std::copysign(of_nan_code, values[i]);
    values[i] *= factor;
  }
  quant::from_f32(DType::bf16, values.data(), row, mla_width);
}

PagedMlaAttention::Place PagedMlaAttention::place(std::int64_t request, std::int64_t token) const {
  const std::int64_t page_size = call_.ckv.size(1);
  const std::int64_t first = call_.page_offsets.as<const std::int32_t>()[request];
  return {call_.pages.as<const std::int32_t>()[first + token / page_size], token % page_size};
}

std::int64_t PagedMlaAttention::visible(std::int64_t row) const {
  return rows_[static_cast<std::size_t>(row)].visible;
}

bool PagedMlaAttention::open_for_none(std::int64_t row) const {
  return call_.lengths.as<const std::int32_t>()[rows_[static_cast<std::size_t>(row)].request] > 0;
}

QueryParts PagedMlaAttention::queries(std::int64_t row) const {
  const auto part = [&](const Tensor& q) { return QueryPart{row_of(q, row, 0), q.stride(1) * (bits(q.dtype()) / 8), q.size(2)}; };
  return {part(call_.q_nope), part(call_.q_pe)};
}

void PagedMlaAttention::list(std::int64_t row, std::int64_t first, std::int64_t count, const std::byte** keys, const std::byte**) const {
  const std::int64_t request = rows_[static_cast<std::size_t>(row)].request;
  for (std::int64_t i = 0; i < count; ++i) {
    if (!copies_.empty()) {
      const Tensor& copy = copies_[static_cast<std::size_t>(request)];
      keys[i] = copy.as<const std::byte>() + (first + i) * bytes_for(type, mla_width);
    } else {
      const Place at = place(request, first + i);
      keys[i] = row_of(call_.ckv, at.page, at.slot);
    }
  }
}

}  // namespace dodona::ops
