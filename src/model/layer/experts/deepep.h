// DeepEP between ranks: what its dispatches send of each rank's tokens and what its combines send back, in their own formats. What a rank
// receives is, bit by bit, what the ops deepep_low_latency_dispatch, deepep_low_latency_dispatch_nvfp4 and deepep_dispatch give it of all
// ranks' tokens together.
#pragma once

#include <cstdint>
#include <vector>

#include "dodona/exec.h"
#include "model/layer/ranks.h"

namespace dodona::model {

/// What atomics deal has no GPU's bits: a dispatch runs as fast does where `exec` wants a GPU's. A combine has them.
Exec for_transport(const Exec& exec);

/// Experts are dealt out evenly: rank r of `share` has those from r * E / R on.
struct DeepEpRanks {
  RankGroup& group;
  Share share;
  std::int64_t experts;  ///< E, of all ranks

  std::int64_t here() const { return experts / share.count; }
};

/// How rows of the low-latency mode are sent: see the ops' attributes. With a global scale as nvfp4.
struct LowLatencyFormat {
  bool use_fp8 = true, round_scale = false, use_ue8m0 = false;
  Tensor x_global_scale = {};
};

/// The low-latency mode: a row for each token and each expert that it chose goes to that expert's rank, and comes back as bf16; weights
/// stay.
class LowLatencyExchange {
 public:
  LowLatencyExchange(const DeepEpRanks& ranks, const LowLatencyFormat& format, const Exec& exec)
      : ranks_(ranks), format_(format), exec_(exec) {}

  /// Rows for this rank's experts, those of them that have some in rising order, by the rank that sends them and by token.
  struct Received {
    std::vector<std::int64_t> counts;  ///< of each of the E / R
    Tensor x, scales;                  ///< [experts with rows, room, ...], see the ops; scales undefined without
    Tensor count, src_info;            ///< i32 [experts with rows], [experts with rows, room]
  };
  /// x [T, H] bf16; topk_idx i64 [T, K] with -1 for none. The room is that of the fullest expert, rounded up to multiples of `tile`. All
  /// ranks call it, those without tokens too.
  Received dispatch(const Tensor& x, const Tensor& topk_idx, std::int64_t tile = 1);
  /// rows bf16 [experts with rows, room, H] as they were received: the sums [T, H] of this rank's tokens, weighted by topk_weights [T, K].
  Tensor combine(const Tensor& rows, const Tensor& topk_weights);

 private:
  struct RowsOfExperts;
  /// Numbers the experts that tokens chose; gives the rows that go to each of all experts.
  std::vector<std::int64_t> choose(const Tensor& topk_idx);
  /// What this rank's tokens are sent as: rows of codes, and of scales where there are some.
  std::vector<RowsOfExperts> sent_rows(const Tensor& x);
  /// A letter for each rank: how many rows of each expert there, and of each row its token and what it holds.
  std::vector<Tensor> letters(const std::vector<std::int64_t>& counts, const std::vector<RowsOfExperts>& rows) const;
  Received read(const std::vector<Tensor>& letters, std::int64_t tile);
  /// Makes the room for what was counted, in the kinds of rows that ranks send.
  std::vector<RowsOfExperts> make_room(Received& received, std::int64_t tile) const;

  DeepEpRanks ranks_;
  LowLatencyFormat format_;
  Exec exec_;
  Tensor ids_, src_info_, layout_range_;              ///< of this rank's tokens: compact ids [1, T, K], and what the dispatch gave
  std::int64_t width_ = 0, room_ = 0;                 ///< H; rows of the fullest expert that this rank sends to
  std::vector<std::int64_t> chosen_;                  ///< experts that it sends to
  std::vector<std::int64_t> sent_;                    ///< rows to each of them
  std::vector<std::vector<std::int64_t>> from_each_;  ///< by rank and expert here: rows
};

/// The normal mode: a token goes to every rank that has one of its experts, once, with its scales, ids and weights.
class NormalExchange {
 public:
  NormalExchange(const DeepEpRanks& ranks, const Exec& exec) : ranks_(ranks), exec_(exec) {}

  struct Received {
    Tensor x, scales;     ///< [S, H] as they were given; scales undefined without
    Tensor topk_idx;      ///< i64 [S, K]: of this rank's experts, counted from its first; -1 for others
    Tensor topk_weights;  ///< f32 [S, K]; 0 for others
    Tensor src_idx;       ///< i32 [S]: token on the rank that it came from
  };
  /// x [T, H] bf16 or e4m3, with scales f32 or i32 [T, Hs] or without; topk_idx i64 [T, K], topk_weights f32 [T, K].
  Received dispatch(const Tensor& x, const Tensor& scales, const Tensor& topk_idx, const Tensor& topk_weights);
  /// rows bf16 [S, H], in the order in which they were received: the sums [T, H] of this rank's tokens over ranks, as deepep_combine has
  /// them for ranks of nodes of `ranks_per_node` (0: one node).
  Tensor combine(const Tensor& rows, std::int64_t ranks_per_node = 0);

 private:
  DeepEpRanks ranks_;
  Exec exec_;
  std::int64_t tokens_ = 0;
  std::vector<std::vector<std::int64_t>> to_each_;  ///< by rank: tokens that were sent
  std::vector<std::int64_t> from_each_;             ///< by rank: how many were received
};

}  // namespace dodona::model
