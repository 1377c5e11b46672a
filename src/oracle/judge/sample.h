// A random subset of an output's rows: what is judged where the whole would take too long.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "oracle/judge/judge.h"

namespace dodona::oracle {

/// Rows of each output: its elements along the last dimension.
struct Sample {
  std::int64_t rows = 0;  ///< at most so many; 0: all
  std::uint64_t seed = 1;
};

/// What was taken of one output. Outputs of as many rows as the first one have the same rows, those of as many elements the same elements.
struct SampledOutput {
  std::string name;
  std::int64_t taken, rows;
};

/// `64 of 131072 rows, seed 1`; empty for an output that was judged whole.
std::string text_of(const std::vector<SampledOutput>& outputs, const std::string& name, const Sample& sample);

/// Golden mode's answer in some rows: all other elements are marked as open before it begins, so that they are not compared, and what can
/// do without them does not compute them. Groups are judged whole.
struct SampledGolden {
  GoldenRun golden;
  std::vector<SampledOutput> taken;  ///< none where all was asked for
};
SampledGolden run_golden(const Op& op, const Arguments& inputs, const Exec& exec, const Sample& sample);

}  // namespace dodona::oracle
