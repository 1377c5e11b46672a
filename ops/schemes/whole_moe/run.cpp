// Fast mode of a whole mixture of experts, and a GPU's.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "core/threads.h"
#include "ops/base/work.h"
#include "ops/schemes/whole_moe/activation.h"
#include "ops/schemes/whole_moe/outputs.h"
#include "ops/schemes/whole_moe/rows.h"
#include "ops/schemes/whole_moe/weights.h"
#include "ops/sums/products_gpu.h"
#include "ops/tiles/panel/panel.h"
#include "ops/tiles/panel_i8/panel_i8.h"
#include "quant/hopper/fast_math.h"
#include "quant/sizes.h"
#include "quant/swizzle.h"
#include "quant/weight_shuffle.h"

namespace dodona::ops::whole_moe {
namespace {

struct RunProduct {
  const MoeMatrix& matrix;
  const SortedRows& rows;
  std::vector<std::vector<float>> factors;  ///< by group
  const Tensor& bias;
};

void multiply_on_gpu(const WholeMoe& moe, const std::vector<Group>& groups, const RunProduct& p, const Tensor& out, const Exec& exec) {
  std::vector<Weight> weights;
  std::vector<Product> products;
  for (const Group& group : groups) weights.push_back(weight_of(p.matrix, group.expert, p.rows.type, exec));
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

/// An expert's weight as B, in blocks along K where it is stored so.
PanelOperand panel_weight(const MoeMatrix& matrix, const Group& group, DType type) {
  const std::byte* const packed = packed_codes(matrix, group.expert, group.rows());
  if (packed != nullptr && type == DType::f8_e4m3) return packed_operand(type, packed, matrix.k);
  return {packed != nullptr ? packed : stored_codes(matrix, group.expert, type), matrix.k * bits(type) / 8, 0, type};
}

/// Some columns of a product, all of one block of scales, whose numbers are `codes`.
PanelProduct columns_of(PanelProduct product, std::int64_t first, std::int64_t count, const std::byte* codes) {
  product.n = count;
  product.b.data = codes;
  if (product.b_scales.data != nullptr) product.b_scales.data += first / product.b_scales.together * product.b_scales.stride;
  TileEpilogue& e = product.epilogue;
  for (int i = 0; i < e.count; ++i) e.steps[i].values += first * e.steps[i].column_stride;
  e.out += first * bits(e.out_type) / 8;
  return product;
}

/// Products whose columns lie in blocks along K: few at a time, so that they are put together and multiplied in a second-level cache.
void multiply_blocks(std::span<const PanelProduct> products, const Exec& exec) {
  constexpr std::int64_t together = 32;
  std::vector<WorkRun> runs;
  std::int64_t pieces = 0, row_bytes = 0;
  for (const PanelProduct& p : products) {
    pieces += runs.emplace_back(WorkRun{quant::ceil_div(p.n, together), p.m * p.k}).pieces;
    row_bytes = std::max(row_bytes, p.b.stride);
  }
  Exec alone = exec;
  alone.threads = 1;
  const auto multiply = [&](std::size_t product, std::int64_t first, std::int64_t last, std::byte* scratch) {
    const PanelProduct& p = products[product];
    for (std::int64_t column = first * together; column < std::min(last * together, p.n); column += together) {
      const std::int64_t count = std::min(together, p.n - column);
      quant::rows_from_block_major_k({p.b.data, static_cast<std::size_t>(p.n * p.b.stride)}, p.n, p.b.stride, column, count,
                                     {scratch, static_cast<std::size_t>(count * p.b.stride)});
      panel_multiply(columns_of(p, column, count, scratch), alone);
    }
  };
  Work(exec, pieces, static_cast<std::size_t>(together * row_bytes)).split(runs, 2.0 * together, multiply);
}

void multiply_panels(const WholeMoe& moe, const std::vector<Group>& groups, const RunProduct& p, const Tensor& out, const Exec& exec) {
  constexpr static float one = 1.0f;
  const DType type = code_of(moe.scheme.numbers);
  std::vector<PanelProduct> products;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::int64_t expert = groups[g].expert, first = groups[g].first;
    PanelProduct product{.m = groups[g].rows(), .n = p.matrix.n, .k = p.matrix.k};
    product.a = {p.rows.codes.data() + first * p.rows.row_bytes(), p.rows.row_bytes(), 0, p.rows.type};
    product.b = panel_weight(p.matrix, groups[g], type);
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
  if (p.matrix.block_major && p.matrix.packed.parts == nullptr) return multiply_blocks(products, exec);
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
  const bool hopper = exec.mode == Mode::hopper;
  std::vector<float> gate(n), up(n), out(n);
  const float weight = moe.weighted_input ? static_cast<float>(weight_of(moe, group.pairs[static_cast<std::size_t>(i)]).exact) : 1.0f;
  for (std::int64_t j = 0; j < width; ++j) {
    const auto at = static_cast<std::size_t>(j);
    gate[at] = sums[halves.gate(j)] * weight;
    up[at] = halves.both ? sums[halves.up(j)] * weight : lone_factor(moe, group.expert);
  }
  const float* bias = bias_behind(moe, moe.first_bias, group.expert);
  for (auto* half : {&up, &gate}) {
    if (half == &up && !halves.both) continue;
    if (const Requantizer between = sums_become(moe); !between.keeps())
      requantize(between, std::span<const float>(*half), RequantizedFloats{.values = half->data()}, exec.isa);
    if (bias == nullptr) continue;
    for (float& number : *half) number = hopper ? quant::hopper::add(number, *bias) : number + *bias, ++bias;
  }
  if (hopper) {
    for (std::size_t j = 0; j < n; ++j) out[j] = activated_on_hopper(moe, group.expert, gate[j], up[j]);
  } else {
    activate(moe, group.expert, gate, up, out, exec.isa);
  }
  if (moe.factor_after_rounding) {
    const auto factor = static_cast<float>(factor_behind(moe, group.expert));
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

void run(const WholeMoe& moe, const Exec& exec) {
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

}  // namespace
}  // namespace dodona::ops::whole_moe

namespace dodona::ops {

void run_whole_moe(const WholeMoe& moe, const Exec& exec) {
  whole_moe::run(moe, exec);
}

}  // namespace dodona::ops
