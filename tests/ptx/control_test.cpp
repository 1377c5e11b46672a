// Branches, barriers, functions, variables: where threads go and what they find there.
#include "run.h"

namespace dodona::ptx {
namespace {

using Words = std::vector<std::uint32_t>;

TEST(PtxControl, LanesPartAndMeetAgain) {
  // Each lane goes round as often as its number says; then all are together: the ballot sees 32 lanes.
  const auto r = results(
      "mov.u32 %r0, 0;\nLOOP: setp.ge.u32 %p1, %r0, %r1; @%p1 bra DONE; add.u32 %r0, %r0, 1; bra LOOP;\nDONE: activemask.b32 %r3; popc.b32 "
      "%r3, "
      "%r3; mad.lo.u32 %r0, %r3, 100, %r0;",
      {5, 0, 3, 9, 1, 1, 2, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 31});
  EXPECT_EQ(r[0], 3205U);
  EXPECT_EQ(r[3], 3209U);
  EXPECT_EQ(r[31], 3231U);
}

TEST(PtxControl, ShufflesWaitForLanesThatWentElsewhere) {
  const auto r = results(
      "setp.lt.u32 %p1, %t, 16; mov.u32 %r3, 1; @%p1 bra A; mov.u32 %r3, 2; bra B;\nA: add.u32 %r3, %r3, 10;\nB: shfl.sync.bfly.b32 %r0, "
      "%r3, 16, 31, -1;",
      Words(32));
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(r[i], i < 16 ? 2U : 11U);
}

TEST(PtxControl, BarriersOrderWarps) {
  Buffers b{{Words(256), Words(256)}};
  for (std::uint32_t i = 0; i < 256; ++i) b.of_words[0][i] = i;
  const Report report = run(
      kernel(
          "ld.global.b32 %r1, [%a0]; mov.u32 %r2, room; shl.b32 %r3, %t, 2; add.u32 %r4, %r2, %r3; st.shared.b32 [%r4], %r1; bar.sync 0;\n"
          "sub.u32 %r5, 255, %t; shl.b32 %r5, %r5, 2; add.u32 %r5, %r2, %r5; ld.shared.b32 %r6, [%r5]; st.global.b32 [%a1], %r6;",
          2, ".shared .align 4 .b8 room[1024];"),
      b, 1, 256);
  EXPECT_TRUE(report.findings.empty()) << report.findings.front().text;
  for (std::uint32_t i = 0; i < 256; ++i) EXPECT_EQ(b.of_words[1][i], 255 - i);
}

TEST(PtxControl, FunctionsAreCalled) {
  const char* functions =
      ".func (.param .b32 result) twice_plus(.param .b32 x, .param .align 8 .b8 pair[8]);\n"
      ".func (.param .b32 result) twice_plus(.param .b32 x, .param .align 8 .b8 pair[8])\n{ .reg .b32 %v<4>; ld.param.b32 %v1, [x]; "
      "ld.param.b32 %v2, [pair+4];\n"
      "setp_free: add.u32 %v1, %v1, %v1; add.u32 %v1, %v1, %v2; st.param.b32 [result+0], %v1; ret; }\n";
  Buffers b{{Words(64), Words(64)}};
  run(kernel("{ .param .b32 q; .param .align 8 .b8 two[8]; .param .b32 r; st.param.b32 [q], %t; st.param.v2.b32 [two], {%t, 1000};\n"
             "call.uni (r), twice_plus, (q, two); ld.param.b32 %r1, [r]; }\nst.global.b32 [%a1], %r1;",
             2, functions),
      b, 2, 32);
  for (std::uint32_t i = 0; i < 64; ++i) EXPECT_EQ(b.of_words[1][i], 2 * (i % 32) + 1000);
}

TEST(PtxControl, DirectivesMayStandTogether) {
  EXPECT_EQ(results("{.reg.b32 own; add.u32 own, %r1, 1; mov.b32 %r0, own;}", {4}).front(), 5U);
}

TEST(PtxControl, TablesOfBranchesAndOfConstants) {
  Buffers b{{Words(32), Words(32)}};
  run(kernel("rem.u32 %r1, %t, 3; brx.idx %r1, ways;\nways: .branchtargets ONE, TWO, THREE;\nONE: mov.u32 %r2, 0; bra JOIN;\nTWO: mov.u32 "
             "%r2, 4; bra JOIN;\nTHREE: mov.u32 %r2, 8;\n"
             "JOIN: mov.u64 %d1, table; cvt.u64.u32 %d2, %r2; add.u64 %d1, %d1, %d2; ld.const.b32 %r3, [%d1]; st.global.b32 [%a1], %r3;",
             2, ".const .align 4 .b32 table[3] = {11, 0x16, 33};"),
      b);
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(b.of_words[1][i], (i % 3 + 1) * 11);
}

TEST(PtxControl, AddressesInRegistersOf32Bits) {
  // Compilers choose between two parameters by their addresses, which fit into 32 bits; constants likewise.
  Buffers b{{Words(32), Words(32)}};
  for (std::uint32_t i = 0; i < 32; ++i) b.of_words[0][i] = 100 + i;
  run(kernel("setp.lt.u32 %p1, %t, 16; mov.b32 %r1, p0; mov.b32 %r2, p1; selp.b32 %r3, %r1, %r2, %p1; ld.param.b64 %d1, [%r3];\n"
             "ld.global.b32 %r4, [%d1]; mov.b32 %r5, table; ld.const.b32 %r6, [%r5+4]; add.u32 %r4, %r4, %r6; st.global.b32 [%a1], %r4;",
             2, ".const .align 4 .b32 table[3] = {11, 0x16, 33};"),
      b);
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(b.of_words[1][i], i < 16 ? 122U : 22U);
}

TEST(PtxControl, LocalMemoryIsEachThreadsOwn) {
  Buffers b{{Words(64), Words(64)}};
  run(kernel(".local .align 8 .b8 depot[16]; mov.b64 %d1, depot; cvta.local.u64 %d2, %d1; st.u32 [%d2+4], %g; ld.local.u32 %r1, [%d1+4]; "
             "st.global.u32 [%a1], %r1;"),
      b, 2, 32);
  for (std::uint32_t i = 0; i < 64; ++i) EXPECT_EQ(b.of_words[1][i], i);
}

TEST(PtxControl, BitsDoNotDependOnThreads) {
  const std::string text = kernel("ld.global.f32 %f1, [%a0]; ex2.approx.f32 %f1, %f1; st.global.f32 [%a1], %f1;");
  std::vector<Words> found;
  for (const int threads : {1, 2, 7}) {
    Buffers b{{Words(32 * 64), Words(32 * 64)}};
    for (std::uint32_t i = 0; i < 32 * 64; ++i) b.of_words[0][i] = bits(static_cast<float>(i) * 0.01f - 9.0f);
    Launch launch;
    launch.threads = threads;
    const Report report = run(text, b, 64, 32, launch);
    EXPECT_EQ(report.blocks, 64U);
    EXPECT_EQ(report.warp_instructions, 64U * 12);
    EXPECT_EQ(report.lane_instructions, 64U * 12 * 32);
    found.push_back(b.of_words[1]);
  }
  EXPECT_EQ(found[0], found[1]);
  EXPECT_EQ(found[0], found[2]);
}

TEST(PtxControl, MemoryBarriersWithParities) {
  // Warp 0 waits for the 32 arrivals of warp 1, which writes before it arrives.
  Buffers b{{Words(32), Words(64)}};
  const Report report = run(
      kernel("mov.u32 %r1, bar; mov.u32 %r2, room; setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared::cta.b64 [%r1], 32; bar.sync 0;\n"
             "setp.lt.u32 %p2, %t, 32; @%p2 bra WAIT;\n"
             "sub.u32 %r3, %t, 32; shl.b32 %r3, %r3, 2; add.u32 %r3, %r2, %r3; st.shared.b32 [%r3], %t; mbarrier.arrive.shared::cta.b64 "
             "%d1, [%r1]; bra END;\n"
             "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r1], 0; @!%p3 bra WAIT;\n"
             "shl.b32 %r3, %t, 2; xor.b32 %r3, %r3, 124; add.u32 %r3, %r2, %r3; ld.shared.b32 %r4, [%r3]; st.global.b32 [%a1], %r4;\nEND:",
             2, ".shared .align 8 .b64 bar; .shared .align 4 .b8 room[128];"),
      b, 1, 64);
  EXPECT_TRUE(report.findings.empty()) << report.findings.front().text;
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(b.of_words[1][i], 63 - i);
}

}  // namespace
}  // namespace dodona::ptx
