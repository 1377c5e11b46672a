#include "trail/trail_reference.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "dodona/error.h"
#include "io/safetensors.h"
#include "io/text.h"
#include "trail/trail.h"

namespace dodona::trail {
namespace {

namespace fs = std::filesystem;

bool ends_as_safetensors(const std::string& path) {
  return path.ends_with(".safetensors");
}

}  // namespace

void TrailReference::add_step(const io::Json& record, const std::string& where) {
  const std::string title = title_of(io::get_string(record, "op", where), io::get_string(record, "note", where));
  bool first = true;
  for (const io::Json& output : io::get_array(record, "outputs", where)) {
    const std::string name = output_name(title, io::get_string(output, "label", where), first);
    first = false;
    order_.push_back(key_of(name));
    TrailEntry& entry = entries_[order_.back()];
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
    TrailEntry& mine = entries_[key_of(entry.name)];
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

}  // namespace dodona::trail
