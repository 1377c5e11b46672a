// `dodona generate` on several ranks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/ranks/rank_generation.h"
#include "tools/common.h"

namespace dodona::tools {

/// --tp, --ep, --pp and --dp-attention.
void add_grid(CLI::App& command, model::Grid& grid);

struct GenerateOnRanks {
  model::GenerateCall call;
  model::Grid grid;
  bool json = false, quiet = false;
  std::string output;
  std::function<std::string(const std::vector<std::int64_t>&)> text_of;  ///< of tokens; may be empty
};

/// On the ranks of this process, one at a time.
void generate_in_turns(const GenerateOnRanks& asked);
/// On the ranks of a job, where `ready` gives what is asked for: rank 0 shows and writes. Errors on one rank end all with exit code 2.
int generate_over_mpi(const std::function<GenerateOnRanks()>& ready);

}  // namespace dodona::tools
