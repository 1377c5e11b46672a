// --sample: how much of a large output is judged.
#pragma once

#include "common.h"
#include "oracle/judge/sample.h"

namespace dodona::tools {

inline void add_sample(CLI::App& command, oracle::Sample& sample) {
  command
      .add_option(
          "--sample", sample.rows,
          "Judge at most so many rows of each output (elements along its last dimension), chosen at random; golden mode of attention "
          "computes no more, other ops compare no more. The verdict says which share was judged")
      ->check(above_zero());
  command.add_option("--sample-seed", sample.seed, "Which rows")->capture_default_str();
}

}  // namespace dodona::tools
