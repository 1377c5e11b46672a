#include "oracle/cases/case_file.h"

#include "io/json.h"
#include "io/safetensors.h"
#include "oracle/cases/generate.h"
#include "tests/fuzz/target.h"

namespace dodona::fuzz {
namespace {

/// Reading may make what a line or a rule describes in a few bytes: lawful, and too slow here.
bool makes_much(const io::SafetensorsFile& file) {
  constexpr std::int64_t much = 1 << 16;
  bool found = false;
  if (const auto line = file.metadata().find("line"); line != file.metadata().end())
    unless_refused([&] {
      for (const oracle::InputPlan& input : oracle::plan_inputs(parse_case_line(line->second)))
        found = found || element_count(input.shape) > much;
    });
  if (const auto attrs = file.metadata().find("attrs"); attrs != file.metadata().end())
    unless_refused([&] {
      const io::Json json = io::parse_json(attrs->second);
      for (const auto& rule : io::get_object(json, "generated").items())
        found = found || io::get_int(rule.value(), "rows") > 1000 || io::get_int(rule.value(), "cols") > 1000;
    });
  return found;
}

}  // namespace

void case_file(Bytes input) {
  unless_refused([&] {
    if (makes_much(io::SafetensorsFile::from_bytes(input))) return;
    const oracle::Case c = oracle::load_case(as_file(input));
    require(c.op != nullptr, "a case has no op");
    Arguments arguments = oracle::runnable(*c.op, c.inputs);
    c.op->prepare(arguments);
  });
}

}  // namespace dodona::fuzz
