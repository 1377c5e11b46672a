// The ranks that hold the shards of a layer, as one of them sees them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "dodona/tensor.h"
#include "model/layer/trace.h"
#include "model/weights/shard.h"

namespace dodona::model {

struct Pass;
struct Routed;

/// Ranks that give each other tensors. All of a group call it, in the same order; a rank that cannot must let the others know, so that
/// nobody waits for it.
class RankGroup {
 public:
  virtual ~RankGroup() = default;
  /// What each rank gives, by rank: tensors of one dtype and, but for the first size, of one shape. Throws Error when a rank is lost.
  virtual std::vector<Tensor> gather(const Tensor& mine) = 0;
  /// Of tensors that have one shape on all ranks: [R, ...].
  virtual Tensor gather_alike(const Tensor& mine);
  /// What each rank has for this one, which is rank `me` of the group: bytes, u8 [n], of whatever length. Groups that have no better way
  /// give everybody everything.
  virtual std::vector<Tensor> exchange(std::int64_t me, const std::vector<Tensor>& to_each);
};

/// The groups that this rank is in; nullptr where it has all there is.
struct Ranks {
  RankGroup* tensor = nullptr;   ///< shards of heads and intermediate columns
  RankGroup* experts = nullptr;  ///< shards of the routed experts
  /// The ranks of `experts` have tokens of their own: attention is data-parallel. Each passes through every layer as often as the others.
  bool own_tokens = false;
  RankGroup* pipeline = nullptr;  ///< stages, each with some of the layers
  Share stage = {};               ///< which of them this is
};

/// What the ranks that have terms of a sum share: heads and intermediate columns, or the routed experts.
enum class Shared { columns, experts };
/// All ranks' `partial` [T, H], by rank: [R, T, H]; of a plan nothing.
Tensor terms_of_ranks(const Pass& pass, Shared shared, const Tensor& partial);
/// The sum over all ranks' `partial` [T, H], by the all_reduce op; `partial` itself where there is one rank. `note` says of what.
Tensor all_reduced(const Pass& pass, Shared shared, Part part, std::string_view note, const Tensor& partial);

/// Rows of each expert that this rank is to load.
std::vector<std::int64_t> rows_here(const Pass& pass, const std::vector<std::int64_t>& counts);
struct Routing;
struct ExpertsBackend;
struct LayerSetting;
/// Whether each rank adds up its experts' rows of a token and the ranks' sums are added up, not the rows: where kernels give no rows, or
/// the shared expert is among the routed ones, on every rank. The bits are then those of that number of ranks.
bool sums_by_rank(const ExpertsBackend& backend, const LayerSetting& setting);
/// Throws Error (unsupported) where so many ranks cannot have experts of their own: their sums would have no all-reduce.
void check_experts_apart(const ExpertsBackend& backend, const LayerSetting& setting, std::int64_t ranks);
Routed of_all_ranks(const Pass& pass, const Tensor& x, const Routing& routing);
/// For this rank's tokens: what the backend of the routed experts gives, or, where ranks have experts of their own, what it would give with
/// all of them: each rank multiplies the rows of its own, and all add them up in the order of the router's columns; or where sums_by_rank,
/// the sum of what it gives on each rank. Throws Error as check_experts_apart does.
Tensor routed_experts(const Pass& pass, const Routed& routed);

}  // namespace dodona::model
