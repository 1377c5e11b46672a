// What the ranks of a generation go on from, as files: a part of each rank, and one that names the parts of a round.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/generate_run.h"
#include "model/ranks/grid.h"

namespace dodona::model {

/// What every rank of the grid says, by rank; all call it.
std::vector<std::string> said_by_all(const Ranks& ranks, const std::string& mine);

/// FILE names the round; beside it lie FILE.rankRofN.K, rank R's part of round K. Parts are written first, then FILE, then those of the
/// round before are removed: whenever ranks are killed, FILE names parts that are whole. All ranks must see the folder.
class RankState {
 public:
  /// Of the whole call; `weights` is the description of their source. With call.resume the part is read that FILE names. Throws Error as
  /// read_state does, and bad_value for a state of another split; without call.state nothing is read or kept.
  RankState(const GenerateCall& call, const std::string& weights, const Grid& grid, std::int64_t rank);

  /// Which round the state is behind; 0 where none is gone on from.
  std::int64_t round() const { return round_; }
  void take_up(Generation& generation) const;
  /// Behind a round; all ranks call it. Throws Error on all of them where one cannot write.
  void keep(const Generation& generation, const Ranks& ranks);

 private:
  std::string part(std::int64_t round) const;
  void remove_others(std::int64_t round) const;

  std::string path_, stem_, split_;
  io::Json key_;
  std::int64_t rank_, count_, round_ = 0;
  std::optional<GenerateState> read_;
};

}  // namespace dodona::model
