// The MLP of a decoder layer: dense, or the mixture of experts with its router and shared expert.
#pragma once

#include "model/layer/pass.h"

namespace dodona::model {

/// x [T, H], normalised, to [T, H].
Tensor dense_mlp(const Pass& pass, const Tensor& x);
Tensor moe(const Pass& pass, const Tensor& x);

}  // namespace dodona::model
