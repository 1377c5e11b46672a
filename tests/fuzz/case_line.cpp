#include "core/case_line.h"

#include "oracle/cases/generate.h"
#include "tests/fuzz/target.h"

namespace dodona::fuzz {

void case_line(Bytes input) {
  unless_refused([&] {
    const CaseLine line = parse_case_line(text_of(input));
    const std::string text = to_string(line);
    require(to_string(parse_case_line(text)) == text, "a line comes back as another");
    std::int64_t elements = 0;
    for (const oracle::InputPlan& plan : oracle::plan_inputs(line)) {
      const std::int64_t count = element_count(plan.shape);
      if (count > 1 << 14 || (elements += count) > 1 << 14) return;
    }
    oracle::generate(line);
  });
}

}  // namespace dodona::fuzz
