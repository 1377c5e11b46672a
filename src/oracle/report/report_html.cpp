#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>

#include "oracle/judge/vacuous.h"
#include "oracle/report/report.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

std::string number(double value, const char* format = "%.6g") {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 40> buffer;
  std::snprintf(buffer.data(), buffer.size(), format, value);
  return buffer.data();
}
std::string number(std::int64_t value) {
  return std::to_string(value);
}

std::string share_text(double share) {
  if (std::isinf(share)) return "no budget covers it";
  return share > 10 ? number(share, "%.3g") + " x" : number(100 * share, "%.3g") + " %";
}

/// A picture under construction: coordinates in pixels.
class Svg {
 public:
  Svg(double width, double height, const std::string& title) {
    text_ = "<svg viewBox=\"0 0 " + number(width) + " " + number(height) + "\" width=\"" + number(width) + "\" height=\"" + number(height) +
            "\" role=\"img\" aria-label=\"" + escaped(title) + "\">";
  }
  void rect(double x, double y, double w, double h, const char* style, const std::string& title = {}) {
    text_ += "<rect x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"" + number(w) + "\" height=\"" + number(h) + "\" class=\"" +
             style + "\"" + (title.empty() ? "/>" : "><title>" + escaped(title) + "</title></rect>");
  }
  void line(double x1, double y1, double x2, double y2, const char* style) {
    text_ += "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) + "\" y2=\"" + number(y2) + "\" class=\"" +
             style + "\"/>";
  }
  void circle(double x, double y, double r, const char* style, const std::string& title) {
    text_ += "<circle cx=\"" + number(x) + "\" cy=\"" + number(y) + "\" r=\"" + number(r) + "\" class=\"" + style + "\"><title>" +
             escaped(title) + "</title></circle>";
  }
  void cross(double x, double y, double r, const char* style) {
    line(x - r, y - r, x + r, y + r, style);
    line(x - r, y + r, x + r, y - r, style);
  }
  /// anchor: start, middle or end.
  void label(double x, double y, const std::string& content, const char* anchor) {
    text_ += "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\">" + escaped(content) + "</text>";
  }
  std::string finish() { return text_ + "</svg>\n"; }

 private:
  std::string text_;
};

constexpr std::array<const char*, 5> level_style{"l0", "l1", "l2", "l3", "bad"};

std::size_t level_of(double share) {
  return share > 1 ? 4 : share > 0.5 ? 3 : share > 0.1 ? 2 : share > 0 ? 1 : 0;
}

std::string range_text(std::int64_t low, std::int64_t high) {
  return low == high ? number(low) : number(low) + ".." + number(high);
}

/// Largest share per cell of the last two axes (over all leading ones), several elements to a cell where there are many.
std::string heat_map(const OutputCheck& output) {
  const Dims& shape = output.view.shape;
  const std::int64_t width = shape.rank() > 0 ? shape.at(-1) : 1, height = shape.rank() > 1 ? shape.at(-2) : 1;
  if (width == 0 || height == 0) return {};
  const std::int64_t per_column = (width + 127) / 128, per_row = (height + 63) / 64;
  const std::int64_t columns = (width + per_column - 1) / per_column, rows = (height + per_row - 1) / per_row;
  std::vector<double> cells(static_cast<std::size_t>(rows * columns), -1.0);
  const OutputDetail& detail = *output.verdict.detail;
  for (std::int64_t i = 0; i < output.verdict.elements; ++i) {
    const double share = detail.share[static_cast<std::size_t>(i)];
    if (std::isnan(share)) continue;
    double& cell = cells[static_cast<std::size_t>(i / width % height / per_row * columns + i % width / per_column)];
    cell = std::max(cell, share);
  }
  const double cell_width = std::clamp(840.0 / static_cast<double>(columns), 6.0, 40.0);
  const double cell_height = std::clamp(420.0 / static_cast<double>(rows), 6.0, 24.0);
  const double left = 70, top = 20;
  Svg svg(left + cell_width * static_cast<double>(columns) + 20, top + cell_height * static_cast<double>(rows) + 50,
          "heat map of the budget used");
  for (std::int64_t r = 0; r < rows; ++r) {
    const double y = top + cell_height * static_cast<double>(r);
    for (std::int64_t c = 0; c < columns;) {
      const auto at = [&](std::int64_t column) { return cells[static_cast<std::size_t>(r * columns + column)]; };
      const bool open = at(c) < 0;
      const std::size_t level = open ? 0 : level_of(at(c));
      std::int64_t end = c + 1;
      // Runs of one level are one rectangle, except where each cell is marked.
      while (level < 4 && end < columns && (at(end) < 0) == open && level_of(at(end)) == level) ++end;
      const double x = left + cell_width * static_cast<double>(c);
      const std::string where = "rows " + range_text(r * per_row, std::min(height, (r + 1) * per_row) - 1) + ", columns " +
                                range_text(c * per_column, std::min(width, end * per_column) - 1);
      svg.rect(x, y, cell_width * static_cast<double>(end - c), cell_height, open ? "open" : level_style[level],
               where + (open ? ": not compared" : ": up to " + share_text(at(c))));
      if (level == 4 && !open) svg.cross(x + cell_width / 2, y + cell_height / 2, std::min(cell_width, cell_height) / 3, "mark");
      c = end;
    }
  }
  const double bottom = top + cell_height * static_cast<double>(rows);
  for (const std::int64_t c : {std::int64_t{0}, columns / 2, columns - 1})
    svg.label(left + cell_width * (static_cast<double>(c) + 0.5), bottom + 15, number(c * per_column), "middle");
  for (const std::int64_t r : {std::int64_t{0}, rows / 2, rows - 1})
    svg.label(left - 6, top + cell_height * (static_cast<double>(r) + 0.5) + 4, number(r * per_row), "end");
  svg.label(left, bottom + 34, "column" + (per_column > 1 ? " (" + number(per_column) + " to a cell)" : ""), "start");
  svg.label(left - 60, top - 6, "row" + (per_row > 1 ? " (" + number(per_row) + " to a cell)" : ""), "start");
  std::string legend = "<p class=\"legend\">";
  const std::array<const char*, 5> meaning{"none of the budget", "up to 10 %", "up to 50 %", "up to 100 %", "over the budget: fails"};
  for (std::size_t level = 0; level < meaning.size(); ++level) {
    Svg sample(18, 14, meaning[level]);
    sample.rect(1, 1, 16, 12, level_style[level]);
    if (level == 4) sample.cross(9, 7, 4, "mark");
    legend += sample.finish() + meaning[level] + " &#160; ";
  }
  return "<h3>Budget used over the last two axes" + std::string(shape.rank() > 2 ? " (largest over the leading ones)" : "") + "</h3>\n" +
         svg.finish() + legend + "</p>\n";
}

/// Bars with a label before and a count behind; lengths logarithmic, so that one among millions is seen.
std::string bars(const std::vector<Bin>& bins, const std::string& title, const std::function<bool(std::size_t)>& bad) {
  double full = 1;
  for (const Bin& bin : bins) full = std::max(full, std::log2(1.0 + static_cast<double>(bin.count)));
  Svg svg(720, 20.0 * static_cast<double>(bins.size()) + 8, title);
  for (std::size_t i = 0; i < bins.size(); ++i) {
    const double y = 20.0 * static_cast<double>(i) + 3;
    const double length = bins[i].count > 0 ? std::max(2.0, 480 * std::log2(1.0 + static_cast<double>(bins[i].count)) / full) : 0;
    svg.label(110, y + 13, bins[i].label, "end");
    svg.rect(118, y, length, 16, bad(i) && bins[i].count > 0 ? "bad" : "bar");
    svg.label(124 + length, y + 13, number(bins[i].count), "start");
  }
  return svg.finish();
}

std::string ulp_histogram(const OutputCheck& output) {
  return "<h3>Representable numbers between golden and actual</h3>\n" +
         bars(output.statistics.ulps, "ulp histogram", [&](std::size_t i) { return output.statistics.ulps[i].label == "NaN"; });
}

std::string magnitude_chart(const OutputCheck& output) {
  if (!is_float(output.verdict.detail->golden.dtype())) return {};
  const std::vector<Binade> binades = by_magnitude(output.verdict);
  if (binades.empty()) return {};
  const DType type = output.verdict.detail->golden.dtype();
  double low = 1e300, high = -1e300;
  const auto stretch = [&](double value) {
    if (value > 0 && std::isfinite(value)) low = std::min(low, std::log2(value)), high = std::max(high, std::log2(value));
  };
  for (const Binade& b : binades) {
    stretch(b.max_error);
    if (!b.zero) stretch(quant::ulp(type, std::ldexp(1.0, b.exponent)));
  }
  if (low > high) return {};
  low = std::floor(low) - 1;
  high = low + 4 * std::ceil((high + 1 - low) / 4);
  const double left = 80, top = 34, plot_height = 240, step = std::clamp(760.0 / static_cast<double>(binades.size()), 14.0, 40.0);
  const auto y_of = [&](double value) { return top + plot_height * (high - std::clamp(std::log2(value), low, high)) / (high - low); };
  Svg svg(left + step * static_cast<double>(binades.size()) + 20, top + plot_height + 50, "error against magnitude");
  for (int k = 0; k <= 4; ++k) {
    const double exponent = low + (high - low) * k / 4.0, y = top + plot_height * (1 - k / 4.0);
    svg.line(left, y, left + step * static_cast<double>(binades.size()), y, "grid");
    svg.label(left - 6, y + 4, "2^" + number(exponent, "%.0f"), "end");
  }
  const std::size_t every = binades.size() > 24 ? binades.size() / 12 : binades.size() > 12 ? 2 : 1;
  for (std::size_t i = 0; i < binades.size(); ++i) {
    const Binade& b = binades[i];
    const double x = left + step * (static_cast<double>(i) + 0.5);
    const std::string label = b.zero ? "0" : "2^" + std::to_string(b.exponent);
    if (!b.zero) {
      const double y = y_of(quant::ulp(type, std::ldexp(1.0, b.exponent)));
      svg.line(x - step / 2, y, x + step / 2, y, "ulp");
    }
    const std::string about = "golden near " + label + ": " + number(b.count) + " elements, " + number(b.failing) +
                              " fail, largest error " + number(b.max_error) + ", mean " + number(b.mean_error);
    if (b.max_error > 0) {
      svg.circle(x, y_of(b.max_error), 4, b.failing > 0 ? "dot badline" : "dot", about);
      if (b.failing > 0) svg.cross(x, y_of(b.max_error), 6, "badline");
    }
    if (b.mean_error > 0) svg.line(x - 4, y_of(b.mean_error), x + 4, y_of(b.mean_error), "mean");
    if (i % every == 0) svg.label(x, top + plot_height + 18, label, "middle");
  }
  svg.label(left - 70, top - 16, "|actual - golden|", "start");
  svg.label(left, top + plot_height + 38, "|golden|, by powers of two", "start");
  return "<h3>Error against magnitude</h3>\n" + svg.finish() +
         "<p class=\"legend\">&#9675; largest error in the binade, crossed where elements fail; short stroke: mean error; dashes: one unit "
         "in the last "
         "place of " +
         std::string(name(type)) + "</p>\n";
}

/// Failures along each leading axis; many indices share a bar.
std::string along_charts(const OutputCheck& output) {
  std::string html;
  for (const Along& along : along_dimensions(output.verdict, output.view.shape, output.view.names)) {
    if (std::all_of(along.failing.begin(), along.failing.end(), [](std::int64_t count) { return count == 0; })) continue;
    const std::size_t per_bar = (along.failing.size() + 31) / 32;
    std::vector<Bin> bins;
    for (std::size_t i = 0; i < along.failing.size(); i += per_bar) {
      const std::size_t end = std::min(along.failing.size(), i + per_bar);
      Bin bin{range_text(static_cast<std::int64_t>(i), static_cast<std::int64_t>(end) - 1), 0};
      for (std::size_t k = i; k < end; ++k) bin.count += along.failing[k];
      bins.push_back(bin);
    }
    html += "<h3>Failing elements by " + escaped(along.name) + "</h3>\n" +
            bars(bins, "failures by " + along.name, [](std::size_t) { return true; });
  }
  return html;
}

std::string row(const std::string& key, const std::string& value) {
  return "<tr><th>" + escaped(key) + "</th><td>" + escaped(value) + "</td></tr>\n";
}

std::string facts(const OutputCheck& output) {
  const OutputVerdict& verdict = output.verdict;
  const ErrorStatistics& s = output.statistics;
  std::string html = "<table class=\"facts\">\n";
  html += row("tensor", std::string(name(output.dtype)) + " " + to_string(output.shape) + compared_as(output) + ", judge " +
                            std::string(name(verdict.judge)));
  html +=
      row("failing", number(verdict.failing) + " of " + number(verdict.compared) + " compared (" + number(verdict.elements) + " in all)");
  if (verdict.outcome == Outcome::vacuous) html += row("vacuous", std::string(why_vacuous(verdict)));
  if (!verdict.pattern.empty()) html += row("where", verdict.pattern);
  for (const std::string& relation : output.relations) html += row("what", relation);
  if (!verdict.defect.empty()) html += row("known upstream defect", verdict.defect);
  html += row("budget used",
              "max " + share_text(s.share_max) + ", p99.9 " + share_text(s.share_p999) + ", median " + share_text(s.share_median));
  html += row("largest error", number(s.max_abs) + " absolute, " + number(s.max_rel) + " relative");
  html += row("others would say", std::string("torch.testing.assert_close ") + (s.assert_close.passes() ? "passes" : "fails") + " (rtol " +
                                      number(s.assert_close.rtol) + ", atol " + number(s.assert_close.atol) + ", " +
                                      number(s.assert_close.mismatched) + " mismatched); relative L2 " + number(s.relative_l2) +
                                      "; cosine " + number(s.cosine, "%.9g"));
  return html + "</table>\n";
}

std::string worst_table(const OutputVerdict& verdict) {
  if (verdict.worst.empty()) return {};
  std::string html =
      "<h3>Worst elements</h3>\n<table class=\"worst\"><tr><th>index</th><th>golden</th><th>actual</th><th>ulps</th><th>budget</th></tr>\n";
  for (const ElementReport& element : verdict.worst) {
    const std::int64_t ulps = ulps_of(verdict, element.linear);
    html += "<tr><td>" + escaped(to_string(element.index)) + "</td><td>" + number(element.golden, "%.9g") + "</td><td>" +
            number(element.actual, "%.9g") + "</td><td>" + (ulps < 0 ? "NaN" : number(ulps)) + "</td><td>" + share_text(element.share) +
            "</td></tr>\n";
  }
  return html + "</table>\n";
}

constexpr const char* style = R"(
body{font:15px/1.45 system-ui,sans-serif;color:#111;background:#fff;margin:24px auto;max-width:1000px;padding:0 16px}
h1{font-size:20px;margin:0 0 4px;overflow-wrap:anywhere} h2{font-size:18px;border-top:1px solid #bbb;padding-top:16px;margin-top:32px}
h3{font-size:15px;margin:22px 0 6px} code{font-size:13px}
table{border-collapse:collapse} th,td{padding:3px 12px 3px 0;text-align:left;vertical-align:top} .facts th{font-weight:600;white-space:nowrap}
.worst th,.worst td{text-align:right;border-bottom:1px solid #ddd;font-variant-numeric:tabular-nums}
svg{display:block;shape-rendering:geometricPrecision;max-width:100%;height:auto} svg text{font:12px system-ui,sans-serif;fill:#111}
.legend{color:#333;font-size:13px} .legend svg{display:inline-block;vertical-align:-2px;margin-right:4px}
.l0{fill:#f1f1f1} .l1{fill:#d4d4d4} .l2{fill:#ababab} .l3{fill:#7d7d7d} .bad{fill:#8c1d18} .open{fill:#fff;stroke:#bbb;stroke-width:.5}
.bar{fill:#4a6785} .mark{stroke:#fff;stroke-width:1.5} .grid{stroke:#ddd} .ulp{stroke:#555;stroke-dasharray:4 3} .mean{stroke:#4a6785;stroke-width:2}
.dot{fill:none;stroke:#4a6785;stroke-width:1.6} .badline{stroke:#8c1d18;stroke-width:1.6}
.verdict{font-weight:700;padding:1px 8px;border:2px solid #111;border-radius:4px} .fail{background:#8c1d18;color:#fff}
)";

}  // namespace

std::string html_page(const CheckResult& result) {
  const auto verdict_box = [](Outcome outcome) {
    const bool bad = outcome == Outcome::fail || outcome == Outcome::vacuous;
    return std::string("<span class=\"verdict") + (bad ? " fail" : "") + "\">" + std::string(name(outcome)) + "</span>";
  };
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>" +
      escaped(result.op) + ": " + std::string(name(result.outcome)) + "</title><style>" + style + "</style></head><body>\n<h1>" +
      verdict_box(result.outcome) + " " + escaped(result.case_name) + "</h1>\n<p>contract version " +
      std::to_string(result.contract_version);
  if (!result.line.empty()) html += " &#183; made by <code>dodona gen " + escaped(result.line) + "</code>";
  html += "</p>\n";
  for (const std::string& note : result.notes) html += "<p>Note: " + escaped(note) + "</p>\n";
  if (result.explained) {
    html += "<h2>Explanation</h2>\n<ul>\n";
    for (const std::string& line : lines_of(*result.explained)) html += "<li>" + escaped(line) + "</li>\n";
    html += "</ul>\n";
  }
  for (const OutputCheck& output : result.outputs) {
    html += "<h2>" + escaped(output.verdict.name) + " " + verdict_box(output.verdict.outcome) + "</h2>\n" + facts(output) +
            heat_map(output) + ulp_histogram(output) + magnitude_chart(output) + along_charts(output) + worst_table(output.verdict);
  }
  return html + "</body></html>\n";
}

}  // namespace dodona::oracle
