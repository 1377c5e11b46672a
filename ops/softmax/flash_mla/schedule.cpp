#include "ops/softmax/flash_mla/schedule.h"

#include <algorithm>
#include <string>

#include "dodona/error.h"
#include "quant/sizes.h"

namespace dodona::ops {
namespace {

using quant::ceil_div;

constexpr auto block = static_cast<std::int32_t>(flash_mla_block);
constexpr std::int32_t overhead_blocks = 5;  ///< what a request costs beside its blocks, as the scheduler counts

std::int32_t blocks_of(std::int32_t length) {
  return static_cast<std::int32_t>(ceil_div(std::max(length, 0), block));
}
/// Blocks as the scheduler counts them: the fp8 kernel's alone gives none to a request without tokens.
std::int32_t counted_blocks(FlashMlaKernel kernel, std::int32_t length) {
  return kernel == FlashMlaKernel::dense_fp8 ? blocks_of(length) : std::max(length - 1, 0) / block + 1;
}

std::int32_t at(const Tensor& numbers, std::int64_t i) {
  return numbers.as<const std::int32_t>()[i];
}
FlashMlaPart part_of(const FlashMlaWork& work, std::int64_t part) {
  const std::int64_t i = part * work.metadata.size(1);
  FlashMlaPart p{at(work.metadata, i), at(work.metadata, i + 1), at(work.metadata, i + 2), at(work.metadata, i + 3),
                 at(work.metadata, i + 4)};
  if (work.kernel == FlashMlaKernel::dense_fp8) p.begin_block /= block, p.end_block = blocks_of(p.end_block);
  return p;
}

}  // namespace

std::int64_t flash_mla_parts(FlashMlaKernel kernel, std::int64_t sm_count, std::int64_t key_heads, std::int64_t query_heads,
                             std::int64_t rows) {
  if (kernel == FlashMlaKernel::sparse) {
    // Two SMs share the keys of 128 heads of one query token.
    const std::int64_t tokens = rows * key_heads / query_heads, blocks = ceil_div(query_heads / key_heads, 2 * flash_mla_block) * tokens;
    return std::max<std::int64_t>(sm_count / 2 / key_heads / std::max<std::int64_t>(blocks, 1), 1);
  }
  const std::int64_t parts = sm_count / key_heads / std::max<std::int64_t>(ceil_div(rows, flash_mla_block), 1);
  return kernel == FlashMlaKernel::dense_fp8 ? parts : std::max<std::int64_t>(parts, 1);
}

FlashMlaSchedule flash_mla_schedule(FlashMlaKernel kernel, std::span<const std::int32_t> lengths, std::int64_t parts) {
  const auto requests = static_cast<std::int32_t>(lengths.size());
  const auto length = [&](std::int32_t b) { return lengths[static_cast<std::size_t>(b)]; };
  std::int64_t total = 0;
  for (std::int32_t b = 0; b < requests; ++b) total += counted_blocks(kernel, length(b)) + overhead_blocks;
  const std::int64_t payload = ceil_div(total, parts) + overhead_blocks;
  FlashMlaSchedule schedule;
  schedule.num_splits.push_back(0);
  std::int32_t now = 0, done = 0, split = 0;
  for (std::int64_t p = 0; p < parts; ++p) {
    FlashMlaPart part{now, done, 0, 0, split};
    std::int64_t left = payload;
    while (now < requests) {
      const std::int32_t open = counted_blocks(kernel, length(now)) - done;
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
    part.end_block = done > 0 ? done : now > 0 ? blocks_of(length(now - 1)) : 0;
    schedule.parts.push_back(part);
  }
  return schedule;
}

void write_flash_mla_schedule(const FlashMlaWork& work) {
  const bool tokens = work.kernel == FlashMlaKernel::dense_fp8;
  const FlashMlaSchedule schedule = flash_mla_schedule(work.kernel, work.lengths, work.metadata.size(0));
  const auto requests = static_cast<std::int32_t>(work.lengths.size());
  auto* to = work.metadata.as<std::int32_t>();
  for (FlashMlaPart part : schedule.parts) {
    if (tokens) {
      part.begin_block *= block;
      part.end_block *= block;
      if (part.end_request >= 0)
        part.end_block = std::min(part.end_block, std::max(work.lengths[static_cast<std::size_t>(part.end_request)], 0));
    } else if (part.begin_request >= requests) {
      part.begin_request = -1;
    }
    for (const std::int32_t value : {part.begin_request, part.begin_block, part.end_request, part.end_block, part.begin_split, 0, 0, 0})
      *to++ = value;
  }
  std::copy(schedule.num_splits.begin(), schedule.num_splits.end(), work.num_splits.as<std::int32_t>());
}

std::vector<std::vector<FlashMlaRange>> flash_mla_splits(const FlashMlaWork& work) {
  const auto requests = static_cast<std::int64_t>(work.lengths.size());
  std::vector<std::vector<FlashMlaRange>> splits(work.lengths.size());
  for (std::int64_t p = 0; p < work.metadata.size(0); ++p) {
    const FlashMlaPart part = part_of(work, p);
    if (part.begin_request < 0) continue;
    for (std::int64_t b = part.begin_request; b <= std::min<std::int64_t>(part.end_request, requests - 1); ++b) {
      const auto i = static_cast<std::size_t>(b);
      splits[i].push_back(
          {b == part.begin_request ? part.begin_block : 0, b == part.end_request ? part.end_block : blocks_of(work.lengths[i])});
    }
  }
  return splits;
}

std::int64_t most_splits(const Tensor& num_splits) {
  std::int64_t most = 0;
  for (std::int64_t b = 0; b + 1 < num_splits.elements(); ++b)
    most = std::max<std::int64_t>(most, at(num_splits, b + 1) - at(num_splits, b));
  return most;
}

void check_flash_mla_schedule(const FlashMlaWork& work) {
  const auto requests = static_cast<std::int64_t>(work.lengths.size());
  const auto fail = [](const std::string& what) { throw Error(ErrorCode::bad_value, "", "tile_scheduler_metadata", what); };
  for (std::int64_t p = 0; p < work.metadata.size(0); ++p) {
    const FlashMlaPart part = part_of(work, p);
    if (part.begin_request < 0 || part.begin_request >= requests) continue;
    if (part.begin_block < 0 || part.end_request < part.begin_request || part.end_request >= requests)
      fail("has part " + std::to_string(p) + " from request " + std::to_string(part.begin_request) + " block " +
           std::to_string(part.begin_block) + " to request " + std::to_string(part.end_request) + ", expected requests 0 to " +
           std::to_string(requests - 1) + " in order");
  }
  const std::vector<std::vector<FlashMlaRange>> splits = flash_mla_splits(work);
  for (std::int64_t b = 0; b < requests; ++b) {
    const std::int32_t length = work.lengths[static_cast<std::size_t>(b)], counted = at(work.num_splits, b + 1) - at(work.num_splits, b);
    const auto& mine = splits[static_cast<std::size_t>(b)];
    std::int32_t end = 0;
    bool fits = !mine.empty() && static_cast<std::int64_t>(mine.size()) == counted;
    for (const FlashMlaRange& range : mine) fits = fits && range.begin == end && range.end >= range.begin, end = range.end;
    if (!fits || end != blocks_of(length))
      fail("cuts request " + std::to_string(b) + " into " + std::to_string(mine.size()) + " splits up to block " + std::to_string(end) +
           ", expected its " + std::to_string(blocks_of(length)) + " blocks of " + std::to_string(length) + " tokens in the " +
           std::to_string(counted) + " splits that num_splits has");
  }
}

}  // namespace dodona::ops
