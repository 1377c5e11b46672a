#include "ops/schemes/whole_moe.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>

#include "core/fixed_math.h"
#include "core/threads.h"
#include "dodona/error.h"
#include "ops/base/packed_expert.h"
#include "ops/rows/act_and_mul_row.h"
#include "ops/rows/silu.h"
#include "ops/rows/sum_rows.h"
#include "ops/rows/term_sums.h"
#include "ops/sums/open_rows.h"
#include "ops/sums/products.h"
#include "ops/sums/products_gpu.h"
#include "ops/tiles/panel.h"
#include "ops/tiles/panel_i8.h"
#include "quant/hopper/fast_math.h"
#include "quant/swizzle.h"

namespace dodona::ops {

const std::string_view whole_moe_contract = R"(
For each token and each slot whose expert is local: [u; g] = W1 x, rows of up before rows of gate; h = silu(g) * u, or with alpha, beta
and limit: g' = min(g, limit), u' = clamp(u, -limit, limit), h = g' / (1 + exp(-alpha g')) * (u' + beta), fp32; y = W2 h; output = rn of
the sum over slots of weight * y in fp32. Slots of experts elsewhere add nothing. Budget: that of the sums; silu as in silu_and_mul, and
what is open of g and u carried through it; of numbers that are quantized again, the farthest that any number within reach becomes under any
scale within reach, 2 ulp for divisions; that, times the magnitudes of W2's numbers, added to the second sums' own budget; the reach of
rounding y; of the sum over slots, in any order, a rounding for each. Tokens whose choice of experts the keys' intervals leave open, and
what infinities and NaN reach, are not compared.)";

namespace {

constexpr std::int64_t fp8_block = 128, fp4_block = 16, block_bytes = 128;

/// The rows of one local expert, sorted.
struct Group {
  std::int64_t expert, first;
  std::vector<std::int64_t> pairs;  ///< token * slots + slot

  std::int64_t rows() const { return static_cast<std::int64_t>(pairs.size()); }
};

std::int64_t slots_of(const WholeMoe& moe) {
  return moe.routes.empty() ? 0 : static_cast<std::int64_t>(moe.routes.front().experts.size());
}

/// Experts ascending, those without rows left out.
std::vector<Group> groups_of(const WholeMoe& moe) {
  const std::int64_t slots = slots_of(moe);
  std::vector<Group> all(static_cast<std::size_t>(moe.local_experts()));
  for (std::size_t t = 0; t < moe.routes.size(); ++t)
    for (std::size_t k = 0; k < moe.routes[t].experts.size(); ++k) {
      const std::int64_t expert = moe.routes[t].experts[k] - moe.first_expert;
      if (expert >= 0 && expert < moe.local_experts())
        all[static_cast<std::size_t>(expert)].pairs.push_back(static_cast<std::int64_t>(t) * slots + static_cast<std::int64_t>(k));
    }
  std::vector<Group> groups;
  std::int64_t first = 0;
  for (std::size_t e = 0; e < all.size(); ++e) {
    if (all[e].pairs.empty()) continue;
    all[e].expert = static_cast<std::int64_t>(e);
    all[e].first = first;
    first += all[e].rows();
    groups.push_back(std::move(all[e]));
  }
  return groups;
}

const Bounded& weight_of(const WholeMoe& moe, std::int64_t pair) {
  const std::int64_t slots = slots_of(moe);
  return moe.routes[static_cast<std::size_t>(pair / slots)].weights[static_cast<std::size_t>(pair % slots)];
}

DType code_of(MoeNumbers numbers) {
  switch (numbers) {
    case MoeNumbers::bf16: return DType::bf16;
    case MoeNumbers::f16: return DType::f16;
    case MoeNumbers::nvfp4: return DType::f4_e2m1;
    default: return DType::f8_e4m3;
  }
}

/// Rows as the products take them: codes without gaps, scales row by row.
struct SortedRows {
  DType type{};
  std::int64_t count = 0, k = 0, block = 0;
  DType scale_type = DType::f32;
  std::vector<std::byte> codes, scales;

  SortedRows(DType code, DType scale, std::int64_t block_size, std::int64_t rows, std::int64_t width)
      : type(code), count(rows), k(width), block(block_size), scale_type(scale) {
    codes.resize(static_cast<std::size_t>(rows * row_bytes()));
    // Scales of no numbers are scales all the same.
    if (block > 0) scales.resize(static_cast<std::size_t>(std::max<std::int64_t>(1, rows * scale_bytes())));
  }
  std::int64_t row_bytes() const { return k * bits(type) / 8; }
  std::int64_t scale_bytes() const { return block > 0 ? k / block * bits(scale_type) / 8 : 0; }
  std::byte* row(std::int64_t i) { return codes.data() + i * row_bytes(); }
  std::byte* scale_row(std::int64_t i) { return scales.data() + i * scale_bytes(); }

  Operand operand(const Group& group) const {
    Operand rows{.type = type,
                 .codes = codes.data() + group.first * row_bytes(),
                 .count = group.rows(),
                 .k = k,
                 .stride = k,
                 .scales = {},
                 .zeros = {}};
    if (block > 0)
      rows.scales = {
          .type = scale_type, .data = scales.data() + group.first * scale_bytes(), .k = block, .line_stride = k / block, .k_stride = 1};
    return rows;
  }
};

SortedRows room_for(MoeNumbers numbers, std::int64_t rows, std::int64_t k) {
  const bool tiles = numbers == MoeNumbers::nvfp4;
  return {code_of(numbers), tiles ? DType::f8_e4m3 : DType::f32,
          tiles                               ? fp4_block
          : numbers == MoeNumbers::fp8_blocks ? fp8_block
                                              : 0,
          rows, k};
}
SortedRows room_for(const Requantizer& becomes, std::int64_t rows, std::int64_t k) {
  return {becomes.code, becomes.scale, becomes.group, rows, k};
}

/// One number for all experts, or each its own; 1 where there is none.
float encode_scale_of(const Tensor& scales, std::int64_t expert) {
  return scales.defined() ? scales.as<float>()[scales.elements() == 1 ? 0 : expert] : 1.0f;
}

void copy_row(const WholeMoe& moe, std::int64_t token, std::int64_t row, SortedRows& sorted) {
  std::memcpy(sorted.row(row), moe.x.as<std::byte>() + token * sorted.row_bytes(), static_cast<std::size_t>(sorted.row_bytes()));
  if (sorted.scale_type != DType::f32) {
    std::memcpy(sorted.scale_row(row), moe.x_scales.as<std::byte>() + token * sorted.scale_bytes(),
                static_cast<std::size_t>(sorted.scale_bytes()));
  } else if (sorted.block > 0) {
    auto* const scales = reinterpret_cast<float*>(sorted.scale_row(row));
    for (std::int64_t b = 0; b < sorted.k / sorted.block; ++b) scales[b] = moe.x_scales.as<float>()[b * moe.tokens() + token];
  }
}

/// Quantizes a token for an expert. With `open`, how far honest implementations' numbers may lie from these.
void quantize_token(const WholeMoe& moe, std::int64_t expert, std::int64_t token, std::int64_t row, SortedRows& sorted, double* open,
                    const Exec& exec) {
  std::vector<float> x(static_cast<std::size_t>(sorted.k));
  quant::to_f32(moe.x.dtype(), moe.x.as<std::byte>() + token * sorted.k * bits(moe.x.dtype()) / 8, x.data(), sorted.k);
  Requantizer becomes = moe.scheme.rows_become;
  becomes.encode_scale = encode_scale_of(moe.rows_encode, expert);
  becomes.approximate = exec.mode == Mode::hopper;
  if (open == nullptr) {
    return requantize(becomes, std::span<const float>(x), RequantizedFloats{.codes = sorted.row(row), .scales = sorted.scale_row(row)},
                      exec.isa);
  }
  std::vector<Bounded> exact;
  for (const float value : x) exact.push_back({static_cast<double>(value)});
  requantize(becomes, exact, RequantizedRow{.codes = sorted.row(row), .scales = sorted.scale_row(row), .open = open + row * sorted.k});
}

/// The tokens of each expert's rows. `open`, which is filled where tokens are quantized here: golden mode's, see quantize_token.
SortedRows gather(const WholeMoe& moe, const std::vector<Group>& groups, std::vector<double>* open, const Exec& exec) {
  const std::int64_t count = groups.empty() ? 0 : groups.back().first + groups.back().rows(), slots = slots_of(moe);
  SortedRows sorted = room_for(moe.scheme.numbers, count, moe.first.k);
  const bool comes_quantized = moe.scheme.rows_become.keeps();
  if (open != nullptr && !comes_quantized) open->resize(static_cast<std::size_t>(count * moe.first.k));
  for (const Group& group : groups)
    parallel_for(exec.threads, group.rows(), 4.0 * static_cast<double>(moe.first.k), [&](std::int64_t i) {
      const std::int64_t token = group.pairs[static_cast<std::size_t>(i)] / slots, row = group.first + i;
      if (comes_quantized) {
        copy_row(moe, token, row, sorted);
      } else {
        quantize_token(moe, group.expert, token, row, sorted, open != nullptr ? open->data() : nullptr, exec);
      }
    });
  return sorted;
}

/// The stored row of each plain row.
std::vector<std::int64_t> stored_rows(const MoeMatrix& matrix) {
  std::vector<std::int64_t> at(static_cast<std::size_t>(matrix.n));
  for (std::int64_t r = 0; r < matrix.n; ++r) at[static_cast<std::size_t>(plain_row(matrix, r))] = r;
  return at;
}

/// One expert's weight, its rows as they are stored. Blocks along K are put together.
struct Weight {
  Tensor whole;
  const std::byte* codes;
};
Weight weight_of(const MoeMatrix& matrix, std::int64_t expert, DType type) {
  const std::int64_t row_bytes = matrix.k * bits(type) / 8;
  const std::byte* const stored = matrix.codes.as<std::byte>() + expert * matrix.n * row_bytes;
  if (!matrix.block_major) return {{}, stored};
  Weight weight{Tensor::uninitialized(DType::u8, {matrix.n, row_bytes}), nullptr};
  auto* const to = weight.whole.as<std::byte>();
  for (std::int64_t b = 0; b < row_bytes / block_bytes; ++b)
    for (std::int64_t r = 0; r < matrix.n; ++r)
      std::memcpy(to + r * row_bytes + b * block_bytes, stored + (b * matrix.n + r) * block_bytes, static_cast<std::size_t>(block_bytes));
  weight.codes = to;
  return weight;
}

/// Where an expert's packed numbers begin; nullptr where they are raw.
const std::byte* packed_codes(const MoeMatrix& matrix, std::int64_t expert, std::int64_t rows) {
  return matrix.packed.parts == nullptr ? nullptr : packed_expert(*matrix.packed.parts, expert, rows) + matrix.packed.codes_at;
}

const void* scales_of(const MoeMatrix& matrix, std::int64_t expert) {
  if (!matrix.scales.defined()) return nullptr;
  if (matrix.scales.data() == nullptr && matrix.scales.elements() > 0) return matrix.packed.parts->part(expert) + matrix.packed.scales_at;
  constexpr static std::byte none{};
  if (matrix.scales.elements() == 0) return &none;
  const std::int64_t each = matrix.scales.elements() / matrix.scales.size(0);
  return matrix.scales.as<std::byte>() + expert * each * bits(matrix.scales.dtype()) / 8;
}

/// The weight's rows; their scales may be (a mistake of kernels) another expert's.
Operand operand_of(const WholeMoe& moe, const MoeMatrix& matrix, const Weight& weight, std::int64_t scales_expert) {
  const DType type = code_of(moe.scheme.numbers);
  Operand columns{.type = type, .codes = weight.codes, .count = matrix.n, .k = matrix.k, .stride = matrix.k, .scales = {}, .zeros = {}};
  if (moe.scheme.numbers == MoeNumbers::fp8_blocks)
    columns.scales = {
        .data = scales_of(matrix, scales_expert), .lines = fp8_block, .k = fp8_block, .line_stride = matrix.k / fp8_block, .k_stride = 1};
  if (moe.scheme.numbers == MoeNumbers::nvfp4) columns.scales = nvfp4_scales(scales_of(matrix, scales_expert), matrix.k);
  if (!matrix.scales_in_tiles) {
    columns.scales.layout = quant::ScaleLayout::linear;
    columns.scales.line_stride = matrix.k / fp4_block, columns.scales.k_stride = 1;
  }
  return columns;
}

float factor_of(const Tensor& factors, std::int64_t expert) {
  return factors.defined() ? factors.as<float>()[expert] : 1.0f;
}

/// What the sums of a product are multiplied with, by stored column; empty where that is 1.
std::vector<float> first_factors(const WholeMoe& moe, std::int64_t expert, bool shuffled = true) {
  if (!moe.gate_factor.defined() && !moe.up_factor.defined()) return {};
  const float gate = factor_of(moe.gate_factor, expert), up = moe.factor_after_rounding ? gate : factor_of(moe.up_factor, expert);
  std::vector<float> factors(static_cast<std::size_t>(moe.first.n));
  for (std::int64_t r = 0; r < moe.first.n; ++r)
    factors[static_cast<std::size_t>(r)] = (shuffled ? plain_row(moe.first, r) : r) < moe.width() ? up : gate;
  return factors;
}
std::vector<float> second_factors(const WholeMoe& moe, std::int64_t expert) {
  if (!moe.out_factor.defined()) return {};
  return std::vector<float>(static_cast<std::size_t>(moe.second.n), factor_of(moe.out_factor, expert));
}
const float* bias_of(const Tensor& bias, std::int64_t expert) {
  return bias.defined() ? bias.as<float>() + expert * bias.size(1) : nullptr;
}
/// What is added to sums.
const float* bias_before(const WholeMoe& moe, const Tensor& bias, std::int64_t expert) {
  return moe.scheme.biases_behind ? nullptr : bias_of(bias, expert);
}
/// What is added to rounded sums.
const float* bias_behind(const WholeMoe& moe, const Tensor& bias, std::int64_t expert) {
  return moe.scheme.biases_behind ? bias_of(bias, expert) : nullptr;
}

Epilogue epilogue_of(const std::vector<float>& factors, const float* bias) {
  Epilogue epilogue{.factors = {}, .addend = {}, .keeps_denormals = true};
  const Term factor{DType::f32, factors.empty() ? nullptr : factors.data(), 0, 1};
  if (bias != nullptr) {
    epilogue.addend.a = {DType::f32, bias, 0, 1};
    epilogue.last = factor;
  } else if (factor.data != nullptr) {
    epilogue.factors = {{factor, {}}};
  }
  return epilogue;
}

// ---- the activation

/// min(x, limit), or with `both` clamp(x, -limit, limit): neither moves numbers apart.
Bounded limited(Bounded x, double limit, bool both) {
  x.exact = std::min(x.exact, limit);
  if (both) x.exact = std::max(x.exact, -limit);
  return x;
}

/// |silu'| on [g - reach, g + reach]: |silu''| is at most 1/2, |silu'| below 1.1.
double steepest_silu(double g, double reach) {
  const double s = fixed::sigmoid(g);
  return std::min(1.1, std::fabs(s * (1.0 + g * (1.0 - s))) + 0.5 * reach);
}

/// g / (1 + exp(-alpha g)) of an open g: silu(alpha g) / alpha.
Bounded gated(Silu silu, const Bounded& g, double alpha) {
  if (alpha == 0) return g * 0.5;
  const double x = g.exact * alpha, reach = std::fabs(alpha) * g.slack + (alpha == 1 ? 0.0 : f32_eps * std::fabs(x));
  Bounded s = silu(x);
  s.slack += reach * steepest_silu(x, reach);
  s.open = g.open || !std::isfinite(s.exact) || !std::isfinite(s.slack);
  return s * (1.0 / alpha);
}

Bounded activated(const WholeMoe& moe, Silu silu, std::int64_t expert, Bounded gate, Bounded up) {
  if (moe.limit.defined()) {
    gate = limited(gate, factor_of(moe.limit, expert), false);
    up = limited(up, factor_of(moe.limit, expert), true);
  }
  if (moe.beta.defined()) up = rounded_f32(up + Bounded{static_cast<double>(factor_of(moe.beta, expert))});
  return rounded_f32(gated(silu, gate, factor_of(moe.alpha, expert)) * up);
}

float activated(const WholeMoe& moe, std::int64_t expert, float gate, float up) {
  const float alpha = factor_of(moe.alpha, expert);
  if (moe.limit.defined()) {
    const float limit = factor_of(moe.limit, expert);
    gate = std::min(gate, limit);
    up = std::max(std::min(up, limit), -limit);
  }
  if (moe.beta.defined()) up += factor_of(moe.beta, expert);
  return gate * static_cast<float>(fixed::sigmoid(static_cast<double>(alpha * gate))) * up;
}

/// The same by fast-math builds on an H200.
float activated_on_hopper(const WholeMoe& moe, std::int64_t expert, float gate, float up) {
  namespace gpu = quant::hopper;
  if (!moe.alpha.defined() && !moe.beta.defined() && !moe.limit.defined()) return gpu::mul(hopper_silu(gate), up);
  if (moe.limit.defined()) {
    const float limit = factor_of(moe.limit, expert);
    gate = std::min(gate, limit);
    up = std::max(std::min(up, limit), -limit);
  }
  const float beta = moe.beta.defined() ? factor_of(moe.beta, expert) : 0.0f;
  const float sigmoid = gpu::rcp(gpu::add(1.0f, gpu::expf(-gpu::mul(gate, factor_of(moe.alpha, expert)))));
  return gpu::mul(gpu::mul(gate, sigmoid), gpu::add(up, beta));
}

/// Upstream's reference of fp8 with blocks quantizes nothing.
Requantizer activated_become(const WholeMoe& moe, std::int64_t expert) {
  if (moe.like_reference && moe.scheme.numbers == MoeNumbers::fp8_blocks) return kept_in_f32;
  Requantizer becomes = moe.scheme.activated_become;
  becomes.encode_scale = encode_scale_of(moe.activated_encode, expert);
  return becomes;
}
Requantizer sums_become(const WholeMoe& moe) {
  return moe.like_reference ? kept_in_f32 : moe.scheme.sums_become;
}

/// Where rows of the first product's result have gate and up of number i.
struct Halves {
  std::vector<std::int64_t> at;
  std::int64_t width;

  std::size_t up(std::int64_t i) const { return static_cast<std::size_t>(at[static_cast<std::size_t>(i)]); }
  std::size_t gate(std::int64_t i) const { return static_cast<std::size_t>(at[static_cast<std::size_t>(width + i)]); }
};
Halves halves_of(const WholeMoe& moe, bool swapped, bool shuffled = true) {
  Halves halves{stored_rows(moe.first), moe.width()};
  if (!shuffled)
    for (std::size_t i = 0; i < halves.at.size(); ++i) halves.at[i] = static_cast<std::int64_t>(i);
  if (swapped) std::rotate(halves.at.begin(), halves.at.begin() + halves.width, halves.at.end());
  return halves;
}

// ---- golden

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

  ActivatedRow(const WholeMoe& moe, Silu silu, std::int64_t expert, std::vector<Bounded> gate, std::vector<Bounded> up) {
    const Requantizer between = sums_become(moe);
    const float* bias = bias_behind(moe, moe.first_bias, expert);
    for (auto* half : {&up, &gate}) {
      if (!between.keeps()) {
        std::vector<double> values(half->size()), open(half->size());
        requantize(between, *half, {.values = values.data(), .open = open.data()});
        for (std::size_t i = 0; i < half->size(); ++i) (*half)[i] = {values[i], open[i], std::isinf(open[i])};
      }
      if (bias == nullptr) continue;
      for (Bounded& number : *half) number = rounded_f32(number + Bounded{static_cast<double>(*bias++)});
    }
    for (std::size_t i = 0; i < gate.size(); ++i) numbers.push_back(activated(moe, silu, expert, gate[i], up[i]));
    if (!moe.factor_after_rounding) return;
    const double factor = static_cast<double>(factor_of(moe.up_factor, expert)) / static_cast<double>(factor_of(moe.gate_factor, expert));
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
    const Weight weight = weight_of(moe_.first, group.expert, rows.type);
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
        up.push_back(sums.at(row + halves_.up(j)));
        if (moe_.weighted_input) gate.back() = product_f32(gate.back(), weight), up.back() = product_f32(up.back(), weight);
      }
      const ActivatedRow activated(moe_, silu, group.expert, std::move(gate), std::move(up));
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
    const Weight weight = weight_of(moe_.second, group.expert, x.type);
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
    if (moe_.results.defined()) results_.put(place * moe_.hidden() + h, y);
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
  bool plain_;
  Halves halves_;
  std::vector<std::int64_t> columns_;
  std::vector<Combined> sums_;
};

void put_permutation(const WholeMoe& moe, Reference* reference) {
  if (!moe.result_of_pair.defined()) return;
  const GoldenOutput out(moe.result_of_pair, reference, "expanded_idx_to_permuted_idx");
  for (std::int64_t pair = 0; pair < moe.result_of_pair.elements(); ++pair) out.put(pair, -1.0, 0.0);
  std::int64_t place = 0;
  for (const Group& group : groups_of(moe)) {
    for (std::int64_t i = 0; i < group.rows(); ++i) out.put(group.pairs[static_cast<std::size_t>(i)], static_cast<double>(place + i), 0.0);
    place += quant::align(group.rows(), moe.tile);
  }
}

void put_weights(const WholeMoe& moe, Reference* reference) {
  if (!moe.result_weights.defined()) return;
  const GoldenOutput out(moe.result_weights, reference, "expert_weights");
  out.make_open();
  for (std::int64_t pair = 0; pair < moe.result_weights.elements(); ++pair) out.put(pair, weight_of(moe, pair).widened(flush_floor));
}

// ---- fast, and on a GPU

struct RunProduct {
  const MoeMatrix& matrix;
  const SortedRows& rows;
  std::vector<std::vector<float>> factors;  ///< by group
  const Tensor& bias;
};

void multiply_on_gpu(const WholeMoe& moe, const std::vector<Group>& groups, const RunProduct& p, const Tensor& out, const Exec& exec) {
  std::vector<Weight> weights;
  std::vector<Product> products;
  for (const Group& group : groups) weights.push_back(weight_of(p.matrix, group.expert, p.rows.type));
  for (std::size_t g = 0; g < groups.size(); ++g)
    products.push_back({.a = p.rows.operand(groups[g]),
                        .b = operand_of(moe, p.matrix, weights[g], groups[g].expert),
                        .epilogue = epilogue_of(p.factors[g], bias_before(moe, p.bias, groups[g].expert)),
                        .first = groups[g].first * p.matrix.n});
  Accumulator sums = moe.scheme.sums;
  sums.parts = 1;
  gpu_products(products, sums, out, exec);
}

TileEpilogue tile_epilogue(const std::vector<float>& factors, const float* bias, const Tensor& out, bool doubled) {
  constexpr static float quarter = 0.25f;  // of products of doubled codes
  TileEpilogue e{.out_type = out.dtype(), .out = out.as<std::byte>(), .out_stride = out.size(1)};
  const auto push = [&e](const EpilogueStep& step) { e.steps[e.count++] = step; };
  if (doubled) push({.values = &quarter});
  if (bias != nullptr) push({.kind = EpilogueStep::Kind::plus, .values = bias, .column_stride = 1});
  if (!factors.empty()) push({.values = factors.data(), .column_stride = 1});
  return e;
}

/// Scales of a weight in tiles; `tiles` holds them where they are not stored so.
const std::uint8_t* tiled_scales(const MoeMatrix& matrix, std::int64_t expert, Tensor& tiles) {
  const auto* const stored = static_cast<const std::uint8_t*>(scales_of(matrix, expert));
  if (matrix.scales_in_tiles) return stored;
  const std::int64_t columns = matrix.k / fp4_block;
  tiles = Tensor(DType::u8, {quant::padded_size(quant::ScaleLayout::swizzled_128x4, matrix.n, columns).elements()});
  quant::swizzle_scales(quant::ScaleLayout::swizzled_128x4, {stored, static_cast<std::size_t>(matrix.n * columns)}, matrix.n, columns,
                        {tiles.as<std::uint8_t>(), static_cast<std::size_t>(tiles.elements())});
  return tiles.as<std::uint8_t>();
}

/// `tiles`: see tiled_scales.
I8Weights fp4_weights(const MoeMatrix& matrix, std::int64_t expert, std::int64_t rows, Tensor& tiles) {
  I8Weights weights{.n = matrix.n, .k = matrix.k};
  if (const std::byte* const packed = packed_codes(matrix, expert, rows)) {
    weights.packed = reinterpret_cast<const std::uint8_t*>(packed);
  } else {
    weights.codes = matrix.codes.as<std::uint8_t>() + expert * matrix.n * matrix.k / 2;
    weights.scales = tiled_scales(matrix, expert, tiles);
  }
  return weights;
}

void multiply_fp4(const WholeMoe& moe, const std::vector<Group>& groups, const RunProduct& p, const Tensor& out, const Exec& exec) {
  std::vector<Tensor> tiles(groups.size());
  const std::int64_t columns = quant::align(p.rows.k / fp4_block, 4);
  std::int64_t scale_rows = 0;
  std::vector<I8Group> all;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::int64_t expert = groups[g].expert;
    all.push_back({groups[g].first, groups[g].rows(), scale_rows, fp4_weights(p.matrix, expert, groups[g].rows(), tiles[g]),
                   tile_epilogue(p.factors[g], bias_before(moe, p.bias, expert), out, true)});
    scale_rows += quant::align(groups[g].rows(), 128);
  }
  const Tensor scales(DType::u8, {scale_rows, columns});
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (std::int64_t i = 0; i < groups[g].rows(); ++i)
      for (std::int64_t c = 0; c < p.rows.k / fp4_block; ++c)
        scales.as<std::byte>()[quant::scale_offset(quant::ScaleLayout::swizzled_128x4, all[g].scale_row + i, c, p.rows.k / fp4_block)] =
            p.rows.scales[static_cast<std::size_t>((groups[g].first + i) * p.rows.scale_bytes() + c)];
  i8_multiply({.format = I8Format::nvfp4,
               .groups = all,
               .rows = p.rows.count,
               .k = p.rows.k,
               .codes = reinterpret_cast<const std::uint8_t*>(p.rows.codes.data()),
               .scales = scales.as<std::uint8_t>(),
               .scale_columns = columns},
              exec);
}

bool is_fp8(DType type) {
  return type == DType::f8_e4m3;
}

/// An expert's weight as B; `weights` keeps what is put together for it.
PanelOperand panel_weight(const MoeMatrix& matrix, const Group& group, DType type, std::vector<Weight>& weights) {
  const std::byte* const packed = packed_codes(matrix, group.expert, group.rows());
  if (packed != nullptr && is_fp8(type)) return packed_operand(type, packed, matrix.k);
  const std::byte* const rows = packed != nullptr ? packed : weights.emplace_back(weight_of(matrix, group.expert, type)).codes;
  return {rows, matrix.k * bits(type) / 8, 0, type};
}

void multiply_panels(const WholeMoe& moe, const std::vector<Group>& groups, const RunProduct& p, const Tensor& out, const Exec& exec) {
  constexpr static float one = 1.0f;
  const DType type = code_of(moe.scheme.numbers);
  std::vector<Weight> weights;
  std::vector<PanelProduct> products;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::int64_t expert = groups[g].expert, first = groups[g].first;
    PanelProduct product{.m = groups[g].rows(), .n = p.matrix.n, .k = p.matrix.k};
    product.a = {p.rows.codes.data() + first * p.rows.row_bytes(), p.rows.row_bytes(), 0, p.rows.type};
    product.b = panel_weight(p.matrix, groups[g], type, weights);
    if (moe.scheme.numbers == MoeNumbers::fp8_blocks) {
      product.block = fp8_block;
      product.a_scales = {&one, 1, 0, 0};
      if (p.rows.block > 0)
        product.a_scales = {reinterpret_cast<const float*>(p.rows.scales.data() + first * p.rows.scale_bytes()), 1, p.rows.k / fp8_block,
                            1};
      product.b_scales = {static_cast<const float*>(scales_of(p.matrix, expert)), fp8_block, p.matrix.k / fp8_block, 1};
    }
    product.epilogue = tile_epilogue(p.factors[g], bias_before(moe, p.bias, expert), out.slice(0, first, first + groups[g].rows()), false);
    products.push_back(product);
  }
  panel_multiply(products, exec);
}

void multiply(const WholeMoe& moe, const std::vector<Group>& groups, const RunProduct& p, const Tensor& out, const Exec& exec) {
  if (exec.mode != Mode::fast) {
    multiply_on_gpu(moe, groups, p, out, exec);
  } else if (moe.scheme.numbers == MoeNumbers::nvfp4) {
    multiply_fp4(moe, groups, p, out, exec);
  } else {
    multiply_panels(moe, groups, p, out, exec);
  }
}

/// Gate and up of one row to what the second product takes.
void activate_row(const WholeMoe& moe, const Group& group, std::int64_t i, const Halves& halves, const float* sums, SortedRows& rows,
                  const Exec& exec) {
  const std::int64_t width = moe.width();
  const auto n = static_cast<std::size_t>(width);
  std::vector<float> gate(n), up(n), out(n);
  const float weight = moe.weighted_input ? static_cast<float>(weight_of(moe, group.pairs[static_cast<std::size_t>(i)]).exact) : 1.0f;
  for (std::int64_t j = 0; j < width; ++j) {
    const auto at = static_cast<std::size_t>(j);
    gate[at] = sums[halves.gate(j)] * weight;
    up[at] = sums[halves.up(j)] * weight;
  }
  const float* bias = bias_behind(moe, moe.first_bias, group.expert);
  for (auto* half : {&up, &gate}) {
    if (const Requantizer between = sums_become(moe); !between.keeps())
      requantize(between, std::span<const float>(*half), RequantizedFloats{.values = half->data()}, exec.isa);
    if (bias != nullptr)
      for (float& number : *half) number += *bias++;
  }
  const bool hopper = exec.mode == Mode::hopper;
  if (hopper) {
    for (std::size_t j = 0; j < n; ++j) out[j] = activated_on_hopper(moe, group.expert, gate[j], up[j]);
  } else if (moe.alpha.defined() || moe.beta.defined() || moe.limit.defined()) {
    for (std::size_t j = 0; j < n; ++j) out[j] = activated(moe, group.expert, gate[j], up[j]);
  } else {
    const ActAndMulRow row{.gate = gate.data(),
                           .up = up.data(),
                           .out = out.data(),
                           .next_gate = gate.data(),
                           .next_up = up.data(),
                           .n = width,
                           .type = DType::f32,
                           .kind = ActivationKind::silu,
                           .writing = Writing{},
                           .round_activation = false};
    dispatch<ActAndMulRowKernel>(exec.isa, row);
  }
  if (moe.factor_after_rounding) {
    const float factor = factor_of(moe.up_factor, group.expert) / factor_of(moe.gate_factor, group.expert);
    for (float& value : out) value = static_cast<float>(quant::round_to(DType::bf16, static_cast<double>(value))) * factor;
  }
  Requantizer becomes = activated_become(moe, group.expert);
  becomes.approximate = hopper;
  requantize(becomes, std::span<const float>(out),
             RequantizedFloats{.codes = rows.row(group.first + i), .scales = rows.block > 0 ? rows.scale_row(group.first + i) : nullptr},
             exec.isa);
}

/// Numbers as the type keeps them.
void narrow(DType type, std::vector<float>& numbers, std::vector<std::uint16_t>& codes) {
  codes.resize(numbers.size());
  quant::from_f32(type, numbers.data(), codes.data(), static_cast<std::int64_t>(numbers.size()));
  quant::to_f32(type, codes.data(), numbers.data(), static_cast<std::int64_t>(numbers.size()));
}

/// Results [pairs, hidden] in stored columns, weighted and added up.
void combine(const WholeMoe& moe, const std::vector<Group>& groups, const Tensor& results, const Exec& exec) {
  struct Row {
    std::int64_t at = -1;
    const float* bias = nullptr;
  };
  const std::int64_t slots = slots_of(moe), hidden = moe.hidden();
  const DType type = moe.output.dtype();
  const std::vector<std::int64_t> columns = stored_rows(moe.second);
  std::vector<Row> rows(static_cast<std::size_t>(moe.tokens() * slots));
  for (const Group& group : groups)
    for (std::int64_t i = 0; i < group.rows(); ++i)
      rows[static_cast<std::size_t>(group.pairs[static_cast<std::size_t>(i)])] = {group.first + i,
                                                                                  bias_behind(moe, moe.second_bias, group.expert)};
  parallel_for(exec.threads, moe.tokens(), 4.0 * static_cast<double>(slots * hidden), [&](std::int64_t t) {
    std::vector<float> sum(static_cast<std::size_t>(hidden), 0.0f), row(sum.size());
    std::vector<std::uint16_t> codes;
    for (std::int64_t k = 0; k < slots; ++k) {
      const auto& [from, bias] = rows[static_cast<std::size_t>(t * slots + k)];
      if (from < 0) continue;
      const float weight = moe.weighted_input ? 1.0f : static_cast<float>(weight_of(moe, t * slots + k).exact);
      quant::to_f32(results.dtype(), results.as<std::byte>() + from * hidden * bits(results.dtype()) / 8, row.data(), hidden);
      if (bias != nullptr)
        for (std::size_t h = 0; h < row.size(); ++h) row[h] += bias[h];
      if (moe.scheme.terms_in_output) {
        for (float& number : row) number *= weight;
        narrow(type, row, codes);
        for (std::size_t h = 0; h < sum.size(); ++h) sum[h] = slots == 1 ? row[h] : sum[h] + row[h];
        narrow(type, sum, codes);
      } else {
        const bool fused = exec.mode == Mode::hopper;
        for (std::size_t h = 0; h < sum.size(); ++h) sum[h] = fused ? std::fma(weight, row[h], sum[h]) : sum[h] + weight * row[h];
      }
    }
    for (std::size_t h = 0; h < sum.size(); ++h) row[h] = sum[static_cast<std::size_t>(columns[h])];
    quant::from_f32(type, row.data(), moe.output.as<std::byte>() + t * hidden * 2, hidden);
  });
}

void put_results(const WholeMoe& moe, const std::vector<Group>& groups, const Tensor& results) {
  const std::vector<std::int64_t> columns = stored_rows(moe.second);
  std::memset(moe.results.data(), 0, static_cast<std::size_t>(moe.results.elements() * 2));
  std::int64_t place = 0;
  for (const Group& group : groups) {
    for (std::int64_t i = 0; i < group.rows(); ++i)
      for (std::int64_t h = 0; h < moe.hidden(); ++h)
        quant::set(moe.results, (place + i) * moe.hidden() + h,
                   quant::get(results, (group.first + i) * moe.hidden() + columns[static_cast<std::size_t>(h)]));
    place += quant::align(group.rows(), moe.tile);
  }
}

}  // namespace

std::int64_t plain_row(const MoeMatrix& matrix, std::int64_t r) {
  if (matrix.shuffled > 0) {
    const std::int64_t in = r % matrix.shuffled;
    r = r - in + in % 8 * (matrix.shuffled / 8) + in / 8;
  }
  return matrix.alternating ? r % 2 * (matrix.n / 2) + r / 2 : r;
}

void golden_whole_moe(const WholeMoe& moe, const Exec& exec, Reference* reference, MoeMistake mistake) {
  GoldenMoe(moe, reference, mistake).run(exec);
  put_permutation(moe, reference);
  put_weights(moe, reference);
}

void run_whole_moe(const WholeMoe& moe, const Exec& exec) {
  const std::vector<Group> groups = groups_of(moe);
  const SortedRows x = gather(moe, groups, nullptr, exec);
  const Tensor sums = Tensor::uninitialized(DType::f32, {x.count, moe.first.n});
  std::vector<std::vector<float>> first, second;
  for (const Group& group : groups) first.push_back(first_factors(moe, group.expert)), second.push_back(second_factors(moe, group.expert));
  multiply(moe, groups, {moe.first, x, first, moe.first_bias}, sums, exec);

  SortedRows rows = room_for(activated_become(moe, 0), x.count, moe.width());
  const Halves halves = halves_of(moe, false);
  for (const Group& group : groups)
    parallel_for(exec.threads, group.rows(), 40.0 * static_cast<double>(moe.width()), [&](std::int64_t i) {
      activate_row(moe, group, i, halves, sums.as<float>() + (group.first + i) * moe.first.n, rows, exec);
    });
  const Tensor results = Tensor::uninitialized(moe.like_reference ? DType::f32 : moe.scheme.results, {x.count, moe.hidden()});
  multiply(moe, groups, {moe.second, rows, second, moe.second_bias}, results, exec);
  if (moe.output.defined()) combine(moe, groups, results, exec);
  if (moe.results.defined()) put_results(moe, groups, results);
  put_permutation(moe, nullptr);
  put_weights(moe, nullptr);
}

// ---- packed weights

namespace {

/// What a part begins with: how raw weights lay.
struct PackedHead {
  std::int32_t block_major, scales_in_tiles;

  bool operator==(const PackedHead&) const = default;
};
constexpr std::int64_t packed_head = 64;

PackedHead head_of(const WholeMoe& moe) {
  return {moe.first.block_major, moe.scheme.numbers == MoeNumbers::nvfp4 && moe.first.scales_in_tiles};
}

std::int64_t packed_code_bytes(const MoeMatrix& matrix, MoeNumbers numbers) {
  if (numbers == MoeNumbers::nvfp4) return i8_packed_bytes(I8Format::nvfp4, matrix.n, matrix.k);
  if (is_fp8(code_of(numbers))) return panel_packed_bytes(matrix.n, matrix.k);
  return quant::align(2 * matrix.n * matrix.k, 64);
}
/// Scales beside the packed codes, not among them.
std::int64_t packed_scale_bytes(const MoeMatrix& matrix, MoeNumbers numbers) {
  if (numbers == MoeNumbers::nvfp4 || !matrix.scales.defined() || matrix.scales.elements() == 0) return 0;
  return quant::align(matrix.scales.elements() / matrix.scales.size(0) * 4, 64);
}

/// Where the matrix begins, and the end of it: of scales those count that are packed.
std::int64_t place_packed(MoeMatrix::Packed& packed, const MoeMatrix& matrix, MoeNumbers numbers, bool with_scales, std::int64_t at) {
  packed.codes_at = at;
  packed.scales_at = at + packed_code_bytes(matrix, numbers);
  return packed.scales_at + (with_scales ? packed_scale_bytes(matrix, numbers) : 0);
}

void pack_matrix(const MoeMatrix& matrix, MoeNumbers numbers, const MoeMatrix::Packed& to, std::byte* part, const Exec& exec) {
  const DType type = code_of(numbers);
  std::byte* const codes = part + to.codes_at;
  if (numbers == MoeNumbers::nvfp4) {
    Tensor tiles;
    i8_pack(I8Format::nvfp4, fp4_weights(matrix, 0, 0, tiles), codes, exec);
    return;
  }
  const Weight weight = weight_of(matrix, 0, type);
  const std::int64_t row_bytes = matrix.k * bits(type) / 8;
  if (is_fp8(type)) {
    panel_pack({weight.codes, row_bytes, 0, type}, matrix.n, matrix.k, codes, exec);
  } else {
    std::memcpy(codes, weight.codes, static_cast<std::size_t>(matrix.n * row_bytes));
  }
  if (packed_scale_bytes(matrix, numbers) > 0)
    std::memcpy(part + to.scales_at, scales_of(matrix, 0), static_cast<std::size_t>(matrix.scales.elements() * 4));
}

}  // namespace

std::int64_t whole_moe_packed_bytes(const WholeMoe& moe) {
  MoeMatrix::Packed packed;
  const std::int64_t first = place_packed(packed, moe.first, moe.scheme.numbers, true, packed_head);
  return place_packed(packed, moe.second, moe.scheme.numbers, true, first);
}

void pack_whole_moe(const WholeMoe& moe, std::byte* part, const Exec& exec) {
  const PackedHead head = head_of(moe);
  std::memset(part, 0, static_cast<std::size_t>(whole_moe_packed_bytes(moe)));
  std::memcpy(part, &head, sizeof head);
  MoeMatrix::Packed packed;
  std::int64_t at = packed_head;
  for (const MoeMatrix* const matrix : {&moe.first, &moe.second}) {
    at = place_packed(packed, *matrix, moe.scheme.numbers, true, at);
    pack_matrix(*matrix, moe.scheme.numbers, packed, part, exec);
  }
}

void take_packed(WholeMoe& moe, const Prepared& prepared) {
  std::int64_t at = packed_head;
  for (MoeMatrix* const matrix : {&moe.first, &moe.second}) {
    matrix->packed.parts = &prepared;
    const bool with_scales = matrix->scales.defined() && matrix->scales.data() == nullptr;
    at = place_packed(matrix->packed, *matrix, moe.scheme.numbers, with_scales, at);
  }
  for (std::int64_t part = 0; part < prepared.parts(); ++part) {
    if (prepared.part(part) == nullptr) continue;
    PackedHead head{};
    std::memcpy(&head, prepared.part(part), sizeof head);
    if (head == head_of(moe)) continue;
    throw Error(ErrorCode::bad_value, "", "prepared",
                "holds weights of expert " + std::to_string(part) +
                    " that were packed in another order: packing has to be told weight_layout and arithmetic as the call is");
  }
}

double whole_moe_flops(const WholeMoe& moe) {
  double rows = 0;
  for (const Group& group : groups_of(moe)) rows += static_cast<double>(group.rows());
  return 2.0 * rows * static_cast<double>(moe.first.n * moe.first.k + moe.second.n * moe.second.k);
}

double whole_moe_bytes(const WholeMoe& moe) {
  const double number = moe.scheme.numbers == MoeNumbers::bf16 ? 2.0 : moe.scheme.numbers == MoeNumbers::nvfp4 ? 0.5625 : 1.0;
  const auto experts = static_cast<double>(groups_of(moe).size());
  return number * (experts * static_cast<double>(moe.first.n * moe.first.k + moe.second.n * moe.second.k) +
                   static_cast<double>(moe.tokens() * moe.first.k));
}

}  // namespace dodona::ops
