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

TEST(PtxTrace, WhatCannotBeTracedIsSaid) {
  Buffers b{{Words(64), Words(64)}};
  EXPECT_NE(error_of([&] { traced(kernel("st.global.f32 [%b1], 0f00000000;"), b, 1, 32, 7); }).find("no block writes this element"),
            std::string::npos);
  EXPECT_NE(error_of([&] { traced(kernel("ret;"), b, 1, 32, 64); }).find("outside"), std::string::npos);
}

}  // namespace
}  // namespace dodona::ptx
