#include "model/synthetic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string_view>

#include "core/random.h"
#include "core/threads.h"
#include "dodona/error.h"
#include "model/weights.h"
#include "quant/half.h"
#include "simd/philox_words.h"

namespace dodona::model {
namespace {

constexpr std::int64_t chunk_words = 4096;  // 16 KB: stays in the first cache between drawing and converting

using WordChunk = std::array<std::uint32_t, chunk_words>;

/// Calls convert(words, first word, count) for every chunk of `count` words of the stream.
template <class Convert>
void for_each_chunk(Stream stream, std::int64_t count, const Exec& exec, const Convert& convert) {
  const std::int64_t chunks = (count + chunk_words - 1) / chunk_words;
  parallel_for(exec.threads, chunks, chunk_words, [&](std::int64_t chunk) {
    alignas(64) WordChunk words;
    const std::int64_t begin = chunk * chunk_words, size = std::min(chunk_words, count - begin);
    dispatch<PhiloxWordsKernel>(exec.isa, stream, static_cast<std::uint64_t>(begin / 4), (size + 3) / 4, words.data());
    convert(words.data(), begin, size);
  });
}

/// Bytes of the stream's words, each word passed through `change`.
template <class Change>
void fill_bytes(Stream stream, const Exec& exec, std::span<std::byte> out, const Change& change) {
  const auto bytes = static_cast<std::int64_t>(out.size());
  for_each_chunk(stream, (bytes + 3) / 4, exec, [&](std::uint32_t* words, std::int64_t begin, std::int64_t size) {
    for (std::int64_t i = 0; i < size; ++i) words[i] = change(words[i]);
    std::memcpy(out.data() + 4 * begin, words, static_cast<std::size_t>(std::min(4 * size, bytes - 4 * begin)));
  });
}

/// bf16(offset + fp32(h[i]) * scale).
void fill_bf16(Stream stream, const Exec& exec, float offset, float scale, std::span<std::byte> out) {
  const auto count = static_cast<std::int64_t>(out.size() / 2);
  for_each_chunk(stream, (count + 1) / 2, exec, [&](std::uint32_t* words, std::int64_t begin, std::int64_t size) {
    for (std::int64_t i = 0; i < size; ++i) {
      const auto first = static_cast<std::int16_t>(words[i]), second = static_cast<std::int16_t>(words[i] >> 16);
      const std::uint32_t a = quant::f32_to_bf16(offset + static_cast<float>(first) * scale);
      const std::uint32_t b = quant::f32_to_bf16(offset + static_cast<float>(second) * scale);
      words[i] = a | b << 16;
    }
    std::memcpy(out.data() + 4 * begin, words, static_cast<std::size_t>(std::min(4 * size, 2 * count - 4 * begin)));
  });
}

void fill_f32(Stream stream, const Exec& exec, float scale, std::span<std::byte> out) {
  const auto count = static_cast<std::int64_t>(out.size() / 4);
  for_each_chunk(stream, count, exec, [&](std::uint32_t* words, std::int64_t begin, std::int64_t size) {
    for (std::int64_t i = 0; i < size; ++i) {
      const float value = static_cast<float>(static_cast<std::int32_t>(words[i])) * scale;
      std::memcpy(&words[i], &value, sizeof value);
    }
    std::memcpy(out.data() + 4 * begin, words, static_cast<std::size_t>(4 * size));
  });
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
  SyntheticWeights(ModelConfig config, std::uint64_t seed, const Exec& exec) : WeightSource(std::move(config)), seed_(seed), exec_(exec) {}

  std::string description() const override { return "synthetic weights, seed " + std::to_string(seed_); }
  bool has(std::string_view name) const override { return find_tensor_info(config(), name).has_value(); }
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
    auto found = find_tensor_info(config(), name);
    if (!found)
      throw Error(ErrorCode::missing_argument, "", "", "tensor '" + std::string(name) + "': " + config().name + " has none of that name");
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
  const std::string_view name = info.name;
  const DType dtype = info.dtypes.front();
  if (name.ends_with(".weight_scale_2")) {
    put_scalar(static_cast<float>(deviation(name, info.columns) / std::sqrt(code_square * scale_square)), out);
  } else if (name.ends_with(".input_scale")) {
    put_scalar(static_cast<float>((gain(name) == 1 ? 8.0 : 16.0) / (448 * 6)), out);
  } else if (name.ends_with(".weight_scale")) {
    fill_bytes(stream, exec, out, [](std::uint32_t word) { return (word & 0x0F0F0F0F) + 0x68686868; });
  } else if (dtype == DType::u8) {
    fill_bytes(stream, exec, out, [](std::uint32_t word) { return word; });
  } else if (info.shape.rank() == 0) {
    put_scalar(1, out);
  } else if (dtype == DType::f32) {
    fill_f32(stream, exec, static_cast<float>(0x1p-31 / 20), out);
  } else if (info.shape.rank() == 1) {
    fill_bf16(stream, exec, 1, 0x1p-18f, out);
  } else {
    fill_bf16(stream, exec, 0, static_cast<float>(deviation(name, info.columns) * std::sqrt(3.0) / 32768), out);
  }
}

std::unique_ptr<WeightSource> synthetic_weights(ModelConfig config, std::uint64_t seed, const Exec& exec) {
  return std::make_unique<SyntheticWeights>(std::move(config), seed, exec);
}

}  // namespace dodona::model
