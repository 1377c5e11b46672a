#include "ops/schemes/whole_moe/rows.h"

#include <cstring>
#include <span>

#include "core/threads.h"

namespace dodona::ops::whole_moe {

std::int64_t slots_of(const WholeMoe& moe) {
  return moe.routes.empty() ? 0 : static_cast<std::int64_t>(moe.routes.front().experts.size());
}

std::vector<Group> groups_of(const WholeMoe& moe) {
  const std::int64_t slots = slots_of(moe);
  std::vector<Group> all(static_cast<std::size_t>(moe.local_experts()));
  for (std::size_t t = 0; t < moe.routes.size(); ++t)
    for (std::size_t k = 0; k < moe.routes[t].experts.size(); ++k) {
      const std::int64_t expert = moe.routes[t].experts[k] - moe.first_expert;
      if (expert >= 0 && expert < moe.local_experts())
        all[static_cast<std::size_t>(expert)].pairs.push_back(static_cast<std::int64_t>(t) * slots + static_cast<std::int64_t>(k));
    }
  std::vector<Group> groups;
  std::int64_t first = 0;
  for (std::size_t e = 0; e < all.size(); ++e) {
    if (all[e].pairs.empty()) continue;
    all[e].expert = static_cast<std::int64_t>(e);
    all[e].first = first;
    first += all[e].rows();
    groups.push_back(std::move(all[e]));
  }
  return groups;
}

const Bounded& weight_of(const WholeMoe& moe, std::int64_t pair) {
  const std::int64_t slots = slots_of(moe);
  return moe.routes[static_cast<std::size_t>(pair / slots)].weights[static_cast<std::size_t>(pair % slots)];
}

DType code_of(MoeNumbers numbers) {
  switch (numbers) {
    case MoeNumbers::bf16: return DType::bf16;
    case MoeNumbers::f16: return DType::f16;
    case MoeNumbers::nvfp4: return DType::f4_e2m1;
    default: return DType::f8_e4m3;
  }
}

SortedRows room_for(MoeNumbers numbers, std::int64_t rows, std::int64_t k) {
  const bool tiles = numbers == MoeNumbers::nvfp4;
  return {code_of(numbers), tiles ? DType::f8_e4m3 : DType::f32,
          tiles                               ? fp4_block
          : numbers == MoeNumbers::fp8_blocks ? fp8_block
                                              : 0,
          rows, k};
}
SortedRows room_for(const Requantizer& becomes, std::int64_t rows, std::int64_t k) {
  return {becomes.code, becomes.scale, becomes.group, rows, k};
}

float encode_scale_of(const Tensor& scales, std::int64_t expert) {
  return scales.defined() ? scales.as<float>()[scales.elements() == 1 ? 0 : expert] : 1.0f;
}

namespace {

void copy_row(const WholeMoe& moe, std::int64_t token, std::int64_t row, SortedRows& sorted) {
  std::memcpy(sorted.row(row), moe.x.as<std::byte>() + token * sorted.row_bytes(), static_cast<std::size_t>(sorted.row_bytes()));
  if (sorted.scale_type != DType::f32) {
    std::memcpy(sorted.scale_row(row), moe.x_scales.as<std::byte>() + token * sorted.scale_bytes(),
                static_cast<std::size_t>(sorted.scale_bytes()));
  } else if (sorted.block > 0) {
    auto* const scales = reinterpret_cast<float*>(sorted.scale_row(row));
    for (std::int64_t b = 0; b < sorted.k / sorted.block; ++b) scales[b] = moe.x_scales.as<float>()[b * moe.tokens() + token];
  }
}

/// Quantizes a token for an expert. With `open`, how far honest implementations' numbers may lie from these.
void quantize_token(const WholeMoe& moe, std::int64_t expert, std::int64_t token, std::int64_t row, SortedRows& sorted, double* open,
                    const Exec& exec) {
  std::vector<float> x(static_cast<std::size_t>(sorted.k));
  quant::to_f32(moe.x.dtype(), moe.x.as<std::byte>() + token * sorted.k * bits(moe.x.dtype()) / 8, x.data(), sorted.k);
  Requantizer becomes = moe.scheme.rows_become;
  becomes.encode_scale = encode_scale_of(moe.rows_encode, expert);
  becomes.approximate = exec.mode == Mode::hopper;
  if (open == nullptr) {
    return requantize(becomes, std::span<const float>(x), RequantizedFloats{.codes = sorted.row(row), .scales = sorted.scale_row(row)},
                      exec.isa);
  }
  std::vector<Bounded> exact;
  for (const float value : x) exact.push_back({static_cast<double>(value)});
  requantize(becomes, exact, RequantizedRow{.codes = sorted.row(row), .scales = sorted.scale_row(row), .open = open + row * sorted.k});
}

}  // namespace

SortedRows gather(const WholeMoe& moe, const std::vector<Group>& groups, std::vector<double>* open, const Exec& exec) {
  const std::int64_t count = groups.empty() ? 0 : groups.back().first + groups.back().rows(), slots = slots_of(moe);
  SortedRows sorted = room_for(moe.scheme.numbers, count, moe.first.k);
  const bool comes_quantized = moe.scheme.rows_become.keeps();
  if (open != nullptr && !comes_quantized) open->resize(static_cast<std::size_t>(count * moe.first.k));
  for (const Group& group : groups)
    parallel_for(exec.threads, group.rows(), 4.0 * static_cast<double>(moe.first.k), [&](std::int64_t i) {
      const std::int64_t token = group.pairs[static_cast<std::size_t>(i)] / slots, row = group.first + i;
      if (comes_quantized) {
        copy_row(moe, token, row, sorted);
      } else {
        quantize_token(moe, group.expert, token, row, sorted, open != nullptr ? open->data() : nullptr, exec);
      }
    });
  return sorted;
}

}  // namespace dodona::ops::whole_moe
