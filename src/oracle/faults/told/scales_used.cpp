#include "oracle/faults/told/scales_used.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/storage.h"
#include "oracle/faults/product_model.h"
#include "oracle/faults/rewritten.h"
#include "oracle/faults/tables/fault_tools.h"
#include "oracle/faults/told/least_squares.h"
#include "oracle/judge/pattern/samples.h"

namespace dodona::oracle {
namespace {

using pattern::number;

/// Of a matrix of scales: groups of the operand's rows, and blocks of the depth.
struct Place {
  std::int64_t group, block;
};

/// What was multiplied with in the place of a scale.
struct Used {
  Place place;
  double value, room;
};

class ScalesOf {
 public:
  /// With `split` each block is asked for in so many parts.
  ScalesOf(const FaultCase& call, const ProductModel& model, const OutputVerdict& output, const ScaleBlocks& blocks, std::int64_t split)
      : call_(call), model_(model), output_(output), blocks_(blocks), split_(split) {
    std::vector<ScaleBlocks> others;
    for (const ScaleBlocks& other : model.blocks())
      if (other.scale != blocks.scale) others.push_back(other);
    factors_ = model.factors(others);
    groups_ = blocks.depth_is_row ? blocks.in_columns : blocks.in_rows;
    in_depth_ = (blocks.depth_is_row ? blocks.in_rows : blocks.in_columns) * split;
    group_size_ = blocks.depth_is_row ? blocks.columns : blocks.rows;
    block_size_ = (blocks.depth_is_row ? blocks.rows : blocks.columns) / split;
    read_given();
  }

  std::optional<Explanation> explanation(const NamedTensors& actual, const JudgeOptions& options) {
    const auto rest = model_.addends(model_.factors());
    if (!rest || in_depth_ < 2) return std::nullopt;
    rest_ = *rest;
    const std::vector<Used> used = told();
    if (used.empty()) return std::nullopt;
    std::vector<Used> other;
    for (const Used& u : used)
      if (!near(u, given(u.place))) other.push_back(u);
    if (other.empty()) return std::nullopt;
    // Each scale as a rule has it, or else what was told.
    for (const Rule& rule : rules())
      if (std::all_of(other.begin(), other.end(), [&](const Used& u) { return holds(rule, u); }))
        if (auto found = verified(
                [&](const Place& p) {
                  const auto value = rule.value(p);
                  return value ? *value : given(p);
                },
                rule.words, actual, options))
          return found;
    return by_examples(used, other, actual, options);
  }

 private:
  struct Rule {
    std::string words;
    std::function<std::optional<double>(const Place&)> value;
  };

  void read_given() {
    // Ones for everything but the scales of one operand are these scales themselves.
    const Tensor& scale = *call_.inputs.find(blocks_.scale);
    const auto& storage = *call_.op.schema().find_tensor(blocks_.scale)->storage.scales;
    for (std::int64_t i = 0; i < blocks_.in_rows * blocks_.in_columns; ++i) {
      std::int64_t from = i;
      if (storage.order == ScaleOrder::m_major) from = i % blocks_.in_columns * blocks_.in_rows + i / blocks_.in_columns;
      if (fault_tools::in_tiles(storage.order)) {
        const fault_tools::ScaleMatrices tiles{scale.size(-2), scale.size(-1), storage.order};
        from = tiles.in_tiles(i / blocks_.in_columns * tiles.columns + i % blocks_.in_columns);
      }
      given_.push_back(quant::get(scale, from));
    }
  }
  double given(const Place& p) const {
    const std::int64_t block = p.block / split_;
    const std::int64_t row = blocks_.depth_is_row ? block : p.group, column = blocks_.depth_is_row ? p.group : block;
    return given_[static_cast<std::size_t>(row * blocks_.in_columns + column)];
  }
  bool inside(const Place& p) const { return p.group >= 0 && p.group < groups_ && p.block >= 0 && p.block < in_depth_; }
  static bool near(const Used& u, double value) {
    constexpr double percent = 0.01;
    return std::fabs(u.value - value) <= 5 * u.room + percent * std::fabs(value);
  }
  bool holds(const Rule& rule, const Used& u) const {
    const auto value = rule.value(u.place);
    return value && near(u, *value);
  }

  std::int64_t group_of(std::int64_t i) const {
    const std::int64_t m = i / model_.columns() % model_.rows(), n = i % model_.columns();
    return std::min((blocks_.of_columns ? n : m) / group_size_, groups_ - 1);
  }
  /// What each block adds to an element, but for its scale.
  std::vector<double> blocks_of(std::int64_t i) const {
    const std::int64_t m = i / model_.columns(), n = i % model_.columns(), depth = model_.depth();
    std::vector<double> sums(static_cast<std::size_t>(in_depth_));
    for (std::int64_t k = 0; k < depth; ++k)
      sums[static_cast<std::size_t>(std::min(k / block_size_, in_depth_ - 1))] +=
          static_cast<double>(factors_.a[static_cast<std::size_t>(m * depth + k)]) *
          static_cast<double>(factors_.b[static_cast<std::size_t>(n * depth + k)]);
    for (double& sum : sums) sum *= factors_.outer[static_cast<std::size_t>(i)];
    return sums;
  }

  /// Of every group that enough elements fail of.
  std::vector<Used> told() const {
    constexpr std::size_t most_equations = 512;
    const Tensor& actual = output_.detail->actual;
    const ReferenceOutput& reference = *call_.golden.reference.find(model_.output());
    std::map<std::int64_t, std::vector<std::int64_t>> by_group;
    for (const std::int64_t i : output_.detail->failing)
      if (std::isfinite(quant::get(actual, i))) by_group[group_of(i)].push_back(i);
    std::vector<Used> found;
    for (const auto& [group, elements] : by_group) {
      if (elements.size() < 2 * static_cast<std::size_t>(in_depth_)) continue;
      LeastSquares equations(static_cast<std::size_t>(in_depth_));
      for (std::size_t k = 0; k < elements.size(); k += elements.size() / most_equations + 1) {
        const auto at = static_cast<std::size_t>(elements[k]);
        equations.add(blocks_of(elements[k]), quant::get(actual, elements[k]) - rest_[at],
                      quant::ulp(actual.dtype(), quant::get(actual, elements[k])) / 2 + reference.slack[at] + 1e-30);
      }
      const auto solution = equations.solved();
      if (!solution) continue;
      for (std::int64_t c = 0; c < in_depth_; ++c)
        found.push_back({{group, c}, solution->x[static_cast<std::size_t>(c)], solution->room[static_cast<std::size_t>(c)]});
    }
    return found;
  }

  std::vector<Rule> rules() const {
    std::vector<Rule> found;
    const std::string is = blocks_.scale + ": in each block ";
    const auto add = [&](std::string words, std::function<std::optional<double>(const Place&)> value) {
      found.push_back({std::move(words), std::move(value)});
    };
    const auto from = [&](const std::string& words, const std::function<Place(const Place&)>& place) {
      add(words, [this, place](const Place& p) -> std::optional<double> {
        const Place other = place(p);
        if (!inside(other)) return std::nullopt;
        return given(other);
      });
    };
    if (split_ > 1) {
      const std::int64_t in_group = in_depth_ / split_;
      const std::string often = std::to_string(split_) + " times as often as they should, with every " + std::to_string(block_size_);
      add(blocks_.scale + ": scales move on along the depth " + often + ": behind a row's last one come the next row's",
          [this, in_group](const Place& p) -> std::optional<double> {
            const std::int64_t at = std::min(p.group * in_group + p.block, groups_ * in_group - 1);
            return given({at / in_group, at % in_group * split_});
          });
      add(blocks_.scale + ": scales move on along the depth " + often + ": a row's last one counts for the rest",
          [this, in_group](const Place& p) -> std::optional<double> {
            return given({p.group, std::min(p.block, in_group - 1) * split_});
          });
      add(blocks_.scale + ": scales move on along the depth " + often + ", and begin anew behind the last",
          [this, in_group](const Place& p) -> std::optional<double> {
            return given({p.group, p.block % in_group * split_});
          });
      return found;
    }
    const std::string depth = blocks_.scale + ": block i of the depth has the scale of block ";
    for (const std::int64_t step : {-1, 1, -2, 2, -4, 4})
      from(depth + "i " + (step < 0 ? "- " : "+ ") + std::to_string(std::abs(step)) +
               (step == -1  ? ": the one before, which was not moved on"
                : step == 1 ? ": the next one"
                            : ""),
           [step](const Place& p) {
             return Place{p.group, p.block + step};
           });
    for (const std::int64_t width : {2, 4, 8, 16}) {
      const std::string n = std::to_string(width);
      from(depth + "i / " + n + " * " + n + ": the first group of each tile of " + n, [width](const Place& p) {
        return Place{p.group, p.block / width * width};
      });
      from(depth + "i / " + n, [width](const Place& p) { return Place{p.group, p.block / width}; });
      from(depth + "i mod " + n, [width](const Place& p) { return Place{p.group, p.block % width}; });
    }
    from(depth + "0: the first serves all", [](const Place& p) { return Place{p.group, 0}; });
    const std::string rows = blocks_.scale + ": a row has the scales of row ";
    for (const std::int64_t step : {-1, 1, -2, 2, -4, 4, -8, 8, -16, 16, -32, 32, -64, 64, -128, 128})
      from(rows + "i " + (step < 0 ? "- " : "+ ") + std::to_string(std::abs(step)), [step](const Place& p) {
        return Place{p.group + step, p.block};
      });
    add(blocks_.scale + ": the scale is not applied: it counts as 1", [](const Place&) { return 1.0; });
    add(blocks_.scale + ": the scale is 0: what it multiplies is not added", [](const Place&) { return 0.0; });
    add(is + "the scale is applied twice", [this](const Place& p) { return given(p) * given(p); });
    add(is + "the scale divides, where it should multiply", [this](const Place& p) { return 1 / given(p); });
    return found;
  }

  std::optional<Explanation> verified(const std::function<double(const Place&)>& value, const std::string& words,
                                      const NamedTensors& actual, const JudgeOptions& options) const {
    const ReferenceOutput& reference = *call_.golden.reference.find(model_.output());
    for (const bool everywhere : {true, false}) {
      std::vector<double> exact = reference.exact, slack = reference.slack;
      const auto put = [&](std::int64_t i) {
        const std::vector<double> sums = blocks_of(i);
        double sum = rest_[static_cast<std::size_t>(i)], before = 0, after = 0;
        for (std::int64_t c = 0; c < in_depth_; ++c) {
          const double part = sums[static_cast<std::size_t>(c)], scale = value({group_of(i), c});
          sum += scale * part, after += std::fabs(scale * part), before += std::fabs(given({group_of(i), c}) * part);
        }
        const auto at = static_cast<std::size_t>(i);
        exact[at] = sum;
        slack[at] = slack[at] * (before > 0 ? std::fmax(1, after / before) : 1) + 0x1p-20 * after;
      };
      if (everywhere) {
        for (std::int64_t i = 0; i < static_cast<std::int64_t>(exact.size()); ++i) put(i);
      } else {
        for (const std::int64_t i : output_.detail->failing) put(i);
      }
      GoldenRun run = call_.golden;
      fault_tools::put_numbers(run, model_.output(), exact, slack);
      if (judge(call_.op, call_.inputs, run, actual, options).outcome != Outcome::pass) continue;
      Explanation found{"scales-used", words + (everywhere ? "" : ", where it fails: " + output_.pattern)};
      found.outputs.push_back(model_.output());
      found.complete = true;
      return found;
    }
    return std::nullopt;
  }

  /// What of the call's scales was used, where each is one of them and few would be by chance.
  std::optional<Explanation> by_examples(const std::vector<Used>& used, const std::vector<Used>& other, const NamedTensors& actual,
                                         const JudgeOptions& options) const {
    std::map<std::pair<std::int64_t, std::int64_t>, double> values;
    for (const Used& u : used) values[{u.place.group, u.place.block}] = given(u.place);
    std::string examples;
    std::size_t shown = 0;
    for (const Used& u : other) {
      std::vector<Place> candidates;
      for (std::int64_t g = 0; g < groups_; ++g)
        for (std::int64_t c = 0; c < in_depth_; c += split_)
          if (near(u, given({g, c}))) candidates.push_back({g, c});
      double value = u.value;
      std::string what = number(u.value) + ", which is none of the call's";
      if (!candidates.empty()) {
        // The nearest by place, of those that fit.
        const Place best = *std::min_element(candidates.begin(), candidates.end(), [&](const Place& a, const Place& b) {
          const auto far = [&](const Place& p) {
            return std::abs(p.group - u.place.group) * (p.block == u.place.block ? 1 : 4) + std::abs(p.block - u.place.block);
          };
          return far(a) < far(b);
        });
        value = given(best);
        what = "that of row " + std::to_string(best.group) + ", block " + std::to_string(best.block / split_);
      }
      values[{u.place.group, u.place.block}] = value;
      constexpr std::size_t few = 3;
      if (shown++ < few)
        examples += (examples.empty() ? "" : "; ") + ("row " + std::to_string(u.place.group) + ", " + part_in_words(u.place.block)) +
                    " has " + what;
    }
    return verified(
        [&](const Place& p) {
          const auto found = values.find({p.group, p.block});
          return found != values.end() ? found->second : given(p);
        },
        blocks_.scale + ": other scales than the given ones multiply: " + examples + (shown > 3 ? "..." : ""), actual, options);
  }

  std::string part_in_words(std::int64_t block) const {
    const std::string number = std::to_string(block / split_);
    if (split_ == 1) return "block " + number;
    return "part " + std::to_string(block % split_) + " of " + std::to_string(split_) + " of block " + number;
  }

  const FaultCase& call_;
  const ProductModel& model_;
  const OutputVerdict& output_;
  const ScaleBlocks& blocks_;
  std::int64_t split_;
  ProductModel::Factors factors_;
  std::vector<double> given_, rest_;
  std::int64_t groups_ = 1, in_depth_ = 1, group_size_ = 1, block_size_ = 1;
};

}  // namespace

std::optional<Explanation> scales_used(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                       const JudgeOptions& options) {
  const auto model = ProductModel::of(call);
  if (!model || model->batches() != 1) return std::nullopt;
  constexpr std::int64_t most_work = std::int64_t{1} << 31;
  if (model->rows() * model->columns() * model->depth() > most_work) return std::nullopt;
  for (const OutputVerdict& output : verdict.outputs) {
    if (output.name != model->output() || output.failing == 0 || output.detail == nullptr || !is_float(output.detail->actual.dtype()) ||
        bits(output.detail->actual.dtype()) <= 8)
      continue;
    for (const std::int64_t split : {1, 2, 4, 8})
      for (const ScaleBlocks& blocks : model->blocks()) {
        constexpr std::int64_t most_parts = 64, least_part = 16;
        const std::int64_t size = blocks.depth_is_row ? blocks.rows : blocks.columns;
        if (split > 1 && (size % split != 0 || size / split < least_part || model->depth() / size * split > most_parts)) continue;
        if (auto found = ScalesOf(call, *model, output, blocks, split).explanation(actual, options)) return found;
      }
  }
  return std::nullopt;
}

}  // namespace dodona::oracle
