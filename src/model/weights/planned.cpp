// Sizes of weights, for plans.
#include "dodona/error.h"
#include "model/weights/tensor_list.h"
#include "model/weights/weights.h"
#include "model/weights/without_memory.h"

namespace dodona::model {
namespace {

class PlannedWeights final : public WeightSource {
 public:
  PlannedWeights(ModelConfig config, const Shard& shard) : WeightSource(std::move(config), shard) {}

  std::string description() const override { return "sizes of weights"; }
  bool sizes_alone() const override { return true; }
  bool has(std::string_view name) const override { return find_tensor_info(config(), name, shard()).has_value(); }
  Tensor get(std::string_view name) const override {
    const auto info = find_tensor_info(config(), name, shard());
    if (!info)
      throw Error(ErrorCode::missing_argument, "", "", "tensor '" + std::string(name) + "': " + local().name + " has none of that name");
    return without_memory(info->dtypes.front(), info->shape);
  }
  void read(std::string_view name, std::span<std::byte>) const override {
    throw Error(ErrorCode::unsupported, "", "", "tensor '" + std::string(name) + "': a plan has no bytes");
  }
  void check_layer(std::int64_t layer) const override { config().check_layer(layer); }
};

}  // namespace

std::unique_ptr<WeightSource> planned_weights(ModelConfig config, const Shard& shard) {
  return std::make_unique<PlannedWeights>(std::move(config), shard);
}

}  // namespace dodona::model
