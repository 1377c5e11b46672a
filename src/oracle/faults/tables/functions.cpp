// Faults composed of an operand and a function of one number: what is read is not the operand's number but what the function makes of it.
// Where a function has a fault of its own for an operand (a scale that divides, a weight of one) that one comes first.
#include <array>
#include <cmath>
#include <string>

#include "oracle/faults/tables/composed.h"
#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

struct Function {
  const char *name, *words;
  double (*of)(double);
};
constexpr std::array functions{
    Function{"cut", "is cut to whole numbers, toward zero", [](double x) { return std::trunc(x); }},
    Function{"floor", "is cut to whole numbers, downward", [](double x) { return std::floor(x); }},
    Function{"round", "is rounded to whole numbers", [](double x) { return std::nearbyint(x); }},
    Function{"negative", "has the other sign: it is taken off where it is to be added", [](double x) { return -x; }},
    Function{"magnitude", "has lost its sign", [](double x) { return std::fabs(x); }},
    Function{"twice", "counts twice: it is added, or multiplied by 2, once more", [](double x) { return 2 * x; }},
    Function{"half", "counts half", [](double x) { return x / 2; }},
    Function{"square", "is squared: it is applied twice", [](double x) { return x * x; }},
    Function{"inverse", "is inverted: 1 / x", [](double x) { return x == 0 ? 0 : 1 / x; }},
    Function{"root", "is replaced by its square root", [](double x) { return x < 0 ? x : std::sqrt(x); }},
    Function{"exponential", "is taken for a logarithm: its exponential counts", [](double x) { return std::exp(x); }},
    Function{"power-of-two", "is taken for a logarithm in base 2: 2^x counts", [](double x) { return std::exp2(x); }},
    Function{"logarithm", "is replaced by its logarithm", [](double x) { return x > 0 ? std::log(x) : x; }},
    Function{"positive", "counts where it is positive alone: what is negative is 0", [](double x) { return std::fmax(x, 0.0); }},
    Function{"not-positive", "counts where it is negative alone: what is positive is 0", [](double x) { return std::fmin(x, 0.0); }},
    Function{"clipped", "is clipped to -1 to 1", [](double x) { return std::fmax(-1.0, std::fmin(x, 1.0)); }},
    Function{"f16", "is rounded to f16 before it is used", [](double x) { return through(DType::f16, x); }},
    Function{"bf16", "is rounded to bf16 before it is used", [](double x) { return through(DType::bf16, x); }},
    Function{"e5m2", "is rounded to e5m2 before it is used", [](double x) { return through(DType::f8_e5m2, x); }},
    Function{"e4m3", "is rounded to e4m3 before it is used", [](double x) { return through(DType::f8_e4m3, x); }},
    Function{"one-more", "counts as one more", [](double x) { return x + 1; }},
    Function{"one-less", "counts as one less", [](double x) { return x - 1; }},
    Function{"one", "counts as one", [](double) { return 1.0; }},
};

bool holds_numbers(Site s) {
  return s.spec->direction != Direction::out && is_real(s.tensor.dtype()) && s.tensor.elements() <= most_elements;
}
Values all_functions(Site) {
  Values values;
  for (const Function& function : functions) values.emplace_back(std::string(function.name));
  return values;
}
const Function& function_of(Site s) {
  for (const Function& function : functions)
    if (word(s) == function.name) return function;
  return functions.front();
}
void apply(Site s, To t) {
  each(t, [&](double x) { return std::isfinite(x) ? function_of(s).of(x) : x; });
}
std::string in_words(Site s) {
  return s.name + ": each number " + function_of(s).words;
}

constexpr std::array table{
    Fault{.id = "function-of-an-operand",
          .summary = "what is read of an operand is a function of its numbers",
          .strikes = input,
          .severity = fine,
          .applies = holds_numbers,
          .spoil = apply,
          .variants = all_functions,
          .words = in_words},
};

}  // namespace

std::span<const Fault> function_faults() {
  return table;
}

}  // namespace dodona::oracle
