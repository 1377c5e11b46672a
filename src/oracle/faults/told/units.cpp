#include "oracle/faults/told/units.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <set>

namespace dodona::oracle {
namespace {

constexpr std::int64_t usual_tiles[] = {1, 8, 16, 32, 64, 128};

std::int64_t tiles_in(std::int64_t extent, std::int64_t tile) {
  return (extent + tile - 1) / tile;
}

std::vector<std::int64_t> runs_of(const Bits& bits) {
  std::vector<std::int64_t> runs;
  for (std::size_t w = 0; w < bits.size(); ++w)
    for (std::uint64_t left = bits[w]; left != 0; left &= left - 1)
      runs.push_back(static_cast<std::int64_t>(64 * w) + std::countr_zero(left));
  return runs;
}

struct Shared {
  Bits bits;
  std::int64_t elements = 0;
};

/// How likely it is that some unit has a run that gives all of it, where each run gives an element by chance as often as here those do that
/// are not the one of the unit.
double chance_of(const std::map<std::vector<std::int64_t>, Shared>& units, std::int64_t runs, std::int64_t elements, std::int64_t hits) {
  const double others = static_cast<double>(elements) * static_cast<double>(runs - 1);
  const double rate = (static_cast<double>(hits - elements) + 1) / (others + 1);
  double chance = 0;
  for (const auto& [unit, shared] : units)
    chance += static_cast<double>(runs) * std::pow(std::fmin(rate, 1.0), static_cast<double>(shared.elements));
  return chance;
}

// ---- rules: a number from a place

struct Rule {
  std::string words;  ///< of `i`, the place
  std::function<std::int64_t(std::int64_t)> value;
};

std::vector<Rule> rules() {
  std::vector<Rule> found{{"i", [](std::int64_t i) { return i; }}};
  for (const std::int64_t n : {1, 2, 3, 4, 8, 16}) {
    const std::string text = std::to_string(n);
    found.push_back({"i - " + text, [n](std::int64_t i) { return i - n; }});
    found.push_back({"i + " + text, [n](std::int64_t i) { return i + n; }});
  }
  for (const std::int64_t n : {2, 3, 4, 8, 16, 32, 64}) {
    const std::string text = std::to_string(n);
    found.push_back({"i mod " + text, [n](std::int64_t i) { return i % n; }});
    found.push_back({"i / " + text, [n](std::int64_t i) { return i / n; }});
    found.push_back({"i / " + text + " * " + text, [n](std::int64_t i) { return i / n * n; }});
    found.push_back({"i * " + text, [n](std::int64_t i) { return i * n; }});
  }
  found.push_back({"i with its lowest bit turned", [](std::int64_t i) { return i ^ 1; }});
  return found;
}

/// Two dimensions in single indices, one behind the other, counted as one.
bool count_as_one(const std::vector<Cut>& cuts) {
  return cuts.size() == 2 && cuts[0].tile == 1 && cuts[1].tile == 1 && cuts[1].dim == cuts[0].dim + 1;
}

std::string range_of(std::int64_t tile, std::int64_t size, std::int64_t extent) {
  const std::int64_t first = tile * size, last = std::min(first + size, extent) - 1;
  return first == last ? std::to_string(first) : std::to_string(first) + ".." + std::to_string(last);
}

}  // namespace

std::vector<std::int64_t> Partition::unit_of(std::int64_t linear, const Dims& shape) const {
  std::vector<std::int64_t> unit(cuts.size());
  for (int d = shape.rank() - 1; d >= 0; --d) {
    for (std::size_t k = 0; k < cuts.size(); ++k)
      if (cuts[k].dim == static_cast<std::size_t>(d)) {
        unit[k] = linear % shape[d] / cuts[k].tile;
        if (cuts[k].period > 0) unit[k] %= cuts[k].period;
      }
    linear /= shape[d];
  }
  return unit;
}

std::vector<Partition> partitions_of(const Dims& shape) {
  std::vector<Partition> found{{}};
  std::vector<Cut> cuts;
  for (int d = 0; d < shape.rank(); ++d)
    for (const std::int64_t tile : usual_tiles)
      if (tile < shape[d]) cuts.push_back({static_cast<std::size_t>(d), tile});
  for (const Cut& cut : cuts) found.push_back({{cut}});
  for (std::size_t a = 0; a < cuts.size(); ++a)
    for (std::size_t b = a + 1; b < cuts.size(); ++b)
      if (cuts[a].dim != cuts[b].dim) found.push_back({{cuts[a], cuts[b]}});
  const auto units = [&](const Partition& p) {
    std::int64_t count = 1;
    for (const Cut& cut : p.cuts) count *= tiles_in(shape[static_cast<int>(cut.dim)], cut.tile);
    return count;
  };
  std::stable_sort(found.begin(), found.end(), [&](const Partition& a, const Partition& b) {
    return units(a) * static_cast<std::int64_t>(a.cuts.size()) < units(b) * static_cast<std::int64_t>(b.cuts.size());
  });
  return found;
}

namespace {

/// Partitions, and tiles counted modulo a period: of each 32 the second 16.
std::vector<Partition> periodic_partitions(const Dims& shape) {
  std::vector<Partition> found;
  for (int d = 0; d < shape.rank(); ++d)
    for (const std::int64_t tile : usual_tiles)
      for (const std::int64_t period : {2, 3, 4, 8, 16, 32})
        if (2 * tile * period <= shape[d]) found.push_back({{{static_cast<std::size_t>(d), tile, period}}});
  return found;
}

/// `0..3, 8`: which of a cut's tiles, as indices of its dimension; nothing where they are too many to be told.
std::optional<std::string> ranges_of(const std::set<std::int64_t>& tiles, const Cut& cut, std::int64_t extent) {
  constexpr int most = 6;
  std::string words;
  int count = 0;
  for (auto it = tiles.begin(); it != tiles.end();) {
    const std::int64_t first = *it;
    std::int64_t last = first;
    while (++it != tiles.end() && *it == last + 1) last = *it;
    if (++count > most) return std::nullopt;
    const std::int64_t begin = first * cut.tile;
    std::int64_t end = (last + 1) * cut.tile;
    if (cut.period == 0) end = std::min(end, extent);
    words += (words.empty() ? "" : ", ") + std::to_string(begin) + (end - begin == 1 ? "" : ".." + std::to_string(end - 1));
  }
  if (cut.period > 0) words += " of every " + std::to_string(cut.tile * cut.period);
  return words;
}

}  // namespace

std::optional<std::string> told_apart(const std::vector<std::int64_t>& some, const std::vector<std::int64_t>& others,
                                      const LogicalView& view) {
  if (some.empty() || others.empty()) return std::nullopt;
  std::vector<Partition> partitions;
  for (const Partition& partition : partitions_of(view.shape))
    if (partition.cuts.size() == 1) partitions.push_back(partition);
  for (const Partition& partition : periodic_partitions(view.shape)) partitions.push_back(partition);
  for (const Partition& partition : partitions_of(view.shape))
    if (partition.cuts.size() == 2) partitions.push_back(partition);
  for (const Partition& partition : partitions) {
    std::map<std::vector<std::int64_t>, bool> is_some;
    for (const std::int64_t i : some) is_some[partition.unit_of(i, view.shape)] = true;
    const std::size_t held = is_some.size();
    bool apart = true;
    for (std::size_t k = 0; k < others.size() && apart; ++k)
      apart = !is_some.try_emplace(partition.unit_of(others[k], view.shape), false).first->second;
    // Parts of a few elements each are pure by chance.
    constexpr std::size_t enough = 8;
    if (!apart || is_some.size() * enough > some.size() + others.size() || held * enough > some.size()) continue;
    std::string words;
    const auto& cuts = partition.cuts;
    if (cuts.size() == 2 && held > 1) continue;
    for (std::size_t k = 0; k < cuts.size(); ++k) {
      std::set<std::int64_t> tiles;
      for (const auto& [unit, its] : is_some)
        if (its) tiles.insert(unit[k]);
      const auto ranges = ranges_of(tiles, cuts[k], view.shape[static_cast<int>(cuts[k].dim)]);
      if (!ranges) break;
      words += (words.empty() ? "" : ", ") + view.names[cuts[k].dim] + " " + *ranges;
      if (k + 1 == cuts.size()) return words;
    }
  }
  return std::nullopt;
}

std::optional<Assignment> assigned(const std::vector<std::int64_t>& elements, const std::vector<Bits>& matches, std::int64_t runs,
                                   const LogicalView& view) {
  std::int64_t hits = 0;
  for (const Bits& bits : matches)
    for (const std::uint64_t word : bits) hits += std::popcount(word);
  for (const Partition& partition : partitions_of(view.shape)) {
    std::map<std::vector<std::int64_t>, Shared> units;
    bool each_has_one = true;
    for (std::size_t e = 0; e < elements.size() && each_has_one; ++e) {
      const auto [unit, first] = units.try_emplace(partition.unit_of(elements[e], view.shape), Shared{matches[e], 0});
      each_has_one = false;
      for (std::size_t w = 0; w < matches[e].size(); ++w) each_has_one |= (unit->second.bits[w] &= matches[e][w]) != 0;
      ++unit->second.elements;
    }
    constexpr double no_chance = 0.01;
    if (!each_has_one || chance_of(units, runs, static_cast<std::int64_t>(elements.size()), hits) > no_chance) continue;
    Assignment found{partition, {}};
    for (const auto& [unit, shared] : units) found.units[unit] = runs_of(shared.bits);
    return found;
  }
  return std::nullopt;
}

Told words_of(const Assignment& assignment, const std::vector<std::int64_t>& number_of, const LogicalView& view) {
  const auto numbers = [&](const std::vector<std::int64_t>& runs) {
    std::set<std::int64_t> found;
    for (const std::int64_t run : runs) found.insert(number_of[static_cast<std::size_t>(run)]);
    return found;
  };
  // One for all of them needs no place.
  std::set<std::int64_t> common = numbers(assignment.units.begin()->second);
  for (const auto& [unit, runs] : assignment.units)
    std::erase_if(common, [its = numbers(runs)](std::int64_t n) { return its.count(n) == 0; });
  if (!common.empty()) return {std::to_string(*common.begin()), true};
  const auto& cuts = assignment.partition.cuts;
  const auto name = [&](std::size_t k) { return view.names[cuts[k].dim]; };
  for (std::size_t k = 0; k < cuts.size() && assignment.units.size() >= 3; ++k)
    for (const Rule& rule : rules())
      for (const std::int64_t tile : {cuts[k].tile, std::int64_t{1}})
        if (std::all_of(assignment.units.begin(), assignment.units.end(),
                        [&](const auto& entry) { return numbers(entry.second).count(rule.value(entry.first[k] * tile)) > 0; }))
          return {(rule.words == "i" ? "the number of its own place, " : "") + rule.words + " of " +
                      (tile > 1 || cuts[k].tile == 1 ? "" : "tile ") + name(k) + " i" +
                      (cuts[k].tile > 1 && tile == 1 ? " (of " + std::to_string(cuts[k].tile) + ")" : ""),
                  true};
  if (count_as_one(cuts))
    for (const Rule& rule : rules())
      if (std::all_of(assignment.units.begin(), assignment.units.end(), [&](const auto& entry) {
            const std::int64_t at = entry.first[0] * view.shape[static_cast<int>(cuts[1].dim)] + entry.first[1];
            return numbers(entry.second).count(rule.value(at)) > 0;
          }))
        return {rule.words + " of row i, counted over " + name(0) + " and " + name(1), true};
  std::string words;
  std::size_t shown = 0;
  constexpr std::size_t few = 4;
  for (const auto& [unit, runs] : assignment.units) {
    if (++shown > few) break;
    words += words.empty() ? "" : "; ";
    words += std::to_string(*numbers(runs).begin()) + " at ";
    for (std::size_t k = 0; k < cuts.size(); ++k)
      words += (k > 0 ? ", " : "") + name(k) + " " + range_of(unit[k], cuts[k].tile, view.shape[static_cast<int>(cuts[k].dim)]);
  }
  return {words + (shown > few ? "..." : ""), false};
}

}  // namespace dodona::oracle
