#include "io/json.h"

#include "tests/fuzz/target.h"

namespace dodona::fuzz {

void json(Bytes input) {
  unless_refused([&] {
    const io::Json value = io::parse_json(text_of(input), "json", {.max_depth = 32, .max_bytes = 1 << 20, .max_values = 10'000});
    const std::string text = io::json_text(value);
    require(io::json_text(io::parse_json(text)) == text, "JSON comes back as other JSON");
    if (!value.is_object()) return;
    for (const auto& item : value.items()) {
      const std::string& key = item.key();
      require(io::find_field(value, key) == &item.value(), "a member is not found by its name");
      unless_refused([&] { io::get_int(value, key); });
      unless_refused([&] { io::get_double(value, key); });
      unless_refused([&] { io::get_string(value, key); });
      unless_refused([&] { io::get_ints(value, key); });
      unless_refused([&] { io::get_strings(value, key); });
    }
  });
}

}  // namespace dodona::fuzz
