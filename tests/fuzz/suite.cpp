#include "oracle/records/suite.h"

#include "tests/fuzz/target.h"

namespace dodona::fuzz {

void suite(Bytes input) {
  unless_refused([&] {
    const oracle::Suite suite = oracle::read_suite(as_file(input));
    require(!suite.cases.empty() && !suite.modes.empty(), "a suite of nothing");
  });
}

}  // namespace dodona::fuzz
