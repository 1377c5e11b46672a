// Golden mode of a whole mixture of experts.
#include <cmath>
#include <limits>
#include <span>

#include "core/threads.h"
#include "ops/rows/sums/term_sums.h"
#include "ops/schemes/whole_moe/activation.h"
#include "ops/schemes/whole_moe/outputs.h"
#include "ops/schemes/whole_moe/rows.h"
#include "ops/schemes/whole_moe/weights.h"
#include "ops/sums/open_rows.h"
#include "ops/sums/products.h"

namespace dodona::ops::whole_moe {
namespace {

/// A product of one group in golden mode: [rows, n].
struct GoldenProduct {
  Reference scratch;
  const ReferenceOutput* record = nullptr;
  std::vector<double> carried;  ///< what is open of the rows makes of the sums; empty: nothing

  Bounded at(std::size_t i) const {
    return {record->exact[i], record->slack[i] + (carried.empty() ? 0.0 : carried[i]),
            !record->unspecified.empty() && record->unspecified[i] != 0};
  }
};

/// `open`: how far the rows' numbers may lie from those that are multiplied; empty: not at all.
void multiply(const WholeMoe& moe, const Operand& rows, const Operand& columns, const std::vector<float>& factors, const float* bias,
              std::span<const double> open, bool judged, const Exec& exec, GoldenProduct& product) {
  const Tensor sums = Tensor::uninitialized(DType::f32, {rows.count, columns.count});
  const GoldenOutput out(sums, &product.scratch, "sums");
  out.make_open();
  const Product p{.a = rows, .b = columns, .epilogue = epilogue_of(factors, bias)};
  golden_products({&p, 1}, moe.scheme.sums, out, judged, exec);
  product.record = product.scratch.find("sums");
  if (!judged || open.empty()) return;
  product.carried = open_products(open.data(), rows.count, columns, exec);
  if (factors.empty()) return;
  for (std::size_t i = 0; i < product.carried.size(); ++i)
    product.carried[i] *= std::fabs(static_cast<double>(factors[i % static_cast<std::size_t>(columns.count)]));
}

/// A product in fp32, open where it may leave that.
Bounded product_f32(const Bounded& a, const Bounded& b) {
  Bounded product = rounded_f32(a * b);
  product.open = product.open || !(std::fabs(product.exact) + product.slack <= static_cast<double>(std::numeric_limits<float>::max()));
  return product;
}

/// The row that the second product takes, of gate and up.
struct ActivatedRow {
  std::vector<Bounded> numbers;

  ActivatedRow(const WholeMoe& moe, Silu silu, std::int64_t expert, std::vector<Bounded> gate, std::vector<Bounded> up,
               bool limit_misplaced) {
    const Requantizer between = sums_become(moe);
    const float* bias = bias_behind(moe, moe.first_bias, expert);
    for (auto* half : {&up, &gate}) {
      if (half == &up && !moe.activation.gated) continue;
      if (!between.keeps()) {
        std::vector<double> values(half->size()), open(half->size());
        requantize(between, *half, {.values = values.data(), .open = open.data()});
        for (std::size_t i = 0; i < half->size(); ++i) (*half)[i] = {values[i], open[i], std::isinf(open[i])};
      }
      if (bias == nullptr) continue;
      for (Bounded& number : *half) {
        const Bounded addend{static_cast<double>(*bias++)};
        Bounded sum = rounded_f32(number + addend);
        // Builds that flush denormals lose them on the way in, and out.
        for (const double flushed : {number.exact, addend.exact, sum.exact})
          if (may_flush(flushed)) sum.slack += std::fabs(flushed);
        number = sum;
      }
    }
    for (std::size_t i = 0; i < gate.size(); ++i) numbers.push_back(activated(moe, silu, expert, gate[i], up[i], limit_misplaced));
    if (!moe.factor_after_rounding) return;
    const double factor = factor_behind(moe, expert);
    for (Bounded& number : numbers) number = rounded_f32(rounded_to(DType::bf16, number) * factor);
  }
};

/// The sum over slots of one output.
struct Combined {
  TermSum terms;
  double slack = 0;
  bool open = false, negative_zero = false;  ///< the latter: of the last term

  void add(const Bounded& term) {
    terms.add(term.exact);
    negative_zero = term.exact == 0 && std::signbit(term.exact);
    slack += term.slack;
    open = open || term.open;
  }
};

/// Golden mode's outputs.
class GoldenMoe {
 public:
  GoldenMoe(const WholeMoe& moe, Reference* reference, MoeMistake mistake)
      : moe_(moe),
        mistake_(mistake),
        judged_(reference != nullptr),
        output_(moe.output, reference, "output"),
        results_(moe.results, reference, "gemm2_output"),
        plain_(mistake == MoeMistake::read_unshuffled),
        results_are_open_(has_open_routes(moe)),
        halves_(halves_of(moe, mistake == MoeMistake::gate_and_up_swapped, !plain_)),
        columns_(stored_rows(moe.second)) {
    if (plain_)
      for (std::size_t i = 0; i < columns_.size(); ++i) columns_[i] = static_cast<std::int64_t>(i);
    if (moe.output.defined()) sums_.resize(static_cast<std::size_t>(moe.output.elements()));
  }

  void run(const Exec& exec) {
    const std::vector<Group> groups = groups_of(moe_);
    if (moe_.results.defined()) leave_rows_of_nobody(groups);
    std::vector<double> open;
    const SortedRows rows = gather(moe_, groups, judged_ ? &open : nullptr, exec);
    std::int64_t place = 0;
    for (const Group& group : groups) {
      add(group, rows, open, place, exec);
      place += quant::align(group.rows(), moe_.tile);
    }
    if (moe_.output.defined()) finish();
  }

 private:
  std::int64_t wrong(std::int64_t expert, MoeMistake mistake) const {
    return mistake_ == mistake ? (expert + 1) % moe_.local_experts() : expert;
  }

  void leave_rows_of_nobody(const std::vector<Group>& groups) {
    results_.make_open();
    std::int64_t end = 0;
    const auto leave = [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first * moe_.hidden(); i < last * moe_.hidden(); ++i) results_.leave_open(i);
    };
    for (const Group& group : groups) {
      leave(end + group.rows(), end + quant::align(group.rows(), moe_.tile));
      end += quant::align(group.rows(), moe_.tile);
    }
    leave(end, moe_.results.size(0));
  }

  GoldenProduct first(const Group& group, const SortedRows& rows, const std::vector<double>& open, const Exec& exec) const {
    const std::vector<float> factors = first_factors(moe_, wrong(group.expert, MoeMistake::next_experts_factors), !plain_);
    const Weight weight = weight_of(moe_.first, group.expert, rows.type, exec);
    const auto begin = static_cast<std::size_t>(group.first * rows.k), count = static_cast<std::size_t>(group.rows() * rows.k);
    GoldenProduct product;
    multiply(moe_, rows.operand(group), operand_of(moe_, moe_.first, weight, wrong(group.expert, MoeMistake::next_experts_scales)), factors,
             bias_before(moe_, moe_.first_bias, group.expert),
             open.empty() ? std::span<const double>{} : std::span(open).subspan(begin, count), judged_, exec, product);
    return product;
  }

  /// Activated rows, and how far their numbers may lie from what they are.
  std::vector<double> activate(const Group& group, const GoldenProduct& sums, SortedRows& rows, const Exec& exec) const {
    const std::int64_t width = moe_.width();
    const Silu silu = golden_silu(exec);
    std::vector<double> open(static_cast<std::size_t>(group.rows() * width));
    parallel_for(exec.threads, group.rows(), 200.0 * static_cast<double>(width), [&](std::int64_t i) {
      const std::size_t row = static_cast<std::size_t>(i * moe_.first.n);
      std::vector<Bounded> gate, up;
      const Bounded weight = weight_of(moe_, group.pairs[static_cast<std::size_t>(i)]);
      for (std::int64_t j = 0; j < width; ++j) {
        gate.push_back(sums.at(row + halves_.gate(j)));
        if (moe_.weighted_input) gate.back() = product_f32(gate.back(), weight);
        up.push_back(halves_.both ? sums.at(row + halves_.up(j)) : Bounded{static_cast<double>(lone_factor(moe_, group.expert))});
        if (moe_.weighted_input && halves_.both) up.back() = product_f32(up.back(), weight);
      }
      const ActivatedRow activated(moe_, silu, group.expert, std::move(gate), std::move(up), mistake_ == MoeMistake::limit_misplaced);
      requantize(requantizer(group.expert), activated.numbers,
                 {.codes = rows.row(i), .scales = rows.block > 0 ? rows.scale_row(i) : nullptr, .open = open.data() + i * width});
    });
    return open;
  }

  Requantizer requantizer(std::int64_t expert) const {
    Requantizer becomes = activated_become(moe_, expert);
    // Numbers that an encode scale multiplies are divided by it behind the product.
    if (mistake_ == MoeMistake::activated_in_fp32) becomes = {.encode_scale = becomes.encode_scale};
    return becomes;
  }

  void add(const Group& group, const SortedRows& x, const std::vector<double>& open_tokens, std::int64_t place, const Exec& exec) {
    const Requantizer becomes = requantizer(group.expert);
    const GoldenProduct sums = first(group, x, open_tokens, exec);
    SortedRows rows = room_for(becomes, group.rows(), moe_.width());
    const std::vector<double> open = activate(group, sums, rows, exec);
    const Group own{group.expert, 0, group.pairs};
    const Weight weight = weight_of(moe_.second, group.expert, x.type, exec);
    const Operand columns = operand_of(moe_, moe_.second, weight, wrong(group.expert, MoeMistake::next_experts_scales));
    const std::vector<float> factors = second_factors(moe_, wrong(group.expert, MoeMistake::next_experts_factors));
    const float* const bias = bias_before(moe_, moe_.second_bias, group.expert);
    GoldenProduct products;
    if (becomes.keeps() && rows.type != x.type) {
      multiply_wide(rows.operand(own), columns, factors, bias, open, exec, products);
    } else {
      multiply(moe_, rows.operand(own), columns, factors, bias, open, judged_, exec, products);
    }
    const float* const behind = bias_behind(moe_, moe_.second_bias, group.expert);
    parallel_for(exec.threads, moe_.hidden(), 20.0 * static_cast<double>(group.rows()), [&](std::int64_t h) {
      const auto column = static_cast<std::size_t>(columns_[static_cast<std::size_t>(h)]);
      for (std::int64_t i = 0; i < group.rows(); ++i) {
        const std::size_t at = static_cast<std::size_t>(i * moe_.hidden()) + column;
        Bounded y = products.at(at);
        y.open = y.open || !std::isfinite(y.exact) || !std::isfinite(y.slack);
        put(group.pairs[static_cast<std::size_t>(i)], place + i, h, y, behind != nullptr ? behind[h] : 0.0f);
      }
    });
  }

  /// Rows of fp32 with weights that have scales of blocks: numbers in double, as the tests' references multiply them.
  void multiply_wide(const Operand& rows, const Operand& columns, const std::vector<float>& factors, const float* bias,
                     std::span<const double> open, const Exec& exec, GoldenProduct& product) const {
    Tensor plain(DType::f32, {columns.count, columns.k});
    Line line;
    for (std::int64_t j = 0; j < columns.count; ++j) {
      decode_line(columns, j, fp32_in_any_order, line);
      for (std::int64_t k = 0; k < columns.k; ++k) {
        const auto at = static_cast<std::size_t>(k);
        const double number = line.integers.empty() ? line.values[at] : line.integers[at] * line.unit;
        plain.as<float>()[j * columns.k + k] = static_cast<float>(line.scales.empty() ? number : number * line.scales[at / line.block]);
      }
    }
    WholeMoe wide = moe_;
    wide.scheme.sums = half_in_parts;
    multiply(
        wide, rows,
        {.type = DType::f32, .codes = plain.data(), .count = columns.count, .k = columns.k, .stride = columns.k, .scales = {}, .zeros = {}},
        factors, bias, open, judged_, exec, product);
  }

  void put(std::int64_t pair, std::int64_t place, std::int64_t h, const Bounded& y, float bias) {
    const Bounded weight = moe_.weighted_input ? Bounded{1.0} : weight_of(moe_, pair);
    if (moe_.results.defined()) results_.put(place * moe_.hidden() + h, {y.exact, y.slack, y.open || results_are_open_});
    if (!moe_.output.defined()) return;
    const auto round = [&](const Bounded& x) {
      const Bounded rounded = moe_.like_reference || moe_.scheme.results == DType::f32 ? x : rounded_to(moe_.scheme.results, x);
      return bias == 0 ? rounded : rounded_f32(rounded + Bounded{static_cast<double>(bias)});
    };
    Bounded term = mistake_ == MoeMistake::weighted_before_rounding ? round(y * weight) : round(y) * weight;
    if (mistake_ == MoeMistake::weighted_twice) term = term * weight;
    if (moe_.scheme.weights_in_f32) term = rounded_f32(term);
    if (moe_.scheme.terms_in_output) term = rounded_to(moe_.output.dtype(), term);
    sums_[static_cast<std::size_t>(pair / slots_of(moe_) * moe_.hidden() + h)].add(term);
  }

  void finish() {
    output_.make_open();
    TermSums sums{.count = static_cast<double>(slots_of(moe_))};
    const bool half = moe_.scheme.terms_in_output && moe_.output.dtype() == DType::f16;
    if (moe_.scheme.terms_in_output) sums.unit = half ? 0x1p-11 : 0x1p-8;
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      // What leaves f16 on the way stays infinite, whatever follows.
      if (half) sums.largest = quant::max_finite(DType::f16) - sums_[i].slack;
      Bounded x = sums.bounded(sums_[i].terms).widened(sums_[i].slack);
      x.open = x.open || sums_[i].open || !std::isfinite(x.slack) || moe_.routes[i / static_cast<std::size_t>(moe_.hidden())].open;
      // Nothing is added to the only term of a token: zero keeps its sign.
      if (moe_.scheme.terms_in_output && slots_of(moe_) == 1 && sums_[i].negative_zero) x.exact = -0.0;
      output_.put(static_cast<std::int64_t>(i), x);
    }
  }

  const WholeMoe& moe_;
  MoeMistake mistake_;
  bool judged_;
  GoldenOutput output_, results_;
  bool plain_, results_are_open_;
  Halves halves_;
  std::vector<std::int64_t> columns_;
  std::vector<Combined> sums_;
};

}  // namespace
}  // namespace dodona::ops::whole_moe

namespace dodona::ops {

void golden_whole_moe(const WholeMoe& moe, const Exec& exec, Reference* reference, MoeMistake mistake) {
  whole_moe::GoldenMoe(moe, reference, mistake).run(exec);
  whole_moe::put_permutation(moe, reference);
  whole_moe::put_weights(moe, reference);
}

}  // namespace dodona::ops
