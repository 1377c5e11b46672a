#include "model/weights/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/threads.h"
#include "dodona/error.h"
#include "model/weights/tensor_list.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/element.h"
#include "quant/finite.h"
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
  const int dim = tensor.dim_of_rows();
  LinearSize all = size_of(source, modules[0]);
  all.rows = 0;
  for (const std::string& module : modules) {
    // Where a part ends inside of a block, what lies below would have another's scale.
    if (all.rows % tensor.rows != 0)
      fail(ErrorCode::unsupported, module,
           "lies below " + std::to_string(all.rows) + " rows in one product, expected a multiple of " + std::to_string(tensor.rows) +
               ", the rows that share a scale");
    all.rows += size_of(source, module).rows;
  }
  const Tensor stacked = Tensor::uninitialized(tensor.dtype, tensor.shape(all));
  std::int64_t begin = 0;
  for (const std::string& module : modules) {
    const Dims shape = tensor.shape(size_of(source, module));
    const Tensor place = stacked.slice(dim, begin, begin + shape[dim]);
    if (dim == 0)
      source.read(module + tensor.suffix, bytes_of(place));
    else
      copy(source.get(module + tensor.suffix), place);
    begin += shape[dim];
  }
  return stacked.read_only();
}

/// Of scales, which are few: what is no number in one of them would be told by a kernel, which knows no names, or by none.
void check_finite(const WeightSource& source, std::span<const std::string> modules, const FormTensor& tensor, const Tensor& stacked) {
  std::int64_t first = 0;
  for (const std::string& module : modules) {
    const std::int64_t count = element_count(tensor.shape(size_of(source, module)));
    const std::int64_t at = quant::first_not_finite(stacked.dtype(), stacked.as<std::byte>() + bytes_for(stacked.dtype(), first), count);
    if (at < count)
      throw Error(ErrorCode::bad_value, "", "",
                  "tensor '" + module + tensor.suffix + "' holds " + text(static_cast<float>(quant::get(stacked, first + at))) +
                      " at element " + std::to_string(at) + ", expected finite scales");
    first += count;
  }
}

/// The largest of the modules' scales.
float largest_scale(const WeightSource& source, std::span<const std::string> modules, const char* suffix) {
  float largest = 0;
  for (const std::string& module : modules) largest = std::max(largest, positive_scale(source, module + suffix));
  return largest;
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

/// Row n of the matrix in fp32.
using Row = void (*)(const Linear&, std::int64_t n, float* out);

void nvfp4_row(const Linear& l, std::int64_t n, float* out) {
  const std::uint8_t* const codes = l.weight.as<std::uint8_t>() + n * (l.columns / 2);
  const std::uint8_t* const scales = l.weight_scale.as<std::uint8_t>() + n * (l.columns / 16);
  for (std::int64_t k = 0; k < l.columns; ++k) {
    const int code = (codes[k / 2] >> (k % 2 * 4)) & 15;
    out[k] = quant::e2m1_to_f32(static_cast<std::uint8_t>(code)) * quant::e4m3_to_f32(scales[k / 16]) * l.weight_scale_2;
  }
}
void fp8_block_row(const Linear& l, std::int64_t n, float* out) {
  const std::uint8_t* const codes = l.weight.as<std::uint8_t>() + n * l.columns;
  const float* const scales = l.weight_scale.as<float>() + n / 128 * l.weight_scale.size(1);
  for (std::int64_t k = 0; k < l.columns; ++k) out[k] = quant::e4m3_to_f32(codes[k]) * scales[k / 128];
}
void fp8_row(const Linear& l, std::int64_t n, float* out) {
  const std::uint8_t* const codes = l.weight.as<std::uint8_t>() + n * l.columns;
  for (std::int64_t k = 0; k < l.columns; ++k) out[k] = quant::e4m3_to_f32(codes[k]) * l.weight_scale.as<float>()[n];
}
void int8_row(const Linear& l, std::int64_t n, float* out) {
  const std::int8_t* const codes = l.weight.as<std::int8_t>() + n * l.columns;
  for (std::int64_t k = 0; k < l.columns; ++k) out[k] = static_cast<float>(codes[k]) * l.weight_scale.as<float>()[n];
}
void w4a8_row(const Linear& l, std::int64_t n, float* out) {
  const std::uint8_t* const codes = l.weight.as<std::uint8_t>() + n * (l.columns / 2);
  const float* const scales = l.weight_scale.as<float>() + n * (l.columns / 128);
  for (std::int64_t k = 0; k < l.columns; ++k) {
    const int code = (codes[k / 2] >> (k % 2 * 4)) & 15;
    out[k] = static_cast<float>(code < 8 ? code : code - 16) * quant::bf16_to_f32(quant::f32_to_bf16(scales[k / 128]));
  }
}

/// The code of QServe's tiles of 32 x 32.
int qserve_code(const Linear& l, std::int64_t n, std::int64_t k) {
  const std::int64_t a = n % 32 / 16, b = n % 16 / 8, c = n % 8, d = k % 32 / 16, e = k % 16 / 4, f = k % 4;
  const std::int64_t tile = n / 32 * (l.columns / 32) + k / 32;
  return (l.weight.as<std::uint8_t>()[tile * 512 + c * 64 + e * 16 + d * 8 + b * 4 + f] >> (4 * a)) & 15;
}
float half_of(const Tensor& tensor, std::int64_t i) {
  return quant::f16_to_f32(tensor.as<std::uint16_t>()[i]);
}
void qserve_channel_row(const Linear& l, std::int64_t n, float* out) {
  const float scale = half_of(l.weight_scale, n), zero = half_of(l.zeros, n);
  for (std::int64_t k = 0; k < l.columns; ++k) out[k] = static_cast<float>(qserve_code(l, n, k)) * scale - zero;
}
void qserve_group_row(const Linear& l, std::int64_t n, float* out) {
  const float scale = half_of(l.weight_scale, n);
  const std::int64_t place = n / 32 * 32 + n % 8 * 4 + n % 32 / 8;  // of each 32 channels position p is channel p % 4 * 8 + p / 4
  for (std::int64_t k = 0; k < l.columns; ++k) {
    const std::int64_t i = k / 128 * l.rows + place;
    const int level = qserve_code(l, n, k) * l.group_scales.as<std::int8_t>()[i] + l.zeros.as<std::int8_t>()[i];
    out[k] = static_cast<float>(static_cast<std::int8_t>(level)) * scale;
  }
}

Row row_of(WeightForm form) {
  switch (form) {
    case WeightForm::bf16: break;
    case WeightForm::nvfp4: return nvfp4_row;
    case WeightForm::fp8_block: return fp8_block_row;
    case WeightForm::fp8: return fp8_row;
    case WeightForm::int8: return int8_row;
    case WeightForm::qserve_channel: return qserve_channel_row;
    case WeightForm::qserve_group: return qserve_group_row;
    case WeightForm::w4a8: return w4a8_row;
  }
  return nullptr;
}

}  // namespace

std::int64_t Linear::bytes() const {
  std::int64_t bytes = 0;
  for (const FormTensor& tensor : tensors_of(form))
    if (!tensor.scalar()) bytes += bytes_for(tensor.dtype, element_count(tensor.shape({rows, columns})));
  return bytes;
}

Tensor dequantize(const Linear& linear, int threads, DType type) {
  if (linear.form == WeightForm::bf16 && type == DType::bf16) return linear.weight;
  const Tensor out = Tensor::uninitialized(type, {linear.rows, linear.columns});
  const std::int64_t columns = linear.columns;
  const Row row = row_of(linear.form);
  parallel_for(threads, linear.rows, static_cast<double>(columns), [&](std::int64_t n) {
    std::vector<float> values(static_cast<std::size_t>(columns));
    if (row != nullptr)
      row(linear, n, values.data());
    else
      quant::to_f32(DType::bf16, linear.weight.as<std::byte>() + n * columns * 2, values.data(), columns);
    quant::from_f32(type, values.data(), out.as<std::byte>() + bytes_for(type, n * columns), columns);
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
  const bool fits = tensor.elements() == 1 && (tensor.dtype() == DType::f32 || (info && info->dtypes.size() > 1));
  if (!fits) throw Error(ErrorCode::bad_shape, "", "", "tensor '" + std::string(name) + "' is no f32 scalar");
  return static_cast<float>(quant::get(tensor, 0));
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
  for (const FormTensor& tensor : tensors_of(linear.form)) switch (tensor.role) {
      case TensorRole::weight: linear.weight = stack(*this, modules, tensor); break;
      case TensorRole::scale:
        linear.weight_scale = stack(*this, modules, tensor);
        check_finite(*this, modules, tensor, linear.weight_scale);
        break;
      case TensorRole::group_scale: linear.group_scales = stack(*this, modules, tensor); break;
      case TensorRole::zero: linear.zeros = stack(*this, modules, tensor); break;
      case TensorRole::scale_2: linear.weight_scale_2 = common_scale(*this, modules, tensor.suffix); break;
      case TensorRole::input_scale:
        linear.input_scale = (linear.form == WeightForm::nvfp4 ? common_scale : largest_scale)(*this, modules, tensor.suffix);
        break;
    }
  return linear;
}

}  // namespace dodona::model
