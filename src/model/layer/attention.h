// Multi-head latent attention of a batch.
#pragma once

#include <string_view>

#include "model/layer/pass.h"

namespace dodona::model {

/// One way of attending.
struct AttentionPath {
  std::string_view name;
  bool (*accepts)(const Batch&);
  /// x [T, H], normalised, to [T, H]; writes the new tokens' rows to the cache. `self.self_attn()` of the execution graph.
  Tensor (*run)(const Pass&, const Tensor& x);
};

/// The absorbed form, one new token per request: forward_absorb_prepare, forward_absorb_core, cutlass_mla_decode.
extern const AttentionPath mla_decode_path;

/// The first path that accepts the batch. Throws Error (unsupported) if none does.
const AttentionPath& choose_attention(const Batch& batch);

}  // namespace dodona::model
