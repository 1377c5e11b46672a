#include "ops/softmax/flash_mla.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "core/threads.h"
#include "dodona/error.h"
#include "ops/softmax/mla_decode.h"
#include "ops/tiles/mma.h"
#include "quant/element.h"
#include "quant/hopper/fast_math.h"
#include "quant/sizes.h"
#include "quant/tensor_core/unit.h"

namespace dodona::ops {
namespace {

namespace hw = quant::hopper;
using quant::ceil_div;

constexpr std::int64_t block = flash_mla_block, half = mla_latent / 2;
constexpr std::int32_t overhead_blocks = 5;  ///< what a request costs beside its blocks, as the scheduler counts
constexpr float infinity = std::numeric_limits<float>::infinity();

/// max.ftz: a NaN loses.
float maximum(float a, float b) {
  a = hw::ftz(a), b = hw::ftz(b);
  if (a != a) return b;
  if (b != b) return a;
  return a > b ? a : b;
}

std::int32_t blocks_of(std::int32_t length) {
  return static_cast<std::int32_t>(ceil_div(std::max(length, 0), static_cast<std::int32_t>(block)));
}

/// Blocks of one request that make a split.
struct Range {
  std::int32_t begin, end;
};

std::int32_t at(const Tensor& numbers, std::int64_t i) {
  return numbers.as<const std::int32_t>()[i];
}
FlashMlaPart part_of(const FlashMla& call, std::int64_t part) {
  const std::int64_t i = part * call.metadata.size(1);
  return {at(call.metadata, i), at(call.metadata, i + 1), at(call.metadata, i + 2), at(call.metadata, i + 3), at(call.metadata, i + 4)};
}

/// Splits of each request, in order.
std::vector<std::vector<Range>> splits_of(const FlashMla& call) {
  const std::int64_t requests = call.seq_lens.size(0);
  std::vector<std::vector<Range>> splits(static_cast<std::size_t>(requests));
  for (std::int64_t p = 0; p < call.metadata.size(0); ++p) {
    const FlashMlaPart part = part_of(call, p);
    if (part.begin_request < 0) continue;
    for (std::int64_t b = part.begin_request; b <= std::min<std::int64_t>(part.end_request, requests - 1); ++b)
      splits[static_cast<std::size_t>(b)].push_back(
          {b == part.begin_request ? part.begin_block : 0, b == part.end_request ? part.end_block : blocks_of(at(call.seq_lens, b))});
  }
  return splits;
}

using Floats = std::vector<float>;
using Codes = std::vector<std::uint16_t>;

/// One block of rows of one request over the blocks of one split.
class Tile {
 public:
  Tile(const FlashMla& call, std::int64_t request, std::int64_t first_row, const Range& range, Isa isa)
      : call_(call),
        spec_(quant::tensor_core::half_mma),
        type_(call.cache.dtype()),
        isa_(isa),
        request_(request),
        first_row_(first_row),
        rows_(std::min(block, call.q.size(1) * call.q.size(2) - first_row)),
        slog_(static_cast<float>(static_cast<double>(static_cast<float>(call.scale)) * 1.4426950408889634)),
        range_(range),
        maxima_(size(1), -1e30f),
        left_(size(half)),
        right_(size(half)),
        left_sums_(size(4)),
        right_sums_(size(4)) {
    const std::int32_t length = at(call.seq_lens, request);
    const bool causal = call.causal && call.q.size(1) > 1;
    if (causal) range_.end = std::min(range_.end, blocks_of(length - behind(block - 1)));
    for (std::int64_t r = 0; r < rows_; ++r)
      seen_.push_back(causal ? std::min(length - behind(r), static_cast<std::int32_t>(block) * range_.end) : length);
    gather_queries();
    for (const Codes* codes : {&queries_, &turned_}) operands_.emplace_back(spec_, type_, codes->data(), rows_, mla_width, mla_width, isa_);
    for (std::int32_t k = range_.begin; k < range_.end; k += 2) pair(k);
  }

  std::int64_t rows() const { return rows_; }
  /// The row's output and its log-sum-exp in base 2, which is -inf where there is none.
  void finish(std::int64_t r, float* out, float& sum, float& top) const {
    sum = hw::add(quad(left_sums_, r), quad(right_sums_, r));
    top = maxima_[static_cast<std::size_t>(r)];
    const float factor = hw::rcp(sum == 0 || sum != sum ? 1.0f : sum);
    for (std::int64_t d = 0; d < half; ++d) {
      out[d] = hw::mul(left_[static_cast<std::size_t>(r * half + d)], factor);
      out[half + d] = hw::mul(right_[static_cast<std::size_t>(r * half + d)], factor);
    }
  }

 private:
  std::size_t size(std::int64_t width) const { return static_cast<std::size_t>(rows_ * width); }
  /// Query tokens behind that of the row.
  std::int32_t behind(std::int64_t r) const {
    const std::int64_t row = first_row_ + r, queries = call_.q.size(1), heads = call_.q.size(2);
    return row < queries * heads ? static_cast<std::int32_t>(queries - 1 - row / heads) : 0;
  }
  const std::uint16_t* page(std::int32_t k) const {
    const std::int64_t number = at(call_.block_table, request_ * call_.block_table.size(1) + k);
    return call_.cache.as<const std::uint16_t>() + number * block * mla_width;
  }
  /// The order in which the second warpgroup takes a key's elements.
  static void turn(const std::uint16_t* row, std::uint16_t* turned) {
    std::copy_n(row + half, mla_width - half, turned);
    std::copy_n(row, half, turned + mla_width - half);
  }
  static float quad(const Floats& sums, std::int64_t r) {
    const float* const s = sums.data() + 4 * r;
    return hw::add(hw::add(s[0], s[1]), hw::add(s[2], s[3]));
  }

  void gather_queries() {
    queries_.resize(size(mla_width));
    turned_.resize(size(mla_width));
    const std::int64_t heads = call_.q.size(2);
    for (std::int64_t r = 0; r < rows_; ++r) {
      const std::int64_t row = first_row_ + r;
      const auto* const from = call_.q.as<const std::uint16_t>() + request_ * call_.q.stride(0) + row / heads * call_.q.stride(1) +
                               row % heads * call_.q.stride(2);
      std::copy_n(from, mla_width, queries_.data() + r * mla_width);
      turn(from, turned_.data() + r * mla_width);
    }
  }

  /// Scores of block k; those of tokens that a row does not see are -1e33.
  Floats scores(std::int32_t k, bool second) const {
    Codes turned;
    const std::uint16_t* keys = page(k);
    if (second) {
      turned.resize(static_cast<std::size_t>(block * mla_width));
      for (std::int64_t t = 0; t < block; ++t) turn(keys + t * mla_width, turned.data() + t * mla_width);
      keys = turned.data();
    }
    Floats s(size(block));
    accumulate(operands_[second ? 1 : 0], MmaColumns(spec_, type_, keys, block, mla_width, mla_width, isa_), 0, mla_width, s.data(), block);
    for (std::int64_t r = 0; r < rows_ && k >= range_.end - 2; ++r)
      for (std::int64_t t = 0; t < block; ++t)
        if (k * block + t >= seen_[static_cast<std::size_t>(r)]) s[static_cast<std::size_t>(r * block + t)] = -1e33f;
    return s;
  }

  /// Scores become weights. Returns what earlier sums are multiplied with; `sums`, four for each row, those of the weights.
  Floats weigh(Floats& s, Floats& sums) {
    Floats factors(size(1));
    sums.assign(size(4), 0.0f);
    for (std::int64_t r = 0; r < rows_; ++r) {
      float* const row = s.data() + r * block;
      float top = -1e33f;
      for (std::int64_t t = 0; t < block; ++t) top = maximum(top, row[t]);
      float& largest = maxima_[static_cast<std::size_t>(r)];
      const float before = largest;
      largest = maximum(hw::mul(top, slog_), before);
      factors[static_cast<std::size_t>(r)] = hw::ex2(hw::sub(before, largest));
      for (std::int64_t t = 0; t < block; ++t) row[t] = hw::ex2(hw::fma(row[t], slog_, -largest));
      for (std::int64_t thread = 0; thread < 4; ++thread) {
        float& sum = sums[static_cast<std::size_t>(4 * r + thread)];
        for (std::int64_t g = 0; g < block; g += 8) sum = hw::add(sum, hw::add(row[g + 2 * thread], row[g + 2 * thread + 1]));
      }
    }
    return factors;
  }

  void scale(Floats& outputs, const Floats& factors) const {
    for (std::int64_t r = 0; r < rows_; ++r)
      for (std::int64_t d = 0; d < half; ++d) {
        float& value = outputs[static_cast<std::size_t>(r * half + d)];
        value = hw::mul(value, factors[static_cast<std::size_t>(r)]);
      }
  }
  /// outputs += T(weights) times one half of the latents of block k; tokens behind the sequence's end count as zeros.
  void add_values(Floats& outputs, const Floats& weights, std::int32_t k, std::int64_t column) const {
    Codes codes(weights.size()), values(static_cast<std::size_t>(half * block));
    quant::from_f32(type_, weights.data(), codes.data(), static_cast<std::int64_t>(weights.size()));
    const std::uint16_t* const keys = page(k);
    const std::int64_t tokens = k == range_.end - 1 ? std::min<std::int64_t>(block, at(call_.seq_lens, request_) - k * block) : block;
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t d = 0; d < half; ++d) values[static_cast<std::size_t>(d * block + t)] = keys[t * mla_width + column + d];
    accumulate(MmaRows(spec_, type_, codes.data(), rows_, block, block, isa_),
               MmaColumns(spec_, type_, values.data(), half, block, block, isa_), 0, block, outputs.data(), half);
  }
  void add_sums(Floats& sums, const Floats& factors, const Floats& addends) const {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = hw::fma(sums[i], factors[i / 4], addends[i]);
  }

  void pair(std::int32_t k) {
    const bool two = k + 1 < range_.end;
    Floats sums, second_sums(size(4)), second, second_factors(size(1), 1.0f), both(size(1));
    Floats first = scores(k, false);
    const Floats first_factors = weigh(first, sums);
    scale(left_, first_factors);
    add_sums(left_sums_, first_factors, sums);
    add_values(left_, first, k, 0);
    if (two) {
      second = scores(k + 1, true);
      second_factors = weigh(second, second_sums);
    }
    for (std::size_t r = 0; r < both.size(); ++r) both[r] = hw::mul(second_factors[r], first_factors[r]);
    scale(right_, both);
    add_sums(right_sums_, both, second_sums);
    if (two) add_values(right_, second, k + 1, half);
    Floats rescaled = first;
    for (std::size_t i = 0; i < rescaled.size(); ++i) rescaled[i] = hw::mul(first[i], second_factors[i / block]);
    add_values(right_, rescaled, k, half);
    if (!two) return;
    scale(left_, second_factors);
    for (std::size_t i = 0; i < left_sums_.size(); ++i) left_sums_[i] = hw::mul(left_sums_[i], second_factors[i / 4]);
    add_values(left_, second, k + 1, 0);
  }

  const FlashMla& call_;
  const quant::tensor_core::MmaSpec& spec_;
  DType type_;
  Isa isa_;
  std::int64_t request_, first_row_, rows_;
  float slog_;
  Range range_;
  std::vector<std::int32_t> seen_;
  Codes queries_, turned_;
  std::vector<MmaRows> operands_;  ///< of both
  Floats maxima_, left_, right_, left_sums_, right_sums_;
};

/// One row of one split.
struct Partial {
  std::array<float, static_cast<std::size_t>(mla_latent)> out;
  float sum, top;

  bool none() const { return sum == 0 || sum != sum; }
  float log2() const { return none() ? -infinity : hw::add(hw::lg2(sum), top); }
};

/// Splits of one row into the first of them. Returns the natural log-sum-exp.
float combine(std::span<const Partial* const> splits, float* out) {
  float top = -infinity;
  for (const Partial* split : splits) top = maximum(top, split->log2());
  if (top == -infinity) top = 0;
  std::array<float, 32> lanes{};
  for (std::size_t i = 0; i < (splits.size() + 31) / 32 * 32; ++i)
    lanes[i % 32] = hw::add(lanes[i % 32], hw::ex2(hw::sub(i < splits.size() ? splits[i]->log2() : -infinity, top)));
  for (std::size_t step = 16; step > 0; step /= 2)
    for (std::size_t lane = 0; lane < step; ++lane) lanes[lane] = hw::add(lanes[lane], lanes[lane + step]);
  const float sum = lanes[0], all = sum == 0 || sum != sum ? infinity : hw::add(hw::lg2(sum), top);
  std::fill_n(out, mla_latent, 0.0f);
  for (const Partial* split : splits) {
    const float weight = hw::ex2(hw::sub(split->log2(), all));
    if (weight == 0) continue;
    for (std::size_t d = 0; d < split->out.size(); ++d) out[d] = hw::fma(weight, split->out[d], out[d]);
  }
  return hw::mul(all, hw::ln_2);
}

}  // namespace

std::int64_t flash_mla_parts(std::int64_t sm_count, std::int64_t key_heads, std::int64_t rows) {
  return std::max<std::int64_t>(sm_count / std::max<std::int64_t>(key_heads, 1) / std::max<std::int64_t>(ceil_div(rows, block), 1), 1);
}

FlashMlaSchedule flash_mla_schedule(std::span<const std::int32_t> lengths, std::int64_t parts) {
  const auto requests = static_cast<std::int32_t>(lengths.size());
  const auto blocks = [&](std::int32_t b) {
    return std::max(lengths[static_cast<std::size_t>(b)] - 1, 0) / static_cast<std::int32_t>(block) + 1;
  };
  std::int64_t total = 0;
  for (std::int32_t b = 0; b < requests; ++b) total += blocks(b) + overhead_blocks;
  const std::int64_t payload = ceil_div(total, parts) + overhead_blocks;
  FlashMlaSchedule schedule;
  schedule.num_splits.push_back(0);
  std::int32_t now = 0, done = 0, split = 0;
  for (std::int64_t p = 0; p < parts; ++p) {
    FlashMlaPart part{now, done, 0, 0, split};
    std::int64_t left = payload;
    while (now < requests) {
      const std::int32_t open = blocks(now) - done;
      if (left >= open + overhead_blocks) {
        schedule.num_splits.push_back(schedule.num_splits.back() + split + 1);
        left -= open + overhead_blocks;
        ++now, done = split = 0;
        continue;
      }
      if (left > overhead_blocks) done += static_cast<std::int32_t>(left - overhead_blocks), ++split;
      break;
    }
    part.end_request = done > 0 ? now : now - 1;
    part.end_block = done > 0 ? done : now > 0 && lengths[static_cast<std::size_t>(now - 1)] != 0 ? blocks(now - 1) : 0;
    schedule.parts.push_back(part);
  }
  return schedule;
}

void write_flash_mla_schedule(const Tensor& lengths, const Tensor& metadata, const Tensor& num_splits) {
  const FlashMlaSchedule schedule =
      flash_mla_schedule({lengths.as<const std::int32_t>(), static_cast<std::size_t>(lengths.size(0))}, metadata.size(0));
  auto* to = metadata.as<std::int32_t>();
  for (const FlashMlaPart& part : schedule.parts)
    for (const std::int32_t value : {part.begin_request, part.begin_block, part.end_request, part.end_block, part.begin_split, 0, 0, 0})
      *to++ = value;
  std::copy(schedule.num_splits.begin(), schedule.num_splits.end(), num_splits.as<std::int32_t>());
}

void check_flash_mla_schedule(const FlashMla& call) {
  const std::int64_t requests = call.seq_lens.size(0);
  const auto fail = [](const std::string& what) { throw Error(ErrorCode::bad_value, "", "tile_scheduler_metadata", what); };
  for (std::int64_t p = 0; p < call.metadata.size(0); ++p) {
    const FlashMlaPart part = part_of(call, p);
    if (part.begin_request < 0 || part.begin_request >= requests) continue;
    if (part.begin_block < 0 || part.end_request < part.begin_request || part.end_request >= requests)
      fail("has part " + std::to_string(p) + " from request " + std::to_string(part.begin_request) + " block " +
           std::to_string(part.begin_block) + " to request " + std::to_string(part.end_request) + ", expected requests 0 to " +
           std::to_string(requests - 1) + " in order");
  }
  const std::vector<std::vector<Range>> splits = splits_of(call);
  for (std::int64_t b = 0; b < requests; ++b) {
    const auto& mine = splits[static_cast<std::size_t>(b)];
    std::int32_t end = 0;
    bool fits = !mine.empty() && static_cast<std::int64_t>(mine.size()) == at(call.num_splits, b + 1) - at(call.num_splits, b);
    for (const Range& range : mine) fits = fits && range.begin == end && range.end >= range.begin, end = range.end;
    if (!fits || end != blocks_of(at(call.seq_lens, b)))
      fail("cuts request " + std::to_string(b) + " into " + std::to_string(mine.size()) + " splits up to block " + std::to_string(end) +
           ", expected its " + std::to_string(blocks_of(at(call.seq_lens, b))) + " blocks of " + std::to_string(at(call.seq_lens, b)) +
           " tokens in the " + std::to_string(at(call.num_splits, b + 1) - at(call.num_splits, b)) + " splits that num_splits has");
  }
}

void flash_mla_hopper(const FlashMla& call, const Exec& exec) {
  const std::int64_t requests = call.seq_lens.size(0), queries = call.q.size(1), heads = call.q.size(2), rows = queries * heads;
  const std::vector<std::vector<Range>> splits = splits_of(call);
  struct Task {
    std::int64_t request, first_row, split, place;
  };
  std::vector<Task> tasks;
  std::int64_t places = 0;
  std::vector<std::int64_t> first_place;  ///< of each request: partial results, split by split, row by row
  for (std::int64_t b = 0; b < requests; ++b) {
    first_place.push_back(places);
    for (std::size_t s = 0; s < splits[static_cast<std::size_t>(b)].size(); ++s) {
      for (std::int64_t r = 0; r < rows; r += block) tasks.push_back({b, r, static_cast<std::int64_t>(s), places + r});
      places += rows;
    }
  }
  std::vector<Partial> partials(static_cast<std::size_t>(places));
  parallel_for(exec.threads, static_cast<std::int64_t>(tasks.size()), 1e7, [&](std::int64_t i) {
    const Task& task = tasks[static_cast<std::size_t>(i)];
    const Tile tile(call, task.request, task.first_row,
                    splits[static_cast<std::size_t>(task.request)][static_cast<std::size_t>(task.split)], exec.isa);
    for (std::int64_t r = 0; r < tile.rows(); ++r) {
      Partial& partial = partials[static_cast<std::size_t>(task.place + r)];
      tile.finish(r, partial.out.data(), partial.sum, partial.top);
    }
  });
  parallel_for(exec.threads, requests * rows, 1e4, [&](std::int64_t i) {
    const std::int64_t b = i / rows, row = i % rows;
    std::vector<const Partial*> mine;
    for (std::size_t s = 0; s < splits[static_cast<std::size_t>(b)].size(); ++s)
      mine.push_back(
          &partials[static_cast<std::size_t>(first_place[static_cast<std::size_t>(b)] + static_cast<std::int64_t>(s) * rows + row)]);
    const Partial& first = *mine.front();
    std::array<float, static_cast<std::size_t>(mla_latent)> combined;
    const float* out = first.out.data();
    float lse = first.none() ? infinity : hw::fma(hw::lg2(first.sum), hw::ln_2, hw::mul(first.top, hw::ln_2));
    if (mine.size() > 1) {
      lse = combine(mine, combined.data());
      out = combined.data();
    }
    for (std::int64_t d = 0; d < mla_latent; ++d) quant::set(call.out, i * mla_latent + d, static_cast<double>(out[d]));
    quant::set(call.lse, (b * heads + row % heads) * queries + row / heads, static_cast<double>(lse));
  });
}

}  // namespace dodona::ops
