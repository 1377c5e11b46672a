#include "ops/softmax/mla_decode.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/fixed_math.h"
#include "core/threads.h"
#include "dodona/error.h"
#include "ops/base/golden_output.h"
#include "ops/base/rows.h"

namespace dodona::ops {
namespace {

constexpr double log2_e = 1.4426950408889634;

std::int64_t ceil_div(std::int64_t x, std::int64_t y) {
  return (x + y - 1) / y;
}

/// Row j of request b's sequence in the cache.
const std::byte* key_row(const MlaDecode& call, std::int64_t b, std::int64_t j) {
  const std::int64_t page_size = call.cache.size(1);
  const std::int64_t page = call.page_table.as<std::int32_t>()[b * call.page_table.size(1) + j / page_size];
  return call.cache.as<std::byte>() + (page * page_size + j % page_size) * mla_width * (bits(call.cache.dtype()) / 8);
}

const std::byte* head_of(const Tensor& q, std::int64_t row, std::int64_t head) {
  const std::int64_t queries = q.size(1);
  const std::int64_t offset = row / queries * q.stride(0) + row % queries * q.stride(1) + head * q.stride(2);
  return q.as<std::byte>() + offset * (bits(q.dtype()) / 8);
}

/// sm_scale is narrowed to fp32, as kernels take it.
float sigma_of(const MlaDecode& call) {
  return static_cast<float>(static_cast<double>(static_cast<float>(call.scale)) * log2_e);
}

// ---- golden

/// What weights of a type may lose when they are rounded for their products: a share, and below some weight (the largest being 1) more
/// than that, yet never more than all.
struct WeightRounding {
  double share, normal_from, at_most;
};
WeightRounding weight_rounding(DType type) {
  switch (type) {
    case DType::bf16: return {0x1p-9, 0x1p-126, 0x1p-134};
    case DType::f16: return {0x1p-12, 0x1p-14, 0x1p-25};
    case DType::f8_e4m3: return {0x1p-4, 0x1p-6, 0x1p-10};
    default: return {0, 0, 0};
  }
}

/// One head of one row: its weights and what the contract leaves open of them.
struct HeadWeights {
  std::vector<double> z, magnitude;  ///< scores, and the sums of |q * k| behind them
  std::vector<double> p;             ///< exact weights, adding up to 1
  std::vector<double> most;          ///< the largest weights that erroneous scores give
  std::vector<double> drift;         ///< how far erroneous scores move weights
  std::vector<double> lost;          ///< what the rounding of weights for their products takes or adds
  double lse = 0, lse_slack = 0, most_total = 0;
  bool open = false;  ///< scores may overflow fp32
};

/// p[j] = exp(t[j] - max t) / sum.
void softmax(HeadWeights& w, double scale) {
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const double z : w.z) largest = std::isnan(z) ? z : std::fmax(largest, scale * z);
  for (const double z : w.z) {
    w.p.push_back(fixed::exp(scale * z - largest));
    sum += w.p.back();
  }
  for (double& p : w.p) p /= sum;
  w.lse = log2_e * largest + fixed::log2(sum);
}

/// Scores of an honest kernel, in natural units, are off by at most d[j]:
///  - 576 units of 2^-24 of sum |q * k|: fp32 additions in any order, or 36 steps of 16 products whose addends are cut at 25 bits;
///  - 4 units of the score and 4 of the largest: sigma = scale * log2 e in fp32, the products, the subtraction of a (running) maximum;
///  - 2^-22 for the approximate exp2, and the same for each rescaling: one per 64 keys, and one for the merging of splits, whose
///    log-sum-exps are rounded to 2^-24 relative.
/// A weight then lies between p * exp(-x) and p * exp(x), x = d[j] + max d; the weights of any kernel add up to 1.
void bound_weights(HeadWeights& w, double scale, DType type) {
  constexpr double u = f32_eps;
  const auto count = static_cast<double>(w.z.size());
  double largest = 0, worst = 0, top = 0;
  for (const double z : w.z) largest = std::fmax(largest, std::fabs(scale * z));
  const double common = 4 * u * largest + 0x1p-22 * (2 + count / 64 + largest + fixed::log(count) + 2);
  std::vector<double> d;
  for (std::size_t j = 0; j < w.z.size(); ++j) {
    d.push_back(std::fabs(scale) * static_cast<double>(mla_width) * u * w.magnitude[j] + 4 * u * std::fabs(scale * w.z[j]) + common);
    worst = std::fmax(worst, d.back());
    top = std::fmax(top, w.p[j]);
  }
  const WeightRounding rounding = weight_rounding(type);
  for (std::size_t j = 0; j < w.z.size(); ++j) {
    const double p = w.p[j], x = d[j] + worst;
    const double most = p > 0 ? std::fmin(1.0, fixed::exp(std::fmin(fixed::log(p) + x, 0.0))) : 0.0;
    w.most.push_back(most);
    w.most_total += most;
    w.drift.push_back(x < 1 ? std::fmin(1.0, p * fixed::expm1(x)) : most);
    // Relative to the largest weight, which a running maximum can only make larger. The largest so far is 1, which every type holds (as
    // does whatever scale a kernel gives it): what is rounded lies between `least` and 1, and moves no farther than to 1.
    const double relative = most / top, least = p / top * fixed::exp(-x);
    const double lost = relative >= rounding.normal_from ? rounding.share * relative : std::fmin(relative, rounding.at_most);
    w.lost.push_back(std::fmin(std::fmin(lost, 1.0), 1.0 - least) * top);
  }
  w.lse_slack = log2_e * worst + count * u + 4 * u * (std::fabs(w.lse) + 1) + 0x1p-21;
}

/// Heads of one row, taken together so that each row of the cache is widened once for all of them.
class GoldenHeads {
 public:
  GoldenHeads(const MlaDecode& call, std::int64_t row, std::int64_t first, std::int64_t count)
      : call_(call), request_(row / call.queries()), visible_(call.visible(row)), heads_(static_cast<std::size_t>(count)) {
    const DType type = call.q_nope.dtype();
    for (std::int64_t h = 0; h < count; ++h) {
      std::vector<double> q(mla_width);
      quant::to_f64(type, head_of(call.q_nope, row, first + h), q.data(), mla_latent);
      quant::to_f64(type, head_of(call.q_pe, row, first + h), q.data() + mla_latent, mla_rope);
      queries_.push_back(std::move(q));
    }
  }

  HeadWeights& head(std::int64_t h) { return heads_[static_cast<std::size_t>(h)]; }

  /// Scores, weights and, when someone judges, their bounds.
  void weigh(bool judged) {
    // The scale that kernels are given is the fp32 one.
    const double scale = static_cast<float>(call_.scale);
    for_each_key([&](std::int64_t, const std::vector<double>& key) {
      for (std::size_t h = 0; h < heads_.size(); ++h) {
        double z = 0, magnitude = 0;
        for (std::size_t k = 0; k < key.size(); ++k) {
          const double product = queries_[h][k] * key[k];
          z += product;
          magnitude += std::fabs(product);
        }
        heads_[h].z.push_back(z);
        heads_[h].magnitude.push_back(magnitude);
        // Overflow of fp32, here with room for the scale.
        if (!std::isnan(z) && !(magnitude * std::fmax(1.0, 2 * std::fabs(scale)) < 0x1p126)) heads_[h].open = true;
      }
    });
    for (HeadWeights& head : heads_) {
      softmax(head, scale);
      if (judged && !head.open && !std::isnan(head.lse)) bound_weights(head, scale, call_.cache.dtype());
    }
  }

  /// Sums over the visible rows: for each head h, add(h, j, c) for the 512 latents c of row j.
  template <class Add>
  void for_each_latent(const Add& add) const {
    for_each_key([&](std::int64_t j, const std::vector<double>& key) {
      for (std::size_t h = 0; h < heads_.size(); ++h) add(h, static_cast<std::size_t>(j), key.data());
    });
  }

 private:
  template <class Body>
  void for_each_key(const Body& body) const {
    std::vector<double> key(mla_width);
    for (std::int64_t j = 0; j < visible_; ++j) {
      quant::to_f64(call_.cache.dtype(), key_row(call_, request_, j), key.data(), mla_width);
      body(j, key);
    }
  }

  const MlaDecode& call_;
  std::int64_t request_, visible_;
  std::vector<HeadWeights> heads_;
  std::vector<std::vector<double>> queries_;
};

/// The slack of 512 sums over p[j] * c[j], term by term; a row of them per head.
///  - erroneous scores: sum of drift[j] * |c[j] - out|, as the weights still add up to 1;
///  - rounded weights: sum of lost[j] * |c[j]|; where the sum of the weights may be taken over the rounded ones, |c[j] - out| if that is
///  more;
///  - fp32 additions: 1.25 units of 2^-24 of sum of p * |c| per key (a rescaling per 4 keys at most), and 16 for the rest;
///  - the sum of the weights: a unit per key of the output; 8 for its reciprocal (2^-23) and the products with it and with out_scale.
std::vector<double> slack_of(const GoldenHeads& heads, const std::vector<HeadWeights*>& weights, const std::vector<double>& exact,
                             std::int64_t keys, MlaWeightSum sum) {
  std::vector<double> slack(exact.size()), magnitudes(exact.size());
  heads.for_each_latent([&](std::size_t h, std::size_t j, const double* c) {
    const HeadWeights& w = *weights[h];
    if (w.drift.empty()) return;
    const double drift = w.drift[j], lost = w.lost[j], most = w.most[j];
    for (std::size_t i = 0; i < mla_latent; ++i) {
      const double magnitude = std::fabs(c[i]), distance = std::fabs(c[i] - exact[h * mla_latent + i]);
      slack[h * mla_latent + i] += drift * distance + lost * (sum == MlaWeightSum::open ? std::fmax(magnitude, distance) : magnitude);
      magnitudes[h * mla_latent + i] += most * magnitude;
    }
  });
  const auto count = static_cast<double>(keys);
  for (std::size_t i = 0; i < exact.size(); ++i)
    slack[i] += f32_eps * ((1.25 * count + 16) * magnitudes[i] + (count + 8) * std::fabs(exact[i]));
  return slack;
}

struct GoldenOutputs {
  GoldenOutput out, lse;
};

void golden_heads(const MlaDecode& call, const GoldenOutputs& to, bool judged, std::int64_t row, std::int64_t first, std::int64_t count,
                  MlaWeightSum sum) {
  const std::int64_t begin = row * call.heads() + first;
  if (call.visible(row) == 0) {
    for (std::int64_t i = begin * mla_latent; i < (begin + count) * mla_latent; ++i) to.out.put(i, 0.0, 0.0);
    for (std::int64_t h = begin; call.lse.defined() && h < begin + count; ++h) to.lse.put(h, -std::numeric_limits<double>::infinity(), 0.0);
    return;
  }
  GoldenHeads heads(call, row, first, count);
  heads.weigh(judged);
  std::vector<HeadWeights*> weights;
  for (std::int64_t h = 0; h < count; ++h) weights.push_back(&heads.head(h));
  std::vector<double> exact(static_cast<std::size_t>(count * mla_latent)), slack(exact.size());
  heads.for_each_latent([&](std::size_t h, std::size_t j, const double* c) {
    const double p = weights[h]->p[j];
    for (std::size_t i = 0; i < mla_latent; ++i) exact[h * mla_latent + i] += p * c[i];
  });
  if (judged) slack = slack_of(heads, weights, exact, call.visible(row), sum);
  const double out_scale = static_cast<float>(call.out_scale);
  for (std::int64_t h = 0; h < count; ++h) {
    const HeadWeights& w = heads.head(h);
    for (std::int64_t i = 0; i < mla_latent; ++i) {
      const std::int64_t linear = (begin + h) * mla_latent + i;
      const auto at = static_cast<std::size_t>(h * mla_latent + i);
      const double value = exact[at] * out_scale;
      if (w.open || std::isinf(value)) {
        to.out.put_open(linear, value);
      } else {
        to.out.put(linear, value, std::isnan(value) ? 0.0 : slack[at] * std::fabs(out_scale));
      }
    }
    if (!call.lse.defined()) continue;
    if (w.open) {
      to.lse.put_open(begin + h, w.lse);
    } else {
      to.lse.put(begin + h, w.lse, std::isnan(w.lse) ? 0.0 : w.lse_slack);
    }
  }
}

// ---- fast

/// How the work is cut. None of it shows in the bits.
struct Cut {
  std::int64_t heads;  ///< of a unit, a multiple of 16
  std::int64_t blocks;
};
Cut cut_of(const MlaDecode& call, int threads) {
  std::int64_t splits = 0;
  for (std::int64_t row = 0; row < call.rows(); ++row) splits += ceil_div(call.visible(row), mla_split);
  std::int64_t heads = std::min(mla_most_heads, ceil_div(call.heads(), 16) * 16);
  // As many heads as use a widened row well, unless threads would then be idle.
  while (heads > 16 && splits * ceil_div(call.heads(), heads) < threads) heads = ceil_div(heads / 2, 16) * 16;
  return {heads, ceil_div(call.heads(), heads)};
}

/// Units of some consecutive rows: row by row, head block by head block, split by split.
struct Unit {
  std::int64_t row, block, split;
};
struct Wave {
  std::int64_t first, end;
  std::vector<Unit> units;
};

class FastDecode {
 public:
  FastDecode(const MlaDecode& call, const Exec& exec)
      : call_(call), exec_(exec), cut_(cut_of(call, exec.threads)), workspace_(exec.workspace != nullptr ? *exec.workspace : own_) {}

  void run() {
    // Partial results of a wave stay within some megabytes, unless one row alone has more.
    const std::int64_t enough = std::max<std::int64_t>(32, 4 * exec_.threads);
    for (Wave wave{0, 0, {}}; wave.end < call_.rows();) {
      wave.first = wave.end;
      wave.units.clear();
      while (wave.end < call_.rows() && static_cast<std::int64_t>(wave.units.size()) < enough) add_row(wave, wave.end++);
      run(wave);
    }
  }

 private:
  std::int64_t splits_of(std::int64_t row) const { return ceil_div(call_.visible(row), mla_split); }
  std::int64_t heads_of(std::int64_t block) const { return std::min(cut_.heads, call_.heads() - block * cut_.heads); }
  std::int64_t lanes_of(std::int64_t block) const { return ceil_div(heads_of(block), 16) * 16; }
  float* partial_of(std::int64_t unit) const { return partials_ + unit * mla_partial_floats(cut_.heads); }

  void add_row(Wave& wave, std::int64_t row) const {
    for (std::int64_t block = 0; block < cut_.blocks; ++block)
      for (std::int64_t split = 0; split < splits_of(row); ++split) wave.units.push_back({row, block, split});
  }

  void run(const Wave& wave) {
    const auto units = static_cast<std::int64_t>(wave.units.size());
    const std::int64_t workers = std::max<std::int64_t>(1, std::min<std::int64_t>(exec_.threads, units));
    const std::int64_t key_bytes = mla_split * static_cast<std::int64_t>(sizeof(const std::byte*));
    const std::int64_t scratch_bytes = key_bytes + mla_scratch_floats(cut_.heads) * 4;
    const std::int64_t partial_bytes = units * mla_partial_floats(cut_.heads) * 4;
    std::byte* const memory = workspace_.get(static_cast<std::size_t>(workers * scratch_bytes + partial_bytes));
    partials_ = reinterpret_cast<float*>(memory + workers * scratch_bytes);
    // Units differ in length: each worker takes the next one when it is done.
    std::atomic<std::int64_t> next{0};
    parallel_for(exec_.threads, workers, 1e6, [&](std::int64_t worker) {
      std::byte* const scratch = memory + worker * scratch_bytes;
      for (std::int64_t i = next++; i < units; i = next++)
        attend(wave.units[static_cast<std::size_t>(i)], i, reinterpret_cast<const std::byte**>(scratch),
               reinterpret_cast<float*>(scratch + key_bytes));
    });
    merge(wave);
  }

  void attend(const Unit& unit, std::int64_t index, const std::byte** keys, float* scratch) const {
    const std::int64_t first = unit.split * mla_split, count = std::min(mla_split, call_.visible(unit.row) - first);
    const std::int64_t request = unit.row / call_.queries(), head = unit.block * cut_.heads;
    for (std::int64_t j = 0; j < count; ++j) keys[j] = key_row(call_, request, first + j);
    const int bytes = bits(call_.q_nope.dtype()) / 8;
    dispatch<MlaUnitKernel>(exec_.isa, MlaUnit{.q_nope = head_of(call_.q_nope, unit.row, head),
                                               .q_pe = head_of(call_.q_pe, unit.row, head),
                                               .q_nope_stride = call_.q_nope.stride(2) * bytes,
                                               .q_pe_stride = call_.q_pe.stride(2) * bytes,
                                               .heads = heads_of(unit.block),
                                               .lanes = lanes_of(unit.block),
                                               .keys = keys,
                                               .key_count = count,
                                               .type = call_.cache.dtype(),
                                               .sigma = sigma_of(call_),
                                               .partial = partial_of(index),
                                               .scratch = scratch});
  }

  void merge(const Wave& wave) const {
    const std::int64_t tasks = (wave.end - wave.first) * cut_.blocks;
    std::vector<std::int64_t> first_unit(static_cast<std::size_t>(wave.end - wave.first) + 1);
    for (std::int64_t row = wave.first; row < wave.end; ++row) {
      const auto i = static_cast<std::size_t>(row - wave.first);
      first_unit[i + 1] = first_unit[i] + cut_.blocks * splits_of(row);
    }
    parallel_for(exec_.threads, tasks, static_cast<double>(mla_latent * cut_.heads), [&](std::int64_t task) {
      const std::int64_t row = wave.first + task / cut_.blocks, block = task % cut_.blocks;
      merge_row(row, block, first_unit[static_cast<std::size_t>(row - wave.first)] + block * splits_of(row));
    });
  }

  void merge_row(std::int64_t row, std::int64_t block, std::int64_t unit) const {
    const std::int64_t head = row * call_.heads() + block * cut_.heads, heads = heads_of(block);
    const int bytes = bits(call_.out.dtype()) / 8;
    if (call_.visible(row) == 0) {
      for (std::int64_t h = head; h < head + heads; ++h) {
        std::byte* const out = row_begin_mutable(call_.out, h, bytes);
        std::fill(out, out + mla_latent * bytes, std::byte{0});
        if (call_.lse.defined()) call_.lse.as<float>()[h] = -std::numeric_limits<float>::infinity();
      }
      return;
    }
    dispatch<MlaMergeKernel>(exec_.isa, MlaMerge{.partials = partial_of(unit),
                                                 .stride = mla_partial_floats(cut_.heads),
                                                 .splits = splits_of(row),
                                                 .heads = heads,
                                                 .lanes = lanes_of(block),
                                                 .cache_type = call_.cache.dtype(),
                                                 .out_type = call_.out.dtype(),
                                                 .out_scale = static_cast<float>(call_.out_scale),
                                                 .out = row_begin_mutable(call_.out, head, bytes),
                                                 .out_stride = call_.out.stride(-2) * bytes,
                                                 .lse = call_.lse.defined() ? call_.lse.as<float>() + head : nullptr});
  }

  const MlaDecode& call_;
  const Exec& exec_;
  Cut cut_;
  Workspace own_;
  Workspace& workspace_;
  float* partials_ = nullptr;
};

}  // namespace

std::int64_t MlaDecode::visible(std::int64_t row) const {
  const std::int64_t length = seq_lens.as<std::int32_t>()[row / queries()];
  return std::max<std::int64_t>(0, length - queries() + 1 + row % queries());
}

void check_mla_pages(const MlaDecode& call, std::string_view table_name) {
  const std::int64_t pages = call.cache.size(0), page_size = call.cache.size(1), width = call.page_table.size(1);
  for (std::int64_t b = 0; b < call.seq_lens.size(0); ++b) {
    const std::int64_t used = ceil_div(call.seq_lens.as<std::int32_t>()[b], page_size);
    for (std::int64_t i = 0; i < used; ++i) {
      const std::int64_t page = call.page_table.as<std::int32_t>()[b * width + i];
      if (page < 0 || page >= pages)
        throw Error(ErrorCode::bad_value, "", std::string(table_name),
                    "holds page " + std::to_string(page) + " at [" + std::to_string(b) + ", " + std::to_string(i) + "], expected 0 to " +
                        std::to_string(pages - 1) + ": sequence " + std::to_string(b) + " has " +
                        std::to_string(call.seq_lens.as<std::int32_t>()[b]) + " tokens in pages of " + std::to_string(page_size));
    }
  }
}

void check_mla_scale(double scale, std::string_view name) {
  const float narrow = static_cast<float>(scale);
  if (!(narrow > 0) || !std::isfinite(narrow))
    throw Error(ErrorCode::bad_value, "", std::string(name), "must be positive and finite in fp32, got " + to_string(AttrValue(scale)));
}

void mla_decode_golden(const MlaDecode& call, MlaWeightSum sum, const Exec& exec, Reference* reference) {
  const GoldenOutputs to{GoldenOutput(call.out, reference, "out"), GoldenOutput(call.lse, reference, "lse")};
  to.out.make_open();
  to.lse.make_open();
  constexpr std::int64_t together = 8;
  const std::int64_t blocks = ceil_div(call.heads(), together);
  parallel_for(exec.threads, call.rows() * blocks, 1e6, [&](std::int64_t task) {
    const std::int64_t first = task % blocks * together;
    golden_heads(call, to, reference != nullptr, task / blocks, first, std::min(together, call.heads() - first), sum);
  });
}

void mla_decode_fast(const MlaDecode& call, const Exec& exec) {
  if (call.heads() > 0) FastDecode(call, exec).run();
}

double mla_decode_flops(const MlaDecode& call) {
  double keys = 0;
  for (std::int64_t row = 0; row < call.rows(); ++row) keys += static_cast<double>(call.visible(row));
  return 2.0 * keys * static_cast<double>(call.heads() * (mla_width + mla_latent));
}

double mla_decode_bytes_read(const MlaDecode& call) {
  double tokens = 0;
  for (std::int64_t b = 0; b < call.batch(); ++b) tokens += static_cast<double>(call.seq_lens.as<std::int32_t>()[b]);
  const double row = static_cast<double>(bytes_for(call.cache.dtype(), mla_width));
  return row * (tokens + static_cast<double>(call.rows() * call.heads()));
}

}  // namespace dodona::ops
