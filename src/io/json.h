// JSON from strangers: nlohmann's reader behind limits, and typed access with errors that name the field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace dodona::io {

/// Objects keep the order of their members. Look-up in them is linear: iterate over wide objects.
using Json = nlohmann::ordered_json;

struct JsonLimits {
  std::size_t max_depth = 64;           ///< objects and arrays inside one another
  std::size_t max_bytes = 100'000'000;  ///< of text
  std::size_t max_values = 4'000'000;   ///< of all kinds together: bounds the memory that a text can claim
};

/// Parses one JSON value (RFC 8259). Throws Error(bad_file), saying where and what was expected, on: text over the limits,
/// ill-formed UTF-8, NUL bytes, bad syntax, a number too large for a double, a member name that occurs twice in one object.
/// `source` names the text in errors. Deep nesting is refused before anything is built, and costs no stack.
Json parse_json(std::string_view text, std::string_view source = "JSON", const JsonLimits& limits = {});
/// The same for a file.
Json read_json(const std::string& path, const JsonLimits& limits = {});

/// Text of `value`; `indent` < 0 gives one line without spaces. Throws Error(bad_value) if a string is not UTF-8.
std::string json_text(const Json& value, int indent = -1);

/// The member `key` of `object`, or null if it is absent. Throws Error(bad_file) if `object` is not an object.
/// Here and below `where` names the object in errors ("config.json", "tensor 'w'").
const Json* find_field(const Json& object, std::string_view key, std::string_view where = "JSON");

// Typed fields. All throw Error(bad_file) naming `where`, the key, what was expected and what is there, also when the field is absent.
const Json& get_field(const Json& object, std::string_view key, std::string_view where = "JSON");
std::string get_string(const Json& object, std::string_view key, std::string_view where = "JSON");
/// Whole numbers without fraction or exponent, in the range of int64.
std::int64_t get_int(const Json& object, std::string_view key, std::string_view where = "JSON");
/// Any number; whole numbers are converted.
double get_double(const Json& object, std::string_view key, std::string_view where = "JSON");
bool get_bool(const Json& object, std::string_view key, std::string_view where = "JSON");
const Json& get_object(const Json& object, std::string_view key, std::string_view where = "JSON");
const Json& get_array(const Json& object, std::string_view key, std::string_view where = "JSON");
std::vector<std::int64_t> get_ints(const Json& object, std::string_view key, std::string_view where = "JSON");
std::vector<std::string> get_strings(const Json& object, std::string_view key, std::string_view where = "JSON");

// The same with a value for an absent field. A field that is present and of another type is still an error; null is another type.
std::string get_string_or(const Json& object, std::string_view key, std::string_view fallback, std::string_view where = "JSON");
std::int64_t get_int_or(const Json& object, std::string_view key, std::int64_t fallback, std::string_view where = "JSON");
double get_double_or(const Json& object, std::string_view key, double fallback, std::string_view where = "JSON");
bool get_bool_or(const Json& object, std::string_view key, bool fallback, std::string_view where = "JSON");

}  // namespace dodona::io
