#include "ops/softmax/flashinfer/paged_mla_fa2.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "core/threads.h"
#include "ops/softmax/flashinfer/fa2_schedule.h"
#include "ops/softmax/flashinfer/merged_state.h"
#include "ops/softmax/flashinfer/online_rows.h"
#include "ops/softmax/layouts/mla_decode.h"
#include "ops/softmax/triton/arithmetic.h"
#include "quant/element.h"
#include "quant/hopper/fast_math.h"
#include "quant/sizes.h"

namespace dodona::ops {
namespace {

namespace hw = quant::hopper;
using quant::ceil_div;

constexpr std::int64_t block_rows = 64;
constexpr float infinity = std::numeric_limits<float>::infinity();
using Codes = std::vector<std::uint16_t>;

/// Counts of keys as kernels have them, modulo 2^32.
using Count = std::uint32_t;

PagedMla numbers_of_codes(PagedMla call) {
  call.nan_codes_count = true;
  return call;
}

/// What all blocks share.
struct Kernel {
  Kernel(const PagedMla& mla, const Fa2Mla& chosen, Isa which)
      : call(mla),
        keys(numbers_of_codes(mla)),
        plan(chosen),
        heads(mla.q_nope.size(1)),
        tile(mla.ckv.dtype() == DType::f8_e4m3 ? 32 : 64),
        sums(mla.ckv.dtype() == DType::f8_e4m3 ? 1 : 2),
        sigma(hw::mul(static_cast<float>(mla.scale), hw::log2_e)),
        isa(which) {}

  const PagedMla& call;
  PagedMlaAttention keys;
  Fa2Mla plan;
  std::int64_t heads, tile, sums;
  float sigma;
  Isa isa;
};

class Block {
 public:
  Block(const Kernel& kernel, std::int64_t first_token, const Fa2Request& request, std::int64_t tile, std::int64_t first)
      : kernel_(kernel),
        type_(kernel.call.q_nope.dtype()),
        first_token_(first_token),
        request_(request),
        tile_(tile),
        first_(first),
        rows_(std::min(block_rows, request.queries * kernel.heads - first)) {
    for (std::int64_t i = 0; i < rows_; ++i)
      for (const Tensor* part : {&kernel.call.q_pe, &kernel.call.q_nope}) {
        const auto* const from = part->as<const std::uint16_t>() + token(i) * part->stride(0) + head(i) * part->stride(1);
        queries_.insert(queries_.end(), from, from + part->size(2));
      }
  }

  void run() const {
    const std::int64_t needed = fa2_mla_keys(kernel_.plan, request_, kernel_.heads, tile_, kernel_.call.causal);
    std::vector<OnlineRows> parts;
    for (std::int64_t begin = 0; begin < std::max<std::int64_t>(needed, 1); begin += kernel_.plan.keys_of_split)
      parts.push_back(part(begin, std::min(begin + kernel_.plan.keys_of_split, needed)));
    const auto lse_of = [&](std::int64_t s, std::int64_t i) {
      const OnlineRows& state = parts[static_cast<std::size_t>(s)];
      return state.empty(i) ? -infinity : state.lse(i);
    };
    for (std::int64_t i = 0; i < rows_; ++i) {
      if (parts.size() == 1) {
        store(i, lse_of(0, i), [&](std::int64_t d) { return parts.front().out(i, d); });
        continue;
      }
      const MergedState merged = merged_in_order(
          mla_latent, static_cast<std::int64_t>(parts.size()), 0, 1,
          [&](std::int64_t s, std::int64_t d) {
            return static_cast<float>(quant::round_to(type_, parts[static_cast<std::size_t>(s)].out(i, d)));
          },
          [&](std::int64_t s) { return lse_of(s, i); });
      store(i, merged.lse(), [&](std::int64_t d) { return merged.values[static_cast<std::size_t>(d)]; });
    }
  }

 private:
  std::int64_t token(std::int64_t row) const { return first_token_ + (first_ + row) / kernel_.heads; }
  std::int64_t head(std::int64_t row) const { return (first_ + row) % kernel_.heads; }

  OnlineRows part(std::int64_t begin, std::int64_t end) const {
    OnlineRows state(type_, rows_, mla_latent, kernel_.sums, kernel_.sigma, kernel_.isa);
    if (end > begin) {
      const auto bound = [&](std::int64_t rows) {
        const auto keys = static_cast<Count>(request_.keys - request_.queries + rows / kernel_.heads);
        return static_cast<std::int64_t>(kernel_.call.causal ? std::min(static_cast<Count>(end), keys) : static_cast<Count>(end));
      };
      const std::int64_t before = begin / kernel_.tile, rows_before = tile_ * kernel_.plan.tile_rows;
      const std::int64_t last = ceil_div(bound(rows_before + kernel_.plan.tile_rows), kernel_.tile) - 1 - before;
      const std::int64_t masked_from = bound(rows_before) / kernel_.tile - before;
      // Once a tile is not masked, none is up to the last two.
      bool masked = true;
      for (std::int64_t t = last; t >= 0; --t) {
        masked = masked && t >= masked_from;
        add(state, begin + t * kernel_.tile, end, masked || t < 2);
      }
    }
    state.close();
    return state;
  }

  void add(OnlineRows& state, std::int64_t begin, std::int64_t end, bool masked) const {
    const std::int64_t tile = kernel_.tile, present = std::clamp<std::int64_t>(request_.keys - begin, 0, tile);
    Codes keys(static_cast<std::size_t>(tile * mla_width)), values(static_cast<std::size_t>(tile * mla_latent));
    std::vector<const std::byte*> rows(static_cast<std::size_t>(tile));
    kernel_.keys.list(first_token_, begin, present, rows.data(), nullptr);
    for (std::int64_t j = 0; j < present; ++j) {
      const auto* const latent = reinterpret_cast<const std::uint16_t*>(rows[static_cast<std::size_t>(j)]);
      std::uint16_t* const key = keys.data() + j * mla_width;
      std::copy_n(latent + mla_latent, mla_rope, key);
      std::copy_n(latent, mla_latent, key + mla_rope);
      for (std::int64_t d = 0; d < mla_latent; ++d) values[static_cast<std::size_t>(d * tile + j)] = latent[d];
    }
    std::vector<float> scores(static_cast<std::size_t>(rows_ * tile));
    triton::multiply(type_, {queries_.data(), rows_, mla_width}, {keys.data(), tile, mla_width}, mla_width, scores.data(), tile,
                     kernel_.isa);
    for (std::int64_t i = 0; masked && i < rows_; ++i) {
      const std::int64_t hidden = request_.queries - 1 - (first_ + i) / kernel_.heads;
      const std::int64_t seen = std::min(end, kernel_.call.causal ? request_.keys - hidden : end);
      for (std::int64_t j = std::clamp<std::int64_t>(seen - begin, 0, tile); j < tile; ++j)
        scores[static_cast<std::size_t>(i * tile + j)] = -infinity;
    }
    state.add(scores, tile, values.data());
  }

  template <typename OutAt>
  void store(std::int64_t row, float lse, const OutAt& out_at) const {
    const Tensor& out = kernel_.call.out;
    const std::int64_t first = token(row) * out.stride(0) + head(row) * out.stride(1);
    for (std::int64_t d = 0; d < mla_latent; ++d) quant::store(out.dtype(), out.data(), first + d, static_cast<double>(out_at(d)));
    if (kernel_.call.lse.defined()) kernel_.call.lse.as<float>()[token(row) * kernel_.heads + head(row)] = lse;
  }

  const Kernel& kernel_;
  DType type_;
  std::int64_t first_token_;
  const Fa2Request& request_;
  std::int64_t tile_, first_, rows_;
  Codes queries_;
};

}  // namespace

void flashinfer_mla_fa2_hopper(const PagedMla& call, const Exec& exec) {
  std::vector<Fa2Request> requests;
  const auto* const ends = call.query_offsets.as<const std::int32_t>();
  for (std::int64_t b = 0; b < call.lengths.size(0); ++b)
    requests.push_back({ends[b + 1] - ends[b], call.lengths.as<const std::int32_t>()[b]});
  const Kernel kernel(call, fa2_mla(requests, call.q_nope.size(1), call.causal), exec.isa);
  struct Task {
    std::size_t request;
    std::int64_t tile, first;
  };
  std::vector<Task> tasks;
  for (std::size_t b = 0; b < requests.size(); ++b)
    for (std::int64_t first = 0; first < requests[b].queries * kernel.heads; first += block_rows)
      tasks.push_back({b, first / kernel.plan.tile_rows, first});
  parallel_for(exec.threads, static_cast<std::int64_t>(tasks.size()), 1e7, [&](std::int64_t i) {
    const Task& task = tasks[static_cast<std::size_t>(i)];
    Block(kernel, ends[task.request], requests[task.request], task.tile, task.first).run();
  });
}

}  // namespace dodona::ops
