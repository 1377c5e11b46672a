#include "ops/draws/fast_draws.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "dodona/error.h"
#include "ops/draws/above_row.h"
#include "quant/hopper/special.h"

namespace dodona::ops {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// Some elements of a row in their order, and where they stood in it.
struct Elements {
  const float* values;
  const std::int32_t* positions;  ///< null: the row itself
  std::int64_t count;

  std::int64_t position(std::int64_t i) const { return positions != nullptr ? positions[i] : i; }
};

Elements all_of(std::span<const float> row) {
  return {row.data(), nullptr, static_cast<std::int64_t>(row.size())};
}

/// Memory for what is left of a row.
struct Room {
  Scratch memory;
  std::int64_t size;

  Room(const Exec& exec, std::int64_t n) : memory(exec.scratch.take(static_cast<std::size_t>(n) * 8 + 64)), size(n) {}
  float* values() const { return memory.as<float>(); }
  std::int32_t* positions() const { return memory.as<std::int32_t>() + size; }
};

/// Those above the bar; `from` may be what an earlier call left in the room.
Elements gathered(const Elements& from, float bar, const Room& room, Isa isa) {
  std::int64_t count = 0;
  dispatch<AboveRowKernel>(isa, Gather{from.values, from.positions, from.count, bar, room.values(), room.positions(), &count});
  return {room.values(), room.positions(), count};
}

/// The place of the first element above the bar whose running sum exceeds u; of the last one above it where sums leave none; -1 for none.
std::int64_t drawn(const Elements& from, float bar, double u, std::vector<float>& sums, Isa isa) {
  sums.resize(static_cast<std::size_t>((from.count + sum_block - 1) / sum_block));
  dispatch<AboveRowKernel>(isa, BlockSums{from.values, from.count, bar, sums.data()});
  double before = 0;
  std::size_t block = 0;
  while (block < sums.size() && !(before + static_cast<double>(sums[block]) > u)) before += static_cast<double>(sums[block++]);
  const bool reached = block < sums.size();
  std::int64_t last = -1;
  if (reached) {
    const std::int64_t begin = static_cast<std::int64_t>(block) * sum_block, end = std::min(begin + sum_block, from.count);
    for (std::int64_t i = begin; i < end; ++i) {
      if (!(from.values[i] > bar)) continue;
      before += static_cast<double>(from.values[i]);
      last = i;
      if (before > u) return i;
    }
    if (last >= 0) return last;
  }
  for (std::int64_t i = from.count; i-- > 0;)
    if (from.values[i] > bar) return i;
  return -1;
}

double sum_of(const std::vector<float>& sums) {
  double sum = 0;
  for (const float block : sums) sum += static_cast<double>(block);
  return sum;
}

std::int64_t rejection(Elements from, const Acceptance& accepts, PhiloxStream stream, const Room& room, Isa isa) {
  double low = 0, high = 1, mass = 1;
  std::vector<float> sums;
  for (;;) {
    const std::int64_t place = drawn(from, float_below(low), static_cast<double>(stream.next_uniform()) * mass, sums, isa);
    if (place < 0) return place;
    const std::int64_t token = from.position(place);
    const double first = from.values[place], second = (first + high) / 2;
    std::array<Above, 2> above{};
    dispatch<AboveRowKernel>(isa, TwoBars{from.values, from.count, {static_cast<float>(first), float_below(second)}, above.data()});
    if (accepts(static_cast<std::int64_t>(above[0].count), above[0].sum)) return token;
    const bool narrowed = accepts(static_cast<std::int64_t>(above[1].count), above[1].sum);
    low = narrowed ? first : second;
    mass = above[narrowed ? 0 : 1].sum;
    if (narrowed) high = second;
    if (!(low < high)) return token;
    from = gathered(from, float_below(low), room, isa);
  }
}

bool holds_positive_below(std::span<const float> row, float bar) {
  return std::any_of(row.begin(), row.end(), [&](float x) { return x > 0 && x < bar; });
}

/// What is kept ends at `last`, with the sum of it and all above.
Renorm ends_at(std::span<const float> row, const Cut& cut, float last, double sum) {
  // Where nothing positive is left out, the course of the search says whether it found a sum to divide by.
  if (!(last > 0) || !holds_positive_below(row, last)) return exact_renorm(SortedRow(row), row, cut);
  return {static_cast<double>(std::nextafter(last, 0.0f)), {std::max(sum, 1e-8)}};
}

/// The value at which the sum of the largest meets the bound, and the sum up to there with all that equal it; 0 where it is never met.
struct Crossing {
  float value = 0;
  double sum = 0;
};

Crossing crossing_of(std::span<const float> row, double bound) {
  // Buckets of an eighth of an octave: the bits of positive floats rise with them.
  constexpr int shift = 20;
  std::vector<double> sums((std::size_t{1} << (31 - shift)) + 1, 0.0);
  const auto bucket_of = [](float x) { return std::bit_cast<std::uint32_t>(x) >> shift; };
  for (const float x : row) {
    // What is not positive adds zero to some bucket.
    const float positive = x > 0 ? x : 0.0f;
    sums[bucket_of(positive)] += static_cast<double>(positive);
  }
  double above = 0;
  std::size_t bucket = sums.size();
  while (bucket-- > 0) {
    if (sums[bucket] > 0 && (above + sums[bucket] >= bound || bound <= 0)) break;
    above += sums[bucket];
    if (bucket == 0) return {};
  }
  std::vector<float> inside;
  for (const float x : row)
    if (x > 0 && bucket_of(x) == bucket) inside.push_back(x);
  std::sort(inside.begin(), inside.end(), std::greater<>());
  double sum = above;
  for (std::size_t i = 0; i < inside.size(); ++i) {
    sum += static_cast<double>(inside[i]);
    const bool last_of_equals = i + 1 == inside.size() || inside[i + 1] != inside[i];
    if (last_of_equals && (sum >= bound || i + 1 == inside.size())) return {inside[i], sum};
  }
  return {};
}

}  // namespace

float float_below(double x) {
  const auto near = static_cast<float>(x);
  return static_cast<double>(near) > x ? std::nextafter(near, -infinity) : near;
}

float largest_of(std::span<const float> row, Isa isa) {
  std::array<float, StrideMaxima::groups> maxima;
  dispatch<AboveRowKernel>(isa, StrideMaxima{row.data(), static_cast<std::int64_t>(row.size()), maxima.data()});
  return std::max(0.0f, *std::max_element(maxima.begin(), maxima.end()));
}

void require_finite(std::span<const float> row, std::int64_t number, const char* argument) {
  if (largest_of(row, default_isa()) == infinity)
    throw Error(ErrorCode::bad_value, "", argument, "holds infinity in row " + std::to_string(number) + ", expected finite numbers");
}

namespace {

/// The count-th largest, and the sum of what is not below it; -infinity where there are no more than count numbers.
Crossing kth_with_sum(std::span<const float> row, std::int64_t count, const Exec& exec) {
  const auto size = static_cast<std::int64_t>(row.size());
  std::array<float, StrideMaxima::groups> maxima;
  float bar = -infinity;
  // The count-th largest of the groups' maxima has at least count elements from it on: what lies below is out.
  if (2 * count <= StrideMaxima::groups && size > 2 * StrideMaxima::groups) {
    dispatch<AboveRowKernel>(exec.isa, StrideMaxima{row.data(), size, maxima.data()});
    const auto nth = maxima.begin() + (count - 1);
    std::nth_element(maxima.begin(), nth, maxima.end(), std::greater<>());
    bar = std::nextafter(*nth, -infinity);
  }
  const Scratch room = exec.scratch.take(static_cast<std::size_t>(size) * 4 + 64);
  std::int64_t left = 0;
  dispatch<AboveRowKernel>(exec.isa, Gather{row.data(), nullptr, size, bar, room.as<float>(), nullptr, &left});
  if (left < count) return {-infinity, 0};
  float *const begin = room.as<float>(), *const end = begin + left, *const nth = begin + (count - 1);
  std::nth_element(begin, nth, end, std::greater<>());
  Crossing found{*nth, 0};
  for (const float* x = begin; x != end; ++x) found.sum += *x >= *nth ? static_cast<double>(*x) : 0.0;
  return found;
}

}  // namespace

float kth_largest(std::span<const float> row, std::int64_t count, const Exec& exec) {
  return kth_with_sum(row, count, exec).value;
}

Renorm fast_cut(std::span<const float> row, const Cut& cut, const Exec& exec) {
  const auto size = static_cast<std::int64_t>(row.size());
  if (cut.search == Search::radix) return exact_renorm(SortedRow(row), row, cut);
  if (cut.count && std::int64_t{*cut.count} < size) {
    const Crossing last = kth_with_sum(row, std::max<std::int64_t>(1, *cut.count), exec);
    return ends_at(row, cut, last.value, last.sum);
  }
  if (cut.mass && *cut.mass < 1) {
    const Crossing crossing = crossing_of(row, *cut.mass);
    return ends_at(row, cut, crossing.value, crossing.sum);
  }
  return exact_renorm(SortedRow({}), row, cut);
}

void fast_renorm(std::span<const float> row, const Cut& cut, float* to, bool streamed, const Exec& exec) {
  const Renorm renorm = fast_cut(row, cut, exec);
  const auto factor = static_cast<float>(1.0 / renorm.divisor.exact);
  const auto size = static_cast<std::int64_t>(row.size());
  dispatch<AboveRowKernel>(exec.isa, ScaleAbove{row.data(), size, float_below(renorm.low), factor, to, streamed});
  if (!renorm.all) return;
  // Kept whole: NaN and -infinity are, too.
  for (std::size_t i = 0; i < row.size(); ++i)
    if (!(row[i] > -infinity)) to[i] = row[i] * factor == row[i] * factor ? row[i] * factor : quant::hopper::canonical_nan();
}

std::int64_t fast_rejection(std::span<const float> row, const std::optional<Cut>& cut, const Acceptance& accepts, PhiloxStream stream,
                            const Exec& exec) {
  const Room room(exec, static_cast<std::int64_t>(row.size()));
  if (!cut) return rejection(all_of(row), accepts, stream, room, exec.isa);
  const Renorm renorm = fast_cut(row, *cut, exec);
  const Elements kept = gathered(all_of(row), float_below(std::max(renorm.low, 0.0)), room, exec.isa);
  const auto factor = static_cast<float>(1.0 / renorm.divisor.exact);
  for (std::int64_t i = 0; i < kept.count; ++i) room.values()[i] *= factor;
  return rejection(kept, accepts, stream, room, exec.isa);
}

std::int64_t fast_above(std::span<const float> row, const Bar& bar, PhiloxStream stream, const Exec& exec) {
  const float below = bar.inclusive ? std::nextafter(static_cast<float>(bar.value), -infinity) : float_below(bar.value);
  std::vector<float> sums(static_cast<std::size_t>((static_cast<std::int64_t>(row.size()) + sum_block - 1) / sum_block));
  dispatch<AboveRowKernel>(exec.isa, BlockSums{row.data(), static_cast<std::int64_t>(row.size()), below, sums.data()});
  const double mass = sum_of(sums);
  return drawn(all_of(row), below, static_cast<double>(stream.next_uniform()) * mass, sums, exec.isa);
}

}  // namespace dodona::ops
