// JSON as it is read, for wide texts of a known form: nothing is built of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dodona::io {

/// What is met in a text, one after the other, for readers of wide texts of a known form, to which a tree is a detour. Each event says
/// whether the text may be of that form; those that a reader leaves out are not.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual bool null() { return false; }
  virtual bool boolean(bool /*value*/) { return false; }
  virtual bool number_integer(std::int64_t /*value*/) { return false; }  ///< below zero
  virtual bool number_unsigned(std::uint64_t /*value*/) { return false; }
  virtual bool number_float(double /*value*/) { return false; }
  virtual bool string(std::string& /*value*/) { return false; }  ///< may be moved from, as a key may
  virtual bool key(std::string& /*value*/) { return false; }
  virtual bool start_object() { return false; }
  virtual bool end_object() { return false; }
  virtual bool start_array() { return false; }
  virtual bool end_array() { return false; }
};
/// Whether `text` is one JSON object in well-formed UTF-8, of whose events none was refused. What it is else, parse_json says: names that
/// occur twice and limits are the reader's to look after, until it has refused.
bool read_events(std::string_view text, JsonEvents& events);

}  // namespace dodona::io
