// What the model ops of a layer gave elsewhere, read from files.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "io/json.h"
#include "model/layer/statistics.h"

namespace dodona::trail {

struct TrailEntry {
  std::string name;    ///< as the file has it
  std::string digest;  ///< of a trail
  std::string shape;   ///< dtype and shape of a trail's output
  model::Statistics statistics;
  Tensor tensor;
};

/// A trail; or a dump of tensors, a safetensors file or a folder of such files.
class TrailReference {
 public:
  /// Throws Error (bad_file) for anything else.
  static TrailReference open(const std::string& path);

  const std::string& path() const { return path_; }
  /// A trail has digests and is held to equal bits; a dump is judged by what the ops leave open.
  bool is_trail() const { return !setting_.is_null(); }
  const io::Json& setting() const { return setting_; }
  /// The tensor `input.NAME`; undefined where there is none.
  Tensor input(const std::string& name) const;

  /// By key_of() their names.
  const std::map<std::string, TrailEntry>& entries() const { return entries_; }
  /// Keys of a trail's outputs, as the ops were done.
  const std::vector<std::string>& order() const { return order_; }

 private:
  void add_tensors(const std::string& file);
  void add_step(const io::Json& record, const std::string& where);

  std::string path_;
  io::Json setting_;
  std::map<std::string, TrailEntry> entries_;
  std::vector<std::string> order_;
};

}  // namespace dodona::trail
