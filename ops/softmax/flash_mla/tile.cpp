#include "ops/softmax/flash_mla/tile.h"

#include <cmath>
#include <cstring>

#include "ops/softmax/layouts/mla_decode.h"
#include "quant/element.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

namespace hw = quant::hopper;

constexpr std::int64_t block = flash_mla_block, half = mla_latent / 2;

}  // namespace

float flash_mla_max(float a, float b) {
  a = hw::ftz(a), b = hw::ftz(b);
  if (a != a) return b;
  if (b != b) return a;
  return a > b || (a == b && !std::signbit(a)) ? a : b;  // +0 is the larger zero
}

FlashMlaTile::FlashMlaTile(const quant::tensor_core::MmaSpec& unit, DType type, const std::vector<const std::byte*>& queries, Isa isa)
    : unit_(unit), type_(type), bytes_(bits(type) / 8), rows_(static_cast<std::int64_t>(queries.size())), isa_(isa) {
  for (const bool turned : {false, true})
    operands_.emplace_back(unit_, type_, gathered(queries.data(), rows_, turned).data(), rows_, mla_width, mla_width, isa_);
}

std::vector<std::byte> FlashMlaTile::gathered(const std::byte* const* from, std::int64_t count, bool turned) const {
  const auto bytes = static_cast<std::size_t>(bytes_), row = static_cast<std::size_t>(mla_width) * bytes;
  const std::size_t first = turned ? static_cast<std::size_t>(half) * bytes : 0;
  std::vector<std::byte> rows(static_cast<std::size_t>(count) * row);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    if (from[i] == nullptr) continue;
    std::memcpy(rows.data() + i * row, from[i] + first, row - first);
    std::memcpy(rows.data() + (i + 1) * row - first, from[i], first);
  }
  return rows;
}

FlashMlaRows FlashMlaTile::scores(const FlashMlaKeys& keys, bool turned) const {
  FlashMlaRows sums = numbers(block);
  const std::vector<std::byte> rows = gathered(keys.data(), block, turned);
  accumulate(operands_[turned ? 1 : 0], MmaColumns(unit_, type_, rows.data(), block, mla_width, mla_width, isa_), 0, mla_width, sums.data(),
             block);
  return sums;
}

void FlashMlaTile::add_values(FlashMlaRows& sums, const FlashMlaRows& weights, const FlashMlaKeys& keys, std::int64_t column,
                              std::int64_t width) const {
  const auto bytes = static_cast<std::size_t>(bytes_);
  std::vector<std::byte> codes(weights.size() * bytes), values(static_cast<std::size_t>(width * block) * bytes);
  quant::from_f32(type_, weights.data(), codes.data(), static_cast<std::int64_t>(weights.size()));
  const auto transpose = [&]<class Code>(Code*) {
    auto* const to = reinterpret_cast<Code*>(values.data());
    for (std::int64_t t = 0; t < block; ++t) {
      const auto* const from = reinterpret_cast<const Code*>(keys[static_cast<std::size_t>(t)]);
      if (from == nullptr) continue;
      for (std::int64_t d = 0; d < width; ++d) to[d * block + t] = from[column + d];
    }
  };
  bytes_ == 1 ? transpose(static_cast<std::uint8_t*>(nullptr)) : transpose(static_cast<std::uint16_t*>(nullptr));
  accumulate(MmaRows(unit_, type_, codes.data(), rows_, block, block, isa_),
             MmaColumns(unit_, type_, values.data(), width, block, block, isa_), 0, block, sums.data(), width);
}

void flash_mla_scale(FlashMlaRows& numbers, const FlashMlaRows& factors) {
  const std::size_t width = numbers.size() / factors.size();
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = hw::mul(numbers[i], factors[i / width]);
}

FlashMlaRows flash_mla_weigh(FlashMlaRows& scores, FlashMlaRows& largest, float slog, float lowest) {
  FlashMlaRows factors(largest.size());
  for (std::size_t r = 0; r < largest.size(); ++r) {
    float* const row = scores.data() + r * static_cast<std::size_t>(block);
    float top = lowest;
    for (std::int64_t t = 0; t < block; ++t) top = flash_mla_max(top, row[t]);
    const float before = largest[r];
    largest[r] = flash_mla_max(hw::mul(top, slog), before);
    factors[r] = hw::ex2(hw::sub(before, largest[r]));
    for (std::int64_t t = 0; t < block; ++t) row[t] = hw::ex2(hw::fma(row[t], slog, -largest[r]));
  }
  return factors;
}

float flash_mla_quad(const FlashMlaRows& sums, std::int64_t row) {
  const float* const s = sums.data() + 4 * row;
  return hw::add(hw::add(s[0], s[1]), hw::add(s[2], s[3]));
}

}  // namespace dodona::ops
