#include "trail_text.h"

#include <fmt/format.h>

#include "common.h"

namespace dodona::tools {

io::Json to_json(const trail::TrailDifference& d) {
  io::Json json{{"output", d.name}, {"expected", d.expected}, {"found", d.found}};
  if (!d.has_element) return json;
  json["beyond"] = d.beyond;
  json["elements"] = d.elements;
  json["index"] = std::vector<std::int64_t>(d.index.begin(), d.index.end());
  json["expected_value"] = fmt::format("{:.9g}", d.expected_value);
  json["found_value"] = fmt::format("{:.9g}", d.found_value);
  json["allowed"] = d.allowed;
  return json;
}

void print_difference(const trail::TrailDifference& d, std::FILE* out) {
  fmt::print(out, "{} {}\n", colored("first difference:", "31"), d.name);
  if (!d.has_element || d.expected != d.found) fmt::print(out, "  expected  {}\n  found     {}\n", d.expected, d.found);
  if (!d.has_element) return;
  fmt::print(out, "  {} of {} elements; the worst, {}: expected {:.9g}, found {:.9g}", d.beyond, d.elements, to_string(d.index),
             d.expected_value, d.found_value);
  if (d.allowed > 0) fmt::print(out, ", may differ by {:.3g}", d.allowed);
  fmt::print(out, "\n");
}

}  // namespace dodona::tools
