#include "ops/softmax/fast/attend.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numbers>
#include <vector>

#include "core/threads.h"
#include "ops/base/rows.h"
#include "ops/base/work.h"
#include "ops/softmax/fast/attend_amx.h"
#include "quant/sizes.h"

namespace dodona::ops {
namespace {

using quant::ceil_div;

constexpr double log2_e = std::numbers::log2e;

/// The scale and the cap are narrowed to fp32, as kernels take them.
float sigma_of(const Attention& call) {
  const double scale = static_cast<float>(call.scale), cap = static_cast<float>(call.cap);
  return static_cast<float>(cap > 0 ? scale / cap : scale * log2_e);
}
float cap_of(const Attention& call) {
  return static_cast<float>(static_cast<double>(static_cast<float>(call.cap)) * log2_e);
}

/// Weights of e4m3 keys are counted in units of 2^-8, which keeps small ones out of the denormals; where other keys join them, as they are.
float weight_exponent_of(const Attention& call) {
  return call.type == DType::f8_e4m3 && !call.cached ? 8.0f : 0.0f;
}

/// Splits of a row's cached keys, and of all its keys.
std::int64_t cached_splits(const Attention& call, std::int64_t row) {
  return call.cached ? ceil_div(std::min(call.cached_keys(row), call.visible(row)), attend_split) : 0;
}
std::int64_t splits_of(const Attention& call, std::int64_t row) {
  const std::int64_t cached = call.cached ? std::min(call.cached_keys(row), call.visible(row)) : 0;
  return cached_splits(call, row) + ceil_div(call.visible(row) - cached, attend_split);
}
/// Splits that hide from all queries of a row, though not the last one.
std::int64_t hidden_splits(const Attention& call, std::int64_t row) {
  const std::int64_t hidden = call.hidden_to(row, 0), cached = call.cached ? std::min(call.cached_keys(row), hidden) : 0;
  const std::int64_t in_cache = cached < hidden ? cached_splits(call, row) : cached / attend_split;
  return std::min(in_cache + (hidden - cached) / attend_split, std::max<std::int64_t>(0, splits_of(call, row) - 1));
}

/// How the work is cut. None of it shows in the bits.
struct Cut {
  std::int64_t heads;  ///< of a unit, a multiple of 16
  std::int64_t blocks;
};
Cut cut_of(const Attention& call, bool by_tiles, int threads) {
  const std::int64_t most = by_tiles ? attend_most_heads : attend_most_heads_of_vectors;
  std::int64_t splits = 0;
  for (std::int64_t row = 0; row < call.rows; ++row) splits += splits_of(call, row) - hidden_splits(call, row);
  std::int64_t heads = std::min(most, ceil_div(call.heads, 16) * 16);
  // As many heads as use a widened row well, unless threads would then be idle.
  while (heads > 16 && splits * ceil_div(call.heads, heads) < threads) heads = ceil_div(heads / 2, 16) * 16;
  return {heads, ceil_div(call.heads, heads)};
}

/// Units of some consecutive rows: row by row, head block by head block, split by split.
struct Unit {
  std::int64_t row, block, split;
};
struct Wave {
  std::int64_t first, end;
  std::vector<Unit> units;
};

class FastAttention {
 public:
  FastAttention(const Attention& call, const Exec& exec)
      : call_(call),
        exec_(exec),
        tiles_(attend_tiles(exec.isa)),
        cut_(cut_of(call, tiles_ != nullptr && held_by_tiles(call.type), exec.threads)) {}

  void run() {
    // Partial results of a wave stay within some megabytes, unless one row alone has more.
    const std::int64_t enough = std::max<std::int64_t>(32, 4 * exec_.threads);
    for (Wave wave{0, 0, {}}; wave.end < call_.rows;) {
      wave.first = wave.end;
      wave.units.clear();
      while (wave.end < call_.rows && static_cast<std::int64_t>(wave.units.size()) < enough) add_row(wave, wave.end++);
      run(wave);
    }
  }

 private:
  /// The row's splits that count.
  std::int64_t first_split(std::int64_t row) const { return hidden_splits(call_, row); }
  std::int64_t end_split(std::int64_t row) const { return splits_of(call_, row); }
  std::int64_t splits(std::int64_t row) const { return end_split(row) - first_split(row); }
  /// Of a block of the row's queries; none where the row has fewer than others.
  std::int64_t heads_of(std::int64_t row, std::int64_t block) const {
    return std::max<std::int64_t>(0, std::min(cut_.heads, call_.queries_of(row) - block * cut_.heads));
  }
  std::int64_t lanes_of(std::int64_t row, std::int64_t block) const { return ceil_div(heads_of(row, block), 16) * 16; }
  /// Whether some queries see fewer keys than others.
  bool masked(std::int64_t row) const { return call_.visible_to(row, 0) < call_.visible(row); }
  bool hides(std::int64_t row) const { return call_.hidden_to(row, call_.queries_of(row) - 1) > 0; }
  std::int64_t partial_floats() const { return attend_partial_floats(cut_.heads, call_.value_width); }
  std::int64_t scratch_floats() const {
    const std::int64_t of_vectors = attend_scratch_floats(cut_.heads, call_.key_width, call_.values_in_keys ? 0 : call_.value_width);
    return tiles_ == nullptr ? of_vectors
                             : std::max(of_vectors, attend_tiles_scratch_floats(cut_.heads, call_.key_width, call_.value_width));
  }
  float* partial_of(std::int64_t unit) const { return partials_ + unit * partial_floats(); }

  void add_row(Wave& wave, std::int64_t row) const {
    for (std::int64_t block = 0; block < cut_.blocks; ++block)
      for (std::int64_t split = first_split(row); split < end_split(row) && heads_of(row, block) > 0; ++split)
        wave.units.push_back({row, block, split});
  }

  void run(const Wave& wave) {
    const auto units = static_cast<std::int64_t>(wave.units.size());
    const std::size_t key_bytes = 2 * attend_split * sizeof(const std::byte*);
    const Work work(exec_, units, key_bytes + static_cast<std::size_t>(scratch_floats()) * sizeof(float),
                    static_cast<std::size_t>(units * partial_floats()) * sizeof(float));
    partials_ = reinterpret_cast<float*>(work.shared());
    work.take(1e6, [&](std::int64_t unit, std::byte* scratch) {
      attend(wave.units[static_cast<std::size_t>(unit)], unit, reinterpret_cast<const std::byte**>(scratch),
             reinterpret_cast<float*>(scratch + key_bytes));
    });
    merge(wave);
  }

  void attend(const Unit& unit, std::int64_t index, const std::byte** keys, float* scratch) const {
    const std::int64_t in_cache = cached_splits(call_, unit.row), cached = in_cache > 0 ? call_.cached_keys(unit.row) : 0;
    const bool from_cache = unit.split < in_cache;
    const std::int64_t first = from_cache ? unit.split * attend_split : cached + (unit.split - in_cache) * attend_split;
    const std::int64_t end = from_cache ? std::min(cached, call_.visible(unit.row)) : call_.visible(unit.row);
    const std::int64_t count = std::min(attend_split, end - first);
    const std::byte** const values = call_.values_in_keys ? nullptr : keys + attend_split;
    call_.list(unit.row, first, count, keys, values);
    QueryParts queries = from_cache ? call_.cached_queries(unit.row) : call_.queries(unit.row);
    for (QueryPart& part : queries) part.first_head += unit.block * cut_.heads * part.head_stride;
    const std::int64_t heads_here = heads_of(unit.row, unit.block);
    std::array<std::int32_t, attend_most_heads> visible, hidden;
    visible.fill(static_cast<std::int32_t>(count));
    hidden.fill(0);
    for (std::int64_t h = 0; h < heads_here && masked(unit.row); ++h) {
      const std::int64_t seen = call_.visible_to(unit.row, unit.block * cut_.heads + h) - first;
      visible[static_cast<std::size_t>(h)] = static_cast<std::int32_t>(std::clamp<std::int64_t>(seen, 0, count));
    }
    if (hides(unit.row))
      for (std::int64_t h = 0; h < attend_most_heads; ++h) {
        const std::int64_t unseen = call_.hidden_to(unit.row, unit.block * cut_.heads + std::min(h, heads_here - 1)) - first;
        hidden[static_cast<std::size_t>(h)] = static_cast<std::int32_t>(std::clamp<std::int64_t>(unseen, 0, count));
      }
    std::array<float, attend_most_heads> temperatures;
    temperatures.fill(1.0f);
    bool tempered = false;
    for (std::int64_t h = 0; h < heads_here; ++h) {
      float& t = temperatures[static_cast<std::size_t>(h)];
      t = static_cast<float>(call_.temperature(unit.row, unit.block * cut_.heads + h));
      tempered = tempered || t != 1.0f;
    }
    run(AttendUnit{.queries = queries,
                   .heads = heads_here,
                   .lanes = lanes_of(unit.row, unit.block),
                   .key_width = call_.key_width,
                   .value_width = call_.value_width,
                   .keys = keys,
                   .values = values,
                   .key_count = count,
                   .visible = visible.front() < count ? visible.data() : nullptr,
                   .hidden = hidden.back() > 0 ? hidden.data() : nullptr,
                   .type = from_cache ? call_.cached->type : call_.type,
                   .query_type = from_cache ? call_.cached->queries : call_.type,
                   .weight_type = from_cache ? call_.cached->weights : call_.type,
                   .key_rows = call_.key_rows,
                   .weight_exponent = weight_exponent_of(call_),
                   .sigma = sigma_of(call_),
                   .cap = cap_of(call_),
                   .temperatures = tempered ? temperatures.data() : nullptr,
                   .partial = partial_of(index),
                   .scratch = scratch});
  }

  void run(const AttendUnit& unit) const {
    if (tiles_ == nullptr || !takes_tiles(unit) || !tiles_->run(unit)) dispatch<AttendUnitKernel>(exec_.isa, unit);
  }

  void merge(const Wave& wave) const {
    const std::int64_t tasks = (wave.end - wave.first) * cut_.blocks;
    std::vector<std::int64_t> first_unit(static_cast<std::size_t>(wave.end - wave.first) + 1);
    for (std::int64_t row = wave.first; row < wave.end; ++row) {
      const auto i = static_cast<std::size_t>(row - wave.first);
      first_unit[i + 1] = first_unit[i] + ceil_div(call_.queries_of(row), cut_.heads) * splits(row);
    }
    parallel_for(exec_.threads, tasks, static_cast<double>(call_.value_width * cut_.heads), [&](std::int64_t task) {
      const std::int64_t row = wave.first + task / cut_.blocks, block = task % cut_.blocks;
      merge_row(row, block, first_unit[static_cast<std::size_t>(row - wave.first)] + block * splits(row));
    });
  }

  void merge_row(std::int64_t row, std::int64_t block, std::int64_t unit) const {
    const std::int64_t heads = heads_of(row, block), first = block * cut_.heads;
    const std::int64_t head = call_.out_row(row) + first * call_.out_step;
    const int bytes = bits(call_.out.dtype()) / 8;
    if (heads == 0) return;
    std::byte* const out = row_begin_mutable(call_.out, head, bytes);
    const std::int64_t out_stride = heads > 1 ? row_begin_mutable(call_.out, head + call_.out_step, bytes) - out : 0;
    const auto number = [&](const Tensor& t) {
      return t.defined() ? t.as<float>() + call_.lse_row(row) + first * call_.lse_step : nullptr;
    };
    float *const lse = number(call_.lse), *const top = number(call_.top);
    std::array<float, attend_most_heads> sinks;
    sinks.fill(-std::numeric_limits<float>::infinity());
    bool sunk = false;
    for (std::int64_t h = 0; h < heads; ++h) {
      const double sink = call_.sink(row, first + h);
      sinks[static_cast<std::size_t>(h)] = static_cast<float>(sink * log2_e);
      sunk = sunk || sink > -std::numeric_limits<double>::infinity() || sink != sink;
    }
    if (call_.visible(row) > 0)
      dispatch<AttendMergeKernel>(exec_.isa, AttendMerge{.partials = partial_of(unit),
                                                         .stride = partial_floats(),
                                                         .splits = splits(row),
                                                         .heads = heads,
                                                         .lanes = lanes_of(row, block),
                                                         .value_width = call_.value_width,
                                                         .out_type = call_.out.dtype(),
                                                         .weight_exponent = weight_exponent_of(call_),
                                                         .out_scale = static_cast<float>(call_.out_scale),
                                                         .sinks = sunk ? sinks.data() : nullptr,
                                                         .out = out,
                                                         .out_stride = out_stride,
                                                         .lse = lse,
                                                         .top = top,
                                                         .lse_stride = call_.lse_step,
                                                         .natural_lse = call_.natural_lse});
    for (std::int64_t h = 0; h < heads && call_.visible_to(row, first + h) == call_.hidden_to(row, first + h); ++h) {
      std::fill_n(out + h * out_stride, call_.value_width * bytes, std::byte{0});
      if (lse != nullptr) lse[h * call_.lse_step] = static_cast<float>(call_.lse_of_none);
      if (top != nullptr) top[h * call_.lse_step] = -std::numeric_limits<float>::infinity();
    }
  }

  const Attention& call_;
  const Exec& exec_;
  const AttendTiles* tiles_;
  Cut cut_;
  float* partials_ = nullptr;
};

}  // namespace

void attention_fast(const Attention& call, const Exec& exec) {
  if (call.heads > 0) FastAttention(call, exec).run();
}

}  // namespace dodona::ops
