#include "ops/softmax/flashinfer/ragged_fa2.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/threads.h"
#include "ops/softmax/flashinfer/fa2_schedule.h"
#include "ops/softmax/flashinfer/merged_state.h"
#include "ops/softmax/flashinfer/online_rows.h"
#include "ops/softmax/triton/arithmetic.h"
#include "quant/element.h"
#include "quant/hopper/fast_math.h"
#include "quant/sizes.h"

namespace dodona::ops {
namespace {

namespace hw = quant::hopper;
using quant::ceil_div;

constexpr float infinity = std::numeric_limits<float>::infinity();
using Codes = std::vector<std::uint16_t>;

/// Counts of keys as kernels have them, modulo 2^32.
using Count = std::uint32_t;
Count count(std::int64_t n) {
  return static_cast<Count>(n);
}
/// x - y, 0 where that is no count.
Count less(Count x, Count y) {
  return x > y ? x - y : 0;
}
Count tiles_of(Count keys, std::int64_t tile) {
  return count(ceil_div(static_cast<std::int64_t>(keys), tile));
}

const std::byte* row_of(const Tensor& t, std::int64_t token, std::int64_t head) {
  return t.as<const std::byte>() + 2 * (token * t.stride(0) + head * t.stride(1));
}

Fa2Request lengths_of(const RaggedRequest& request) {
  return {request.queries, request.keys, request.window};
}

/// What all tiles share.
struct Kernel {
  Kernel(const Ragged& ragged, const Fa2Prefill& chosen, Isa which)
      : call(ragged), plan(chosen), group(ragged.query.size(1) / ragged.key.size(1)), isa(which) {
    // The kernels' parameters are doubles.
    sigma = static_cast<float>(static_cast<double>(hw::log2_e) * (call.cap != 0 ? call.cap : call.scale));
    before_tanh = call.cap != 0 ? static_cast<float>(call.scale * static_cast<double>(hw::rcp(static_cast<float>(call.cap)))) : 0.0f;
  }

  const Ragged& call;
  Fa2Prefill plan;
  std::int64_t group;
  Isa isa;
  float sigma, before_tanh;
};

/// Rows of a request that a block takes, of the heads that share a key head.
class Tile {
 public:
  Tile(const Kernel& kernel, const RaggedRequest& request, std::int64_t key_head, std::int64_t tile)
      : kernel_(kernel),
        call_(kernel.call),
        request_(request),
        key_head_(key_head),
        first_(tile * kernel.plan.tile_rows),
        rows_(std::min(kernel.plan.tile_rows, request.queries * kernel.group - first_)),
        width_(call_.key.size(2)),
        value_width_(call_.value.size(2)),
        queries_(count(request.queries)),
        keys_(count(request.keys)),
        window_(request.window < 0 ? keys_ : count(request.window)),
        seen_before_(count(first_ / kernel.group)),
        from_(less(keys_ + seen_before_, queries_ + window_)) {
    for (std::int64_t i = 0; i < rows_; ++i) {
      const auto* const from = reinterpret_cast<const std::uint16_t*>(row_of(call_.query, request.first_query + query(i), head(i)));
      codes_.insert(codes_.end(), from, from + width_);
    }
  }

  void run() {
    if (!kernel_.plan.splits) {
      const OnlineRows state = part(from_, keys_, true);
      for (std::int64_t i = 0; i < rows_; ++i) store(i, state.lse(i), [&](std::int64_t d) { return state.out(i, d); });
      return;
    }
    const auto split = static_cast<Count>(kernel_.plan.keys_of_split);
    const std::int64_t most = fa2_prefill_keys(kernel_.plan.tile_rows, lengths_of(request_));
    const Count splits = tiles_of(count(std::max<std::int64_t>(most, 1)), split);
    std::vector<OnlineRows> parts;
    for (Count s = 0; s < splits; ++s)
      parts.push_back(part(std::min(s * split + from_, keys_), std::min((s + 1) * split + from_, keys_), s == 0));
    for (std::int64_t i = 0; i < rows_; ++i) merge(i, parts);
  }

 private:
  std::int64_t query(std::int64_t row) const { return (first_ + row) / kernel_.group; }
  std::int64_t head(std::int64_t row) const { return key_head_ * kernel_.group + (first_ + row) % kernel_.group; }

  /// Whether row i sees the key, in tiles that are masked.
  bool sees(std::int64_t row, Count key, Count end) const {
    const Count own = count(query(row));
    if (request_.causal && key + queries_ > keys_ + own) return false;
    return key < end && (request_.window < 0 || key + queries_ + window_ >= keys_ + own);
  }

  /// The rows with the keys from `begin` to `end`.
  OnlineRows part(Count begin, Count end, bool is_first) const {
    const Fa2Prefill& plan = kernel_.plan;
    const Count size = end - begin, group = count(kernel_.group), tile = count(first_ / plan.tile_rows);
    const Count here = tile * count(plan.tile_rows), next = (tile + 1) * count(plan.tile_rows);
    const Count seen = request_.causal ? std::min(size, less(keys_ - queries_ + tiles_of(next, group), begin)) : size;
    const Count seen_by_all = request_.causal ? std::min(size, less(keys_ + tiles_of(here, group) - queries_, begin)) : size;
    const Count masked_to = tiles_of(less(keys_ + tiles_of(next, group), queries_ + window_ + begin), plan.tile_keys());
    const Count tiles = tiles_of(seen, plan.tile_keys()), masked_from = seen_by_all / count(plan.tile_keys());
    std::vector<OnlineRows> warps(static_cast<std::size_t>(plan.key_warps),
                                  OnlineRows(call_.query.dtype(), rows_, value_width_, 1, kernel_.sigma, kernel_.isa));
    for (Count t = 0; t < tiles; ++t)
      for (std::int64_t w = 0; w < plan.key_warps; ++w)
        add(warps[static_cast<std::size_t>(w)], begin + (t * count(plan.key_warps) + count(w)) * count(plan.keys_of_warp), end,
            t >= masked_from || t < masked_to);
    for (OnlineRows& warp : warps) warp.close();
    OnlineRows state = plan.key_warps == 1 ? warps.front() : OnlineRows::merged(warps);
    if (call_.sinks.defined()) state.add_sinks(sinks(is_first));
    return state;
  }

  void add(OnlineRows& state, Count begin, Count end, bool masked) const {
    const std::int64_t tile = kernel_.plan.keys_of_warp;
    Codes keys(static_cast<std::size_t>(tile * width_)), values(static_cast<std::size_t>(tile * value_width_));
    for (std::int64_t j = 0; j < tile && begin + count(j) < end; ++j) {
      const std::int64_t token = request_.first_key + begin + j;
      std::memcpy(keys.data() + j * width_, row_of(call_.key, token, key_head_), static_cast<std::size_t>(2 * width_));
      const auto* const value = reinterpret_cast<const std::uint16_t*>(row_of(call_.value, token, key_head_));
      for (std::int64_t d = 0; d < value_width_; ++d) values[static_cast<std::size_t>(d * tile + j)] = value[d];
    }
    std::vector<float> scores(static_cast<std::size_t>(rows_ * tile));
    triton::multiply(call_.query.dtype(), {codes_.data(), rows_, width_}, {keys.data(), tile, width_}, width_, scores.data(), tile,
                     kernel_.isa);
    for (std::int64_t i = 0; i < rows_; ++i)
      for (std::int64_t j = 0; j < tile; ++j) {
        float& z = scores[static_cast<std::size_t>(i * tile + j)];
        if (kernel_.before_tanh != 0) z = hw::tanh(hw::mul(z, kernel_.before_tanh));
        if (masked && !sees(i, begin + count(j), end)) z = -infinity;
      }
    state.add(scores, tile, values.data());
  }

  std::vector<float> sinks(bool is_first) const {
    std::vector<float> of_rows(static_cast<std::size_t>(rows_), -infinity);
    for (std::int64_t i = 0; is_first && i < rows_; ++i)
      of_rows[static_cast<std::size_t>(i)] = hw::mul(static_cast<float>(quant::get(call_.sinks, head(i))), hw::log2_e);
    return of_rows;
  }

  void merge(std::int64_t row, const std::vector<OnlineRows>& parts) const {
    const DType type = call_.out.dtype();
    const auto value_at = [&](std::int64_t s, std::int64_t d) {
      return static_cast<float>(quant::round_to(type, parts[static_cast<std::size_t>(s)].out(row, d)));
    };
    const auto lse_of = [&](std::int64_t s) { return parts[static_cast<std::size_t>(s)].lse(row); };
    if (parts.size() == 1) return store(row, lse_of(0), [&](std::int64_t d) { return value_at(0, d); });
    const MergedState merged = merged_of_parts(type, value_width_, static_cast<std::int64_t>(parts.size()), value_at, lse_of);
    store(row, merged.lse(), [&](std::int64_t d) { return merged.values[static_cast<std::size_t>(d)]; });
  }

  template <typename OutAt>
  void store(std::int64_t row, float lse, const OutAt& out_at) const {
    const std::int64_t place = (request_.first_query + query(row)) * call_.query.size(1) + head(row);
    for (std::int64_t d = 0; d < value_width_; ++d) quant::set(call_.out, place * value_width_ + d, out_at(d));
    if (call_.lse.defined()) call_.lse.as<float>()[place] = lse;
  }

  const Kernel& kernel_;
  const Ragged& call_;
  const RaggedRequest& request_;
  std::int64_t key_head_, first_, rows_, width_, value_width_;
  Count queries_, keys_, window_, seen_before_, from_;  ///< from_: the first key of the tile's window
  Codes codes_;
};

}  // namespace

void flashinfer_ragged_fa2_hopper(const Ragged& call, const std::vector<RaggedRequest>& requests, std::int64_t fixed_split,
                                  const Exec& exec) {
  std::vector<Fa2Request> lengths;
  for (const RaggedRequest& request : requests) lengths.push_back(lengths_of(request));
  const std::int64_t key_heads = call.key.size(1), group = call.query.size(1) / key_heads;
  const Kernel kernel(call, fa2_prefill(lengths, key_heads, group, call.key.size(2), call.value.size(2), fixed_split), exec.isa);
  struct Task {
    const RaggedRequest* request;
    std::int64_t key_head, tile;
  };
  std::vector<Task> tasks;
  for (const RaggedRequest& request : requests)
    for (std::int64_t tile = 0; tile < ceil_div(request.queries * group, kernel.plan.tile_rows); ++tile)
      for (std::int64_t head = 0; head < key_heads; ++head) tasks.push_back({&request, head, tile});
  parallel_for(exec.threads, static_cast<std::int64_t>(tasks.size()), 1e7, [&](std::int64_t i) {
    const Task& task = tasks[static_cast<std::size_t>(i)];
    Tile(kernel, *task.request, task.key_head, task.tile).run();
  });
}

}  // namespace dodona::ops
