// Instructions, family by family, with results that were worked out by hand or
// by other code.
#include <cmath>
#include <limits>

#include "quant/half.h"
#include "quant/hopper/special.h"
#include "quant/tensor_core/step.h"
#include "run.h"

namespace dodona::ptx {
namespace {

using Words = std::vector<std::uint32_t>;
constexpr std::uint32_t nan_bits = 0x7FFFFFFFu;

struct Row {
  const char* instruction;  ///< %r0 of %r1 and %r2, or %f0 of %f1 and %f2
  std::uint32_t x, y, expected;
};

void hold(const Row& row) {
  const std::string text = row.instruction;
  const bool floats = text.find("%f0") != std::string::npos;
  EXPECT_EQ(results(text + (floats ? " mov.b32 %r0, %f0;" : ""), {row.x}, {row.y}).front(), row.expected)
      << text << std::hex << " of " << row.x << ", " << row.y;
}

TEST(PtxInstructions, WholeNumbers) {
  const Row rows[] = {
      {"add.s32 %r0, %r1, %r2;", 0xFFFFFFFF, 2, 1},
      {"add.sat.s32 %r0, %r1, %r2;", 0x7FFFFFFF, 2, 0x7FFFFFFF},
      {"sub.u32 %r0, %r1, %r2;", 1, 2, 0xFFFFFFFF},
      {"mul.lo.u32 %r0, %r1, %r2;", 0x10001, 0x10001, 0x20001},
      {"mul.hi.u32 %r0, %r1, %r2;", 0x80000000, 6, 3},
      {"mul.hi.s32 %r0, %r1, %r2;", 0x80000000, 6, 0xFFFFFFFD},
      {"mad.lo.s32 %r0, %r1, %r2, -1;", 7, 6, 41},
      {"div.s32 %r0, %r1, %r2;", static_cast<std::uint32_t>(-7), 2, static_cast<std::uint32_t>(-3)},
      {"div.u32 %r0, %r1, %r2;", 7, 0, 0xFFFFFFFF},
      {"rem.s32 %r0, %r1, %r2;", static_cast<std::uint32_t>(-7), 2, static_cast<std::uint32_t>(-1)},
      {"neg.s32 %r0, %r1;", 5, 0, static_cast<std::uint32_t>(-5)},
      {"abs.s32 %r0, %r1;", static_cast<std::uint32_t>(-5), 0, 5},
      {"min.s32 %r0, %r1, %r2;", 0xFFFFFFFF, 3, 0xFFFFFFFF},
      {"min.u32 %r0, %r1, %r2;", 0xFFFFFFFF, 3, 3},
      {"max.s32 %r0, %r1, %r2;", 0xFFFFFFFF, 3, 3},
      {"shl.b32 %r0, %r1, %r2;", 3, 32, 0},
      {"shr.s32 %r0, %r1, %r2;", 0x80000000, 40, 0xFFFFFFFF},
      {"shr.u32 %r0, %r1, %r2;", 0x80000000, 31, 1},
      {"bfe.u32 %r0, %r1, 4, 8;", 0x12345678, 0, 0x67},
      {"bfe.s32 %r0, %r1, 4, 8;", 0x00000F80, 0, 0xFFFFFFF8},
      {"bfi.b32 %r0, %r1, %r2, 8, 4;", 0xAB, 0xFFFFFFFF, 0xFFFFFBFF},
      {"popc.b32 %r0, %r1;", 0xF0F0, 0, 8},
      {"clz.b32 %r0, %r1;", 0x00010000, 0, 15},
      {"brev.b32 %r0, %r1;", 1, 0, 0x80000000},
      {"bfind.u32 %r0, %r1;", 0x00010000, 0, 16},
      {"prmt.b32 %r0, %r1, %r2, 0x5410;", 0x11112222, 0x33334444, 0x44442222},
      {"prmt.b32 %r0, %r1, %r2, 0x9080;", 0x000080FF, 0, 0xFFFFFFFF & 0xFFFFFFFF},
      {"lop3.b32 %r0, %r1, %r2, 0xFF00FF00, 0xCA;", 0xF0F0F0F0, 0x12345678, 0x1F305F70},
      {"shf.l.wrap.b32 %r0, %r1, %r2, 8;", 0x12345678, 0x9ABCDEF0, 0xBCDEF012},
      {"shf.r.clamp.b32 %r0, %r1, %r2, 40;", 0x12345678, 0x9ABCDEF0, 0x9ABCDEF0},
      {"dp4a.s32.s32 %r0, %r1, %r2, 10;", 0x01FF0203, 0x01010101, 15},
      {"selp.b32 %r0, %r1, %r2, 1;", 4, 5, 4},
      {"dp2a.hi.s32.u32 %r0, %r1, %r2, 1;", 0xFFFF0002, 0xFF030000, static_cast<std::uint32_t>(1 + 2 * 3 - 255)},
      {"szext.clamp.s32 %r0, %r1, %r2;", 0x1F, 5, 0xFFFFFFFF},
      {"szext.wrap.u32 %r0, %r1, %r2;", 0xFFFFFFFF, 36, 0xF},
      {"szext.clamp.u32 %r0, %r1, %r2;", 0x89ABCDEF, 40, 0x89ABCDEF},
      {"mul24.hi.u32 %r0, %r1, %r2;", 0xFF800000, 0x00800000, 0x40000000},
      {"mul24.lo.s32 %r0, %r1, %r2;", 0x00FFFFFF, 3, 0xFFFFFFFD},
      {"mad24.lo.u32 %r0, %r1, %r2, 5;", 0xAA000003, 4, 17},
      {"mad.hi.sat.s32 %r0, %r1, %r2, 0x7FFFFFFF;", 0x40000000, 16, 0x7FFFFFFF},
      {"min.relu.s32 %r0, %r1, %r2;", 0xFFFFFFFF, 3, 0},
      {"max.relu.s16x2 %r0, %r1, %r2;", 0x0003FFFF, 0x0001FFFE, 0x00030000},
      {"{ .reg .pred q; setp.lt.u32 q, %r1, %r2; selp.b32 %r0, 1, 0, q; }", 1, 0xFFFFFFFF, 1},
      {"{ .reg .pred q; setp.lt.s32 q, %r1, %r2; selp.b32 %r0, 1, 0, q; }", 1, 0xFFFFFFFF, 0},
      {"{ .reg .pred p, q; setp.ne.b32 p, %r2, 0; setp.gt.and.s32 p|q, %r1, 3, "
       "p; selp.b32 %r0, 1, 2, q; }",
       1, 1, 1},
      {"{ add.cc.u32 %r3, %r1, %r2; addc.u32 %r0, 5, 0; }", 0xFFFFFFFF, 1, 6},
      {"{ sub.cc.u32 %r3, %r1, %r2; subc.u32 %r0, 5, 0; }", 0, 1, 4},
      {"{ mul.wide.s32 %d1, %r1, %r2; shr.u64 %d1, %d1, 32; cvt.u32.u64 %r0, "
       "%d1; }",
       0xFFFFFFFF, 2, 0xFFFFFFFF},
      {"{ mov.b32 {%h1, %h2}, %r1; add.s16 %h1, %h1, %h2; cvt.u32.u16 %r0, "
       "%h1; }",
       0xFFFF0003, 0, 2},
      {"{ mov.b32 {%h1, %h2}, %r1; mov.b32 %r0, {%h2, %h1}; }", 0x12345678, 0, 0x56781234},
      {"cvt.s32.s8 %r0, %r1;", 0x180, 0, 0xFFFFFF80},
      {"cvt.sat.u8.s32 %r0, %r1;", static_cast<std::uint32_t>(-3), 0, 0},
      {"cvt.sat.s8.s32 %r0, %r1;", 300, 0, 127},
      {"min.s16x2 %r0, %r1, %r2;", 0x7FFF8000, 0x00010001, 0x00018000},
  };
  for (const Row& row : rows) hold(row);
}

TEST(PtxInstructions, Floats) {
  const float tiny = std::numeric_limits<float>::denorm_min(), infinity = std::numeric_limits<float>::infinity();
  const Row rows[] = {
      {"add.f32 %f0, %f1, %f2;", bits(1.0f), bits(0x1p-25f), bits(1.0f)},
      {"add.rp.f32 %f0, %f1, %f2;", bits(1.0f), bits(0x1p-60f), bits(0x1.000002p0f)},
      {"add.rz.f32 %f0, %f1, %f2;", bits(1.0f), bits(-0x1p-60f), bits(0x1.fffffep-1f)},
      {"add.rm.f32 %f0, %f1, %f2;", bits(-1.0f), bits(-0x1p-60f), bits(-0x1.000002p0f)},
      {"mul.f32 %f0, %f1, %f2;", bits(tiny), bits(0.5f), 0},
      {"mul.rp.f32 %f0, %f1, %f2;", bits(tiny), bits(0.5f), bits(tiny)},
      {"mul.ftz.f32 %f0, %f1, %f2;", bits(0x1p-127f), bits(2.0f), 0},
      {"mul.sat.f32 %f0, %f1, %f2;", bits(3.0f), bits(2.0f), bits(1.0f)},
      {"add.sat.f32 %f0, %f1, %f2;", nan_bits, bits(2.0f), 0},
      {"add.f32 %f0, %f1, %f2;", bits(infinity), bits(-infinity), nan_bits},
      {"fma.rn.f32 %f0, %f1, %f2, 0fBF800000;", bits(0x1.001p0f), bits(0x1.001p0f), bits(0x1.0008p-11f)},
      {"fma.rm.f32 %f0, %f1, %f2, 0f3F800000;", bits(0x1p-40f), bits(-1.0f), bits(0x1.fffffep-1f)},
      {"div.rn.f32 %f0, %f1, %f2;", bits(1.0f), bits(3.0f), bits(1.0f / 3.0f)},
      {"div.rz.f32 %f0, %f1, %f2;", bits(1.0f), bits(3.0f), bits(1.0f / 3.0f) - 1},
      {"sqrt.rn.f32 %f0, %f1;", bits(2.0f), 0, bits(std::sqrt(2.0f))},
      {"sqrt.rp.f32 %f0, %f1;", bits(4.0f), 0, bits(2.0f)},
      {"rcp.rn.f32 %f0, %f1;", bits(3.0f), 0, bits(1.0f / 3.0f)},
      {"rcp.approx.ftz.f32 %f0, %f1;", bits(3.0f), 0, bits(quant::hopper::rcp(3.0f))},
      {"ex2.approx.f32 %f0, %f1;", bits(0.3f), 0, bits(quant::hopper::ex2(0.3f))},
      {"lg2.approx.ftz.f32 %f0, %f1;", bits(0.3f), 0, bits(quant::hopper::lg2(0.3f))},
      {"tanh.approx.f32 %f0, %f1;", bits(0.3f), 0, bits(quant::hopper::tanh(0.3f))},
      {"max.f32 %f0, %f1, %f2;", nan_bits, bits(2.0f), bits(2.0f)},
      {"max.NaN.f32 %f0, %f1, %f2;", nan_bits, bits(2.0f), nan_bits},
      {"max.f32 %f0, %f1, %f2;", bits(-0.0f), bits(0.0f), 0},
      {"min.f32 %f0, %f1, %f2;", bits(0.0f), bits(-0.0f), bits(-0.0f)},
      {"neg.f32 %f0, %f1;", bits(0.0f), 0, bits(-0.0f)},
      {"abs.ftz.f32 %f0, %f1;", bits(-tiny), 0, 0},
      {"copysign.f32 %f0, %f1, %f2;", bits(-1.0f), bits(3.0f), bits(-3.0f)},
      {"{ .reg .pred q; setp.ltu.f32 q, %f1, %f2; selp.b32 %r0, 1, 0, q; }", nan_bits, bits(1.0f), 1},
      {"{ .reg .pred q; setp.neu.f32 q, %f1, %f2; selp.b32 %r0, 1, 0, q; }", nan_bits, bits(1.0f), 1},
      {"{ .reg .pred q; setp.ne.f32 q, %f1, %f2; selp.b32 %r0, 1, 0, q; }", nan_bits, bits(1.0f), 0},
      {"{ cvt.u16.u32 %h1, %r1; cvt.f32.f16 %f0, %h1; }", 0x3C01, 0, bits(0x1.004p0f)},
      {"{ cvt.u16.u32 %h1, %r1; cvt.f32.f16 %f0, %h1; }", 0xFC01, 0, 0x7FFFFFFF},
      {"{ cvt.u16.u32 %h1, %r1; cvt.f32.f16 %f0, %h1; }", 0x7E00, 0, 0x7FFFFFFF},
      {"cvt.rzi.s32.f32 %r0, %f1;", bits(-2.7f), 0, static_cast<std::uint32_t>(-2)},
      {"cvt.rni.s32.f32 %r0, %f1;", bits(2.5f), 0, 2},
      {"cvt.rpi.u32.f32 %r0, %f1;", bits(2.1f), 0, 3},
      {"cvt.rzi.s32.f32 %r0, %f1;", bits(3e9f), 0, 0x7FFFFFFF},
      {"cvt.rzi.s32.f32 %r0, %f1;", nan_bits, 0, 0},
      {"cvt.rmi.f32.f32 %f0, %f1;", bits(-0.5f), 0, bits(-1.0f)},
      {"cvt.rn.f32.u32 %f0, %r1;", 0xFFFFFFFF, 0, bits(0x1p32f)},
      {"cvt.rz.f32.u32 %f0, %r1;", 0xFFFFFFFF, 0, bits(0x1.fffffep31f)},
      {"cvt.sat.f32.f32 %f0, %f1;", bits(-4.0f), 0, 0},
      {"cvt.rna.tf32.f32 %r0, %f1;", 0x3F801000, 0, 0x3F802000},
      {"cvt.rn.bf16x2.f32 %r0, %f1, %f2;", bits(1.0f), bits(2.0f), 0x3F804000},
      {"cvt.rz.bf16x2.f32 %r0, %f1, %f2;", bits(0x1.ffp0f), bits(2.0f), 0x3FFF4000},
      {"{ cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2; cvt.u32.u16 %r0, %h1; }", bits(1000.0f), bits(1.0f), 0x7E38},
      {"{ cvt.rn.satfinite.e5m2x2.f32 %h1, %f1, %f2; cvt.u32.u16 %r0, %h1; }", bits(-2.0f), bits(1.0f), 0xC03C},
      {"{ cvt.u16.u32 %h1, %r1; cvt.rn.f16x2.e4m3x2 %r0, %h1; }", 0x7E38, 0, 0x5F003C00},
      {"add.bf16x2 %r0, %r1, %r2;", 0x3F803F80, 0x3F804000, 0x40004040},
      {"fma.rn.f16x2 %r0, %r1, %r2, %r2;", 0x3C004000, 0x3C003C00, 0x40004200},
      {"{ mov.b32 {%h1, %h2}, %r1; ex2.approx.ftz.bf16 %h1, %h1; cvt.u32.u16 "
       "%r0, %h1; }",
       0x4000, 0, 0x4080},
  };
  for (const Row& row : rows) hold(row);
}

TEST(PtxInstructions, Doubles) {
  Buffers b{{Words(64), Words(64)}};
  const double x = 1.0 / 3.0;
  std::memcpy(b.of_words[0].data(), &x, 8);
  run(kernel("ld.global.f64 %x1, [%b0]; fma.rn.f64 %x2, %x1, %x1, "
             "0d3FF0000000000000; sqrt.rn.f64 %x2, %x2; st.global.f64 [%b1], "
             "%x2;"),
      b, 1, 1);
  double y = 0;
  std::memcpy(&y, b.of_words[1].data(), 8);
  EXPECT_EQ(y, std::sqrt(std::fma(x, x, 1.0)));
}

TEST(PtxInstructions, LanesSpeakToEachOther) {
  Words x(32);
  for (std::uint32_t i = 0; i < 32; ++i) x[i] = i * i;
  const auto shuffled = results("shfl.sync.bfly.b32 %r0, %r1, 5, 31, -1;", x);
  const auto up = results("shfl.sync.up.b32 %r0|%p1, %r1, 3, 0, -1; selp.b32 %r0, %r0, 7777, %p1;", x);
  const auto down = results("shfl.sync.down.b32 %r0, %r1, 4, 0x181F, -1;", x);
  const auto from = results("shfl.sync.idx.b32 %r0, %r1, 9, 31, -1;", x);
  const auto ballot = results("setp.gt.u32 %p1, %r1, 100; vote.sync.ballot.b32 %r0, %p1, -1;", x);
  const auto sum = results("redux.sync.add.s32 %r0, %r1, -1;", x);
  const auto same = results("and.b32 %r3, %t, 3; match.any.sync.b32 %r0, %r3, -1;", x);
  for (std::uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(shuffled[i], (i ^ 5) * (i ^ 5));
    EXPECT_EQ(up[i], i < 3 ? 7777 : (i - 3) * (i - 3));
    EXPECT_EQ(down[i], (i & 7) + 4 < 8 ? (i + 4) * (i + 4) : i * i);
    EXPECT_EQ(from[i], 81U);
    EXPECT_EQ(ballot[i], 0xFFFFF800u);
    EXPECT_EQ(sum[i], 31U * 32 * 63 / 6);
    EXPECT_EQ(same[i], 0x11111111u << (i & 3));
  }
}

TEST(PtxInstructions, MatricesOfSharedMemory) {
  // Each lane writes its number to shared memory as pairs of 16 bits; ldmatrix
  // gives lane l of matrix j the pair 4l..: row l / 4, pair l % 4.
  Buffers b{{Words(128), Words(256)}};
  for (std::uint32_t i = 0; i < 128; ++i) b.of_words[0][i] = 2 * i | (2 * i + 1) << 16;
  run(kernel("mov.u32 %r10, tile; shl.b32 %r11, %t, 4; add.s32 %r12, %r10, %r11;\n"
             "mad.wide.u32 %d1, %t, 16, %b0; ld.global.v4.b32 {%r1, %r2, %r3, "
             "%r4}, [%d1]; st.shared.v4.b32 [%r12], {%r1, %r2, %r3, %r4};\n"
             "bar.sync 0;\n"
             "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, "
             "[%r12];\n"
             "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r5, %r6, %r7, "
             "%r8}, [%r12];\n"
             "mad.wide.u32 %d2, %t, 32, %b1; st.global.v4.b32 [%d2], {%r1, %r2, "
             "%r3, %r4}; st.global.v4.b32 [%d2+16], {%r5, %r6, %r7, %r8};",
             2, ".shared .align 16 .b8 tile[512];"),
      b, 1, 32);
  for (std::uint32_t lane = 0; lane < 32; ++lane)
    for (std::uint32_t j = 0; j < 4; ++j) {
      const std::uint32_t first = 64 * j + lane / 4 * 8 + lane % 4 * 2;
      EXPECT_EQ(b.of_words[1][lane * 8 + j], first | (first + 1) << 16);
      const std::uint32_t row = 2 * (lane % 4), column = lane / 4;
      EXPECT_EQ(b.of_words[1][lane * 8 + 4 + j], (64 * j + 8 * row + column) | (64 * j + 8 * (row + 1) + column) << 16);
    }
}

/// What an instruction makes of pieces that lanes hold, held against steps by
/// their definition.
TEST(PtxInstructions, TensorCoreProducts) {
  namespace tc = quant::tensor_core;
  std::uint32_t state = 1;
  const auto draw = [&] {
    state = state * 1664525u + 1013904223u;
    return state;
  };
  std::vector<std::uint16_t> a(16 * 16), right(8 * 16);
  std::vector<float> c(16 * 8);
  for (auto& x : a) x = quant::f32_to_bf16(static_cast<float>(static_cast<int>(draw() >> 16) % 2001 - 1000) * 0.01f);
  for (auto& x : right) x = quant::f32_to_bf16(static_cast<float>(static_cast<int>(draw() >> 16) % 2001 - 1000) * 0.03f);
  for (auto& x : c) x = static_cast<float>(static_cast<int>(draw() >> 16) % 2001 - 1000) * 0.7f;
  Buffers b{{Words(32 * 12), Words(32 * 4)}};
  const auto pair = [](const std::vector<std::uint16_t>& m, std::size_t row, std::size_t k) {
    return std::uint32_t{m[row * 16 + k]} | std::uint32_t{m[row * 16 + k + 1]} << 16;
  };
  for (std::size_t lane = 0; lane < 32; ++lane) {
    const std::size_t g = lane / 4, t = 2 * (lane % 4);
    const std::uint32_t words[12] = {pair(a, g, t),
                                     pair(a, g + 8, t),
                                     pair(a, g, t + 8),
                                     pair(a, g + 8, t + 8),
                                     pair(right, g, t),
                                     pair(right, g, t + 8),
                                     0,
                                     0,
                                     bits(c[g * 8 + t]),
                                     bits(c[g * 8 + t + 1]),
                                     bits(c[(g + 8) * 8 + t]),
                                     bits(c[(g + 8) * 8 + t + 1])};
    std::copy(std::begin(words), std::end(words), b.of_words[0].begin() + static_cast<std::ptrdiff_t>(lane * 12));
  }
  run(kernel("mad.wide.u32 %d1, %t, 48, %b0; ld.global.v4.b32 {%r1, %r2, %r3, "
             "%r4}, [%d1]; ld.global.v2.b32 {%r5, %r6}, [%d1+16];\n"
             "ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%d1+32];\n"
             "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, "
             "%f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, "
             "%f4};\n"
             "mad.wide.u32 %d2, %t, 16, %b1; st.global.v4.f32 [%d2], {%f1, "
             "%f2, %f3, %f4};"),
      b);
  for (std::size_t lane = 0; lane < 32; ++lane)
    for (std::size_t r = 0; r < 4; ++r) {
      const std::size_t row = lane / 4 + 8 * (r >> 1), column = 2 * (lane % 4) + (r & 1);
      std::vector<tc::Factor> x, y;
      for (std::size_t k = 0; k < 16; ++k) {
        x.push_back(tc::decode_factor(tc::half_mma, DType::bf16, a[row * 16 + k]));
        y.push_back(tc::decode_factor(tc::half_mma, DType::bf16, right[column * 16 + k]));
      }
      EXPECT_EQ(b.of_words[1][lane * 4 + r], bits(tc::mma_step(tc::half_mma, x, y, c[row * 8 + column]))) << row << ", " << column;
    }
}

/// Matrices in shared memory with rows of 128 swizzled bytes, two steps along
/// K, held against steps by their definition.
TEST(PtxInstructions, WarpgroupProducts) {
  namespace tc = quant::tensor_core;
  constexpr std::uint32_t rows = 64, columns = 8, k = 32, b_begin = rows * 128;
  std::uint32_t state = 3;
  const auto draw = [&] {
    state = state * 1664525u + 1013904223u;
    return quant::f32_to_bf16(static_cast<float>(static_cast<int>(state >> 16) % 2001 - 1000) * 0.013f);
  };
  std::vector<std::uint16_t> image((b_begin + columns * 128) / 2), a(rows * k), b(columns * k);
  const auto place = [&](std::uint32_t begin, std::uint32_t row, std::uint32_t column) {
    const std::uint32_t at = begin + row * 128 + 2 * column;
    return (at ^ ((at >> 7 & 7) << 4)) / 2;
  };
  for (std::uint32_t r = 0; r < rows; ++r)
    for (std::uint32_t j = 0; j < k; ++j) image[place(0, r, j)] = a[r * k + j] = draw();
  for (std::uint32_t n = 0; n < columns; ++n)
    for (std::uint32_t j = 0; j < k; ++j) image[place(b_begin, n, j)] = b[n * k + j] = draw();
  Buffers buffers{{Words(image.size() / 2), Words(128 * 4)}};
  std::memcpy(buffers.of_words[0].data(), image.data(), image.size() * 2);
  const std::string step =
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, "
      "%f4}, %d3, %d4, %p1, 1, 1, 0, 0;\n";
  const Report report = run(kernel("mul.lo.u32 %r1, %t, 72; cvt.u64.u32 %d1, %r1; add.u64 %d1, %d1, "
                                   "%b0; mov.u32 %r2, room; add.u32 %r2, %r2, %r1; mov.u32 %r3, 0;\n"
                                   "COPY: ld.global.b64 %d2, [%d1]; st.shared.b64 [%r2], %d2; "
                                   "add.u64 %d1, %d1, 8; add.u32 %r2, %r2, 8; add.u32 %r3, %r3, 1; "
                                   "setp.lt.u32 %p2, %r3, 9; @%p2 bra COPY;\n"
                                   "fence.proxy.async.shared::cta; bar.sync 0; "
                                   "wgmma.fence.sync.aligned; mov.b64 %d3, 0x4000004000010000; "
                                   "mov.b64 %d4, 0x4000004000010200; setp.ne.u32 %p1, %r3, %r3;\n" +
                                       step +
                                       "add.u64 %d3, %d3, 2; add.u64 %d4, %d4, 2; setp.eq.u32 %p1, "
                                       "%r3, %r3;\n" +
                                       step +
                                       "wgmma.commit_group.sync.aligned; "
                                       "wgmma.wait_group.sync.aligned 0;\n"
                                       "mad.wide.u32 %d5, %t, 16, %b1; st.global.v4.f32 [%d5], {%f1, "
                                       "%f2, %f3, %f4};",
                                   2, ".shared .align 1024 .b8 room[9216];"),
                            buffers, 1, 128);
  EXPECT_TRUE(report.findings.empty()) << report.findings.front().text;
  for (std::size_t thread = 0; thread < 128; ++thread)
    for (std::size_t r = 0; r < 4; ++r) {
      const std::size_t row = thread / 32 * 16 + thread % 32 / 4 + 8 * (r >> 1), column = 2 * (thread % 4) + (r & 1);
      float expected = 0;
      for (std::size_t begin = 0; begin < k; begin += 16) {
        std::vector<tc::Factor> x, y;
        for (std::size_t j = begin; j < begin + 16; ++j) {
          x.push_back(tc::decode_factor(tc::half_mma, DType::bf16, a[row * k + j]));
          y.push_back(tc::decode_factor(tc::half_mma, DType::bf16, b[column * k + j]));
        }
        expected = tc::mma_step(tc::half_mma, x, y, expected);
      }
      EXPECT_EQ(buffers.of_words[1][thread * 4 + r], bits(expected)) << row << ", " << column;
    }
}

TEST(PtxInstructions, WholeTensorCoreProducts) {
  // a[row][k] = row + k, b[column][k] = k - column, of 32.
  Buffers b{{Words(32 * 6), Words(32 * 4)}};
  for (std::uint32_t lane = 0; lane < 32; ++lane)
    for (std::uint32_t w = 0; w < 6; ++w)
      for (std::uint32_t j = 0; j < 4; ++j) {
        const std::uint32_t k = 4 * (lane % 4) + j + (w < 4 ? 16 * (w / 2) : 16 * (w - 4));
        const std::uint32_t value = w < 4 ? lane / 4 + 8 * (w % 2) + k : k - lane / 4;
        b.of_words[0][lane * 6 + w] |= (value & 0xFF) << (8 * j);
      }
  run(kernel("mad.wide.u32 %d1, %t, 24, %b0; ld.global.v2.b32 {%r1, %r2}, "
             "[%d1]; ld.global.v2.b32 {%r3, %r4}, [%d1+8]; ld.global.v2.b32 "
             "{%r5, %r6}, [%d1+16];\n"
             "mov.b32 %r7, 100;\n"
             "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r10, %r11, "
             "%r12, %r13}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%r7, %r7, %r7, "
             "%r7};\n"
             "mad.wide.u32 %d2, %t, 16, %b1; st.global.v4.b32 [%d2], {%r10, "
             "%r11, %r12, %r13};"),
      b);
  for (std::uint32_t lane = 0; lane < 32; ++lane)
    for (std::uint32_t r = 0; r < 4; ++r) {
      const int row = static_cast<int>(lane / 4 + 8 * (r >> 1)), column = static_cast<int>(2 * (lane % 4) + (r & 1));
      int expected = 100;
      for (int k = 0; k < 32; ++k) expected += (row + k) * (k - column);
      EXPECT_EQ(static_cast<int>(b.of_words[1][lane * 4 + r]), expected);
    }
}

/// mul then add without a rounding may be one fma; a quotient by a constant is
/// one.
TEST(PtxInstructions, BothReadingsOfMulAndAdd) {
  const float x = 0x1.001p0f;
  for (const bool contract : {false, true}) {
    Buffers b{{Words(32, bits(x)), Words(32)}};
    Launch launch;
    launch.contract = contract ? Contract::on : Contract::off;
    const Report report = run(kernel("ld.global.f32 %f1, [%a0]; mul.f32 %f2, %f1, %f1;\nsub.f32 "
                                     "%f3, %f2, 0f3F800000; st.global.f32 [%a1], %f3;"),
                              b, 1, 32, launch);
    EXPECT_EQ(number(b.of_words[1][3]), contract ? 0x1.0008p-11f : 0x1p-11f);
    ASSERT_EQ(report.open.size(), 1U);
    EXPECT_NE(report.open[0].text.find("mul.f32"), std::string::npos);
  }
  EXPECT_EQ(results("mov.b32 %f3, 0f40400000; div.full.f32 %f4, %f1, %f3; "
                    "add.f32 %f0, %f4, %f2; mov.b32 %r0, %f0;",
                    {bits(x)}, {bits(-0.5f)})
                .front(),
            bits(std::fma(x, 1.0f / 3.0f, -0.5f)));
  // A factor that is written more than once, but not in between.
  EXPECT_EQ(
      results("mov.b32 %f5, 0f00000000; mov.b32 %f5, 0f3F801000; div.full.f32 %f4, %f5, %f1; add.f32 %f0, %f4, %f2; mov.b32 %r0, %f0;",
              {bits(3.0f)}, {bits(0x1p-9f)})
          .front(),
      bits(std::fma(0x1.002p0f, quant::hopper::rcp(3.0f), 0x1p-9f)));
  EXPECT_EQ(results("mul.rn.f32 %f4, %f1, %f1; add.rn.f32 %f0, %f4, %f2; "
                    "mov.b32 %r0, %f0;",
                    {bits(x)}, {bits(-1.0f)})
                .front(),
            bits(0x1p-11f));
}

/// FNV-1a over whole numbers: of tables that are too large to stand here.
std::uint64_t digest(const Words& words) {
  std::uint64_t h = 0xcbf29ce484222325;
  for (const std::uint32_t w : words) h = (h ^ w) * 0x100000001b3;
  return h;
}

/// All codes, against what an H100 gave for them.
TEST(PtxInstructions, FunctionsOfSixteenBits) {
  struct Table {
    const char* instruction;
    std::uint64_t digest;
  };
  const Table tables[] = {{"ex2.approx.f16", 0x80729ac6ad55e21a},
                          {"ex2.approx.ftz.bf16", 0x70809a4dea78138a},
                          {"tanh.approx.f16", 0xad1f254087177b9d},
                          {"tanh.approx.bf16", 0x483e97475bf5a09}};
  for (const Table& table : tables) {
    Buffers b{{Words(65536)}};
    Launch launch;
    launch.race = launch.uninitialised = Check::off;
    run(kernel(std::string("cvt.u16.u32 %h1, %g; ") + table.instruction + " %h2, %h1; cvt.u32.u16 %r1, %h2; st.global.u32 [%a0], %r1;", 1),
        b, 256, 256, launch);
    EXPECT_EQ(digest(b.of_words[0]), table.digest) << table.instruction;
  }
}

/// Random bit patterns, and numbers from 2^-30 to 2^9, against what an H100 gave for them.
TEST(PtxInstructions, SinesAndCosines) {
  std::uint32_t state = 12345;
  const auto random = [&] {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
  };
  constexpr std::size_t count = std::size_t{1} << 18;
  Words x;
  for (std::size_t i = 0; i < count; ++i) x.push_back(random());
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t exponent = 97 + random() % 40;
    x.push_back((random() & 0x807fffff) | exponent << 23);
  }
  const std::pair<const char*, std::uint64_t> tables[] = {{"sin.approx.f32", 0xb6d9ff2ca0532a04},
                                                          {"cos.approx.ftz.f32", 0xef32f47dbd93db43}};
  for (const auto& [instruction, expected] : tables) {
    Buffers b{{x, Words(x.size())}};
    Launch launch;
    launch.race = launch.uninitialised = Check::off;
    run(kernel(std::string("ld.global.f32 %f1, [%a0]; ") + instruction + " %f2, %f1; st.global.f32 [%a1], %f2;"), b, 2048, 256, launch);
    EXPECT_EQ(digest(b.of_words[1]), expected) << instruction;
  }
}

/// A map that the kernel makes itself of zeros: 8 rows of 16 floats of the 20 of the matrix, of which the last lie outside; the copy goes
/// to all blocks of a cluster of one.
TEST(PtxInstructions, TensorMapsThatTheKernelMakes) {
  Buffers b{{Words(12 * 20), Words(128), Words(64)}};
  for (std::uint32_t i = 0; i < 12 * 20; ++i) b.of_words[0][i] = i + 1;
  const auto field = [](const std::string& name, const std::string& type, const std::string& rest) {
    return "@%p1 tensormap.replace.tile." + name + ".shared::cta.b1024." + type + " [%r1], " + rest + ";\n";
  };
  const std::string text = kernel(
      "mov.u32 %r1, map; mov.u32 %r2, room; mov.u32 %r3, bar; shl.b32 %r4, %t, 2; add.u32 %r5, %r1, %r4; mov.u32 %r6, 0; st.shared.b32 "
      "[%r5], %r6; bar.sync 0; setp.eq.u32 %p1, %t, 0; mov.u64 %d1, 80; mov.u16 %h1, 1;\n" +
          field("global_address", "b64", "%b0") + field("rank", "b32", "1") + field("box_dim", "b32", "0, 16") +
          field("box_dim", "b32", "1, 8") + field("global_dim", "b32", "0, 20") + field("global_dim", "b32", "1, 12") +
          field("global_stride", "b64", "0, %d1") + field("element_stride", "b32", "0, 1") + field("element_stride", "b32", "1, 1") +
          field("elemtype", "b32", "2") + field("interleave_layout", "b32", "0") + field("swizzle_mode", "b32", "0") +
          field("fill_mode", "b32", "0") +
          "bar.sync 0; cvt.u64.u32 %d2, %r1;\n"
          "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%b2], [%d2], 128;\n"
          "fence.proxy.tensormap::generic.acquire.gpu [%b2], 128; @%p1 mbarrier.init.shared::cta.b64 [%r3], 1; bar.sync 0;\n"
          "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 512; mov.u32 %r7, 8; mov.u32 %r8, 6;\n"
          "@%p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r2], [%b2, {%r7, %r8}], "
          "[%r3], "
          "%h1;\n"
          "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r3], 0; @!%p3 bra WAIT;\n"
          "shl.b32 %r4, %t, 4; add.u32 %r5, %r2, %r4; ld.shared.v4.b32 {%r10, %r11, %r12, %r13}, [%r5]; cvt.u64.u32 %d3, %r4; add.u64 %d3, "
          "%d3, "
          "%b1; st.global.v4.b32 [%d3], {%r10, %r11, %r12, %r13};",
      3, ".shared .align 128 .b8 map[128]; .shared .align 128 .b8 room[512]; .shared .align 8 .b64 bar;");
  const Report report = run(text, b, 1, 32);
  EXPECT_TRUE(report.findings.empty()) << report.findings.front().text;
  for (std::uint32_t row = 0; row < 8; ++row)
    for (std::uint32_t column = 0; column < 16; ++column)
      EXPECT_EQ(b.of_words[1][16 * row + column], row + 6 < 12 && column + 8 < 20 ? (row + 6) * 20 + column + 9 : 0)
          << row << ", " << column;
}

TEST(PtxInstructions, SumsByBulkCopies) {
  Buffers b{{Words(32), Words(32, 100)}};
  for (std::uint32_t i = 0; i < 32; ++i) b.of_words[0][i] = i;
  const Report report =
      run(kernel("mov.u32 %r1, room; shl.b32 %r2, %t, 2; add.u32 %r2, %r1, %r2; ld.global.b32 %r3, [%a0]; st.shared.b32 [%r2], %r3;\n"
                 "fence.proxy.async.shared::cta; bar.sync 0; setp.eq.u32 %p1, %t, 0;\n"
                 "@%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%b1], [%r1], 128;\n"
                 "@%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.max.s32 [%b1], [%r1], 16;",
                 2, ".shared .align 128 .b8 room[128];"),
          b, 1, 32);
  EXPECT_TRUE(report.findings.empty()) << report.findings.front().text;
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(b.of_words[1][i], 100 + i);
}

TEST(PtxInstructions, BulkCopiesAndSumsWithinSharedMemory) {
  Buffers b{{Words(32), Words(32)}};
  for (std::uint32_t i = 0; i < 32; ++i) b.of_words[0][i] = 5 * i;
  const Report report =
      run(kernel("mov.u32 %r1, room; shl.b32 %r2, %t, 2; add.u32 %r2, %r1, %r2; ld.global.b32 %r3, [%a0]; st.shared.b32 [%r2], %r3;\n"
                 "mov.u32 %r4, bar; add.u32 %r5, %r1, 128; setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared::cta.b64 [%r4], 1;\n"
                 "fence.proxy.async.shared::cta; bar.sync 0; @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 256;\n"
                 "@%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r5], [%r1], 128, [%r4];\n"
                 "@%p1 cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%r5], [%r1], 128, [%r4];\n"
                 "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r4], 0; @!%p3 bra WAIT;\n"
                 "ld.shared.b32 %r6, [%r2+128]; st.global.b32 [%a1], %r6;",
                 2, ".shared .align 128 .b8 room[256]; .shared .align 8 .b64 bar;"),
          b, 1, 32);
  EXPECT_TRUE(report.findings.empty()) << report.findings.front().text;
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(b.of_words[1][i], 10 * i);
}

TEST(PtxInstructions, BarriersHearOfAsynchronousStoresAndSums) {
  Buffers b{{Words(32)}};
  const Report report =
      run(kernel("mov.u32 %r1, room; shl.b32 %r2, %t, 3; add.u32 %r2, %r1, %r2; mov.u32 %r4, bar; setp.eq.u32 %p1, %t, 0;\n"
                 "st.shared.b32 [%r2+4], 7; @%p1 mbarrier.init.shared::cta.b64 [%r4], 1; bar.sync 0;\n"
                 "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 256; bar.sync 0; add.u32 %r3, %t, 100;\n"
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r2], %r3, [%r4];\n"
                 "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r2+4], %t, [%r4];\n"
                 "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r4], 0; @!%p3 bra WAIT;\n"
                 "ld.shared.b32 %r5, [%r2]; ld.shared.b32 %r6, [%r2+4]; add.u32 %r5, %r5, %r6; st.global.b32 [%a0], %r5;",
                 1, ".shared .align 128 .b8 room[256]; .shared .align 8 .b64 bar;"),
          b, 1, 32);
  EXPECT_TRUE(report.findings.empty()) << report.findings.front().text;
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(b.of_words[0][i], 107 + 2 * i);
}

TEST(PtxInstructions, RegistersOf128Bits) {
  Buffers b{{Words{1, 2, 3, 4, 9, 9, 9, 9}, Words(8)}};
  const Report report = run(
      kernel(
          ".reg .b128 %q<6>;\n"
          "ld.global.b128 %q1, [%b0]; mov.b128 {%d1, %d2}, %q1; mov.b128 %q2, {%d2, %d1}; mov.b128 %q3, %q2; st.global.b128 [%b1], %q3;\n"
          // Not equal, then equal; and what was there.
          "atom.global.cas.b128 %q4, [%b0], %q2, %q2; atom.global.cas.b128 %q4, [%b0], %q1, %q2; st.global.b128 [%b1+16], %q4;\n"
          "atom.global.exch.b128 %q5, [%b0+16], %q1;",
          2),
      b, 1, 1);
  EXPECT_TRUE(report.findings.empty()) << report.findings.front().text;
  EXPECT_EQ(b.of_words[0], (Words{3, 4, 1, 2, 1, 2, 3, 4}));
  EXPECT_EQ(b.of_words[1], (Words{3, 4, 1, 2, 1, 2, 3, 4}));
  EXPECT_EQ(message_in([&] { run(kernel(".reg .b128 %q<2>; add.u64 %d1, %d2, %q1;"), b, 1, 1); }).find("another size") != std::string::npos,
            true);
}

TEST(PtxInstructions, AtomicsTakeLanesInOrder) {
  Buffers b{{Words(4), Words(64)}};
  run(kernel("atom.global.add.u32 %r1, [%b0], 3; st.global.b32 [%a1], %r1; "
             "red.global.max.s32 [%b0+4], %r1; atom.global.cas.b32 %r2, "
             "[%b0+8], %t, 5;\n"
             "mov.f32 %f1, 0f3F000000; red.global.add.f32 [%b0+12], %f1;"),
      b, 2, 32);
  EXPECT_EQ(b.of_words[0][0], 192U);
  EXPECT_EQ(b.of_words[0][1], 189U);
  EXPECT_EQ(b.of_words[0][2], 5U);
  EXPECT_EQ(number(b.of_words[0][3]), 32.0f);
  for (std::uint32_t i = 0; i < 64; ++i) EXPECT_EQ(b.of_words[1][i], 3 * i);
}

TEST(PtxInstructions, CopiesFillWhatTheyDoNotRead) {
  Buffers b{{Words(64, 7), Words(64)}};
  run(kernel("mov.u32 %r1, room; shl.b32 %r2, %t, 4; add.u32 %r1, %r1, %r2; "
             "mad.wide.u32 %d1, %t, 16, %b0; mov.u32 %r3, 8;\n"
             "cp.async.cg.shared.global [%r1], [%d1], 16, %r3; "
             "cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;\n"
             "ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r1]; mad.wide.u32 %d2, "
             "%t, 16, %b1; st.global.v4.b32 [%d2], {%r4, %r5, %r6, %r7};",
             2, ".shared .align 16 .b8 room[256];"),
      b, 1, 16);
  for (std::uint32_t i = 0; i < 64; ++i) EXPECT_EQ(b.of_words[1][i], i % 4 < 2 ? 7U : 0U);
}

}  // namespace
}  // namespace dodona::ptx
