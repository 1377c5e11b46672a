// Which index stands in another's place, as kernels mistake them: the first of a group, one a tile further, each other one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace dodona::oracle::pattern {

struct IndexRule {
  std::string words;                               ///< `i mod 32`: what stands in the place of index i
  std::function<std::int64_t(std::int64_t)> from;  ///< -1 for none
};
/// Of so many indices; the likeliest first.
std::vector<IndexRule> index_rules(std::int64_t extent);

}  // namespace dodona::oracle::pattern
