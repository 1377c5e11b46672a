#include "io/safetensors_header.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "dodona/error.h"
#include "io/json.h"
#include "io/json_events.h"
#include "io/text.h"

namespace dodona::io {
namespace {

constexpr std::array<SafetensorsType, 22> table{{
    {"BOOL", 8, DType::boolean},
    {"F4", 4, DType::f4_e2m1},
    {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},
    {"U8", 8, DType::u8},
    {"I8", 8, DType::i8},
    {"F8_E5M2", 8, DType::f8_e5m2},
    {"F8_E4M3", 8, DType::f8_e4m3},
    {"F8_E8M0", 8, DType::f8_e8m0},
    {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E5M2FNUZ", 8, std::nullopt},
    {"I16", 16, DType::i16},
    {"U16", 16, std::nullopt},
    {"F16", 16, DType::f16},
    {"BF16", 16, DType::bf16},
    {"I32", 32, DType::i32},
    {"U32", 32, std::nullopt},
    {"F32", 32, DType::f32},
    {"C64", 64, std::nullopt},
    {"F64", 64, DType::f64},
    {"I64", 64, DType::i64},
    {"U64", 64, std::nullopt},
}};

[[noreturn]] void fail(const std::string& source, const std::string& message) {
  throw Error(ErrorCode::bad_file, "", "", source + ": " + message);
}

std::vector<std::size_t> sort_by_name(const std::vector<SafetensorsEntry>& entries) {
  std::vector<std::size_t> order(entries.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return entries[a].name < entries[b].name; });
  return order;
}

/// Takes a header as writers make it: of every tensor its dtype, shape and data_offsets, and nothing else.
class HeaderEvents final : public JsonEvents {
 public:
  SafetensorsHeader header;

  bool key(std::string_view value) override {
    switch (place_) {
      case Place::tensors:
        if (value == metadata_key) {
          place_ = Place::before_metadata;
          return !std::exchange(metadata_, true);
        }
        place_ = Place::before_entry;
        header.entries.emplace_back().name = value;
        seen_ = 0;
        return header.entries.size() <= most_entries;
      case Place::entry:
        for (const auto& [field, next] :
             {std::pair{"dtype", Place::dtype}, {"shape", Place::before_shape}, {"data_offsets", Place::before_offsets}})
          if (value == field) return first_of(place_ = next);
        return false;
      case Place::metadata:
        key_ = value;
        place_ = Place::metadata_value;
        return header.metadata.size() < most_metadata;
      default: return false;
    }
  }
  bool string(std::string_view value) override {
    if (place_ == Place::metadata_value) {
      place_ = Place::metadata;
      return header.metadata.emplace(key_, value).second;
    }
    const SafetensorsType* const type = place_ == Place::dtype ? find_safetensors_type(value) : nullptr;
    if (type == nullptr) return false;
    entry().dtype_name = type->name;
    entry().dtype = type->dtype;
    place_ = Place::entry;
    return true;
  }
  bool number(std::uint64_t value) override {
    if (place_ == Place::shape) {
      entry().shape.push_back(static_cast<std::int64_t>(value));
      return entry().shape.size() <= most_dimensions;
    }
    if (place_ != Place::offsets || offsets_ == 2) return false;
    (offsets_++ == 0 ? entry().begin : entry().end) = value;
    return true;
  }
  bool start_object() override {
    return step(Place::outside, Place::tensors) || step(Place::before_entry, Place::entry) || step(Place::before_metadata, Place::metadata);
  }
  bool end_object() override {
    if (place_ == Place::entry && seen_ != all_fields) return false;
    return step(Place::tensors, Place::behind) || step(Place::entry, Place::tensors) || step(Place::metadata, Place::tensors);
  }
  bool start_array() override {
    offsets_ = 0;
    return step(Place::before_shape, Place::shape) || step(Place::before_offsets, Place::offsets);
  }
  bool end_array() override { return step(Place::shape, Place::entry) || (offsets_ == 2 && step(Place::offsets, Place::entry)); }

 private:
  enum class Place {
    outside,
    tensors,
    before_entry,
    entry,
    dtype,
    before_shape,
    shape,
    before_offsets,
    offsets,
    before_metadata,
    metadata,
    metadata_value,
    behind
  };
  // What lies beyond is for the tree's limits to judge.
  static constexpr std::size_t most_entries = 500'000, most_metadata = 10'000, most_dimensions = 64;
  static constexpr unsigned all_fields = 1U << static_cast<unsigned>(Place::dtype) | 1U << static_cast<unsigned>(Place::before_shape) |
                                         1U << static_cast<unsigned>(Place::before_offsets);

  SafetensorsEntry& entry() { return header.entries.back(); }
  bool step(Place from, Place to) {
    if (place_ != from) return false;
    place_ = to;
    return true;
  }
  bool first_of(Place field) {
    const unsigned bit = 1U << static_cast<unsigned>(field), before = std::exchange(seen_, seen_ | bit);
    return (before & bit) == 0;
  }

  Place place_ = Place::outside;
  unsigned seen_ = 0;  ///< fields of the entry
  int offsets_ = 0;
  bool metadata_ = false;
  std::string key_;
};

/// Nothing of a header that needs more than the events to be understood, or is none.
std::optional<SafetensorsHeader> of_events(std::string_view text) {
  HeaderEvents events;
  if (!read_events(text, events)) return std::nullopt;
  SafetensorsHeader header = std::move(events.header);
  header.by_name = sort_by_name(header.entries);
  const auto twin = std::adjacent_find(header.by_name.begin(), header.by_name.end(),
                                       [&](std::size_t a, std::size_t b) { return header.entries[a].name == header.entries[b].name; });
  if (twin != header.by_name.end()) return std::nullopt;
  return header;
}

Json parse_header(std::string_view header, const std::string& source) {
  if (const std::size_t bad = first_invalid_utf8(header); bad != std::string_view::npos)
    fail(source, "byte " + std::to_string(bad) + " of the header is not valid UTF-8");
  // The reader of JSON would also take a byte-order mark.
  const std::size_t first = header.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) fail(source, "the header is blank, expected a JSON object");
  if (header[first] != '{') fail(source, "the header begins with " + quote(header.substr(first), 8) + ", expected a JSON object");
  const JsonLimits limits{.max_depth = 16, .max_bytes = max_safetensors_header};
  return parse_json(header, source + ": header", limits);
}

Metadata parse_metadata(const Json& json, const std::string& source) {
  if (!json.is_object()) fail(source, "__metadata__ is no object of strings");
  Metadata metadata;
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) fail(source, "__metadata__ " + quote(key) + " is no string");
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

/// `place` names the tensor in what is thrown.
SafetensorsEntry parse_entry_at(const std::string& name, const Json& json, const std::string& place) {
  if (!json.is_object()) fail(place, "expected an object of dtype, shape and data_offsets");
  SafetensorsEntry entry;
  entry.name = name;
  const std::string dtype = get_string(json, "dtype", place);
  const SafetensorsType* type = find_safetensors_type(dtype);
  if (type == nullptr) fail(place, "unknown dtype " + quote(dtype));
  entry.dtype_name = type->name;
  entry.dtype = type->dtype;
  entry.shape = get_ints(json, "shape", place);
  for (const std::int64_t size : entry.shape)
    if (size < 0) fail(place, "negative size in shape " + shape_text(entry.shape));
  const std::vector<std::int64_t> offsets = get_ints(json, "data_offsets", place);
  if (offsets.size() != 2) fail(place, std::to_string(offsets.size()) + " data_offsets, expected begin and end");
  if (offsets[0] < 0 || offsets[1] < 0) fail(place, "negative data_offsets");
  entry.begin = static_cast<std::uint64_t>(offsets[0]);
  entry.end = static_cast<std::uint64_t>(offsets[1]);
  return entry;
}

/// The place is put into words for entries that are wrong alone: it takes longer than reading one.
SafetensorsEntry parse_entry(const std::string& name, const Json& json, const std::string& source) {
  try {
    return parse_entry_at(name, json, {});
  } catch (const Error&) {
    return parse_entry_at(name, json, safetensors_place(source, name));
  }
}

SafetensorsHeader of_tree(std::string_view text, const std::string& source) {
  SafetensorsHeader header;
  const Json tree = parse_header(text, source);
  for (const auto& [name, value] : tree.items()) {
    if (name == metadata_key) {
      header.metadata = parse_metadata(value, source);
    } else {
      header.entries.push_back(parse_entry(name, value, source));
    }
  }
  header.by_name = sort_by_name(header.entries);
  return header;
}

}  // namespace

const std::span<const SafetensorsType> safetensors_types = table;

const SafetensorsType* find_safetensors_type(std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(), [name](const SafetensorsType& t) { return t.name == name; });
  return found == table.end() ? nullptr : found;
}

SafetensorsHeader read_safetensors_header(std::string_view text, const std::string& source) {
  if (auto header = of_events(text)) return *std::move(header);
  return of_tree(text, source);
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t size : shape.first(std::min<std::size_t>(shape.size(), 16)))
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + (shape.size() > 16 ? ", ...]" : "]");
}

std::string safetensors_place(const std::string& source, std::string_view tensor) {
  return source + ": tensor " + quote(tensor);
}

}  // namespace dodona::io
