// False alarms: is anything rejected that is right by the contract, and how much of the budget does what is right use?
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/case_line.h"
#include "dodona/op.h"

namespace dodona::oracle {

/// Who makes outputs that are right.
enum class Producer {
  fast,         ///< our fast mode
  plain,        ///< plain fp32 loops in two other orders of summation (alternatives/)
  tensor_core,  ///< sums as matrix units add
  hopper,       ///< our hopper mode
  blackwell,    ///< our blackwell mode
};
inline constexpr std::array<Producer, 5> producers{Producer::fast, Producer::plain, Producer::tensor_core, Producer::hopper,
                                                   Producer::blackwell};
std::string_view name(Producer producer);

/// One producer over all cases of an op.
struct ProducerTally {
  int outputs = 0;  ///< sets of outputs judged
  double max_share = 0;
  std::string line;  ///< the case of the largest share
};

/// Something right that a judge rejected.
struct FalseAlarm {
  Producer producer;
  std::string line, output, pattern;
  double share;
};

struct Alarms {
  int cases = 0;
  int vacuous = 0;  ///< cases in which a verdict is vacuous: zeros would pass
  std::array<ProducerTally, producers.size()> tallies;
  std::vector<FalseAlarm> false_alarms;
  std::vector<std::string> vacuous_lines;

  const ProducerTally& of(Producer producer) const { return tallies[static_cast<std::size_t>(producer)]; }
  int rejected() const;  ///< cases with a false alarm
  double max_share() const;
};

/// Case number `index` of an op: sizes drawn below those of one of the op's own lines (within the rules of its symbols), types, recipes and
/// other choices varied, distributions in turn, special inputs in half of them. Combinations that the op refuses are drawn anew, in the end
/// the op's own sizes.
CaseLine alarm_case(const Op& op, std::uint64_t seed, int index);

/// Elements of the inputs of an op's first case line: how much work its cases are, roughly.
double elements_of(const Op& op);
/// How many of `total` cases each op of the inventory gets: fewer those whose smallest case is large.
std::vector<int> share_out(int total);

/// Judges what every producer makes of `cases` cases; cases run on exec.threads threads. `progress` is told how many cases are done, by
/// one thread at a time.
Alarms raise_alarms(const Op& op, int cases, std::uint64_t seed, const Exec& exec, const std::function<void(int)>& progress = {});

}  // namespace dodona::oracle
