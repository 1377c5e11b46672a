// Suites: the case lines that a regression record is made of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/case_line.h"
#include "dodona/exec.h"

namespace dodona::oracle {

/// The lines that a line with ranges stands for. Every value may be a list, `T=1,7,64`, or for whole numbers a range, `--seed 1..3`; so may
/// those of --attr, --dtype, --dist, --special, --seed and --dialect. The last range varies fastest. Throws bad_option as
/// parse_case_line(), for an empty list and for more than 100 000 lines.
std::vector<CaseLine> expand_lines(std::string_view text);

struct SuiteCase {
  CaseLine line;
  bool tensors = false;  ///< store the outputs, not only their digests
};

struct Suite {
  std::string name;
  std::vector<Mode> modes;  ///< fast, golden or both
  std::vector<SuiteCase> cases;
};

/// Reads a suite: {"name": ..., "modes": ["fast", "golden"], "tensors": false, "cases": [LINE | {"line": LINE, "tensors": true}, ...]}.
/// Modes are both by default. Every line is checked against its op's schema: throws Error naming the line that cannot be, before anything
/// is computed.
Suite read_suite(const std::string& path);

}  // namespace dodona::oracle
