#include "core/shape_expr.h"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>
#include <vector>

namespace dodona {
namespace {

struct Solver {
  SymbolNames names;
  DimExpr::Match last{};
  std::int64_t solve(const char* text, std::int64_t actual, const std::vector<std::pair<const char*, std::int64_t>>& known,
                     const char* wanted) {
    const DimExpr expr = DimExpr::parse(text, names);
    for (const auto& [name, value] : known) names.intern(name);
    const int symbol = names.intern(wanted);
    SymbolValues values(names.count());
    for (const auto& [name, value] : known) values.bind(names.find(name), value, -1);
    last = expr.match(actual, values, 0);
    return values.value(symbol);
  }
};

TEST(ShapeExpr, ASymbolBindsOnFirstUseAndThenMustAgree) {
  SymbolNames names;
  const DimExpr expr = DimExpr::parse("H", names);
  SymbolValues values(names.count());
  EXPECT_EQ(expr.match(7168, values, 3), DimExpr::Match::equal);
  EXPECT_EQ(values.witness(0), 3);
  EXPECT_EQ(expr.match(7167, values, 4), DimExpr::Match::unequal);
}

TEST(ShapeExpr, SumsProductsAndExactQuotientsAreSolvedForTheirOneUnknown) {
  Solver s;
  EXPECT_EQ(s.solve("2*D", 12, {}, "D"), 6);
  EXPECT_EQ(s.solve("Lkv+Dr", 576, {{"Lkv", 512}}, "Dr"), 64);
  EXPECT_EQ(s.solve("K/16", 448, {}, "K"), 7168);
  EXPECT_EQ(s.solve("N-1", 4, {}, "N"), 5);
  EXPECT_EQ(s.solve("Nq*head_size", 8192, {{"head_size", 64}}, "Nq"), 128);
}

TEST(ShapeExpr, ProductsThatDoNotDivideAreUnequal) {
  Solver s;
  s.solve("2*D", 13, {}, "D");
  EXPECT_EQ(s.last, DimExpr::Match::unequal);
}

TEST(ShapeExpr, CeilAndAlignAreComparedNotSolved) {
  Solver s;
  s.solve("ceil(N/128)", 17, {}, "N");
  EXPECT_EQ(s.last, DimExpr::Match::unresolved);
  s.solve("ceil(N/128)", 17, {{"N", 2112}}, "N");
  EXPECT_EQ(s.last, DimExpr::Match::equal);
  s.solve("align(M,128)", 128, {{"M", 90}}, "M");
  EXPECT_EQ(s.last, DimExpr::Match::equal);
  s.solve("align(K/16,4)", 8, {{"K", 80}}, "K");
  EXPECT_EQ(s.last, DimExpr::Match::equal);
}

TEST(ShapeExpr, ExactDivisionFailsWhereItWouldRound) {
  Solver s;
  s.solve("K/16", 4, {{"K", 65}}, "K");
  EXPECT_EQ(s.last, DimExpr::Match::unequal);
}

TEST(ShapeExpr, ParenthesesAndPrecedence) {
  SymbolNames names;
  SymbolValues values(0);
  EXPECT_EQ(DimExpr::parse("2+3*4", names).evaluate(values), 14);
  EXPECT_EQ(DimExpr::parse("(2+3)*4", names).evaluate(values), 20);
  EXPECT_EQ(DimExpr::parse("20/4/5", names).evaluate(values), 1);
}

TEST(ShapeExpr, AlternativesAreToldApartByRankAndPacksTakeTheRest) {
  SymbolNames names;
  const ShapeExpr shape = ShapeExpr::parse("T Nq*D | T Nq D", names);
  EXPECT_EQ(shape.for_rank(2)->dims.size(), 2u);
  EXPECT_EQ(shape.for_rank(3)->dims.size(), 3u);
  EXPECT_EQ(shape.for_rank(4), nullptr);
  const ShapeExpr pack = ShapeExpr::parse("T... H", names);
  EXPECT_NE(pack.for_rank(1), nullptr);
  EXPECT_NE(pack.for_rank(5), nullptr);
  EXPECT_EQ(pack.for_rank(0), nullptr);
  const ShapeExpr scalar = ShapeExpr::parse(" | 1", names);
  EXPECT_EQ(scalar.for_rank(0)->dims.size(), 0u);
  EXPECT_EQ(scalar.for_rank(1)->dims.size(), 1u);
}

TEST(ShapeExpr, BadTextIsRejected) {
  SymbolNames names;
  for (const char* text : {"", "2*", "(2", "N)", "floor(N/2)", "ceil(N)", "N..", "*"})
    EXPECT_THROW(DimExpr::parse(text, names), std::invalid_argument) << text;
  EXPECT_THROW(ShapeExpr::parse("H T...", names), std::invalid_argument);
}

TEST(ShapeExpr, OverflowIsNotAValue) {
  SymbolNames names;
  const DimExpr expr = DimExpr::parse("N*N", names);
  SymbolValues values(names.count());
  values.bind(0, std::int64_t{1} << 40, -1);
  EXPECT_EQ(expr.evaluate(values), -1);
}

TEST(ShapeExpr, NothingBeyondAllNumbersIsBoundOrEqual) {
  constexpr std::int64_t huge = std::int64_t{1} << 60, largest = std::numeric_limits<std::int64_t>::max();
  struct Row {
    const char* text;
    std::int64_t actual;
    std::vector<std::pair<const char*, std::int64_t>> known;
  };
  const Row rows[] = {
      {"K/128", huge, {}},                                  // K would be 2^67
      {"K/S", 4, {{"S", 0}}},                               // nor does anything divided by nothing make a size
      {"N-S", largest, {{"S", 1}}},                         // 2^63
      {"A*A+K", 4, {{"A", largest}}},                       // a sum that has lost a term is not 4
      {"A+A-K", 4, {{"A", largest}}},                       //
      {"align(K/16,4)", largest, {{"K", largest - 15}}},    //
      {"ceil(N/128)*N", largest, {{"N", largest}}},         //
      {"align(N,A)", -1, {{"N", largest}, {"A", 1 << 20}}}  // what does not fit is no size, not -1 either
  };
  for (const Row& row : rows) {
    Solver s;
    s.solve(row.text, row.actual, row.known, "K");
    EXPECT_NE(s.last, DimExpr::Match::equal) << row.text;
  }
}

TEST(ShapeExpr, RoundingUpIsRightToTheEndOfTheNumbers) {
  constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  SymbolNames names;
  const DimExpr quotient = DimExpr::parse("ceil(N/128)", names), padded = DimExpr::parse("align(N,128)", names);
  SymbolValues values(names.count());
  values.bind(0, largest, -1);
  EXPECT_EQ(quotient.evaluate(values), largest / 128 + 1);
  EXPECT_EQ(padded.evaluate(values), -1);
  values.bind(0, largest - 127, -1);
  EXPECT_EQ(padded.evaluate(values), largest - 127);
}

}  // namespace
}  // namespace dodona
