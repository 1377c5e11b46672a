#include "model/decode_layer.h"

#include <string>

#include "core/define.h"
#include "core/threads.h"
#include "dodona/error.h"
#include "model/attention.h"
#include "model/mlp.h"
#include "model/values.h"
#include "model/work.h"
#include "ops/normalization/fused_add_rmsnorm.h"
#include "ops/normalization/rmsnorm.h"

namespace dodona::model {
namespace {

struct Normed {
  Tensor x, residual;
};

/// residual <- x + residual, x <- norm of the sum. Without a residual, x becomes it.
Normed layernorm(Part part, std::string_view name, const Tensor& x, const Tensor& residual, const Tensor& weight, double eps, Residual how,
                 Trace& trace) {
  Normed result;
  const Work work = residual.defined() ? moved({x, x, residual, residual, weight}) : moved({x, x, weight});
  trace.op(part, name, {}, {{"input", x.shape()}}, work, [&]() -> NamedTensors {
    if (!residual.defined() || how == Residual::pre_added) {
      result.residual = residual.defined() ? sum(x, residual, trace.exec().threads) : x;
      result.x = ops::run(ops::Rmsnorm{.input = result.residual, .weight = weight, .eps = eps}, trace.exec()).output;
    } else {
      const auto fused =
          ops::run(ops::FusedAddRmsnorm{.input = x.clone(), .residual = residual.clone(), .weight = weight, .eps = eps}, trace.exec());
      result = {fused.input, fused.residual};
    }
    return {{"output", result.x}, {"+residual", result.residual}};
  });
  return result;
}

void check(const DecodeStep& step, const LayerWeights& weights, const PagedKvCache& cache) {
  const DType type = activation_type(weights.rounding());
  const Dims expected{cache.requests(), weights.config().hidden_size};
  const auto check_one = [&](const char* name, const Tensor& tensor) {
    if (!(tensor.shape() == expected))
      throw Error(ErrorCode::bad_shape, "", name, "has shape " + to_string(tensor.shape()) + ", expected [B, H] = " + to_string(expected));
    if (tensor.dtype() != type)
      throw Error(ErrorCode::bad_dtype, "", name,
                  "has dtype " + std::string(dodona::name(tensor.dtype())) + ", expected " + std::string(dodona::name(type)));
  };
  check_one("hidden", step.hidden);
  if (step.residual.defined()) check_one("residual", step.residual);
  if (cache.buffer().dtype() != type)
    throw Error(ErrorCode::bad_dtype, "", "kv_cache",
                "holds " + std::string(dodona::name(cache.buffer().dtype())) + ", expected " + std::string(dodona::name(type)));
}

}  // namespace

ShapeBook decode_book(const ModelConfig& config, std::int64_t layer, std::int64_t batch, bool fused_shared) {
  config.check_layer(layer);
  return ShapeBook(config, config.is_nextn_layer(layer) ? Phase::nextn : Phase::decode,
                   BookOptions{.batch = batch, .layer = layer, .fused_shared = fused_shared});
}

LayerOutput decode(LayerWeights& weights, const DecodeStep& step, PagedKvCache& cache, Residual residual, Trace& trace) {
  check(step, weights, cache);
  const double eps = weights.config().rms_norm_eps;
  trace.enter("layer()");
  const Trace::Scope layer(trace);
  const Normed before =
      layernorm(Part::attention, "self.input_layernorm()", step.hidden, step.residual, weights.input_layernorm, eps, residual, trace);
  const Tensor attended = self_attn(weights, before.x, step.lengths, cache, trace);
  const Part part = weights.is_moe() ? Part::mlp_moe : Part::mlp_dense;
  const Normed after =
      layernorm(part, "self.post_attention_layernorm()", attended, before.residual, weights.post_attention_layernorm, eps, residual, trace);
  LayerOutput output{weights.is_moe() ? moe(weights, after.x, trace) : dense_mlp(weights, after.x, trace), after.residual};
  trace.gives({{"hidden", output.hidden}, {"residual", output.residual}});
  return output;
}

}  // namespace dodona::model
