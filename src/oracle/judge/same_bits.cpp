#include "oracle/judge/same_bits.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "dodona/error.h"
#include "oracle/judge/pattern.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

std::string run_name(std::size_t run) {
  return "run " + std::to_string(run + 1);
}

/// The outputs that all runs have, cut to the rows that all have.
std::vector<NamedTensors> comparable(std::span<const NamedTensors> runs, std::vector<std::string>& notes) {
  if (runs.size() < 2)
    throw Error(ErrorCode::bad_value, "", "", "nothing to compare: expected two runs or more, got " + std::to_string(runs.size()));
  std::vector<NamedTensors> result(runs.size());
  for (std::size_t r = 1; r < runs.size(); ++r)
    for (const auto& [name, tensor] : runs[r])
      if (find(runs.front(), name) == nullptr)
        throw Error(ErrorCode::missing_argument, "", name, "is an output of " + run_name(r) + ", and not of " + run_name(0));
  for (const auto& [name, first] : runs.front()) {
    std::int64_t fewest = first.rank() > 0 ? first.size(0) : 1, most = fewest;
    for (std::size_t r = 1; r < runs.size(); ++r) {
      const Tensor* const other = find(runs[r], name);
      if (other == nullptr)
        throw Error(ErrorCode::missing_argument, "", name, "is an output of " + run_name(0) + ", and not of " + run_name(r));
      if (other->dtype() != first.dtype())
        throw Error(ErrorCode::bad_dtype, "", name,
                    "is " + std::string(dodona::name(other->dtype())) + " in " + run_name(r) + ", and " +
                        std::string(dodona::name(first.dtype())) + " in " + run_name(0));
      bool alike = other->rank() == first.rank();
      for (int d = 1; alike && d < first.rank(); ++d) alike = other->size(d) == first.size(d);
      if (!alike)
        throw Error(ErrorCode::bad_shape, "", name,
                    "has shape " + to_string(other->shape()) + " in " + run_name(r) + ", and " + to_string(first.shape()) + " in " +
                        run_name(0) + ": only the first dimension may differ");
      if (first.rank() == 0) continue;
      fewest = std::min(fewest, other->size(0));
      most = std::max(most, other->size(0));
    }
    if (fewest < most) notes.push_back(name + ": the first " + std::to_string(fewest) + " rows are compared, which all runs have");
    for (std::size_t r = 0; r < runs.size(); ++r) {
      const Tensor& tensor = *find(runs[r], name);
      result[r].emplace_back(name, tensor.rank() > 0 ? tensor.slice(0, 0, fewest) : tensor);
    }
  }
  return result;
}

std::vector<std::int64_t> differing(const Tensor& a, const Tensor& b) {
  std::vector<std::int64_t> found;
  for (std::int64_t i = 0; i < a.elements(); ++i)
    if (quant::get_bits(a, i) != quant::get_bits(b, i)) found.push_back(i);
  return found;
}

bool equal(const NamedTensors& a, const NamedTensors& b) {
  for (std::size_t k = 0; k < a.size(); ++k)
    for (std::int64_t i = 0; i < a[k].second.elements(); ++i)
      if (quant::get_bits(a[k].second, i) != quant::get_bits(b[k].second, i)) return false;
  return true;
}

std::string element(const Tensor& tensor, std::int64_t i) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.9g (0x%0*llx)", quant::get(tensor, i), (bits(tensor.dtype()) + 3) / 4,
                static_cast<unsigned long long>(quant::get_bits(tensor, i)));
  return text.data();
}

std::string listed(const std::vector<std::size_t>& runs, std::span<const std::string> names) {
  std::string text;
  for (const std::size_t run : runs) text += (text.empty() ? "" : ", ") + names[run];
  return text;
}

}  // namespace

SameBits same_bits(std::span<const NamedTensors> runs) {
  SameBits result;
  const std::vector<NamedTensors> outputs = comparable(runs, result.notes);
  for (const auto& [name, tensor] : outputs.front()) result.elements += tensor.elements();
  if (result.elements == 0) throw Error(ErrorCode::bad_value, "", "", "nothing to compare: the runs have no element in common");
  for (std::size_t run = 0; run < outputs.size(); ++run) {
    const auto same = std::find_if(result.groups.begin(), result.groups.end(),
                                   [&](const auto& group) { return equal(outputs[group.front()], outputs[run]); });
    if (same == result.groups.end())
      result.groups.push_back({run});
    else
      same->push_back(run);
  }
  std::stable_sort(result.groups.begin(), result.groups.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  const NamedTensors& first = outputs[result.groups.front().front()];
  for (std::size_t g = 1; g < result.groups.size(); ++g) {
    const std::size_t run = result.groups[g].front();
    for (std::size_t k = 0; k < first.size(); ++k) {
      const Tensor &expected = first[k].second, &actual = outputs[run][k].second;
      const std::vector<std::int64_t> places = differing(expected, actual);
      if (places.empty()) continue;
      result.differences.push_back({first[k].first, run, static_cast<std::int64_t>(places.size()), expected.elements(),
                                    index_of(places.front(), expected.shape()), element(expected, places.front()),
                                    element(actual, places.front()), place_of(places, expected.elements(), expected.shape())});
    }
  }
  return result;
}

std::string text_of(const SameBits& result, std::span<const std::string> names) {
  std::string text = "same bits: " + std::string(result.same() ? "pass" : "FAIL") + "   (" + std::to_string(names.size()) + " runs, " +
                     std::to_string(result.elements) + " elements each)\n";
  for (const std::string& note : result.notes) text += "  " + note + "\n";
  if (result.same()) return text;
  const std::string& with = names[result.groups.front().front()];
  if (result.groups.front().size() > 1) text += "  agree           " + listed(result.groups.front(), names) + "\n";
  for (std::size_t g = 1; g < result.groups.size(); ++g) {
    text += "  differ          " + listed(result.groups[g], names) + ", from " + with + ":\n";
    for (const OtherBits& other : result.differences)
      if (other.run == result.groups[g].front())
        text += "    " + other.output + ": " + std::to_string(other.differing) + " of " + std::to_string(other.compared) + " elements, " +
                other.pattern + "; the first at " + to_string(other.first) + ": " + other.actual + " for " + other.expected + "\n";
  }
  return text;
}

io::Json to_json(const SameBits& result, std::span<const std::string> names) {
  io::Json json{{"outcome", result.same() ? "pass" : "fail"}, {"elements", result.elements}, {"notes", result.notes}};
  json["groups"] = io::Json::array();
  for (const auto& group : result.groups) {
    io::Json files = io::Json::array();
    for (const std::size_t run : group) files.push_back(names[run]);
    json["groups"].push_back(files);
  }
  json["differences"] = io::Json::array();
  for (const OtherBits& other : result.differences)
    json["differences"].push_back({{"output", other.output},
                                   {"run", names[other.run]},
                                   {"from", names[result.groups.front().front()]},
                                   {"differing", other.differing},
                                   {"compared", other.compared},
                                   {"first", std::vector<std::int64_t>(other.first.begin(), other.first.end())},
                                   {"expected", other.expected},
                                   {"actual", other.actual},
                                   {"pattern", other.pattern}});
  return json;
}

}  // namespace dodona::oracle
