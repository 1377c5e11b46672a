#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/tiles/mma.h"
#include "oracle/alternatives/families.h"
#include "quant/element.h"

namespace dodona::oracle::alternatives {
namespace {

namespace hw = quant::tensor_core;

constexpr std::int64_t latent = 512, width = 576, tile = 64;
constexpr float infinity = std::numeric_limits<float>::infinity();

/// Attention of the heads of one query to the keys of its sequence, tile by tile about a running maximum.
struct Attention {
  Way way;
  DType type;                  ///< of queries and keys; weights are rounded to it
  std::vector<float> queries;  ///< [heads, 576]
  std::vector<float> keys;     ///< [visible, 576]
  std::int64_t heads, visible;
  float sigma, out_scale;
  bool rounded_sum;  ///< the weights are added up after their rounding
};

struct Head {
  std::vector<float> out = std::vector<float>(latent, 0.0f);
  float top = -infinity;
  float sum = 0, unrounded = 0;  ///< of the weights: what divides the output, and what lse is made of
};

/// Codes of a type from floats that it holds.
std::vector<std::byte> codes(DType type, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(bits(type) / 8));
  quant::from_f32(type, values.data(), bytes.data(), static_cast<std::int64_t>(values.size()));
  return bytes;
}

/// sums[i, j] += a [rows, k] times the transpose of b [columns, k].
void multiply(const Attention& at, const std::vector<float>& a, const std::vector<float>& b, std::int64_t k, std::vector<float>& sums) {
  const std::int64_t rows = static_cast<std::int64_t>(a.size()) / k, columns = static_cast<std::int64_t>(b.size()) / k;
  if (at.way == Way::tensor_core) {
    const std::vector<std::byte> left = codes(at.type, a), right = codes(at.type, b);
    ops::accumulate(ops::MmaRows(hw::mma_sync(at.type), at.type, left.data(), rows, k),
                    ops::MmaColumns(hw::mma_sync(at.type), at.type, right.data(), columns, k), 0, k, sums.data(), columns);
    return;
  }
  std::vector<float> terms(static_cast<std::size_t>(k));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      for (std::int64_t l = 0; l < k; ++l)
        terms[static_cast<std::size_t>(l)] = a[static_cast<std::size_t>(i * k + l)] * b[static_cast<std::size_t>(j * k + l)];
      sums[static_cast<std::size_t>(i * columns + j)] += at.way == Way::strided ? strided_sum(terms, 16) : reversed_sum(terms);
    }
}

void attend_tile(const Attention& at, std::int64_t first, std::int64_t count, std::vector<Head>& heads) {
  const auto keys = static_cast<std::size_t>(count);
  const std::vector<float> rows(at.keys.begin() + first * width, at.keys.begin() + (first + count) * width);
  std::vector<float> scores(heads.size() * keys, 0.0f), weights, latents, outs;
  multiply(at, at.queries, rows, width, scores);
  for (std::size_t h = 0; h < heads.size(); ++h) {
    Head& head = heads[h];
    const float before = head.top;
    for (std::size_t j = 0; j < keys; ++j) head.top = std::max(head.top, scores[h * keys + j] * at.sigma);
    const float rescale = before == -infinity ? 0.0f : exp2(before - head.top);
    head.sum *= rescale, head.unrounded *= rescale;
    for (float& value : head.out) value *= rescale;
    std::vector<float> exact;
    for (std::size_t j = 0; j < keys; ++j) {
      exact.push_back(exp2(scores[h * keys + j] * at.sigma - head.top));
      weights.push_back(rounded(at.type, exact.back()));
    }
    head.unrounded += reversed_sum(exact);
    head.sum += reversed_sum(at.rounded_sum ? std::span<const float>(weights).last(keys) : std::span<const float>(exact));
    outs.insert(outs.end(), head.out.begin(), head.out.end());
  }
  for (std::int64_t c = 0; c < latent; ++c)
    for (std::size_t j = 0; j < keys; ++j) latents.push_back(rows[j * width + static_cast<std::size_t>(c)]);
  multiply(at, weights, latents, count, outs);
  for (std::size_t h = 0; h < heads.size(); ++h)
    std::copy_n(outs.begin() + static_cast<std::ptrdiff_t>(h * latent), latent, heads[h].out.begin());
}

std::vector<Head> attend(const Attention& at) {
  std::vector<Head> heads(static_cast<std::size_t>(at.heads));
  const std::int64_t tiles = (at.visible + tile - 1) / tile;
  for (std::int64_t i = 0; i < tiles; ++i) {
    const std::int64_t first = (at.way == Way::reversed ? tiles - 1 - i : i) * tile;
    attend_tile(at, first, std::min(tile, at.visible - first), heads);
  }
  return heads;
}

/// The keys of a sequence, `count` of them, out of pages.
std::vector<float> gathered(const Tensor& cache, const Tensor& table, std::int64_t request, std::int64_t count) {
  const std::int64_t page_size = cache.size(-2);
  const std::vector<std::int64_t> pages = integers(table);
  std::vector<float> keys(static_cast<std::size_t>(count * width));
  const std::int64_t bytes = bits(cache.dtype()) / 8;
  for (std::int64_t j = 0; j < count; ++j) {
    const std::int64_t row = pages[static_cast<std::size_t>(request * table.size(1) + j / page_size)] * page_size + j % page_size;
    quant::to_f32(cache.dtype(), cache.as<std::byte>() + row * width * bytes, keys.data() + j * width, width);
  }
  return keys;
}

/// Queries [B, Q, N, 576].
struct Decode {
  std::vector<float> queries;
  std::int64_t batch, per_request, heads;
  const Tensor &cache, &table, &lengths, &out;
  const Tensor* lse;
  double scale, out_scale;
};

bool decode(const Decode& d, Way way, bool rounded_sum) {
  if (way == Way::tensor_core && d.cache.dtype() == DType::f32) return false;
  const std::vector<std::int64_t> lengths = integers(d.lengths);
  const auto sigma = static_cast<float>(static_cast<double>(static_cast<float>(d.scale)) * 1.4426950408889634);
  for (std::int64_t row = 0; row < d.batch * d.per_request; ++row) {
    const std::int64_t request = row / d.per_request;
    const std::int64_t visible =
        std::max<std::int64_t>(0, lengths[static_cast<std::size_t>(request)] - d.per_request + 1 + row % d.per_request);
    const auto begin = d.queries.begin() + row * d.heads * width;
    const Attention at{way,
                       d.cache.dtype(),
                       std::vector<float>(begin, begin + d.heads * width),
                       gathered(d.cache, d.table, request, visible),
                       d.heads,
                       visible,
                       sigma,
                       static_cast<float>(d.out_scale),
                       rounded_sum};
    const std::vector<Head> heads = attend(at);
    for (std::int64_t h = 0; h < d.heads; ++h) {
      const Head& head = heads[static_cast<std::size_t>(h)];
      const std::int64_t linear = row * d.heads + h;
      const float factor = visible == 0 ? 0.0f : way == Way::strided ? (1.0f / head.sum) * at.out_scale : 0.0f;
      for (std::int64_t c = 0; c < latent; ++c) {
        const float sum = head.out[static_cast<std::size_t>(c)];
        store(d.out, linear * latent + c, visible == 0 || way == Way::strided ? sum * factor : sum / head.sum * at.out_scale);
      }
      if (d.lse != nullptr) store(*d.lse, linear, visible == 0 ? -infinity : head.top + log2(head.unrounded));
    }
  }
  return true;
}

}  // namespace

bool cutlass_mla_decode(const Call& call) {
  const Tensor& q_nope = call.tensor("q_nope");
  const std::vector<float> nope = floats(q_nope), pe = floats(call.tensor("q_pe"));
  std::vector<float> queries;
  for (std::size_t row = 0; row < nope.size() / latent; ++row) {
    queries.insert(queries.end(), nope.begin() + static_cast<std::ptrdiff_t>(row * latent),
                   nope.begin() + static_cast<std::ptrdiff_t>((row + 1) * latent));
    queries.insert(queries.end(), pe.begin() + static_cast<std::ptrdiff_t>(row * 64),
                   pe.begin() + static_cast<std::ptrdiff_t>((row + 1) * 64));
  }
  return decode({queries, q_nope.size(0), 1, q_nope.size(1), call.tensor("kv_c_and_k_pe_cache"), call.tensor("page_table"),
                 call.tensor("seq_lens"), call.tensor("out"), nullptr, call.number("sm_scale"), 1.0},
                call.way, false);
}

/// The contract leaves open whether weights are added up before or after their rounding: `strided` does it after.
bool trtllm_batch_decode_with_kv_cache_mla(const Call& call) {
  const Tensor& query = call.tensor("query");
  return decode({floats(query), query.size(0), query.size(1), query.size(2), call.tensor("kv_cache"), call.tensor("block_tables"),
                 call.tensor("seq_lens"), call.tensor("out"), call.find("lse"), call.number("bmm1_scale"), call.number("bmm2_scale")},
                call.way, call.way == Way::strided);
}

}  // namespace dodona::oracle::alternatives
