#include "ops/schemes/mqa_logits.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/sums/operand.h"
#include "ops/tiles/mma/mma.h"
#include "ops/tiles/panel/panel.h"
#include "quant/hopper/special.h"
#include "quant/tensor_core/unit.h"

namespace dodona::ops {
namespace {

constexpr double largest_f32 = std::numeric_limits<float>::max();
constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

std::int64_t columns_of(const MqaLogits& call) {
  return call.logits.size(1);
}
float* logits_of(const MqaLogits& call, std::size_t row) {
  return call.logits.as<float>() + static_cast<std::int64_t>(row) * call.logits.stride(0);
}
double cost_of(const MqaLogits& call) {
  return static_cast<double>(columns_of(call) * call.heads * call.width);
}

/// What is not the row's.
void fill_outside(const MqaLogits& call, std::size_t row) {
  float* const out = logits_of(call, row);
  const float value = call.clean ? minus_infinity : 0.0f;
  std::fill(out, out + std::max<std::int64_t>(0, std::min(call.rows[row].begin, columns_of(call))), value);
  std::fill(out + std::max<std::int64_t>(0, std::min(call.rows[row].end, columns_of(call))), out + columns_of(call), value);
}

/// max(0, x).
Bounded relu(const Bounded& x) {
  if (x.exact + x.slack <= 0) return {0.0, 0.0, x.open};
  return {std::fmax(0.0, x.exact), x.slack, x.open};
}

/// Sum over heads. Units of 2^-24: one for each product, and one for each addition of the larger of the sums of one sign.
class HeadSum {
 public:
  void add(const Bounded& score, double weight) {
    Bounded term = score * weight;
    // Zero or a number: NaN or infinity.
    term.open = term.open || (std::isinf(weight) && score.reaches_zero());
    sum_ = sum_ + term;
    const double magnitude = std::fabs(term.exact) + term.slack;
    (term.exact > 0 ? positive_ : negative_) += magnitude;
    ++count_;
  }
  /// The largest magnitude that a part of the sum may have.
  double most() const { return std::fmax(positive_, negative_); }
  Bounded total() const {
    if (!std::isfinite(sum_.exact) || !std::isfinite(positive_ + negative_)) return sum_;
    Bounded total = sum_;
    const double most = this->most();
    // A sum of nothing but zeros may have either sign; what is denormal may be flushed, as product and as sum.
    total = total.widened(most > 0 ? f32_eps * (positive_ + negative_ + count_ * most) + 2 * count_ * flush_floor : 0x1p-149);
    total.open = total.open || most > largest_f32;
    return total;
  }

 private:
  Bounded sum_{};
  double positive_ = 0, negative_ = 0, count_ = 0;
};

/// Rows of q and keys as the unit takes them.
class Lines {
 public:
  Lines(const std::byte* codes, std::int64_t count, std::int64_t width) {
    const Operand operand{.type = f8_e4m3, .codes = codes, .count = count, .k = width, .stride = width};
    for (std::int64_t i = 0; i < count; ++i) decode_line(operand, i, hopper_fp8, lines_.emplace_back());
  }
  const Line& operator[](std::int64_t i) const { return lines_[static_cast<std::size_t>(i)]; }

 private:
  std::vector<Line> lines_;
};

void golden_row(const MqaLogits& call, std::size_t m, LogitRule rule, const GoldenOutput& out, bool judged) {
  const LogitRow& row = call.rows[m];
  const std::int64_t first = static_cast<std::int64_t>(m) * columns_of(call);
  const Lines q(row.q, call.heads, call.width);
  for (const KeyRun& run : row.runs) {
    const Lines keys(run.codes, run.count, call.width);
    for (std::int64_t n = 0; n < run.count; ++n) {
      HeadSum sum;
      for (std::int64_t h = 0; h < call.heads; ++h) {
        Bounded score = sum_of(hopper_fp8, keys[n], q[h], judged);
        // The device's max drops a NaN, a framework's keeps it.
        score.open = score.open || std::isnan(score.exact);
        const double weight = row.weights[h];
        if (rule == LogitRule::without_relu) {
          sum.add(score, weight);
        } else if (rule == LogitRule::relu_behind_weights) {
          sum.add(relu(score * weight), 1.0);
        } else {
          sum.add(relu(score), weight);
        }
      }
      const double scale = run.scales[rule == LogitRule::first_scale ? 0 : n];
      Bounded logit = scaled_f32(sum.total(), scale, may_flush(scale));
      if (scale == 0 && logit.exact == 0) logit.slack = std::fmax(logit.slack, 0x1p-149);
      // The key's scale may meet parts of the sum, as in upstream's kernel: infinities of both signs, where the whole has one.
      logit.open = logit.open || (sum.most() > 0 && sum.most() * std::fabs(scale) > largest_f32) || std::isinf(scale);
      out.put(first + run.column + n, logit);
    }
  }
}

/// What hopper's kernel makes of the scores of a key: a thread for every fourth pair of heads. Of the two products that a chain begins with
/// the first one is not rounded, as the compiler has it.
float weighted(const float* scores, const float* weights, std::int64_t heads, float scale) {
  const auto score = [&](std::int64_t h) { return scores[h] > 0.0f ? scores[h] : 0.0f; };
  float of_thread[4];
  for (std::int64_t l = 0; l < 4; ++l) {
    float sums[2];
    for (std::int64_t b = 0; b < 2; ++b) {
      const std::int64_t first = 2 * l + b, second = first + 8;
      float sum = std::fma(score(first), weights[first], score(second) * weights[second]);
      for (std::int64_t h = second + 8; h < heads; h += 8) sum = std::fma(score(h), weights[h], sum);
      sums[b] = sum;
    }
    of_thread[l] = (sums[0] + sums[1]) * scale;
  }
  const float sum = (of_thread[0] + of_thread[1]) + (of_thread[2] + of_thread[3]);
  return std::isnan(sum) ? quant::hopper::canonical_nan() : sum;
}

}  // namespace

const std::string mqa_logits_contract =
    R"( The sum of products of a head by a tensor core of e4m3, in one chain over K by steps of 32; max(0, it), the
product with the head's weight, the sum over heads in any order and the product with the key's scale in fp32. Budget: what the steps lose,
times |w|; 1 unit of 2^-24 of each product and H units of the larger of two sums over heads, of all positive products and of all negative
ones; 1 unit for the scale; 2^-126 for what builds may flush. Sums of some of the heads may be scaled before they are added: a scale of zero makes
zeros of either sign, and an infinite one, or one that takes sums of one sign beyond fp32, infinity or NaN (open); an infinite weight of a score that may be zero likewise. NaNs among the codes are not judged (a device's max drops them). Columns that are not a row's: -inf with
clean_logits, else unspecified (here 0). Hopper mode: DeepGEMM's kernel for 32 or 64 heads; thread l of four takes heads 8j + 2l and 8j + 2l
+ 1, each of the two in a chain of fused multiply-adds over j that begins with the rounded product of j = 1, their sum
times the scale, then (0 + 1) + (2 + 3).)";

std::optional<Refusal> mqa_logits_unsupported(Mode mode, const Tensor& q) {
  const std::int64_t heads = q.size(-2);
  if (!of_a_gpu(mode) || heads == 32 || heads == 64) return std::nullopt;
  return Refusal{"q", "has " + std::to_string(heads) + " heads, expected 32 or 64, which DeepGEMM has kernels for"};
}

void mqa_logits_golden(const MqaLogits& call, LogitRule rule, const Exec& exec, Reference* reference) {
  const GoldenOutput out(call.logits, reference, "logits");
  out.make_open();
  parallel_for(exec.threads, static_cast<std::int64_t>(call.rows.size()), cost_of(call), [&](std::int64_t m) {
    const auto row = static_cast<std::size_t>(m);
    for (std::int64_t n = 0; n < columns_of(call); ++n) {
      if (n >= call.rows[row].begin && n < call.rows[row].end) continue;
      const std::int64_t at = m * columns_of(call) + n;
      call.clean ? out.put(at, {static_cast<double>(minus_infinity)}) : out.leave_open(at);
    }
    golden_row(call, row, rule, out, reference != nullptr);
  });
}

void mqa_logits_fast(const MqaLogits& call, const Exec& exec) {
  for (std::size_t m = 0; m < call.rows.size(); ++m) {
    const LogitRow& row = call.rows[m];
    fill_outside(call, m);
    const std::int64_t count = row.end - row.begin;
    if (count <= 0) continue;
    const Scratch memory = exec.scratch.take(static_cast<std::size_t>(call.heads * count) * sizeof(float));
    auto* const scores = memory.as<float>();
    std::vector<PanelProduct> products;
    for (const KeyRun& run : row.runs) {
      PanelProduct& product = products.emplace_back();
      product.m = call.heads;
      product.n = run.count;
      product.k = call.width;
      product.a = {row.q, call.width, 0, f8_e4m3};
      product.b = {run.codes, call.width, 0, f8_e4m3};
      product.epilogue.out = reinterpret_cast<std::byte*>(scores + (run.column - row.begin));
      product.epilogue.out_stride = count;
    }
    panel_multiply(products, exec);
    float* const out = logits_of(call, m);
    parallel_for(exec.threads, static_cast<std::int64_t>(row.runs.size()), static_cast<double>(call.heads * count), [&](std::int64_t r) {
      const KeyRun& run = row.runs[static_cast<std::size_t>(r)];
      float* const sums = out + run.column;
      std::fill(sums, sums + run.count, 0.0f);
      for (std::int64_t h = 0; h < call.heads; ++h) {
        const float* const line = scores + h * count + (run.column - row.begin);
        const float weight = row.weights[h];
        for (std::int64_t n = 0; n < run.count; ++n) sums[n] += (line[n] > 0.0f ? line[n] : 0.0f) * weight;
      }
      for (std::int64_t n = 0; n < run.count; ++n) {
        sums[n] *= run.scales[n];
        if (std::isnan(sums[n])) sums[n] = quant::hopper::canonical_nan();
      }
    });
  }
}

void mqa_logits_hopper(const MqaLogits& call, const Exec& exec) {
  constexpr const quant::tensor_core::MmaSpec& unit = quant::tensor_core::fp8_wgmma;
  constexpr std::int64_t together = 256;
  parallel_for(exec.threads, static_cast<std::int64_t>(call.rows.size()), cost_of(call), [&](std::int64_t m) {
    const LogitRow& row = call.rows[static_cast<std::size_t>(m)];
    fill_outside(call, static_cast<std::size_t>(m));
    const MmaColumns q(unit, f8_e4m3, row.q, call.heads, call.width, call.width, exec.isa);
    std::vector<float> scores(static_cast<std::size_t>(together * call.heads));
    for (const KeyRun& run : row.runs)
      for (std::int64_t first = 0; first < run.count; first += together) {
        const std::int64_t count = std::min(together, run.count - first);
        const MmaRows keys(unit, f8_e4m3, run.codes + first * call.width, count, call.width, call.width, exec.isa);
        std::fill(scores.begin(), scores.end(), 0.0f);
        accumulate(keys, q, 0, call.width, scores.data(), call.heads);
        for (std::int64_t n = 0; n < count; ++n)
          logits_of(call, static_cast<std::size_t>(m))[run.column + first + n] =
              weighted(scores.data() + n * call.heads, row.weights, call.heads, run.scales[first + n]);
      }
  });
}

}  // namespace dodona::ops
