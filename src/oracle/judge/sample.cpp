#include "oracle/judge/sample.h"

#include <algorithm>

#include "core/flaw.h"
#include "core/random.h"
#include "core/storage.h"

namespace dodona::oracle {

namespace {

/// `arguments` get their outputs.
std::vector<SampledOutput> leave_rest_open(const Op& op, Arguments& arguments, const Sample& sample, Reference& reference) {
  std::vector<SampledOutput> taken;
  if (sample.rows <= 0) return taken;
  op.prepare(arguments);
  std::int64_t first_rows = -1;
  for (const TensorSpec& spec : op.schema().tensors) {
    const Tensor* const output = spec.direction == Direction::in ? nullptr : arguments.find(spec.name);
    if (output == nullptr || !output->defined() || spec.judge == Judge::grouping) continue;
    const Tensor codes = as_codes(*output, spec.storage);
    const std::int64_t elements = codes.elements();
    if (codes.shape().rank() == 0 || elements == 0) continue;
    const bool like_first = elements == first_rows;
    const std::int64_t width = like_first ? 1 : codes.size(-1), rows = elements / width, count = std::min(sample.rows, rows);
    if (first_rows < 0) first_rows = rows;
    std::vector<std::uint8_t>& open = reference.output(spec.name, elements).unspecified;
    open.assign(static_cast<std::size_t>(elements), 1);
    // The stream is the same for all outputs: equally many rows give equal choices.
    const std::vector<std::int64_t> order = permutation(Stream(sample.seed, "sample"), rows);
    for (std::int64_t i = 0; i < count; ++i)
      std::fill_n(open.begin() + static_cast<std::ptrdiff_t>(order[static_cast<std::size_t>(i)] * width), width, std::uint8_t{0});
    taken.push_back({spec.name, count, rows});
  }
  return taken;
}

}  // namespace

std::string text_of(const std::vector<SampledOutput>& outputs, const std::string& name, const Sample& sample) {
  for (const SampledOutput& output : outputs)
    if (output.name == name)
      return std::to_string(output.taken) + " of " + std::to_string(output.rows) + " rows, seed " + std::to_string(sample.seed);
  return {};
}

SampledGolden run_golden(const Op& op, const Arguments& inputs, const Exec& exec, const Sample& sample) {
  Exec in_golden = exec;
  in_golden.mode = Mode::golden;
  Arguments arguments = runnable(op, inputs);
  SampledGolden result;
  result.taken = leave_rest_open(op, arguments, sample, result.golden.reference);
  const Flaw none;
  in_golden.flaw = &none;
  op.reference(arguments, in_golden, result.golden.reference);
  result.golden.inner = none.met();
  result.golden.outputs = outputs_of(op, arguments);
  return result;
}

}  // namespace dodona::oracle
