#include "ops/routing/topk_call.h"

#include <algorithm>
#include <string>

#include "core/threads.h"
#include "dodona/error.h"
#include "ops/base/rows.h"
#include "ops/routing/scores.h"
#include "quant/element.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {

std::vector<float> bias_row(const Tensor& bias, std::int64_t experts) {
  return bias.defined() ? router_row(bias, 0, experts) : std::vector<float>(static_cast<std::size_t>(experts), 0.0f);
}

void fast_topk_rows(const Tensor& input, const Tensor& bias, const Tensor& weights, const Tensor& ids, const Exec& exec,
                    const TopkRows& how) {
  constexpr std::int64_t block_rows = 8;
  const std::int64_t rows = input.size(0);
  const int bytes = bits(input.dtype()) / 8;
  parallel_for(exec.threads, (rows + block_rows - 1) / block_rows, static_cast<double>(block_rows * 4 * input.size(1)),
               [&](std::int64_t block) {
                 const std::int64_t first = block * block_rows;
                 TopkRows call = how;
                 call.input = row_begin(input, first, bytes);
                 call.bias = bias.defined() ? bias.as<const float>() : nullptr;
                 call.weights = weights.as<float>() + row_offset(weights, first);
                 call.ids = ids.as<std::int32_t>() + row_offset(ids, first);
                 call.rows = std::min(block_rows, rows - first);
                 call.input_stride = input.stride(0) * bytes;
                 call.weights_stride = weights.stride(0);
                 call.ids_stride = ids.stride(0);
                 call.type = input.dtype();
                 call.experts = static_cast<int>(input.size(1));
                 call.chosen = static_cast<int>(weights.size(1));
                 dispatch<TopkRowsKernel>(exec.isa, call);
               });
}

void put_picks(const Tensor& weights, const Tensor& ids, std::int64_t t, std::span<const Pick> picks, bool renormalize) {
  namespace hw = quant::hopper;
  float sum = 0;
  for (const Pick& pick : picks) sum = hw::add(sum, pick.value);
  const float reciprocal = hw::rcp(sum);
  for (std::size_t k = 0; k < picks.size(); ++k) {
    const std::int64_t at = t * static_cast<std::int64_t>(picks.size()) + static_cast<std::int64_t>(k);
    quant::set(weights, at, renormalize ? hw::mul(picks[k].value, reciprocal) : picks[k].value);
    quant::set(ids, at, static_cast<double>(picks[k].expert));
  }
}

void require_enough_experts(std::int64_t topk, std::int64_t experts) {
  if (topk > experts)
    throw Error(ErrorCode::bad_shape, "", "topk_weights",
                "has " + std::to_string(topk) + " columns, expected at most one for each of the " + std::to_string(experts) + " experts");
}

}  // namespace dodona::ops
