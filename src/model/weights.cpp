#include "model/weights.h"

#include <cmath>
#include <cstring>

#include "core/threads.h"
#include "dodona/error.h"
#include "model/tensor_list.h"
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

LinearSize size_of(const ModelConfig& config, std::string_view module) {
  const auto size = find_linear(config, module);
  if (!size) fail(ErrorCode::missing_argument, module, config.name + " has no linear of that name");
  return *size;
}

std::span<std::byte> bytes_of(const Tensor& tensor) {
  return {tensor.as<std::byte>(), static_cast<std::size_t>(bytes_for(tensor.dtype(), tensor.elements()))};
}

/// The tensors called `suffix` of all modules, one below the other: `rows` in all, each of `columns` elements.
Tensor stack(const WeightSource& source, std::span<const std::string> modules, const char* suffix, DType dtype, std::int64_t columns) {
  std::int64_t rows = 0;
  for (const std::string& module : modules) rows += size_of(source.config(), module).rows;
  const Tensor all = Tensor::uninitialized(dtype, {rows, columns});
  std::int64_t begin = 0;
  for (const std::string& module : modules) {
    const std::int64_t end = begin + size_of(source.config(), module).rows;
    source.read(module + suffix, bytes_of(all.slice(0, begin, end)));
    begin = end;
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
  if (!is_nvfp4()) return rows * columns * 2;
  return nvfp4.weight.elements() + nvfp4.weight_scale.elements();
}

Tensor dequantize(const Linear& linear, int threads) {
  if (!linear.is_nvfp4()) return linear.bf16;
  const Tensor out = Tensor::uninitialized(DType::bf16, {linear.rows, linear.columns});
  const std::int64_t columns = linear.columns;
  parallel_for(threads, linear.rows, static_cast<double>(columns), [&](std::int64_t row) {
    dequantize_row(linear.nvfp4.weight.as<std::uint8_t>() + row * (columns / 2),
                   linear.nvfp4.weight_scale.as<std::uint8_t>() + row * (columns / 16), linear.nvfp4.weight_scale_2, columns,
                   out.as<std::uint16_t>() + row * columns);
  });
  return out.read_only();
}

Tensor dequantize_unscaled(const Linear& linear, int threads) {
  Linear without = linear;
  without.nvfp4.weight_scale_2 = 1.0f;
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
  const LinearSize size = size_of(config_, module);
  const std::string name(module);
  Linear linear{name, size.rows, size.columns, {}, {}};
  if (config_.is_nvfp4(module)) {
    linear.nvfp4.weight = get(name + ".weight");
    linear.nvfp4.weight_scale = get(name + ".weight_scale");
    linear.nvfp4.weight_scale_2 = positive_scale(*this, name + ".weight_scale_2");
    linear.nvfp4.input_scale = positive_scale(*this, name + ".input_scale");
  } else {
    linear.bf16 = get(name + ".weight");
  }
  return linear;
}

KvScales WeightSource::kv_scales(std::int64_t layer) const {
  const std::string attention = layer_prefix(layer) + "self_attn.", k = attention + "k_proj.k_scale", v = attention + "v_proj.v_scale";
  if (!config_.quant.fp8_kv_cache || (!has(k) && !has(v))) return {};
  return {positive_scale(*this, has(k) ? k : v), positive_scale(*this, has(v) ? v : k)};
}

Linear WeightSource::fused(std::span<const std::string> modules) const {
  if (modules.empty()) fail(ErrorCode::bad_value, "", "no modules to fuse");
  const LinearSize first = size_of(config_, modules[0]);
  const bool nvfp4 = config_.is_nvfp4(modules[0]);
  Linear linear{modules[0], first.rows, first.columns, {}, {}};
  for (const std::string& module : modules.subspan(1)) {
    const LinearSize size = size_of(config_, module);
    linear.module += " + " + module;
    linear.rows += size.rows;
    if (size.columns != first.columns)
      fail(ErrorCode::bad_shape, module,
           "has " + std::to_string(size.columns) + " columns, expected " + std::to_string(first.columns) + ", as '" + modules[0] + "' has");
    if (config_.is_nvfp4(module) != nvfp4)
      fail(ErrorCode::unsupported, module,
           std::string("is ") + (nvfp4 ? "bf16" : "NVFP4") + ", and '" + modules[0] + "', with which it is fused, is not");
  }
  if (nvfp4) {
    linear.nvfp4.weight_scale_2 = common_scale(*this, modules, ".weight_scale_2");
    linear.nvfp4.input_scale = common_scale(*this, modules, ".input_scale");
    linear.nvfp4.weight = stack(*this, modules, ".weight", DType::u8, first.columns / 2);
    linear.nvfp4.weight_scale = stack(*this, modules, ".weight_scale", DType::f8_e4m3, first.columns / config_.quant.group_size);
  } else {
    linear.bf16 = stack(*this, modules, ".weight", DType::bf16, first.columns);
  }
  return linear;
}

}  // namespace dodona::model
