#include "ops/sums/stream_k.h"

#include <algorithm>

namespace dodona::ops {
namespace {

constexpr std::int64_t tile = 128, cluster = 2;
/// Tiles of K that a unit takes at least, and groups of units at most.
constexpr std::int64_t least_steps = 8, most_groups = 8;

std::int64_t tiles_of(std::int64_t size) {
  return (size + tile - 1) / tile;
}

/// Tiles of the output, in whole clusters, and steps of K in each.
struct Grid {
  std::int64_t rows, columns, steps, processors;

  std::int64_t tiles() const { return rows * columns; }
  bool along_m() const { return columns > rows; }
};

/// Tiles that are shared out in steps of K; the others are computed whole.
std::int64_t shared_tiles(const Grid& grid) {
  const std::int64_t full_waves = grid.tiles() / grid.processors, rest = grid.tiles() % grid.processors;
  if (rest == 0 || grid.steps <= least_steps || 2 * rest >= grid.processors) return 0;
  const std::int64_t whole = full_waves > 1 ? (full_waves - 1) * grid.processors : 0;
  return (grid.tiles() - whole) / cluster * cluster;
}

/// Groups that the units are dealt to: as many as divide units and tiles evenly, else the most that divide the units.
std::int64_t groups_of(const Grid& grid, std::int64_t clusters, std::int64_t units) {
  const auto divides_units = [&](std::int64_t groups) {
    return units % groups == 0 && clusters / groups * grid.steps / (units / groups) >= least_steps;
  };
  const std::int64_t most = std::min(grid.along_m() ? grid.rows : grid.columns / cluster, most_groups);
  std::int64_t second_best = 1;
  for (std::int64_t groups = most; groups > 1; --groups) {
    if (!divides_units(groups)) continue;
    if (clusters % groups == 0) return groups;
    second_best = std::max(second_best, groups);
  }
  return second_best;
}

/// Steps [begin, end) of the tiles of a group, one tile's after the other's.
struct Steps {
  std::int64_t begin, end;
};

/// What unit `unit` of `units` takes of `total` steps: the first ones take one more where they do not come out even. A part of fewer than
/// least_steps at either end goes to the neighbour, who has the rest of that tile.
Steps steps_of(std::int64_t unit, std::int64_t units, std::int64_t total, std::int64_t steps) {
  const std::int64_t each = total / units, larger = total % units;
  const auto nudged = [&](std::int64_t at) {
    const std::int64_t in_tile = at % steps;
    return in_tile < least_steps ? at - in_tile : in_tile > steps - least_steps ? at - in_tile + steps : at;
  };
  const auto begin_of = [&](std::int64_t u) { return each * u + std::min(u, larger); };
  return {nudged(begin_of(unit)), nudged(begin_of(unit + 1))};
}

}  // namespace

std::vector<std::vector<std::vector<std::int64_t>>> stream_k_parts(const StreamK& product) {
  const std::int64_t columns = tiles_of(product.n);
  const Grid grid{tiles_of(product.m), (columns + cluster - 1) / cluster * cluster, tiles_of(product.k), product.processors};
  const std::int64_t clusters = shared_tiles(grid) / cluster;
  const std::int64_t units = std::min(grid.processors / cluster, clusters * grid.steps / least_steps);

  // In the order in which clusters are taken.
  std::vector<std::vector<std::int64_t>> begins(static_cast<std::size_t>(grid.tiles() / cluster), {0});
  const std::int64_t groups = units > 0 ? groups_of(grid, clusters, units) : 0;
  for (std::int64_t unit = 0; unit < units; ++unit) {
    const std::int64_t group = unit % groups;
    const std::int64_t total = (clusters / groups + (group < clusters % groups ? 1 : 0)) * grid.steps;
    const Steps taken = steps_of(unit / groups, units / groups, total, grid.steps);
    for (std::int64_t at = taken.begin; at < taken.end; at = (at / grid.steps + 1) * grid.steps)
      if (at % grid.steps != 0) begins[static_cast<std::size_t>(at / grid.steps * groups + group)].push_back(at % grid.steps * tile);
  }

  std::vector<std::vector<std::vector<std::int64_t>>> parts(static_cast<std::size_t>(grid.rows));
  for (std::int64_t i = 0; i < grid.rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      const std::int64_t side = j / cluster;
      auto& of_tile = begins[static_cast<std::size_t>(grid.along_m() ? side * grid.rows + i : i * (grid.columns / cluster) + side)];
      std::sort(of_tile.begin(), of_tile.end());
      parts[static_cast<std::size_t>(i)].push_back(of_tile);
    }
  return parts;
}

}  // namespace dodona::ops
