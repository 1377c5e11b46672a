// The parts of K that stream-K's tiles are summed in.
#include "ops/sums/stream_k.h"

#include <gtest/gtest.h>

#include "dodona/error.h"
#include "dodona/op.h"
#include "oracle/cases/generate.h"
#include "tests/errors.h"

namespace dodona {
namespace {

using Parts = std::vector<std::int64_t>;

struct Shared {
  std::int64_t m, n, k;
  std::size_t row, column;
  Parts steps;  ///< of 128 of K, where the parts of this tile begin
};
/// Read off an H100's outputs of fp8_blockwise_scaled_mm: of all ways to cut K, those that give every element's bits.
const Shared shared[] = {
    {300, 128, 2048, 1, 0, {0, 8}},     {300, 512, 2048, 2, 3, {0, 8}},         {96, 512, 3456, 0, 1, {0, 9, 18}},
    {188, 256, 4224, 0, 0, {0, 9, 18}}, {188, 256, 4224, 1, 1, {0, 9, 17, 25}}, {64, 128, 7168, 0, 0, {0, 8, 16, 24, 32, 40, 48}},
};

TEST(StreamK, PartsAreThoseOfAnH100sKernel) {
  for (const Shared& s : shared) {
    Parts begins;
    for (const std::int64_t step : s.steps) begins.push_back(128 * step);
    EXPECT_EQ(ops::stream_k_parts({.m = s.m, .n = s.n, .k = s.k}).at(s.row).at(s.column), begins) << s.m << " " << s.n << " " << s.k;
  }
}

TEST(StreamK, EveryTileIsSharedOutWhole) {
  for (const std::int64_t processors : {16, 78, 132})
    for (std::int64_t m = 1; m < 1200; m += 97)
      for (std::int64_t n = 128; n <= 1536; n += 128)
        for (const std::int64_t k : {1024, 1152, 2944, 4352, 7168}) {
          const auto parts = ops::stream_k_parts({m, n, k, processors});
          ASSERT_EQ(parts.size(), static_cast<std::size_t>((m + 127) / 128));
          for (const auto& row : parts) {
            ASSERT_EQ(row.size(), static_cast<std::size_t>(n / 128));
            for (const Parts& tile : row) {
              ASSERT_EQ(tile.front(), 0);
              for (std::size_t p = 0; p < tile.size(); ++p) {
                const std::int64_t end = p + 1 < tile.size() ? tile[p + 1] : k;
                ASSERT_GE(end - tile[p], 8 * 128);
                ASSERT_EQ(tile[p] % 128, 0);
              }
            }
          }
        }
}

Arguments outputs(const std::string& line) {
  const CaseLine parsed = parse_case_line(line);
  Arguments arguments = oracle::generate(parsed);
  registry().at(parsed.op).run(arguments, {.mode = Mode::hopper});
  return arguments;
}

TEST(StreamK, ProductsOfMoreThanThreePartsHaveNoHopperMode) {
  const std::string line = "fp8_blockwise_scaled_mm M=64 N=128 K=7168";
  const Error error = helpers::error_from([&] { outputs(line); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_NE(std::string(error.what()).find("7 parts of K in the order in which they are ready"), std::string::npos) << error.what();
  outputs(line + " --attr kernel=deep_gemm");
}

}  // namespace
}  // namespace dodona
