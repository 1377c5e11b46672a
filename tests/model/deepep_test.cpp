// DeepEP between ranks: what each receives is its part of what the ops give of all ranks' tokens, in every format; so is what comes back.
#include "model/layer/experts/deepep.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/define.h"
#include "helpers.h"
#include "model/ranks/turns.h"
#include "ops/moe/deepep/deepep_combine.h"
#include "ops/moe/deepep/deepep_dispatch.h"
#include "ops/moe/deepep/deepep_low_latency_combine.h"
#include "ops/moe/deepep/deepep_low_latency_dispatch.h"
#include "ops/moe/deepep/deepep_low_latency_dispatch_nvfp4.h"
#include "quant/element.h"
#include "quant/swizzle.h"

namespace dodona::model {
namespace {

using testing::bytes;
using testing::drawn;

constexpr std::int64_t tokens = 5, width = 512, topk = 3, experts = 12;

/// Choices of all ranks' tokens, [R, T, K]: some of nobody, one token of nobody at all, one expert that nobody chooses.
Tensor choices(std::int64_t ranks) {
  const Tensor ids(DType::i64, {ranks, tokens, topk});
  for (std::int64_t i = 0; i < ids.elements(); ++i) {
    const std::int64_t e = (i * i * 7 + i / topk * 5) % (experts - 1);
    ids.as<std::int64_t>()[i] = i % 7 == 3 || (i / topk) % tokens == 2 ? -1 : e;
  }
  return ids;
}
/// One rank's.
Tensor part(const Tensor& all, std::int64_t rank) {
  return all.slice(0, rank, rank + 1).reshape({all.size(1), all.size(2)}).clone();
}
std::string row_bytes(const Tensor& t, std::int64_t expert, std::int64_t row) {
  return bytes(t.slice(0, expert, expert + 1).slice(1, row, row + 1).clone());
}

struct Sent {
  Tensor x, scales, count, src_info, layout_range;
};
Sent of_all(const Tensor& x, const Tensor& ids, const LowLatencyFormat& format) {
  const std::int64_t most = 2 * tokens;
  if (format.x_global_scale.defined()) {
    const auto op = ops::run(ops::DeepepLowLatencyDispatchNvfp4{.x = x,
                                                                .x_global_scale = format.x_global_scale,
                                                                .topk_idx = ids,
                                                                .num_max_dispatch_tokens_per_rank = most,
                                                                .num_experts = experts},
                             {});
    return {op.packed_recv_x, op.packed_recv_x_scales, op.packed_recv_count, op.packed_recv_src_info, op.packed_recv_layout_range};
  }
  const auto op = ops::run(ops::DeepepLowLatencyDispatch{.x = x,
                                                         .topk_idx = ids,
                                                         .num_max_dispatch_tokens_per_rank = most,
                                                         .num_experts = experts,
                                                         .use_fp8 = format.use_fp8,
                                                         .round_scale = format.round_scale,
                                                         .use_ue8m0 = format.use_ue8m0},
                           {});
  return {op.packed_recv_x, op.packed_recv_x_scales, op.packed_recv_count, op.packed_recv_src_info, op.packed_recv_layout_range};
}

TEST(DeepEp, LowLatencySendsWhatTheOpsGiveInEveryFormat) {
  const Tensor global(DType::f32, {1});
  global.as<float>()[0] = 448.0f * 6.0f / 4.0f;
  const LowLatencyFormat formats[] = {
      {.use_fp8 = false}, {}, {.round_scale = true}, {.round_scale = true, .use_ue8m0 = true}, {.x_global_scale = global}};
  for (const std::int64_t ranks : {1, 2, 4})
    for (const LowLatencyFormat& format : formats) {
      const bool fp4 = format.x_global_scale.defined();
      const Tensor x = drawn(3, "x", {ranks, tokens, width}, DType::bf16), ids = choices(ranks),
                   weights = drawn(4, "weights", {ranks, tokens, topk}, DType::f32);
      const Sent all = of_all(x, ids, format);
      const std::int64_t room = all.x.size(1);
      const Tensor made = drawn(5, "made", {experts, room, width}, DType::bf16);
      const Tensor sums =
          ops::run(
              ops::DeepepLowLatencyCombine{
                  .x = made, .topk_idx = ids, .topk_weights = weights, .src_info = all.src_info, .layout_range = all.layout_range},
              {})
              .combined_x;
      take_turns({.experts = ranks}, [&](std::int64_t rank, const Ranks& groups) {
        struct Alone final : RankGroup {
          std::vector<Tensor> gather(const Tensor& mine) override { return {mine}; }
        } alone;
        LowLatencyExchange exchange({groups.experts != nullptr ? *groups.experts : alone, {rank, ranks}, experts}, format, {});
        const auto mine = exchange.dispatch(part(x, rank), part(ids, rank), 4);
        ASSERT_EQ(mine.x.size(1) % 4, 0);
        const std::int64_t first = rank * experts / ranks;
        std::int64_t group = 0;
        const Tensor rows(DType::bf16, {mine.x.size(0), mine.x.size(1), width});
        for (std::int64_t e = 0; e < experts / ranks; ++e) {
          const std::int64_t count = all.count.as<const std::int32_t>()[first + e];
          ASSERT_EQ(mine.counts[static_cast<std::size_t>(e)], count);
          if (count == 0) continue;
          ASSERT_EQ(mine.count.as<const std::int32_t>()[group], count);
          for (std::int64_t i = 0; i < count; ++i) {
            EXPECT_EQ(row_bytes(mine.x, group, i), row_bytes(all.x, first + e, i));
            EXPECT_EQ(row_bytes(mine.src_info, group, i), row_bytes(all.src_info, first + e, i));
            if (all.scales.defined() && !fp4) EXPECT_EQ(row_bytes(mine.scales, group, i), row_bytes(all.scales, first + e, i));
            for (std::int64_t c = 0; fp4 && c < width / 16; ++c) {
              const std::int64_t at = quant::scale_offset(quant::ScaleLayout::swizzled_128x4, i, c, width / 16);
              const auto scale = [&](const Tensor& t, std::int64_t expert) {
                return t.as<const std::uint8_t>()[expert * t.size(1) * t.size(2) + at];
              };
              EXPECT_EQ(scale(mine.scales, group), scale(all.scales, first + e));
            }
            std::memcpy(rows.as<std::byte>() + (group * rows.size(1) + i) * 2 * width,
                        made.as<std::byte>() + ((first + e) * room + i) * 2 * width, static_cast<std::size_t>(2 * width));
          }
          ++group;
        }
        EXPECT_EQ(bytes(exchange.combine(rows, part(weights, rank))), bytes(part(sums, rank)));
      });
    }
}

TEST(DeepEp, NormalModeSendsWhatTheOpsGiveInEveryFormat) {
  for (const std::int64_t ranks : {2, 4})
    for (const char* const format : {"bf16", "f32 scales", "words of exponents"})
      for (const std::int64_t node : {0, 2}) {
        const std::string kind = format;
        const Tensor ids = choices(ranks), weights = drawn(4, "weights", {ranks, tokens, topk}, DType::f32);
        const Tensor x =
            kind == "bf16" ? drawn(3, "x", {ranks, tokens, width}, DType::bf16) : Tensor(DType::f8_e4m3, {ranks, tokens, width});
        Tensor scales;
        if (kind == "f32 scales") scales = drawn(6, "scales", {ranks, tokens, width / 128}, DType::f32);
        if (kind == "words of exponents") scales = Tensor(DType::i32, {ranks, tokens, width / 512});
        for (std::int64_t i = 0; kind != "bf16" && i < x.elements(); ++i) x.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(i * 37 % 120);
        for (std::int64_t i = 0; kind == "words of exponents" && i < scales.elements(); ++i)
          scales.as<std::int32_t>()[i] = static_cast<std::int32_t>(i * 77777);
        const auto all =
            ops::run(ops::DeepepDispatch{.x = x, .x_scales = scales, .topk_idx = ids, .topk_weights = weights, .num_experts = experts}, {});
        const Tensor made = drawn(5, "made", {ranks, ranks * tokens, width}, DType::bf16), goes(DType::boolean, {ranks, tokens, ranks});
        for (std::int64_t i = 0; i < ids.elements(); ++i)
          if (const std::int64_t e = ids.as<const std::int64_t>()[i]; e >= 0)
            goes.as<std::uint8_t>()[i / topk * ranks + e / (experts / ranks)] = 1;
        const Tensor sums = ops::run(ops::DeepepCombine{.x = made,
                                                        .recv_src_idx = all.recv_src_idx,
                                                        .rank_prefix_matrix = all.rank_prefix_matrix,
                                                        .is_token_in_rank = goes,
                                                        .ranks_per_node = node},
                                     {})
                                .combined_x;
        take_turns({.experts = ranks}, [&](std::int64_t rank, const Ranks& groups) {
          NormalExchange exchange({*groups.experts, {rank, ranks}, experts}, {});
          const auto mine =
              exchange.dispatch(part(x, rank), scales.defined() ? part(scales, rank) : Tensor(), part(ids, rank), part(weights, rank));
          const std::int64_t count = all.rank_prefix_matrix.as<const std::int32_t>()[(ranks - 1) * ranks + rank];
          ASSERT_EQ(mine.x.size(0), count);
          const auto same = [&](const Tensor& got, const Tensor& of_ranks) {
            const Tensor expected = of_ranks.slice(0, rank, rank + 1).slice(1, 0, count).clone();
            EXPECT_EQ(bytes(got), bytes(expected)) << format << " " << ranks;
          };
          same(mine.x, all.recv_x);
          if (scales.defined()) same(mine.scales, all.recv_x_scales);
          same(mine.topk_idx, all.recv_topk_idx);
          same(mine.topk_weights, all.recv_topk_weights);
          same(mine.src_idx, all.recv_src_idx);
          const Tensor rows = made.slice(0, rank, rank + 1).slice(1, 0, count).reshape({count, width}).clone();
          EXPECT_EQ(bytes(exchange.combine(rows, node)), bytes(part(sums, rank))) << format << " " << ranks << " " << node;
        });
      }
}

TEST(DeepEp, ARankWithoutTokensTakesPart) {
  take_turns({.experts = 2}, [&](std::int64_t rank, const Ranks& groups) {
    const std::int64_t here = rank == 0 ? 0 : tokens;
    const Tensor x = drawn(3, "x", {here, width}, DType::bf16), weights = drawn(4, "w", {here, topk}, DType::f32);
    const Tensor ids = here == 0 ? Tensor(DType::i64, {0, topk}) : part(choices(1), 0);
    LowLatencyExchange exchange({*groups.experts, {rank, 2}, experts}, {}, {});
    const auto received = exchange.dispatch(x, ids);
    const Tensor rows(DType::bf16, {received.x.size(0), received.x.size(1), width});
    EXPECT_EQ(exchange.combine(rows, weights).shape(), (Dims{here, width}));
    NormalExchange normal({*groups.experts, {rank, 2}, experts}, {});
    const auto whole = normal.dispatch(x, {}, ids, weights);
    EXPECT_EQ(normal.combine(Tensor(DType::bf16, whole.x.shape())).shape(), (Dims{here, width}));
  });
}

}  // namespace
}  // namespace dodona::model
