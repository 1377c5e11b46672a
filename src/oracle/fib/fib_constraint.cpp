#include "oracle/fib/fib_constraint.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "quant/element.h"

namespace dodona::oracle::fib {
namespace {

/// Recursive descent; a problem ends the evaluation.
class Evaluator {
 public:
  Evaluator(std::string_view text, const ConstraintContext& context) : text_(text), context_(context) {}

  Holds run(std::string& why) {
    try {
      const bool holds = conjunction(why);
      skip();
      if (at_ < text_.size()) throw Problem{"has " + rest() + " where its end is expected"};
      return holds ? Holds::yes : Holds::no;
    } catch (const Problem& problem) {
      why = problem.what;
      return Holds::unknown;
    }
  }

 private:
  struct Problem {
    std::string what;
  };
  static constexpr int deepest = 64;

  std::string rest() const { return "'" + std::string(text_.substr(at_, 20)) + "'"; }
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool take(std::string_view token) {
    skip();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) throw Problem{"has " + rest() + " where " + std::string(token) + " is expected"};
  }
  std::string word() {
    skip();
    const std::size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_')) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  bool conjunction(std::string& why) {
    bool holds = comparison(why);
    while (take("and ")) holds = comparison(why) && holds;
    return holds;
  }
  bool comparison(std::string& why) {
    std::int64_t left = sum();
    bool holds = true, any = false;
    for (;;) {
      std::string_view found;
      for (const std::string_view op : {"==", "!=", "<=", ">=", "<", ">"})
        if (found.empty() && take(op)) found = op;
      if (found.empty()) break;
      any = true;
      const std::int64_t right = sum();
      const bool fits = found == "=="   ? left == right
                        : found == "!=" ? left != right
                        : found == "<=" ? left <= right
                        : found == ">=" ? left >= right
                        : found == "<"  ? left < right
                                        : left > right;
      if (!fits) why = std::to_string(left) + " " + std::string(found) + " " + std::to_string(right) + " is false";
      holds = holds && fits;
      left = right;
    }
    if (!any) throw Problem{"compares nothing"};
    return holds;
  }
  std::int64_t sum() {
    std::int64_t value = product();
    for (;;) {
      if (take("+")) {
        value = checked(__builtin_add_overflow(value, product(), &result_));
      } else if (take("-")) {
        value = checked(__builtin_sub_overflow(value, product(), &result_));
      } else {
        return value;
      }
    }
  }
  std::int64_t product() {
    std::int64_t value = atom();
    for (;;) {
      if (take("//")) {
        value = divide(value, atom());
      } else if (take("%")) {
        const std::int64_t by = atom();
        value -= divide(value, by) * by;
      } else if (take("*")) {
        value = checked(__builtin_mul_overflow(value, atom(), &result_));
      } else {
        return value;
      }
    }
  }
  std::int64_t checked(bool overflow) const {
    if (overflow) throw Problem{"overflows"};
    return result_;
  }
  /// As Python: toward minus infinity.
  static std::int64_t divide(std::int64_t a, std::int64_t b) {
    if (b <= 0) throw Problem{"divides by " + std::to_string(b)};
    return a / b - (a % b < 0 ? 1 : 0);
  }
  std::int64_t atom() {
    if (++depth_ > deepest) throw Problem{"is nested too deep"};
    const std::int64_t value = plain_atom();
    --depth_;
    return value;
  }
  std::int64_t plain_atom() {
    skip();
    if (take("(")) {
      const std::int64_t value = sum();
      expect(")");
      return value;
    }
    if (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) return number();
    const std::string name = word();
    if (name.empty()) throw Problem{"has " + rest() + " where a number or a name is expected"};
    skip();
    if (at_ < text_.size() && (text_[at_] == '[' || text_[at_] == '.')) return of_tensor(name);
    const auto axis = context_.axes.find(name);
    if (axis == context_.axes.end()) throw Problem{"names " + name + ", which is no axis"};
    return axis->second;
  }
  std::int64_t number() {
    std::int64_t value = 0;
    const char* begin = text_.data() + at_;
    const auto read = std::from_chars(begin, text_.data() + text_.size(), value);
    if (read.ec != std::errc{}) throw Problem{"has a number that is too large"};
    at_ += static_cast<std::size_t>(read.ptr - begin);
    return value;
  }
  std::int64_t index(std::int64_t size) {
    expect("[");
    const bool negative = take("-");
    skip();
    const std::int64_t at = negative ? size - number() : number();
    expect("]");
    if (at < 0 || at >= size) throw Problem{"has an index beyond its " + std::to_string(size) + " entries"};
    return at;
  }
  /// name.shape[i], or name[i] with or without .item().
  std::int64_t of_tensor(const std::string& name) {
    const Tensor* tensor = context_.tensor ? context_.tensor(name) : nullptr;
    if (tensor == nullptr) throw Problem{"names the tensor " + name + ", whose values are not known"};
    if (take(".shape")) return tensor->shape()[static_cast<int>(index(tensor->rank()))];
    if (tensor->rank() != 1) throw Problem{"takes an element of " + name + ", which is no vector"};
    const std::int64_t at = index(tensor->size(0));
    take(".item()");
    return static_cast<std::int64_t>(quant::get(*tensor, at));
  }

  std::string_view text_;
  const ConstraintContext& context_;
  std::size_t at_ = 0;
  std::int64_t result_ = 0;
  int depth_ = 0;
};

}  // namespace

Holds evaluate_constraint(std::string_view text, const ConstraintContext& context, std::string& why) {
  return Evaluator(text, context).run(why);
}

}  // namespace dodona::oracle::fib
