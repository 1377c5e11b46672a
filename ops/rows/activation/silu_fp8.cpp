#include "ops/rows/activation/silu_fp8.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "core/threads.h"
#include "ops/rows/activation/act_and_mul_row.h"
#include "ops/rows/activation/silu.h"
#include "quant/amax.h"
#include "quant/e4m3.h"
#include "quant/hopper/triton.h"

namespace dodona::ops {

const std::string_view silu_fp8_budget = R"(
Budget: that of silu as in silu_and_mul, carried through the products, a rounding for each that is not exact; 4 units of 2^-24 for an
approximate reciprocal of the scale. What builds that flush denormals lose of silu, up or their product is multiplied by the reciprocal; of a
scale whose reciprocal may be flushed nothing is compared. e4m3 saturates at 448. Rows that are not there are unspecified (here 0).)";

namespace {

constexpr double element_cost = 8.0;

/// Calls body(row) for every row that is there, others(row) for the rest.
template <class Body, class Others>
void for_rows(const SiluFp8& call, const Exec& exec, const Body& body, const Others& others) {
  const std::int64_t rows = call.output.elements() == 0 ? 0 : call.output.elements() / call.output.size(-1);
  parallel_for(exec.threads, rows, element_cost * static_cast<double>(call.output.size(-1)), [&](std::int64_t row) {
    if (call.has_row(row)) {
      body(row);
    } else {
      others(row);
    }
  });
}

std::uint8_t* codes_of(const SiluFp8& call, std::int64_t row) {
  return call.output.as<std::uint8_t>() + row * call.output.size(-1);
}
const std::byte* input_of(const SiluFp8& call, std::int64_t row) {
  return call.input.as<const std::byte>() + row * call.input.size(-1) * bits(call.input.dtype()) / 8;
}

void clear(const SiluFp8& call, std::int64_t row) {
  std::memset(codes_of(call, row), 0, static_cast<std::size_t>(call.output.size(-1)));
}

/// The activation times up in fp32.
Bounded product(const SiluFp8& call, Silu activation, double gate, double up) {
  Bounded a = activation(gate);
  if (may_flush(a.exact)) a = a.widened(std::fabs(a.exact));
  if (call.round_activation) a = rounded_to(call.input.dtype(), a);
  Bounded y = a * up;
  // Two numbers of 16 bits have an exact product.
  if (!call.round_activation || call.input.dtype() == f32) y = rounded_f32(y);
  if (may_flush(up) || may_flush(y.exact)) y = y.widened(std::fabs(y.exact));
  if (std::isinf(a.exact) && may_flush(up)) y.open = true;
  return y;
}

/// What is multiplied with for a scale.
double factor_of(float scale, SiluFp8Mistake mistake) {
  if (mistake == SiluFp8Mistake::scale_left_out) return 1.0;
  return static_cast<double>(mistake == SiluFp8Mistake::multiplied ? scale : 1.0f / scale);
}

}  // namespace

std::int64_t SiluFp8::room() const {
  return counts.empty() ? 0 : output.elements() / output.size(-1) / static_cast<std::int64_t>(counts.size());
}
bool SiluFp8::has_row(std::int64_t row) const {
  return row % room() < counts[static_cast<std::size_t>(row / room())];
}

std::vector<std::int64_t> counts_of(const Tensor& rows) {
  std::vector<std::int64_t> counts;
  for (std::int64_t i = 0; i < rows.elements(); ++i) counts.push_back(static_cast<std::int64_t>(quant::get(rows, i)));
  return counts;
}

void golden_silu_fp8(const SiluFp8& call, const Exec& exec, Reference* reference, SiluFp8Mistake mistake) {
  const GoldenOutput out(call.output, reference, "output");
  out.make_open();
  const std::int64_t width = call.output.size(-1);
  const double factor = factor_of(call.divisor(), mistake);
  const Silu activation = golden_silu(exec);
  const bool unknown = may_flush(static_cast<double>(call.divisor())) || may_flush(factor);
  for_rows(
      call, exec,
      [&](std::int64_t row) {
        std::vector<double> x(static_cast<std::size_t>(2 * width));
        quant::to_f64(call.input.dtype(), input_of(call, row), x.data(), 2 * width);
        for (std::int64_t k = 0; k < width; ++k) {
          double gate = x[static_cast<std::size_t>(k)], up = x[static_cast<std::size_t>(width + k)];
          if (mistake == SiluFp8Mistake::gate_and_up_swapped) std::swap(gate, up);
          const Bounded y = product(call, activation, gate, up);
          Bounded scaled = scaled_f32(y, factor, false);
          scaled.slack += 4 * f32_eps * std::fabs(scaled.exact);
          // What is beyond fp32 is infinite before it meets a factor of 0.
          const bool beyond = factor == 0 && std::fabs(y.exact) + y.slack > static_cast<double>(std::numeric_limits<float>::max());
          scaled.open = scaled.open || unknown || beyond || (call.clamps && std::isnan(scaled.exact));
          out.put_saturating(row * width + k, scaled);
        }
      },
      [&](std::int64_t row) {
        for (std::int64_t k = 0; k < width; ++k) out.leave_open(row * width + k);
      });
}

void fast_silu_fp8(const SiluFp8& call, const Exec& exec) {
  const std::int64_t width = call.output.size(-1);
  for_rows(
      call, exec,
      [&](std::int64_t row) {
        const std::byte* const gate = input_of(call, row);
        const std::byte* const up = gate + width * bits(call.input.dtype()) / 8;
        dispatch<ActAndMulRowKernel>(exec.isa, ActAndMulRow{.gate = gate,
                                                            .up = up,
                                                            .out = codes_of(call, row),
                                                            .next_gate = gate,
                                                            .next_up = up,
                                                            .n = width,
                                                            .type = call.input.dtype(),
                                                            .kind = ActivationKind::silu_to_e4m3,
                                                            .writing = Writing::cached,
                                                            .round_activation = call.round_activation,
                                                            .factor = 1.0f / call.divisor()});
      },
      [&](std::int64_t row) { clear(call, row); });
}

void hopper_silu_fp8(const SiluFp8& call, const Exec& exec) {
  namespace triton = quant::hopper::triton;
  const std::int64_t width = call.output.size(-1);
  const DType type = call.input.dtype();
  const float factor = triton::div(1.0f, call.divisor());
  for_rows(
      call, exec,
      [&](std::int64_t row) {
        std::vector<float> x(static_cast<std::size_t>(2 * width));
        quant::to_f32(type, input_of(call, row), x.data(), 2 * width);
        for (std::int64_t k = 0; k < width; ++k) {
          const float gate = x[static_cast<std::size_t>(k)];
          float active = triton::div(gate, 1.0f + triton::exp(-gate));
          if (call.round_activation) active = static_cast<float>(quant::round_to(type, static_cast<double>(active)));
          const float scaled = active * x[static_cast<std::size_t>(width + k)] * factor;
          codes_of(call, row)[k] =
              quant::to_e4m3_satfinite(static_cast<double>(call.clamps ? quant::clamp_low_first(scaled, -448.0f, 448.0f) : scaled));
        }
      },
      [&](std::int64_t row) { clear(call, row); });
}

}  // namespace dodona::ops
