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

Runs runs_of(const TensorInfo& info) {
  const DType dtype = info.dtypes.front();
  if (info.split < 0) return {.bytes = info.bytes()};
  const std::int64_t row = bytes_for(dtype, info.whole[info.whole.rank() - 1]);
  if (info.split == 0) return {.begin = info.begin * row, .bytes = info.bytes()};
  return {.begin = bytes_for(dtype, info.begin), .bytes = bytes_for(dtype, info.shape[1]), .stride = row, .count = info.shape[0]};
}

/// Those bytes of the stream's words, each word passed through `change`.
template <class Change>
void fill(Stream stream, const Runs& runs, const Exec& exec, std::span<std::byte> out, const Change& change) {
  const std::int64_t pieces = (runs.bytes + chunk_bytes - 1) / chunk_bytes;
  const std::int64_t largest = std::min(chunk_bytes, runs.bytes);
  parallel_for(exec.threads, runs.count * pieces, static_cast<double>(largest) / 4, [&](std::int64_t i) {
    alignas(64) std::array<std::uint32_t, chunk_bytes / 4 + 2 * block_bytes / 4> words;
    const std::int64_t run = i / pieces, offset = i % pieces * chunk_bytes, size = std::min(chunk_bytes, runs.bytes - offset);
    const std::int64_t begin = runs.begin + run * runs.stride + offset, first = begin / block_bytes;
    const std::int64_t blocks = (begin + size + block_bytes - 1) / block_bytes - first;
    dispatch<PhiloxWordsKernel>(exec.isa, stream, static_cast<std::uint64_t>(first), blocks, words.data());
    for (std::int64_t j = 0; j < blocks * 4; ++j) words[static_cast<std::size_t>(j)] = change(words[static_cast<std::size_t>(j)]);
    std::memcpy(out.data() + run * runs.bytes + offset, reinterpret_cast<const std::byte*>(words.data()) + begin % block_bytes,
                static_cast<std::size_t>(size));
  });
}

/// Both halves of a word: bf16(offset + fp32(h) * scale).
auto to_bf16(float offset, float scale) {
  return [=](std::uint32_t word) {
    const auto first = static_cast<std::int16_t>(word), second = static_cast<std::int16_t>(word >> 16);
    const std::uint32_t a = quant::f32_to_bf16(offset + static_cast<float>(first) * scale);
    const std::uint32_t b = quant::f32_to_bf16(offset + static_cast<float>(second) * scale);
    return a | b << 16;
  };
}

auto to_f32(float scale) {
  return [=](std::uint32_t word) { return std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(word)) * scale); };
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

void synthesize(const TensorInfo& info, std::uint64_t seed, const Exec& exec, std::span<std::byte> out) {
  if (static_cast<std::int64_t>(out.size()) != info.bytes())
    throw Error(ErrorCode::bad_shape, "", "",
                "tensor '" + info.name + "' takes " + std::to_string(info.bytes()) + " bytes, got room for " + std::to_string(out.size()));
  constexpr double code_square = 68.5 / 8, scale_square = 22000;
  const Stream stream(seed, info.name);
  const Runs runs = runs_of(info);
  const std::string_view name = info.name;
  const DType dtype = info.dtypes.front();
  if (name.ends_with(".weight_scale_2")) {
    put_scalar(static_cast<float>(deviation(name, info.columns) / std::sqrt(code_square * scale_square)), out);
  } else if (name.ends_with(".input_scale")) {
    put_scalar(static_cast<float>((gain(name) == 1 ? 8.0 : 16.0) / (448 * 6)), out);
  } else if (name.ends_with(".weight_scale")) {
    fill(stream, runs, exec, out, [](std::uint32_t word) { return (word & 0x0F0F0F0F) + 0x68686868; });
  } else if (dtype == DType::u8) {
    fill(stream, runs, exec, out, [](std::uint32_t word) { return word; });
  } else if (info.shape.rank() == 0) {
    put_scalar(1, out);
  } else if (dtype == DType::f32) {
    fill(stream, runs, exec, out, to_f32(static_cast<float>(0x1p-31 / 20)));
  } else if (info.shape.rank() == 1) {
    fill(stream, runs, exec, out, to_bf16(1, 0x1p-18f));
  } else {
    fill(stream, runs, exec, out, to_bf16(0, static_cast<float>(deviation(name, info.columns) * std::sqrt(3.0) / 32768)));
  }
}

std::unique_ptr<WeightSource> synthetic_weights(ModelConfig config, std::uint64_t seed, const Exec& exec, const Shard& shard) {
  return std::make_unique<SyntheticWeights>(std::move(config), seed, exec, shard);
}

}  // namespace dodona::model
