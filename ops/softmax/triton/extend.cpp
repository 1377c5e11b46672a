#include "ops/softmax/triton/extend.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "core/threads.h"
#include "ops/softmax/triton/arithmetic.h"
#include "quant/element.h"

namespace dodona::ops {
namespace {

constexpr std::int64_t block = 64, wide_rows = triton_wide_rows;
constexpr float infinity = std::numeric_limits<float>::infinity(), lowest_top = -1e20f;
using Floats = std::vector<float>;
using Codes = std::vector<std::uint16_t>;

struct Running {
  float sum = 0, top = -infinity;
};

/// Where the tensor core has key i of a block of 64: in order, or of each 32 keys first those with i mod 4 in {0, 1}.
std::array<std::size_t, block> places(bool by_pairs) {
  std::array<std::size_t, block> place{};
  for (std::size_t i = 0; i < block; ++i) place[i] = by_pairs ? i / 32 * 32 + i / 2 % 2 * 16 + i % 32 / 4 * 2 + i % 2 : i;
  return place;
}

/// Rows of one head from query `first` of a request on.
class RowsOfBlock {
 public:
  RowsOfBlock(const Extend& call, const ExtendRequest& request, std::int64_t head, std::int64_t first, Isa isa)
      : call_(call),
        request_(request),
        type_(call.query.dtype()),
        head_(head),
        first_(first),
        isa_(isa),
        count_(std::min(call.block_rows, request.queries - first)),
        width_(call.key.size(2)),
        value_width_(call.value.size(2)),
        key_head_(head / (call.query.size(1) / call.key.size(1))),
        rows_(static_cast<std::size_t>(count_)),
        sums_(static_cast<std::size_t>(count_ * value_width_)) {}

  void run() {
    const bool on_prefix = request_.mask != nullptr && call_.mask_on_prefix;
    for (std::int64_t n = 0; n < request_.prefix; n += block) tile(n, std::min(n + block, request_.prefix), on_prefix);
    const std::int64_t tokens = call_.causal ? std::min(request_.queries, first_ + call_.block_rows) : request_.queries;
    for (std::int64_t n = 0; n < tokens; n += block)
      tile(request_.prefix + n, request_.prefix + std::min(n + block, tokens), request_.mask != nullptr);
    for (std::int64_t i = 0; i < count_; ++i) {
      Running& row = rows_[static_cast<std::size_t>(i)];
      if (call_.sinks.defined()) row.sum = row.sum + triton::exp(static_cast<float>(quant::get(call_.sinks, head_)) - row.top);
      for (std::int64_t d = 0; d < value_width_; ++d)
        quant::set(call_.out, ((request_.first_query + first_ + i) * call_.query.size(1) + head_) * value_width_ + d,
                   static_cast<double>(triton::div(sums_[at(i, d)], row.sum)));
    }
  }

 private:
  std::size_t at(std::int64_t row, std::int64_t column) const { return static_cast<std::size_t>(row * value_width_ + column); }

  float score(std::int64_t row, float dot) const {
    float x = dot * static_cast<float>(call_.scale);
    if (call_.cap > 0) x = triton::capped(x, static_cast<float>(call_.cap));
    const std::int64_t position = request_.prefix + first_ + row;
    return call_.temperature > 0 && position > call_.temperature ? x * triton::temperature(position, call_.temperature) : x;
  }

  /// Keys [begin, end) of one block. A block of which no row sees any key is not looked at where masks or windows say so.
  void tile(std::int64_t begin, std::int64_t end, bool masked) {
    std::vector<char> seen(static_cast<std::size_t>(count_ * block));
    for (std::int64_t i = 0; i < count_; ++i)
      for (std::int64_t j = begin; j < end; ++j)
        seen[static_cast<std::size_t>(i * block + j - begin)] = call_.sees(request_, first_ + i, j);
    if ((masked || call_.window > 0) && std::find(seen.begin(), seen.end(), 1) == seen.end()) return;
    if (call_.in_fp8() && begin < request_.prefix) return cached_tile(begin, end, seen);
    const auto place = places(masked && call_.block_rows < wide_rows);
    Codes keys(static_cast<std::size_t>(block * width_)), values(static_cast<std::size_t>(block * value_width_));
    gather(begin, end, place, keys, values);
    Floats scores(static_cast<std::size_t>(count_ * block));
    const Tensor& q = call_.query;
    const auto* const queries = q.as<const std::uint16_t>() + (request_.first_query + first_) * q.stride(0) + head_ * q.stride(1);
    triton::multiply(type_, {queries, count_, q.stride(0)}, {keys.data(), block, width_}, width_, scores.data(), block, isa_);
    Floats placed(scores.size());
    const Floats factors = weigh(seen, scores);
    for (std::size_t i = 0; i < scores.size(); ++i) placed[i / block * block + place[i % block]] = scores[i];
    for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] *= factors[i / static_cast<std::size_t>(value_width_)];
    Codes weights(scores.size());
    quant::from_f32(type_, placed.data(), weights.data(), static_cast<std::int64_t>(placed.size()));
    triton::multiply(type_, {weights.data(), count_, block}, {values.data(), value_width_, block}, block, sums_.data(), value_width_, isa_);
  }

  /// Of a pool of e4m3.
  void cached_tile(std::int64_t begin, std::int64_t end, const std::vector<char>& seen) {
    const auto& unit = call_.block_rows < wide_rows ? quant::tensor_core::fp8_mma_sync : quant::tensor_core::fp8_wgmma;
    std::vector<std::uint8_t> keys(static_cast<std::size_t>(block * width_)), values(static_cast<std::size_t>(block * value_width_));
    gather(begin, end, places(false), keys, values);
    const Tensor& q = call_.cached_query;
    const auto* const queries = q.as<const std::uint8_t>() + (request_.first_query + first_) * q.stride(0) + head_ * q.stride(1);
    const auto dots = [&](std::int64_t first, std::int64_t columns) {
      Floats sums(static_cast<std::size_t>(count_ * block));
      triton::multiply(unit, DType::f8_e4m3, {queries + first, count_, q.stride(0)}, {keys.data() + first, block, width_}, columns,
                       sums.data(), block, isa_);
      return sums;
    };
    const std::int64_t main = triton_main_columns(width_);
    Floats scores = dots(0, main);
    if (const Floats rest = main < width_ ? dots(main, width_ - main) : Floats(); !rest.empty())
      for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = scores[i] + rest[i];
    const Floats factors = weigh(seen, scores);
    std::vector<std::uint8_t> weights(scores.size());
    quant::from_f32(DType::f8_e4m3, scores.data(), weights.data(), static_cast<std::int64_t>(scores.size()));
    Floats products(sums_.size());
    triton::multiply(unit, DType::f8_e4m3, {weights.data(), count_, block}, {values.data(), value_width_, block}, block, products.data(),
                     value_width_, isa_);
    for (std::size_t i = 0; i < sums_.size(); ++i)
      sums_[i] = std::fma(sums_[i], factors[i / static_cast<std::size_t>(value_width_)], products[i]);
  }

  /// Keys [begin, end): rows of `keys` in order, columns of `values` in their places.
  template <class Code>
  void gather(std::int64_t begin, std::int64_t end, const std::array<std::size_t, block>& place, std::vector<Code>& keys,
              std::vector<Code>& values) const {
    std::vector<Code> value(static_cast<std::size_t>(value_width_));
    for (std::int64_t j = begin; j < end; ++j) {
      std::memcpy(keys.data() + (j - begin) * width_, call_.key_row(request_, j, key_head_),
                  sizeof(Code) * static_cast<std::size_t>(width_));
      std::memcpy(value.data(), call_.value_row(request_, j, key_head_), sizeof(Code) * value.size());
      for (std::size_t d = 0; d < value.size(); ++d) values[d * block + place[static_cast<std::size_t>(j - begin)]] = value[d];
    }
  }

  /// Dots become weights, hidden ones 0. Returns what the rows' earlier sums are multiplied with.
  Floats weigh(const std::vector<char>& seen, Floats& scores) {
    Floats factors;
    for (std::int64_t i = 0; i < count_; ++i) {
      const std::span<float> p(scores.data() + i * block, block);
      for (std::size_t j = 0; j < block; ++j) p[j] = seen[static_cast<std::size_t>(i) * block + j] != 0 ? score(i, p[j]) : -infinity;
      factors.push_back(weigh(rows_[static_cast<std::size_t>(i)], p));
    }
    return factors;
  }

  /// Scores become weights. Returns what earlier sums are multiplied with.
  float weigh(Running& row, std::span<float> p) const {
    float top = -infinity;
    for (const float x : p) top = std::fmax(top, x);
    if (top == -infinity) top = lowest_top;
    top = std::fmax(top, row.top);
    const float factor = triton::exp(row.top - top);
    for (float& x : p) x = triton::exp(x - top);
    row.sum = std::fma(row.sum, factor, call_.block_rows < wide_rows ? triton::row_sum_of_warps(p) : triton::row_sum(p));
    row.top = top;
    return factor;
  }

  const Extend& call_;
  const ExtendRequest& request_;
  DType type_;
  std::int64_t head_, first_;
  Isa isa_;
  std::int64_t count_, width_, value_width_, key_head_;
  std::vector<Running> rows_;
  Floats sums_;
};

}  // namespace

void triton_extend_hopper(const Extend& call, const std::vector<ExtendRequest>& requests, const Exec& exec) {
  struct Task {
    const ExtendRequest* request;
    std::int64_t head, first;
  };
  std::vector<Task> tasks;
  for (const ExtendRequest& request : requests)
    for (std::int64_t first = 0; first < request.queries; first += call.block_rows)
      for (std::int64_t head = 0; head < call.query.size(1); ++head) tasks.push_back({&request, head, first});
  parallel_for(exec.threads, static_cast<std::int64_t>(tasks.size()), 1e7, [&](std::int64_t i) {
    const Task& task = tasks[static_cast<std::size_t>(i)];
    RowsOfBlock(call, *task.request, task.head, task.first, exec.isa).run();
  });
}

}  // namespace dodona::ops
