// The part of a model that one of several machines holds.
#pragma once

#include <cstdint>

#include "model/config/config.h"

namespace dodona::model {

/// The part at `index` of `count` equal ones, which lie one behind the other.
struct Share {
  std::int64_t index = 0, count = 1;

  bool whole() const { return count == 1; }
  /// Where this part of `size` begins; its end is where the next one begins.
  std::int64_t begin(std::int64_t size) const { return size / count * index; }
  std::int64_t size(std::int64_t of) const { return of / count; }
};

/// What is split and what is not: a share of the heads is rows of q_proj, q_b_proj and kv_b_proj and columns of o_proj; of `intermediate`,
/// rows of gate_proj and up_proj and columns of down_proj, in dense MLPs and in every expert; of the experts, whole routed experts; of the
/// vocabulary, rows of the embedding and of lm_head. All else every machine holds. What o_proj and down_proj of a share give is a term of
/// the sum over all shares. Source: sglang's tensor and expert parallelism.
struct Shard {
  Share heads, experts, intermediate, vocabulary;

  bool whole() const { return heads.whole() && experts.whole() && intermediate.whole() && vocabulary.whole(); }
};

/// `config` with the shard's counts of heads and vocabulary and its intermediate sizes. The router goes over all experts, so their number
/// stays: local_experts has the range. Throws Error (bad_value) naming what cannot be split so, also where the parts' rows would be no
/// multiple of a quantized group.
ModelConfig sharded(const ModelConfig& config, const Shard& shard);

/// Routed experts begin ... end - 1.
struct ExpertRange {
  std::int64_t begin = 0, end = 0;
};
ExpertRange local_experts(const ModelConfig& config, const Shard& shard);

}  // namespace dodona::model
