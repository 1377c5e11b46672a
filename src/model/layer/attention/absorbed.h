// kv_b_proj in the absorbed form of attention.
#pragma once

#include <string_view>

#include "dodona/exec.h"
#include "dodona/tensor.h"
#include "model/layer/setting.h"
#include "model/weights/weights.h"

namespace dodona::model {

/// kv_b_proj split: per head W [nope + v, latent]. Quantized weights become e4m3 with one scale for both halves, which `bmm_fp8`
/// multiplies with activations quantized likewise, all of a call or each token alone; others, and all with roundings off, stay wide for
/// `bmm`.
struct AbsorbWeights {
  Tensor w_kc;                  ///< [Nh, Dn, Lkv]
  Tensor w_vc;                  ///< [Nh, Lkv, Dv]: a transposed view
  Tensor scale;                 ///< f32 [1] of e4m3 halves, column-major as the op takes them; undefined for wide ones
  bool scale_by_token = false;  ///< see LayerSetting

  /// [Nh, T, K] x [Nh, K, N], `right` one of the halves, into `out`, a view of the same sizes.
  void multiply(const Tensor& left, const Tensor& right, const Tensor& out, const Exec& exec) const;
};

/// Of the layer's kv_b_proj. Of a source of sizes alone, without memory.
AbsorbWeights absorb_weights(const WeightSource& source, const std::string& module, const LayerSetting& setting, const Exec& exec);
/// "bmm_fp8" or "bmm", for a kv_b_proj that is stored so.
std::string_view absorbing_kernel(WeightForm form, const LayerSetting& setting);

}  // namespace dodona::model
