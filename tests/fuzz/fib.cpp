#include "oracle/fib/fib_import.h"
#include "tests/fuzz/target.h"

namespace dodona::fuzz {
namespace {

/// Whether the inputs and outputs are few elements: sizes of random inputs are the workload's own, and lawful.
bool is_small(const oracle::fib::Definition& definition, const oracle::fib::Workload& workload) {
  constexpr std::int64_t much = 1 << 14;
  const auto axes = oracle::fib::axis_values(definition, workload);
  for (const auto& [name, size] : axes)
    if (size > 1024) return false;
  for (const auto* fields : {&definition.inputs, &definition.outputs})
    for (const oracle::fib::Field& field : *fields)
      if (element_count(oracle::fib::shape_of(definition, field, axes)) > much) return false;
  return true;
}

}  // namespace

/// A Definition on the first line, workloads on the others.
void fib(Bytes input) {
  const std::string_view text = text_of(input);
  const std::size_t end = std::min(text.find('\n'), text.size());
  unless_refused([&] {
    const auto definition = oracle::fib::parse_definition(io::parse_json(text.substr(0, end)), "definition.json");
    if (end == text.size()) return;
    for (const oracle::fib::Workload& workload : oracle::fib::read_workloads(as_file(input.subspan(end + 1))))
      unless_refused([&] {
        if (!is_small(definition, workload)) return;
        std::vector<std::string> notes;
        const oracle::Case made = oracle::fib::import_workload(definition, workload, "/nowhere", {}, notes);
        require(made.op != nullptr && !made.outputs.empty(), "an imported case without op or outputs");
      });
  });
}

}  // namespace dodona::fuzz
