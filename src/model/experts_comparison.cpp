#include "model/experts_comparison.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "dodona/error.h"
#include "model/layer/experts/budget.h"
#include "model/layer/experts/experts.h"
#include "quant/element.h"

namespace dodona::model {
namespace {

using ops::Bounded;

/// Throws what a run of it would, and where its budget is not known.
void check_budget(const LayerRequest& request) {
  plan_layer(request);
  const ExpertsBackend& backend = LayerWeights(*planned_weights(request.config, request.shard), request.setting, request.exec).backend();
  if (!has_budget(backend, stored_experts(request.config, request.setting)))
    throw Error(ErrorCode::bad_option, "", "experts",
                "are run by " + std::string(backend.name) +
                    " as they are stored, whose budget is not known: expected one of blocks of fp8 (--expert-weights fp8 makes them), of "
                    "bf16 or of NVFP4");
}

/// What one backend gave, and what its contract makes of the same tokens.
struct Outcome {
  std::string name;
  Tensor output;
  std::vector<Bounded> allowed;
};

Outcome outcome_of(const LayerRequest& request) {
  LayerRun layer(request);
  const ExpertsBackend& backend = layer.weights().backend();
  Tensor x, shared;
  Routing routing;
  Outcome outcome{std::string(backend.name), {}, {}};
  layer.run([&](const OpRecord& record, const NamedTensors& outputs) {
    if (record.op == "self.post_attention_layernorm()") x = outputs.front().second.clone();
    if (record.op == "self.topk()") routing = {outputs[0].second.clone(), outputs[1].second.clone(), {}};
    if (record.op == "self.shared_experts()") shared = outputs.front().second.clone();
    if (record.op == "self.mlp()") outcome.output = outputs.front().second.clone();
  });
  routing.counts.assign(static_cast<std::size_t>(layer.weights().experts()), 0);
  for (std::int64_t i = 0; i < routing.ids.elements(); ++i) ++routing.counts[static_cast<std::size_t>(routing.ids.as<std::int32_t>()[i])];
  outcome.allowed = bounded_experts(layer.weights(), x, routing, request.exec);
  const double factor = backend.factor == FactorPlace::addition ? request.config.routed_scaling_factor : 1.0;
  for (std::size_t i = 0; i < outcome.allowed.size(); ++i) {
    Bounded sum = outcome.allowed[i] * factor;
    if (shared.defined()) sum = sum + Bounded{quant::get(shared, static_cast<std::int64_t>(i))};
    if (shared.defined() || factor != 1) outcome.allowed[i] = ops::rounded_to(DType::bf16, ops::rounded_f32(sum));
  }
  return outcome;
}

}  // namespace

void check_experts(const LayerRequest& request, const std::string& other, const char* option) {
  if (!request.config.is_moe_layer(request.setting.layer))
    throw Error(ErrorCode::bad_option, "", "experts", "are compared, but layer " + std::to_string(request.setting.layer) + " is dense");
  check_budget(request);
  LayerRequest second = request;
  second.setting.experts = other;
  try {
    check_budget(second);
  } catch (const Error& error) {
    if (error.argument() != "experts") throw;
    throw Error(error.code(), error.op(), option, error.message());
  }
}

ExpertsComparison compare_experts(const LayerRequest& request, const std::string& other) {
  check_experts(request, other, "experts");
  LayerRequest second = request;
  second.setting.experts = other;
  const Outcome a = outcome_of(request), b = outcome_of(second);
  ExpertsComparison result{.a = a.name, .b = b.name, .elements = a.output.elements()};
  for (std::int64_t i = 0; i < result.elements; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double difference = std::fabs(quant::get(a.output, i) - quant::get(b.output, i));
    const double allowed = std::fabs(a.allowed[at].exact - b.allowed[at].exact) + a.allowed[at].slack + b.allowed[at].slack;
    result.rms += quant::get(a.output, i) * quant::get(a.output, i);
    result.differing += quant::get_bits(a.output, i) != quant::get_bits(b.output, i) ? 1 : 0;
    result.beyond += difference > allowed && !a.allowed[at].open && !b.allowed[at].open ? 1 : 0;
    result.allowed = std::max(result.allowed, allowed);
    result.difference = std::max(result.difference, difference);
    if (allowed > 0) result.share = std::max(result.share, difference / allowed);
  }
  result.rms = std::sqrt(result.rms / std::max(1.0, static_cast<double>(result.elements)));
  return result;
}

io::Json to_json(const ExpertsComparison& c) {
  return {{"experts", c.a}, {"against", c.b},       {"elements", c.elements},     {"differing", c.differing}, {"beyond", c.beyond},
          {"rms", c.rms},   {"allowed", c.allowed}, {"difference", c.difference}, {"share", c.share}};
}

}  // namespace dodona::model
