#include "ops/draws/sampling.h"

#include <algorithm>
#include <string>

#include "core/threads.h"
#include "dodona/error.h"
#include "ops/base/golden_output.h"
#include "ops/base/rows.h"
#include "ops/draws/fast_draws.h"
#include "ops/draws/renorm.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

std::span<const float> row_of(const Tensor& probs, std::int64_t row) {
  return {reinterpret_cast<const float*>(row_begin(probs, row, 4)), static_cast<std::size_t>(probs.size(1))};
}

/// Draws with `token_of(row, rule, stream)` for every output row; nothing is written unless each gave one.
template <class TokenOf>
std::vector<std::int64_t> tokens_of(const Sampling& call, const Exec& exec, const TokenOf& token_of, bool one_subsequence = false) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(call.samples.size(0)));
  parallel_for(exec.threads, call.samples.size(0), 64.0 * static_cast<double>(call.probs.size(1)), [&](std::int64_t b) {
    const auto at = static_cast<std::size_t>(b);
    const PhiloxStream stream(call.seed, one_subsequence ? 0 : at, call.offset);
    tokens[at] = token_of(row_of(call.probs, call.source(b)), call.rules[at], stream);
    if (tokens[at] < 0)
      throw Error(ErrorCode::bad_value, "", "probs",
                  "holds nothing above zero in row " + std::to_string(call.source(b)) + ", expected something to draw");
  });
  return tokens;
}

void write(const Sampling& call, const std::vector<std::int64_t>& tokens) {
  for (std::size_t b = 0; b < tokens.size(); ++b) quant::set(call.samples, static_cast<std::int64_t>(b), static_cast<double>(tokens[b]));
}

/// The row that is drawn from, and by how many units of 2^-24 its numbers may be off.
struct DrawnRow {
  std::vector<float> kept;
  std::span<const float> row;
  double units = 0;
};

DrawnRow exact_row(std::span<const float> row, const RowRule& rule) {
  if (!rule.top_k_first) return {{}, row};
  const SortedRow sorted(row);
  const Renorm renorm = exact_renorm(sorted, row, *rule.top_k_first);
  DrawnRow drawn{std::vector<float>(row.size()), {}, 0};
  for (std::size_t i = 0; i < row.size(); ++i)
    drawn.kept[i] = renorm.keeps(row[i]) ? static_cast<float>(static_cast<double>(row[i]) / renorm.divisor.exact) : 0.0f;
  drawn.row = drawn.kept;
  drawn.units = additions_of(static_cast<std::int64_t>(row.size())) + 5;
  return drawn;
}

/// The largest, NaN passed over, at least 0; times min_p in fp32.
Bar bar_of(std::span<const float> row, float min_p) {
  float most = 0;
  for (const float x : row) most = x > most ? x : most;
  return {static_cast<double>(most * min_p), true};
}

std::int64_t exact_token(std::span<const float> row, const RowRule& rule, const PhiloxStream& stream, DrawRule draw) {
  const DrawnRow drawn = exact_row(row, rule);
  const ExactDraws draws(drawn.row, drawn.units);
  return rule.min_p ? draws.above(bar_of(row, *rule.min_p), stream) : draws.rejection(rule.accepts, stream, draw);
}

bool is_possible(std::span<const float> row, const RowRule& rule, const PhiloxStream& stream, std::int64_t token) {
  const DrawnRow drawn = exact_row(row, rule);
  const ExactDraws draws(drawn.row, drawn.units);
  return rule.min_p ? draws.may_be_above(token, bar_of(row, *rule.min_p), stream) : draws.may_reject_to(token, rule.accepts, stream);
}

}  // namespace

std::int64_t Sampling::source(std::int64_t b) const {
  return indices.defined() ? static_cast<std::int64_t>(quant::get(indices, b)) : b;
}

void golden_samples(const Sampling& call, const Exec& exec, Reference* reference, SamplingMistake mistake) {
  const DrawRule draw = mistake == SamplingMistake::mass_left_whole ? DrawRule::mass_left_whole : DrawRule::right;
  const auto token_of = [&](std::span<const float> row, const RowRule& rule, const PhiloxStream& stream) {
    return exact_token(row, rule, stream, draw);
  };
  write(call, tokens_of(call, exec, token_of, mistake == SamplingMistake::one_subsequence));
  record_exact(call.samples, reference, "samples");
}

void condition_samples(const Sampling& actual, const Exec& exec, Reference& reference) {
  ReferenceOutput& expected = reference.output("samples", actual.samples.elements());
  parallel_for(exec.threads, actual.samples.size(0), 1e6, [&](std::int64_t b) {
    const auto at = static_cast<std::size_t>(b);
    const auto token = static_cast<std::int64_t>(quant::get(actual.samples, b));
    if (static_cast<double>(token) == expected.exact[at] || token < 0 || token >= actual.probs.size(1)) return;
    const PhiloxStream stream(actual.seed, at, actual.offset);
    if (is_possible(row_of(actual.probs, actual.source(b)), actual.rules[at], stream, token))
      expected.exact[at] = static_cast<double>(token);
  });
}

bool may_be_behind_nan(const Sampling& actual, std::int64_t b) {
  const std::span<const float> row = row_of(actual.probs, actual.source(b));
  const RowRule& rule = actual.rules[static_cast<std::size_t>(b)];
  const auto token = static_cast<std::int64_t>(quant::get(actual.samples, b));
  const bool has_nan = std::any_of(row.begin(), row.end(), [](float x) { return x != x; });
  if (!rule.min_p || !has_nan || token < 0 || token >= actual.probs.size(1)) return false;
  const DrawnRow drawn = exact_row(row, rule);
  const Bar bar{static_cast<double>(BlockedRow(row).most() * *rule.min_p), true};
  const PhiloxStream stream(actual.seed, static_cast<std::size_t>(b), actual.offset);
  return ExactDraws(drawn.row, drawn.units).may_be_above(token, bar, stream);
}

void fast_samples(const Sampling& call, const Exec& exec) {
  write(call, tokens_of(call, exec, [&](std::span<const float> row, const RowRule& rule, const PhiloxStream& stream) {
          if (!rule.min_p) return fast_rejection(row, rule.top_k_first, rule.accepts, stream, exec);
          return fast_above(row, {static_cast<double>(largest_of(row, exec.isa) * *rule.min_p), true}, stream, exec);
        }));
}

void hopper_samples(const Sampling& call, const Exec& exec) {
  const Scan scan = call.deterministic ? Scan::deterministic : Scan::warp_scans;
  write(call, tokens_of(call, exec, [&](std::span<const float> row, const RowRule& rule, const PhiloxStream& stream) {
          if (rule.min_p) {
            const BlockedRow blocked(row);
            return hopper_above(blocked, {quant::hopper::mul(blocked.most(), *rule.min_p), true}, stream, scan);
          }
          if (!rule.top_k_first) return hopper_rejection(BlockedRow(row), rule.accepts, stream, scan);
          std::vector<float> kept(row.size());
          hopper_renorm(row, *rule.top_k_first, kept.data());
          return hopper_rejection(BlockedRow(kept), rule.accepts, stream, scan);
        }));
}

float threshold_of(const Tensor& each, double all, std::int64_t row) {
  return each.defined() ? static_cast<float>(quant::get(each, row)) : static_cast<float>(all);
}

std::uint32_t count_of(const Tensor& each, std::int64_t all, std::int64_t row) {
  return static_cast<std::uint32_t>(each.defined() ? static_cast<std::int64_t>(quant::get(each, row)) : all);
}

void require_rows(const Tensor& probs, const Tensor& indices, const Tensor& samples) {
  if (!indices.defined() && samples.size(0) != probs.size(0))
    throw Error(ErrorCode::bad_shape, "", "samples",
                "has " + std::to_string(samples.size(0)) + " elements, expected " + std::to_string(probs.size(0)) +
                    ", one for each row of probs where there are no indices");
}

void make_samples(const Tensor& probs, const Tensor& indices, Tensor& samples) {
  const Tensor& rows = indices.defined() ? indices : probs;
  if (!samples.defined() && rows.defined() && rows.rank() > 0) samples = Tensor(DType::i32, {rows.size(0)});
}

void require_positive(const Tensor& each, double all, const char* name) {
  const auto refuse = [&](double value, const std::string& where) {
    const bool flushed = value > 0;
    throw Error(ErrorCode::bad_value, "", name,
                where + (flushed ? to_string(AttrValue(value)) : std::to_string(value)) + ", expected above " +
                    (flushed ? "the denormals, which builds with fast math flush" : "0") + ": nothing could be drawn");
  };
  constexpr double least = std::numeric_limits<float>::min();
  if (!each.defined() && !(static_cast<float>(all) >= least)) refuse(all, "is ");
  for (std::int64_t row = 0; each.defined() && row < each.elements(); ++row) {
    const double value = quant::get(each, row);
    // A count is read as an unsigned number: -1 keeps everything.
    if (each.dtype() == DType::f32 ? !(value >= least) : value == 0) refuse(value, "in row " + std::to_string(row) + " is ");
  }
}

}  // namespace dodona::ops
