#include "ops/softmax/triton/decode.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "core/threads.h"
#include "ops/softmax/triton/arithmetic.h"
#include "quant/element.h"
#include "quant/sizes.h"

namespace dodona::ops {
namespace {

using quant::ceil_div;
using Floats = std::vector<float>;
using Codes = std::vector<std::uint16_t>;

constexpr float infinity = std::numeric_limits<float>::infinity();
const std::byte* row_of(const Tensor& buffer, std::int64_t slot, std::int64_t head) {
  return buffer.as<const std::byte>() + (slot * buffer.stride(0) + head * buffer.stride(1)) * (bits(buffer.dtype()) / 8);
}

/// A score of a request, capped and tempered.
float shaped(const TritonDecode& call, std::int64_t request, float score) {
  const std::int64_t position = call.length(request) - 1;
  const float x = call.cap > 0 ? triton::capped(score, static_cast<float>(call.cap)) : score;
  return call.temperature > 0 && position > call.temperature ? x * triton::temperature(position, call.temperature) : x;
}

/// Some heads that share a key head, over one split: outputs over their sums, and log-sum-exps.
struct Split {
  Floats out, lse;
};

/// What a row keeps from block to block.
struct Running {
  float top = -infinity, sum = 0;
};

/// The new maximum; `scores` become weights. Returns what earlier sums are multiplied with.
float weigh(Running& row, std::span<float> scores) {
  float top = row.top;
  for (const float x : scores) top = std::fmax(x, top);
  const float factor = triton::exp(row.top - top);
  for (float& x : scores) x = triton::exp(x - top);
  row.top = top;
  return factor;
}

Split finish(const std::vector<Running>& rows, const Floats& sums) {
  Split split;
  const std::size_t width = sums.size() / rows.size();
  for (std::size_t i = 0; i < sums.size(); ++i) split.out.push_back(triton::div(sums[i], rows[i / width].sum));
  for (const Running& row : rows) split.lse.push_back(row.top + triton::log(row.sum));
  return split;
}

/// Keys [begin, end) of a request for `heads` query heads from `first` on.
struct Piece {
  std::int64_t request, first, heads, begin, end;
};

/// Sums over the keys of a block, [heads, value_width]: each is multiplied by its head's factor and takes the products of weights, [heads,
/// block], and values, [value_width, block].
void add_values(const TritonDecode& call, Floats& sums, const Floats& factors, const Floats& weights, const std::vector<std::byte>& values,
                std::int64_t block, Isa isa) {
  const DType type = call.v_buffer.dtype();
  const auto heads = static_cast<std::int64_t>(factors.size()), width = static_cast<std::int64_t>(sums.size()) / heads;
  std::vector<std::byte> codes(weights.size() * static_cast<std::size_t>(bits(type) / 8));
  quant::from_f32(type, weights.data(), codes.data(), static_cast<std::int64_t>(weights.size()));
  const triton::Codes a{codes.data(), heads, block}, b{values.data(), width, block};
  if (!call.in_fp8()) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] *= factors[i / static_cast<std::size_t>(width)];
    return triton::multiply(type, a, b, block, sums.data(), width, isa);
  }
  Floats products(sums.size());
  triton::multiply(quant::tensor_core::fp8_mma_sync, type, a, b, block, products.data(), width, isa);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = std::fma(sums[i], factors[i / static_cast<std::size_t>(width)], products[i]);
}

Split grouped(const TritonDecode& call, const Piece& piece, Isa isa) {
  constexpr std::int64_t block = 32;
  const DType type = call.q.dtype();
  const std::int64_t width = call.k_buffer.size(2), value_width = call.v_buffer.size(2), key_head = piece.first / call.group();
  const auto scale = static_cast<float>(call.sm_scale);
  std::vector<Running> rows(static_cast<std::size_t>(piece.heads));
  Floats sums(static_cast<std::size_t>(piece.heads * value_width));
  // The last columns are multiplied first where the kernel does so.
  const auto in_order = [&](DType of, const std::byte* row, std::uint16_t* to) {
    Codes from(static_cast<std::size_t>(width));
    if (of == type) {
      std::memcpy(from.data(), row, 2 * from.size());
    } else {
      Floats wide(from.size());
      quant::to_f32(of, row, wide.data(), width);
      quant::from_f32(type, wide.data(), from.data(), width);
    }
    std::rotate_copy(from.begin(), from.end() - call.first_columns, from.end(), to);
  };
  Codes queries(static_cast<std::size_t>(piece.heads * width));
  for (std::int64_t h = 0; h < piece.heads; ++h) in_order(type, row_of(call.q, piece.request, piece.first + h), queries.data() + h * width);
  for (std::int64_t n = piece.begin; n < piece.end; n += block) {
    const std::int64_t count = std::min(block, piece.end - n);
    Codes keys(static_cast<std::size_t>(block * width));
    const std::size_t bytes = call.in_fp8() ? 1 : 2;
    std::vector<std::byte> values(static_cast<std::size_t>(value_width * block) * bytes);
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t slot = call.slot(piece.request, n + j);
      in_order(call.k_buffer.dtype(), call.key_row(piece.request, n + j, key_head), keys.data() + j * width);
      const std::byte* const value = row_of(call.v_buffer, slot, key_head);
      for (std::size_t d = 0; d < static_cast<std::size_t>(value_width); ++d)
        std::memcpy(values.data() + (d * static_cast<std::size_t>(block) + static_cast<std::size_t>(j)) * bytes, value + d * bytes, bytes);
    }
    Floats scores(static_cast<std::size_t>(piece.heads * block)), factors;
    triton::multiply(call.in_fp8() ? quant::tensor_core::half_mma_of_bytes : quant::tensor_core::half_mma, type,
                     {queries.data(), piece.heads, width}, {keys.data(), block, width}, width, scores.data(), block, isa);
    for (std::int64_t h = 0; h < piece.heads; ++h) {
      const std::span<float> p(scores.data() + h * block, static_cast<std::size_t>(block));
      for (std::int64_t j = 0; j < block; ++j) {
        float& x = p[static_cast<std::size_t>(j)];
        x = j < count ? shaped(call, piece.request, x * scale) : -infinity;
      }
      Running& row = rows[static_cast<std::size_t>(h)];
      factors.push_back(weigh(row, p));
      row.sum = std::fma(row.sum, factors.back(), value_width <= 16 ? triton::row_sum(p) : triton::row_sum_of_warps(p));
    }
    add_values(call, sums, factors, scores, values, block, isa);
  }
  return finish(rows, sums);
}

// ---- single heads: fused operations of the element type

/// How a [64, elements] tensor lies in four warps: sixteen bytes a lane.
struct Layout {
  std::int64_t elements;                           ///< of a lane
  std::int64_t lanes, groups, warps_along, warps;  ///< lanes along a row, rows of a warp, warps along a row, warps along the rows
  Layout(DType type, std::int64_t width)
      : elements(128 / bits(type)),
        lanes(std::min<std::int64_t>(32, width / elements)),
        groups(32 / lanes),
        warps_along(std::min<std::int64_t>(4, std::max<std::int64_t>(1, width / (elements * lanes)))),
        warps(4 / warps_along) {}
  std::int64_t step() const { return groups * warps; }
};

/// Sums over lanes by butterflies, the farthest first.
template <class Value, class Add>
Value butterfly(std::vector<Value> lanes, const Add& add) {
  for (std::size_t step = lanes.size() / 2; step > 0; step /= 2) {
    const std::vector<Value> before = lanes;
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) lanes[lane] = add(before[lane], before[lane ^ step]);
  }
  return lanes[0];
}
template <class Value, class Add>
Value over_warps(const std::vector<Value>& w, const Add& add) {
  return w.size() == 4 ? add(add(w[0], w[2]), add(w[1], w[3])) : w.size() == 2 ? add(w[0], w[1]) : w[0];
}

/// q . k, every operation rounded to the type that it is made in. `width` elements, a power of two.
double score(DType type, const std::vector<double>& q, const std::vector<double>& k, const Layout& layout) {
  const triton::ElementMath t(type);
  const auto width = static_cast<std::int64_t>(q.size());
  const bool pairs = type != DType::f32 && (width < 128 || width > 512);  // what the compiler made vectors of
  const auto add = [&](double a, double b) { return t.add(a, b); };
  std::vector<double> warps;
  for (std::int64_t w = 0; w < layout.warps_along; ++w) {
    std::vector<double> lanes;
    for (std::int64_t l = 0; l < layout.lanes; ++l) {
      std::vector<std::size_t> at;
      for (std::int64_t c = 0; c < width; c += layout.elements * layout.lanes * layout.warps_along)
        for (std::int64_t e = 0; e < layout.elements; ++e)
          at.push_back(static_cast<std::size_t>(c + (w * layout.lanes + l) * layout.elements + e));
      double sum = t.fma(q[at[0]], k[at[0]], t.mul(q[at[1]], k[at[1]]));
      for (std::size_t i = 2; i < at.size(); ++i)
        sum = pairs && i % 2 == 1 ? t.add(sum, t.mul(q[at[i]], k[at[i]])) : t.fma(q[at[i]], k[at[i]], sum);
      lanes.push_back(sum);
    }
    warps.push_back(butterfly(std::move(lanes), add));
  }
  return over_warps(warps, add);
}

/// The sum over 64 keys of term by term(key, sum so far or none), by lanes and warps of the layout.
template <class Chain>
float over_keys(const Layout& layout, const Chain& chain) {
  const auto add = [](float a, float b) { return a + b; };
  std::vector<float> warps;
  for (std::int64_t w = 0; w < layout.warps; ++w) {
    std::vector<float> lanes;
    for (std::int64_t g = 0; g < layout.groups; ++g) lanes.push_back(chain(w * layout.groups + g));
    warps.push_back(butterfly(std::move(lanes), add));
  }
  return over_warps(warps, add);
}

Split single(const TritonDecode& call, const Piece& piece) {
  constexpr std::int64_t block = 64;
  const DType type = call.q.dtype(), pool = call.k_buffer.dtype(), of_scores = call.in_fp8() && type == DType::bf16 ? DType::f32 : type;
  const std::int64_t width = call.k_buffer.size(2), value_width = call.v_buffer.size(2);
  const auto padded = [](std::int64_t n) { return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n))); };
  const Layout layout(pool, padded(width)), value_layout(pool, padded(value_width));
  const auto scale = static_cast<float>(call.sm_scale);
  std::vector<double> q(static_cast<std::size_t>(padded(width)));
  quant::to_f64(type, row_of(call.q, piece.request, piece.first), q.data(), width);
  std::vector<Running> rows(1);
  Floats sums(static_cast<std::size_t>(value_width)), values(static_cast<std::size_t>(block * value_width)),
      p(static_cast<std::size_t>(block));
  for (std::int64_t n = piece.begin; n < piece.end; n += block) {
    const std::int64_t count = std::min(block, piece.end - n);
    std::fill(values.begin(), values.end(), 0.0f);
    std::fill(p.begin(), p.end(), -infinity);
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t slot = call.slot(piece.request, n + j);
      std::vector<double> k(q.size());
      quant::to_f64(pool, row_of(call.k_buffer, slot, piece.first), k.data(), width);
      p[static_cast<std::size_t>(j)] = shaped(call, piece.request, static_cast<float>(score(of_scores, q, k, layout)) * scale);
      quant::to_f32(pool, row_of(call.v_buffer, slot, piece.first), values.data() + j * value_width, value_width);
    }
    const float factor = weigh(rows[0], p);
    const auto weight = [&](std::int64_t j) { return p[static_cast<std::size_t>(j)]; };
    for (std::int64_t d = 0; d < value_width; ++d) {
      const auto value = [&](std::int64_t j) { return values[static_cast<std::size_t>(j * value_width + d)]; };
      const std::int64_t step = value_layout.step();
      const float sum = over_keys(value_layout, [&](std::int64_t first) {
        // The second key's product comes first.
        float chain = weight(first + step) * value(first + step);
        chain = std::fma(weight(first), value(first), chain);
        for (std::int64_t j = first + 2 * step; j < block; j += step) chain = std::fma(weight(j), value(j), chain);
        return chain;
      });
      sums[static_cast<std::size_t>(d)] = std::fma(sums[static_cast<std::size_t>(d)], factor, sum);
    }
    const float sum = over_keys(layout, [&](std::int64_t first) {
      float chain = weight(first);
      for (std::int64_t j = first + layout.step(); j < block; j += layout.step()) chain = chain + weight(j);
      return chain;
    });
    rows[0].sum = std::fma(rows[0].sum, factor, sum);
  }
  return finish(rows, sums);
}

}  // namespace

const std::byte* TritonDecode::key_row(std::int64_t request, std::int64_t j, std::int64_t head) const {
  if (last_keys.defined() && j + 1 == length(request)) return last_keys.as<const std::byte>() + 2 * request * last_keys.stride(0);
  return row_of(k_buffer, slot(request, j), head);
}

TritonDecodeAttention::TritonDecodeAttention(const TritonDecode& call) : call_(call), key_heads_(call.k_buffer.size(1)) {
  rows = call.q.size(0) * key_heads_;
  heads = call.group();
  key_width = call.k_buffer.size(2);
  value_width = call.v_buffer.size(2);
  type = call.q.dtype();
  scale = call.sm_scale;
  cap = call.cap;
  out = call.o;
  out_name = "o";
  none_is_open = !call.sinks.defined();
  if (call.in_fp8()) cached = CachedKeys{DType::f8_e4m3, type, heads == 1 ? DType::f32 : DType::f8_e4m3, {}};
}

double TritonDecodeAttention::sink(std::int64_t row, std::int64_t query) const {
  return call_.sinks.defined() ? quant::get(call_.sinks, row % key_heads_ * heads + query) : Attention::sink(row, query);
}

QueryParts TritonDecodeAttention::queries(std::int64_t row) const {
  return {QueryPart{row_of(call_.q, row / key_heads_, row % key_heads_ * heads), 2 * call_.q.stride(1), key_width}, QueryPart{}};
}

double TritonDecodeAttention::temperature(std::int64_t row, std::int64_t) const {
  return ops::temperature(call_.length(row / key_heads_) - 1, call_.temperature);
}

void TritonDecodeAttention::list(std::int64_t row, std::int64_t first, std::int64_t count, const std::byte** keys,
                                 const std::byte** values) const {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t request = row / key_heads_, head = row % key_heads_;
    keys[i] = call_.key_row(request, first + i, head);
    values[i] = row_of(call_.v_buffer, call_.slot(request, first + i), head);
  }
}

void triton_decode_hopper(const TritonDecode& call, const Exec& exec) {
  const std::int64_t requests = call.q.size(0), heads = call.q.size(1), width = call.v_buffer.size(2), group = call.group();
  // Heads that a block of the kernel has: those of a key head, 16 of them at most.
  const std::int64_t most = 16, per_key_head = ceil_div(group, most), blocks = group > 0 ? heads / group * per_key_head : 0;
  parallel_for(exec.threads, requests * blocks, 1e6, [&](std::int64_t task) {
    const std::int64_t b = task / blocks, key_head = task % blocks / per_key_head, part = task % per_key_head * most;
    const std::int64_t first = key_head * group + part, together = std::min(most, group - part), length = call.length(b);
    const std::int64_t splits = call.splits > 0 ? call.splits : call.num_kv_splits.as<const std::int32_t>()[b];
    const std::int64_t per = ceil_div(ceil_div(length, splits), call.split_granule) * call.split_granule;
    Floats sums(static_cast<std::size_t>(together * width));
    std::vector<Running> rows(static_cast<std::size_t>(together));
    for (std::int64_t begin = 0; begin < length; begin += per) {
      const Piece piece{b, first, together, begin, std::min(length, begin + per)};
      const Split split = group == 1 && call.first_columns == 0 ? single(call, piece) : grouped(call, piece, exec.isa);
      for (std::size_t h = 0; h < rows.size(); ++h) {
        Running& row = rows[h];
        const float top = std::fmax(split.lse[h], row.top), old = triton::exp(row.top - top), weight = triton::exp(split.lse[h] - top);
        for (std::size_t d = h * static_cast<std::size_t>(width); d < (h + 1) * static_cast<std::size_t>(width); ++d)
          sums[d] = std::fma(sums[d], old, weight * split.out[d]);
        row.sum = std::fma(row.sum, old, weight);
        row.top = top;
      }
    }
    for (std::size_t h = 0; call.sinks.defined() && h < rows.size(); ++h)
      rows[h].sum =
          rows[h].sum + triton::exp(static_cast<float>(quant::get(call.sinks, first + static_cast<std::int64_t>(h))) - rows[h].top);
    for (std::size_t i = 0; i < sums.size(); ++i)
      quant::set(call.o, (b * heads + first) * width + static_cast<std::int64_t>(i),
                 static_cast<double>(triton::div(sums[i], rows[i / static_cast<std::size_t>(width)].sum)));
  });
}

}  // namespace dodona::ops
