#include "ops/rows/rotation/rotate.h"

#include <cmath>
#include <limits>
#include <vector>

#include "core/threads.h"
#include "dodona/error.h"
#include "ops/base/golden_output.h"
#include "quant/element.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

std::int64_t position_of(const Tensor& positions, std::int64_t token) {
  const std::int64_t offset = positions.rank() == 1 ? token * positions.stride(0) : positions.offset(token);
  return positions.dtype() == DType::i64 ? positions.as<std::int64_t>()[offset] : positions.as<std::int32_t>()[offset];
}

const std::byte* table_row(const Rotation& r, std::int64_t token) {
  const std::int64_t row_bytes = bytes_for(r.table.dtype(), r.table.size(1));
  return static_cast<const std::byte*>(r.table.data()) + position_of(r.positions, token) * row_bytes;
}

/// Calls body(token, heads of query or key) for every token, tokens in parallel.
template <class Body>
void for_each_token(const Rotation& r, const Exec& exec, const Body& body) {
  const Heads query = heads_of(r.query, r.positions.rank(), r.head_size), key = heads_of(r.key, r.positions.rank(), r.head_size);
  const double cost = static_cast<double>((query.count + key.count) * r.table.size(1));
  parallel_for(exec.threads, r.positions.elements(), cost, [&](std::int64_t token) {
    body(token, query, false);
    body(token, key, true);
  });
}

/// Elements of a head that make a pair.
struct PairIndex {
  std::int64_t first, second;
};
PairIndex pair_index(std::int64_t pair, std::int64_t pairs, bool neox) {
  return neox ? PairIndex{pair, pair + pairs} : PairIndex{2 * pair, 2 * pair + 1};
}

// ---- golden

bool is_denormal(double x) {
  return x != 0 && std::fabs(x) < flush_floor;
}

/// What a build that flushes denormals may lose of x*y: all of it, if an operand or the product is one.
double lost_if_flushed(double x, double y) {
  return is_denormal(x) || is_denormal(y) || is_denormal(x * y) ? std::fabs(x * y) : 0.0;
}

/// round(round(own*c) + round(partner*s)): the bits follow, except where denormals may be flushed (bf16 has the exponents of fp32).
Bounded rotated_each_step(DType type, double own, double c, double partner, double s) {
  const double a = quant::round_to(type, own * c), b = quant::round_to(type, partner * s), exact = a + b;
  const auto lost = [](double x, double y, double rounded) {
    return lost_if_flushed(x, y) > 0 ? std::fabs(x * y) + std::fabs(rounded) : 0.0;
  };
  if (!std::isfinite(exact)) return {exact, 0.0, is_denormal(own) || is_denormal(c) || is_denormal(partner) || is_denormal(s)};
  return {exact, lost(own, c, a) + lost(partner, s, b) + (is_denormal(exact) ? std::fabs(exact) : 0.0), false};
}

// ---- fast

/// Intel's processors trap to microcode where a product meets a denormal: thirty times the time. AMD's do not.
bool denormals_are_slow() {
#if defined(__x86_64__)
  static const bool intel = __builtin_cpu_is("intel") != 0;
  return intel;
#else
  return false;
#endif
}

// ---- hopper

/// What the device computes of own*c + partner*s.
using HopperSum = float (*)(DType type, float own, float c, float partner, float s);

float sum_fusing_own(DType, float own, float c, float partner, float s) {
  return quant::hopper::fma(own, c, quant::hopper::mul(partner, s));
}
float sum_fusing_partner(DType, float own, float c, float partner, float s) {
  return quant::hopper::fma(partner, s, quant::hopper::mul(own, c));
}
float sum_of_rounded(DType type, float own, float c, float partner, float s) {
  const auto rounded = [type](float x) { return static_cast<float>(quant::round_to(type, x)); };
  return quant::hopper::add(rounded(quant::hopper::mul(own, c)), rounded(quant::hopper::mul(partner, s)));
}

}  // namespace

/// own*c + partner*s, rounded once. Products of fp32 numbers are exact in double. An implementation may round either product to fp32 or
/// both, which moves the sum by what that rounding changes; then it rounds the sum to fp32, which is a rounding more for 16-bit types.
Bounded rotated_once(DType type, double own, double c, double partner, double s) {
  const double a = own * c, b = partner * s, exact = a + b;
  if (!std::isfinite(exact)) {
    // Infinity times a denormal is infinity, or NaN once the denormal is flushed. Beside an infinity a product beyond fp32 may be the other
    // one.
    const auto overflows = [](double x) { return std::isfinite(x) && std::isinf(static_cast<float>(x)); };
    const bool beyond = std::isinf(exact) && (overflows(a) || overflows(b));
    return {exact, 0.0, beyond || is_denormal(own) || is_denormal(c) || is_denormal(partner) || is_denormal(s)};
  }
  const double a32 = static_cast<float>(a), b32 = static_cast<float>(b);
  // A product that overflows fp32 is lost if it is rounded, and kept if it is fused.
  if (std::isinf(a32) || std::isinf(b32)) return {exact, 0.0, true};
  double slack = std::fabs(a32 - a) + std::fabs(b32 - b) + lost_if_flushed(own, c) + lost_if_flushed(partner, s);
  if (is_denormal(exact)) slack += std::fabs(exact);
  // The sum and these differences are rounded to double.
  if (slack > 0) slack += 0x1p-50 * (std::fabs(a) + std::fabs(b));
  const bool sum_is_exact = slack == 0 && static_cast<double>(static_cast<float>(exact)) == exact;
  if (type != DType::f32 && !sum_is_exact) slack += f32_eps * (std::fabs(exact) + slack);
  return {exact, slack, false};
}

Heads heads_of(const Tensor& tensor, int token_dims, std::int64_t head_size) {
  if (!tensor.defined()) return {};
  const int element_bytes = bits(tensor.dtype()) / 8;
  const bool explicit_heads = tensor.rank() == token_dims + 2;
  Heads heads;
  heads.data = tensor.as<std::byte>();
  heads.count = explicit_heads ? tensor.size(-2) : tensor.size(-1) / head_size;
  heads.head_stride = (explicit_heads ? tensor.stride(-2) : head_size) * element_bytes;
  heads.token_stride = tensor.stride(token_dims - 1) * element_bytes;
  if (token_dims == 2) {
    heads.inner_tokens = tensor.size(1);
    heads.outer_stride = tensor.stride(0) * element_bytes;
  } else {
    heads.inner_tokens = std::numeric_limits<std::int64_t>::max();
  }
  return heads;
}

void check_table(const Tensor& cos_sin_cache, std::int64_t head_size) {
  if (cos_sin_cache.size(1) <= head_size) return;
  throw Error(ErrorCode::bad_shape, "", "cos_sin_cache",
              "has shape " + to_string(cos_sin_cache.shape()) + ": R = " + std::to_string(cos_sin_cache.size(1)) +
                  ", expected at most head_size = " + std::to_string(head_size));
}

void rotate_golden(const Rotation& r, const Exec& exec, Reference* reference) {
  // What is not rotated keeps its bits.
  record_exact(r.query, reference, "query");
  record_exact(r.key, reference, "key");
  const GoldenOutput query_out(r.query, reference, "query"), key_out(r.key, reference, "key");
  query_out.make_open();
  key_out.make_open();
  const DType type = r.query.dtype();
  const std::int64_t width = r.table.size(1), pairs = width / 2;
  const auto rotated = r.rounding == RotaryRounding::once ? rotated_once : rotated_each_step;
  for_each_token(r, exec, [&](std::int64_t token, const Heads& heads, bool is_key) {
    const GoldenOutput& out = is_key ? key_out : query_out;
    std::vector<double> x(static_cast<std::size_t>(width)), table(x.size());
    quant::to_f64(r.table.dtype(), table_row(r, token), table.data(), width);
    for (std::int64_t h = 0; h < heads.count; ++h) {
      quant::to_f64(type, heads.head(token, h), x.data(), width);
      const std::int64_t begin = (token * heads.count + h) * r.head_size;
      for (std::int64_t p = 0; p < pairs; ++p) {
        const auto [first, second] = pair_index(p, pairs, r.neox);
        const double u = x[static_cast<std::size_t>(first)], v = x[static_cast<std::size_t>(second)];
        const double c = table[static_cast<std::size_t>(p)], s = table[static_cast<std::size_t>(p + pairs)];
        out.put(begin + first, rotated(type, u, c, v, -s));
        out.put(begin + second, rotated(type, v, c, u, s));
      }
    }
  });
}

void rotate_fast(const Rotation& r, const Exec& exec) {
  const bool avoid_denormals = denormals_are_slow();
  for_each_token(r, exec, [&](std::int64_t token, const Heads& heads, bool) {
    if (heads.count == 0) return;
    const RotateHeads job{.heads = heads.head(token, 0),
                          .count = heads.count,
                          .stride = heads.head_stride,
                          .cos_sin = table_row(r, token),
                          .pairs = r.table.size(1) / 2,
                          .type = r.query.dtype(),
                          .neox = r.neox,
                          .rounding = r.rounding,
                          .avoid_denormals = avoid_denormals};
    dispatch<RotateKernel>(exec.isa, job);
  });
}

void rotate_hopper(const Rotation& r, FusedProduct second_output, const Exec& exec) {
  const DType type = r.query.dtype();
  const std::int64_t width = r.table.size(1), pairs = width / 2;
  const bool each_step = r.rounding == RotaryRounding::each_step;
  const HopperSum sum_first = each_step ? sum_of_rounded : sum_fusing_own;
  const HopperSum sum_second = each_step ? sum_of_rounded : second_output == FusedProduct::own ? sum_fusing_own : sum_fusing_partner;
  for_each_token(r, exec, [&](std::int64_t token, const Heads& heads, bool) {
    std::vector<float> x(static_cast<std::size_t>(width)), table(x.size());
    quant::to_f32(r.table.dtype(), table_row(r, token), table.data(), width);
    for (std::int64_t h = 0; h < heads.count; ++h) {
      std::byte* const head = heads.head(token, h);
      quant::to_f32(type, head, x.data(), width);
      for (std::int64_t p = 0; p < pairs; ++p) {
        const auto [first, second] = pair_index(p, pairs, r.neox);
        float &u = x[static_cast<std::size_t>(first)], &v = x[static_cast<std::size_t>(second)];
        const float c = table[static_cast<std::size_t>(p)], s = table[static_cast<std::size_t>(p + pairs)];
        const float rotated = sum_first(type, u, c, v, -s);
        v = sum_second(type, v, c, u, s);
        u = rotated;
      }
      quant::from_f32(type, x.data(), head, width);
    }
  });
}

double rope_bytes_read(const Tensor& positions, const Tensor& query, const Tensor& key, const Tensor& cos_sin_cache) {
  const auto bytes = [](const Tensor& t) { return t.defined() ? static_cast<double>(bytes_for(t.dtype(), t.elements())) : 0.0; };
  const double row = static_cast<double>(bytes_for(cos_sin_cache.dtype(), cos_sin_cache.size(-1)));
  return bytes(positions) + bytes(query) + bytes(key) + static_cast<double>(positions.elements()) * row;
}

}  // namespace dodona::ops
