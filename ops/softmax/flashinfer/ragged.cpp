#include "ops/softmax/flashinfer/ragged.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cstring>
#include <limits>

#include "core/threads.h"
#include "ops/softmax/triton/arithmetic.h"
#include "quant/element.h"
#include "quant/hopper/fast_math.h"
#include "quant/sizes.h"

namespace dodona::ops {
namespace {

namespace hw = quant::hopper;

constexpr std::int64_t rows_together = 128;  // rows do not show in each other's bits
constexpr float infinity = std::numeric_limits<float>::infinity();
using Floats = std::vector<float>;
using Codes = std::vector<std::uint16_t>;

std::int64_t keys_of_tile(std::int64_t key_width, std::int64_t value_width, bool causal) {
  if (key_width == 128 && value_width == 128 && !causal) return 192;
  return key_width == 256 ? 64 : 128;
}

const std::byte* row_of(const Tensor& t, std::int64_t token, std::int64_t head) {
  return t.as<const std::byte>() + 2 * (token * t.stride(0) + head * t.stride(1));
}

/// The larger number; a NaN loses.
float larger(float a, float b) {
  const float x = hw::ftz(a), y = hw::ftz(b);
  return x != x ? y : y != y ? x : std::max(x, y);
}

/// What a row keeps from tile to tile.
struct Running {
  float top = -infinity;
  std::array<float, 4> sums{};
};

class Block {
 public:
  Block(const Ragged& call, const RaggedRequest& request, std::int64_t head, std::int64_t first, Isa isa)
      : call_(call),
        request_(request),
        type_(call.query.dtype()),
        head_(head),
        key_head_(head / (call.query.size(1) / call.key.size(1))),
        first_(first),
        count_(std::min(rows_together, request.queries - first)),
        width_(call.key.size(2)),
        value_width_(call.value.size(2)),
        tile_(keys_of_tile(width_, value_width_, request.causal)),
        sigma_(hw::mul(static_cast<float>(call.scale), 0x1.715476p+0f)),
        isa_(isa),
        rows_(static_cast<std::size_t>(count_)),
        outs_(static_cast<std::size_t>(count_ * value_width_)) {}

  void run() {
    const std::int64_t needed = seen_by(count_ - 1), tiles = quant::ceil_div(std::max<std::int64_t>(needed, 0), tile_);
    for (std::int64_t t = tiles - 1; t >= 0; --t) add(t * tile_, t == tiles - 1);
    for (std::int64_t i = 0; i < count_; ++i) finish(i, tiles > 0);
  }

 private:
  /// Keys that row i sees, the first ones; may be less than 0.
  std::int64_t seen_by(std::int64_t i) const {
    return request_.causal ? std::min(request_.keys, first_ + i + 1 + request_.keys - request_.queries) : request_.keys;
  }

  void add(std::int64_t begin, bool is_first) {
    // Rows of other requests that lie in the tile are loaded too, and meet weights of 0.
    const std::int64_t present = std::min(tile_, call_.key.size(0) - request_.first_key - begin);
    Codes keys(static_cast<std::size_t>(tile_ * width_)), values(static_cast<std::size_t>(tile_ * value_width_)),
        value(static_cast<std::size_t>(value_width_));
    for (std::int64_t j = 0; j < present; ++j) {
      const std::int64_t token = request_.first_key + begin + j;
      std::memcpy(keys.data() + j * width_, row_of(call_.key, token, key_head_), static_cast<std::size_t>(2 * width_));
      std::memcpy(value.data(), row_of(call_.value, token, key_head_), static_cast<std::size_t>(2 * value_width_));
      for (std::size_t d = 0; d < value.size(); ++d) values[d * static_cast<std::size_t>(tile_) + static_cast<std::size_t>(j)] = value[d];
    }
    Floats scores(static_cast<std::size_t>(count_ * tile_));
    triton::multiply(type_, {row_of(call_.query, request_.first_query + first_, head_), count_, call_.query.stride(0)},
                     {keys.data(), tile_, width_}, width_, scores.data(), tile_, isa_);
    for (std::int64_t i = 0; i < count_; ++i) {
      const std::span<float> p(scores.data() + i * tile_, static_cast<std::size_t>(tile_));
      std::fill(p.begin() + std::clamp<std::int64_t>(seen_by(i) - begin, 0, tile_), p.end(), -infinity);
      const float factor = weigh(rows_[static_cast<std::size_t>(i)], p, is_first);
      for (std::int64_t d = 0; d < value_width_; ++d) {
        float& out = outs_[static_cast<std::size_t>(i * value_width_ + d)];
        out = is_first ? 0.0f : hw::mul(out, factor);
      }
    }
    Codes weights(scores.size());
    quant::from_f32(type_, scores.data(), weights.data(), static_cast<std::int64_t>(scores.size()));
    triton::multiply(type_, {weights.data(), count_, tile_}, {values.data(), value_width_, tile_}, tile_, outs_.data(), value_width_, isa_);
  }

  /// Scores become weights. Returns what earlier sums are multiplied with.
  float weigh(Running& row, std::span<float> p, bool is_first) const {
    float top = row.top;
    for (const float z : p) top = larger(top, z);
    const float factor = is_first ? 0.0f : hw::ex2(hw::mul(hw::sub(row.top, larger(top, -FLT_MAX)), sigma_));
    const float about = larger(hw::mul(top, sigma_), -FLT_MAX);
    for (float& z : p) z = hw::ex2(hw::fma(z, sigma_, -about));
    for (std::size_t t = 0; t < 4; ++t) {
      float& sum = row.sums[t];
      sum = is_first ? p[2 * t] : hw::fma(sum, factor, p[2 * t]);
      sum = hw::add(sum, p[2 * t + 1]);
      for (std::size_t g = 8; g < p.size(); g += 8) sum = hw::add(hw::add(sum, p[g + 2 * t]), p[g + 2 * t + 1]);
    }
    row.top = top;
    return factor;
  }

  void finish(std::int64_t i, bool any) const {
    const Running& row = rows_[static_cast<std::size_t>(i)];
    const std::int64_t place = (request_.first_query + first_ + i) * call_.query.size(1) + head_;
    const float sum = hw::add(hw::add(row.sums[0], row.sums[2]), hw::add(row.sums[1], row.sums[3]));
    const float factor = sum > 0 ? hw::rcp(sum) : 0.0f;
    for (std::int64_t d = 0; d < value_width_; ++d)
      quant::set(call_.out, place * value_width_ + d,
                 any ? static_cast<double>(hw::mul(outs_[static_cast<std::size_t>(i * value_width_ + d)], factor)) : 0.0);
    if (call_.lse.defined()) call_.lse.as<float>()[place] = any ? hw::fma(row.top, sigma_, hw::lg2(sum)) : -infinity;
  }

  const Ragged& call_;
  const RaggedRequest& request_;
  DType type_;
  std::int64_t head_, key_head_, first_, count_, width_, value_width_, tile_;
  float sigma_;
  Isa isa_;
  std::vector<Running> rows_;
  Floats outs_;
};

}  // namespace

void flashinfer_ragged_hopper(const Ragged& call, const std::vector<RaggedRequest>& requests, const Exec& exec) {
  struct Task {
    const RaggedRequest* request;
    std::int64_t head, first;
  };
  std::vector<Task> tasks;
  for (const RaggedRequest& request : requests)
    for (std::int64_t first = 0; first < request.queries; first += rows_together)
      for (std::int64_t head = 0; head < call.query.size(1); ++head) tasks.push_back({&request, head, first});
  parallel_for(exec.threads, static_cast<std::int64_t>(tasks.size()), 1e7, [&](std::int64_t i) {
    const Task& task = tasks[static_cast<std::size_t>(i)];
    Block(call, *task.request, task.head, task.first, exec.isa).run();
  });
}

}  // namespace dodona::ops
