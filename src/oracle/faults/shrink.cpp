#include "oracle/faults/shrink.h"

#include <algorithm>

namespace dodona::oracle {
namespace {

class Shrinker {
 public:
  Shrinker(const CaseLine& failing, const std::function<Trial(const CaseLine&)>& attempt, int max_runs)
      : attempt_(attempt), max_runs_(max_runs), schema_(registry().at(failing.op).schema()), result_{failing, 0, 0, false} {}

  Shrunk run() {
    bool smaller = true;
    while (smaller && !result_.stopped) {
      const std::string before = to_string(result_.line);
      simplify();
      sizes();
      counts();
      smaller = to_string(result_.line) != before;
    }
    return result_;
  }

 private:
  bool still_fails(const CaseLine& line) {
    if (to_string(line) == to_string(result_.line)) return true;
    if (result_.runs >= max_runs_) {
      result_.stopped = true;
      return false;
    }
    ++result_.runs;
    const Trial trial = attempt_(line);
    result_.unusable += trial == Trial::unusable ? 1 : 0;
    if (trial == Trial::fails) result_.line = line;
    return trial == Trial::fails;
  }

  /// The least value in (low, high] that fails: `set` writes a value into a line. `low` is tried first.
  template <class Set>
  void least(std::int64_t low, std::int64_t high, const Set& set) {
    const auto fails_at = [&](std::int64_t value) {
      CaseLine line = result_.line;
      set(line, value);
      return still_fails(line);
    };
    if (low >= high || fails_at(low)) return;
    while (high - low > 1 && !result_.stopped) {
      const std::int64_t middle = low + (high - low) / 2;
      (fails_at(middle) ? high : low) = middle;
    }
  }

  void sizes() {
    std::vector<std::pair<std::string, std::int64_t>> symbols(result_.line.symbols.begin(), result_.line.symbols.end());
    std::stable_sort(symbols.begin(), symbols.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    for (const auto& [symbol, value] : symbols) {
      std::int64_t unit = 1, minimum = 1;
      for (const SymbolSpec& spec : schema_.symbols) {
        if (spec.name != symbol) continue;
        unit = spec.multiple_of;
        minimum = std::max<std::int64_t>(1, spec.minimum);
      }
      if (value % unit != 0) continue;
      least((minimum + unit - 1) / unit, value / unit,
            [&, symbol = symbol](CaseLine& line, std::int64_t multiple) { line.symbols[symbol] = multiple * unit; });
    }
  }

  void counts() {
    for (const auto& [name, value] : Arguments(result_.line.attrs).attrs)
      if (const auto* whole = std::get_if<std::int64_t>(&value))
        least(1, *whole, [&, name = name](CaseLine& line, std::int64_t smaller) { line.attrs.set_attr(name, smaller); });
  }

  void simplify() {
    const auto with = [&](const auto& change) {
      CaseLine line = result_.line;
      change(line);
      still_fails(line);
    };
    with([](CaseLine& line) { line.dialect.clear(); });
    for (const auto& [argument, dtype] : std::map(result_.line.dtypes))
      with([&, argument = argument](CaseLine& line) { line.dtypes.erase(argument); });
    for (const auto& [name, value] : Arguments(result_.line.attrs).attrs)
      with([&, name = name](CaseLine& line) { std::erase_if(line.attrs.attrs, [&](const auto& attr) { return attr.first == name; }); });
    for (const std::string& argument : std::set(result_.line.with)) with([&](CaseLine& line) { line.with.erase(argument); });
    for (const std::string& argument : std::set(result_.line.without)) with([&](CaseLine& line) { line.without.erase(argument); });
    with([](CaseLine& line) { line.seed = 0; });
    if (result_.line.dist == "ties") return;
    with([](CaseLine& line) { line.dist = "ties"; });
    if (result_.line.dist != "ties") with([](CaseLine& line) { line.dist = "normal"; });
  }

  const std::function<Trial(const CaseLine&)>& attempt_;
  int max_runs_;
  const OpSchema& schema_;
  Shrunk result_;
};

}  // namespace

Shrunk shrink(const CaseLine& failing, const std::function<Trial(const CaseLine&)>& attempt, int max_runs) {
  return Shrinker(failing, attempt, max_runs).run();
}

}  // namespace dodona::oracle
