#include <algorithm>
#include <cmath>
#include <limits>

#include "core/philox.h"
#include "oracle/alternatives/families.h"
#include "quant/element.h"

namespace dodona::oracle::alternatives {
namespace {

/// In short chains, as the contracts of these ops ask.
float sum_of(const std::vector<float>& terms, Way way) {
  if (way == Way::strided) return strided_sum(terms, 1024);
  std::vector<float> parts;
  for (std::size_t begin = 0; begin < terms.size(); begin += 48)
    parts.push_back(reversed_sum(std::span(terms).subspan(begin, std::min<std::size_t>(48, terms.size() - begin))));
  return strided_sum(parts, 4096);
}

std::vector<float> larger_than(std::span<const float> row, double bar) {
  std::vector<float> kept;
  for (const float p : row)
    if (static_cast<double>(p) > bar) kept.push_back(p);
  return kept;
}

struct Bound {
  bool by_count;
  std::uint32_t count;
  float mass;

  bool met(const std::vector<float>& kept, Way way) const { return by_count ? kept.size() >= count : sum_of(kept, way) >= mass; }
};

std::vector<float> renormed(std::span<const float> row, const Bound& bound, Way way) {
  const float most = std::max(0.0f, *std::max_element(row.begin(), row.end()));
  const bool whole = bound.by_count ? bound.count >= row.size() : bound.mass >= 1;
  double low = whole ? -std::numeric_limits<double>::infinity() : 0.0, high = most;
  float sum = 1;
  if (whole && !bound.by_count) {
    sum = sum_of({row.begin(), row.end()}, way);
    if (sum <= 1e-8f) sum = 1;
  }
  while (!whole) {
    const double thirds[] = {(high + 2 * low) / 3, (2 * high + low) / 3};
    float least = static_cast<float>(high), last = static_cast<float>(low);
    for (const float p : row) {
      if (static_cast<double>(p) > low) least = std::min(least, p);
      if (static_cast<double>(p) <= high) last = std::max(last, p);
    }
    const std::vector<float> upper = larger_than(row, thirds[1]), lower = larger_than(row, thirds[0]);
    if (bound.met(upper, way)) {
      low = thirds[1];
      sum = sum_of(upper, way);
    } else if (bound.met(lower, way)) {
      low = thirds[0];
      high = std::min(thirds[1], static_cast<double>(last));
      sum = sum_of(lower, way);
    } else {
      high = std::min(thirds[0], static_cast<double>(last));
    }
    if (least == last) break;
  }
  sum = std::max(sum, 1e-8f);
  std::vector<float> out;
  for (const float p : row) {
    const bool kept = static_cast<double>(p) > low;
    out.push_back(!kept ? 0.0f : sum == 1 ? p : way == Way::strided ? p * (1.0f / sum) : p / sum);
  }
  return out;
}

/// The value of a tensor for a row, or of an attribute for all of them.
double of_row(const Call& call, std::string_view name, std::int64_t row) {
  const Tensor* each = call.find(name);
  return each != nullptr ? quant::get(*each, row) : call.number(name);
}

bool renorm_rows(const Call& call, bool by_count) {
  if (call.way == Way::tensor_core) return false;
  const Tensor& probs = call.tensor("probs");
  const std::vector<float> x = floats(probs);
  const auto width = static_cast<std::size_t>(probs.size(1));
  for (std::int64_t b = 0; b < probs.size(0); ++b) {
    const double k = by_count ? of_row(call, "top_k", b) : 0;
    const double p = by_count ? 0 : of_row(call, "top_p", b);
    const Bound bound{by_count, static_cast<std::uint32_t>(static_cast<std::int64_t>(k)), static_cast<float>(p)};
    const auto begin = static_cast<std::size_t>(b) * width;
    // A search bit by bit for the largest of none keeps nothing, one in thirds what equals the largest.
    const bool of_none = by_count && k == 0 && call.is("search", "radix");
    const std::vector<float> row =
        of_none ? std::vector<float>(width, 0.0f) : renormed(std::span(x).subspan(begin, width), bound, call.way);
    for (std::size_t i = 0; i < width; ++i) store(call.tensor("renorm_probs"), static_cast<std::int64_t>(begin + i), row[i]);
  }
  return true;
}

/// The first token above the bar, or from it on, whose running sum exceeds u; else the last of them.
std::int64_t drawn(std::span<const float> row, double bar, bool from, float u, Way way) {
  constexpr std::size_t part = 32;
  float before = 0;
  std::int64_t last = -1;
  for (std::size_t begin = 0; begin < row.size(); begin += part) {
    float inside = 0;
    for (std::size_t i = begin; i < std::min(begin + part, row.size()); ++i) {
      const double p = row[i];
      if (!(from ? p >= bar : p > bar)) continue;
      inside += row[i];
      last = static_cast<std::int64_t>(i);
      if (before + inside > u) return last;
    }
    // Sums up to here, made anew in short chains.
    std::vector<float> terms;
    for (std::size_t i = 0; i < std::min(begin + part, row.size()); ++i)
      terms.push_back((from ? static_cast<double>(row[i]) >= bar : static_cast<double>(row[i]) > bar) ? row[i] : 0.0f);
    before = sum_of(terms, way);
  }
  return last;
}

std::int64_t rejected_into(std::span<const float> row, std::int64_t k, float p, PhiloxStream stream, Way way) {
  double low = 0, high = 1;
  float mass = 1;
  for (;;) {
    const std::int64_t token = drawn(row, low, false, stream.next_uniform() * mass, way);
    if (token < 0) return token;
    const double first = row[static_cast<std::size_t>(token)], second = (first + high) / 2;
    const std::vector<float> above = larger_than(row, first), beyond = larger_than(row, second);
    const auto accepted = [&](const std::vector<float>& larger) {
      return static_cast<std::int64_t>(larger.size()) < k && sum_of(larger, way) < p;
    };
    if (accepted(above)) return token;
    const bool lower_half = accepted(beyond);
    low = lower_half ? first : second;
    mass = sum_of(lower_half ? above : beyond, way);
    if (lower_half) high = second;
    if (!(low < high)) return token;
  }
}

/// Calls token_of(output row, row of probs, its number, stream).
template <class TokenOf>
bool sample_rows(const Call& call, const TokenOf& token_of) {
  if (call.way == Way::tensor_core) return false;
  const Tensor &probs = call.tensor("probs"), &samples = call.tensor("samples");
  const Tensor* indices = call.find("indices");
  const std::vector<float> x = floats(probs);
  const auto width = static_cast<std::size_t>(probs.size(1));
  for (std::int64_t b = 0; b < samples.size(0); ++b) {
    const auto source = indices != nullptr ? static_cast<std::int64_t>(quant::get(*indices, b)) : b;
    const auto row = std::span(x).subspan(static_cast<std::size_t>(source) * width, width);
    const PhiloxStream stream(static_cast<std::uint64_t>(call.integer("philox_seed")), static_cast<std::uint64_t>(b),
                              static_cast<std::uint64_t>(call.integer("philox_offset")));
    quant::set(samples, b, static_cast<double>(token_of(b, row, source, stream)));
  }
  return true;
}

constexpr std::int64_t no_limit = std::int64_t{1} << 40;

}  // namespace

bool softmax(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor& logits = call.tensor("logits");
  const std::vector<float> all = floats(logits);
  const auto width = static_cast<std::size_t>(logits.size(1));
  for (std::size_t begin = 0; begin < all.size(); begin += width) {
    const auto temperature = static_cast<float>(of_row(call, "temperature", static_cast<std::int64_t>(begin / width)));
    std::vector<float> x;
    for (std::size_t v = 0; v < width; ++v)
      x.push_back(temperature == 0           ? 0.0f
                  : call.way == Way::strided ? all[begin + v] * (1.0f / temperature)
                                             : all[begin + v] / temperature);
    const float most = *std::max_element(x.begin(), x.end());
    std::vector<float> exps;
    for (const float value : x) exps.push_back(exp(value - most));
    const float sum = sum_of(exps, call.way);
    for (std::size_t v = 0; v < width; ++v)
      store(call.tensor("probs"), static_cast<std::int64_t>(begin + v), call.way == Way::strided ? exps[v] * (1.0f / sum) : exps[v] / sum);
  }
  return true;
}

bool top_k_renorm_prob(const Call& call) {
  return renorm_rows(call, true);
}

bool top_p_renorm_prob(const Call& call) {
  return renorm_rows(call, false);
}

bool min_p_sampling_from_probs(const Call& call) {
  return sample_rows(call, [&](std::int64_t b, std::span<const float> row, std::int64_t, PhiloxStream stream) {
    const float most = std::max(0.0f, *std::max_element(row.begin(), row.end()));
    const double bar = most * static_cast<float>(of_row(call, "min_p", b));
    const float mass = sum_of(larger_than(row, std::nextafter(bar, -1.0)), call.way);
    return drawn(row, bar, true, stream.next_uniform() * mass, call.way);
  });
}

bool top_p_sampling_from_probs(const Call& call) {
  return sample_rows(call, [&](std::int64_t, std::span<const float> row, std::int64_t source, const PhiloxStream& stream) {
    const auto p = static_cast<float>(of_row(call, "top_p", source));
    return rejected_into(row, no_limit, p, stream, call.way);
  });
}

bool top_k_top_p_sampling_from_probs(const Call& call) {
  return sample_rows(call, [&](std::int64_t, std::span<const float> row, std::int64_t source, const PhiloxStream& stream) {
    const auto k = static_cast<std::uint32_t>(static_cast<std::int64_t>(of_row(call, "top_k", source)));
    const auto p = static_cast<float>(of_row(call, "top_p", source));
    if (call.is("filter_apply_order", "joint")) return rejected_into(row, k, p, stream, call.way);
    return rejected_into(renormed(row, {true, k, 0}, call.way), no_limit, p, stream, call.way);
  });
}

}  // namespace dodona::oracle::alternatives
