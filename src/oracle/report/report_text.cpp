#include "oracle/report/report_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "oracle/judge/vacuous.h"

namespace dodona::oracle {
namespace {

/// `value` with so many significant digits.
std::string number(double value, int digits) {
  std::array<char, 40> buffer;
  std::snprintf(buffer.data(), buffer.size(), "%.*g", digits, value);
  return buffer.data();
}

std::string painted(const std::string& text, bool good, bool color) {
  return color ? (good ? "\033[32m" : "\033[31m") + text + "\033[0m" : text;
}

bool good(Outcome outcome) {
  return outcome == Outcome::pass || outcome == Outcome::known_defect;
}

/// Cells of printed width; the text is ASCII but for colour codes, which the caller adds after padding.
std::string pad(const std::string& text, std::size_t width, bool right) {
  const std::string space(width > text.size() ? width - text.size() : 0, ' ');
  return right ? space + text : text + space;
}

std::string times(double share) {
  if (std::isinf(share)) return "no budget covers it";
  return share > 10 ? number(share, 3) + " x" : percent(share);
}

std::string field(const std::string& label, const std::string& text) {
  return "  " + pad(label, 15, false) + " " + text + "\n";
}

std::string histogram(const ErrorStatistics& statistics) {
  constexpr double width = 40;
  std::size_t label = 0;
  for (const auto& bin : statistics.ulps) label = std::max(label, bin.label.size());
  // Logarithmic: one wrong element among millions must be seen.
  const double full = std::log2(1.0 + static_cast<double>(statistics.compared));
  std::string text;
  for (const auto& bin : statistics.ulps) {
    const double bar = bin.count > 0 ? std::max(1.0, width * std::log2(1.0 + static_cast<double>(bin.count)) / full) : 0;
    text += "    " + pad(bin.label, label, true) + "  " + pad(std::string(static_cast<std::size_t>(bar), '#'), 40, false) + " " +
            std::to_string(bin.count) + "\n";
  }
  return text;
}

std::string worst_elements(const OutputVerdict& verdict) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& element : verdict.worst) {
    const std::int64_t ulps = ulps_of(verdict, element.linear);
    rows.push_back({to_string(element.index), number(element.golden, 9), number(element.actual, 9), ulps < 0 ? "NaN" : std::to_string(ulps),
                    times(element.share)});
  }
  if (rows.empty()) return {};
  std::string text = verdict.failing > 0 ? "  worst elements\n" : "  elements that use most of their budget\n";
  const std::string cells = table({"index", "golden", "actual", "ulps", "budget"}, rows, {false, true, true, true, true});
  for (std::size_t at = 0; at < cells.size();) {
    const std::size_t end = cells.find('\n', at);
    text += "    " + cells.substr(at, end + 1 - at);
    at = end + 1;
  }
  return text;
}

std::string others_say(const ErrorStatistics& s) {
  const auto& torch = s.assert_close;
  return std::string("torch.testing.assert_close ") + (torch.passes() ? "passes" : "fails") + " (rtol " + number(torch.rtol, 6) +
         ", atol " + number(torch.atol, 6) + (torch.passes() ? "" : ", " + std::to_string(torch.mismatched) + " mismatched") +
         "); relative L2 " + number(s.relative_l2, 3) + "; cosine " + number(s.cosine, 9);
}

std::string output_text(const OutputCheck& output, bool color) {
  const auto& verdict = output.verdict;
  const auto& s = output.statistics;
  std::string text = "\n" + verdict.name + ": " + painted(std::string(name(verdict.outcome)), good(verdict.outcome), color) +
                     (verdict.defect.empty() ? "" : " " + verdict.defect) + "   (" + std::string(name(output.dtype)) + " " +
                     to_string(output.shape) + compared_as(output) + ", judge " + std::string(name(verdict.judge)) + ")\n";
  if (verdict.outcome == Outcome::vacuous) text += "  " + std::string(why_vacuous(verdict)) + "\n";
  if (verdict.failing > 0) {
    text += field("failing", std::to_string(verdict.failing) + " of " + std::to_string(verdict.compared) + " elements (" +
                                 percent(static_cast<double>(verdict.failing) / static_cast<double>(verdict.compared)) + ")");
    text += field("where", verdict.pattern);
    for (std::size_t i = 0; i < output.relations.size(); ++i) text += field(i == 0 ? "what" : "", output.relations[i]);
  }
  if (!output.sample.empty()) text += field("judged", output.sample + "; nothing is said of the others");
  if (verdict.compared < verdict.elements && output.sample.empty())
    text += field("not compared", std::to_string(verdict.elements - verdict.compared) + " elements that the contract leaves open");
  if (verdict.judge != Judge::exact)
    text += field("budget used", "max " + times(s.share_max) + ", p99.9 " + times(s.share_p999) + ", median " + times(s.share_median));
  text += field("others say", others_say(s));
  if (verdict.differing == 0) return text + field("bits", "all equal golden's");
  text += field("largest error", number(s.max_abs, 4) + " absolute, " + number(s.max_rel, 4) + " relative");
  return text + "  ulps from golden\n" + histogram(s) + worst_elements(verdict);
}

}  // namespace

std::string percent(double share) {
  if (share == 0) return "0";
  if (std::isinf(share)) return "inf";
  if (share < 0.001) return "< 0.1 %";
  std::array<char, 40> buffer;
  std::snprintf(buffer.data(), buffer.size(), "%.1f %%", 100 * share);
  return buffer.data();
}

std::string table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows,
                  const std::vector<bool>& right) {
  std::vector<std::size_t> widths;
  widths.reserve(header.size());
  for (const auto& cell : header) widths.push_back(cell.size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string out;
    for (std::size_t i = 0; i < cells.size(); ++i) out += (i > 0 ? "  " : "") + pad(cells[i], widths[i], right[i]);
    out.erase(out.find_last_not_of(' ') + 1);
    text += out + "\n";
  };
  line(header);
  std::vector<std::string> rule;
  rule.reserve(widths.size());
  for (const std::size_t width : widths) rule.emplace_back(width, '-');
  line(rule);
  for (const auto& row : rows) line(row);
  return text;
}

std::string report_text(const CheckResult& result, bool color) {
  const std::string cause = likely_cause(result);
  std::string text = (cause.empty() ? "" : "most likely: " + cause + "\n") + result.case_name + "   (contract version " +
                     std::to_string(result.contract_version) + ")\n";
  for (const std::string& note : result.notes) text += "note: " + note + "\n";
  for (const auto& output : result.outputs) text += output_text(output, color);
  if (!result.whose.empty()) text += "\nschedule: " + result.whose + "\n";
  if (result.explained) {
    text += "\nexplanation\n";
    for (const std::string& line : lines_of(*result.explained)) text += "  " + line + "\n";
  }
  return text + "\n" + painted(std::string(name(result.outcome)), good(result.outcome), color) + "\n";
}

}  // namespace dodona::oracle
