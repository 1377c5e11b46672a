#include "ops/schemes/low_latency.h"

#include <algorithm>
#include <string>

#include "dodona/error.h"
#include "ops/base/golden_output.h"
#include "ops/rows/copies/placed_rows.h"

namespace dodona::ops {
namespace {

std::string number(std::int64_t n) {
  return std::to_string(n);
}

DealtRows no_rows(const LowLatency& call) {
  const auto ranges = static_cast<std::size_t>(call.num_experts * call.ranks());
  return {std::vector<std::int64_t>(static_cast<std::size_t>(call.num_experts * call.room()), -1), std::vector<std::int64_t>(ranges, 0),
          std::vector<std::int64_t>(ranges, 0)};
}

}  // namespace

DealtRows dealt_rows(const LowLatency& call) {
  DealtRows rows = no_rows(call);
  std::vector<std::int64_t> next(static_cast<std::size_t>(call.num_experts), 0);
  const std::int64_t topk = call.topk_idx.size(2);
  const auto* ids = call.topk_idx.as<const std::int64_t>();
  for (std::int64_t r = 0; r < call.ranks(); ++r) {
    for (std::int64_t e = 0; e < call.num_experts; ++e)
      rows.begin[static_cast<std::size_t>(e * call.ranks() + r)] = next[static_cast<std::size_t>(e)];
    for (std::int64_t i = r * call.tokens() * topk; i < (r + 1) * call.tokens() * topk; ++i) {
      const std::int64_t e = ids[i];
      if (e < 0) continue;
      rows.token[static_cast<std::size_t>(e * call.room() + next[static_cast<std::size_t>(e)]++)] = i / topk;
      ++rows.count[static_cast<std::size_t>(e * call.ranks() + r)];
    }
  }
  return rows;
}

bool rows_as_dealt(const LowLatency& actual, DealtRows& rows) {
  const DealtRows expected = dealt_rows(actual);
  rows = no_rows(actual);
  for (std::int64_t e = 0; e < actual.num_experts; ++e)
    for (std::int64_t r = 0; r < actual.ranks(); ++r) {
      const auto at = static_cast<std::size_t>(e * actual.ranks() + r);
      const std::int64_t range = actual.layout_range.as<const std::int64_t>()[at];
      const std::int64_t count = range & 0xFFFFFFFF, begin = range >> 32;
      if (count != expected.count[at] || begin < 0 || begin + count > actual.room()) return false;
      rows.begin[at] = begin;
      rows.count[at] = count;
      std::vector<std::int64_t> found, wanted;
      for (std::int64_t i = 0; i < count; ++i) {
        std::int64_t& row = rows.token[static_cast<std::size_t>(e * actual.room() + begin + i)];
        const std::int64_t token = actual.src_info.as<const std::int32_t>()[e * actual.room() + begin + i];
        if (row >= 0 || token < 0 || token >= actual.tokens()) return false;
        row = r * actual.tokens() + token;
        found.push_back(row);
        wanted.push_back(expected.token[static_cast<std::size_t>(e * actual.room() + expected.begin[at] + i)]);
      }
      std::sort(found.begin(), found.end());
      std::sort(wanted.begin(), wanted.end());
      if (found != wanted) return false;
    }
  return true;
}

void place_sources(const LowLatency& call, const DealtRows& rows) {
  for (std::int64_t e = 0; e < call.num_experts; ++e) {
    std::int64_t count = 0;
    for (std::int64_t r = 0; r < call.ranks(); ++r) {
      const auto at = static_cast<std::size_t>(e * call.ranks() + r);
      count += rows.count[at];
      call.layout_range.as<std::int64_t>()[at] = rows.begin[at] << 32 | rows.count[at];
    }
    call.count.as<std::int32_t>()[e] = static_cast<std::int32_t>(count);
  }
  for (std::size_t row = 0; row < rows.token.size(); ++row)
    call.src_info.as<std::int32_t>()[row] = rows.token[row] < 0 ? 0 : static_cast<std::int32_t>(rows.token[row] % call.tokens());
}

void record_sources(const LowLatency& call, const DealtRows& rows, Reference& reference) {
  record_exact(call.count, &reference, "packed_recv_count");
  record_exact(call.layout_range, &reference, "packed_recv_layout_range");
  record_placed(rows.token, call.src_info, nullptr, reference, "packed_recv_src_info");
}

void require_ranks(const LowLatency& call) {
  if (call.num_experts % call.ranks() != 0)
    throw Error(ErrorCode::bad_value, "", "num_experts",
                "is " + number(call.num_experts) + ", expected a multiple of the " + number(call.ranks()) + " ranks");
  if (call.tokens() > call.tokens_of_rank)
    throw Error(ErrorCode::bad_value, "", "num_max_dispatch_tokens_per_rank",
                "is " + number(call.tokens_of_rank) + ", expected at least T = " + number(call.tokens()));
}

void require_room(const LowLatency& call) {
  const auto* ids = call.topk_idx.as<const std::int64_t>();
  std::vector<std::int64_t> rows(static_cast<std::size_t>(call.num_experts), 0);
  for (std::int64_t i = 0; i < call.topk_idx.elements(); ++i) {
    if (ids[i] < -1 || ids[i] >= call.num_experts)
      throw Error(
          ErrorCode::bad_value, "", "topk_idx",
          "holds " + number(ids[i]) + " at element " + number(i) + ", expected -1 or one of " + number(call.num_experts) + " experts");
    if (ids[i] >= 0 && ++rows[static_cast<std::size_t>(ids[i])] > call.room())
      throw Error(ErrorCode::bad_value, "", "topk_idx",
                  "names expert " + number(ids[i]) + " once more, expected at most the " + number(call.room()) +
                      " rows that packed_recv_x has for it");
  }
}

}  // namespace dodona::ops
