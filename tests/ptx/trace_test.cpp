// The order of arithmetic behind an element.
#include "run.h"

namespace dodona::ptx {
namespace {

using Words = std::vector<std::uint32_t>;

Trace traced(const std::string& text, Buffers& b, std::uint32_t blocks, std::uint32_t threads, std::size_t word) {
  const Module module(text, "test.ptx");
  Launch launch;
  launch.grid = {blocks, 1, 1};
  launch.block = {threads, 1, 1};
  for (auto& words : b.of_words) launch.arguments.push_back(buffer(words.data(), words.size() * 4));
  return module.trace("", launch, {b.of_words.size() - 1, 4 * word, 4});
}

TEST(PtxTrace, WritesProductsSumsAndWhereTheyCameFrom) {
  Buffers b{{Words(64, bits(2.0f)), Words(64)}};
  const Trace t = traced(
      kernel("ld.global.f32 %f1, [%a0];\nmul.rn.f32 %f2, %f1, 0f40400000;\nshfl.sync.bfly.b32 %r1, %f2, 1, 31, -1; mov.b32 %f3, %r1;\n"
             "add.rn.f32 %f4, %f2, %f3;\nst.global.f32 [%a1], %f4;"),
      b, 2, 32, 37);
  // Thread 5 of block 1 adds its own product to that of lane 4.
  const std::size_t own = t.expression.find("mul.rn.f32(args[0][0x94:4], 3)"), other = t.expression.find("mul.rn.f32(args[0][0x90:4], 3)");
  EXPECT_NE(own, std::string::npos) << t.expression;
  EXPECT_NE(other, std::string::npos) << t.expression;
  EXPECT_NE(t.expression.find("add.rn.f32(v"), std::string::npos) << t.expression;
  EXPECT_EQ(t.place.instruction, "st.global.f32 [%a1], %f4");
  EXPECT_EQ(number(b.of_words[1][37]), 12.0f) << "the kernel has run";
}

TEST(PtxTrace, GoesThroughSharedMemory) {
  Buffers b{{Words(64, bits(2.0f)), Words(64)}};
  const Trace t =
      traced(kernel("mov.u32 %r1, room; shl.b32 %r2, %t, 2; add.u32 %r3, %r1, %r2; xor.b32 %r4, %r2, 128; add.u32 %r4, %r1, %r4;\n"
                    "cp.async.ca.shared.global [%r3], [%a0], 4; cp.async.wait_all; bar.sync 0; ld.shared.f32 %f1, [%r4]; ex2.approx.f32 "
                    "%f1, %f1; st.global.f32 [%a1], %f1;",
                    2, ".shared .align 16 .b8 room[1024];"),
             b, 1, 64, 3);
  EXPECT_NE(t.expression.find(" = ex2.approx.f32(args[0][0x8c:4])  // line "), std::string::npos) << t.expression;
}

TEST(PtxTrace, GoesThroughBulkCopiesAndWgmma) {
  // 64 x 16 of A and 8 x 16 of B, both of ones, come by bulk copies; the sums begin at a number of the third argument.
  Buffers b{{Words(64 * 8, 0x3F803F80), Words(8 * 8, 0x3F803F80), Words(128, bits(3.0f)), Words(128)}};
  const std::string text = kernel(
      "mov.u32 %r1, room; mov.u32 %r2, room; add.u32 %r2, %r2, 4096; mov.u32 %r3, bar; setp.eq.u32 %p1, %t, 0;\n"
      "@%p1 mbarrier.init.shared::cta.b64 [%r3], 1; bar.sync 0;\n"
      "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 2304;\n"
      "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%b0], 2048, [%r3];\n"
      "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%b1], 256, [%r3];\n"
      "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r3], 0; @!%p3 bra WAIT;\n"
      "ld.global.f32 %f1, [%a2]; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;\n"
      // No swizzle: rows of 16 bytes, eight of them together, the second half of K 128 bytes on, the next eight rows 256.
      "mov.b64 %d1, 0x0000001000080000; mov.b64 %d2, 0x0000001000080100; setp.eq.u32 %p4, %t, %t;\n"
      "wgmma.fence.sync.aligned;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %d1, %d2, %p4, 1, 1, 0, 0;\n"
      "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n"
      "mul.rn.f32 %f1, %f1, 0f3F000000; st.global.f32 [%a3], %f1;",
      4, ".shared .align 1024 .b8 room[8192]; .shared .align 8 .b64 bar;");
  const Trace t = traced(text, b, 1, 128, 37);
  // Thread 37 is lane 5 of warp 1: row 16 + 1, columns 2 and 3.
  EXPECT_EQ(number(b.of_words[3][37]), 9.5f);
  EXPECT_NE(t.expression.find(" = row(args[0][0x210:4], args[0][0x214:4], args[0][0x218:4], args[0][0x21c:4], args[0][0x290:4]"),
            std::string::npos)
      << t.expression;
  EXPECT_NE(t.expression.find(" = column(args[1][0x20:4], args[1][0x24:4]"), std::string::npos) << t.expression;
  EXPECT_NE(t.expression.find(" = wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16(args[2][0x94:4], v"), std::string::npos)
      << t.expression;
  EXPECT_NE(t.expression.find(" = mul.rn.f32(v"), std::string::npos) << t.expression;
}

TEST(PtxTrace, FollowsAtomicsOverBlocks) {
  Buffers b{{Words(4 * 32, bits(2.0f)), Words(1, bits(1.0f))}};
  const Trace t = traced(kernel("ld.global.f32 %f1, [%a0]; setp.eq.u32 %p1, %t, 7; @%p1 red.global.add.f32 [%b1], %f1;"), b, 3, 32, 0);
  EXPECT_EQ(number(b.of_words[1][0]), 7.0f);
  EXPECT_NE(t.expression.find("red.global.add.f32(args[1][0x0:4], args[0][0x1c:4])"), std::string::npos) << t.expression;
  EXPECT_NE(t.expression.find(", args[0][0x9c:4])"), std::string::npos) << t.expression;
  EXPECT_NE(t.expression.find(", args[0][0x11c:4])"), std::string::npos) << t.expression;
}

TEST(PtxTrace, ABulkCopyMayWriteTheElement) {
  Buffers b{{Words(32, bits(2.0f)), Words(32)}};
  const std::string text = kernel(
      "mov.u32 %r1, room; shl.b32 %r2, %t, 2; add.u32 %r2, %r1, %r2; ld.global.f32 %f1, [%a0]; add.rn.f32 %f1, %f1, %f1; st.shared.f32 "
      "[%r2], "
      "%f1;\nfence.proxy.async.shared::cta; bar.sync 0; setp.eq.u32 %p1, %t, 0;\n"
      "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%b1], [%r1], 128;",
      2, ".shared .align 128 .b8 room[128];");
  const Trace t = traced(text, b, 1, 32, 5);
  EXPECT_EQ(number(b.of_words[1][5]), 4.0f);
  EXPECT_NE(t.expression.find(" = add.rn.f32(args[0][0x14:4], args[0][0x14:4])"), std::string::npos) << t.expression;
}

TEST(PtxTrace, WhatCannotBeTracedIsSaid) {
  Buffers b{{Words(64), Words(64)}};
  EXPECT_NE(message_in([&] { traced(kernel("st.global.f32 [%b1], 0f00000000;"), b, 1, 32, 7); }).find("no block writes this element"),
            std::string::npos);
  EXPECT_NE(message_in([&] { traced(kernel("ret;"), b, 1, 32, 64); }).find("outside"), std::string::npos);
}

}  // namespace
}  // namespace dodona::ptx
