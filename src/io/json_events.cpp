#include "io/json_events.h"

namespace dodona::io {

bool JsonEvents::null() {
  return false;
}
bool JsonEvents::boolean(bool /*value*/) {
  return false;
}
bool JsonEvents::number_integer(number_integer_t /*value*/) {
  return false;
}
bool JsonEvents::number_unsigned(number_unsigned_t /*value*/) {
  return false;
}
bool JsonEvents::number_float(number_float_t /*value*/, const string_t& /*spelling*/) {
  return false;
}
bool JsonEvents::string(string_t& /*value*/) {
  return false;
}
bool JsonEvents::binary(binary_t& /*value*/) {
  return false;
}
bool JsonEvents::key(string_t& /*value*/) {
  return false;
}
bool JsonEvents::start_object(std::size_t /*size*/) {
  return false;
}
bool JsonEvents::end_object() {
  return false;
}
bool JsonEvents::start_array(std::size_t /*size*/) {
  return false;
}
bool JsonEvents::end_array() {
  return false;
}
bool JsonEvents::parse_error(std::size_t /*position*/, const std::string& /*token*/, const nlohmann::json::exception& /*error*/) {
  return false;
}

bool read_events(std::string_view text, JsonEvents& events) {
  // The parser passes over a byte-order mark, and takes a NUL for the end. UTF-8 it looks after in strings, and outside of them it takes
  // ASCII alone.
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '{' || text.find('\0') != std::string_view::npos) return false;
  return Json::sax_parse(text.begin(), text.end(), &events);
}

}  // namespace dodona::io
