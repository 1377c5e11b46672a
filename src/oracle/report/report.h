// Reports of a check, for machines and for people who look at pictures.
#pragma once

#include <string>
#include <vector>

#include "io/json.h"
#include "oracle/report/check.h"

namespace dodona::oracle {

io::Json to_json(const CheckResult& result);

/// JUnit XML: one test suite, one test case per output.
std::string junit_xml(const CheckResult& result, double seconds);

/// One self-contained HTML page with inline SVG: heat map over the last two axes, ulp histogram, error against magnitude, failures along
/// the other axes. Readable without colour: failing cells carry a mark, darkness alone tells the rest.
std::string html_page(const CheckResult& result);

/// `text` with &, <, > and quotes escaped, control characters replaced: for XML and HTML.
std::string escaped(const std::string& text);

}  // namespace dodona::oracle
