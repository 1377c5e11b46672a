#include "ops/rope/mla_rope_quantize_fp8.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/base/rows.h"
#include "ops/base/streaming.h"
#include "ops/rows/quantize/quantize_row.h"
#include "ops/rows/rotation/rotate.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

/// One of the four tensors that are quantized.
struct Part {
  const Tensor *input, *output;
  const char* output_name;
  bool rotated, per_head;
  float scale;
  std::int64_t rows_per_token;
};

template <class Body>
void for_each_part(const MlaRopeQuantizeFp8& op, const Body& body) {
  const auto q_scale = static_cast<float>(op.quant_scale_q), kv_scale = static_cast<float>(op.quant_scale_kv);
  const std::int64_t heads = op.q_rope.size(1);
  body(Part{&op.q_rope, &op.q_rope_out, "q_rope_out", true, true, q_scale, heads});
  body(Part{&op.k_rope, &op.k_rope_out, "k_rope_out", true, false, kv_scale, 1});
  body(Part{&op.q_nope, &op.q_nope_out, "q_nope_out", false, true, q_scale, heads});
  body(Part{&op.k_nope, &op.k_nope_out, "k_nope_out", false, false, kv_scale, 1});
}

const float* table_row(const MlaRopeQuantizeFp8& op, std::int64_t token) {
  const std::int64_t position = op.pos_ids.dtype() == i64 ? op.pos_ids.as<std::int64_t>()[token] : op.pos_ids.as<std::int32_t>()[token];
  return op.cos_sin_cache.as<float>() + position * op.cos_sin_cache.size(1);
}

/// Elements that make pair p.
struct PairAt {
  std::int64_t first, second;
};
PairAt pair_at(std::int64_t p, std::int64_t pairs, bool neox) {
  return neox ? PairAt{p, p + pairs} : PairAt{2 * p, 2 * p + 1};
}

// ---- golden

/// fp8(x * scale): the fp32 product is rounded to fp32 first, which leaves the code open only if fp32 denormals are at stake, or if x
/// itself is.
void put(const GoldenOutput& out, std::int64_t linear, const Bounded& x, float scale) {
  Bounded product = x * static_cast<double>(scale);
  if (x.slack > 0) product = product.widened(std::fabs(product.exact) * 2 * f32_eps);
  if (may_flush(product.exact) || may_flush(scale) || may_flush(x.exact)) product = product.widened(std::fabs(product.exact));
  // What is not open has the bits of the fp32 product.
  if (product.slack == 0 && !product.open) product.exact = static_cast<float>(product.exact);
  out.put_saturating(linear, product);
}

void golden_part(const MlaRopeQuantizeFp8& op, const Part& part, const Exec& exec, Reference* reference) {
  const GoldenOutput out(*part.output, reference, part.output_name);
  out.make_open();
  const DType type = part.input->dtype();
  const std::int64_t width = part.input->size(-1), pairs = width / 2;
  parallel_for(exec.threads, row_count(*part.input), static_cast<double>(width), [&](std::int64_t row) {
    std::vector<double> x(static_cast<std::size_t>(width));
    quant::to_f64(type, row_begin(*part.input, row, bits(type) / 8), x.data(), width);
    if (!part.rotated) {
      for (std::int64_t i = 0; i < width; ++i) put(out, row * width + i, {x[static_cast<std::size_t>(i)]}, part.scale);
      return;
    }
    const float* const table = table_row(op, row / part.rows_per_token);
    for (std::int64_t p = 0; p < pairs; ++p) {
      const auto [first, second] = pair_at(p, pairs, op.is_neox);
      const double u = x[static_cast<std::size_t>(first)], v = x[static_cast<std::size_t>(second)];
      const double c = table[p], s = table[p + pairs];
      // The sum is rounded to fp32 and no further: what a 16-bit type would leave open.
      put(out, row * width + first, rotated_once(type, u, c, v, -s), part.scale);
      put(out, row * width + second, rotated_once(type, v, c, u, s), part.scale);
    }
  });
}

void golden(const MlaRopeQuantizeFp8& op, const Exec& exec, Reference* reference) {
  for_each_part(op, [&](const Part& part) {
    if (row_count(*part.input) > 0) golden_part(op, part, exec, reference);
  });
}

// ---- fast

/// Whether a token's rows lie behind each other.
bool heads_follow(const Part& part) {
  const auto follow = [](const Tensor& t) { return t.rank() < 3 || t.size(1) <= 1 || t.stride(1) == t.size(2); };
  return follow(*part.input) && follow(*part.output);
}

void fast(const MlaRopeQuantizeFp8& op, const Exec& exec) {
  const std::int64_t heads = op.q_rope.size(1);
  const double cost = static_cast<double>((heads + 1) * (op.q_rope.size(2) + op.q_nope.size(2)));
  const int bytes = bits(op.q_rope.dtype()) / 8;
  const bool streamed = worth_streaming(op.q_nope_out);
  const auto rows = [&](const Part& part, std::int64_t token, std::int64_t begin, std::int64_t end) {
    // What is not rotated knows no rows where they follow one another.
    const std::int64_t first = token * part.rows_per_token, at_once = !part.rotated && heads_follow(part) ? end - begin : 1;
    for (std::int64_t row = first + begin; row < first + end; row += at_once)
      dispatch<QuantizeRowKernel>(exec.isa, QuantizeRow{.input = row_begin(*part.input, row, bytes),
                                                        .codes = reinterpret_cast<std::uint8_t*>(row_begin_mutable(*part.output, row, 1)),
                                                        .n = part.input->size(-1) * at_once,
                                                        .cos_sin = part.rotated ? table_row(op, token) : nullptr,
                                                        .type = part.input->dtype(),
                                                        .code_type = op.quantize_dtype,
                                                        .neox = op.is_neox,
                                                        .scale = part.scale,
                                                        .fetched = 4096,
                                                        .writing = !streamed                     ? Writing::cached
                                                                   : row + at_once < first + end ? Writing::streamed
                                                                                                 : Writing::streamed_last});
  };
  // A task is some heads of a token, more where they are to be made visible (streaming.h); the first one takes its key too.
  const std::int64_t together = streamed ? 128 : 32;
  const std::int64_t blocks = std::max<std::int64_t>(1, (heads + together - 1) / together);
  parallel_for(exec.threads, op.pos_ids.size(0) * blocks, cost / static_cast<double>(blocks), [&](std::int64_t task) {
    const std::int64_t token = task / blocks, begin = task % blocks * together, end = std::min(heads, begin + together);
    for_each_part(op, [&](const Part& part) {
      if (part.per_head) {
        rows(part, token, begin, end);
      } else if (begin == 0) {
        rows(part, token, 0, 1);
      }
    });
  });
}

// ---- hopper

void hopper_part(const MlaRopeQuantizeFp8& op, const Part& part, const Exec& exec) {
  namespace hw = quant::hopper;
  const DType type = part.input->dtype();
  const std::int64_t width = part.input->size(-1), pairs = width / 2;
  parallel_for(exec.threads, row_count(*part.input), static_cast<double>(width), [&](std::int64_t row) {
    std::vector<float> x(static_cast<std::size_t>(width));
    quant::to_f32(type, row_begin(*part.input, row, bits(type) / 8), x.data(), width);
    const float* const table = part.rotated ? table_row(op, row / part.rows_per_token) : nullptr;
    for (std::int64_t p = 0; table != nullptr && p < pairs; ++p) {
      const auto [first, second] = pair_at(p, pairs, op.is_neox);
      float &u = x[static_cast<std::size_t>(first)], &v = x[static_cast<std::size_t>(second)];
      const float c = table[p], s = table[p + pairs];
      const float rotated = hw::fma(u, c, hw::mul(v, -s));
      v = hw::fma(v, c, hw::mul(u, s));
      u = rotated;
    }
    for (std::int64_t i = 0; i < width; ++i)
      quant::set_bits(*part.output, row * width + i,
                      GoldenOutput::saturating_code(op.quantize_dtype, hw::mul(x[static_cast<std::size_t>(i)], part.scale)));
  });
}

void hopper(const MlaRopeQuantizeFp8& op, const Exec& exec) {
  for_each_part(op, [&](const Part& part) {
    if (row_count(*part.input) > 0) hopper_part(op, part, exec);
  });
}

/// A thread of upstream's kernel has 16 neighbours, and looks for their partners Dr/2 away all at once.
bool partners_lie_apart(const MlaRopeQuantizeFp8& op) {
  return op.is_neox && op.q_rope.size(2) % 32 == 16;
}

/// What the kernel takes for element i of the row behind `row`: where that does not lie right behind it, memory that no argument holds.
std::optional<float> element_behind(const Tensor& rows, std::int64_t row, std::int64_t i) {
  if (row + 1 >= row_count(rows) || row_offset(rows, row + 1) != row_offset(rows, row) + rows.size(-1)) return {};
  float x = 0;
  const int bytes = bits(rows.dtype()) / 8;
  quant::to_f32(rows.dtype(), row_begin(rows, row + 1, bytes) + i * bytes, &x, 1);
  return x;
}

std::optional<float> sine_behind(const MlaRopeQuantizeFp8& op, std::int64_t token, std::int64_t i) {
  const float* const row = table_row(op, token) + op.cos_sin_cache.size(1);
  if (row == op.cos_sin_cache.as<float>() + op.cos_sin_cache.elements()) return {};
  return row[i];
}

/// The code that the kernel gives element `i` of a row, Dr/2 to Dr/2 + 7: it begins below Dr/2 with its neighbours, so its partner is
/// taken Dr/2 behind it, its cosine from among the sines, and its sine from the table's next row. Nothing where memory says it that no
/// argument holds.
std::optional<std::uint64_t> code_of_straddling(const MlaRopeQuantizeFp8& op, const Part& part, std::int64_t row, std::int64_t i) {
  namespace hw = quant::hopper;
  const std::int64_t width = part.input->size(-1), token = row / part.rows_per_token, behind = i - width / 2;
  const std::optional<float> partner = element_behind(*part.input, row, behind), sine = sine_behind(op, token, behind);
  if (!partner || !sine) return {};
  const int bytes = bits(part.input->dtype()) / 8;
  float own = 0;
  quant::to_f32(part.input->dtype(), row_begin(*part.input, row, bytes) + i * bytes, &own, 1);
  const float rotated = hw::fma(own, table_row(op, token)[i], hw::mul(*partner, -*sine));
  return GoldenOutput::saturating_code(op.quantize_dtype, hw::mul(rotated, part.scale));
}

bool explains_straddling(const MlaRopeQuantizeFp8& actual, std::string_view output, std::int64_t linear) {
  if (!partners_lie_apart(actual)) return false;
  const std::int64_t width = actual.q_rope.size(2), i = linear % width;
  if (i < width / 2 || i >= width / 2 + 8) return false;
  bool explained = false;
  for_each_part(actual, [&](const Part& part) {
    if (!part.rotated || part.output_name != output) return;
    const std::optional<std::uint64_t> code = code_of_straddling(actual, part, linear / width, i);
    explained = !code || *code == quant::get_bits(*part.output, linear);
  });
  return explained;
}

std::optional<Refusal> unsupported(const MlaRopeQuantizeFp8& op, Mode mode) {
  if (mode != Mode::hopper || !partners_lie_apart(op)) return {};
  return Refusal{"q_rope", "has Dr = " + std::to_string(op.q_rope.size(2)) +
                               " with is_neox: the H200's kernel takes partners from beyond the rotated part there"};
}

void check(const MlaRopeQuantizeFp8& op) {
  const std::pair<const char*, double> scales[] = {{"quant_scale_q", op.quant_scale_q}, {"quant_scale_kv", op.quant_scale_kv}};
  for (const auto& [name, value] : scales)
    if (!std::isfinite(static_cast<float>(value)))
      throw Error(ErrorCode::bad_value, "", name, "must be finite in fp32, got " + to_string(AttrValue(value)));
}

double bytes_read(const MlaRopeQuantizeFp8& op) {
  double bytes = static_cast<double>(op.pos_ids.size(0)) * static_cast<double>(bytes_for(f32, op.cos_sin_cache.size(1)));
  for_each_part(op, [&](const Part& part) { bytes += static_cast<double>(bytes_for(part.input->dtype(), part.input->elements())); });
  return bytes;
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_mla_rope_quantize_fp8() {
  return define<ops::MlaRopeQuantizeFp8>({
      .contract = R"(
With c, s the fp32 cosine and sine of the pair at the token's position: r = first*c - second*s and second*c + first*s in fp32
(either product may be fused with the sum), not rounded to the element type; then fp8(fl32(r * scale)), to nearest even,
saturating (infinities give the largest value, NaN gives 0x7F). Parts without rope: fp8(fl32(x * scale)), exact. The scales
multiply. Budget of the rotated parts, in units of 2^-24: what rounding the two products to fp32 changes, half a unit of the sum
and two of the product with the scale; none where all of this is exact. What fp32 denormals carry may be flushed.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .check = ops::check,
      .bytes_read = ops::bytes_read,
      .defects = {{"partners-behind-the-row", "q_rope_out",
                   "is_neox and Dr = 16, 48, 80...: of 16 neighbours that begin below Dr/2 and end behind it the last eight take partners, "
                   "cosines and sines as the first do: from the row behind, from the sines and from the table's next row (held to that "
                   "code, where these lie in memory that the arguments hold)",
                   ops::explains_straddling}},
      .cases = {"T=3 N=16 Dr=64 Dn=512 P=128 --attr is_neox=false",
                "T=4 N=5 Dr=64 Dn=512 P=64 --attr quant_scale_q=3.5 --attr quant_scale_kv=0.7",
                "T=2 N=3 Dr=22 Dn=37 P=64 --attr is_neox=false --attr quantize_dtype=f8_e5m2 --dtype q_rope=f16 --dtype pos_ids=i64",
                "T=3 N=2 Dr=64 Dn=40 P=64 --attr is_neox=false --attr quant_scale_kv=300 --dist outliers"},
      .bench_cases = {"T=1 N=128 Dr=64 Dn=512 P=163840 --attr is_neox=false", "T=64 N=128 Dr=64 Dn=512 P=163840 --attr is_neox=false",
                      "T=512 N=128 Dr=64 Dn=512 P=163840 --attr is_neox=false"},
  });
}
}  // namespace dodona
