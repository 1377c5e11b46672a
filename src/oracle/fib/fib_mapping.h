// Which op of ours a Definition means.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "dodona/op.h"
#include "oracle/fib/fib_definition.h"

namespace dodona::oracle::fib {

struct Mapping {
  const Op* op = nullptr;
  bool paged_mla = false;                                      ///< gathers pages, see fib_mla.h
  std::vector<std::pair<std::string, std::string>> arguments;  ///< ours, theirs
  std::vector<std::pair<std::string, std::string>> outputs;    ///< ours, theirs
};

/// By tag first (`dodona:OP` of our own exports, `fi_api:`), then by op_type and name, then `wanted` (arguments of the same names).
/// Throws Error(unsupported) saying what is known of the Definition, when no op of ours does it.
Mapping mapping_of(const Definition& definition, const std::string& wanted);

}  // namespace dodona::oracle::fib
