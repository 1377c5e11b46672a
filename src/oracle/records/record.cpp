#include "oracle/records/record.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "core/random.h"
#include "dodona/error.h"
#include "dodona/version.h"
#include "io/atomic_file.h"
#include "io/safetensors.h"
#include "io/sha256.h"
#include "io/tensor_bytes.h"
#include "oracle/cases/generate.h"
#include "oracle/cases/make_case.h"
#include "oracle/judge/pattern.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

namespace fs = std::filesystem;

constexpr int format_version = 1;
constexpr std::int64_t max_parts = 64;

std::string file_of(const std::string& folder) {
  return folder + "/record.json";
}
std::string partial_of(const std::string& folder) {
  return folder + "/record.partial.jsonl";
}

/// Elements to a part: even, so that packed types end at bytes.
std::int64_t part_size(std::int64_t elements) {
  const std::int64_t size = (elements + max_parts - 1) / max_parts;
  return std::max<std::int64_t>(2, size + size % 2);
}

std::string hex(std::uint64_t value) {
  std::array<char, 20> text;
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

RecordedOutput recorded(const std::string& output, const Tensor& tensor) {
  const Tensor dense = io::contiguous(tensor, output);
  RecordedOutput r{output, std::string(name(dense.dtype())), io::to_hex(io::tensor_digest(dense)), {}, {}};
  r.shape.assign(dense.shape().begin(), dense.shape().end());
  const auto bytes = io::bytes_of(dense);
  const auto step = static_cast<std::size_t>(bytes_for(dense.dtype(), part_size(dense.elements())));
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    const auto part = bytes.subspan(at, std::min(step, bytes.size() - at));
    r.parts.push_back(hex(fnv1a_64({reinterpret_cast<const char*>(part.data()), part.size()})));
  }
  return r;
}

// ---- JSON ----

io::Json to_json(const RecordedCase& c) {
  io::Json json{{"line", c.line}, {"contract_version", c.contract_version}, {"inputs", io::Json(c.inputs)}, {"modes", io::Json::object()}};
  for (const auto& [mode, outputs] : c.modes) {
    io::Json list = io::Json::array();
    for (const RecordedOutput& output : outputs)
      list.push_back(
          {{"name", output.name}, {"dtype", output.dtype}, {"shape", output.shape}, {"sha256", output.digest}, {"parts", output.parts}});
    json["modes"][mode] = list;
  }
  if (!c.tensors.empty()) json["tensors"] = io::Json(c.tensors);
  return json;
}

std::vector<RecordedOutput> outputs_from(const io::Json& list, const std::string& where) {
  std::vector<RecordedOutput> outputs;
  for (const io::Json& entry : list) {
    RecordedOutput output{io::get_string(entry, "name", where),
                          io::get_string(entry, "dtype", where),
                          io::get_string(entry, "sha256", where),
                          io::get_ints(entry, "shape", where),
                          {}};
    if (io::find_field(entry, "parts", where) != nullptr) output.parts = io::get_strings(entry, "parts", where);
    outputs.push_back(std::move(output));
  }
  return outputs;
}

std::map<std::string, std::string> texts_from(const io::Json& object, const std::string& where) {
  std::map<std::string, std::string> texts;
  for (const auto& [key, value] : object.items()) texts[key] = io::get_string(object, key, where);
  return texts;
}

RecordedCase case_from(const io::Json& json, const std::string& where) {
  RecordedCase c;
  c.line = io::get_string(json, "line", where);
  c.contract_version = static_cast<int>(io::get_int(json, "contract_version", where));
  c.inputs = texts_from(io::get_object(json, "inputs", where), where);
  const io::Json& modes = io::get_object(json, "modes", where);
  for (const auto& [mode, list] : modes.items()) c.modes[mode] = outputs_from(io::get_array(modes, mode, where), where);
  if (io::find_field(json, "tensors", where) != nullptr) c.tensors = texts_from(io::get_object(json, "tensors", where), where);
  // Names of files come from the digests of what they hold; anything else would be a path of somebody's choosing.
  for (const auto& [mode, file] : c.tensors)
    if (!file.starts_with("tensors/") || file.find('/', 8) != std::string::npos || file.find("..") != std::string::npos)
      throw Error(ErrorCode::bad_file, "", where, "names an impossible tensor file '" + file + "'");
  return c;
}

void write_text(const std::string& path, const std::string& text) {
  io::write_file(path, std::as_bytes(std::span(text.data(), text.size())));
}

// ---- recording ----

NamedTensors run_mode(const Op& op, const Arguments& inputs, Mode mode, Exec exec) {
  Arguments arguments = runnable(op, inputs);
  exec.mode = mode;
  op.run(arguments, exec);
  return outputs_of(op, arguments);
}

RecordedCase record_case(const SuiteCase& wanted, const std::vector<Mode>& modes, const std::string& folder, const Exec& exec) {
  const Op& op = registry().at(wanted.line.op);
  const Arguments inputs = generate(wanted.line, exec.threads);
  RecordedCase c;
  c.line = to_string(wanted.line);
  c.contract_version = op.contract_version();
  c.inputs = digests_of(inputs, {});
  for (const Mode mode : modes) {
    const NamedTensors outputs = run_mode(op, inputs, mode, exec);
    std::string all;
    auto& list = c.modes[std::string(name(mode))];
    for (const auto& [output, tensor] : outputs) {
      list.push_back(recorded(output, tensor));
      all += output + list.back().digest;
    }
    if (!wanted.tensors) continue;
    // Named by content: an old record's files are never overwritten by a new one's.
    const std::string file =
        "tensors/" + io::to_hex(io::sha256(std::as_bytes(std::span(all.data(), all.size())))).substr(0, 32) + ".safetensors";
    fs::create_directories(folder + "/tensors");
    if (!fs::exists(folder + "/" + file)) io::write_safetensors(folder + "/" + file, outputs);
    c.tensors[std::string(name(mode))] = file;
  }
  return c;
}

std::string lines_digest(const std::string& text) {
  return io::to_hex(io::sha256(std::as_bytes(std::span(text.data(), text.size()))));
}
std::string line_with_marks(const std::string& line, bool tensors) {
  return line + (tensors ? " +tensors\n" : "\n");
}

/// What a record of this suite must be like for its parts to be of use.
io::Json heading(const Suite& suite, const std::optional<RecordPart>& part) {
  std::string text;
  for (const SuiteCase& c : suite.cases) text += line_with_marks(to_string(c.line), c.tensors);
  io::Json modes = io::Json::array();
  for (const Mode mode : suite.modes) modes.push_back(std::string(name(mode)));
  io::Json head{{"format", "dodona record"},
                {"format_version", format_version},
                {"made_by", "dodona " + version()},
                {"suite", suite.name},
                {"modes", modes},
                {"lines_sha256", lines_digest(text)}};
  if (part) head["part"] = {{"index", part->index + 1}, {"count", part->count}, {"positions", part->positions}};
  return head;
}

/// Finished cases of an interrupted record of the same suite, as far as they are whole lines under the present contracts.
std::map<std::string, RecordedCase> resumable(const std::string& folder, const std::string& head) {
  std::map<std::string, RecordedCase> cases;
  std::ifstream file(partial_of(folder));
  std::string line;
  if (!std::getline(file, line) || line != head) return cases;
  while (std::getline(file, line)) {
    // The last line may have been cut.
    if (file.eof()) break;
    try {
      RecordedCase c = case_from(io::parse_json(line, partial_of(folder)), partial_of(folder));
      const Op* op = registry().find(parse_case_line(c.line).op);
      const bool present =
          std::all_of(c.tensors.begin(), c.tensors.end(), [&](const auto& entry) { return fs::exists(folder + "/" + entry.second); });
      if (op != nullptr && op->contract_version() == c.contract_version && present) cases[c.line] = std::move(c);
    } catch (const Error&) {
      break;
    }
  }
  return cases;
}

void remove_unused_tensors(const Record& record) {
  std::set<std::string> used;
  for (const RecordedCase& c : record.cases)
    for (const auto& [mode, file] : c.tensors) used.insert(fs::path(file).filename().string());
  const fs::path folder = fs::path(record.path) / "tensors";
  if (!fs::exists(folder)) return;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors" && !used.contains(entry.path().filename().string())) fs::remove(entry.path());
}

// ---- comparing ----

std::string value_text(const Tensor& tensor, std::int64_t i) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.9g (0x%llx)", quant::get(tensor, i),
                static_cast<unsigned long long>(quant::get_bits(tensor, i)));
  return text.data();
}

/// Tensors of one mode of a recorded case; nothing where only digests were kept.
std::optional<Tensor> stored_tensor(const Record& record, const RecordedCase& c, const std::string& mode, const std::string& output) {
  const auto found = c.tensors.find(mode);
  if (found == c.tensors.end()) return std::nullopt;
  const auto file = io::SafetensorsFile::open(record.path + "/" + found->second);
  if (file.find(output) == nullptr) throw Error(ErrorCode::bad_file, "", file.source(), "lacks the output " + output);
  return file.tensor(output);
}

/// How two outputs of unequal digest differ, as closely as what is at hand allows.
std::string describe(const RecordedOutput& a, const RecordedOutput& b, const std::optional<Tensor>& tensor_a,
                     const std::optional<Tensor>& tensor_b) {
  const auto shape_text = [](const RecordedOutput& o) {
    std::string text = o.dtype + " [";
    for (std::size_t i = 0; i < o.shape.size(); ++i) text += (i ? ", " : "") + std::to_string(o.shape[i]);
    return text + "]";
  };
  if (a.dtype != b.dtype || a.shape != b.shape) return shape_text(a) + " became " + shape_text(b);
  if (tensor_a && tensor_b && tensor_a->shape() == tensor_b->shape() && tensor_a->dtype() == tensor_b->dtype()) {
    std::int64_t first = -1, count = 0;
    for (std::int64_t i = 0; i < tensor_a->elements(); ++i) {
      if (quant::get_bits(*tensor_a, i) == quant::get_bits(*tensor_b, i)) continue;
      if (count++ == 0) first = i;
    }
    if (first >= 0)
      return std::to_string(count) + " of " + std::to_string(tensor_a->elements()) + " elements, first " +
             to_string(index_of(first, tensor_a->shape())) + ": " + value_text(*tensor_a, first) + " became " +
             value_text(*tensor_b, first);
  }
  std::int64_t elements = 1;
  for (const std::int64_t size : a.shape) elements *= size;
  const std::int64_t step = part_size(elements);
  if (a.shape.size() <= static_cast<std::size_t>(max_rank))
    for (std::size_t k = 0; k < a.parts.size() && k < b.parts.size(); ++k) {
      if (a.parts[k] == b.parts[k]) continue;
      const Dims shape(a.shape);
      const auto begin = static_cast<std::int64_t>(k) * step, end = std::min(elements, begin + step) - 1;
      return "first among the elements " + to_string(index_of(begin, shape)) + " to " + to_string(index_of(end, shape)) +
             " (the record holds digests; record tensors to see the element)";
    }
  return "other bits";
}

std::string op_of(const std::string& line) {
  return line.substr(0, line.find(' '));
}

const RecordedOutput* find(const std::vector<RecordedOutput>& outputs, const std::string& output) {
  for (const RecordedOutput& o : outputs)
    if (o.name == output) return &o;
  return nullptr;
}

std::optional<Difference> compare_with(const Record& record, const RecordedCase& c, const std::string& mode, const NamedTensors& now) {
  for (const RecordedOutput& then : c.modes.at(mode)) {
    const auto tensor = std::find_if(now.begin(), now.end(), [&](const auto& entry) { return entry.first == then.name; });
    if (tensor == now.end()) return Difference{c.line, op_of(c.line), mode, then.name, "is no longer an output of this call"};
    const RecordedOutput again = recorded(then.name, tensor->second);
    if (again.digest != then.digest)
      return Difference{c.line, op_of(c.line), mode, then.name,
                        describe(then, again, stored_tensor(record, c, mode, then.name), tensor->second)};
  }
  if (now.size() != c.modes.at(mode).size())
    return Difference{c.line, op_of(c.line), mode, "", "the call has outputs that the record has not"};
  return std::nullopt;
}

VerifiedCase verified(const Record& record, const RecordedCase& c, std::optional<Mode> only, const Exec& exec) {
  VerifiedCase result{c.line, CaseState::same, {}, {}};
  const CaseLine line = parse_case_line(c.line);
  const Op& op = registry().at(line.op);
  const Arguments inputs = generate(line, exec.threads);
  const bool other_contract = op.contract_version() != c.contract_version;
  for (const auto& [input, digest] : digests_of(inputs, {})) {
    const auto stored = c.inputs.find(input);
    if (stored != c.inputs.end() && stored->second == digest) continue;
    result.state = CaseState::inputs_changed;
    result.remark = "the line makes another " + input + " than when it was recorded";
    return result;
  }
  for (const auto& [mode_name, outputs] : c.modes) {
    const auto mode = parse_mode(mode_name);
    if (!mode) throw Error(ErrorCode::bad_file, "", record.path, "has a mode '" + mode_name + "'");
    if (only && *only != *mode) continue;
    result.difference = compare_with(record, c, mode_name, run_mode(op, inputs, *mode, exec));
    if (result.difference) break;
  }
  if (other_contract) {
    // Bits that a new contract changes are no failure, and a record of an old contract is no proof.
    result.state = CaseState::contract_changed;
    result.remark = "the contract went from version " + std::to_string(c.contract_version) + " to " +
                    std::to_string(op.contract_version()) +
                    (result.difference ? ", the bits with it: record anew" : ", the bits did not: record anew");
  } else if (result.difference) {
    result.state = CaseState::different;
  }
  return result;
}

// ---- comparing ----

std::optional<Difference> compare_steps(const Record& a, const RecordedCase& x, const Record& b, const RecordedCase& y) {
  if (x.line != y.line) return Difference{x.line, op_of(x.line), "", "", "the other one has " + y.line + " in its place"};
  if (x.contract_version != y.contract_version)
    return Difference{x.line, op_of(x.line), "", "",
                      "contract version " + std::to_string(x.contract_version) + " against " + std::to_string(y.contract_version)};
  for (const auto& [input, digest] : x.inputs)
    if (const auto other = y.inputs.find(input); other == y.inputs.end() || other->second != digest)
      return Difference{x.line, op_of(x.line), "", input, "the inputs already differ"};
  for (const auto& [mode, outputs] : x.modes) {
    const auto others = y.modes.find(mode);
    if (others == y.modes.end()) continue;
    for (const RecordedOutput& output : outputs) {
      const RecordedOutput* other = find(others->second, output.name);
      if (other == nullptr) return Difference{x.line, op_of(x.line), mode, output.name, "only the first one has it"};
      if (other->digest != output.digest || other->shape != output.shape || other->dtype != output.dtype)
        return Difference{x.line, op_of(x.line), mode, output.name,
                          describe(output, *other, stored_tensor(a, x, mode, output.name), stored_tensor(b, y, mode, output.name))};
    }
    for (const RecordedOutput& other : others->second)
      if (find(outputs, other.name) == nullptr) return Difference{x.line, op_of(x.line), mode, other.name, "only the second one has it"};
  }
  return std::nullopt;
}

}  // namespace

std::string_view name(CaseState state) {
  constexpr std::array<std::string_view, 5> names{"same", "DIFFERENT", "contract changed", "inputs changed", "error"};
  return names[static_cast<std::size_t>(state)];
}

bool is_record(const std::string& path) {
  return fs::is_directory(path) && (fs::exists(file_of(path)) || fs::exists(partial_of(path)));
}

std::string recorded_case(const Suite& suite, std::size_t index, const std::string& folder, const Exec& exec) {
  try {
    return io::json_text(to_json(record_case(suite.cases[index], suite.modes, folder, exec)));
  } catch (const Error& error) {
    throw Error(error.code(), "", to_string(suite.cases[index].line), std::string("cannot be recorded: ") + error.what());
  }
}

RecordInProgress::RecordInProgress(const Suite& suite, const std::string& folder, const std::optional<RecordPart>& part)
    : suite_(suite), part_(part), folder_(folder), head_(io::json_text(heading(suite, part))) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) throw Error(ErrorCode::bad_file, "", folder, "cannot be made: " + failed.message());
  auto finished = resumable(folder, head_);
  // The partial record is written anew from its whole lines: a cut one must not stand in the middle.
  std::string text = head_ + "\n";
  for (std::size_t i = 0; i < suite.cases.size(); ++i)
    if (const auto found = finished.find(to_string(suite.cases[i].line)); found != finished.end()) {
      text += io::json_text(to_json(found->second)) + "\n";
      cases_.emplace(i, found->second);
    }
  resumed_ = cases_.size();
  write_text(partial_of(folder), text);
}

std::vector<std::size_t> RecordInProgress::missing() const {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < suite_.cases.size(); ++i)
    if (!cases_.contains(i)) indices.push_back(i);
  return indices;
}

void RecordInProgress::keep(std::size_t index, const std::string& recorded) {
  std::ofstream partial(partial_of(folder_), std::ios::app);
  partial << recorded << "\n" << std::flush;
  if (!partial) throw Error(ErrorCode::bad_file, "", partial_of(folder_), "cannot be written");
  cases_.emplace(index, case_from(io::parse_json(recorded, partial_of(folder_)), partial_of(folder_)));
}

namespace {

/// In its place.
void write_record(const io::Json& head, const Record& record) {
  io::Json json = head;
  json["cases"] = io::Json::array();
  for (const RecordedCase& c : record.cases) json["cases"].push_back(to_json(c));
  write_text(file_of(record.path), io::json_text(json, 1) + "\n");
  fs::remove(partial_of(record.path));
  remove_unused_tensors(record);
}

}  // namespace

Record RecordInProgress::finish() {
  Record record{folder_, suite_.name, "dodona " + version(), part_, {}};
  for (auto& [index, c] : cases_) record.cases.push_back(std::move(c));
  write_record(io::parse_json(head_, folder_), record);
  return record;
}

Record make_record(const Suite& suite, const std::string& folder, const Exec& exec, const OnProgress& progress, std::size_t* resumed) {
  RecordInProgress record(suite, folder);
  if (resumed != nullptr) *resumed = record.resumed();
  for (const std::size_t i : record.missing()) {
    if (progress) progress({i, suite.cases.size(), to_string(suite.cases[i].line)});
    record.keep(i, recorded_case(suite, i, folder, exec));
  }
  return record.finish();
}

Record read_record(const std::string& folder) {
  const std::string path = file_of(folder);
  if (!fs::exists(path))
    throw Error(
        ErrorCode::bad_file, "", folder,
        fs::exists(partial_of(folder)) ? "holds an unfinished record: run dodona record again to take it up" : "holds no record.json");
  const io::Json json = io::read_json(path);
  if (io::get_string(json, "format", path) != "dodona record" || io::get_int(json, "format_version", path) != format_version)
    throw Error(ErrorCode::bad_file, "", path, "is no record of format " + std::to_string(format_version));
  Record record{folder, io::get_string_or(json, "suite", "", path), io::get_string_or(json, "made_by", "", path), {}, {}};
  if (io::find_field(json, "part", path) != nullptr) {
    const io::Json& part = io::get_object(json, "part", path);
    record.part = {static_cast<std::size_t>(io::get_int(part, "index", path)) - 1,
                   static_cast<std::size_t>(io::get_int(part, "count", path)), io::get_ints(part, "positions", path)};
  }
  for (const io::Json& entry : io::get_array(json, "cases", path)) record.cases.push_back(case_from(entry, path));
  return record;
}

namespace {

const io::Json& field(const io::Json& json, const char* name) {
  return json.at(name);
}

/// A part's record.json, whole.
struct PartFile {
  std::string folder;
  io::Json json;
  Record record;
  RecordPart part;
};

[[noreturn]] void broken(const PartFile& part, const std::string& what) {
  throw Error(ErrorCode::bad_file, "", part.folder, what);
}

PartFile read_part(const std::string& folder) {
  PartFile part{folder, io::read_json(file_of(folder)), read_record(folder), {}};
  part.part = part.record.part.value_or(RecordPart{});
  if (!part.record.part || part.part.positions.size() != part.record.cases.size())
    broken(part, "is no part of a record, expected what dodona record --part I/N made");
  return part;
}

/// All parts of one suite, each once, by their numbers.
void check_parts(std::vector<PartFile>& parts) {
  std::sort(parts.begin(), parts.end(), [](const PartFile& a, const PartFile& b) { return a.part.index < b.part.index; });
  const PartFile& first = parts.front();
  const std::size_t count = first.part.count;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const PartFile& part = parts[i];
    for (const char* const same : {"format_version", "made_by", "suite", "modes"})
      if (field(part.json, same) != field(first.json, same)) broken(part, std::string("has another ") + same + " than " + first.folder);
    if (part.part.count != count)
      broken(part,
             "is one of " + std::to_string(part.part.count) + " parts, expected one of " + std::to_string(count) + ", as " + first.folder);
    if (i > 0 && parts[i - 1].part.index == part.part.index)
      broken(part, "is part " + std::to_string(part.part.index + 1) + ", as " + parts[i - 1].folder + " is");
  }
  for (std::size_t i = 0; i < count; ++i)
    if (i >= parts.size() || parts[i].part.index != i)
      throw Error(ErrorCode::missing_argument, "", "merge", "lacks part " + std::to_string(i + 1) + "/" + std::to_string(count));
}

}  // namespace

Record merge_records(const std::vector<std::string>& folders, const std::string& folder) {
  std::vector<PartFile> parts;
  for (const std::string& one : folders) parts.push_back(read_part(one));
  check_parts(parts);
  Record record{folder, parts.front().record.name, parts.front().record.made_by, {}, {}};
  std::map<std::int64_t, const RecordedCase*> cases;
  for (const PartFile& part : parts)
    for (std::size_t i = 0; i < part.record.cases.size(); ++i)
      if (!cases.emplace(part.part.positions[i], &part.record.cases[i]).second)
        broken(part, "has a case that another part has too: " + part.record.cases[i].line);
  std::string lines;
  for (const auto& [position, c] : cases) {
    if (position != static_cast<std::int64_t>(record.cases.size())) broken(parts.front(), "and the other parts lack a case of the suite");
    record.cases.push_back(*c);
    lines += line_with_marks(c->line, !c->tensors.empty());
  }
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) throw Error(ErrorCode::bad_file, "", folder, "cannot be made: " + failed.message());
  for (const PartFile& part : parts)
    for (const RecordedCase& c : part.record.cases)
      for (const auto& [mode, file] : c.tensors) {
        fs::create_directories(folder + "/tensors");
        // By way of another name: a copy that is cut must not pass for the file.
        const std::string to = folder + "/" + file, half = to + ".partial";
        if (fs::exists(to)) continue;
        fs::copy_file(part.folder + "/" + file, half, fs::copy_options::overwrite_existing);
        fs::rename(half, to);
      }
  io::Json head = parts.front().json;
  head.erase("part"), head.erase("cases");
  head["lines_sha256"] = lines_digest(lines);
  write_record(head, record);
  return record;
}

VerifiedCase verify_case(const Record& record, std::size_t index, std::optional<Mode> mode, const Exec& exec) {
  const RecordedCase& c = record.cases[index];
  try {
    return verified(record, c, mode, exec);
  } catch (const Error& error) {
    return {c.line, CaseState::error, {}, error.what()};
  }
}

std::vector<VerifiedCase> verify_record(const Record& record, std::optional<Mode> mode, const Exec& exec, const OnProgress& progress) {
  std::vector<VerifiedCase> results;
  for (std::size_t i = 0; i < record.cases.size(); ++i) {
    if (progress) progress({i, record.cases.size(), record.cases[i].line});
    results.push_back(verify_case(record, i, mode, exec));
  }
  return results;
}

std::optional<Difference> first_difference(const std::string& a, const std::string& b, std::size_t& steps) {
  steps = 0;
  const Record x = read_record(a), y = read_record(b);
  for (std::size_t i = 0; i < std::min(x.cases.size(), y.cases.size()); ++i) {
    if (auto difference = compare_steps(x, x.cases[i], y, y.cases[i])) return difference;
    ++steps;
  }
  if (x.cases.size() == y.cases.size()) return std::nullopt;
  const RecordedCase& more = x.cases.size() > y.cases.size() ? x.cases[steps] : y.cases[steps];
  return Difference{more.line, op_of(more.line), "", "",
                    std::string("only the ") + (x.cases.size() > y.cases.size() ? "first" : "second") + " one goes on"};
}

}  // namespace dodona::oracle
