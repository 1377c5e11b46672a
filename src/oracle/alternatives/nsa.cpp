#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "oracle/alternatives/families.h"
#include "quant/e4m3.h"
#include "quant/element.h"
#include "quant/hadamard.h"

namespace dodona::oracle::alternatives {
namespace {

/// Butterflies of falling strides, over rows of `chunks` parts that are mixed first or last, from the last part to the first.
bool hadamard(const Call& call, std::size_t chunks) {
  if (call.way == Way::tensor_core) return false;
  const Tensor &x = call.tensor("x"), &out = call.tensor("out");
  const std::vector<float> elements = floats(x);
  const auto width = static_cast<std::size_t>(x.size(-1)), n = std::bit_ceil(std::max<std::size_t>((width + chunks - 1) / chunks, 4));
  const auto signs = quant::hadamard_signs(static_cast<std::int64_t>(chunks));
  const auto scale = static_cast<float>(call.number("scale"));
  for (std::size_t begin = 0; begin < elements.size(); begin += width) {
    std::vector<float> row(elements.begin() + static_cast<std::ptrdiff_t>(begin),
                           elements.begin() + static_cast<std::ptrdiff_t>(begin + width));
    row.resize(chunks * n, 0.0f);
    const auto mix = [&] {
      const std::vector<float> before = row;
      for (std::size_t i = 0; i < row.size(); ++i) {
        float sum = 0;
        for (std::size_t c = chunks; c-- > 0;) {
          const float term = before[c * n + i % n];
          sum = c + 1 == chunks ? ((signs[i / n] >> c & 1) != 0 ? -term : term) : (signs[i / n] >> c & 1) != 0 ? sum - term : sum + term;
        }
        row[i] = sum;
      }
    };
    if (chunks > 1 && call.way == Way::strided) mix();
    for (std::size_t stride = n / 2; stride > 0; stride /= 2)
      for (std::size_t i = 0; i < row.size(); ++i) {
        if (i % n / stride % 2 != 0) continue;
        const float a = row[i], b = row[i + stride];
        row[i] = a + b;
        row[i + stride] = a - b;
      }
    if (chunks > 1 && call.way != Way::strided) mix();
    for (std::size_t i = 0; i < width; ++i) store(out, static_cast<std::int64_t>(begin + i), row[i] * scale);
  }
  return true;
}

float largest_magnitude(std::span<const float> x) {
  float largest = 1e-4f;
  for (const float value : x) largest = std::fmax(largest, std::fabs(value));
  return largest;
}

/// Scores of the queries' heads against one key.
float score(const Call& call, std::span<const float> q, std::span<const float> key, std::span<const float> weights) {
  std::vector<float> terms;
  for (std::size_t h = 0; h < weights.size(); ++h) {
    std::vector<float> products;
    for (std::size_t d = 0; d < key.size(); ++d) products.push_back(q[h * key.size() + d] * key[d]);
    const float sum = call.way == Way::strided ? strided_sum(products, 16) : reversed_sum(products);
    terms.push_back(std::fmax(sum, 0.0f) * weights[h]);
  }
  return call.way == Way::strided ? strided_sum(terms, 8) : reversed_sum(terms);
}

/// As numbers of the range that the kernel sees: negative ones are large.
std::int64_t bounded(std::int64_t position, std::int64_t keys) {
  return position < 0 ? keys : std::min(position, keys);
}

}  // namespace

bool act_quant(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const std::vector<float> x = floats(call.tensor("x"));
  const auto size = static_cast<std::size_t>(call.integer("block_size"));
  for (std::size_t begin = 0; begin < x.size(); begin += size) {
    const auto block = std::span(x).subspan(begin, size);
    const float largest = largest_magnitude(block);
    float scale = call.way == Way::strided ? largest * (1.0f / 448.0f) : largest / 448.0f;
    if (!call.is("scale_fmt", "none")) scale = exp2(std::ceil(log2(scale)));
    store(call.tensor("s"), static_cast<std::int64_t>(begin / size), scale);
    for (std::size_t k = 0; k < size; ++k)
      store_fp8(call.tensor("y"), static_cast<std::int64_t>(begin + k),
                call.way == Way::strided ? block[k] * (1.0f / scale) : block[k] / scale);
  }
  return true;
}

bool fused_store_index_k_cache(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const std::vector<float> x = floats(call.tensor("key"));
  const std::vector<std::int64_t> slots = integers(call.tensor("out_cache_loc"));
  auto* const bytes = call.tensor("index_k_with_scale").as<std::uint8_t>();
  const std::int64_t page = call.integer("page_size");
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const auto key = std::span(x).subspan(i * 128, 128);
    const float scale = call.way == Way::strided ? largest_magnitude(key) * (1.0f / 448.0f) : largest_magnitude(key) / 448.0f;
    std::uint8_t* const begin = bytes + slots[i] / page * page * 132;
    for (std::int64_t k = 0; k < 128; ++k) {
      const float value = key[static_cast<std::size_t>(k)];
      begin[slots[i] % page * 128 + k] =
          quant::to_e4m3_satfinite(static_cast<double>(call.way == Way::strided ? value * (1.0f / scale) : value / scale));
    }
    std::memcpy(begin + page * 128 + slots[i] % page * 4, &scale, sizeof scale);
  }
  return true;
}

bool fp8_mqa_logits(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor &queries = call.tensor("q"), &kv = call.tensor("kv"), &logits = call.tensor("logits");
  const std::vector<float> q = floats(queries), keys = floats(kv), scales = floats(call.tensor("kv_sf")),
                           weights = floats(call.tensor("weights"));
  const std::vector<std::int64_t> starts = integers(call.tensor("cu_seq_len_k_start")), ends = integers(call.tensor("cu_seq_len_k_end"));
  const auto heads = static_cast<std::size_t>(queries.size(1)), width = static_cast<std::size_t>(queries.size(2));
  for (std::size_t m = 0; m < starts.size(); ++m)
    for (std::int64_t n = 0; n < kv.size(0); ++n) {
      float value = call.flag("clean_logits") ? -std::numeric_limits<float>::infinity() : 7.0f;
      if (n >= bounded(starts[m], kv.size(0)) && n < bounded(ends[m], kv.size(0)))
        value = score(call, std::span(q).subspan(m * heads * width, heads * width),
                      std::span(keys).subspan(static_cast<std::size_t>(n) * width, width), std::span(weights).subspan(m * heads, heads)) *
                scales[static_cast<std::size_t>(n)];
      store(logits, static_cast<std::int64_t>(m) * kv.size(0) + n, value);
    }
  return true;
}

bool fp8_paged_mqa_logits(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor &queries = call.tensor("q"), &cache = call.tensor("fused_kv_cache"), &logits = call.tensor("logits"),
               &table = call.tensor("block_table");
  const std::vector<float> q = floats(queries), weights = floats(call.tensor("weights"));
  const std::vector<std::int64_t> lengths = integers(call.tensor("context_lens")), pages = integers(table);
  const std::int64_t together = queries.size(1), columns = logits.size(1);
  const auto heads = static_cast<std::size_t>(queries.size(2)), width = static_cast<std::size_t>(queries.size(3));
  std::vector<float> key(width);
  for (std::int64_t m = 0; m < logits.size(0); ++m)
    for (std::int64_t n = 0; n < columns; ++n) {
      const std::int64_t b = m / together, j = m % together;
      float value = call.flag("clean_logits") ? -std::numeric_limits<float>::infinity() : 7.0f;
      if (n <= lengths[static_cast<std::size_t>(b)] - together + j) {
        const auto* const page = cache.as<const std::uint8_t>() +
                                 pages[static_cast<std::size_t>(b * table.size(1) + n / 64)] * 64 * static_cast<std::int64_t>(width + 4);
        for (std::size_t d = 0; d < width; ++d) key[d] = quant::e4m3_to_f32(page[static_cast<std::size_t>(n % 64) * width + d]);
        float scale;
        std::memcpy(&scale, page + 64 * width + static_cast<std::size_t>(n % 64) * 4, sizeof scale);
        value = score(call, std::span(q).subspan(static_cast<std::size_t>(m) * heads * width, heads * width), key,
                      std::span(weights).subspan(static_cast<std::size_t>(m) * heads, heads)) *
                scale;
      }
      store(logits, m * columns + n, value);
    }
  return true;
}

bool hadamard_transform(const Call& call) {
  return hadamard(call, 1);
}
bool hadamard_transform_12n(const Call& call) {
  return hadamard(call, 12);
}
bool hadamard_transform_20n(const Call& call) {
  return hadamard(call, 20);
}
bool hadamard_transform_28n(const Call& call) {
  return hadamard(call, 28);
}
bool hadamard_transform_40n(const Call& call) {
  return hadamard(call, 40);
}

}  // namespace dodona::oracle::alternatives
