#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/fixed_math.h"
#include "ops/tiles/mma/mma.h"
#include "oracle/alternatives/families.h"
#include "quant/element.h"

namespace dodona::oracle::alternatives {
namespace {

namespace hw = quant::tensor_core;

constexpr std::int64_t latent = 512, width = 576, tile = 64;
constexpr float infinity = std::numeric_limits<float>::infinity();

/// Attention of queries that see the same keys, tile by tile about a running maximum.
struct Attention {
  Way way;
  DType type;                  ///< of queries and keys; weights are rounded to it
  std::vector<float> queries;  ///< [heads, key_width]
  std::vector<float> keys;     ///< [visible, key_width]
  std::int64_t heads, visible;
  float sigma, out_scale;
  bool rounded_sum;                ///< the weights are added up after their rounding
  std::vector<float> values = {};  ///< [visible, value_width]; empty: a value is the beginning of its key
  std::int64_t key_width = width, value_width = latent;
  double cap = 0;  ///< not 0: scores become cap * tanh(score / cap)
  float temperature = 1;
  const hw::MmaSpec* unit = nullptr;  ///< of Way::tensor_core; nullptr: mma.sync of the type
  DType weights = type;               ///< what weights are rounded to

  float score(float dot) const {
    const auto natural = static_cast<float>(cap * fixed::tanh(static_cast<double>(dot * sigma) * (0.6931471805599453 / cap)));
    return (cap == 0 ? dot * sigma : natural * 1.44269504f) * temperature;
  }
  float value(std::int64_t key, std::int64_t column) const {
    return values.empty() ? keys[static_cast<std::size_t>(key * key_width + column)]
                          : values[static_cast<std::size_t>(key * value_width + column)];
  }
};

struct Head {
  std::vector<float> out;
  float top = -infinity;
  float sum = 0, unrounded = 0;  ///< of the weights: what divides the output, and what lse is made of
};

/// Codes of a type from floats that it holds.
std::vector<std::byte> codes(DType type, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(bits(type) / 8));
  quant::from_f32(type, values.data(), bytes.data(), static_cast<std::int64_t>(values.size()));
  return bytes;
}

/// sums[i, j] += a [rows, k] times the transpose of b [columns, k], both of `type`.
void multiply(const Attention& at, DType type, const std::vector<float>& a, const std::vector<float>& b, std::int64_t k,
              std::vector<float>& sums) {
  const std::int64_t rows = static_cast<std::int64_t>(a.size()) / k, columns = static_cast<std::int64_t>(b.size()) / k;
  if (at.way == Way::tensor_core && type != DType::f32) {
    const std::vector<std::byte> left = codes(type, a), right = codes(type, b);
    const hw::MmaSpec& unit = at.unit != nullptr ? *at.unit : hw::mma_sync(type);
    ops::accumulate(ops::MmaRows(unit, type, left.data(), rows, k), ops::MmaColumns(unit, type, right.data(), columns, k), 0, k,
                    sums.data(), columns);
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
  const std::vector<float> rows(at.keys.begin() + first * at.key_width, at.keys.begin() + (first + count) * at.key_width);
  std::vector<float> scores(heads.size() * keys, 0.0f), weights, values, outs;
  multiply(at, at.type, at.queries, rows, at.key_width, scores);
  for (std::size_t h = 0; h < heads.size(); ++h) {
    Head& head = heads[h];
    const float before = head.top;
    for (std::size_t j = 0; j < keys; ++j) {
      float& score = scores[h * keys + j];
      score = at.score(score);
      head.top = std::max(head.top, score);
    }
    const float rescale = before == -infinity ? 0.0f : exp2(before - head.top);
    head.sum *= rescale, head.unrounded *= rescale;
    for (float& value : head.out) value *= rescale;
    std::vector<float> exact;
    for (std::size_t j = 0; j < keys; ++j) {
      exact.push_back(exp2(scores[h * keys + j] - head.top));
      weights.push_back(rounded(at.weights, exact.back()));
    }
    head.unrounded += reversed_sum(exact);
    head.sum += reversed_sum(at.rounded_sum ? std::span<const float>(weights).last(keys) : std::span<const float>(exact));
    outs.insert(outs.end(), head.out.begin(), head.out.end());
  }
  for (std::int64_t c = 0; c < at.value_width; ++c)
    for (std::int64_t j = 0; j < count; ++j) values.push_back(at.value(first + j, c));
  multiply(at, at.weights, weights, values, count, outs);
  for (std::size_t h = 0; h < heads.size(); ++h)
    std::copy_n(outs.begin() + static_cast<std::ptrdiff_t>(h) * at.value_width, at.value_width, heads[h].out.begin());
}

std::vector<Head> attend(const Attention& at) {
  std::vector<Head> heads(static_cast<std::size_t>(at.heads), Head{std::vector<float>(static_cast<std::size_t>(at.value_width), 0.0f)});
  const std::int64_t tiles = (at.visible + tile - 1) / tile;
  for (std::int64_t i = 0; i < tiles; ++i) {
    const std::int64_t first = (at.way == Way::reversed ? tiles - 1 - i : i) * tile;
    attend_tile(at, first, std::min(tile, at.visible - first), heads);
  }
  return heads;
}

/// Both over the keys of either; either may have seen none.
void merge(Head& head, const Head& other) {
  const float top = std::max(head.top, other.top);
  if (top == -infinity) return;
  const float mine = exp2(head.top - top), theirs = exp2(other.top - top);
  for (std::size_t i = 0; i < head.out.size(); ++i) head.out[i] = head.out[i] * mine + other.out[i] * theirs;
  head.sum = head.sum * mine + other.sum * theirs;
  head.unrounded = head.unrounded * mine + other.unrounded * theirs;
  head.top = top;
}

/// A term more of the sum: the score of head h of `sinks`, if these are given.
void add_sink(Head& head, const Tensor* sinks, std::int64_t h) {
  if (sinks == nullptr || !sinks->defined()) return;
  const float term = exp2(static_cast<float>(quant::get(*sinks, h)) * 1.44269504f - head.top);
  head.sum += term, head.unrounded += term;
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

float sigma_of(double scale) {
  return static_cast<float>(static_cast<double>(static_cast<float>(scale)) * 1.4426950408889634);
}

/// The natural logarithm of what a head's weights sum to.
float natural_lse(const Attention& at, const Head& head, float of_none) {
  return at.visible == 0 ? of_none : head.top * 0.69314718f + log(head.unrounded);
}

/// The outputs of a head, from row `linear` of `out` on.
void store_head(const Attention& at, const Head& head, std::int64_t linear, const Tensor& out, const Tensor* lse) {
  const float factor = at.way == Way::strided && at.visible > 0 ? (1.0f / head.sum) * at.out_scale : 0.0f;
  for (std::int64_t c = 0; c < at.value_width; ++c) {
    const float sum = head.out[static_cast<std::size_t>(c)];
    store(out, linear * at.value_width + c, at.visible == 0 || at.way == Way::strided ? sum * factor : sum / head.sum * at.out_scale);
  }
  if (lse != nullptr) store(*lse, linear, at.visible == 0 ? -infinity : head.top + log2(head.unrounded));
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
  const float sigma = sigma_of(d.scale);
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
    for (std::int64_t h = 0; h < d.heads; ++h) store_head(at, heads[static_cast<std::size_t>(h)], row * d.heads + h, d.out, d.lse);
  }
  return true;
}

/// The heads of a query token of [B, Q], with a log-sum-exp in natural units, [B, N, Q].
void store_flash_mla(const Attention& at, const Call& call, std::int64_t row) {
  const std::vector<Head> result = attend(at);
  const std::int64_t queries = call.tensor("q").size(1);
  for (std::int64_t h = 0; h < at.heads; ++h) {
    const Head& head = result[static_cast<std::size_t>(h)];
    store_head(at, head, row * at.heads + h, call.tensor("out"), nullptr);
    store(call.tensor("softmax_lse"), (row / queries * at.heads + h) * queries + row % queries, natural_lse(at, head, infinity));
  }
}

/// A token's key of MLA's cache in fp8: 512 codes times scales rounded to bf16, four of them, and 64 numbers of bf16.
std::vector<float> packed_key(const std::byte* row) {
  std::vector<float> key(static_cast<std::size_t>(width));
  std::array<float, 4> scales;
  std::memcpy(scales.data(), row + latent, sizeof scales);
  quant::to_f32(DType::f8_e4m3, row, key.data(), latent);
  for (std::size_t k = 0; k < static_cast<std::size_t>(latent); ++k)
    key[k] = rounded(DType::bf16, key[k] * rounded(DType::bf16, scales[k / 128]));
  quant::to_f32(DType::bf16, row + latent + sizeof scales, key.data() + latent, width - latent);
  return key;
}

/// Heads of tokens or slots, [tokens, heads, width].
class HeadsOf {
 public:
  explicit HeadsOf(const Tensor& t) : values_(floats(t)), heads_(t.size(1)), width_(t.size(2)) {}
  std::vector<float> operator()(std::int64_t token, std::int64_t head) const {
    const auto begin = values_.begin() + (token * heads_ + head) * width_;
    return {begin, begin + width_};
  }
  std::int64_t width() const { return width_; }

 private:
  std::vector<float> values_;
  std::int64_t heads_, width_;
};

Attention one_query(const Call& call, DType type, std::vector<float> query, std::int64_t visible, double scale, std::int64_t key_width,
                    std::int64_t value_width) {
  return {call.way, type, std::move(query), {}, 1, visible, sigma_of(scale), 1.0f, false, {}, key_width, value_width};
}
float temperature(std::int64_t position, std::int64_t length) {
  if (length <= 0 || position <= length) return 1.0f;
  return static_cast<float>(fixed::log2(static_cast<double>(position)) / fixed::log2(static_cast<double>(length)));
}
void add_key(Attention& at, const std::vector<float>& key, const std::vector<float>& value) {
  at.keys.insert(at.keys.end(), key.begin(), key.end());
  at.values.insert(at.values.end(), value.begin(), value.end());
}

/// Requests one behind the other, of queries and of keys and values.
struct RaggedCall {
  const Tensor &query, &key, &value;
  std::vector<std::int64_t> starts, key_starts, lengths;
  bool causal;
  double scale, out_scale;
  bool rounded_sum;
  double cap = 0;
  std::int64_t window = -1;
  const Tensor* sinks = nullptr;
  bool natural = false;
};

bool ragged(const Call& call, const RaggedCall& r) {
  const Tensor &query = r.query, &key = r.key, &value = r.value;
  if (call.way == Way::tensor_core && query.dtype() == DType::f32) return false;
  const std::vector<float> q = floats(query), k = floats(key), v = floats(value);
  const auto &starts = r.starts, &key_starts = r.key_starts, &lengths = r.lengths;
  const std::int64_t heads = query.size(1), group = heads / key.size(1);
  const auto head_of = [](const std::vector<float>& all, const Tensor& t, std::int64_t token, std::int64_t head) {
    const auto begin = all.begin() + (token * t.size(1) + head) * t.size(2);
    return std::vector<float>(begin, begin + t.size(2));
  };
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    const std::int64_t queries = starts[b + 1] - starts[b];
    for (std::int64_t row = 0; row < queries * heads; ++row) {
      const std::int64_t i = row / heads, h = row % heads;
      const std::int64_t visible = r.causal ? std::clamp<std::int64_t>(i + lengths[b] - queries + 1, 0, lengths[b]) : lengths[b];
      Attention at{call.way,
                   query.dtype(),
                   head_of(q, query, starts[b] + i, h),
                   {},
                   1,
                   visible,
                   sigma_of(r.scale),
                   static_cast<float>(r.out_scale),
                   r.rounded_sum,
                   {},
                   key.size(2),
                   value.size(2)};
      at.cap = r.cap;
      const std::int64_t first = r.window < 0 ? 0 : std::clamp<std::int64_t>(i + lengths[b] - queries - r.window, 0, visible);
      at.visible -= first;
      for (std::int64_t j = first; j < visible; ++j) {
        const std::vector<float> one = head_of(k, key, key_starts[b] + j, h / group),
                                 other = head_of(v, value, key_starts[b] + j, h / group);
        at.keys.insert(at.keys.end(), one.begin(), one.end());
        at.values.insert(at.values.end(), other.begin(), other.end());
      }
      Head head = attend(at).front();
      add_sink(head, r.sinks, h);
      const Tensor* const lse = call.find("lse");
      store_head(at, head, (starts[b] + i) * heads + h, call.tensor("out"), r.natural ? nullptr : lse);
      if (r.natural && lse != nullptr) store(*lse, (starts[b] + i) * heads + h, natural_lse(at, head, -infinity));
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

bool xqa_batch_decode_with_kv_cache_mla(const Call& call) {
  const Tensor& query = call.tensor("query");
  const double of_cache = call.number("bmm2_scale");
  return decode({floats(query), query.size(0), 1, query.size(2), call.tensor("kv_cache"), call.tensor("block_tables"),
                 call.tensor("seq_lens"), call.tensor("out"), nullptr, call.number("bmm1_scale") * of_cache, of_cache},
                call.way, call.way == Way::strided);
}

bool trtllm_batch_decode_sparse_mla(const Call& call) {
  const Tensor &query = call.tensor("query"), &lists = call.tensor("block_tables"), &cache = call.tensor("kv_cache");
  const std::vector<float> all = floats(query), pool = floats(cache);
  const std::vector<std::int64_t> tokens = integers(lists);
  const std::int64_t heads = query.size(2);
  for (std::int64_t row = 0; row < query.size(0) * query.size(1); ++row) {
    std::vector<float> keys;
    std::int64_t visible = 0;
    for (std::int64_t i = row * lists.size(2); i < (row + 1) * lists.size(2); ++i) {
      const std::int64_t token = tokens[static_cast<std::size_t>(i)];
      if (token < 0) continue;
      keys.insert(keys.end(), pool.begin() + token * width, pool.begin() + (token + 1) * width);
      ++visible;
    }
    const auto begin = all.begin() + row * heads * width;
    const Attention at{call.way,
                       query.dtype(),
                       std::vector<float>(begin, begin + heads * width),
                       std::move(keys),
                       heads,
                       visible,
                       sigma_of(call.number("bmm1_scale")),
                       static_cast<float>(call.number("bmm2_scale")),
                       call.way == Way::strided};
    const std::vector<Head> result = attend(at);
    for (std::int64_t h = 0; h < heads; ++h)
      store_head(at, result[static_cast<std::size_t>(h)], row * heads + h, call.tensor("out"), call.find("lse"));
  }
  return true;
}

/// Weights are added up after their rounding, as upstream does it, unless reversed.
bool batch_mla_paged_attention(const Call& call) {
  const Tensor &q_nope = call.tensor("q_nope"), &latent_rows = call.tensor("ckv_cache");
  const std::vector<float> nope = floats(q_nope), pe = floats(call.tensor("q_pe")), ckv = floats(latent_rows),
                           kpe = floats(call.tensor("kpe_cache"));
  const bool in_fp8 = latent_rows.dtype() == DType::f8_e4m3;
  const Tensor* const scales = call.find("ckv_scale_arr");
  const auto scale_of = [&](std::int64_t row, std::int64_t column) {
    if (column >= latent) return rounded(DType::bf16, static_cast<float>(call.number("kpe_scale")));
    return scales != nullptr ? static_cast<float>(quant::get(*scales, row * 4 + column / 128))
                             : rounded(DType::bf16, static_cast<float>(call.number("ckv_scale")));
  };
  const auto starts = integers(call.tensor("qo_indptr")), firsts = integers(call.tensor("kv_indptr"));
  const auto pages = integers(call.tensor("kv_indices")), lengths = integers(call.tensor("kv_len_arr"));
  const std::int64_t heads = q_nope.size(1), page_size = latent_rows.size(1), rope = width - latent;
  const Tensor* const lse = call.find("lse");
  const auto joined = [&](std::vector<float>& to, const std::vector<float>& first, const std::vector<float>& second, std::int64_t row) {
    to.insert(to.end(), first.begin() + row * latent, first.begin() + (row + 1) * latent);
    to.insert(to.end(), second.begin() + row * rope, second.begin() + (row + 1) * rope);
  };
  for (std::size_t b = 0; b < lengths.size(); ++b)
    for (std::int64_t t = starts[b]; t < starts[b + 1]; ++t) {
      Attention at{call.way, q_nope.dtype(), {}, {}, heads, lengths[b], sigma_of(call.number("sm_scale")), 1.0f, call.way != Way::reversed};
      if (call.flag("causal")) at.visible = std::max<std::int64_t>(0, lengths[b] - (starts[b + 1] - t) + 1);
      for (std::int64_t h = 0; h < heads; ++h) joined(at.queries, nope, pe, t * heads + h);
      for (std::int64_t j = 0; j < at.visible; ++j) {
        const std::int64_t row = pages[static_cast<std::size_t>(firsts[b] + j / page_size)] * page_size + j % page_size;
        joined(at.keys, ckv, kpe, row);
        for (std::int64_t i = 0; in_fp8 && i < width; ++i) {
          float& x = at.keys[static_cast<std::size_t>(j * width + i)];
          x = rounded(DType::bf16, x * scale_of(row, i));
        }
      }
      const std::vector<Head> result = attend(at);
      for (std::int64_t h = 0; h < heads; ++h) {
        const Head& head = result[static_cast<std::size_t>(h)];
        store_head(at, head, t * heads + h, call.tensor("out"), lse);
        if (lse != nullptr && call.flag("return_lse_base_on_e")) store(*lse, t * heads + h, natural_lse(at, head, -infinity));
      }
    }
  return true;
}

/// Query by query and head by head.
bool trtllm_ragged_attention_deepseek(const Call& call) {
  return ragged(call, {call.tensor("query"), call.tensor("key"), call.tensor("value"), integers(call.tensor("cum_seq_lens_q")),
                       integers(call.tensor("cum_seq_lens_kv")), integers(call.tensor("seq_lens")), call.flag("is_causal"),
                       call.number("bmm1_scale"), call.number("bmm2_scale"), call.way == Way::strided});
}

bool batch_prefill_with_ragged_kv_cache(const Call& call) {
  const auto ends = integers(call.tensor("kv_indptr"));
  std::vector<std::int64_t> lengths;
  for (std::size_t b = 0; b + 1 < ends.size(); ++b) lengths.push_back(ends[b + 1] - ends[b]);
  const double scale = call.number("sm_scale");
  return ragged(call, {call.tensor("q"), call.tensor("k"), call.tensor("v"), integers(call.tensor("qo_indptr")), ends, lengths,
                       call.flag("causal"), scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(call.tensor("q").size(2))), 1.0, false,
                       call.number("logits_soft_cap"), call.integer("window_left"), call.find("sinks"), call.flag("return_lse_base_on_e")});
}

/// With a log-sum-exp in natural units, [B, N, Q].
bool flash_mla_with_kvcache(const Call& call) {
  const Tensor& q = call.tensor("q");
  const std::vector<std::int64_t> lengths = integers(call.tensor("cache_seqlens"));
  const std::vector<float> all = floats(q);
  const std::int64_t queries = q.size(1), heads = q.size(2);
  const auto descale = [&](const char* name) {
    const Tensor* const t = call.find(name);
    return t == nullptr ? 1.0 : quant::get(*t, 0);
  };
  const double scale =
      static_cast<double>(static_cast<float>(call.number("softmax_scale") == 0 ? 1 / 24.0 : call.number("softmax_scale"))) *
      descale("descale_q") * descale("descale_k");
  for (std::int64_t row = 0; row < q.size(0) * queries; ++row) {
    const std::int64_t length = lengths[static_cast<std::size_t>(row / queries)];
    const std::int64_t visible = call.flag("causal") ? std::max<std::int64_t>(0, length - queries + 1 + row % queries) : length;
    const auto begin = all.begin() + row * heads * width;
    Attention at{call.way,
                 q.dtype(),
                 std::vector<float>(begin, begin + heads * width),
                 gathered(call.tensor("k_cache").reshape({call.tensor("k_cache").size(0), 64, width}), call.tensor("block_table"),
                          row / queries, visible),
                 heads,
                 visible,
                 sigma_of(scale),
                 static_cast<float>(descale("descale_k")),
                 false};
    if (q.dtype() == DType::f8_e4m3) at.unit = &hw::fp8_wgmma;
    store_flash_mla(at, call, row);
  }
  return true;
}

bool flash_mla_sparse_decode(const Call& call) {
  const Tensor &q = call.tensor("q"), &cache = call.tensor("k_cache");
  const std::vector<float> all = floats(q);
  const std::vector<std::int64_t> indices = integers(call.tensor("indices"));
  const std::int64_t heads = q.size(2), topk = call.tensor("indices").size(2), slots = cache.size(0) * 64;
  const double scale = call.number("softmax_scale") == 0 ? 1 / 24.0 : call.number("softmax_scale");
  for (std::int64_t row = 0; row < q.size(0) * q.size(1); ++row) {
    const auto begin = all.begin() + row * heads * width;
    Attention at{call.way, DType::bf16, std::vector<float>(begin, begin + heads * width), {}, heads, 0, sigma_of(scale), 1.0f, false};
    for (std::int64_t i = row * topk; i < (row + 1) * topk; ++i)
      if (const std::int64_t slot = indices[static_cast<std::size_t>(i)]; slot >= 0 && slot < slots) {
        const std::vector<float> key = packed_key(cache.as<const std::byte>() + slot * 656);
        at.keys.insert(at.keys.end(), key.begin(), key.end());
        ++at.visible;
      }
    store_flash_mla(at, call, row);
  }
  return true;
}

bool flash_mla_sparse_fwd(const Call& call) {
  const Tensor &q = call.tensor("q"), &kv = call.tensor("kv");
  const std::vector<float> all = floats(q), rows = floats(kv);
  const std::vector<std::int64_t> indices = integers(call.tensor("indices"));
  const std::int64_t heads = q.size(1), topk = call.tensor("indices").size(2);
  const bool natural = call.is("logarithms", "natural");
  for (std::int64_t t = 0; t < q.size(0); ++t) {
    const auto begin = all.begin() + t * heads * width;
    Attention at{call.way, DType::bf16, std::vector<float>(begin, begin + heads * width), {}, heads, 0, sigma_of(call.number("sm_scale")),
                 1.0f,     false};
    for (std::int64_t i = t * topk; i < (t + 1) * topk; ++i)
      if (const std::int64_t row = indices[static_cast<std::size_t>(i)]; row >= 0 && row < kv.size(0)) {
        at.keys.insert(at.keys.end(), rows.begin() + row * width, rows.begin() + (row + 1) * width);
        ++at.visible;
      }
    const std::vector<Head> result = attend(at);
    for (std::int64_t h = 0; h < heads; ++h) {
      const Head& head = result[static_cast<std::size_t>(h)];
      store_head(at, head, t * heads + h, call.tensor("out"), &call.tensor("lse"));
      store(call.tensor("max_logits"), t * heads + h, natural ? head.top * 0.69314718f : head.top);
      if (natural) store(call.tensor("lse"), t * heads + h, natural_lse(at, head, infinity));
    }
  }
  return true;
}

bool context_attention_fwd(const Call& call) {
  const Tensor& query = call.tensor("q");
  const std::vector<std::int64_t> starts = integers(call.tensor("b_start_loc")), lengths = integers(call.tensor("b_seq_len"));
  const HeadsOf q(query), k(call.tensor("k")), v(call.tensor("v"));
  const std::int64_t heads = query.size(1), group = heads / call.tensor("k").size(1);
  for (std::size_t b = 0; b < lengths.size(); ++b)
    for (std::int64_t row = 0; row < lengths[b] * heads; ++row) {
      const std::int64_t i = row / heads, h = row % heads;
      Attention at = one_query(call, query.dtype(), q(starts[b] + i, h), call.flag("is_causal") ? i + 1 : lengths[b],
                               1 / std::sqrt(static_cast<double>(query.size(2))), query.size(2), query.size(2));
      for (std::int64_t j = 0; j < at.visible; ++j) add_key(at, k(starts[b] + j, h / group), v(starts[b] + j, h / group));
      store_head(at, attend(at).front(), (starts[b] + i) * heads + h, call.tensor("o"), nullptr);
    }
  return true;
}

/// Token by token and head by head, over copies of the keys that masks and windows let it see.
bool extend_attention_fwd(const Call& call) {
  const Tensor &query = call.tensor("q_extend"), &fresh = call.tensor("v_extend"), &pool = call.tensor("k_buffer");
  const auto starts = integers(call.tensor("qo_indptr")), firsts = integers(call.tensor("kv_indptr"));
  const auto slots = integers(call.tensor("kv_indices"));
  const Tensor *const mask = call.find("custom_mask"), *const leads = call.find("window_kv_offsets");
  const HeadsOf q(query), k(call.tensor("k_extend")), v(fresh), old_k(pool),
      old_v(call.flag("v_is_slice_of_k") ? pool.slice(2, 0, fresh.size(2)) : call.tensor("v_buffer"));
  const std::int64_t heads = query.size(1), group = heads / pool.size(1), key_width = query.size(2),
                     window = call.integer("sliding_window_size");
  const std::int64_t block = call.integer("BLOCK_M") != 0 ? call.integer("BLOCK_M") : key_width <= 256 ? 128 : 32;
  const double scale = call.number("sm_scale") != 0 ? call.number("sm_scale") : 1 / std::sqrt(static_cast<double>(key_width));
  for (std::size_t b = 0; b + 1 < starts.size(); ++b) {
    const std::int64_t queries = starts[b + 1] - starts[b], prefix = firsts[b + 1] - firsts[b];
    const std::int64_t lead = mask != nullptr && leads != nullptr && window > 0 ? integers(*leads)[b] : 0;
    for (std::int64_t row = 0; row < queries * heads; ++row) {
      const std::int64_t i = row / heads, h = row % heads;
      const auto sees = [&](std::int64_t j) {
        const std::int64_t n = j - prefix;
        if (window > 0 && prefix + i - j > window) return false;
        if (mask == nullptr) return n < 0 || !call.flag("is_causal") || n <= i;
        if (n < 0 && call.flag("skip_prefix_custom_mask")) return true;
        if (n >= 0 && call.flag("is_causal") && n / block > i / block) return false;
        const std::int64_t at = integers(call.tensor("mask_indptr"))[b] + i * (prefix + queries + lead) + lead + j;
        return (mask->as<const std::uint8_t>()[at] & 1) != 0;
      };
      Attention at = one_query(call, query.dtype(), q(starts[b] + i, h), 0, scale, key_width, fresh.size(2));
      at.cap = call.number("logit_cap");
      at.temperature = temperature(prefix + i, call.integer("xai_temperature_len"));
      Attention cached = at;
      if (pool.dtype() == DType::f8_e4m3) {
        cached.type = cached.weights = pool.dtype();
        for (float& x : cached.queries) x = rounded(pool.dtype(), std::clamp(x, -448.0f, 448.0f));
        if (key_width <= 256) cached.unit = &hw::fp8_wgmma;
      }
      for (std::int64_t j = 0; j < prefix + queries; ++j) {
        if (!sees(j)) continue;
        const std::int64_t slot = j < prefix ? slots[static_cast<std::size_t>(firsts[b] + j)] : starts[b] + j - prefix;
        Attention& to = j < prefix && pool.dtype() == DType::f8_e4m3 ? cached : at;
        add_key(to, j < prefix ? old_k(slot, h / group) : k(slot, h / group), j < prefix ? old_v(slot, h / group) : v(slot, h / group));
        ++to.visible;
      }
      Head head = attend(cached).front();
      merge(head, attend(at).front());
      add_sink(head, call.find("sinks"), h);
      at.visible += cached.visible;
      store_head(at, head, (starts[b] + i) * heads + h, call.tensor("o_extend"), nullptr);
    }
  }
  return true;
}

bool decode_attention_fwd(const Call& call) {
  const Tensor &query = call.tensor("q"), &keys = call.tensor("k_buffer");
  const Tensor values = call.flag("v_is_slice_of_k") ? keys.slice(2, 0, call.integer("v_head_dim")) : call.tensor("v_buffer");
  const std::vector<std::int64_t> starts = integers(call.tensor("kv_indptr")), slots = integers(call.tensor("kv_indices"));
  const HeadsOf q(query), k(keys), v(values);
  const std::int64_t heads = query.size(1), group = heads / keys.size(1);
  for (std::int64_t row = 0; row < query.size(0) * heads; ++row) {
    const std::int64_t b = row / heads, h = row % heads, first = starts[static_cast<std::size_t>(b)];
    Attention at = one_query(call, query.dtype(), q(b, h), starts[static_cast<std::size_t>(b) + 1] - first, call.number("sm_scale"),
                             keys.size(2), values.size(2));
    at.cap = call.number("logit_cap");
    at.temperature = temperature(at.visible - 1, call.integer("xai_temperature_len"));
    if (keys.dtype() == DType::f8_e4m3) at.weights = group == 1 ? DType::f32 : keys.dtype();
    for (std::int64_t j = 0; j < at.visible; ++j) {
      const std::int64_t slot = slots[static_cast<std::size_t>(first + j)];
      add_key(at, k(slot, h / group), v(slot, h / group));
    }
    Head head = attend(at).front();
    add_sink(head, call.find("sinks"), h);
    store_head(at, head, row, call.tensor("o"), nullptr);
  }
  return true;
}

/// Every product and every sum of the rotation rounded; `tensor_core` rounds the sum alone.
bool decode_attention_fwd_grouped_rope(const Call& call) {
  const Tensor &query = call.tensor("q"), &pool = call.tensor("k_buffer");
  const std::vector<std::int64_t> starts = integers(call.tensor("kv_indptr")), slots = integers(call.tensor("kv_indices"));
  const HeadsOf q(query), k(pool), v(call.tensor("v_buffer"));
  const std::int64_t heads = query.size(1), rotated_width = call.integer("rotary_dim"), half = rotated_width / 2;
  const bool rope = call.flag("use_rope"), neox = call.flag("is_neox_style");
  const std::vector<float> table = rope ? floats(call.tensor("cos_sin_cache")) : std::vector<float>{};
  const std::vector<std::int64_t> positions = rope ? integers(call.tensor("positions")) : std::vector<std::int64_t>{};
  const auto rotate = [&](std::vector<float> x, std::int64_t b) {
    const auto to_type = [&](float value) { return call.way == Way::tensor_core ? value : rounded(query.dtype(), value); };
    const std::vector<float> before(x.end() - rotated_width, x.end());
    for (std::int64_t i = 0; i < half; ++i) {
      const std::int64_t first = neox ? i : 2 * i, second = neox ? i + half : 2 * i + 1;
      const std::int64_t row = positions[static_cast<std::size_t>(b)] * rotated_width;
      const float cosine = table[static_cast<std::size_t>(row + i)], sine = table[static_cast<std::size_t>(row + half + i)];
      const float a = before[static_cast<std::size_t>(first)], c = before[static_cast<std::size_t>(second)];
      float* const to = x.data() + x.size() - rotated_width;
      to[first] = rounded(query.dtype(), to_type(a * cosine) - to_type(c * sine));
      to[second] = rounded(query.dtype(), to_type(c * cosine) + to_type(a * sine));
    }
    return x;
  };
  for (std::int64_t row = 0; row < query.size(0) * heads; ++row) {
    const std::int64_t b = row / heads, h = row % heads, first = starts[static_cast<std::size_t>(b)];
    const std::int64_t count = starts[static_cast<std::size_t>(b) + 1] - first;
    Attention at =
        one_query(call, query.dtype(), rope ? rotate(q(b, h), b) : q(b, h), count, call.number("sm_scale"), query.size(2), v.width());
    at.cap = call.number("logit_cap");
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t slot = slots[static_cast<std::size_t>(first + j)];
      const bool last = rope && j + 1 == count;
      add_key(at, last ? rotate(k(slot, 0), b) : k(slot, 0), v(slot, 0));
      for (std::int64_t i = 0; last && h == 0 && i < rotated_width; ++i)
        store(call.tensor("k_pe_tokens"), b * rotated_width + i,
              rotate(k(slot, 0), b)[static_cast<std::size_t>(query.size(2) - rotated_width + i)]);
    }
    store_head(at, attend(at).front(), row, call.tensor("o"), nullptr);
  }
  return true;
}

}  // namespace dodona::oracle::alternatives
