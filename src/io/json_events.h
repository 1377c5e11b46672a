// JSON as it is read, for wide texts of a known form: nothing is built of them.
#pragma once

#include <string_view>

#include "io/json.h"

namespace dodona::io {

/// What the parser meets, one after the other, for readers of wide texts of a known form, to which a tree is a detour. Each event says
/// whether the text may be of that form; those that a reader leaves out are not.
class JsonEvents : public nlohmann::json_sax<Json> {
 public:
  bool null() override;
  bool boolean(bool value) override;
  bool number_integer(number_integer_t value) override;  ///< below zero
  bool number_unsigned(number_unsigned_t value) override;
  bool number_float(number_float_t value, const string_t& spelling) override;
  bool string(string_t& value) override;
  bool binary(binary_t& value) override;
  bool key(string_t& value) override;
  bool start_object(std::size_t size) override;
  bool end_object() override;
  bool start_array(std::size_t size) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string& token, const nlohmann::json::exception& error) override;
};
/// Whether `text` is one JSON object in well-formed UTF-8, of whose events none was refused. What it is else, parse_json says: names that
/// occur twice and limits are the reader's to look after, until it has refused.
bool read_events(std::string_view text, JsonEvents& events);

}  // namespace dodona::io
