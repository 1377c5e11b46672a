#include "oracle/judge/pattern/displaced.h"

#include <algorithm>
#include <map>
#include <set>

#include "oracle/judge/pattern/index_rules.h"
#include "quant/element.h"

namespace dodona::oracle::pattern {
namespace {

/// Where element i's value would come from under a displacement; -1 for nowhere.
struct Displacement {
  std::string text;
  std::function<std::int64_t(std::int64_t)> source;
};

std::vector<Displacement> displacements(const Dims& shape) {
  const std::int64_t width = shape.rank() > 0 ? shape.at(-1) : 1, total = element_count(shape);
  const std::int64_t rows = width > 0 ? total / width : 0;
  std::vector<Displacement> list;
  if (width > 1 && width % 2 == 0) {
    list.push_back(
        {"the halves of each row are swapped", [=](std::int64_t i) { return i / width * width + (i % width + width / 2) % width; }});
    list.push_back({"neighbours are swapped (even and odd columns, or nibbles)", [](std::int64_t i) { return i ^ 1; }});
    list.push_back({"pairs are laid out interleaved instead of in halves", [=](std::int64_t i) {
                      const std::int64_t c = i % width;
                      return i / width * width + c / 2 + c % 2 * (width / 2);
                    }});
    list.push_back({"pairs are laid out in halves instead of interleaved", [=](std::int64_t i) {
                      const std::int64_t c = i % width;
                      return i / width * width + (c < width / 2 ? 2 * c : 2 * (c - width / 2) + 1);
                    }});
  }
  for (const std::int64_t step : {1, -1, 2, -2, 4, -4, 8, -8, 16, -16, 32, -32, 64, -64, 128, -128}) {
    const std::string by = (step > 0 ? "+" : "") + text(step);
    if (std::abs(step) < width)
      list.push_back({"shifted along the row: actual[c] = golden[c " + by + "]", [=](std::int64_t i) {
                        const std::int64_t c = i % width + step;
                        return c >= 0 && c < width ? i + step : -1;
                      }});
    if (std::abs(step) < rows)
      list.push_back({"shifted by rows: actual[r] = golden[r " + by + "]", [=](std::int64_t i) {
                        const std::int64_t r = i / width + step;
                        return r >= 0 && r < rows ? i + step * width : -1;
                      }});
  }
  // Stored over each other, or without the padding between them: rows that are nearer to each other than they are wide.
  constexpr std::int64_t few_columns = 64;
  for (std::int64_t apart = 1; rows > 1 && apart < width; apart = apart == 1 && width > few_columns ? width : apart + 1)
    list.push_back({"rows are stored " + text(apart) + (apart == 1 ? " element" : " elements") + " apart, where they are " + text(width) +
                        " apart: at another stride, or without their padding",
                    [=](std::int64_t i) {
                      const std::int64_t row = std::min(i / apart, rows - 1), column = i - row * apart;
                      return column < width ? row * width + column : -1;
                    }});
  for (const std::int64_t parts : {2, 4, 8, 16})
    for (const std::int64_t step : {1, -1})
      if (rows > 1 && total % parts == 0 && (total / parts) % width != 0)
        list.push_back({"the " + text(parts) + " equal parts of all elements lie rotated: each is the one " +
                            (step > 0 ? "behind" : "before") + " it, as parts of ranks that are put together from the wrong one on",
                        [=](std::int64_t i) { return (i + step * (total / parts) + total) % total; }});
  if (shape.rank() >= 2 && shape.at(-2) == width && width > 1)
    list.push_back({"rows and columns are swapped (transposed)", [=](std::int64_t i) {
                      const std::int64_t block = i / (width * width), at = i % (width * width);
                      return block * width * width + at % width * width + at / width;
                    }});
  return list;
}

std::uint64_t row_hash(const Tensor& tensor, std::int64_t row, std::int64_t width) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (std::int64_t c = 0; c < width; ++c) hash = (hash ^ quant::get_bits(tensor, row * width + c)) * 0x100000001b3;
  return hash;
}

/// Which index along a dimension holds which of golden's.
using Sources = std::map<std::int64_t, std::int64_t>;

/// `i / 4`, where one rule makes all of these and there are enough of them.
std::string rule_of(const Sources& sources, std::int64_t extent) {
  constexpr std::size_t enough = 4;
  if (sources.size() < enough) return {};
  for (const IndexRule& rule : index_rules(extent))
    if (std::all_of(sources.begin(), sources.end(), [&](const auto& pair) { return rule.from(pair.first) == pair.second; }))
      return rule.words;
  const std::int64_t first = sources.begin()->second;
  const bool one = std::all_of(sources.begin(), sources.end(), [&](const auto& pair) { return pair.second == first; });
  return one ? text(first) + ", all of them" : "";
}
std::string examples_of(const Sources& sources, const std::string& noun) {
  std::string examples;
  int shown = 0;
  for (const auto& [index, source] : sources) {
    if (++shown > 3) break;
    examples += (shown > 1 ? ", " : "") + (noun + " " + text(index) + " holds golden's " + noun + " " + text(source));
  }
  return examples + (sources.size() > 3 ? "..." : "");
}
std::string words_of(const Sources& sources, std::int64_t extent, const std::string& noun) {
  const std::string rule = rule_of(sources, extent), examples = examples_of(sources, noun);
  return noun + "s of golden in another place: " +
         (rule.empty() ? examples : noun + " i holds golden's " + noun + " " + rule + " (" + examples + ")");
}

/// Of one dimension, at some places across it where elements fail: which of golden's indices those that fail hold. Nothing where some hold
/// none.
std::optional<Sources> sources_along(const std::vector<std::int64_t>& failing, const Tensor& golden, const Tensor& actual,
                                     std::int64_t extent, std::int64_t below) {
  constexpr std::size_t most_places = 24, enough_places = 6, too_common = 64;
  const auto place_of = [&](std::int64_t i) { return i / (below * extent) * below * extent + i % below; };
  std::set<std::int64_t> places, indices;
  for (std::size_t k = 0; k < failing.size() && places.size() < most_places; k += failing.size() / (4 * most_places) + 1)
    places.insert(place_of(failing[k]));
  if (places.size() < enough_places) return std::nullopt;
  for (const std::int64_t i : failing)
    if (places.count(place_of(i)) > 0) indices.insert(i / below % extent);
  std::vector<std::map<std::uint64_t, std::vector<std::int64_t>>> holders;
  for (const std::int64_t place : places) {
    auto& its = holders.emplace_back();
    for (std::int64_t j = 0; j < extent; ++j) its[quant::get_bits(golden, place + j * below)].push_back(j);
  }
  Sources found;
  for (const std::int64_t index : indices) {
    std::map<std::int64_t, std::size_t> votes;
    std::size_t asked = 0, k = 0;
    for (const std::int64_t place : places) {
      const auto& its = holders[k++];
      const auto same = its.find(quant::get_bits(actual, place + index * below));
      if (same != its.end() && same->second.size() > too_common) continue;
      ++asked;
      if (same != its.end())
        for (const std::int64_t j : same->second) ++votes[j];
    }
    const auto best = std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    if (asked < enough_places || best == votes.end() || 10 * best->second < 9 * asked) return std::nullopt;
    if (const auto own = votes.find(index); own != votes.end() && own->second == best->second) continue;  // a chance
    found[index] = best->first;
  }
  return found.empty() ? std::nullopt : std::optional(found);
}

/// One rule that nearly all failing elements follow, however few places there are across.
std::optional<std::string> rule_along(const std::vector<std::int64_t>& failing, const Tensor& golden, const Tensor& actual,
                                      std::int64_t extent, std::int64_t below, const std::string& noun) {
  constexpr std::size_t most_asked = 256, enough = 8, enough_values = 6;
  std::vector<std::int64_t> asked;
  std::set<std::uint64_t> values;
  for (std::size_t k = 0; k < failing.size(); k += failing.size() / most_asked + 1) {
    asked.push_back(failing[k]);
    values.insert(quant::get_bits(actual, failing[k]));
  }
  if (asked.size() < enough || values.size() < enough_values) return std::nullopt;
  for (const IndexRule& rule : index_rules(extent)) {
    std::size_t wrong = 0, elsewhere = 0;
    for (const std::int64_t i : asked) {
      const std::int64_t index = i / below % extent, from = rule.from(index);
      const bool same = from >= 0 && quant::get_bits(golden, i + (from - index) * below) == quant::get_bits(actual, i);
      elsewhere += same ? 1 : 0;
      wrong += from >= 0 && !same ? 1 : 0;
      if (20 * wrong > asked.size()) break;
    }
    // Some may be taken from beyond the end.
    if (20 * wrong <= asked.size() && elsewhere >= enough && 2 * elsewhere >= asked.size())
      return noun + "s of golden in another place: " + noun + " i holds golden's " + noun + " " + rule.words;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> displaced(const std::vector<Sample>& samples, const Tensor& golden, const Tensor& actual, const Dims& shape) {
  // Too few elements, or hardly any two different values, prove nothing.
  std::set<std::uint64_t> values;
  for (const Sample& s : samples) values.insert(quant::get_bits(actual, s.index));
  if (samples.size() < 4 || values.size() < 4) return std::nullopt;
  for (const Displacement& displacement : displacements(shape)) {
    std::size_t possible = 0, equal = 0, unwritten = 0;
    for (const Sample& s : samples) {
      const std::int64_t source = displacement.source(s.index);
      unwritten += source < 0 && s.actual == 0 ? 1 : 0;
      if (source < 0) continue;
      ++possible;
      equal += quant::get_bits(golden, source) == quant::get_bits(actual, s.index) ? 1 : 0;
    }
    if (2 * possible < samples.size() - unwritten || possible < 4 ||
        static_cast<double>(equal) < nearly_all * static_cast<double>(possible))
      continue;
    // What is swapped is wrong on both sides.
    const bool swaps = displacement.text.ends_with("swapped") || displacement.text.starts_with("neighbours are swapped");
    const auto kept = std::count_if(samples.begin(), samples.end(), [&](const Sample& s) {
      const std::int64_t source = displacement.source(s.index);
      return source >= 0 && quant::get_bits(golden, source) == quant::get_bits(actual, source);
    });
    if (!swaps || 2 * static_cast<std::size_t>(kept) < samples.size()) return displacement.text;
    if (displacement.text.starts_with("neighbours")) return "the value of the neighbour, which keeps it too: two share one";
  }
  return std::nullopt;
}

std::optional<std::string> permuted_rows(const std::vector<std::int64_t>& failing, const Tensor& golden, const Tensor& actual) {
  const std::int64_t width = golden.rank() > 0 ? golden.size(-1) : 1;
  if (width < 4 || golden.elements() / width < 2) return std::nullopt;
  std::set<std::int64_t> rows;
  for (const std::int64_t i : failing) rows.insert(i / width);
  std::map<std::uint64_t, std::int64_t> by_hash;
  for (std::int64_t row = 0; row < golden.elements() / width; ++row) by_hash.emplace(row_hash(golden, row, width), row);
  Sources sources;
  for (const std::int64_t row : rows) {
    const std::uint64_t hash = row_hash(actual, row, width);
    const auto other = by_hash.find(hash);
    if (other == by_hash.end() || row_hash(golden, row, width) == hash) return std::nullopt;
    sources[row] = other->second;
  }
  return words_of(sources, golden.elements() / width, "row");
}

std::optional<std::string> indices_elsewhere(const std::vector<std::int64_t>& failing, const Tensor& golden, const Tensor& actual,
                                             const Dims& shape) {
  constexpr std::int64_t largest = 1 << 14;
  if (shape.rank() < 2) return std::nullopt;
  std::int64_t below = 1;
  for (int d = shape.rank() - 1; d >= 0; below *= shape[d--]) {
    if (shape[d] < 4 || shape[d] > largest) continue;
    const std::string noun = d == shape.rank() - 1 ? "column" : shape.rank() == 2 ? "row" : "index of dimension " + text(d);
    if (const auto sources = sources_along(failing, golden, actual, shape[d], below); sources && sources->size() >= 2)
      return words_of(*sources, shape[d], noun);
    if (auto words = rule_along(failing, golden, actual, shape[d], below, noun)) return words;
  }
  return std::nullopt;
}

std::optional<std::string> rows_at_another_stride(const std::vector<std::int64_t>& failing, const Tensor& golden, const Tensor& actual,
                                                  const Dims& shape) {
  const std::int64_t width = shape.rank() > 0 ? shape.at(-1) : 1;
  if (shape.rank() < 3 || width < 4) return std::nullopt;
  std::map<std::uint64_t, std::int64_t> by_hash;
  std::set<std::uint64_t> twice;
  for (std::int64_t row = 0; row < golden.elements() / width; ++row)
    if (const std::uint64_t hash = row_hash(golden, row, width); !by_hash.emplace(hash, row).second) twice.insert(hash);
  std::set<std::int64_t> rows;
  for (const std::int64_t i : failing) rows.insert(i / width);
  // Where each row of golden lies, by what it is in each dimension.
  std::map<std::int64_t, std::int64_t> lies;
  for (const std::int64_t row : rows) {
    const std::uint64_t hash = row_hash(actual, row, width);
    if (const auto other = by_hash.find(hash); other != by_hash.end() && twice.count(hash) == 0 && other->second != row)
      lies[other->second] = row;
  }
  if (lies.size() < 4 || 4 * lies.size() < rows.size()) return std::nullopt;
  std::int64_t below = 1;
  for (int d = shape.rank() - 2; d >= 0; below *= shape[d--]) {
    if (shape[d] < 2) continue;
    std::set<std::int64_t> strides;
    std::size_t agree = 0;
    for (const auto& [from, to] : lies) {
      const std::int64_t index = from / below % shape[d];
      if (index == 0) continue;
      // The first one of the dimension is where it belongs, or lies elsewhere too.
      const std::int64_t first = from - index * below;
      const auto its = lies.find(first);
      const std::int64_t apart = to - (its != lies.end() ? its->second : first);
      if (apart % index != 0) continue;
      strides.insert(apart / index), ++agree;
    }
    if (strides.size() == 1 && agree >= 3 && 2 * agree >= lies.size() && *strides.begin() != below)
      return "along dimension " + text(d) + " (of " + text(shape[d]) + ") rows are stored " + text(*strides.begin()) +
             " apart, where they are " + text(below) + " apart: at another stride";
  }
  return std::nullopt;
}

}  // namespace dodona::oracle::pattern
