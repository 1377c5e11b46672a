#include "ops/draws/blocked_row.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "quant/hopper/block_sum.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

constexpr std::size_t warp = 32, warps = 32;
using Warp = std::array<float, warp>;

/// What stands before each lane: pairs are added up, then handed down.
float exclusive_sums(Warp& lane) {
  for (std::size_t distance = 1; distance < warp; distance *= 2)
    for (std::size_t i = 2 * distance - 1; i < warp; i += 2 * distance) lane[i] += lane[i - distance];
  const float total = lane[warp - 1];
  lane[warp - 1] = 0;
  for (std::size_t distance = warp / 2; distance >= 1; distance /= 2)
    for (std::size_t i = 2 * distance - 1; i < warp; i += 2 * distance) {
      const float left = lane[i - distance];
      lane[i - distance] = lane[i];
      lane[i] = left + lane[i];
    }
  return total;
}

/// What stands before and up to each lane.
void inclusive_sums(Warp& lane) {
  for (std::size_t distance = 1; distance < warp; distance *= 2)
    for (std::size_t i = warp; i-- > distance;) lane[i] += lane[i - distance];
}

Warp warp_of(const std::vector<float>& totals, std::size_t w) {
  Warp lane;
  std::copy_n(totals.begin() + static_cast<std::ptrdiff_t>(w * warp), warp, lane.begin());
  return lane;
}

}  // namespace

BlockedRow::BlockedRow(std::span<const float> row)
    : size_(static_cast<std::int64_t>(row.size())), vector_(std::gcd(std::int64_t{4}, size_)), chunks_((size_ + chunk() - 1) / chunk()) {
  elements_.assign(static_cast<std::size_t>(chunks_ * chunk()), 0.0f);
  for (std::size_t i = 0; i < row.size(); ++i) elements_[i] = quant::hopper::ftz(row[i]);
}

void BlockedRow::kept(std::int64_t c, const Bar& bar, std::vector<float>& terms) const {
  const auto count = static_cast<std::size_t>(chunk());
  terms.resize(count);
  const float* from = elements_.data() + c * chunk();
  for (std::size_t i = 0; i < count; ++i) terms[i] = bar.passes(from[i]) ? from[i] : 0.0f;
}

std::vector<float> BlockedRow::thread_sums(const std::vector<float>& terms, bool in_order) const {
  const auto width = static_cast<std::size_t>(vector_);
  std::vector<float> totals(threads);
  for (std::size_t x = 0; x < totals.size(); ++x) {
    const float* own = terms.data() + x * width;
    if (in_order || width < 4) {
      totals[x] = own[0];
      for (std::size_t j = 1; j < width; ++j) totals[x] += own[j];
    } else {
      totals[x] = (own[0] + own[1]) + (own[2] + own[3]);
    }
  }
  return totals;
}

float BlockedRow::chunk_sum(const std::vector<float>& terms) const {
  std::vector<float> totals = thread_sums(terms, false);
  return quant::hopper::sum_of_threads(totals);
}

float BlockedRow::sum(const Bar& bar, bool beside_count) const {
  std::vector<float> terms;
  float sum = 0;
  for (std::int64_t c = 0; c < chunks_; ++c) {
    kept(c, bar, terms);
    std::vector<float> totals = thread_sums(terms, beside_count);
    sum += quant::hopper::sum_of_threads(totals);
  }
  return sum;
}

float BlockedRow::most() const {
  const auto greater = [](float own, float other) { return own < other ? other : own; };
  float most = 0.0f;
  std::vector<float> of_threads(threads);
  for (std::int64_t c = 0; c < chunks_; ++c) {
    for (std::int64_t t = 0; t < threads; ++t) {
      const float* own = elements_.data() + c * chunk() + t * vector_;
      // In neighbouring pairs, as sums: vector_ is 1, 2 or 4.
      const float first = vector_ > 1 ? greater(own[0], own[1]) : own[0];
      of_threads[static_cast<std::size_t>(t)] = vector_ < 4 ? first : greater(first, greater(own[2], own[3]));
    }
    for (std::size_t first = 0; first < of_threads.size(); first += warp)
      for (std::size_t distance = 1; distance < warp; distance *= 2)
        for (std::size_t lane = 0; lane + distance < warp; ++lane)
          of_threads[first + lane] = greater(of_threads[first + lane], of_threads[first + lane + distance]);
    float of_block = of_threads[0];
    for (std::size_t first = warp; first < of_threads.size(); first += warp) of_block = greater(of_block, of_threads[first]);
    most = std::fmax(most, of_block);
  }
  return most;
}

float BlockedRow::sum_by_threads() const {
  std::vector<float> totals(threads, 0.0f);
  for (std::int64_t c = 0; c < chunks_; ++c)
    for (std::int64_t i = 0; i < chunk(); ++i) {
      const std::int64_t element = c * chunk() + i;
      float& total = totals[static_cast<std::size_t>(i / vector_)];
      if (element < size_) total = quant::hopper::add(total, at(element));
    }
  return quant::hopper::sum_of_threads(totals);
}

std::vector<float> BlockedRow::running_sums(const std::vector<float>& terms, Scan scan) const {
  const auto width = static_cast<std::size_t>(vector_);
  std::vector<float> local(terms), sums(terms.size());
  const std::vector<float> totals = thread_sums(terms, scan == Scan::deterministic);
  for (std::size_t x = 0; x < totals.size(); ++x)
    for (std::size_t j = 1; j < width; ++j) local[x * width + j] = local[x * width + j - 1] + terms[x * width + j];
  std::vector<Warp> lanes(warps);
  Warp before;  // of each warp
  for (std::size_t w = 0; w < warps; ++w) {
    lanes[w] = warp_of(totals, w);
    if (scan == Scan::deterministic) {
      before[w] = exclusive_sums(lanes[w]);
    } else {
      inclusive_sums(lanes[w]);
    }
  }
  if (scan == Scan::deterministic) {
    exclusive_sums(before);
  } else {
    before[0] = 0;
    for (std::size_t w = 1; w < warps; ++w) before[w] = before[w - 1] + lanes[w - 1][warp - 1];
  }
  for (std::size_t x = 0; x < totals.size(); ++x) {
    const std::size_t w = x / warp, lane = x % warp;
    if (scan == Scan::deterministic) {
      const float offset = before[w] + lanes[w][lane];
      for (std::size_t j = 0; j < width; ++j) sums[x * width + j] = offset + local[x * width + j];
    } else if (width == 1) {
      sums[x] = w == 0 ? lanes[w][lane] : before[w] + lanes[w][lane];
    } else {
      // The elements are added one by one to what stands before the thread.
      float sum = lane == 0 ? before[w] : before[w] + lanes[w][lane - 1];
      for (std::size_t j = 0; j < width; ++j) sums[x * width + j] = sum = x == 0 && j == 0 ? terms[0] : sum + terms[x * width + j];
    }
  }
  return sums;
}

std::int64_t BlockedRow::draw(const Bar& bar, float u, Scan scan, std::int64_t otherwise) const {
  std::int64_t last = otherwise;
  const std::int64_t found = search(bar, u, scan, last);
  return found < 0 ? last : found;
}

std::int64_t BlockedRow::first_above(const Bar& bar, float u, Scan scan) const {
  std::int64_t last = -1;
  return search(bar, u, scan, last);
}

std::int64_t BlockedRow::search(const Bar& bar, float u, Scan scan, std::int64_t& last) const {
  std::vector<float> terms;
  float aggregate = 0;
  for (std::int64_t c = 0; c < chunks_; ++c) {
    kept(c, bar, terms);
    const float total = chunk_sum(terms);
    const std::int64_t begin = c * chunk(), end = std::min(begin + chunk(), size_);
    const bool reached = aggregate + total > u;
    if (reached) {
      const std::vector<float> sums = running_sums(terms, scan);
      for (std::int64_t i = begin; i < end; ++i)
        if (sums[static_cast<std::size_t>(i - begin)] + aggregate > u && bar.passes(at(i))) return i;
    }
    for (std::int64_t i = end; i-- > begin;)
      if (bar.passes(at(i))) {
        last = i;
        break;
      }
    aggregate += total;
    if (aggregate > u) break;
  }
  return -1;
}

}  // namespace dodona::ops
