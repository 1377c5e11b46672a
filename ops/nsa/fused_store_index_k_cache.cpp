#include "ops/nsa/fused_store_index_k_cache.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/as_written.h"
#include "core/threads.h"
#include "ops/base/last_writers.h"
#include "ops/base/rows.h"
#include "ops/rows/cache/fp8_bytes.h"
#include "ops/rows/quantize/group_row.h"
#include "ops/rows/quantize/scale_mistakes.h"
#include "ops/schemes/index_k.h"
#include "quant/amax.h"
#include "quant/e4m3.h"

namespace dodona::ops {
namespace {

constexpr float least_magnitude = 1e-4f;
using Key = std::array<float, static_cast<std::size_t>(index_k_width)>;

Key key_of(const FusedStoreIndexKCache& op, std::int64_t i) {
  Key x;
  quant::to_f32(bf16, row_begin(op.key, i, 2), x.data(), index_k_width);
  return x;
}
IndexKPlace place_of(const FusedStoreIndexKCache& op, std::int64_t i) {
  return index_k_place(index_at(op.out_cache_loc, i), op.page_size);
}

/// A scale by an approximate division (2 units in the last place); a code of 448 / max in the place of the reciprocal of what was stored.
constexpr Fp8Freedom freedom{.code_units = 7, .scale_units = 4};

template <ScaleMade made>
void golden_by(const FusedStoreIndexKCache& op, const Exec&, Reference* reference) {
  auto* const bytes = op.index_k_with_scale.as<std::byte>();
  std::vector<Fp8Bytes> keys;
  for (std::int64_t i = 0; i < op.key.size(0); ++i) {
    const Fp8Bytes& key = keys.emplace_back(fp8_bytes(key_of(op, i), least_magnitude, made));
    std::memcpy(bytes + place_of(op, i).key, key.codes.data(), key.codes.size());
    std::memcpy(bytes + place_of(op, i).scale, &key.scale, 4);
  }
  record_exact(op.index_k_with_scale, reference, "index_k_with_scale");
  open_shared_slots(op.out_cache_loc, op.page_size, op.index_k_with_scale, reference, "index_k_with_scale");
  // A mistaken kernel is reproduced byte by byte.
  if (reference == nullptr || made != ScaleMade::by_rule) return;
  ReferenceOutput& record = reference->output("index_k_with_scale", op.index_k_with_scale.elements());
  for (std::int64_t i = 0; i < op.key.size(0); ++i)
    for (std::size_t k = 0; k < static_cast<std::size_t>(index_k_width); ++k)
      if (keys[static_cast<std::size_t>(i)].open[k]) record.unspecified[static_cast<std::size_t>(place_of(op, i).key) + k] = 1;
}

/// A scale that may be is taken as it is, and a code that it may lead to.
void condition(const FusedStoreIndexKCache& op, const Exec&, Reference& reference) {
  ReferenceOutput& record = reference.output("index_k_with_scale", op.index_k_with_scale.elements());
  const ReferenceOutput* const written = reference.find(as_written("index_k_with_scale"));
  if (written == nullptr) return;
  const auto byte = [&](std::int64_t at) { return static_cast<std::byte>(written->exact[static_cast<std::size_t>(at)]); };
  for (std::int64_t i = 0; i < op.key.size(0); ++i) {
    const IndexKPlace place = place_of(op, i);
    std::array<std::byte, 4> stored;
    for (std::size_t k = 0; k < stored.size(); ++k) stored[k] = byte(place.scale + static_cast<std::int64_t>(k));
    std::array<std::byte, static_cast<std::size_t>(index_k_width)> codes;
    for (std::size_t k = 0; k < codes.size(); ++k) codes[k] = byte(place.key + static_cast<std::int64_t>(k));
    const Fp8Bytes key = conditioned_fp8_bytes(key_of(op, i), least_magnitude, std::bit_cast<float>(stored), codes, freedom);
    const auto scale = std::bit_cast<std::array<std::uint8_t, 4>>(key.scale);
    for (std::size_t k = 0; k < scale.size(); ++k) record.exact[static_cast<std::size_t>(place.scale) + k] = scale[k];
    for (std::size_t k = 0; k < codes.size(); ++k) record.exact[static_cast<std::size_t>(place.key) + k] = key.codes[k];
  }
}

/// Codes and scales of some keys in a row, at most `together`, whose rows lie one behind the other.
constexpr std::int64_t together = 16;
void store_keys(const FusedStoreIndexKCache& op, std::int64_t first, std::int64_t count, const std::uint8_t* superseded, const Exec& exec) {
  std::array<float, static_cast<std::size_t>(together)> scales, factors;
  std::array<std::uint8_t, static_cast<std::size_t>(together * index_k_width)> codes;
  const GroupRow rows{row_begin(op.key, first, 2), count, index_k_width, bf16};
  dispatch<GroupMaximaKernel>(exec.isa, rows, scales.data());
  for (std::size_t i = 0; i < scales.size() && static_cast<std::int64_t>(i) < count; ++i) {
    scales[i] = std::max(least_magnitude, scales[i]) / 448.0f;
    factors[i] = 1.0f / scales[i];
  }
  dispatch<GroupCodesKernel>(exec.isa, rows, factors.data(), GroupCode::e4m3, codes.data());
  auto* const bytes = op.index_k_with_scale.as<std::byte>();
  for (std::int64_t i = 0; i < count; ++i) {
    if (superseded[first + i] != 0) continue;
    const IndexKPlace place = place_of(op, first + i);
    std::memcpy(bytes + place.key, codes.data() + i * index_k_width, static_cast<std::size_t>(index_k_width));
    std::memcpy(bytes + place.scale, &scales[static_cast<std::size_t>(i)], 4);
  }
}

void fast(const FusedStoreIndexKCache& op, const Exec& exec) {
  const std::int64_t keys = op.key.size(0), slots = op.index_k_with_scale.elements() / index_k_bytes,
                     step = op.key.stride(0) == index_k_width ? together : 1;
  const std::vector<std::uint8_t> superseded =
      superseded_writes(keys, slots, [&](std::int64_t i) { return index_at(op.out_cache_loc, i); });
  parallel_for(exec.threads, (keys + step - 1) / step, static_cast<double>(step * index_k_width),
               [&](std::int64_t task) { store_keys(op, task * step, std::min(step, keys - task * step), superseded.data(), exec); });
}

/// No fast math: as written, NaN passed over by the maximum and clamped to 448.
void hopper(const FusedStoreIndexKCache& op, const Exec&) {
  auto* const bytes = op.index_k_with_scale.as<std::byte>();
  for (std::int64_t i = 0; i < op.key.size(0); ++i) {
    const Key x = key_of(op, i);
    const float scale = std::max(least_magnitude, quant::amax(x)) / 448.0f, inverse = 1.0f / scale;
    std::byte* const codes = bytes + place_of(op, i).key;
    for (std::size_t k = 0; k < x.size(); ++k)
      codes[k] = static_cast<std::byte>(quant::to_e4m3_satfinite(quant::clamp_high_first(x[k] * inverse, -448.0f, 448.0f)));
    std::memcpy(bytes + place_of(op, i).scale, &scale, 4);
  }
}

void check(const FusedStoreIndexKCache& op) {
  if (!std::has_single_bit(static_cast<std::uint64_t>(op.page_size)))
    throw Error(ErrorCode::bad_value, "", "page_size", "is " + std::to_string(op.page_size) + ", expected a power of two");
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_fused_store_index_k_cache() {
  return define<ops::FusedStoreIndexKCache>({
      .contract = R"(
For each key: s = fl32(max(1e-4, max |x|) / 448), NaN passed over; code = e4m3(x * (1/s)), to nearest even, saturating. A stored scale within
4 units of 2^-24 of that (an approximate division), or that a product with fl32(1/448) gives, is taken as it is, and codes are those of numbers
within 7 units of x over it (an approximate reciprocal of 2, two roundings, 1 for what multiplies the other way round, 2 for a factor that
is not made of the scale). Codes of NaN are not judged, nor those of keys with infinities. A slot
that several tokens name takes any of them (here the last) and is not judged; one out of range is an error, upstream does not look. Hopper
mode: the kernel compiled without fast math, as upstream does; with it the bits are others, within the contract.)",
      .contract_version = 2,
      .golden = ops::golden_by<ops::ScaleMade::by_rule>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .check = ops::check,
      .condition = ops::condition,
      .bytes_read = [](const ops::FusedStoreIndexKCache& op) { return 264.0 * static_cast<double>(op.key.size(0)); },
      .mistakes = ops::scale_mistakes<ops::FusedStoreIndexKCache>([]<ops::ScaleMade made>() { return ops::golden_by<made>; }),
      .cases = {"pages=3 n=5", "pages=4 n=9 --attr page_size=16 --dist outliers", "pages=1 n=3 --dist edge"},
      .bench_cases = {"pages=1024 n=16384"},
  });
}
}  // namespace dodona
