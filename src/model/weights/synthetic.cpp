#include "model/weights/synthetic.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string_view>

#include "core/random.h"
#include "core/threads.h"
#include "dodona/error.h"
#include "model/weights/weights.h"
#include "quant/half.h"
#include "simd/philox_words.h"

namespace dodona::model {
namespace {

constexpr std::int64_t block_bytes = 16, chunk_bytes = 16384;  // a chunk stays in the first cache between drawing and converting

/// Where a part lies in the bytes of its tensor: `count` runs of `bytes`, the first at `begin`, `stride` from each to the next.
struct Runs {
  std::int64_t begin = 0, bytes = 0, stride = 0, count = 1;
};

Runs runs_of(const TensorInfo& given) {
  const TensorInfo info = given.tile_by_tile();
  const DType dtype = info.dtypes.front();
  if (info.split < 0) return {.bytes = info.bytes()};
  const std::int64_t row = bytes_for(dtype, element_count(info.whole) / info.whole[0]);
  if (info.split == 0) return {.begin = info.begin * row, .bytes = info.bytes()};
  return {.begin = bytes_for(dtype, info.begin), .bytes = bytes_for(dtype, info.shape[1]), .stride = row, .count = info.shape[0]};
}

using Words = std::span<std::uint32_t>;

/// Those bytes of the stream's words, passed through `change`, many at a time.
template <class Change>
void fill(Stream stream, const Runs& runs, const Exec& exec, std::span<std::byte> out, const Change& change) {
  const std::int64_t pieces = (runs.bytes + chunk_bytes - 1) / chunk_bytes;
  const std::int64_t largest = std::min(chunk_bytes, runs.bytes);
  parallel_for(exec.threads, runs.count * pieces, static_cast<double>(largest) / 4, [&](std::int64_t i) {
    alignas(64) std::array<std::uint32_t, chunk_bytes / 4 + 2 * block_bytes / 4> words;
    const std::int64_t run = i / pieces, offset = i % pieces * chunk_bytes, size = std::min(chunk_bytes, runs.bytes - offset);
    const std::int64_t begin = runs.begin + run * runs.stride + offset, first = begin / block_bytes;
    const std::int64_t blocks = (begin + size + block_bytes - 1) / block_bytes - first;
    std::byte* const to = out.data() + run * runs.bytes + offset;
    const bool whole = begin % block_bytes == 0 && size % block_bytes == 0 && reinterpret_cast<std::uintptr_t>(to) % block_bytes == 0;
    auto* const drawn = whole ? reinterpret_cast<std::uint32_t*>(to) : words.data();
    dispatch<PhiloxWordsKernel>(exec.isa, stream, static_cast<std::uint64_t>(first), blocks, drawn);
    change(Words(drawn, static_cast<std::size_t>(blocks * 4)));
    if (!whole) std::memcpy(to, reinterpret_cast<const std::byte*>(drawn) + begin % block_bytes, static_cast<std::size_t>(size));
  });
}

/// Each word by itself.
template <class Of>
auto wordwise(const Of& of) {
  return [=](Words words) {
    for (std::uint32_t& word : words) word = of(word);
  };
}

/// Both halves of a word: bf16(offset + fp32(h) * scale).
auto to_bf16(Isa isa, float offset, float scale) {
  return [=](Words words) { dispatch<Bf16WordsKernel>(isa, offset, scale, static_cast<std::int64_t>(words.size()), words.data()); };
}

/// Both halves: fp16(offset + fp32(h) * scale), that times `factor` and rounded again.
auto to_f16(float offset, float scale, float factor) {
  return wordwise([=](std::uint32_t word) {
    const auto half = [&](std::uint32_t bits) -> std::uint32_t {
      const std::uint16_t x = quant::f32_to_f16(offset + static_cast<float>(static_cast<std::int16_t>(bits)) * scale);
      return factor == 1 ? x : quant::f32_to_f16(quant::f16_to_f32(x) * factor);
    };
    return half(word & 0xFFFF) | half(word >> 16) << 16;
  });
}

/// Each byte of a word.
template <class Of>
auto bytewise(const Of& of) {
  return wordwise([=](std::uint32_t word) {
    std::uint32_t out = 0;
    for (int i = 0; i < 32; i += 8) out |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(of(word >> i & 0xFF))) << i;
    return out;
  });
}

auto to_f32_about(float offset, float scale) {
  return wordwise([=](std::uint32_t word) {
    return std::bit_cast<std::uint32_t>(offset + static_cast<float>(static_cast<std::int32_t>(word)) * scale);
  });
}

auto to_f32(float scale) {
  return wordwise(
      [=](std::uint32_t word) { return std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(word)) * scale); });
}

void put_scalar(float value, std::span<std::byte> out) {
  std::memcpy(out.data(), &value, sizeof value);
}

bool of_module(std::string_view name, std::string_view module) {
  return name.find("." + std::string(module) + ".") != std::string_view::npos;
}

double gain(std::string_view name) {
  if (of_module(name, "down_proj")) return 1.7;
  if (of_module(name, "o_proj")) return 2;
  return 1;
}

double deviation(std::string_view name, std::int64_t columns) {
  if (of_module(name, "embed_tokens")) return 1;
  return gain(name) / std::sqrt(static_cast<double>(columns));
}

class SyntheticWeights final : public WeightSource {
 public:
  SyntheticWeights(ModelConfig config, std::uint64_t seed, const Exec& exec, const Shard& shard)
      : WeightSource(std::move(config), shard), seed_(seed), exec_(exec) {}

  std::string description() const override { return "synthetic weights, seed " + std::to_string(seed_); }
  bool has(std::string_view name) const override { return find_tensor_info(config(), name, shard()).has_value(); }
  Tensor get(std::string_view name) const override {
    const TensorInfo wanted = info(name);
    const Tensor tensor = Tensor::uninitialized(wanted.dtypes.front(), wanted.shape);
    synthesize(wanted, seed_, exec_, {tensor.as<std::byte>(), static_cast<std::size_t>(wanted.bytes())});
    return tensor.read_only();
  }
  void read(std::string_view name, std::span<std::byte> out) const override { synthesize(info(name), seed_, exec_, out); }
  Tensor rows(std::string_view name, std::int64_t begin, std::int64_t end) const override {
    TensorInfo wanted = info(name);
    if (wanted.split > 0) return WeightSource::rows(name, begin, end);
    wanted.begin += begin;
    wanted.shape[0] = end - begin;
    wanted.split = 0;
    const Tensor tensor = Tensor::uninitialized(wanted.dtypes.front(), wanted.shape);
    synthesize(wanted, seed_, exec_, {tensor.as<std::byte>(), static_cast<std::size_t>(wanted.bytes())});
    return tensor.read_only();
  }
  void check_layer(std::int64_t layer) const override { config().check_layer(layer); }

 private:
  TensorInfo info(std::string_view name) const {
    auto found = find_tensor_info(config(), name, shard());
    if (!found)
      throw Error(ErrorCode::missing_argument, "", "", "tensor '" + std::string(name) + "': " + local().name + " has none of that name");
    return *std::move(found);
  }

  std::uint64_t seed_;
  Exec exec_;
};

}  // namespace

namespace {

/// Of the codes, or for QServe of codes less their zero point, times the inner scales.
double code_square(WeightForm form) {
  switch (form) {
    case WeightForm::bf16: return 1;
    case WeightForm::nvfp4: return 68.5 / 8 * 22000;
    case WeightForm::fp8_block:
    case WeightForm::fp8: return 45.654296875;
    case WeightForm::int8: return 5461.5;
    case WeightForm::qserve_channel: return 21.25;
    case WeightForm::qserve_group: return 2956.25;
    case WeightForm::w4a8: return 21.5;
  }
  return 1;
}

/// Of a linear module that is not bf16.
void synthesize_quantized(const TensorInfo& info, std::uint64_t seed, const Exec& exec, std::span<std::byte> out) {
  const std::string_view name = info.name, suffix = name.substr(name.rfind('.'));
  const Stream stream(seed, info.name);
  const Runs runs = runs_of(info);
  const DType dtype = info.dtypes.front();
  constexpr double scale_square = 49.0 / 48;
  const auto base = static_cast<float>(deviation(name, info.columns) / std::sqrt(code_square(info.form) * scale_square));
  const auto half = [&](std::string_view of, float factor) {
    fill(Stream(seed, std::string(name.substr(0, name.rfind('.'))) + std::string(of)), runs, exec, out,
         to_f16(base, base * 0x1p-17f, factor));
  };
  if (suffix == ".weight_scale_2") {
    put_scalar(static_cast<float>(deviation(name, info.columns) / std::sqrt(code_square(info.form))), out);
  } else if (suffix == ".input_scale") {
    put_scalar(static_cast<float>((gain(name) == 1 ? 8.0 : 16.0) / (info.form == WeightForm::nvfp4 ? 448 * 6 : 448)), out);
  } else if (suffix == ".s1_scales") {
    half(".s1_scales", 1);
  } else if (suffix == ".s1_szeros") {
    half(".s1_scales", 7.5f);
  } else if (suffix == ".s2_scales") {
    fill(stream, runs, exec, out, bytewise([](std::uint32_t c) { return 8 + c % 8; }));
  } else if (suffix == ".s2_zeros") {
    const Stream scales(seed, std::string(name.substr(0, name.rfind('.'))) + ".s2_scales");
    fill(scales, runs, exec, out, bytewise([](std::uint32_t c) { return -static_cast<int>((8 + c % 8) * (7 + c / 8 % 2)); }));
  } else if (dtype == DType::f32) {
    fill(stream, runs, exec, out, to_f32_about(base, base * 0x1p-33f));
  } else if (suffix == ".weight_scale") {
    fill(stream, runs, exec, out, wordwise([](std::uint32_t word) { return (word & 0x0F0F0F0F) + 0x68686868; }));
  } else if (dtype == DType::f8_e4m3) {
    fill(stream, runs, exec, out, wordwise([](std::uint32_t word) { return (word & 0x9F9F9F9F) + 0x38383838; }));
  } else {
    fill(stream, runs, exec, out, [](Words) {});
  }
}

}  // namespace

void synthesize(const TensorInfo& info, std::uint64_t seed, const Exec& exec, std::span<std::byte> out) {
  if (static_cast<std::int64_t>(out.size()) != info.bytes())
    throw Error(ErrorCode::bad_shape, "", "",
                "tensor '" + info.name + "' takes " + std::to_string(info.bytes()) + " bytes, got room for " + std::to_string(out.size()));
  const std::string_view name = info.name;
  if (info.form != WeightForm::bf16) return synthesize_quantized(info, seed, exec, out);
  const Stream stream(seed, info.name);
  const Runs runs = runs_of(info);
  if (info.shape.rank() == 0) {
    put_scalar(1, out);
  } else if (info.dtypes.front() == DType::f32) {
    fill(stream, runs, exec, out, to_f32(static_cast<float>(0x1p-31 / 20)));
  } else if (info.shape.rank() == 1) {
    fill(stream, runs, exec, out, to_bf16(exec.isa, 1, 0x1p-18f));
  } else {
    fill(stream, runs, exec, out, to_bf16(exec.isa, 0, static_cast<float>(deviation(name, info.columns) * std::sqrt(3.0) / 32768)));
  }
}

std::unique_ptr<WeightSource> synthetic_weights(ModelConfig config, std::uint64_t seed, const Exec& exec, const Shard& shard) {
  return std::make_unique<SyntheticWeights>(std::move(config), seed, exec, shard);
}

}  // namespace dodona::model
