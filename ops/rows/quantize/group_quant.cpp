#include "ops/rows/quantize/group_quant.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/threads.h"
#include "dodona/error.h"
#include "ops/base/aliasing.h"
#include "ops/base/golden_output.h"
#include "ops/base/rows.h"
#include "ops/base/streaming.h"
#include "ops/base/work.h"
#include "ops/rows/activation/act_and_mul.h"
#include "ops/rows/activation/silu.h"
#include "ops/rows/quantize/fp8_codes.h"
#include "ops/rows/quantize/group_row.h"
#include "ops/rows/quantize/int8_codes.h"
#include "quant/amax.h"
#include "quant/group_scale.h"
#include "quant/hopper/fast_math.h"
#include "quant/int8.h"

namespace dodona::ops {

const std::string_view group_quant_contract = R"(
For each group of group_size elements of a row: amax = max(eps, max |x|), NaN passed over. Version 1: s = fl32(amax * fl32(1/fp8_max)), or
fl32(amax/fp8_max) with divide=ieee; with scale_ue8m0 s becomes the power of two 2^ceil(log2(max(s, 1e-10))); code = c(fl32(x/s)). Version
2: s = fl32(amax * fl32(1/fp8_max)), code = c(fl32(x * fl32(fp8_max/amax))); with scale_ue8m0 s = 2^e, the least that is not below
fl32(amax * fl32(1/fp8_max)), code = c(x * 2^-e). c clamps to fp8_min and fp8_max, a NaN to fp8_min, and rounds: e4m3 to nearest even, int8
cut toward zero. output_s = s in f32, or the byte e + 127 in words of four groups; bytes of no group are 0 in version 2 and unspecified in
version 1. fuse_silu_and_mul: x = T(T(silu(gate)) * up), T the input's type. Budget: scales 2^-24 relative (either division). Powers of two:
none in version 2; in version 1 either power where s lies within 2^-20 of one, relative, for the logarithm is approximate; the one that
explains the codes is taken, the stored one if it does. Codes: 4 units of 2^-24 of the value that is rounded (approximate division, 2 ulp, or reciprocal and two
products), in version 1 from the scale that was stored; none where the scale is a power of two. Behind silu, what that leaves open of x
(see silu_and_mul), and any power within what that makes of the maximum, that explains the codes (a denormal gate that is flushed loses a
product with a large number, which may be the group's maximum). Groups that hold infinities are open where the scale is a power of two;
rows that masked_m leaves out are unspecified (here 0).)";

bool GroupQuant::has_row(std::int64_t m) const {
  if (!masked()) return true;
  const std::int64_t rows = row_count(output_q) / masked_m->size(0);
  return m % rows < masked_m->as<std::int32_t>()[m / rows];
}

namespace {

namespace hw = quant::hopper;

constexpr double code_units = 4 * f32_eps;
constexpr double log_blur = 0x1p-20;

float largest_code(const GroupQuant& op) {
  return static_cast<float>(op.high);
}
float least_code(const GroupQuant& op) {
  return static_cast<float>(op.low);
}

constexpr quant::Fp32Ops hopper_ops{hw::rcp, hw::div, hw::mul};

quant::GroupRecipe recipe_of(const GroupQuant& op) {
  const quant::Fp32Ops ops = op.true_division ? quant::ieee_ops : quant::reciprocal_division_ops;
  if (op.version_2)
    return {op.eps, quant::ScaleForm::multiply, op.powers ? quant::ScaleRule::ceil_bits : quant::ScaleRule::plain, quant::ieee_ops};
  return {op.eps, quant::ScaleForm::reciprocal, op.powers ? quant::ScaleRule::ceil_log2 : quant::ScaleRule::plain, ops};
}

/// The exponent of a scale that is a power of two.
int exponent_of(float power) {
  return static_cast<int>(quant::ue8m0_exponent_field(power)) - 127;
}

// ---- words of exponents

/// output_s with scale_ue8m0: the byte of row m and group g is byte g of the row's words, by logical order whatever the strides.
class Words {
 public:
  explicit Words(const Tensor& output_s) : tensor_(output_s) {}
  std::int64_t bytes() const { return 4 * tensor_.size(-1); }
  std::uint8_t at(std::int64_t m, std::int64_t g) const {
    return static_cast<std::uint8_t>(quant::get_bits(tensor_, word(m, g)) >> (g % 4 * 8));
  }
  void clear(std::int64_t m) const {
    for (std::int64_t w = 0; w < tensor_.size(-1); ++w) quant::set_bits(tensor_, word(m, 4 * w), 0);
  }
  void put(std::int64_t m, std::int64_t g, std::uint8_t byte) const {
    quant::set_bits(tensor_, word(m, g), quant::get_bits(tensor_, word(m, g)) | static_cast<std::uint64_t>(byte) << (g % 4 * 8));
  }

 private:
  std::int64_t word(std::int64_t m, std::int64_t g) const { return m * tensor_.size(-1) + g / 4; }
  const Tensor& tensor_;
};

// ---- golden

/// The values that are quantized, row by row, with what silu leaves open of them.
class Values {
 public:
  Values(const GroupQuant& op, const Exec& exec) : op_(op) {
    if (!op.fused) return;
    products_ = Tensor(op.input.dtype(), op.output_q.shape());
    golden_act_and_mul({op.input, products_, false, true}, golden_silu(exec), exec, &reference_);
  }
  std::vector<Bounded> row(std::int64_t m) const {
    const DType type = op_.input.dtype();
    std::vector<Bounded> values(static_cast<std::size_t>(op_.width()));
    if (op_.fused) {
      const ReferenceOutput& out = *reference_.find("out");
      for (std::size_t k = 0; k < values.size(); ++k) {
        const std::size_t at = static_cast<std::size_t>(m) * values.size() + k;
        values[k] = rounded_to(type, {out.exact[at], out.slack[at], !out.unspecified.empty() && out.unspecified[at] != 0});
      }
      return values;
    }
    std::vector<double> x(values.size());
    quant::to_f64(type, row_begin(op_.input, m, bits(type) / 8), x.data(), op_.width());
    for (std::size_t k = 0; k < values.size(); ++k) values[k].exact = x[k];
    return values;
  }

 private:
  const GroupQuant& op_;
  Tensor products_;
  Reference reference_;
};

using Group = std::span<const Bounded>;

/// The group's largest magnitude, and the least and the most that it may be.
struct Magnitude {
  float least, exact, most;
  bool open;
};
Magnitude magnitude_of(const GroupQuant& op, Group group, GroupMaximum maximum) {
  std::vector<float> least, exact, most;
  bool open = false;
  for (const Bounded& x : group) {
    const double size = std::fabs(x.exact);
    least.push_back(static_cast<float>(std::copysign(std::fmax(size - x.slack, 0.0), x.exact)));
    exact.push_back(static_cast<float>(x.exact));
    most.push_back(static_cast<float>(std::copysign(size + x.slack, x.exact)));
    // What overflows, or may.
    open = open || x.open || std::isinf(x.exact) || !std::isfinite(x.slack);
  }
  const auto floored = [&](const std::vector<float>& x) { return std::max(maximum(x), op.eps); };
  return {floored(least), floored(exact), floored(most), open};
}

/// Exponents that an honest implementation may have found.
struct Exponents {
  int least, golden, most;
};
int exponent_by_bits(const GroupQuant& op, float amax) {
  return quant::ceil_exponent_by_bits(amax * (1.0f / largest_code(op)));
}
Exponents exponents_of(const GroupQuant& op, const Magnitude& amax) {
  if (op.version_2) return {exponent_by_bits(op, amax.least), exponent_by_bits(op, amax.exact), exponent_by_bits(op, amax.most)};
  const int golden = exponent_of(quant::group_scale(amax.exact, largest_code(op), recipe_of(op)).scale);
  const double s = std::fmax(static_cast<double>(amax.exact) / static_cast<double>(largest_code(op)), 1e-10);
  const int below = std::ilogb(s);
  for (const int n : {below, below + 1})
    if (std::fabs(s / std::ldexp(1.0, n) - 1) <= log_blur) return {n, golden, n + 1};
  return {golden, golden, golden};
}

/// The value that is rounded to a code: x * factor, which honest implementations have within `units` relative.
Bounded scaled(const Bounded& x, double factor, double units) {
  const double value = x.exact * factor;
  return {value, x.slack * factor + std::fabs(value) * units, x.open};
}
double cut(double x) {
  return std::trunc(std::clamp(x, -128.0, 127.0));
}

void put_code(const GroupQuant& op, const GoldenOutput& codes, std::int64_t linear, const Bounded& v) {
  if (std::isnan(v.exact)) return codes.put(linear, {static_cast<double>(least_code(op)), 0.0, v.open});
  if (!op.integers()) return codes.put_saturating(linear, v);
  put_int8(codes, linear, v, cut);
}

/// Whether the code may be that of v.
bool may_be(const GroupQuant& op, const Bounded& v, std::uint8_t code) {
  if (v.open) return true;
  if (op.integers()) {
    const double actual = static_cast<std::int8_t>(code);
    return std::isnan(v.exact) ? actual == -128.0 : cut(v.exact - v.slack) <= actual && actual <= cut(v.exact + v.slack);
  }
  if (std::isnan(v.exact)) return code == 0xFE;
  const auto value = [](double x) { return quant::e4m3_to_f32(quant::to_e4m3_satfinite(x)); };
  const float actual = quant::e4m3_to_f32(code);
  return value(v.exact - v.slack) <= actual && actual <= value(v.exact + v.slack);
}

void put_codes(const GroupQuant& op, const GoldenOutput& codes, std::int64_t first, Group group, double factor, double units) {
  for (std::size_t k = 0; k < group.size(); ++k) put_code(op, codes, first + static_cast<std::int64_t>(k), scaled(group[k], factor, units));
}
void put_open_codes(const GoldenOutput& codes, std::int64_t first, Group group) {
  for (std::size_t k = 0; k < group.size(); ++k) codes.leave_open(first + static_cast<std::int64_t>(k));
}

/// Slack of a scale before its rounding: either way to divide, and what is open of the magnitude.
Bounded plain_scale(const GroupQuant& op, const Magnitude& magnitude) {
  const double wide = magnitude.exact, largest = largest_code(op), inverse = 1.0f / largest_code(op);
  const double s = op.true_division && !op.version_2 ? wide / largest : wide * inverse;
  if (op.fused && magnitude.open) return {s, 0.0, true};
  const double reach = std::max(static_cast<double>(magnitude.most) - wide, wide - static_cast<double>(magnitude.least));
  return std::isfinite(s) ? rounded_f32({s}).widened(op.fused ? reach / largest : 0.0) : Bounded{s};
}

/// Codes of a group whose scale is no power of two: version 2 makes them of the magnitude, version 1 of the scale.
void put_plain_codes(const GroupQuant& op, const GoldenOutput& codes, std::int64_t first, Group group, float amax, float scale) {
  const double factor = op.version_2 ? static_cast<double>(largest_code(op)) / amax : 1.0 / static_cast<double>(scale);
  put_codes(op, codes, first, group, factor, code_units);
}

void record_byte(ReferenceOutput& record, std::int64_t at, std::uint8_t byte, bool open) {
  record.exact[static_cast<std::size_t>(at)] = quant::ue8m0_value(byte);
  record.slack[static_cast<std::size_t>(at)] = 0;
  record.unspecified[static_cast<std::size_t>(at)] = open ? 1 : 0;
}
ReferenceOutput* record_of_bytes(const GroupQuant& op, Reference* reference) {
  if (reference == nullptr) return nullptr;
  ReferenceOutput& record = reference->output("output_s", row_count(op.output_s) * 4 * op.output_s.size(-1));
  record.unspecified.resize(record.exact.size());
  return &record;
}

/// A row that is not there: zeros.
void clear_row(const GroupQuant& op, std::int64_t m) {
  std::fill_n(op.output_q.as<std::uint8_t>() + m * op.width(), op.width(), std::uint8_t{0});
  Words(op.output_s).clear(m);
}
void golden_row_left_out(const GroupQuant& op, std::int64_t m, const GoldenOutput& codes, ReferenceOutput* record) {
  clear_row(op, m);
  for (std::int64_t k = 0; k < op.width(); ++k) codes.leave_open(m * op.width() + k);
  const std::int64_t bytes = Words(op.output_s).bytes();
  for (std::int64_t g = 0; g < bytes && record != nullptr; ++g) record_byte(*record, m * bytes + g, 0, true);
}

void golden_row_of_powers(const GroupQuant& op, std::int64_t m, std::span<const Bounded> row, GroupMaximum maximum,
                          const GoldenOutput& codes, ReferenceOutput* record) {
  const Words words(op.output_s);
  words.clear(m);
  const auto size = static_cast<std::size_t>(op.group_size);
  for (std::int64_t g = 0; g < words.bytes(); ++g) {
    if (g >= op.groups()) {
      if (record != nullptr) record_byte(*record, m * words.bytes() + g, 0, !op.version_2);
      continue;
    }
    const Group group = row.subspan(static_cast<std::size_t>(g) * size, size);
    const std::int64_t first = m * op.width() + g * op.group_size;
    const Magnitude amax = magnitude_of(op, group, maximum);
    const bool open = amax.open || !std::isfinite(amax.most);
    const int e = open ? 0 : exponents_of(op, amax).golden;
    words.put(m, g, static_cast<std::uint8_t>(e + 127));
    if (record != nullptr) record_byte(*record, m * words.bytes() + g, static_cast<std::uint8_t>(e + 127), open);
    if (open) {
      put_open_codes(codes, first, group);
    } else {
      put_codes(op, codes, first, group, std::ldexp(1.0, -e), 0.0);
    }
  }
}

/// The exponent that the actual codes of a group were made with, as far as one that may be explains them: the one that was stored, where
/// codes (zeros, say) leave a choice.
int exponent_behind(const GroupQuant& actual, std::int64_t first, Group group, const Exponents& e) {
  const int stored = Words(actual.output_s).at(first / actual.width(), first % actual.width() / actual.group_size) - 127;
  const auto* const codes = actual.output_q.as<std::uint8_t>() + first;
  const auto explains = [&](int candidate) {
    for (std::size_t k = 0; k < group.size(); ++k)
      if (!may_be(actual, scaled(group[k], std::ldexp(1.0, -candidate), 0.0), codes[k])) return false;
    return true;
  };
  if (e.least == e.most) return e.golden;
  if (e.least <= stored && stored <= e.most && explains(stored)) return stored;
  if (explains(e.golden)) return e.golden;
  for (int candidate = e.least; candidate <= e.most; ++candidate)
    if (explains(candidate)) return candidate;
  return e.golden;
}

void condition_powers(const GroupQuant& actual, std::int64_t m, std::span<const Bounded> row, const GoldenOutput& codes,
                      ReferenceOutput& record) {
  const auto size = static_cast<std::size_t>(actual.group_size);
  for (std::int64_t g = 0; g < actual.groups(); ++g) {
    const Group group = row.subspan(static_cast<std::size_t>(g) * size, size);
    const Magnitude amax = magnitude_of(actual, group, quant::amax);
    if (amax.open || !std::isfinite(amax.most)) continue;
    const Exponents e = exponents_of(actual, amax);
    const std::int64_t first = m * actual.width() + g * actual.group_size;
    const int behind = exponent_behind(actual, first, group, e);
    if (behind == e.golden) continue;
    put_codes(actual, codes, first, group, std::ldexp(1.0, -behind), 0.0);
    record_byte(record, m * Words(actual.output_s).bytes() + g, static_cast<std::uint8_t>(behind + 127), false);
  }
}

void condition_scales(const GroupQuant& actual, std::int64_t m, std::span<const Bounded> row, const GoldenOutput& codes) {
  const auto size = static_cast<std::size_t>(actual.group_size);
  for (std::int64_t g = 0; g < actual.groups(); ++g) {
    const Group group = row.subspan(static_cast<std::size_t>(g) * size, size);
    const Magnitude amax = magnitude_of(actual, group, quant::amax);
    const Bounded scale = plain_scale(actual, amax);
    const auto stored = static_cast<float>(quant::get(actual.output_s, m * actual.groups() + g));
    if (stored == static_cast<float>(scale.exact) || !std::isfinite(scale.exact)) continue;
    if (stored < static_cast<float>(scale.exact - scale.slack) || stored > static_cast<float>(scale.exact + scale.slack)) continue;
    put_plain_codes(actual, codes, m * actual.width() + g * actual.group_size, group, amax.exact, stored);
  }
}

[[noreturn]] void refuse(ErrorCode code, const char* argument, const std::string& message) {
  throw Error(code, "", argument, message);
}

}  // namespace

float largest_value_of_group(std::span<const float> group) {
  return std::max(0.0f, quant::largest_value(group));
}
float largest_of_half_group(std::span<const float> group) {
  return quant::amax(group.first((group.size() + 1) / 2));
}

void golden_group_quant(const GroupQuant& op, GroupMaximum maximum, const Exec& exec, Reference* reference) {
  const GoldenOutput codes(op.output_q, reference, "output_q");
  codes.make_open();
  const Values values(op, exec);
  const auto each_row = [&](const auto& body) {
    parallel_for(exec.threads, row_count(op.output_q), static_cast<double>(op.width()), [&](std::int64_t m) { body(m, values.row(m)); });
  };
  if (op.powers) {
    ReferenceOutput* const record = record_of_bytes(op, reference);
    return each_row([&](std::int64_t m, const std::vector<Bounded>& row) {
      op.has_row(m) ? golden_row_of_powers(op, m, row, maximum, codes, record) : golden_row_left_out(op, m, codes, record);
    });
  }
  const GoldenOutput scales(op.output_s, reference, "output_s");
  const auto size = static_cast<std::size_t>(op.group_size);
  scales.make_open();
  each_row([&](std::int64_t m, const std::vector<Bounded>& row) {
    for (std::int64_t g = 0; g < op.groups(); ++g) {
      const Group group = std::span(row).subspan(static_cast<std::size_t>(g) * size, size);
      const std::int64_t first = m * op.width() + g * op.group_size;
      const Magnitude amax = magnitude_of(op, group, maximum);
      const Bounded scale = plain_scale(op, amax);
      if (!op.has_row(m)) {
        scales.leave_open(m * op.groups() + g);
        put_open_codes(codes, first, group);
        continue;
      }
      scales.put(m * op.groups() + g, scale);
      scale.open ? put_open_codes(codes, first, group)
                 : put_plain_codes(op, codes, first, group, amax.exact, static_cast<float>(scale.exact));
    }
  });
}

void condition_group_quant(const GroupQuant& actual, const Exec& exec, Reference& reference) {
  if (!actual.powers && actual.version_2) return;  // codes are made of the magnitude
  const Tensor scratch = actual.output_q.clone();
  const GoldenOutput codes(scratch, &reference, "output_q");
  codes.make_open();
  const Values values(actual, exec);
  ReferenceOutput* const record = actual.powers ? record_of_bytes(actual, &reference) : nullptr;
  parallel_for(exec.threads, row_count(actual.output_q), static_cast<double>(actual.width()), [&](std::int64_t m) {
    if (!actual.has_row(m)) return;
    const std::vector<Bounded> row = values.row(m);
    record != nullptr ? condition_powers(actual, m, row, codes, *record) : condition_scales(actual, m, row, codes);
  });
}

bool exponent_too_high(const GroupQuant& actual, std::int64_t linear) {
  if (!actual.powers || actual.version_2) return false;
  const Words words(actual.output_s);
  const std::int64_t m = linear / words.bytes(), g = linear % words.bytes();
  if (g >= actual.groups()) return false;
  const std::vector<Bounded> row = Values(actual, {}).row(m);
  const auto size = static_cast<std::size_t>(actual.group_size);
  const Group group = std::span(row).subspan(static_cast<std::size_t>(g) * size, size);
  const Magnitude amax = magnitude_of(actual, group, quant::amax);
  if (!std::isfinite(amax.most)) return false;
  const int e = exponent_behind(actual, m * actual.width() + g * actual.group_size, group, exponents_of(actual, amax));
  return e < 0 && words.at(m, g) == e + 128;
}

bool inverse_flushed(const GroupQuant& actual, std::int64_t linear) {
  if (actual.powers || !actual.version_2 || quant::get(actual.output_q, linear) != 0) return false;
  const std::int64_t m = linear / actual.width(), g = linear % actual.width() / actual.group_size;
  const std::vector<Bounded> row = Values(actual, {}).row(m);
  const auto size = static_cast<std::size_t>(actual.group_size);
  return magnitude_of(actual, std::span(row).subspan(static_cast<std::size_t>(g) * size, size), quant::amax).most > 0x1p126;
}

// ---- fast

namespace {

/// Four exponents a word, the first in the low byte.
void store_words(const Tensor& output_s, std::int64_t m, std::span<const float> scales) {
  const std::int64_t words = output_s.size(-1), stride = output_s.stride(-1);
  if (words == 0) return;
  std::uint32_t* const row = output_s.as<std::uint32_t>() + output_s.offset(m * words);
  std::size_t g = 0;
  std::int64_t w = 0;
  const auto byte = [&](std::size_t i) { return std::uint32_t{quant::ue8m0_exponent_field(scales[g + i])} << (8 * i); };
  for (; g + 4 <= scales.size(); g += 4) row[w++ * stride] = byte(0) | byte(1) | byte(2) | byte(3);
  for (; w < words; ++w) {
    std::uint32_t word = 0;
    for (std::size_t i = 0; g + i < scales.size(); ++i) word |= byte(i);
    g = scales.size();
    row[w * stride] = word;
  }
}

void store_scales(const GroupQuant& op, std::int64_t m, std::span<const float> scales) {
  if (op.powers) {
    store_words(op.output_s, m, scales);
  } else if (!scales.empty()) {
    float* const row = op.output_s.as<float>() + op.output_s.offset(m * op.groups());
    const std::int64_t stride = op.output_s.stride(-1);
    for (std::size_t g = 0; g < scales.size(); ++g) row[static_cast<std::int64_t>(g) * stride] = scales[g];
  }
}

/// What a row needs beside its tensors: silu's products, the groups' largest numbers, their scales.
struct RowRoom {
  std::byte* products;  ///< and aliasing_bytes more
  std::span<float> numbers, scales;

  static std::size_t product_bytes(const GroupQuant& op) {
    return op.fused ? static_cast<std::size_t>(op.width() * (bits(op.input.dtype()) / 8) + 63) / 64 * 64 + aliasing_bytes : 0;
  }
  static std::size_t bytes(const GroupQuant& op) { return product_bytes(op) + 2 * static_cast<std::size_t>(op.groups()) * sizeof(float); }
  RowRoom(const GroupQuant& op, std::byte* scratch) : products(scratch) {
    const auto groups = static_cast<std::size_t>(op.groups());
    numbers = {reinterpret_cast<float*>(scratch + product_bytes(op)), groups};
    scales = {numbers.data() + groups, groups};
  }
};

/// silu(gate) * up of row m, and where in `room` it is.
const std::byte* multiply_by_silu(const GroupQuant& op, std::int64_t m, const Exec& exec, std::byte* room) {
  const DType type = op.input.dtype();
  const int element_bytes = bits(type) / 8;
  const std::int64_t half = op.width() * element_bytes;
  const std::byte *const gate = row_begin(op.input, m, element_bytes), *const next = next_row_begin(op.input, m, element_bytes);
  std::byte* const products = least_aliased(room, gate, gate + half);
  dispatch<ActAndMulRowKernel>(exec.isa, ActAndMulRow{.gate = gate,
                                                      .up = gate + half,
                                                      .out = products,
                                                      .next_gate = next,
                                                      .next_up = next + half,
                                                      .n = op.width(),
                                                      .type = type,
                                                      .kind = ActivationKind::silu,
                                                      .writing = Writing::cached,
                                                      .round_activation = true});
  return products;
}

void fast_row(const GroupQuant& op, std::int64_t m, Writing writing, const Exec& exec, const RowRoom& room) {
  if (!op.has_row(m)) return clear_row(op, m);
  const DType type = op.input.dtype();
  const int element_bytes = bits(type) / 8;
  const GroupRow row = op.fused ? GroupRow{multiply_by_silu(op, m, exec, room.products), op.groups(), op.group_size, type, nullptr, writing}
                                : GroupRow{row_begin(op.input, m, element_bytes),      op.groups(), op.group_size, type,
                                           next_row_begin(op.input, m, element_bytes), writing};
  dispatch<GroupMaximaKernel>(exec.isa, row, room.numbers.data());
  quant::group_scales(room.numbers, largest_code(op), recipe_of(op), room.scales);
  store_scales(op, m, room.scales);
  dispatch<GroupCodesKernel>(exec.isa, row, room.numbers.data(), op.integers() ? GroupCode::i8_cut : GroupCode::e4m3,
                             op.output_q.as<std::uint8_t>() + m * op.width());
}

}  // namespace

void fast_group_quant(const GroupQuant& op, const Exec& exec) {
  const std::int64_t rows = row_count(op.output_q);
  // Rows that a mask leaves out end no run of streamed ones.
  const bool streamed = !op.masked() && worth_streaming(op.output_q);
  const Work work(exec, rows, RowRoom::bytes(op));
  const WorkRun all{rows};
  work.split({&all, 1}, static_cast<double>(op.width()) * (op.fused ? 4 : 1),
             [&](std::size_t, std::int64_t first, std::int64_t last, std::byte* scratch) {
               const RowRoom room(op, scratch);
               for (std::int64_t m = first; m < last; ++m) {
                 const Writing writing = !streamed ? Writing::cached : m + 1 < last ? Writing::streamed : Writing::streamed_last;
                 fast_row(op, m, writing, exec, room);
               }
             });
}

// ---- hopper

namespace {

std::vector<float> hopper_row(const GroupQuant& op, std::int64_t m) {
  const DType type = op.input.dtype();
  const auto width = static_cast<std::size_t>(op.width());
  std::vector<float> x(op.fused ? 2 * width : width);
  quant::to_f32(type, row_begin(op.input, m, bits(type) / 8), x.data(), static_cast<std::int64_t>(x.size()));
  if (!op.fused) return x;
  const auto rounded = [&](float value) { return static_cast<float>(quant::round_to(type, static_cast<double>(value))); };
  for (std::size_t k = 0; k < width; ++k) x[k] = rounded(rounded(hopper_silu(x[k])) * x[width + k]);
  x.resize(width);
  return x;
}

/// Whole numbers as a conversion to int makes them: cut toward zero, saturating.
std::uint32_t cut_to_int(float x) {
  if (std::isnan(x)) return 0;
  return static_cast<std::uint32_t>(static_cast<std::int32_t>(std::clamp(static_cast<double>(x), -0x1p31, 0x1p31 - 1)));
}

/// Version 1 with powers of two: what codes are divided by, and the byte that is stored.
struct ApproximatePower {
  float scale;
  std::uint8_t byte;
};
ApproximatePower approximate_power(float s) {
  const float power = hw::exp2f(std::ceil(hw::log2f(std::max(std::fabs(s), 1e-10f))));
  return {power, static_cast<std::uint8_t>(cut_to_int(hw::log2f(power)) + 127)};
}

}  // namespace

void hopper_group_quant(const GroupQuant& op, const Exec& exec) {
  const quant::GroupRecipe recipe{op.eps, op.version_2 ? quant::ScaleForm::multiply : quant::ScaleForm::divide,
                                  op.version_2 && op.powers ? quant::ScaleRule::ceil_bits : quant::ScaleRule::plain, hopper_ops};
  const float low = least_code(op), high = largest_code(op);
  parallel_for(exec.threads, row_count(op.output_q), static_cast<double>(op.width()), [&](std::int64_t m) {
    if (!op.has_row(m)) return clear_row(op, m);
    const std::vector<float> row = hopper_row(op, m);
    const Words words(op.output_s);
    if (op.powers) words.clear(m);
    std::uint8_t* code = op.output_q.as<std::uint8_t>() + m * op.width();
    for (std::int64_t g = 0; g < op.groups(); ++g) {
      const auto group = std::span(row).subspan(static_cast<std::size_t>(g * op.group_size), static_cast<std::size_t>(op.group_size));
      quant::GroupScale scale = quant::group_scale(quant::amax(group), high, recipe);
      if (!op.powers) {
        quant::set(op.output_s, m * op.groups() + g, static_cast<double>(scale.scale));
      } else if (op.version_2) {
        words.put(m, g, quant::ue8m0_exponent_field(scale.scale));
      } else {
        const ApproximatePower power = approximate_power(scale.scale);
        words.put(m, g, power.byte);
        scale.operand = power.scale;
      }
      for (const float x : group) {
        const float v = quant::scaled_value(x, scale, recipe);
        *code++ = op.integers() ? static_cast<std::uint8_t>(quant::to_int8_truncate(v))
                                : quant::to_e4m3_satfinite(quant::clamp_low_first(v, low, high));
      }
    }
  });
}

// ---- arguments

std::optional<Refusal> group_quant_unsupported(const GroupQuant& op, Mode mode) {
  if (mode == Mode::hopper && op.true_division && !op.version_2)
    return Refusal{"divide", "'ieee' has no hopper mode: builds for the H200 use fast math"};
  return {};
}

void check_group_quant(const GroupQuant& op) {
  const std::string size = std::to_string(op.group_size);
  if (op.width() % op.group_size != 0)
    refuse(ErrorCode::bad_shape, "input",
           "has rows of " + std::to_string(op.width()) + " elements to quantize, expected a multiple of group_size = " + size);
  if (op.group_size % 16 != 0) refuse(ErrorCode::bad_value, "group_size", "is " + size + ", expected a multiple of 16");
  const double low = op.integers() ? -128.0 : -quant::e4m3_max, high = op.integers() ? 127.0 : quant::e4m3_max;
  const auto whole = [](double x) { return std::to_string(static_cast<std::int64_t>(x)); };
  const std::string codes = " for " + std::string(name(op.output_q.dtype())) + " codes";
  if (op.low != low) refuse(ErrorCode::bad_value, "fp8_min", "is " + to_string(AttrValue(op.low)) + ", expected " + whole(low) + codes);
  if (op.high != high) refuse(ErrorCode::bad_value, "fp8_max", "is " + to_string(AttrValue(op.high)) + ", expected " + whole(high) + codes);
  const DType scale_type = op.powers ? i32 : f32;
  if (op.output_s.dtype() != scale_type)
    refuse(ErrorCode::bad_dtype, "output_s",
           "has dtype " + std::string(name(op.output_s.dtype())) + ", expected " + std::string(name(scale_type)) +
               " with scale_ue8m0=" + (op.powers ? "true" : "false"));
  if (op.fused && !(op.version_2 && op.powers))
    refuse(ErrorCode::bad_value, "fuse_silu_and_mul", "is true, expected false unless enable_v2 and scale_ue8m0 are true");
  if (op.masked()) {
    const std::int64_t experts = op.masked_m->size(0), rows = row_count(op.output_q);
    if (!op.fused) refuse(ErrorCode::bad_value, "masked_m", "is given, expected fuse_silu_and_mul=true with it");
    if (experts == 0 || rows % experts != 0)
      refuse(ErrorCode::bad_shape, "masked_m",
             "has " + std::to_string(experts) + " experts, expected a number that divides the rows of input, " + std::to_string(rows));
    if (op.groups() % 16 != 0)
      refuse(ErrorCode::bad_shape, "input",
             "has " + std::to_string(op.groups()) + " groups a row, expected a multiple of 16 with masked_m");
  }
  if (!op.version_2) return;
  if (op.input.dtype() == f32) refuse(ErrorCode::bad_dtype, "input", "has dtype f32, expected one of bf16, f16 with enable_v2=true");
  if (op.group_size != 16 && op.group_size != 32 && op.group_size != 64 && op.group_size != 128)
    refuse(ErrorCode::bad_value, "group_size", "is " + size + ", expected 16, 32, 64 or 128 with enable_v2=true");
  if (op.eps != 1e-10f)
    refuse(ErrorCode::bad_value, "eps", "is " + to_string(AttrValue(double{op.eps})) + ", expected 1e-10 with enable_v2=true");
}

}  // namespace dodona::ops
