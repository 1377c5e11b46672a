// The header of a safetensors file, which names its tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace dodona::io {

struct SafetensorsType {
  std::string_view name;
  std::uint64_t bits;
  std::optional<DType> dtype;
};
/// In the order of the format's own enumeration, which the writer sorts by.
extern const std::span<const SafetensorsType> safetensors_types;
/// Null where the format has none of that name.
const SafetensorsType* find_safetensors_type(std::string_view name);

inline constexpr std::string_view metadata_key = "__metadata__";

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< in the order of the text
  std::vector<std::size_t> by_name;       ///< indices into entries
  Metadata metadata;
};
/// Throws Error(bad_file) for a text that is no such header. How sizes and offsets fit to each other and to the file is not looked at.
SafetensorsHeader read_safetensors_header(std::string_view text, const std::string& source);

/// "[3, 5]", of a shape of any number of dimensions.
std::string shape_text(std::span<const std::int64_t> shape);
/// "FILE: tensor 'NAME'"
std::string safetensors_place(const std::string& source, std::string_view tensor);

}  // namespace dodona::io
