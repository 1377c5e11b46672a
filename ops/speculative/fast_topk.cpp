#include "ops/speculative/fast_topk.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/base/rows.h"
#include "ops/rows/order/order_key.h"
#include "ops/schemes/largest.h"

namespace dodona::ops {
namespace {

/// The rule itself, and mistakes of such kernels.
enum class Rule { right, nan_is_least, by_magnitude };

void check(const FastTopk& op) {
  if (op.topk > op.width())
    throw Error(ErrorCode::bad_value, "", "topk",
                "is " + std::to_string(op.topk) + ", expected at most " + std::to_string(op.width()) + ", the numbers of a row");
  const std::int64_t last = op.values.rank() - 1;
  if (op.dim != -1 && op.dim != last)
    throw Error(ErrorCode::unsupported, "", "dim",
                "is " + std::to_string(op.dim) + ", expected the last dimension, -1 or " + std::to_string(last));
}

std::int32_t key_at(const void* row, DType type, std::int64_t i) {
  const std::int32_t infinity = infinity_bits(type);
  if (type == f32) return order_key(static_cast<const std::int32_t*>(row)[i], infinity);
  return order_key(static_cast<const std::int16_t*>(row)[i], static_cast<std::int16_t>(infinity));
}

void copy_chosen(const FastTopk& op, std::int64_t t, const std::vector<std::int64_t>& chosen) {
  const std::int64_t k = op.topk;
  const std::byte* const row = row_begin(op.values, t, bits(op.values.dtype()) / 8);
  std::byte* const out = row_begin_mutable(op.out_values, t, bits(op.values.dtype()) / 8);
  auto* const indices = reinterpret_cast<std::int64_t*>(row_begin_mutable(op.indices, t, 8));
  for (std::int64_t j = 0; j < k; ++j) {
    const std::int64_t i = chosen[static_cast<std::size_t>(j)];
    indices[j] = i;
    if (op.values.dtype() == f32) {
      reinterpret_cast<std::uint32_t*>(out)[j] = reinterpret_cast<const std::uint32_t*>(row)[i];
    } else {
      reinterpret_cast<std::uint16_t*>(out)[j] = reinterpret_cast<const std::uint16_t*>(row)[i];
    }
  }
}

// ---- fast: keys of groups, then the few groups that can hold what is wanted

struct Candidate {
  std::int32_t key, index;
  /// Falling keys, equal ones by their place.
  friend bool operator<(const Candidate& a, const Candidate& b) { return a.key != b.key ? a.key > b.key : a.index < b.index; }
};

/// Every element above `floor`, and of those that equal it the first k.
void gather(const void* row, DType type, std::int64_t begin, std::int64_t end, std::int32_t floor, std::int64_t& equals_left,
            std::vector<Candidate>& candidates) {
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int32_t key = key_at(row, type, i);
    if (key > floor || (key == floor && equals_left-- > 0)) candidates.push_back({key, static_cast<std::int32_t>(i)});
  }
}

class FastRow {
 public:
  FastRow(const FastTopk& op, Isa isa) : op_(op), isa_(isa), n_(op.width()), k_(op.topk) {}

  const std::vector<std::int64_t>& choose(const void* row) {
    chosen_.clear();
    if (k_ == 0) return chosen_;
    const DType type = op_.values.dtype();
    const std::int64_t groups = (n_ + GroupMaxima::group - 1) / GroupMaxima::group;
    std::int64_t equals_left = k_;
    candidates_.clear();
    if (k_ >= groups) {
      equals_left = n_;
      gather(row, type, 0, n_, least, equals_left, candidates_);
    } else {
      maxima_.resize(static_cast<std::size_t>(groups));
      dispatch<GroupMaximaKernel>(isa_, GroupMaxima{row, n_, type, maxima_.data()});
      // At least k numbers are as large as the k-th largest of the maxima.
      sorted_ = maxima_;
      std::nth_element(sorted_.begin(), sorted_.begin() + (k_ - 1), sorted_.end(), std::greater<>());
      const std::int32_t floor = sorted_[static_cast<std::size_t>(k_ - 1)];
      for (std::int64_t g = 0; g < groups; ++g)
        // Behind the first k equals of a flat row there is nothing left to look for.
        if (const std::int32_t most = maxima_[static_cast<std::size_t>(g)]; most > floor || (most == floor && equals_left > 0))
          gather(row, type, g * GroupMaxima::group, std::min(n_, (g + 1) * GroupMaxima::group), floor, equals_left, candidates_);
    }
    std::partial_sort(candidates_.begin(), candidates_.begin() + k_, candidates_.end());
    for (std::int64_t j = 0; j < k_; ++j) chosen_.push_back(candidates_[static_cast<std::size_t>(j)].index);
    return chosen_;
  }

 private:
  static constexpr std::int32_t least = -1 - most_key<std::int32_t>;

  const FastTopk& op_;
  Isa isa_;
  std::int64_t n_, k_;
  std::vector<std::int32_t> maxima_, sorted_;
  std::vector<Candidate> candidates_;
  std::vector<std::int64_t> chosen_;
};

void fast(const FastTopk& op, const Exec& exec) {
  parallel_for(exec.threads, row_count(op.values), static_cast<double>(op.width()), [&](std::int64_t t) {
    FastRow row(op, exec.isa);
    copy_chosen(op, t, row.choose(row_begin(op.values, t, bits(op.values.dtype()) / 8)));
  });
}

// ---- golden

std::vector<double> numbers(const FastTopk& op, std::int64_t t) {
  std::vector<double> row(static_cast<std::size_t>(op.width()));
  quant::to_f64(op.values.dtype(), row_begin(op.values, t, bits(op.values.dtype()) / 8), row.data(), op.width());
  return row;
}

template <Rule rule>
std::vector<std::int64_t> chosen_of(std::vector<double> row, std::int64_t k) {
  for (double& x : row) {
    if (rule == Rule::nan_is_least && std::isnan(x)) x = -INFINITY;
    if (rule == Rule::by_magnitude) x = std::fabs(x);
  }
  return largest(row, k);
}

void put_row(const GoldenOutput& values, const GoldenOutput& indices, std::int64_t t, const std::vector<double>& row,
             const std::vector<std::int64_t>& chosen) {
  const auto k = static_cast<std::int64_t>(chosen.size());
  for (std::int64_t j = 0; j < k; ++j) {
    const std::int64_t i = chosen[static_cast<std::size_t>(j)];
    values.put(t * k + j, {row[static_cast<std::size_t>(i)]});
    indices.put(t * k + j, {static_cast<double>(i)});
  }
}

template <Rule rule>
void golden(const FastTopk& op, const Exec& exec, Reference* reference) {
  const GoldenOutput values(op.out_values, reference, "out_values"), indices(op.indices, reference, "indices");
  parallel_for(exec.threads, row_count(op.values), 20.0 * static_cast<double>(op.width()), [&](std::int64_t t) {
    const std::vector<double> row = numbers(op, t);
    const std::vector<std::int64_t> chosen = chosen_of<rule>(row, op.topk);
    put_row(values, indices, t, row, chosen);
    copy_chosen(op, t, chosen);
  });
}

void condition(const FastTopk& actual, const Exec& exec, Reference& reference) {
  const Tensor values_scratch = actual.out_values.clone(), indices_scratch = actual.indices.clone();
  const GoldenOutput values(values_scratch, &reference, "out_values"), indices(indices_scratch, &reference, "indices");
  const std::vector<double>& expected = reference.find("indices")->exact;
  const std::int64_t k = actual.topk;
  parallel_for(exec.threads, row_count(actual.values), static_cast<double>(actual.width()), [&](std::int64_t t) {
    std::vector<std::int64_t> chosen, right;
    for (std::int64_t j = 0; j < k; ++j) {
      chosen.push_back(static_cast<std::int64_t>(quant::get(actual.indices, t * k + j)));
      right.push_back(static_cast<std::int64_t>(expected[static_cast<std::size_t>(t * k + j)]));
    }
    if (chosen == right) return;
    const std::vector<double> row = numbers(actual, t);
    if (equally_large(row, right, chosen)) put_row(values, indices, t, row, chosen);
  });
}

// ---- hopper

std::optional<Refusal> unsupported(const FastTopk& op, Mode mode) {
  if (mode == Mode::hopper && op.topk > most_sorted_by_torch)
    return Refusal{"topk", "is " + std::to_string(op.topk) + ", and the order in which torch leaves more than 128 is not known"};
  return {};
}

void hopper(const FastTopk& op, const Exec& exec) {
  parallel_for(exec.threads, row_count(op.values), 10.0 * static_cast<double>(op.width()),
               [&](std::int64_t t) { copy_chosen(op, t, largest_by_torch(numbers(op, t), op.topk)); });
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_fast_topk() {
  return define<ops::FastTopk>({
      .contract = R"(
Numbers are copied, bit by bit. Any order of equal numbers is right, and any of those that equal the last one; for topk = 1 torch gives the
first of them, and so do we always. Hopper mode has torch.topk's order (2.11): what lies above the last number in order of place, then
those that equal it (zeros of either sign told apart); up to 32 of them sorted by a bitonic network of 32 places, up to 128 stably.)",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .check = ops::check,
      .condition = ops::condition,
      .mistakes = {{"by-magnitude", "numbers are compared by magnitude", ops::golden<ops::Rule::by_magnitude>},
                   {"nan-is-least", "NaN stands below all numbers", ops::golden<ops::Rule::nan_is_least>}},
      .customary = {{"out_values", CustomaryKind::close, 0, 0, "sgl-kernel/tests/test_topk.py"},
                    {"indices", CustomaryKind::unchecked, 0, 0, "sgl-kernel/tests/test_topk.py"}},
      .cases = {"T=4 V=1000 --attr topk=4", "T=3 V=32000 --attr topk=1", "T=6 V=512 --dtype values=bf16 --attr topk=8",
                "T=5 V=64 --dtype values=f16 --attr topk=16 --dist ties", "T=2 V=300 --attr topk=100", "T=2 V=17 --attr topk=17",
                "T=3 V=100 --attr topk=5 --special nan-elements"},
      .bench_cases = {"T=64 V=129280 --attr topk=8", "T=4 V=129280 --attr topk=64", "T=64 V=64 --attr topk=8"},
  });
}
}  // namespace dodona
