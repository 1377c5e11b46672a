#include "trail/trail_comparison.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "dodona/error.h"
#include "io/sha256.h"
#include "io/text.h"
#include "quant/element.h"
#include "trail/trail.h"

namespace dodona::trail {
namespace {

bool is_whole(DType type) {
  return type == DType::i32 || type == DType::i64 || type == DType::u8;
}

bool has_units(DType type) {
  return type == DType::bf16 || type == DType::f16 || type == DType::f32;
}

void check_fits(const std::string& path, const TrailEntry& entry, const Tensor& ours) {
  const Tensor& theirs = entry.tensor;
  const std::string tensor = path + ": tensor " + io::quote(entry.name);
  if (!(theirs.shape() == ours.shape()))
    throw Error(ErrorCode::bad_shape, "", "", tensor + " has shape " + to_string(theirs.shape()) + ", expected " + to_string(ours.shape()));
  const bool codes = ours.dtype() == DType::u8 || theirs.dtype() == DType::u8;
  if (codes ? ours.dtype() != theirs.dtype() : is_whole(ours.dtype()) != is_whole(theirs.dtype()))
    throw Error(ErrorCode::bad_dtype, "", "",
                tensor + " is " + std::string(name(theirs.dtype())) + ", expected " + std::string(name(ours.dtype())));
}

/// The dump's values in the memory of ours, for what reads it next.
void place(const Tensor& theirs, const Tensor& ours) {
  for (std::int64_t i = 0; i < ours.elements(); ++i) {
    const double value = quant::get(theirs, i);
    // A NaN has no bits of its own.
    if (!std::isnan(value) || !std::isnan(quant::get(ours, i))) quant::set(ours, i, value);
  }
}

/// Nothing that follows could read by a permutation that is none.
std::optional<TrailDifference> no_permutation(const std::string& name, const Tensor& theirs, const Tensor& ours) {
  const std::int64_t n = ours.elements();
  std::vector<bool> taken(static_cast<std::size_t>(n), false);
  for (std::int64_t i = 0; i < n; ++i) {
    const double value = quant::get(theirs, i);
    if (value >= 0 && value < static_cast<double>(n) && !taken[static_cast<std::size_t>(value)]) {
      taken[static_cast<std::size_t>(value)] = true;
      continue;
    }
    return TrailDifference{.name = name,
                           .expected = "each row once",
                           .found = "a row out of range or twice",
                           .has_element = true,
                           .beyond = 1,
                           .elements = n,
                           .index = {i},
                           .expected_value = quant::get(ours, i),
                           .found_value = value};
  }
  return std::nullopt;
}

/// Rows of one expert may come in any order: the tokens that the rows come from follow from the rows that the ids go to.
void follow_permutation(const Tensor& rows, const Tensor& tokens) {
  const std::int64_t n = rows.elements();
  auto* const token = tokens.as<std::int32_t>();
  const std::int64_t topk = n / std::max<std::int64_t>(1 + *std::max_element(token, token + n), 1);
  for (std::int64_t i = 0; i < n; ++i) token[rows.as<std::int32_t>()[i]] = static_cast<std::int32_t>(i / topk);
}

/// What the judge of a kernel's outputs says of the one that `ours` is.
std::optional<TrailDifference> difference_of(const std::string& name, const oracle::OutputVerdict& verdict, const KernelCall& call,
                                             const Tensor& kernels, const Tensor& ours, const Tensor& theirs) {
  if (verdict.failing == 0) return std::nullopt;
  const oracle::ElementReport& worst = verdict.worst.front();
  // Packed codes are judged one by one, and counted in bytes here.
  const std::int64_t packed = std::max<std::int64_t>(verdict.elements / std::max<std::int64_t>(kernels.elements(), 1), 1);
  TrailDifference difference{.name = name,
                             .expected = type_and_shape(ours),
                             .found = type_and_shape(theirs),
                             .has_element = true,
                             .elements = ours.elements(),
                             .expected_value = worst.golden,
                             .found_value = worst.actual};
  std::int64_t last = -1;
  for (const std::int64_t linear : verdict.detail->failing)
    if (std::exchange(last, linear / packed) != linear / packed) ++difference.beyond;
  difference.index = index_of(std::max<std::int64_t>(element_in(kernels, worst.linear / packed, ours), 0), ours.shape());
  const ReferenceOutput* const record = call.golden.reference.find(verdict.name);
  if (record != nullptr && verdict.judge == Judge::budget) difference.allowed = record->slack[static_cast<std::size_t>(worst.linear)];
  return difference;
}

}  // namespace

TrailComparison::TrailComparison(TrailReference reference, DType activations)
    : reference_(std::move(reference)), activations_(activations) {}

Exec TrailComparison::for_weights(Exec exec) const {
  if (!reference_.is_trail()) exec.mode = Mode::golden;
  return exec;
}

Exec TrailComparison::for_run(Exec exec) {
  judging_ = exec = for_weights(exec);
  if (!reference_.is_trail()) exec.witness = &recorder_;
  return exec;
}

model::Observer TrailComparison::observer() {
  return [this](const model::OpRecord& record, const NamedTensors& outputs) { compare(record, outputs); };
}

std::vector<TrailComparison::Held> TrailComparison::held_of(const model::OpRecord& record, const NamedTensors& outputs) {
  const std::string title = title_of(record.op, record.note);
  std::vector<Held> held;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto& [label, ours] = outputs[i];
    auto found = reference_.entries().find(key_of(output_name(title, label, false)));
    if (found == reference_.entries().end() && i == 0) found = reference_.entries().find(key_of(title));
    if (found == reference_.entries().end()) continue;
    asked_.push_back(found->first);
    held.push_back({output_name(title, label, i == 0), std::string(label), &found->second, ours});
  }
  return held;
}

void TrailComparison::compare(const model::OpRecord& record, const NamedTensors& outputs) {
  std::vector<KernelCall> calls = recorder_.take();
  std::vector<Held> held = held_of(record, outputs);
  if (held.empty()) return pass_over(record, outputs, calls);
  if (difference_) return;
  if (!reference_.is_trail()) return compare_dump(std::move(held), outputs, std::move(calls));
  for (const Held& each : held) {
    if (difference_) return;
    ++compared_;
    compare_bits(each);
  }
}

void TrailComparison::pass_over(const model::OpRecord& record, const NamedTensors& outputs, const std::vector<KernelCall>& calls) {
  absent_.push_back(title_of(record.op, record.note));
  if (record.group || outputs.empty()) return;
  const bool summed = std::any_of(outputs.begin(), outputs.end(),
                                  [&](const auto& o) { return !source_of(calls, o.second) && !passed_on(calls, o.second); });
  carried_ += share_of_row(calls) + (summed ? quant::ulp(activations_, 1.0) : 0.0);
}

void TrailComparison::compare_bits(const Held& held) {
  const TrailEntry& entry = *held.entry;
  const std::string digest = io::to_hex(io::tensor_digest(held.ours)), shape = type_and_shape(held.ours);
  if (digest == entry.digest) return;
  if (entry.tensor.defined() && entry.shape == shape)
    difference_ = differing_elements(held.name, held.ours, entry.tensor, [](std::int64_t, double, double) { return 0.0; });
  if (difference_) return;
  difference_ = TrailDifference{.name = held.name,
                                .expected = described(shape, digest, model::statistics(held.ours)),
                                .found = described(entry.shape, entry.digest, entry.statistics)};
}

void TrailComparison::compare_dump(std::vector<Held> held, const NamedTensors& outputs, std::vector<KernelCall> calls) {
  struct Place {
    std::optional<Source> source;
    bool passed_on;
    Tensor golden;
  };
  // Where outputs come from is seen before the dump's values take their place.
  std::vector<Place> places;
  for (const Held& each : held) {
    check_fits(reference_.path(), *each.entry, each.ours);
    places.push_back({source_of(calls, each.ours), passed_on(calls, each.ours), each.ours.clone()});
  }
  for (const Held& each : held) {
    ++compared_;
    if (each.label == "input_permutation") continue;
    if (each.label == "output_permutation") difference_ = no_permutation(each.name, each.entry->tensor, each.ours);
    if (difference_) return;
    place(each.entry->tensor, each.ours);
    if (each.label == "output_permutation")
      for (const auto& [label, tokens] : outputs)
        if (label == "input_permutation") follow_permutation(each.ours, tokens);
  }
  const double all = share_of_row(calls);
  std::map<std::size_t, oracle::Verdict> verdicts;
  for (std::size_t i = 0; i < held.size() && !difference_; ++i) {
    const Held& each = held[i];
    const auto& source = places[i].source;
    const Tensor& golden = places[i].golden;
    const bool passed = places[i].passed_on;
    // Choices and codes that follow from other inputs than the dump's say nothing.
    if (is_whole(golden.dtype()) && carried_ > 0) continue;
    if (source) {
      KernelCall& call = calls[source->call];
      if (!verdicts.contains(source->call)) verdicts[source->call] = judge_call(call, carried_ + all - share_of_row(call));
      for (const oracle::OutputVerdict& verdict : verdicts[source->call].outputs)
        if (verdict.name == source->output)
          difference_ = difference_of(each.name, verdict, call, *find(call.written, source->output), each.ours, each.entry->tensor);
      continue;
    }
    // Values that were rounded to the activations' type on their way have its units, whatever holds them.
    const DType unit = golden.dtype() == DType::f32 ? activations_ : golden.dtype();
    const bool exact = !has_units(golden.dtype());
    const double share = carried_ + (passed ? 0.0 : all);
    const std::int64_t columns = golden.rank() > 0 ? std::max<std::int64_t>(golden.size(-1), 1) : 1;
    difference_ = differing_elements(each.name, golden, each.entry->tensor, [&](std::int64_t row, double mine, double theirs) {
      if (exact) return 0.0;
      const double units = passed ? 0.0 : quant::ulp(unit, std::fmax(std::fabs(mine), std::fabs(theirs)));
      return units + (share > 0 ? share * largest_of_row(golden, row, columns) : 0.0);
    });
  }
}

oracle::Verdict TrailComparison::judge_call(KernelCall& call, double share) {
  if (share > 0) widen(call.golden, *call.op, share);
  return oracle::judge(*call.op, call.inputs, call.golden, call.written, {.mode = Mode::golden, .exec = judging_, .details = true});
}

void TrailComparison::finish() const {
  if (!difference_)
    for (const auto& [key, entry] : reference_.entries())
      if (!key.starts_with(input_prefix) && std::find(asked_.begin(), asked_.end(), key) == asked_.end())
        throw Error(ErrorCode::bad_file, "", "",
                    reference_.path() + ": " + io::quote(entry.name) + " is no output of a model op of this layer");
  if (compared_ == 0) throw Error(ErrorCode::bad_file, "", "", reference_.path() + ": holds no output of a model op of this layer");
}

}  // namespace dodona::trail
