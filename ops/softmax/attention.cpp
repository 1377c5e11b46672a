#include "ops/softmax/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <vector>

#include "core/attention_watch.h"
#include "core/fixed_math.h"
#include "core/flaw.h"
#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/rows/cache/k_cache_row.h"
#include "ops/softmax/golden_lanes.h"
#include "ops/softmax/scores.h"
#include "quant/element.h"
#include "quant/sizes.h"

namespace dodona::ops {
namespace {

constexpr double largest_f32 = std::numeric_limits<float>::max();

/// Queries of one row, taken together so that each key and value is widened once for all of them.
class GoldenHeads {
 public:
  GoldenHeads(const Attention& call, std::int64_t row, std::int64_t first, std::int64_t count, Isa isa, const AttentionTerms& terms,
              const KeysSeen& seen)
      : call_(call), row_(row), first_(first), isa_(isa), hidden_score_(terms.hidden_score), weights_(static_cast<std::size_t>(count)) {
    for (std::int64_t h = first; h < first + count; ++h) {
      if (call.hidden_to(row, h) != 0) throw std::logic_error("golden attention to rows that hide keys");
      visible_.push_back(std::max<std::int64_t>(0, call.visible_to(row, h) - (terms.last_key_hidden ? 1 : 0)));
      if (seen.how == KeysSeen::How::more_or_fewer)
        visible_.back() = std::clamp<std::int64_t>(visible_.back() + seen.number, 0, call.visible(row));
      own_.push_back(visible_.back());
      if (terms.hidden_count) visible_.back() = std::max(visible_.back(), call.visible(row));
      // The numbers that kernels are given are the fp32 ones.
      maps_.push_back({static_cast<float>(call.scale), static_cast<float>(call.cap), call.temperature(row, h), call.cap_error});
    }
    cached_ = std::min(call.cached_keys(row), visible_.back());
    widen(call.queries(row), call.type, count, queries_);
    if (cached_ > 0) widen(call.cached_queries(row), call.cached->queries, count, cached_queries_);
    for (std::int64_t h = 0; h < count; ++h) {
      HeadWeights& head = weights_[static_cast<std::size_t>(h)];
      head.sink = with_mistake(terms.sink, call.sink(row, first + h));
      head.sink_leads = call.sink_leads;
      const std::int64_t keys = visible_[static_cast<std::size_t>(h)];
      head.empty_terms =
          static_cast<double>(terms.empty + terms.empty_splits(keys) + (terms.tile > 0 ? quant::align(keys, terms.tile) - keys : 0));
      if (terms.empty_capped) head.empty_score = -std::fabs(static_cast<double>(static_cast<float>(call.cap)));
    }
  }

  /// Weights and, when someone judges, their bounds.
  void weigh(bool judged, bool shifted) {
    const ScoreErrors of_fp32 = ScoreErrors::of_fp32(call_.key_width);
    for_each_block([&](std::int64_t first, std::int64_t count, const double* keys, const double*) {
      const bool in_cache = first < cached_;
      const ScoreErrors errors = in_cache ? call_.cached->errors.value_or(of_fp32) : call_.score_errors.value_or(of_fp32);
      const Queries& queries = in_cache ? cached_queries_ : queries_;
      std::array<double, static_cast<std::size_t>(block * golden_together)> sums, magnitudes;
      dispatch<GoldenScoresKernel>(isa_,
                                   GoldenScores{queries.by_element.data(), keys, count, call_.key_width, sums.data(), magnitudes.data()});
      for (std::int64_t j = 0; j < count; ++j)
        for (std::size_t h = 0; h < weights_.size(); ++h) {
          if (first + j >= visible_[h]) continue;
          if (first + j >= own_[h]) {
            weights_[h].add_key(hidden_sum(h), 0.0, 0.0, maps_[h], errors);
            continue;
          }
          const std::size_t at = static_cast<std::size_t>(j * golden_together) + h;
          const double rounding =
              errors.of_key != nullptr ? errors.of_key(queries.of(h), keys + j * call_.key_width, call_.key_width) : 0.0;
          const double operands = operand_error(h, first + j, queries.of(h), keys + j * call_.key_width);
          weights_[h].add_key(sums[at], magnitudes[at], rounding + operands, maps_[h], errors);
        }
    });
    for (std::size_t h = 0; h < weights_.size(); ++h) {
      HeadWeights& head = weights_[h];
      if (head.z.empty()) continue;
      head.softmax(maps_[h], shifted);
      if (is_lost(head, maps_[h])) head.lse.open = head.largest_score.open = true;
      const WeightTypes types{call_.type, cached_, call_.cached ? call_.cached->weights : call_.type};
      if (judged) head.bound(maps_[h], types, call_.weights_normalised, call_.lse_of_rounded_weights);
    }
  }

  /// A mistake: the weights of some keys are lost, and those of the others divided by their own sum unless values alone are lost.
  void leave_out(const KeysSeen& seen) {
    for (std::size_t h = 0; h < weights_.size(); ++h) {
      HeadWeights& head = weights_[h];
      double kept = head.has_sink() ? 1 : 0;
      for (std::size_t j = 0; j < head.p.size(); ++j) {
        const bool out = seen.leaves_out(static_cast<std::int64_t>(j), visible_[h]);
        kept += head.has_sink() ? (out ? -head.p[j] : 0) : (out ? 0 : head.p[j]);
        if (out) head.p[j] = 0;
      }
      if (seen.values_alone || head.z.empty()) continue;
      if (!(kept > 0)) {
        head.z.clear();
        continue;
      }
      for (double& weight : head.p) weight /= kept;
      head.lse.exact += fixed::log2(kept);
      head.lse.slack /= kept;
    }
  }

  void show(AttentionWatch& watch, std::int64_t h, std::int64_t out_row) const {
    if (sees_none(h)) return;
    watch.see_largest(out_row, top(h).exact * std::numbers::ln2);
    if (!watch.wants(out_row)) return;
    const auto width = static_cast<std::size_t>(call_.value_width);
    std::vector<double> weights = weights_[static_cast<std::size_t>(h)].p, values(weights.size() * width);
    for (double& weight : weights) weight *= static_cast<double>(static_cast<float>(call_.out_scale));
    for_each_value([&](std::size_t head, std::size_t j, const double* v) {
      if (head == static_cast<std::size_t>(h)) std::copy_n(v, width, values.data() + j * width);
    });
    watch.see(out_row, weights, values);
  }

  bool sees_none(std::int64_t h) const { return weights_[static_cast<std::size_t>(h)].z.empty(); }
  /// Whether the sink's weight about the largest score leaves fp32: kernels' sums of weights are infinite then.
  bool sink_overflows(std::int64_t h) const {
    const HeadWeights& w = weights_[static_cast<std::size_t>(h)];
    return w.has_sink() && !w.sink_leads && w.sink * std::numbers::log2e - w.largest_score.exact > 126.0;
  }
  const Bounded& lse(std::int64_t h) const { return weights_[static_cast<std::size_t>(h)].lse; }
  const Bounded& top(std::int64_t h) const { return weights_[static_cast<std::size_t>(h)].largest_score; }

  /// The weighted sums of the values of a kernel that keeps its numbers narrow, which is a mistake: tile by tile about a running maximum. A
  /// number that lies within 2^-18 of what was added up from a tie may be rounded either way.
  std::vector<Bounded> narrow_sums(const NarrowAttention& narrow) {
    using What = NarrowAttention::What;
    const auto width = static_cast<std::size_t>(call_.value_width);
    const auto tile = static_cast<std::size_t>(narrow.tile);
    std::vector<NarrowHead> heads(weights_.size(), NarrowHead(width));
    const auto end_tile = [&](NarrowHead& head) {
      head.sum.add(head.rescale, head.tile_sum, head.tile_sum);
      if (narrow.what == What::weight_sum) head.sum.round(narrow.type);
      for (std::size_t i = 0; i < width; ++i) {
        head.out[i].add(head.rescale, head.tile[i], head.tile_magnitude[i], head.tile_open[i]);
        if (narrow.what == What::sums) head.out[i].round(narrow.type);
      }
    };
    for_each_value([&](std::size_t h, std::size_t j, const double* v) {
      NarrowHead& head = heads[h];
      const HeadWeights& w = weights_[h];
      const auto visible = static_cast<std::size_t>(visible_[h]);
      if (j % tile == 0) {
        if (j > 0) end_tile(head);
        head.begin_tile();
        const double before = head.top;
        for (std::size_t k = j; k < std::min(j + tile, visible); ++k) head.top = std::fmax(head.top, maps_[h](w.z[k]));
        head.rescale = std::isinf(before) ? 0.0 : fixed::exp(before - head.top);
      }
      const double weight = std::isinf(head.top) ? 0.0 : fixed::exp(maps_[h](w.z[j]) - head.top);
      const bool in_cache = static_cast<std::int64_t>(j) < cached_;
      const DType contract = in_cache ? call_.cached->weights : call_.type, type = narrow.what == What::weights ? narrow.type : contract;
      const bool rounds = narrow.what == What::weights || narrow.weights_rounded;
      const double multiplied = rounds && type != DType::f32 ? quant::round_to(type, weight) : weight;
      constexpr double near = 0x1p-18;
      const double either =
          rounds && type != DType::f32 ? quant::round_to(type, weight * (1 + near)) - quant::round_to(type, weight * (1 - near)) : 0.0;
      head.tile_sum += weight;
      for (std::size_t i = 0; i < width; ++i) {
        head.tile[i] += multiplied * v[i];
        head.tile_magnitude[i] += multiplied * std::fabs(v[i]);
        head.tile_open[i] += either * std::fabs(v[i]);
      }
    });
    std::vector<Bounded> result;
    result.reserve(heads.size() * width);
    for (std::size_t h = 0; h < heads.size(); ++h) {
      NarrowHead& head = heads[h];
      if (visible_[h] > 0) end_tile(head);
      if (weights_[h].has_sink()) head.sum.add(1.0, fixed::exp(weights_[h].sink - head.top), 0.0);
      if (narrow.what == What::weight_sum && visible_[h] > 0)
        weights_[h].lse.exact = std::numbers::log2e * head.top + fixed::log2(head.sum.value);
      for (std::size_t i = 0; i < width; ++i) result.push_back(head.result(i, narrow.what == What::undivided, weights_[h].lse.open));
    }
    return result;
  }

  /// The weighted sums of the values, head after head, and their slack when someone judges.
  std::vector<Bounded> sums(bool judged, WeightSum sum) const {
    const auto width = static_cast<std::size_t>(call_.value_width);
    std::vector<double> exact(weights_.size() * width);
    for_each_block([&](std::int64_t first, std::int64_t count, const double*, const double* values) {
      for (std::size_t h = 0; h < weights_.size(); ++h)
        dispatch<GoldenSumsKernel>(isa_, GoldenSums{values, weights_[h].p.data() + std::min(first, visible_[h]),
                                                    std::clamp<std::int64_t>(visible_[h] - first, 0, count), call_.value_width,
                                                    value_stride(), exact.data() + h * width});
    });
    std::vector<double> slack = judged ? slack_of(exact, sum) : std::vector<double>(exact.size());
    std::vector<Bounded> result;
    result.reserve(exact.size());
    for (std::size_t i = 0; i < exact.size(); ++i) {
      // What a flaw makes of numbers is no sum that may be infinite.
      const bool beyond = std::isinf(slack[i]) && std::isfinite(exact[i]);
      result.push_back({exact[i], beyond ? 0.0 : slack[i], weights_[i / width].lse.open || beyond});
    }
    return result;
  }

 private:
  /// The sum whose score is what a mistake gives keys that the query does not see.
  double hidden_sum(std::size_t h) const {
    const ScoreMap& map = maps_[h];
    if (map.cap != 0) return map.scale < 0 ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
    return hidden_score_ / (map.scale * map.temperature);
  }

  double with_mistake(AttentionTerms::Sink mistake, double sink) const {
    switch (mistake) {
      case AttentionTerms::Sink::twice: return sink + std::numbers::ln2;
      case AttentionTerms::Sink::scaled: return sink * call_.scale;
      case AttentionTerms::Sink::right: break;
    }
    return sink;
  }
  /// Whether scores lie so low that a maximum which begins above them, or keys that are masked, make the weights.
  bool is_lost(const HeadWeights& head, const ScoreMap& map) const {
    constexpr double nothing = 104;  // exp of less is 0 in fp32
    return *std::max_element(head.z.begin(), head.z.end()) < call_.lowest_maximum + nothing / map.slope();
  }

  /// A sum that may be rounded, and how far that of another kernel may be from it.
  struct NarrowSum {
    double value = 0, open = 0, magnitude = 0;

    void add(double rescale, double part, double part_magnitude, double part_open = 0) {
      value = value * rescale + part;
      magnitude = magnitude * rescale + part_magnitude;
      open = open * rescale + part_open;
    }
    void round(DType type) {
      const double reach = open + 0x1p-18 * magnitude, nearest = quant::round_to(type, value);
      const double low = quant::round_to(type, value - reach), high = quant::round_to(type, value + reach);
      value = nearest;
      open = std::isfinite(low) && std::isfinite(high) ? std::fmax(high - nearest, nearest - low) : 0.0;
    }
  };
  struct NarrowHead {
    double top = -std::numeric_limits<double>::infinity(), rescale = 0, tile_sum = 0;
    NarrowSum sum;
    std::vector<NarrowSum> out;
    std::vector<double> tile, tile_magnitude, tile_open;

    explicit NarrowHead(std::size_t width) : out(width), tile(width), tile_magnitude(width), tile_open(width) {}
    void begin_tile() {
      tile_sum = 0;
      std::fill(tile.begin(), tile.end(), 0.0);
      std::fill(tile_magnitude.begin(), tile_magnitude.end(), 0.0);
      std::fill(tile_open.begin(), tile_open.end(), 0.0);
    }
    Bounded result(std::size_t i, bool undivided, bool open) const {
      if (undivided) return {out[i].value, out[i].open + 0x1p-18 * out[i].magnitude, open};
      const double value = out[i].value / sum.value;
      const double slack = (out[i].open + 0x1p-18 * out[i].magnitude + std::fabs(value) * (sum.open + 0x1p-20 * sum.value)) / sum.value;
      return {value, std::isfinite(slack) ? slack : 0.0, open};
    }
  };

  /// Queries widened, one after the other, and [key_width][golden_together].
  struct Queries {
    std::vector<double> rows, by_element;
    std::int64_t width = 0;
    const double* of(std::size_t h) const { return rows.data() + static_cast<std::int64_t>(h) * width; }
  };
  void widen(const QueryParts& parts, DType type, std::int64_t count, Queries& queries) const {
    queries.width = call_.key_width;
    queries.rows.resize(static_cast<std::size_t>(count * queries.width));
    queries.by_element.resize(static_cast<std::size_t>(queries.width * golden_together));
    double* to = queries.rows.data();
    for (std::int64_t h = 0; h < count; ++h)
      for (const QueryPart& part : parts) {
        quant::to_f64(type, part.first_head + (first_ + h) * part.head_stride, to, part.width);
        to += part.width;
      }
    for (std::int64_t h = 0; h < count; ++h)
      for (std::int64_t k = 0; k < queries.width; ++k)
        queries.by_element[static_cast<std::size_t>(k * golden_together + h)] = queries.of(static_cast<std::size_t>(h))[k];
  }

  /// Of the score of a key.
  double operand_error(std::size_t h, std::int64_t j, const double* query, const double* key) const {
    const double *const of_query = call_.query_errors(row_, first_ + static_cast<std::int64_t>(h)), *const of_key =
                                                                                                        call_.key_errors(row_, j);
    if (of_query == nullptr && of_key == nullptr) return 0;
    double error = 0;
    for (std::int64_t i = 0; i < call_.key_width; ++i) {
      const double q = of_query != nullptr ? of_query[i] : 0.0, k = of_key != nullptr ? of_key[i] : 0.0;
      error += q * (std::fabs(key[i]) + k) + std::fabs(query[i]) * k;
    }
    return error;
  }

  double most_of_partials() const { return call_.out.dtype() == DType::f16 ? 65504.0 * (1 - 0x1p-10) : 0x1.FCp127; }

  /// The slack of sums over p[j] * v[j], term by term.
  ///  - erroneous scores: sum of drift[j] * |v[j] - out|, as the weights still add up to 1;
  ///  - rounded weights: sum of lost[j] * |v[j]|; where the sum of the weights may be taken over the rounded ones, |v[j] - out| if that is
  ///  more;
  ///  - fp32 additions: 1.25 units of 2^-24 of sum of p * |v| per key (a rescaling per 4 keys at most), and 16 for the rest;
  ///  - weights that are flushed, with all of their products; products and sums that are, one for each key, where they are rescaled once
  ///  per 64 keys, and at the end;
  ///  - splits that are rounded before they are merged: a unit of the output's type of the same, of denormals half of the least;
  ///  - the sum of the weights: a unit per key of the output; 8 for its reciprocal (2^-23) and the products with it and with out_scale;
  ///  - splits merged by powers of their log-sum-exps: a factor for all, of two roundings of 2^-24 of a log-sum-exp and approximate
  ///  functions, but the powers of n splits, each at most 1, add up to no more than n and no less than 0;
  ///  - where a unit's steps may add up the products, what they lose;
  ///  - a sink: its drift times the output, whose distance from the value 0 that is, and its part of the sum;
  ///  - infinite where sum of |v| is beyond fp32: weights about a running maximum, each of which is 1 at most, or as much more as the
  ///  maximum was rounded, are divided at last, and of such a sum that may have become infinite, or NaN;
  ///  - likewise where a split, whose rounded weights add up to a unit of the type more than 1, may be beyond the type that it is rounded
  ///  to.
  std::vector<double> slack_of(const std::vector<double>& exact, WeightSum sum) const {
    const auto width = static_cast<std::size_t>(call_.value_width);
    std::vector<double> slack(exact.size()), magnitudes(exact.size()), undivided(exact.size()), largest(exact.size());
    for_each_block([&](std::int64_t first, std::int64_t count, const double*, const double* values) {
      for (std::size_t h = 0; h < weights_.size(); ++h) {
        const HeadWeights& w = weights_[h];
        const std::int64_t begin = std::min(first, visible_[h]);
        if (!w.bounded()) continue;
        dispatch<GoldenSlacksKernel>(isa_, GoldenSlacks{.values = values,
                                                        .drift = w.drift.data() + begin,
                                                        .lost = w.lost.data() + begin,
                                                        .most = w.most.data() + begin,
                                                        .count = std::clamp<std::int64_t>(visible_[h] - first, 0, count),
                                                        .width = call_.value_width,
                                                        .stride = value_stride(),
                                                        .exact = exact.data() + h * width,
                                                        .above_1 = std::exp2(std::fabs(w.largest_score.exact) * f32_eps),
                                                        .may_flush_below = 2 * flush_floor,
                                                        .distances_may_count = sum == WeightSum::open,
                                                        .slack = slack.data() + h * width,
                                                        .magnitudes = magnitudes.data() + h * width,
                                                        .undivided = undivided.data() + h * width,
                                                        .largest = largest.data() + h * width});
      }
    });
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const auto count = static_cast<double>(visible_[i / width]);
      slack[i] +=
          f32_eps * ((1.25 * count + 16) * magnitudes[i] + (count + 8) * std::fabs(exact[i])) + flush_floor * (count + count / 64 + 1);
      // A factor of the output, or its quotient by the sum of the weights, that may be flushed.
      if (call_.out_scale != 0 && std::fabs(call_.out_scale) < 2 * flush_floor * count) slack[i] += std::fabs(exact[i]);
      slack[i] += call_.partials_rounded * (call_.out.dtype() == DType::f16 ? 0x1p-11 * magnitudes[i] + 0x1p-25 : 0x1p-8 * magnitudes[i]);
    }
    if (call_.splits_merged_by_lse > 0)
      for (std::size_t i = 0; i < exact.size(); ++i) {
        const double natural = std::fabs(weights_[i / width].lse.exact) * std::numbers::ln2;
        const double most = std::fmax(1.0, static_cast<double>(call_.splits_merged_by_lse - 1));
        slack[i] += std::fmin(most, fixed::expm1(std::fmin(0x1p-22 * (natural + 4), 100.0))) * std::fabs(exact[i]);
      }
    for (std::size_t i = 0; i < exact.size(); ++i)
      if (const HeadWeights& w = weights_[i / width]; w.has_sink()) slack[i] += (w.sink_drift + f32_eps) * std::fabs(exact[i]);
    if (call_.value_unit != nullptr) add_lost_by_steps(slack);
    for (std::size_t i = 0; i < exact.size(); ++i)
      if (undivided[i] > largest_f32 || (call_.partials_rounded > 0 && largest[i] > most_of_partials()))
        slack[i] = std::numeric_limits<double>::infinity();
    return slack;
  }

  /// A step cuts its addends, the accumulator among them, at addend_bits below the largest, and their sum at sum_bits below itself. With D
  /// the largest of the accumulators and products of an output, all in units of the final weights (where the running maximum is smaller, so
  /// are both), the accumulator loses no more than two such bits of D a step, and a product one, and not more than itself; none where it
  /// has all its bits above the cut. Keys are taken in blocks of 64, in either order: an accumulator is a sum over some neighbouring
  /// blocks and the beginning of another. Numbers below their type's smallest normal one count as that.
  void add_lost_by_steps(std::vector<double>& slack) const {
    const quant::tensor_core::MmaSpec& unit = *call_.value_unit;
    constexpr double least = 0x1p-6, bits_of_product = 8;  // of e4m3
    const auto width = static_cast<std::size_t>(call_.value_width);
    std::vector<double> sum(slack.size()), lowest(slack.size()), highest(slack.size()), product(slack.size()), lost(slack.size());
    const std::int64_t concerned = call_.cached ? cached_ : visible_.back();
    for_each_value([&](std::size_t h, std::size_t j, const double* v) {
      const HeadWeights& w = weights_[h];
      if (!w.bounded() || static_cast<std::int64_t>(j) >= concerned) return;
      const double weight = std::fmax(w.most[j], least * w.heaviest);
      for (std::size_t i = 0; i < width; ++i) {
        const std::size_t at = h * width + i;
        sum[at] += w.p[j] * v[i];
        lowest[at] = std::fmin(lowest[at], sum[at]), highest[at] = std::fmax(highest[at], sum[at]);
        product[at] = std::fmax(product[at], v[i] == 0 ? 0.0 : weight * std::fmax(std::fabs(v[i]), least));
      }
    });
    for (std::size_t i = 0; i < slack.size(); ++i) product[i] = std::fmax(product[i], 2 * (highest[i] - lowest[i]) + slack[i]);
    const double cut = std::ldexp(1.0, -unit.addend_bits), keeps_all = std::ldexp(cut, static_cast<int>(bits_of_product));
    for_each_value([&](std::size_t h, std::size_t j, const double* v) {
      const HeadWeights& w = weights_[h];
      if (!w.bounded() || static_cast<std::int64_t>(j) >= concerned) return;
      for (std::size_t i = 0; i < width; ++i) {
        const double addend = w.most[j] * std::fabs(v[i]), largest = product[h * width + i];
        if (addend < keeps_all * largest) lost[h * width + i] += std::fmin(addend, cut * largest);
      }
    });
    for (std::size_t i = 0; i < slack.size(); ++i) {
      const double steps = std::ceil(static_cast<double>(std::min(visible_[i / width], concerned)) / unit.products) + 2;
      slack[i] += lost[i] + 2 * steps * std::ldexp(product[i], -unit.sum_bits);
    }
  }

  template <class Body>
  void for_each_value(const Body& body) const {
    for_each_row([&](std::int64_t j, const double*, const double* value) {
      for (std::size_t h = 0; h < weights_.size(); ++h)
        if (j < visible_[h]) body(h, static_cast<std::size_t>(j), value);
    });
  }

  std::int64_t value_stride() const { return call_.values_in_keys ? call_.key_width : call_.value_width; }

  /// body(number, key, value) for the keys that the last query sees, widened.
  template <class Body>
  void for_each_row(const Body& body) const {
    for_each_block([&](std::int64_t first, std::int64_t count, const double* keys, const double* values) {
      for (std::int64_t j = 0; j < count; ++j) body(first + j, keys + j * call_.key_width, values + j * value_stride());
    });
  }

  /// body(first, count, keys, values) for blocks of them.
  template <class Body>
  void for_each_block(const Body& body) const {
    std::vector<double> keys(static_cast<std::size_t>(block * call_.key_width));
    std::vector<double> values(static_cast<std::size_t>(call_.values_in_keys ? 0 : block * call_.value_width));
    std::vector<std::byte> row(call_.key_rows == KeyRows::k_cache ? 2 * static_cast<std::size_t>(call_.key_width) : 0);
    for (std::int64_t first = 0, count = 0; first < visible_.back(); first += count) {
      const bool in_cache = first < cached_;
      const DType type = in_cache ? call_.cached->type : call_.type;
      count = std::min(block, (in_cache ? cached_ : visible_.back()) - first);
      std::array<const std::byte*, static_cast<std::size_t>(block)> key_at, value_at;
      call_.list(row_, first, count, key_at.data(), value_at.data());
      for (std::int64_t j = 0; j < count; ++j) {
        const std::byte* key = key_at[static_cast<std::size_t>(j)];
        if (call_.key_rows == KeyRows::k_cache) {
          dequantize_k_cache_row(key, row.data(), isa_, KCacheScales::bf16);
          key = row.data();
        }
        quant::to_f64(type, key, keys.data() + j * call_.key_width, call_.key_width);
        if (!call_.values_in_keys)
          quant::to_f64(type, value_at[static_cast<std::size_t>(j)], values.data() + j * call_.value_width, call_.value_width);
      }
      body(first, count, keys.data(), call_.values_in_keys ? keys.data() : values.data());
    }
  }

  static constexpr std::int64_t block = 16;

  const Attention& call_;
  std::int64_t row_, first_;
  Isa isa_;
  double hidden_score_;
  std::vector<HeadWeights> weights_;
  std::vector<std::int64_t> visible_, own_;  ///< own: but for keys that a mistake lets count
  std::vector<ScoreMap> maps_;
  std::int64_t cached_ = 0;
  Queries queries_, cached_queries_;
};

struct GoldenOutputs {
  GoldenOutput out, lse, top;
};

void golden_heads(const Attention& call, const GoldenOutputs& to, bool judged, std::int64_t row, std::int64_t first, std::int64_t count,
                  WeightSum sum, Isa isa, const Flaw* flaw, AttentionWatch* watch) {
  const std::int64_t width = call.value_width;
  GoldenHeads heads(call, row, first, count, isa, flaw != nullptr ? flaw->terms : AttentionTerms{},
                    flaw != nullptr ? flaw->keys : KeysSeen{});
  heads.weigh(judged, flaw == nullptr || !flaw->exponentials_unshifted);
  if (flaw != nullptr && flaw->keys.how != KeysSeen::How::all) heads.leave_out(flaw->keys);
  const std::vector<Bounded> sums = flaw != nullptr && flaw->attention ? heads.narrow_sums(*flaw->attention) : heads.sums(judged, sum);
  const double out_scale = static_cast<float>(call.out_scale);
  for (std::int64_t h = 0; h < count; ++h) {
    const std::int64_t place = call.out_row(row) + (first + h) * call.out_step;
    const bool none = heads.sees_none(h), unknown = call.nan_is_open && !none && std::isnan(heads.lse(h).exact);
    if (watch != nullptr) heads.show(*watch, h, place);
    for (std::int64_t i = 0; i < width; ++i) {
      Bounded value = none ? Bounded{0.0} : sums[static_cast<std::size_t>(h * width + i)] * out_scale;
      // Sums that are kept narrow are infinite before those of fp32 are.
      value.open =
          value.open || (std::isinf(value.exact) && (flaw == nullptr || !flaw->attention)) || (none && call.open_for_none(row)) || unknown;
      to.out.put(place * width + i, value);
    }
    const std::int64_t number = call.lse_row(row) + (first + h) * call.lse_step;
    if (call.top.defined())
      to.top.put(number, none ? Bounded{-std::numeric_limits<double>::infinity()}
                              : rounded_f32(heads.top(h) * (call.natural_lse ? std::numbers::ln2 : 1.0)));
    if (!call.lse.defined()) continue;
    // The natural logarithm: one product more, or another function in its place.
    Bounded lse = none               ? Bounded{call.lse_of_none, 0.0, call.open_for_none(row) || call.lse_of_none_is_open}
                  : call.natural_lse ? rounded_f32(heads.lse(h) * std::numbers::ln2)
                                     : heads.lse(h);
    lse.open = lse.open || unknown || (!none && heads.sink_overflows(h));
    to.lse.put(number, lse);
  }
}

}  // namespace

namespace {

/// Rows of an output that are open before golden mode begins need not be computed.
class Wanted {
 public:
  Wanted(const Reference* reference, std::string_view name, std::int64_t width) : width_(width) {
    if (const ReferenceOutput* const record = reference != nullptr ? reference->find(name) : nullptr; record != nullptr)
      open_ = record->unspecified;
  }
  bool all() const { return open_.empty(); }
  bool operator()(std::int64_t row) const {
    const auto begin = open_.begin() + static_cast<std::ptrdiff_t>(row * width_);
    return all() || std::find(begin, begin + static_cast<std::ptrdiff_t>(width_), 0) != begin + static_cast<std::ptrdiff_t>(width_);
  }

 private:
  std::int64_t width_;
  std::vector<std::uint8_t> open_;
};

}  // namespace

void attention_golden(const Attention& call, WeightSum sum, const Exec& exec, Reference* reference) {
  const Wanted out_wanted(reference, call.out_name, call.value_width), lse_wanted(reference, call.lse_name, 1),
      top_wanted(reference, call.top_name, 1);
  const GoldenOutputs to{GoldenOutput(call.out, reference, call.out_name), GoldenOutput(call.lse, reference, call.lse_name),
                         GoldenOutput(call.top, reference, call.top_name)};
  to.out.make_open();
  to.lse.make_open();
  to.top.make_open();
  constexpr std::int64_t together = golden_together;
  flaw_in(Inner::softmax, exec);
  const Flaw* const flaw = flaw_in(Inner::attention, exec);
  AttentionWatch* const watch = flaw != nullptr ? flaw->watch : nullptr;
  if (call.rows > 0 && call.heads > 0 && std::isfinite(call.sink(0, 0))) flaw_in(Inner::sinks, exec);
  const std::int64_t blocks = quant::ceil_div(call.heads, together);
  parallel_for(exec.threads, call.rows * blocks, 1e6, [&](std::int64_t task) {
    const std::int64_t first = task % blocks * together, count = std::min(together, call.queries_of(task / blocks) - first);
    const std::int64_t row = task / blocks;
    if (out_wanted.all() && count > 0) return golden_heads(call, to, reference != nullptr, row, first, count, sum, exec.isa, flaw, watch);
    for (std::int64_t h = first; h < first + count; ++h)
      if (const std::int64_t number = call.lse_row(row) + h * call.lse_step; out_wanted(call.out_row(row) + h * call.out_step) ||
                                                                             (call.lse.defined() && lse_wanted(number)) ||
                                                                             (call.top.defined() && top_wanted(number)))
        golden_heads(call, to, reference != nullptr, row, h, 1, sum, exec.isa, flaw, watch);
  });
}

double temperature(std::int64_t position, std::int64_t length) {
  if (length <= 0 || position <= length) return 1;
  return fixed::log2(static_cast<double>(position)) / fixed::log2(static_cast<double>(length));
}

double attention_flops(const Attention& call) {
  double keys = 0;
  for (std::int64_t row = 0; row < call.rows; ++row)
    for (std::int64_t q = 0; q < call.queries_of(row); ++q) keys += static_cast<double>(call.visible_to(row, q) - call.hidden_to(row, q));
  return 2.0 * keys * static_cast<double>(call.key_width + call.value_width);
}

}  // namespace dodona::ops
