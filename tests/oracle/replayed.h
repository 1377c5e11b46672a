// Outputs that were made wrong on purpose, judged and explained.
#pragma once

#include <algorithm>
#include <string>

#include "oracle/cases/generate.h"
#include "oracle/cases/make_case.h"
#include "oracle/faults/explain.h"
#include "oracle/report/check.h"

namespace dodona::oracle {

struct Replayed {
  Case c;
  NamedTensors actual;
  Verdict verdict;
  Explained explained;

  std::string all() const {
    std::string text;
    for (const std::string& line : lines_of(explained)) text += line + "\n";
    return text;
  }
  /// The mistake of this id among what was found; nullptr when it is not.
  const Explanation* find(const std::string& id) const {
    const auto found = std::find_if(explained.found.begin(), explained.found.end(), [&](const Explanation& e) { return e.id == id; });
    return found == explained.found.end() ? nullptr : &*found;
  }
};

inline void judge_and_explain(Replayed& r, double seconds = 1000) {
  const GoldenRun golden = run_golden(*r.c.op, r.c.inputs, {});
  r.verdict = judge(*r.c.op, r.c.inputs, golden, r.actual, {});
  r.explained = explain(r.c, golden, r.actual, r.verdict, {}, seconds);
}

}  // namespace dodona::oracle
