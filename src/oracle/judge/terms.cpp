#include "oracle/judge/terms.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "oracle/judge/pattern/index_rules.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

/// Of an output as a matrix.
struct Place {
  std::int64_t row, column;
};

/// Where the number of an element is taken from; -1 for nowhere. `own` is where it belongs, `other` the element's index across.
struct Source {
  std::string words;
  std::function<std::int64_t(std::int64_t own, std::int64_t other)> from;
};

std::vector<Source> sources(std::int64_t count, const std::string& own, const std::string& across) {
  std::vector<Source> found;
  const std::string i = own + " i has that of ";
  const auto add = [&](std::string words, std::function<std::int64_t(std::int64_t, std::int64_t)> from) {
    found.push_back({std::move(words), std::move(from)});
  };
  for (pattern::IndexRule& rule : pattern::index_rules(count))
    add(i + rule.words, [from = std::move(rule.from)](std::int64_t x, std::int64_t) { return from(x); });
  for (const std::int64_t p : {2, 4, 8, 16, 32})
    if (p < count) {
      const std::string n = std::to_string(p);
      add("element i of " + across + " j has that of " + own + " i + j mod " + n + ": of " + n + " neighbours all but one have another " +
              own + "'s",
          [=](std::int64_t x, std::int64_t y) { return x + y % p; });
      add("element i of " + across + " j has that of " + own + " i + j / " + n, [=](std::int64_t x, std::int64_t y) { return x + y / p; });
    }
  add("taken by " + across + "s, not by " + own + "s", [](std::int64_t, std::int64_t y) { return y; });
  return found;
}

/// What of an output is looked at: failing elements and others, evenly taken.
struct Looked {
  std::vector<std::int64_t> at;
  std::vector<bool> fails;
};
Looked looked_at(const std::vector<std::int64_t>& failing, std::int64_t elements) {
  constexpr std::int64_t most = 2048;
  std::set<std::int64_t> wrong;
  const std::size_t step = failing.size() / most + 1;
  for (std::size_t k = 0; k < failing.size(); k += step) wrong.insert(failing[k]);
  Looked looked;
  for (const std::int64_t i : wrong) looked.at.push_back(i), looked.fails.push_back(true);
  const std::set<std::int64_t> all(failing.begin(), failing.end());
  for (std::int64_t i = 0; i < elements; i += elements / most + 1)
    if (all.count(i) == 0) looked.at.push_back(i), looked.fails.push_back(false);
  return looked;
}

enum class How { factor, term };

class Terms {
 public:
  Terms(const Tensor& golden, const Tensor& actual, const std::vector<double>& exact, const Looked& looked)
      : type_(actual.dtype()), width_(golden.rank() > 0 ? golden.size(-1) : 1), looked_(looked) {
    const std::int64_t rows = golden.elements() / std::max<std::int64_t>(width_, 1);
    row_fails_.resize(static_cast<std::size_t>(rows));
    column_fails_.resize(static_cast<std::size_t>(width_));
    for (std::size_t k = 0; k < looked.at.size(); ++k)
      if (looked.fails[k])
        row_fails_[static_cast<std::size_t>(looked.at[k] / width_)] = column_fails_[static_cast<std::size_t>(looked.at[k] % width_)] = true;
    for (const std::int64_t i : looked.at) {
      const auto at = static_cast<std::size_t>(i);
      right_.push_back(exact.size() == static_cast<std::size_t>(golden.elements()) ? exact[at] : quant::get(golden, i));
      given_.push_back(quant::get(actual, i));
    }
  }
  /// Whether nearly all that fails is what it would be without the numbers.
  bool explained_without(const std::vector<double>& numbers, bool by_row, std::int64_t per_number, How how) const {
    std::size_t wrong = 0, explained = 0;
    for (std::size_t k = 0; k < looked_.at.size(); ++k) {
      if (!looked_.fails[k]) continue;
      const std::int64_t own = (by_row ? looked_.at[k] / width_ : looked_.at[k] % width_) / per_number;
      const double mine = numbers[static_cast<std::size_t>(own)], expected = how == How::factor ? right_[k] / mine : right_[k] - mine;
      const double room = 2 * quant::ulp(type_, expected) + (how == How::term ? 2 * quant::ulp(type_, right_[k]) : 0.0);
      ++wrong;
      explained += std::isfinite(expected) && std::fabs(given_[k] - expected) <= room &&
                           std::fabs(given_[k] - expected) < std::fabs(given_[k] - right_[k])
                       ? 1
                       : 0;
    }
    return wrong >= enough && 100 * explained >= 97 * wrong;
  }
  /// Whether nearly all elements are what they would be with the numbers of `from`, and that of what fails.
  bool explained(const std::vector<double>& numbers, bool by_row, std::int64_t per_number, How how, const Source& source) const {
    std::size_t wrong = 0, wrong_explained = 0, others = 0, others_explained = 0, nowhere = 0;
    for (std::size_t k = 0; k < looked_.at.size(); ++k) {
      const Place place{looked_.at[k] / width_, looked_.at[k] % width_};
      const std::int64_t own = (by_row ? place.row : place.column) / per_number, across = by_row ? place.column : place.row;
      // Of rows, or columns, in which nothing fails nothing is asked: the mistake may be made elsewhere alone.
      if (!(by_row ? column_fails_ : row_fails_)[static_cast<std::size_t>(across)]) continue;
      const std::int64_t from = source.from(own, across);
      if (from < 0 || from >= static_cast<std::int64_t>(numbers.size())) {
        nowhere += looked_.fails[k] ? 1 : 0;
        continue;
      }
      const double mine = numbers[static_cast<std::size_t>(own)], taken = numbers[static_cast<std::size_t>(from)];
      const double expected = how == How::factor ? right_[k] * (taken / mine) : right_[k] - mine + taken;
      const double room = 2 * quant::ulp(type_, expected) + (how == How::term ? 2 * quant::ulp(type_, right_[k]) : 0.0);
      // What fails by a unit in the last place is not explained by what leaves it where it belongs.
      const bool nearer = !looked_.fails[k] || std::fabs(given_[k] - expected) < std::fabs(given_[k] - right_[k]);
      const bool holds = std::isfinite(expected) && std::fabs(given_[k] - expected) <= room && nearer;
      (looked_.fails[k] ? wrong : others) += 1;
      (looked_.fails[k] ? wrong_explained : others_explained) += holds ? 1 : 0;
      // Soon enough: most are nothing like it.
      if (k == 31 && 2 * wrong_explained < wrong) return false;
    }
    return wrong >= enough && wrong >= nowhere && 100 * wrong_explained >= 97 * wrong && 100 * others_explained >= 95 * others;
  }

 private:
  static constexpr std::size_t enough = 8;

  DType type_;
  std::int64_t width_;
  const Looked& looked_;
  std::vector<double> right_, given_;
  std::vector<bool> row_fails_, column_fails_;
};

}  // namespace

std::vector<std::string> terms_of(const OpSchema& schema, const Arguments& inputs, const std::vector<std::int64_t>& failing,
                                  const Tensor& golden, const Tensor& actual, const std::vector<double>& exact) {
  std::vector<std::string> found;
  // Of 8 bits and less nearly any factor fits.
  if (failing.empty() || !is_float(actual.dtype()) || bits(actual.dtype()) <= 8 || golden.rank() < 1 || golden.size(-1) < 1) return found;
  const std::int64_t columns = golden.size(-1), rows = golden.elements() / columns;
  const Looked looked = looked_at(failing, golden.elements());
  const Terms terms(golden, actual, exact, looked);
  for (const TensorSpec& spec : schema.tensors) {
    const Tensor* const tensor = inputs.find(spec.name);
    if (spec.direction == Direction::out || tensor == nullptr || !tensor->defined() || !is_float(tensor->dtype()) || spec.storage.code ||
        bits(tensor->dtype()) <= 8)
      continue;
    const std::int64_t count = tensor->elements();
    bool one_long = count >= 4;
    for (int d = 0; d < tensor->rank(); ++d) one_long = one_long && (tensor->size(d) == 1 || tensor->size(d) == count);
    if (!one_long) continue;
    std::vector<double> numbers;
    for (std::int64_t i = 0; i < count; ++i) numbers.push_back(quant::get(*tensor, i));
    if (std::set<double>(numbers.begin(), numbers.end()).size() < 4) continue;
    for (const bool by_row : {true, false}) {
      const std::int64_t extent = by_row ? rows : columns;
      if (count > extent || extent % count != 0 || (!by_row && count != columns)) continue;
      for (const How how : {How::factor, How::term})
        if (found.empty() && terms.explained_without(numbers, by_row, extent / count, how))
          found.push_back(spec.name + " (a " + (how == How::factor ? "factor" : "term") + " of each " + (by_row ? "row" : "column") +
                          "): it is not there in what fails");
      for (const How how : {How::factor, How::term})
        for (const Source& source : sources(count, by_row ? "row" : "column", by_row ? "column" : "row"))
          if (found.empty() && terms.explained(numbers, by_row, extent / count, how, source))
            found.push_back(spec.name + " (a " + (how == How::factor ? "factor" : "term") + " of each " + (by_row ? "row" : "column") +
                            "): " + source.words);
    }
  }
  return found;
}

}  // namespace dodona::oracle
