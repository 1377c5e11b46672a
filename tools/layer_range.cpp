#include "layer_range.h"

#include <charconv>
#include <string_view>

#include "dodona/error.h"

namespace dodona::tools {
namespace {

std::int64_t layer_number(std::string_view text, const std::string& all) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    throw Error(ErrorCode::bad_option, "", "--layers", "must be a layer, 3, or a range, 0..3 (both ends included), got '" + all + "'");
  return value;
}

}  // namespace

LayerRange parse_layers(const std::string& text) {
  const std::size_t dots = text.find("..");
  LayerRange range;
  range.first = layer_number(std::string_view(text).substr(0, dots), text);
  range.last = dots == std::string::npos ? range.first : layer_number(std::string_view(text).substr(dots + 2), text);
  if (range.first > range.last) throw Error(ErrorCode::bad_option, "", "--layers", text + " run backwards, expected the lower one first");
  return range;
}

}  // namespace dodona::tools
