#include "model/trail.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <span>
#include <utility>

#include "dodona/error.h"
#include "io/atomic_file.h"
#include "io/sha256.h"
#include "io/text.h"
#include "quant/element.h"

namespace dodona::model {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view input_prefix = "input.";

std::string title_of(const std::string& op, const std::string& note) {
  return note.empty() ? op : op + " (" + note + ")";
}
/// The first output goes by the op's name alone.
std::string output_name(const std::string& title, std::string_view label, bool first) {
  return first ? title : title + "." + std::string(label);
}

void drop(std::string& text, std::string_view part) {
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at)) text.erase(at, part.size());
}
/// What names are compared by.
std::string key_of(std::string name) {
  drop(name, "()");
  drop(name, " ");
  if (name.starts_with("self.")) name.erase(0, 5);
  return name;
}

std::string type_and_shape(const Tensor& tensor) {
  return std::string(name(tensor.dtype())) + " " + to_string(tensor.shape());
}

std::string described(const std::string& shape, const std::string& digest, const Statistics& s) {
  char text[160];
  std::snprintf(text, sizeof text, ", min %.6g, max %.6g, rms %.6g, not finite %lld", s.min, s.max, s.rms,
                static_cast<long long>(s.not_finite));
  return shape + ", digest " + digest.substr(0, 16) + text;
}

bool ends_as_safetensors(const std::string& path) {
  return path.ends_with(".safetensors");
}

double largest_of(const Tensor& tensor, std::int64_t begin, std::int64_t end) {
  double largest = 0;
  for (std::int64_t i = begin; i < end; ++i) {
    const double value = std::fabs(quant::get(tensor, i));
    if (std::isfinite(value)) largest = std::fmax(largest, value);
  }
  return largest;
}

/// Between two e2m1 codes, counted over both zeros as one.
int code_steps(std::uint64_t a, std::uint64_t b) {
  const auto place = [](std::uint64_t code) { return (code & 8) != 0 ? -static_cast<int>(code & 7) : static_cast<int>(code & 7); };
  return std::abs(place(a) - place(b));
}

io::Json record_of(const TrailStep& step) {
  io::Json outputs = io::Json::array();
  for (const TrailOutput& output : step.outputs)
    outputs.push_back({{"label", output.label},
                       {"dtype", std::string(name(output.dtype))},
                       {"shape", std::vector<std::int64_t>(output.shape.begin(), output.shape.end())},
                       {"digest", output.digest},
                       {"min", output.statistics.min},
                       {"max", output.statistics.max},
                       {"rms", output.statistics.rms},
                       {"not_finite", output.statistics.not_finite}});
  return {{"op", step.op}, {"note", step.note}, {"shapes", step.shapes}, {"outputs", outputs}};
}

}  // namespace

// ---- writing

Observer Trail::recorder(bool keep_tensors) {
  return [this, keep_tensors](const OpRecord& record, const NamedTensors& outputs) {
    TrailStep step{record.op, record.note, record.shapes, {}};
    for (const auto& [label, tensor] : outputs)
      step.outputs.push_back({std::string(label), io::to_hex(io::tensor_digest(tensor)), tensor.dtype(), tensor.shape(), statistics(tensor),
                              keep_tensors ? tensor.clone() : Tensor()});
    steps.push_back(std::move(step));
  };
}

void write_trail(const std::string& path, const Trail& trail) {
  if (!ends_as_safetensors(path)) {
    std::string text = io::json_text({{"trail", 1}, {"setting", trail.setting}}) + "\n";
    for (const TrailStep& step : trail.steps) text += io::json_text(record_of(step)) + "\n";
    io::write_file(path, std::as_bytes(std::span(text.data(), text.size())));
    return;
  }
  io::NamedTensors tensors;
  for (const auto& [name, tensor] : trail.inputs) tensors.emplace_back(std::string(input_prefix) + name, tensor);
  io::Json records = io::Json::array();
  for (const TrailStep& step : trail.steps) {
    records.push_back(record_of(step));
    for (std::size_t i = 0; i < step.outputs.size(); ++i)
      if (step.outputs[i].tensor.defined())
        tensors.emplace_back(output_name(title_of(step.op, step.note), step.outputs[i].label, i == 0), step.outputs[i].tensor);
  }
  const io::Json text{{"trail", 1}, {"setting", trail.setting}, {"steps", records}};
  io::write_safetensors(path, tensors, {{"trail", io::json_text(text)}});
}

// ---- reading

void TrailReference::add_step(const io::Json& record, const std::string& where) {
  const std::string title = title_of(io::get_string(record, "op", where), io::get_string(record, "note", where));
  bool first = true;
  for (const io::Json& output : io::get_array(record, "outputs", where)) {
    const std::string name = output_name(title, io::get_string(output, "label", where), first);
    first = false;
    order_.push_back(key_of(name));
    Entry& entry = entries_[order_.back()];
    entry.name = name;
    entry.digest = io::get_string(output, "digest", where);
    Dims shape;
    const std::vector<std::int64_t> sizes = io::get_ints(output, "shape", where);
    if (sizes.size() > max_rank)
      throw Error(ErrorCode::bad_file, "", where, "has an output of " + std::to_string(sizes.size()) + " dimensions");
    for (const std::int64_t size : sizes) shape.push_back(size);
    entry.shape = io::get_string(output, "dtype", where) + " " + to_string(shape);
    entry.statistics = {io::get_double(output, "min", where), io::get_double(output, "max", where), io::get_double(output, "rms", where),
                        io::get_int(output, "not_finite", where)};
  }
}

void TrailReference::add_tensors(const std::string& file) {
  const auto content = io::SafetensorsFile::open(file);
  if (const auto trail = content.metadata().find("trail"); trail != content.metadata().end() && setting_.is_null()) {
    const io::Json json = io::parse_json(trail->second, file);
    setting_ = io::get_object(json, "setting", file);
    for (const io::Json& record : io::get_array(json, "steps", file)) add_step(record, file);
  }
  for (const io::SafetensorsEntry& entry : content.entries()) {
    Entry& mine = entries_[key_of(entry.name)];
    if (mine.tensor.defined())
      throw Error(ErrorCode::bad_file, "", file, "holds " + io::quote(entry.name) + ", which is " + io::quote(mine.name) + " again");
    mine.name = entry.name;
    mine.tensor = content.tensor(entry);
  }
}

TrailReference TrailReference::open(const std::string& path) {
  TrailReference reference;
  reference.path_ = path;
  if (fs::is_directory(path)) {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(path))
      if (ends_as_safetensors(entry.path().string())) files.push_back(entry.path().string());
    if (files.empty()) throw Error(ErrorCode::bad_file, "", path, "holds no safetensors file");
    std::sort(files.begin(), files.end());
    for (const std::string& file : files) reference.add_tensors(file);
    return reference;
  }
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw Error(ErrorCode::bad_file, "", path, "cannot be read");
  if (stream.peek() != '{') {
    reference.add_tensors(path);
    return reference;
  }
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    if (line.empty()) continue;
    const std::string where = path + " line " + std::to_string(number);
    const io::Json json = io::parse_json(line, where);
    if (number == 1) {
      reference.setting_ = io::get_object(json, "setting", where);
    } else {
      reference.add_step(json, where);
    }
  }
  return reference;
}

Tensor TrailReference::input(const std::string& name) const {
  const auto found = entries_.find(std::string(input_prefix) + name);
  return found == entries_.end() ? Tensor() : found->second.tensor;
}

// ---- comparing

TrailTolerance trail_tolerance(const OpRecord& record, std::string_view label) {
  const auto is = [&](std::string_view op) { return record.op == op; };
  const auto runs = [&](std::string_view kernel) { return record.kernels.find(kernel) != std::string::npos; };
  if (label == "residual" || label == "topk_ids" || is("shuffle_rows") || is("set_mla_kv_buffer()")) return {0, 0};
  if (label == "topk_weights") return {0, 0x1p-18};
  if (is("self.rotary_emb()") || is("apply_shuffle_mul_sum")) return {1, 0x1p-20};
  if (is("self.attn_mqa()")) return {1, 0x1p-8};
  if (record.group || is("self.act_fn()") || is("silu_and_mul") || runs("rmsnorm")) return {1, 0};
  if (runs("scaled_fp4_quant") || runs("bmm_fp8") || is("self.experts()")) return {1, 0x1p-6};
  return {1, 0x1p-13};
}

std::optional<TrailDifference> first_difference(const TrailReference& a, const TrailReference& b, std::int64_t& same) {
  same = 0;
  for (const TrailReference* trail : {&a, &b})
    if (!trail->is_trail() || trail->order_.empty())
      throw Error(ErrorCode::bad_file, "", trail->path(), "is no trail of a layer, as dodona layer --trail writes it");
  for (const auto& [key, value] : a.setting().items()) {
    const io::Json* const other = io::find_field(b.setting(), key, b.path());
    if (other == nullptr || *other != value)
      throw Error(ErrorCode::bad_value, "", b.path(),
                  "is of a run with " + key + " " + (other == nullptr ? "unknown" : io::json_text(*other)) + ", expected " +
                      io::json_text(value) + " as " + a.path());
  }
  const auto text = [](const TrailReference::Entry& entry) { return described(entry.shape, entry.digest, entry.statistics); };
  for (const std::string& key : a.order_) {
    const TrailReference::Entry& mine = a.entries_.at(key);
    const auto found = b.entries_.find(key);
    if (found == b.entries_.end() || found->second.digest.empty())
      return TrailDifference{.name = mine.name, .expected = text(mine), .found = "no such output"};
    const TrailReference::Entry& theirs = found->second;
    if (theirs.digest != mine.digest) {
      TrailComparison elements(b, DType::bf16);
      if (mine.tensor.defined() && theirs.tensor.defined() && mine.shape == theirs.shape &&
          !elements.judge(mine.name, theirs, mine.tensor, {}))
        return elements.difference();
      return TrailDifference{.name = mine.name, .expected = text(mine), .found = text(theirs)};
    }
    ++same;
  }
  for (const std::string& key : b.order_)
    if (a.entries_.count(key) == 0)
      return TrailDifference{.name = b.entries_.at(key).name, .expected = "no such output", .found = text(b.entries_.at(key))};
  return std::nullopt;
}

TrailComparison::TrailComparison(TrailReference reference, DType activations)
    : reference_(std::move(reference)), activations_(activations) {}

Observer TrailComparison::observer() {
  return [this](const OpRecord& record, const NamedTensors& outputs) { compare(record, outputs); };
}

void TrailComparison::compare(const OpRecord& record, const NamedTensors& outputs) {
  const std::string title = title_of(record.op, record.note);
  bool held = false;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto& [label, ours] = outputs[i];
    const std::string by_label = key_of(output_name(title, label, false));
    auto found = reference_.entries_.find(by_label);
    if (found == reference_.entries_.end() && i == 0) found = reference_.entries_.find(key_of(title));
    if (found == reference_.entries_.end()) continue;
    held = true;
    asked_.push_back(found->first);
    if (difference_) continue;
    ++compared_;
    const std::string name = output_name(title, label, i == 0);
    const Entry& entry = found->second;
    if (reference_.is_trail()) {
      if (!compare_bits(name, entry, ours)) return;
    } else if (label == "output_permutation") {
      if (!compare_permutation(name, entry, outputs)) return;
    } else if (label != "input_permutation" && !compare_values(record, label, name, entry, ours)) {
      return;
    }
  }
  if (held) return;
  absent_.push_back(title);
  if (record.group || outputs.empty()) return;
  const TrailTolerance tolerance = trail_tolerance(record, outputs.front().first);
  carried_ += tolerance.of_row + tolerance.ulps * quant::ulp(activations_, 1.0);
}

bool TrailComparison::compare_bits(const std::string& name, const Entry& entry, const Tensor& ours) {
  const std::string digest = io::to_hex(io::tensor_digest(ours)), shape = type_and_shape(ours);
  if (digest == entry.digest) return true;
  if (entry.tensor.defined() && entry.shape == shape && !judge(name, entry, ours, {})) return false;
  difference_ = TrailDifference{.name = name,
                                .expected = described(shape, digest, statistics(ours)),
                                .found = described(entry.shape, entry.digest, entry.statistics)};
  return false;
}

bool TrailComparison::compare_values(const OpRecord& record, std::string_view label, const std::string& name, const Entry& entry,
                                     const Tensor& ours) {
  const Tensor& theirs = entry.tensor;
  const auto whole = [](DType type) { return type == DType::i32 || type == DType::i64 || type == DType::u8; };
  if (!(theirs.shape() == ours.shape()))
    throw Error(ErrorCode::bad_shape, "", "",
                reference_.path() + ": tensor " + io::quote(entry.name) + " has shape " + to_string(theirs.shape()) + ", expected " +
                    to_string(ours.shape()));
  const bool fits = ours.dtype() == DType::u8 ? theirs.dtype() == DType::u8 : whole(ours.dtype()) == whole(theirs.dtype());
  if (!fits)
    throw Error(ErrorCode::bad_dtype, "", "",
                reference_.path() + ": tensor " + io::quote(entry.name) + " is " + std::string(dodona::name(theirs.dtype())) +
                    ", expected " + std::string(dodona::name(ours.dtype())));
  // Choices and codes that follow from other inputs than the dump's say nothing.
  const bool judged = !(whole(ours.dtype()) && carried_ > 0);
  TrailTolerance tolerance = trail_tolerance(record, label);
  tolerance.of_row += carried_;
  const bool good = !judged || (ours.dtype() == DType::u8 ? judge_codes(name, entry, ours) : judge(name, entry, ours, tolerance));
  if (!good) return false;
  for (std::int64_t i = 0; i < ours.elements(); ++i) quant::set(ours, i, quant::get(theirs, i));
  return true;
}

/// Rows of one expert may come in any order. What follows goes by the dump's.
bool TrailComparison::compare_permutation(const std::string& name, const Entry& entry, const NamedTensors& outputs) {
  const Tensor& rows = outputs[0].second;
  const Tensor& tokens = outputs[1].second;
  const Tensor& theirs = entry.tensor;
  const std::int64_t n = rows.elements();
  if (theirs.elements() != n || theirs.dtype() != DType::i32)
    throw Error(
        ErrorCode::bad_shape, "", "",
        reference_.path() + ": tensor " + io::quote(entry.name) + " is " + type_and_shape(theirs) + ", expected " + type_and_shape(rows));
  auto* const row = rows.as<std::int32_t>();
  auto* const token = tokens.as<std::int32_t>();
  const std::int64_t topk = n / std::max<std::int64_t>(1 + *std::max_element(token, token + n), 1);
  std::vector<bool> taken(static_cast<std::size_t>(n), false);
  for (std::int64_t i = 0; i < n; ++i) {
    const double value = quant::get(theirs, i);
    const bool fresh = value >= 0 && value < static_cast<double>(n) && !taken[static_cast<std::size_t>(value)];
    if (!fresh) {
      difference_ = TrailDifference{.name = name,
                                    .expected = "each row once",
                                    .found = "a row out of range or twice",
                                    .has_element = true,
                                    .beyond = 1,
                                    .elements = n,
                                    .index = {i},
                                    .expected_value = static_cast<double>(row[i]),
                                    .found_value = value};
      return false;
    }
    taken[static_cast<std::size_t>(value)] = true;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    row[i] = static_cast<std::int32_t>(quant::get(theirs, i));
    token[row[i]] = static_cast<std::int32_t>(i / topk);
  }
  return true;
}

bool TrailComparison::judge(const std::string& name, const Entry& entry, const Tensor& ours, const TrailTolerance& tolerance) {
  const std::int64_t n = ours.elements(), columns = ours.rank() > 0 ? std::max<std::int64_t>(ours.size(-1), 1) : 1;
  const bool real = ours.dtype() == DType::bf16 || ours.dtype() == DType::f16 || ours.dtype() == DType::f32;
  // Values that were rounded to the activations' type on their way have its units, whatever holds them.
  const DType unit = ours.dtype() == DType::f32 ? activations_ : ours.dtype();
  TrailDifference worst{.name = name, .has_element = true, .elements = n};
  double worst_share = -1;
  for (std::int64_t begin = 0; begin < n; begin += columns) {
    const double of_row = real && tolerance.of_row > 0 ? tolerance.of_row * largest_of(ours, begin, begin + columns) : 0.0;
    for (std::int64_t i = begin; i < begin + columns; ++i) {
      const double expected = quant::get(ours, i), found = quant::get(entry.tensor, i);
      if (expected == found || (std::isnan(expected) && std::isnan(found))) continue;
      const double larger = std::fmax(std::fabs(expected), std::fabs(found));
      const double allowed = of_row + (real && tolerance.ulps > 0 ? tolerance.ulps * quant::ulp(unit, larger) : 0.0);
      const double error = std::fabs(expected - found);
      if (error <= allowed) continue;
      ++worst.beyond;
      const double share = std::isfinite(error) ? error / std::fmax(allowed, 1e-300) : std::numeric_limits<double>::infinity();
      if (share <= worst_share) continue;
      worst_share = share;
      worst.index = index_of(i, ours.shape());
      worst.expected_value = expected;
      worst.found_value = found;
      worst.allowed = allowed;
    }
  }
  if (worst.beyond == 0) return true;
  worst.expected = type_and_shape(ours);
  worst.found = type_and_shape(entry.tensor);
  difference_ = worst;
  return false;
}

/// e2m1 codes, two a byte: one in a hundred may lie on the border between two codes and be taken to the other side.
bool TrailComparison::judge_codes(const std::string& name, const Entry& entry, const Tensor& ours) {
  const std::int64_t n = ours.elements();
  std::int64_t neighbours = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t a = quant::get_bits(ours, i), b = quant::get_bits(entry.tensor, i);
    if (a == b) continue;
    if (code_steps(a & 15, b & 15) > 1 || code_steps(a >> 4, b >> 4) > 1) return judge(name, entry, ours, {});
    ++neighbours;
  }
  return neighbours <= n / 50 || judge(name, entry, ours, {});
}

void TrailComparison::finish() const {
  if (!difference_)
    for (const auto& [key, entry] : reference_.entries_)
      if (!key.starts_with(input_prefix) && std::find(asked_.begin(), asked_.end(), key) == asked_.end())
        throw Error(ErrorCode::bad_file, "", "",
                    reference_.path() + ": " + io::quote(entry.name) + " is no output of a model op of this layer");
  if (compared_ == 0) throw Error(ErrorCode::bad_file, "", "", reference_.path() + ": holds no output of a model op of this layer");
}

}  // namespace dodona::model
