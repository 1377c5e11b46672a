#include "model/weights/weights.h"

#include <cmath>
#include <cstring>

#include "core/threads.h"
#include "dodona/error.h"
#include "model/weights/tensor_list.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/half.h"

namespace dodona::model {
namespace {

[[noreturn]] void fail(ErrorCode code, std::string_view module, const std::string& message) {
  throw Error(code, "", "", "module '" + std::string(module) + "': " + message);
}

std::string text(float value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.9g", static_cast<double>(value));
  return buffer;
}

float positive_scale(const WeightSource& source, const std::string& name) {
  const float value = source.scalar(name);
  if (!(value > 0) || !std::isfinite(value))
    throw Error(ErrorCode::bad_value, "", "", "tensor '" + name + "' is " + text(value) + ", expected a positive number");
  return value;
}

LinearSize size_of(const WeightSource& source, std::string_view module) {
  const auto size = find_linear(source.config(), module, source.shard());
  if (!size) fail(ErrorCode::missing_argument, module, source.local().name + " has no linear of that name");
  return *size;
}

std::span<std::byte> bytes_of(const Tensor& tensor) {
  return {tensor.as<std::byte>(), static_cast<std::size_t>(bytes_for(tensor.dtype(), tensor.elements()))};
}

/// That tensor of all modules, one below the other; of one module it is the source's own.
Tensor stack(const WeightSource& source, std::span<const std::string> modules, const FormTensor& tensor) {
  if (modules.size() == 1) return source.get(modules[0] + tensor.suffix);
  std::vector<Dims> shapes;
  std::int64_t rows = 0;
  for (const std::string& module : modules) {
    shapes.push_back(tensor.shape(size_of(source, module)));
    rows += shapes.back()[0];
  }
  const Tensor all = Tensor::uninitialized(tensor.dtype, {rows, shapes[0][1]});
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    source.read(modules[i] + tensor.suffix, bytes_of(all.slice(0, begin, begin + shapes[i][0])));
    begin += shapes[i][0];
  }
  return all.read_only();
}

/// The scale called `suffix`, which all modules must share: a GEMM has one alpha.
float common_scale(const WeightSource& source, std::span<const std::string> modules, const char* suffix) {
  const float first = positive_scale(source, modules[0] + suffix);
  for (const std::string& module : modules.subspan(1)) {
    const float other = positive_scale(source, module + suffix);
    if (other != first)
      fail(ErrorCode::bad_value, module,
           std::string(suffix + 1) + " is " + text(other) + ", expected " + text(first) + ", that of '" + modules[0] +
               "', with which it is fused into one GEMM");
  }
  return first;
}

void dequantize_row(const std::uint8_t* codes, const std::uint8_t* scales, float scale_2, std::int64_t columns, std::uint16_t* out) {
  for (std::int64_t k = 0; k < columns; ++k) {
    const int code = (codes[k / 2] >> (k % 2 * 4)) & 15;
    const float scale = quant::e4m3_to_f32(scales[k / 16]);
    out[k] = quant::f32_to_bf16(quant::e2m1_to_f32(static_cast<std::uint8_t>(code)) * scale * scale_2);
  }
}

}  // namespace

std::int64_t Linear::bytes() const {
  std::int64_t bytes = 0;
  for (const FormTensor& tensor : tensors_of(form))
    if (!tensor.scalar()) bytes += bytes_for(tensor.dtype, element_count(tensor.shape({rows, columns})));
  return bytes;
}

Tensor dequantize(const Linear& linear, int threads) {
  if (linear.form == WeightForm::bf16) return linear.weight;
  const Tensor out = Tensor::uninitialized(DType::bf16, {linear.rows, linear.columns});
  const std::int64_t columns = linear.columns;
  parallel_for(threads, linear.rows, static_cast<double>(columns), [&](std::int64_t row) {
    dequantize_row(linear.weight.as<std::uint8_t>() + row * (columns / 2), linear.weight_scale.as<std::uint8_t>() + row * (columns / 16),
                   linear.weight_scale_2, columns, out.as<std::uint16_t>() + row * columns);
  });
  return out.read_only();
}

Tensor dequantize_unscaled(const Linear& linear, int threads) {
  Linear without = linear;
  without.weight_scale_2 = 1.0f;
  return dequantize(without, threads);
}

float WeightSource::scalar(std::string_view name) const {
  const auto info = find_tensor_info(config_, name);
  if (info && info->optional && !has(name)) return 1;
  const Tensor tensor = get(name);
  if (tensor.dtype() != DType::f32 || tensor.elements() != 1)
    throw Error(ErrorCode::bad_shape, "", "", "tensor '" + std::string(name) + "' is no f32 scalar");
  return *tensor.as<float>();
}

Linear WeightSource::linear(std::string_view module) const {
  const std::string name(module);
  return fused({&name, 1});
}

KvScales WeightSource::kv_scales(std::int64_t layer) const {
  const std::string attention = layer_prefix(layer) + "self_attn.", k = attention + "k_proj.k_scale", v = attention + "v_proj.v_scale";
  if (!config_.quant.fp8_kv_cache || (!has(k) && !has(v))) return {};
  return {positive_scale(*this, has(k) ? k : v), positive_scale(*this, has(v) ? v : k)};
}

Linear WeightSource::described(std::span<const std::string> modules) const {
  if (modules.empty()) fail(ErrorCode::bad_value, "", "no modules to fuse");
  const LinearSize first = size_of(*this, modules[0]);
  Linear linear{.module = modules[0], .form = config_.form_of(modules[0]), .rows = first.rows, .columns = first.columns};
  for (const std::string& module : modules.subspan(1)) {
    const LinearSize size = size_of(*this, module);
    linear.module += " + " + module;
    linear.rows += size.rows;
    if (size.columns != first.columns)
      fail(ErrorCode::bad_shape, module,
           "has " + std::to_string(size.columns) + " columns, expected " + std::to_string(first.columns) + ", as '" + modules[0] + "' has");
    if (const WeightForm form = config_.form_of(module); form != linear.form)
      fail(ErrorCode::unsupported, module,
           "is " + std::string(name(form)) + ", expected " + std::string(name(linear.form)) + " as '" + modules[0] +
               "', with which it is fused");
  }
  return linear;
}

Linear WeightSource::fused(std::span<const std::string> modules) const {
  Linear linear = described(modules);
  for (const FormTensor& tensor : tensors_of(linear.form)) {
    const std::string_view suffix = tensor.suffix;
    if (suffix == ".weight_scale_2") linear.weight_scale_2 = common_scale(*this, modules, tensor.suffix);
    if (suffix == ".input_scale") linear.input_scale = common_scale(*this, modules, tensor.suffix);
    if (suffix == ".weight") linear.weight = stack(*this, modules, tensor);
    if (suffix == ".weight_scale") linear.weight_scale = stack(*this, modules, tensor);
  }
  return linear;
}

}  // namespace dodona::model
