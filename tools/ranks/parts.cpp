#include "parts.h"

#include <charconv>

#include "dodona/error.h"

namespace dodona::tools {
namespace {

struct Part {
  std::size_t index = 0, count = 0;  ///< count 0: no part
};
Part parse(const std::string& text) {
  Part part;
  const char* const end = text.data() + text.size();
  const auto [slash, error] = std::from_chars(text.data(), end, part.index);
  if (error != std::errc() || slash == end || *slash != '/') return {};
  const auto [rest, wrong] = std::from_chars(slash + 1, end, part.count);
  return wrong != std::errc() || rest != end || part.index < 1 || part.index > part.count ? Part{} : part;
}

}  // namespace

void PartOption::add(CLI::App& command, const char* gives) {
  command.add_option("--part", text, std::string("I/N: only every N-th case from the I-th on; ") + gives);
}

void PartOption::check() const {
  if (given() && parse(text).count == 0)
    throw Error(ErrorCode::bad_option, "", "--part", "is '" + text + "', expected I/N with 1 <= I <= N");
}

std::size_t PartOption::index() const {
  return parse(text).index - 1;
}
std::size_t PartOption::count() const {
  return parse(text).count;
}

void PartOption::check(bool json) const {
  check();
  if (given() && !json) throw Error(ErrorCode::bad_option, "", "--part", "needs --json: a report that dodona merge can join");
}

bool PartOption::takes(std::size_t position) const {
  if (!given()) return true;
  const Part part = parse(text);
  return position % part.count + 1 == part.index;
}

void PartOption::mark(io::Json& report, const char* command, const char* list, const std::vector<std::int64_t>& positions) const {
  if (!given()) return;
  const Part part = parse(text);
  report["part"] = {{"command", command}, {"index", part.index}, {"count", part.count}, {"list", list}, {"positions", positions}};
}

}  // namespace dodona::tools
