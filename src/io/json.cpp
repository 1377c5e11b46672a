#include "io/json.h"

#include <algorithm>
#include <utility>

#include "dodona/error.h"
#include "io/mapped_file.h"
#include "io/text.h"

namespace dodona::io {
namespace {

[[noreturn]] void fail(std::string_view source, const std::string& message) {
  throw Error(ErrorCode::bad_file, "", "", std::string(source) + ": " + message);
}

[[noreturn]] void fail_at(std::string_view source, std::string_view text, std::size_t offset, const std::string& message) {
  fail(source, line_and_column(text, offset) + ": " + message);
}

/// Depth and number of values, without building anything. Brackets inside strings do not count; text that is no JSON
/// at all may be measured wrongly, which the parser then finds.
void check_limits(std::string_view text, std::string_view source, const JsonLimits& limits) {
  std::size_t depth = 0;
  std::size_t values = 1;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    // nlohmann's reader takes a NUL for the end of the text, and would not look at what follows.
    if (c == '\0') fail_at(source, text, i, "unexpected NUL byte");
    if (in_string) {
      if (c == '\\') {
        ++i;
        if (i < text.size() && text[i] == '\0') fail_at(source, text, i, "unexpected NUL byte");
      }
      in_string = c != '"';
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '{' || c == '[') {
      if (++depth > limits.max_depth)
        fail_at(source, text, i, "nested deeper than " + std::to_string(limits.max_depth) + " objects and arrays");
    }
    if ((c == '}' || c == ']') && depth > 0) --depth;
    if ((c == ',' || c == '{' || c == '[') && ++values > limits.max_values)
      fail_at(source, text, i, "more than " + std::to_string(limits.max_values) + " values");
  }
}

/// nlohmann's message without its error number, position and the end of an overlong token.
std::string syntax_message(std::string_view what) {
  if (const std::size_t id = what.find("] "); id != std::string_view::npos) what.remove_prefix(id + 2);
  if (what.substr(0, 11) == "parse error") {
    if (const std::size_t colon = what.find(": "); colon != std::string_view::npos) what.remove_prefix(colon + 2);
  }
  constexpr std::size_t head = 120;
  constexpr std::size_t tail = 60;
  if (what.size() <= head + tail) return std::string(what);
  // A cut in the middle of a character would make the message itself ill-formed.
  std::size_t begin = head;
  std::size_t end = what.size() - tail;
  while ((static_cast<unsigned char>(what[begin]) & 0xC0) == 0x80) --begin;
  while ((static_cast<unsigned char>(what[end]) & 0xC0) == 0x80) ++end;
  return std::string(what.substr(0, begin)) + "..." + std::string(what.substr(end));
}

class TreeBuilder final : public nlohmann::json_sax<Json> {
 public:
  TreeBuilder(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& /*spelling*/) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }
  bool key(string_t& value) override {
    key_ = std::move(value);
    return true;
  }
  bool start_object(std::size_t /*size*/) override { return open(Json::object()); }
  bool start_array(std::size_t /*size*/) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool end_object() override {
    check_duplicates();
    return close();
  }
  bool parse_error(std::size_t position, const std::string& /*token*/, const nlohmann::json::exception& error) override {
    fail_at(source_, text_, position > 0 ? position - 1 : 0, syntax_message(error.what()));
  }

 private:
  /// Only the innermost open container grows, so pointers to the others stay valid.
  Json* place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      auto& elements = parent.get_ref<Json::array_t&>();
      elements.push_back(std::move(value));
      return &elements.back();
    }
    auto& members = parent.get_ref<Json::object_t&>();
    members.emplace_back(std::move(key_), std::move(value));
    return &members.back().second;
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json container) {
    open_.push_back(place(std::move(container)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  /// Sorting instead of hashing: no choice of names makes it slow.
  void check_duplicates() const {
    const auto& members = open_.back()->get_ref<const Json::object_t&>();
    // A header of a hundred thousand tensors has an object of three for each.
    constexpr std::size_t few = 8;
    if (members.size() <= few) {
      for (auto a = members.begin(); a != members.end(); ++a)
        if (std::any_of(members.begin(), a, [&](const auto& b) { return b.first == a->first; })) fail_twice(a->first);
      return;
    }
    std::vector<const std::string*> names;
    names.reserve(members.size());
    for (const auto& member : members) names.push_back(&member.first);
    std::sort(names.begin(), names.end(), [](const auto* a, const auto* b) { return *a < *b; });
    const auto twin = std::adjacent_find(names.begin(), names.end(), [](const auto* a, const auto* b) { return *a == *b; });
    if (twin != names.end()) fail_twice(**twin);
  }
  [[noreturn]] void fail_twice(const std::string& name) const {
    fail(source_, "key " + quote(name) + " occurs more than once in " + path());
  }

  std::string path() const {
    std::string result;
    for (std::size_t i = 0; i + 1 < open_.size(); ++i) {
      const Json& container = *open_[i];
      result +=
          container.is_array() ? "/" + std::to_string(container.size() - 1) : "/" + container.get_ref<const Json::object_t&>().back().first;
    }
    return result.empty() ? "the outermost object" : "the object at " + quote(result);
  }

  std::string_view text_, source_;
  Json root_;
  std::vector<Json*> open_;
  std::string key_;
};

std::string describe(const Json& value) {
  if (value.is_string()) return "the string " + quote(value.get_ref<const std::string&>(), 40);
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number()) return "the number " + value.dump();
  if (value.is_null()) return "null";
  return value.is_array() ? "an array" : "an object";
}

std::string field_name(std::string_view key) {
  return "field " + quote(key);
}

[[noreturn]] void wrong_type(std::string_view where, std::string_view field, std::string_view expected, const Json& value) {
  fail(where, std::string(field) + ": expected " + std::string(expected) + ", got " + describe(value));
}

bool is_int64(const Json& value) {
  return value.is_number_integer() && (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX);
}

/// What `read` makes of the value. The field's name is put into words when that fails: it takes longer than reading one.
template <class T, class Name>
T told_if_wrong(T (*read)(const Json&, std::string_view, std::string_view), const Json& value, std::string_view where, const Name& name) {
  try {
    return read(value, where, {});
  } catch (const Error&) {
    return read(value, where, name());
  }
}

std::string as_string(const Json& value, std::string_view where, std::string_view field) {
  if (!value.is_string()) wrong_type(where, field, "a string", value);
  return value.get<std::string>();
}
std::int64_t as_int(const Json& value, std::string_view where, std::string_view field) {
  if (!is_int64(value)) wrong_type(where, field, "a whole number of 64 bits", value);
  return value.get<std::int64_t>();
}
double as_double(const Json& value, std::string_view where, std::string_view field) {
  if (!value.is_number()) wrong_type(where, field, "a number", value);
  return value.get<double>();
}
bool as_bool(const Json& value, std::string_view where, std::string_view field) {
  if (!value.is_boolean()) wrong_type(where, field, "true or false", value);
  return value.get<bool>();
}

template <class T>
std::vector<T> as_list(const Json& array, std::string_view key, std::string_view where,
                       T (*element)(const Json&, std::string_view, std::string_view)) {
  std::vector<T> result;
  result.reserve(array.size());
  for (const Json& value : array)
    result.push_back(
        told_if_wrong(element, value, where, [&] { return "element " + std::to_string(result.size()) + " of " + field_name(key); }));
  return result;
}

}  // namespace

Json parse_json(std::string_view text, std::string_view source, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes)
    fail(source, std::to_string(text.size()) + " bytes of JSON, the limit is " + std::to_string(limits.max_bytes));
  if (const std::size_t bad = first_invalid_utf8(text); bad != std::string_view::npos)
    fail_at(source, text, bad, "byte " + std::to_string(bad) + " is not valid UTF-8");
  check_limits(text, source, limits);
  TreeBuilder builder(text, source);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

Json read_json(const std::string& path, const JsonLimits& limits) {
  const MappedFile file = MappedFile::open(path);
  if (is_lfs_pointer(file.bytes())) fail(path, lfs_pointer_advice);
  return parse_json({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path, limits);
}

std::string json_text(const Json& value, int indent) {
  try {
    return value.dump(indent);
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::bad_value, "", "", "cannot write JSON: " + syntax_message(error.what()));
  }
}

const Json* find_field(const Json& object, std::string_view key, std::string_view where) {
  if (!object.is_object()) fail(where, "expected an object with " + field_name(key) + ", got " + describe(object));
  const auto& members = object.get_ref<const Json::object_t&>();
  const auto found = std::find_if(members.begin(), members.end(), [key](const auto& member) { return member.first == key; });
  return found == members.end() ? nullptr : &found->second;
}

const Json& get_field(const Json& object, std::string_view key, std::string_view where) {
  const Json* value = find_field(object, key, where);
  if (value == nullptr) fail(where, field_name(key) + " is missing");
  return *value;
}

std::string get_string(const Json& object, std::string_view key, std::string_view where) {
  return told_if_wrong(as_string, get_field(object, key, where), where, [&] { return field_name(key); });
}
std::int64_t get_int(const Json& object, std::string_view key, std::string_view where) {
  return as_int(get_field(object, key, where), where, field_name(key));
}
double get_double(const Json& object, std::string_view key, std::string_view where) {
  return as_double(get_field(object, key, where), where, field_name(key));
}
bool get_bool(const Json& object, std::string_view key, std::string_view where) {
  return as_bool(get_field(object, key, where), where, field_name(key));
}
const Json& get_object(const Json& object, std::string_view key, std::string_view where) {
  const Json& value = get_field(object, key, where);
  if (!value.is_object()) wrong_type(where, field_name(key), "an object", value);
  return value;
}
const Json& get_array(const Json& object, std::string_view key, std::string_view where) {
  const Json& value = get_field(object, key, where);
  if (!value.is_array()) wrong_type(where, field_name(key), "an array", value);
  return value;
}
std::vector<std::int64_t> get_ints(const Json& object, std::string_view key, std::string_view where) {
  return as_list<std::int64_t>(get_array(object, key, where), key, where, as_int);
}
std::vector<std::string> get_strings(const Json& object, std::string_view key, std::string_view where) {
  return as_list<std::string>(get_array(object, key, where), key, where, as_string);
}

std::string get_string_or(const Json& object, std::string_view key, std::string_view fallback, std::string_view where) {
  const Json* value = find_field(object, key, where);
  return value != nullptr ? as_string(*value, where, field_name(key)) : std::string(fallback);
}
std::int64_t get_int_or(const Json& object, std::string_view key, std::int64_t fallback, std::string_view where) {
  const Json* value = find_field(object, key, where);
  return value != nullptr ? as_int(*value, where, field_name(key)) : fallback;
}
double get_double_or(const Json& object, std::string_view key, double fallback, std::string_view where) {
  const Json* value = find_field(object, key, where);
  return value != nullptr ? as_double(*value, where, field_name(key)) : fallback;
}
bool get_bool_or(const Json& object, std::string_view key, bool fallback, std::string_view where) {
  const Json* value = find_field(object, key, where);
  return value != nullptr ? as_bool(*value, where, field_name(key)) : fallback;
}

}  // namespace dodona::io
