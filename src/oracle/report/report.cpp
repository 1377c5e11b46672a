#include "oracle/report/report.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "oracle/judge/vacuous.h"

namespace dodona::oracle {
namespace {

/// JSON has no infinity and no NaN.
io::Json finite(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

std::vector<std::int64_t> list_of(const Dims& dims) {
  return {dims.begin(), dims.end()};
}

io::Json statistics_json(const ErrorStatistics& s) {
  io::Json ulps = io::Json::array();
  for (const Bin& bin : s.ulps) ulps.push_back({{"ulps", bin.label}, {"count", bin.count}});
  return {{"budget_used", {{"max", finite(s.share_max)}, {"p99.9", finite(s.share_p999)}, {"median", finite(s.share_median)}}},
          {"ulp_histogram", ulps},
          {"max_abs", finite(s.max_abs)},
          {"max_rel", finite(s.max_rel)},
          {"unexpected_nan", s.only_nan},
          {"others_would_say",
           {{"torch_assert_close",
             {{"rtol", s.assert_close.rtol},
              {"atol", s.assert_close.atol},
              {"passes", s.assert_close.passes()},
              {"mismatched", s.assert_close.mismatched}}},
            {"relative_l2", finite(s.relative_l2)},
            {"cosine", finite(s.cosine)}}}};
}

std::string number(double value) {
  std::array<char, 32> buffer;
  std::snprintf(buffer.data(), buffer.size(), "%.6g", value);
  return buffer.data();
}

}  // namespace

io::Json to_json(const CheckResult& result) {
  io::Json outputs = io::Json::array();
  for (const OutputCheck& output : result.outputs) {
    const OutputVerdict& verdict = output.verdict;
    io::Json worst = io::Json::array();
    for (const ElementReport& element : verdict.worst)
      worst.push_back({{"index", list_of(element.index)},
                       {"golden", finite(element.golden)},
                       {"actual", finite(element.actual)},
                       {"ulps", ulps_of(verdict, element.linear)},
                       {"share", finite(element.share)}});
    io::Json entry{{"name", verdict.name},
                   {"judge", std::string(name(verdict.judge))},
                   {"outcome", std::string(name(verdict.outcome))},
                   {"dtype", std::string(name(output.dtype))},
                   {"shape", list_of(output.shape)},
                   {"elements", verdict.elements},
                   {"compared", verdict.compared},
                   {"differing", verdict.differing},
                   {"failing", verdict.failing},
                   {"pattern", verdict.pattern},
                   {"relations", output.relations},
                   {"worst", worst}};
    if (!verdict.defect.empty()) entry["known_defect"] = verdict.defect;
    if (!output.sample.empty()) entry["sample"] = output.sample;
    entry.update(statistics_json(output.statistics));
    outputs.push_back(entry);
  }
  io::Json json{{"op", result.op},
                {"case", result.case_name},
                {"case_path", result.case_path},
                {"actual_path", result.actual_path},
                {"line", result.line},
                {"contract_version", result.contract_version},
                {"outcome", std::string(name(result.outcome))},
                {"cause", likely_cause(result)},
                {"notes", result.notes},
                {"outputs", outputs}};
  if (!result.whose.empty()) json["schedule"] = result.whose;
  if (!result.explained) return json;
  io::Json found = io::Json::array();
  for (const Explanation& e : result.explained->found)
    found.push_back({{"id", e.id}, {"text", e.text}, {"complete", e.complete}, {"outputs", e.outputs}, {"failing", e.failing}});
  json["explanations"] = {{"found", found}, {"tried", result.explained->tried}, {"not_tried", result.explained->left}};
  return json;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? '?' : c;
    }
  }
  return out;
}

std::string junit_xml(const CheckResult& result, double seconds) {
  int failures = 0;
  std::string cases;
  for (const OutputCheck& output : result.outputs) {
    const OutputVerdict& verdict = output.verdict;
    const bool bad = verdict.outcome == Outcome::fail || verdict.outcome == Outcome::vacuous;
    failures += bad ? 1 : 0;
    cases += "    <testcase classname=\"" + escaped(result.op) + "\" name=\"" + escaped(result.case_name + " " + verdict.name) + "\"";
    if (!bad) {
      cases += "/>\n";
      continue;
    }
    const std::string message =
        verdict.outcome == Outcome::vacuous
            ? "vacuous: " + std::string(why_vacuous(verdict))
            : std::to_string(verdict.failing) + " of " + std::to_string(verdict.compared) + " elements fail: " + verdict.pattern;
    std::string body;
    for (const std::string& relation : output.relations) body += relation + "\n";
    for (const ElementReport& element : verdict.worst)
      if (element.share > 1)
        body += to_string(element.index) + " golden " + number(element.golden) + " actual " + number(element.actual) + "\n";
    cases += ">\n      <failure type=\"" + std::string(name(verdict.outcome)) + "\" message=\"" + escaped(message) + "\">" + escaped(body) +
             "</failure>\n    </testcase>\n";
  }
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"dodona\" tests=\"" +
         std::to_string(result.outputs.size()) + "\" failures=\"" + std::to_string(failures) + "\" errors=\"0\" time=\"" + number(seconds) +
         "\">\n" + cases + "  </testsuite>\n</testsuites>\n";
}

}  // namespace dodona::oracle
