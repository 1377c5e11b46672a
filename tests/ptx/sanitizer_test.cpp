// What a kernel must not do is found and named: who, where, with whom.
#include "run.h"

namespace dodona::ptx {
namespace {

using Words = std::vector<std::uint32_t>;

Finding only(const std::string& body, std::uint32_t threads = 64, Launch launch = {},
             const std::string& before = ".shared .align 16 .b8 room[1024];") {
  Buffers b{{Words(64), Words(64)}};
  const Report report = run(kernel(body, 2, before), b, 1, threads, launch);
  EXPECT_EQ(report.findings.size(), 1U);
  for (const Finding& f : report.findings) EXPECT_FALSE(f.text.empty());
  return report.findings.empty() ? Finding{} : report.findings.front();
}

/// The findings of a kind.
std::vector<Finding> all_of(const std::string& kind, const std::string& body, std::uint32_t threads = 64) {
  Buffers b{{Words(64), Words(64)}};
  std::vector<Finding> found;
  for (const Finding& f : run(kernel(body, 2, ".shared .align 16 .b8 room[1024];"), b, 1, threads).findings)
    if (f.kind == kind) found.push_back(f);
  return found;
}

constexpr const char* to_room =
    "mov.u32 %r1, room; shl.b32 %r2, %t, 2; add.u32 %r3, %r1, %r2; xor.b32 %r4, %r2, 128; add.u32 %r4, %r1, %r4;\n";

TEST(PtxSanitizer, StoresOutOfBoundsAreLeftOut) {
  const Finding f = only(".loc 1 41 3\nst.global.b32 [%a1+8], %t;", 64, {}, ".file 1 \"/where/kernel.py\"\n");
  EXPECT_EQ(f.kind, "out_of_bounds");
  EXPECT_EQ(f.space, "global");
  EXPECT_EQ(f.place.source, "kernel.py:41");
  EXPECT_EQ(f.place.thread.x, 62U);
  EXPECT_EQ(f.place.lane, 30);
  EXPECT_EQ(f.address, "args[1]+0x100, 4 bytes, store");
  EXPECT_EQ(f.count, 2U);
}

TEST(PtxSanitizer, LoadsOutOfBoundsGiveZero) {
  Buffers b{{Words(16, 9), Words(32, 1)}};
  const Report report = run(kernel("ld.global.b32 %r1, [%a0]; st.global.b32 [%a1], %r1;"), b);
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings[0].kind, "out_of_bounds");
  EXPECT_EQ(b.of_words[1][15], 9U);
  EXPECT_EQ(b.of_words[1][16], 0U);
}

TEST(PtxSanitizer, SharedMemoryHasBoundsToo) {
  EXPECT_EQ(only("mov.u32 %r1, room; ld.shared.b32 %r2, [%r1+1024];").address, "shared+0x400, 4 bytes, load");
}

TEST(PtxSanitizer, WhatNobodyHasWritten) {
  const Finding f = only(std::string(to_room) + "ld.shared.b32 %r5, [%r3];");
  EXPECT_EQ(f.kind, "uninitialised");
  EXPECT_EQ(f.space, "shared");
  EXPECT_EQ(f.address, "shared+0x0");
}

TEST(PtxSanitizer, OutputsThatAreReadBeforeTheyAreWritten) {
  const Module module(kernel("ld.global.b32 %r1, [%a1]; st.global.b32 [%a1], %r1;"));
  Words x(32), y(32);
  Launch launch;
  launch.block = {32, 1, 1};
  launch.arguments = {buffer(x.data(), 128), buffer(y.data(), 128)};
  launch.arguments[1].uninitialised = true;
  const Report report = module.launch("k", launch);
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings[0].kind, "uninitialised");
  EXPECT_EQ(report.findings[0].address, "args[1]+0x0");
}

TEST(PtxSanitizer, Misaligned) {
  EXPECT_EQ(only("st.global.b32 [%b1+2], %t;", 1).kind, "misaligned");
}

TEST(PtxSanitizer, ReadOnlyMemory) {
  const Module module(kernel("st.global.b32 [%a1], %t;"));
  Words x(32), y(32);
  Launch launch;
  launch.block = {32, 1, 1};
  launch.arguments = {buffer(x.data(), 128), buffer(y.data(), 128)};
  launch.arguments[1].read_only = true;
  EXPECT_EQ(module.launch("k", launch).findings.at(0).kind, "read_only");
  EXPECT_EQ(y[5], 0U);
}

TEST(PtxSanitizer, RacesOfReadersBehindAMissingBarrier) {
  const auto found =
      all_of("race", std::string(to_room) + "st.shared.b32 [%r3], %t;\nld.shared.b32 %r5, [%r4];\nst.global.b32 [%a1], %r5;");
  ASSERT_FALSE(found.empty());
  for (const Finding& f : found) {
    ASSERT_TRUE(f.other.has_value());
    EXPECT_EQ(std::abs(f.place.line - f.other->line), 1) << f.text;
    EXPECT_NE(f.place.warp, f.other->warp);
    EXPECT_NE(f.text.find("the other: thread"), std::string::npos);
  }
}

TEST(PtxSanitizer, RacesOfWritersAfterReadersOfTheLastRound) {
  const auto found =
      all_of("race", std::string(to_room) + "st.shared.b32 [%r3], %t;\nbar.sync 0;\nld.shared.b32 %r5, [%r4];\nst.shared.b32 [%r3], %r5;");
  ASSERT_FALSE(found.empty());
  for (const Finding& f : found) EXPECT_EQ(std::abs(f.place.line - f.other->line), 1) << f.text;
}

TEST(PtxSanitizer, RacesWithinAWarp) {
  const Finding f = only(
      "mov.u32 %r1, room; shl.b32 %r2, %t, 2; add.u32 %r3, %r1, %r2; xor.b32 %r4, %r2, 4; add.u32 %r4, %r1, %r4;\nst.shared.b32 [%r3], %t; "
      "ld.shared.b32 %r5, [%r4]; st.global.b32 [%a1], %r5;",
      32);
  EXPECT_EQ(f.kind, "race");
  Buffers b{{Words(64), Words(64)}};
  const Report mended = run(kernel("mov.u32 %r1, room; shl.b32 %r2, %t, 2; add.u32 %r3, %r1, %r2; xor.b32 %r4, %r2, 4; add.u32 %r4, %r1, "
                                   "%r4;\nst.shared.b32 [%r3], %t; bar.warp.sync -1; ld.shared.b32 %r5, [%r4];",
                                   2, ".shared .align 16 .b8 room[1024];"),
                            b);
  EXPECT_TRUE(mended.findings.empty()) << mended.findings.front().text;
}

TEST(PtxSanitizer, RacesInGlobalMemory) {
  EXPECT_EQ(only("st.global.b32 [%b1], %t;", 64).kind, "race");
}

// A counter in memory, as Triton compiles one: every thread loads it, one stores.
const std::string counts =
    "setp.eq.u32 %p1, %t, 0; ld.global.b32 %r1, [%b1]; add.u32 %r2, %r1, 1; @%p1 st.global.b32 [%b1], %r2;\n"
    "ld.global.b32 %r3, [%b1]; add.u32 %r4, %r3, 1; @%p1 st.global.b32 [%b1], %r4;\n";

TEST(PtxSanitizer, ThreadsThatDropWhatTheyHaveReadDoNotRace) {
  Buffers b{{Words(64), Words(64)}};
  const Report report = run(kernel(counts), b, 1, 64);
  EXPECT_TRUE(report.findings.empty()) << report.findings.front().text;
  EXPECT_EQ(b.of_words[1][0], 2U);
}

TEST(PtxSanitizer, ThreadsThatUseWhatTheyHaveReadRaceThoughOthersDropIt) {
  for (const std::string use :
       {"setp.eq.u32 %p2, %t, 40; @%p2 st.global.b32 [%b1+128], %r1;", "setp.eq.u32 %p2, %r1, 40; @%p2 st.global.b32 [%a1], %t;",
        "setp.eq.u32 %p2, %r1, 40; @%p2 bra out; out:", "add.u32 %t, %t, %r1;"}) {
    Buffers b{{Words(64), Words(64)}};
    const Report report = run(kernel(counts + use), b, 1, 64);
    ASSERT_FALSE(report.findings.empty()) << use;
    EXPECT_EQ(report.findings[0].kind, "race") << report.findings[0].text;
  }
}

TEST(PtxSanitizer, ThreadsThatStoreTheSameDoNotRace) {
  Buffers b{{Words(64), Words(64)}};
  EXPECT_TRUE(run(kernel("st.global.b32 [%b1], 5;"), b, 1, 64).findings.empty());
}

TEST(PtxSanitizer, AtomicsDoNotRace) {
  Buffers b{{Words(64), Words(64)}};
  EXPECT_TRUE(run(kernel("atom.global.add.u32 %r1, [%b1], 1;"), b, 1, 64).findings.empty());
}

TEST(PtxSanitizer, BarriersInBranches) {
  const auto found =
      all_of("diverged", "setp.lt.u32 %p1, %t, 16; @!%p1 bra END;\nbar.sync 0;\nEND: shfl.sync.idx.b32 %r1, %t, 0, 31, -1;", 32);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].place.instruction, "bar.sync 0");
}

TEST(PtxSanitizer, AlignedBarriersUnderAGuardThatDiffersInAWarp) {
  const auto found = all_of("diverged", "and.b32 %r1, %t, 1; setp.eq.u32 %p1, %r1, 0;\n@%p1 bar.sync 0;", 32);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].place.instruction, "bar.sync 0");
  Buffers b{{Words(64), Words(64)}};
  EXPECT_TRUE(run(kernel("setp.lt.u32 %p1, %t, 32;\n@%p1 bar.sync 1, 32;"), b, 1, 64).findings.empty());
}

TEST(PtxSanitizer, BulkCopiesOfWhatNobodyHasFenced) {
  const std::string store = "mov.u32 %r1, room; shl.b32 %r2, %t, 2; add.u32 %r2, %r1, %r2; st.shared.b32 [%r2], %t;\n",
                    copy = "bar.sync 0; setp.eq.u32 %p1, %t, 0;\n@%p1 cp.async.bulk.global.shared::cta.bulk_group [%b1], [%r1], ",
                    room = ".shared .align 128 .b8 room[256];";
  EXPECT_EQ(only(store + copy + "256;", 64, {}, room.c_str()).kind, "proxy_fence");
  Buffers b{{Words(64), Words(64)}};
  EXPECT_TRUE(run(kernel(store + "fence.proxy.async.shared::cta;" + copy + "256;", 2, room), b, 1, 64).findings.empty());
  EXPECT_EQ(only(store + "fence.proxy.async.shared::cta;" + copy + "40;", 64, {}, room.c_str()).kind, "misaligned");
}

TEST(PtxSanitizer, WgmmaWithoutAFence) {
  const std::string product = "mov.u32 %r1, 0; mov.b64 %d1, 0x4000004000010000; setp.ne.b32 %p1, %r1, 0;\n";
  const std::string fence = "wgmma.fence.sync.aligned;\n";
  const std::string multiply =
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %d1, %d1, %p1, 1, 1, 0, "
      "0;\nwgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n";
  Launch launch;
  launch.uninitialised = Check::off;
  EXPECT_EQ(only(product + multiply, 128, launch, ".shared .align 128 .b8 room[8192];").kind, "wgmma_fence");
  EXPECT_EQ(
      only(product + fence + multiply + "add.f32 %f1, %f1, 0f3F800000;\n" + multiply, 128, launch, ".shared .align 128 .b8 room[8192];")
          .kind,
      "wgmma_fence");
  Buffers b{{Words(64), Words(64)}};
  const Report mended = run(
      kernel(product + fence + multiply + "add.f32 %f1, %f1, 0f3F800000;\n" + fence + multiply, 2, ".shared .align 128 .b8 room[8192];"), b,
      1, 128, launch);
  EXPECT_TRUE(mended.findings.empty()) << mended.findings.front().text;
}

TEST(PtxSanitizer, AccumulatorsThatNobodyHasWaitedFor) {
  const std::string product =
      "mov.u32 %r1, 0; mov.b64 %d1, 0x4000004000010000; setp.ne.b32 %p1, %r1, 0; wgmma.fence.sync.aligned;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %d1, %d1, %p1, 1, 1, 0, "
      "0;\nwgmma.commit_group.sync.aligned;\n";
  Launch launch;
  launch.uninitialised = Check::off;
  const char* room = ".shared .align 128 .b8 room[8192];";
  EXPECT_EQ(only(product + "add.f32 %f5, %f1, 0f3F800000;", 128, launch, room).kind, "wgmma_fence");
  Buffers b{{Words(64), Words(64)}};
  EXPECT_TRUE(
      run(kernel(product + "wgmma.wait_group.sync.aligned 0; add.f32 %f5, %f1, 0f3F800000;", 2, room), b, 1, 128, launch).findings.empty());
}

TEST(PtxSanitizer, CopiesThatNobodyHasWaitedFor) {
  const std::string copy =
      "mov.u32 %r1, room; shl.b32 %r2, %t, 2; add.u32 %r1, %r1, %r2; cp.async.ca.shared.global [%r1], [%a0], 4; cp.async.commit_group;\n";
  const Finding f = only(copy + "ld.shared.b32 %r4, [%r1];", 32);
  EXPECT_EQ(f.kind, "race");
  EXPECT_NE(f.address.find("a copy that nobody has waited for"), std::string::npos) << f.address;
  Buffers b{{Words(64), Words(64)}};
  EXPECT_TRUE(
      run(kernel(copy + "cp.async.wait_group 0; ld.shared.b32 %r4, [%r1];", 2, ".shared .align 16 .b8 room[1024];"), b).findings.empty());
}

TEST(PtxSanitizer, CanBeTurnedOff) {
  Buffers b{{Words(64), Words(64)}};
  Launch launch;
  launch.race = launch.uninitialised = Check::off;
  const Report report = run(kernel("st.global.b32 [%b1], %t;"), b, 1, 64, launch);
  EXPECT_FALSE(report.race_checked);
  EXPECT_TRUE(report.findings.empty());
  EXPECT_EQ(b.of_words[1][0], 63U);
}

}  // namespace
}  // namespace dodona::ptx
