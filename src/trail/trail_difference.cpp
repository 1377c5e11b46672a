#include "trail/trail_difference.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "dodona/error.h"
#include "quant/element.h"

namespace dodona::trail {

std::string type_and_shape(const Tensor& tensor) {
  return std::string(name(tensor.dtype())) + " " + to_string(tensor.shape());
}

std::string described(const std::string& shape, const std::string& digest, const model::Statistics& s) {
  char text[160];
  std::snprintf(text, sizeof text, ", min %.6g, max %.6g, rms %.6g, not finite %lld", s.min, s.max, s.rms,
                static_cast<long long>(s.not_finite));
  return shape + ", digest " + digest.substr(0, 16) + text;
}

std::optional<TrailDifference> differing_elements(const std::string& name, const Tensor& expected, const Tensor& found,
                                                  const std::function<double(std::int64_t, double, double)>& allowed) {
  const std::int64_t n = expected.elements(), columns = expected.rank() > 0 ? std::max<std::int64_t>(expected.size(-1), 1) : 1;
  TrailDifference worst{.name = name, .has_element = true, .elements = n};
  double worst_share = -1;
  for (std::int64_t i = 0; i < n; ++i) {
    const double mine = quant::get(expected, i), theirs = quant::get(found, i);
    if (mine == theirs || (std::isnan(mine) && std::isnan(theirs))) continue;
    const double most = allowed(i / columns * columns, mine, theirs), error = std::fabs(mine - theirs);
    if (error <= most) continue;
    ++worst.beyond;
    const double share = std::isfinite(error) ? error / std::fmax(most, 1e-300) : std::numeric_limits<double>::infinity();
    if (share <= worst_share) continue;
    worst_share = share;
    worst.index = index_of(i, expected.shape());
    worst.expected_value = mine;
    worst.found_value = theirs;
    worst.allowed = most;
  }
  if (worst.beyond == 0) return std::nullopt;
  worst.expected = type_and_shape(expected);
  worst.found = type_and_shape(found);
  return worst;
}

std::optional<TrailDifference> first_difference(const TrailReference& a, const TrailReference& b, std::int64_t& same) {
  same = 0;
  for (const TrailReference* trail : {&a, &b})
    if (!trail->is_trail() || trail->order().empty())
      throw Error(ErrorCode::bad_file, "", trail->path(), "is no trail of a layer, as dodona layer --trail writes it");
  for (const auto& [key, value] : a.setting().items()) {
    const io::Json* const other = io::find_field(b.setting(), key, b.path());
    if (other == nullptr || *other != value)
      throw Error(ErrorCode::bad_value, "", b.path(),
                  "is of a run with " + key + " " + (other == nullptr ? "unknown" : io::json_text(*other)) + ", expected " +
                      io::json_text(value) + " as " + a.path());
  }
  const auto text = [](const TrailEntry& entry) { return described(entry.shape, entry.digest, entry.statistics); };
  for (const std::string& key : a.order()) {
    const TrailEntry& mine = a.entries().at(key);
    const auto found = b.entries().find(key);
    if (found == b.entries().end() || found->second.digest.empty())
      return TrailDifference{.name = mine.name, .expected = text(mine), .found = "no such output"};
    const TrailEntry& theirs = found->second;
    if (theirs.digest != mine.digest) {
      if (mine.tensor.defined() && theirs.tensor.defined() && mine.shape == theirs.shape) {
        const auto bits_differ = [](std::int64_t, double, double) { return 0.0; };
        if (auto difference = differing_elements(mine.name, mine.tensor, theirs.tensor, bits_differ)) return difference;
      }
      return TrailDifference{.name = mine.name, .expected = text(mine), .found = text(theirs)};
    }
    ++same;
  }
  for (const std::string& key : b.order())
    if (a.entries().count(key) == 0)
      return TrailDifference{.name = b.entries().at(key).name, .expected = "no such output", .found = text(b.entries().at(key))};
  return std::nullopt;
}

}  // namespace dodona::trail
