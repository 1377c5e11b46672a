#include "oracle/judge/distribution.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "core/fixed_math.h"
#include "dodona/error.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

/// n * KL(k/n || p) of a count.
double divergence(double n, double k, double p) {
  const auto part = [&](double count, double share) { return count > 0 ? count * fixed::log(count / (n * share)) : 0.0; };
  if (p >= 1) return k < n ? std::numeric_limits<double>::infinity() : 0.0;
  return part(k, p) + part(n - k, 1 - p);
}

std::string described(std::int64_t begin, std::int64_t end, double count, double expected) {
  char text[128];
  if (end - begin == 1) {
    std::snprintf(text, sizeof text, "token %lld: %.0f draws, expected %.1f", static_cast<long long>(begin), count, expected);
  } else {
    std::snprintf(text, sizeof text, "tokens %lld to %lld: %.0f draws, expected %.1f", static_cast<long long>(begin),
                  static_cast<long long>(end - 1), count, expected);
  }
  return text;
}

struct Counts {
  std::span<const double> probabilities;
  std::vector<double> counts;
  double draws = 0;
};

/// Cells of less than five expected draws are one.
DrawsTest cells_test(const Counts& c, double rate) {
  DrawsTest test{"cells"};
  double pooled = 0, pooled_share = 0, farthest = 0;
  int cells = 0;
  for (std::size_t i = 0; i < c.counts.size(); ++i) {
    const double p = c.probabilities[i], expected = c.draws * p;
    if (p <= 0) continue;
    if (expected < 5) {
      pooled += c.counts[i];
      pooled_share += p;
      continue;
    }
    ++cells;
    if (c.counts[i] > 0) test.statistic += c.counts[i] * fixed::log(c.counts[i] / expected);
    if (const double off = divergence(c.draws, c.counts[i], p); off > farthest) {
      farthest = off;
      test.worst = described(static_cast<std::int64_t>(i), static_cast<std::int64_t>(i) + 1, c.counts[i], expected);
    }
  }
  if (pooled_share > 0) {
    ++cells;
    if (pooled > 0) test.statistic += pooled * fixed::log(pooled / (c.draws * pooled_share));
  }
  const double freedom = std::max(1, cells - 1);
  // The least t whose bound is the rate, by bisection: the bound falls from t = freedom on.
  const auto bound = [&](double t) { return -t + freedom * (1 + fixed::log(t / freedom)); };
  double low = freedom, high = freedom + 1;
  while (bound(high) > fixed::log(rate)) high *= 2;
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    (bound(middle) > fixed::log(rate) ? low : high) = middle;
  }
  test.limit = high;
  test.rejects = test.statistic > test.limit;
  return test;
}

DrawsTest runs_test(const Counts& c, double rate) {
  DrawsTest test{"runs"};
  std::vector<double> share(c.counts.size() + 1), count(c.counts.size() + 1);
  for (std::size_t i = 0; i < c.counts.size(); ++i) {
    share[i + 1] = share[i] + c.probabilities[i];
    count[i + 1] = count[i] + c.counts[i];
  }
  // Stretches of length 2^j: as many as twice the vocabulary.
  const double tests = 2 * static_cast<double>(c.counts.size()) + 64;
  test.limit = fixed::log(2 * tests / rate);
  for (std::size_t length = 1; length < c.counts.size(); length *= 2)
    for (std::size_t begin = 0; begin < c.counts.size(); begin += length) {
      const std::size_t end = std::min(begin + length, c.counts.size());
      const double p = share[end] - share[begin], k = count[end] - count[begin];
      if (p <= 0) continue;
      const double off = divergence(c.draws, k, std::min(p, 1 - 0x1p-53));
      if (off > test.statistic) {
        test.statistic = off;
        test.worst = described(static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end), k, c.draws * p);
      }
    }
  test.rejects = test.statistic > test.limit;
  return test;
}

DrawsTest pairs_test(const Counts& c, std::span<const std::int64_t> draws, double rate) {
  DrawsTest test{"pairs"};
  double chance = 0;
  for (const double p : c.probabilities) chance += p * p;
  const std::size_t pairs = draws.size() / 2;
  double equal = 0;
  for (std::size_t i = 0; i < pairs; ++i) equal += draws[2 * i] == draws[2 * i + 1] ? 1 : 0;
  test.limit = fixed::log(2 / rate);
  if (pairs > 0) test.statistic = divergence(static_cast<double>(pairs), equal, std::min(chance, 1 - 0x1p-53));
  test.rejects = test.statistic > test.limit;
  char text[96];
  std::snprintf(text, sizeof text, "%.0f of %zu pairs of draws are equal, expected %.1f", equal, pairs,
                chance * static_cast<double>(pairs));
  test.worst = text;
  return test;
}

// ---- distributions of the ops

double of_row(const Arguments& inputs, std::string_view name, std::int64_t row, double otherwise) {
  if (const Tensor* each = inputs.find(name)) return quant::get(*each, row);
  if (const AttrValue* value = inputs.find_attr(name))
    return std::holds_alternative<double>(*value) ? std::get<double>(*value) : static_cast<double>(std::get<std::int64_t>(*value));
  return otherwise;
}

/// What is larger than each element: how many, and how much.
struct Larger {
  std::vector<std::int64_t> count;
  std::vector<double> sum;

  explicit Larger(const std::vector<double>& row) : count(row.size()), sum(row.size()) {
    std::vector<std::size_t> order(row.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return row[a] > row[b]; });
    double total = 0;
    for (std::size_t begin = 0; begin < order.size();) {
      std::size_t end = begin;
      double ties = 0;
      for (; end < order.size() && row[order[end]] == row[order[begin]]; ++end) {
        count[order[end]] = static_cast<std::int64_t>(begin);
        sum[order[end]] = total;
        ties += row[order[end]];
      }
      total += ties;
      begin = end;
    }
  }
};

void normalise(std::vector<double>& row) {
  const double sum = std::accumulate(row.begin(), row.end(), 0.0);
  for (double& p : row) p /= sum;
}

/// Of rejection: what is kept by its probability, but for what rows lack of a sum of 1 or have beyond it, which the first round gives to
/// the last token or takes from the last ones.
std::vector<double> of_rejection(const std::vector<double>& row, std::int64_t k, double p) {
  const Larger larger(row);
  std::vector<double> first(row.size()), kept(row.size());
  double before = 0, accepted = 0, mass = 0;
  std::size_t last = row.size();
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (!(row[i] > 0)) continue;
    first[i] = std::clamp(1 - before, 0.0, row[i]);
    before += row[i];
    last = i;
  }
  if (last < row.size()) first[last] += std::max(0.0, 1 - before);
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (!(row[i] > 0) || larger.count[i] >= k || !(larger.sum[i] < p)) continue;
    kept[i] = row[i];
    mass += row[i];
    accepted += first[i];
  }
  for (std::size_t i = 0; i < row.size(); ++i)
    if (kept[i] > 0) kept[i] = first[i] + (1 - accepted) * kept[i] / mass;
  normalise(kept);
  return kept;
}

std::int64_t count_of(double k) {
  return static_cast<std::int64_t>(static_cast<std::uint32_t>(static_cast<std::int64_t>(k)));
}

std::vector<double> of_min_p(const Arguments& inputs, const std::vector<double>& row, std::int64_t b, std::int64_t) {
  const double most = *std::max_element(row.begin(), row.end());
  const double bar = static_cast<float>(most) * static_cast<float>(of_row(inputs, "min_p", b, 0));
  std::vector<double> kept(row);
  for (double& p : kept) p = p >= bar ? p : 0;
  normalise(kept);
  return kept;
}

constexpr std::int64_t no_limit = std::int64_t{1} << 40;

std::vector<double> of_top_p(const Arguments& inputs, const std::vector<double>& row, std::int64_t, std::int64_t source) {
  return of_rejection(row, no_limit, static_cast<float>(of_row(inputs, "top_p", source, 0)));
}

std::vector<double> of_top_k_top_p(const Arguments& inputs, const std::vector<double>& row, std::int64_t, std::int64_t source) {
  const std::int64_t k = count_of(of_row(inputs, "top_k", source, 0));
  const double p = static_cast<float>(of_row(inputs, "top_p", source, 0));
  const AttrValue* order = inputs.find_attr("filter_apply_order");
  if (order != nullptr && std::get<std::string>(*order) == "joint") return of_rejection(row, k, p);
  const Larger larger(row);
  std::vector<double> cut(row);
  for (std::size_t i = 0; i < row.size(); ++i) cut[i] = larger.count[i] < k ? std::max(0.0, row[i]) : 0;
  const auto positive = std::count_if(row.begin(), row.end(), [](double x) { return x > 0; });
  if (positive > k) normalise(cut);
  return of_rejection(cut, no_limit, p);
}

struct Drawer {
  std::string_view op;
  std::vector<double> (*of)(const Arguments& inputs, const std::vector<double>& row, std::int64_t b, std::int64_t source);
};
constexpr std::array<Drawer, 3> drawers{{{"min_p_sampling_from_probs", of_min_p},
                                         {"top_p_sampling_from_probs", of_top_p},
                                         {"top_k_top_p_sampling_from_probs", of_top_k_top_p}}};

const Drawer* drawer_of(const Op& op) {
  const auto* found = std::find_if(drawers.begin(), drawers.end(), [&](const Drawer& one) { return one.op == op.name(); });
  return found == drawers.end() ? nullptr : found;
}

}  // namespace

bool DrawsVerdict::passes() const {
  return impossible == 0 && std::none_of(tests.begin(), tests.end(), [](const DrawsTest& test) { return test.rejects; });
}

DrawsVerdict judge_draws(std::span<const double> probabilities, std::span<const std::int64_t> draws, double alarm_rate) {
  DrawsVerdict verdict{static_cast<std::int64_t>(draws.size()), 0, {}, alarm_rate};
  Counts counts{probabilities, std::vector<double>(probabilities.size(), 0.0), static_cast<double>(draws.size())};
  for (const std::int64_t token : draws) {
    const bool possible =
        token >= 0 && token < static_cast<std::int64_t>(probabilities.size()) && probabilities[static_cast<std::size_t>(token)] > 0;
    if (possible) {
      ++counts.counts[static_cast<std::size_t>(token)];
    } else {
      ++verdict.impossible;
    }
  }
  if (draws.empty()) return verdict;
  const double rate = alarm_rate / 3;
  verdict.tests = {cells_test(counts, rate), runs_test(counts, rate), pairs_test(counts, draws, rate)};
  return verdict;
}

std::string to_string(const DrawsVerdict& verdict) {
  char text[256];
  std::snprintf(text, sizeof text, "%s: %lld draws, %lld impossible, false alarms at most %.0e\n", verdict.passes() ? "pass" : "FAIL",
                static_cast<long long>(verdict.draws), static_cast<long long>(verdict.impossible), verdict.alarm_rate);
  std::string all = text;
  for (const DrawsTest& test : verdict.tests) {
    std::snprintf(text, sizeof text, "  %-6s %9.2f of %9.2f  %s%s\n", std::string(test.name).c_str(), test.statistic, test.limit,
                  test.rejects ? "REJECTS: " : "", test.worst.c_str());
    all += text;
  }
  return all;
}

std::vector<double> distribution_of(const Op& op, const Arguments& inputs, std::int64_t row) {
  const Drawer* drawer = drawer_of(op);
  if (drawer == nullptr)
    throw Error(ErrorCode::unsupported, std::string(op.name()), "", "draws nothing: there is no distribution to hold it to");
  const Tensor& probs = *inputs.find("probs");
  const Tensor* indices = inputs.find("indices");
  const auto source = indices != nullptr ? static_cast<std::int64_t>(quant::get(*indices, row)) : row;
  std::vector<double> values(static_cast<std::size_t>(probs.size(1)));
  for (std::size_t v = 0; v < values.size(); ++v) {
    const double p = quant::get(probs, source * probs.size(1) + static_cast<std::int64_t>(v));
    values[v] = p == p ? std::max(p, 0.0) : 0.0;
  }
  return drawer->of(inputs, values, row, source);
}

}  // namespace dodona::oracle
