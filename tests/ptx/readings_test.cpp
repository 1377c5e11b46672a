// Sums of products that PTX leaves open: how ptxas reads them, and how that is found out.
#include <fstream>
#include <iterator>

#include "ptx/sass.h"
#include "run.h"

namespace dodona::ptx {
namespace {

const std::string folder = std::string(DODONA_SOURCE_DIR) + "/tests/ptx/machine_code/";

std::string content(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}
using Counts = std::map<std::string, std::uint64_t>;

TEST(PtxReadings, MachineCodeIsCountedFromEitherDisassembler) {
  for (const char* file : {"open.cuobjdump", "open.nvdisasm"}) {
    const auto functions = read_sass(content(folder + file), file);
    ASSERT_EQ(functions.size(), 3U) << file;
    EXPECT_EQ(functions.at("contracted").counts, (Counts{{"fma.f32", 1}, {"fma.bf16x2", 1}})) << file;
    EXPECT_EQ(functions.at("apart").counts, (Counts{{"mul.f32", 1}, {"add.f32", 1}})) << file;
    EXPECT_EQ(functions.at("apart").instructions.back().substr(0, 3), "BRA") << "idle ones are left out";
  }
  const auto shared_out = read_sass(
      "Function : f\n/*0000*/ @!P0 FFMA.FTZ R1, R2, 1, R3 ;\n/*0010*/ HFMA2.MMA R0, R0, R5, -RZ ;\n/*0020*/ HFMA2.BF16_V2 R4, R0, 1, 1, R6 "
      ";\n/*0030*/ DFMA R6, R4, R6, R4 ;\n",
      "text");
  EXPECT_EQ(shared_out.at("f").counts, (Counts{{"add.f32", 1}, {"mul.f16x2", 1}, {"add.bf16x2", 1}, {"fma.f64", 1}}));
  EXPECT_NE(message_in([] { read_sass("hello", "a.txt"); }).find("a.txt"), std::string::npos);
}

/// Which sums of a kernel's body ptxas takes products into, as it did when it was asked (sm_90a, 12.8 and 13.0).
struct Row {
  const char* body;
  std::vector<bool> fused;
};
TEST(PtxReadings, TheCustomaryReadingIsThatOfPtxas) {
  const std::string st = " st.global.f32 [%a1], %f9;";
  const Row rows[] = {
      {"mul.f32 %f5, %f1, %f2; add.f32 %f9, %f5, %f3;", {true}},
      {"mul.f32 %f5, %f1, %f2; mul.f32 %f6, %f3, %f4; add.f32 %f9, %f5, %f6;", {true}},
      {"mul.f32 %f5, %f1, %f2; add.f32 %f9, %f5, %f3; sub.f32 %f8, %f4, %f5;", {true, true}},
      {"mul.f32 %f5, %f1, %f2; add.f32 %f9, %f5, %f5;", {false}},
      {"mul.f32 %f5, %f1, %f2; add.f32 %f9, %f5, %f3; st.global.f32 [%a1+4], %f5;", {false}},
      {"mul.f32 %f5, %f1, %f2; mul.f32 %f6, %f3, %f4; add.f32 %f7, %f5, %f3; add.f32 %f9, %f5, %f6;", {false, true}},
      {"mul.ftz.f32 %f5, %f1, %f2; add.f32 %f9, %f5, %f3;", {}},
      {"mul.ftz.f32 %f5, %f1, %f2; add.ftz.f32 %f9, %f5, %f3;", {true}},
      {"mul.f32 %f5, %f1, %f2; add.sat.f32 %f9, %f5, %f3;", {true}},
      {"mul.sat.f32 %f5, %f1, %f2; add.f32 %f9, %f5, %f3;", {}},
      {"mul.rn.f32 %f5, %f1, %f2; add.f32 %f9, %f5, %f3;", {}},
      {"mul.f32 %f5, %f1, %f2; add.rn.f32 %f9, %f5, %f3;", {}},
      {"mul.f32 %f5, %f1, %f2; neg.f32 %f6, %f5; add.f32 %f9, %f6, %f3;", {true}},
      {"mul.f32 %f5, %f1, %f2; mov.b32 %r6, %f5; mov.b32 %f6, %r6; add.f32 %f9, %f6, %f3;", {true}},
      {"mul.f32 %f5, %f1, %f2; abs.f32 %f6, %f5; add.f32 %f9, %f6, %f3;", {}},
      {"mul.f32 %f5, %f1, %f2; bar.sync 0; add.f32 %f9, %f5, %f3;", {true}},
      {"mul.f32 %f5, %f1, %f2; @%p1 add.f32 %f9, %f5, %f3;", {true}},
      {"@%p1 mul.f32 %f5, %f1, %f2; @%p1 add.f32 %f9, %f5, %f3;", {}},
      {"mul.f32 %f5, %f1, %f2; @%p1 bra L; add.f32 %f9, %f5, %f3;\nL:", {}},
      {"mul.f32 %f5, %f1, %f2; add.f32 %f9, %f5, %f3; mul.f32 %f5, %f9, %f4; add.f32 %f9, %f5, %f9;", {true, true}},
      {"mul.f32 %f5, %f1, %f2; add.f32 %f1, %f1, %f4; add.f32 %f9, %f5, %f1;", {true}},
      {"div.full.f32 %f5, %f1, %f2; mul.f32 %f6, %f3, %f4; add.f32 %f9, %f5, %f6;", {false}},
      {"div.full.f32 %f5, %f1, %f2; mul.f32 %f6, %f3, %f4; add.f32 %f9, %f6, %f5;", {true}},
      {"mul.f16x2 %r5, %r1, %r2; add.f16x2 %r6, %r5, %r3;", {true}},
      {"mul.bf16 %h5, %h1, %h2; sub.bf16 %h6, %h3, %h5;", {true}},
      {"mul.f64 %x3, %x1, %x2; sub.f64 %x4, %x1, %x3;", {true}},
  };
  for (const Row& row : rows) {
    const std::string body = std::string("ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%b0];\n") + row.body + st;
    const Module module(kernel(body), "test.ptx");
    std::vector<bool> fused;
    for (const OpenReading& o : module.kernel("").open) fused.push_back(o.fused);
    EXPECT_EQ(fused, row.fused) << row.body;
  }
}

/// What an H100 gave for a kernel of open sums in nine arrangements.
TEST(PtxReadings, TheCustomaryReadingIsThatOfAnH100) {
  const std::vector<std::uint32_t> x{0x40ba36dd, 0xbe92baba, 0xbec530a0, 0x3fa12e6f},
      expected{0xc009c4f3, 0x406006ce, 0xc06006ce, 0x40e150e3, 0x403fcf56, 0xc593b2eb, 0xc03bb222, 0x3f930dbd};
  const std::string text = kernel(
      "{.reg .f32 a,b,c,d,p,q,s,t; .reg .b32 h,g; ld.global.v4.f32 {a,b,c,d}, [%b0]; ld.global.v4.b32 {%r18,%r19,%r20,%r21}, [%b0];\n"
      "mul.f32 p,a,b; mul.f32 q,c,d; add.f32 s,p,q; mov.b32 %r6,s;\n"
      "mul.f32 p,a,c; sub.f32 s,d,p; sub.f32 t,p,d; mov.b32 %r7,s; mov.b32 %r8,t;\n"
      "mul.f32 p,a,d; add.f32 s,p,b; mul.f32 q,p,c; mov.b32 %r9,s; add.f32 q,q,a; mov.b32 %r10,q;\n"
      "mul.f16x2 h,%r18,%r19; add.f16x2 %r11,h,%r20; mul.bf16x2 g,%r18,%r19; sub.bf16x2 %r12,g,%r21;\n"
      "mul.ftz.f32 p,b,c; neg.f32 q,p; add.ftz.f32 s,q,d; mov.b32 %r13,s;}\n"
      "st.global.v4.b32 [%b1], {%r6, %r7, %r8, %r9}; st.global.v4.b32 [%b1+16], {%r10, %r11, %r12, %r13};");
  Buffers b{{x, std::vector<std::uint32_t>(8)}};
  run(text, b, 1, 1);
  EXPECT_EQ(b.of_words[1], expected);
  Buffers other{{x, std::vector<std::uint32_t>(8)}};
  Launch apart;
  apart.contract = Contract::off;
  run(text, other, 1, 1, apart);
  EXPECT_NE(other.of_words[1], expected) << "these inputs tell the readings apart";
}

TEST(PtxReadings, CountsAloneSettleWhatTheyCan) {
  const Module module(content(folder + "open.ptx"), "open.ptx");
  for (const char* name : {"contracted", "apart"}) {
    const Readings r = module.readings(name, {}, folder + "open.cuobjdump");
    EXPECT_TRUE(r.settled) << r.said;
    for (const OpenReading& o : r.open) EXPECT_EQ(o.fused, std::string(name) == "contracted") << o.text;
  }
  EXPECT_EQ(module.readings("contracted", {}, folder + "open.cuobjdump").open.size(), 2U);
  const Readings nothing = module.readings("closed", {}, {});
  EXPECT_TRUE(nothing.settled && nothing.open.empty());
  const Readings none = module.readings("apart", {}, {});
  EXPECT_FALSE(none.settled);
  EXPECT_NE(none.said.find("neither machine code nor ptxas"), std::string::npos) << none.said;
  EXPECT_NE(message_in([&] { module.readings("apart", {}, folder + "none"); }).find("cannot be read"), std::string::npos);
}

TEST(PtxReadings, PtxasIsAskedWhereItIsThere) {
  const Toolchain tools = Toolchain::find();
  if (tools.ptxas.empty() || tools.disassembler.empty()) GTEST_SKIP() << "neither ptxas nor a disassembler is installed";
  const Module module(content(folder + "open.ptx"), "open.ptx");
  for (const char* name : {"contracted", "apart"}) {
    const Readings r = module.readings(name, tools);
    EXPECT_TRUE(r.settled) << r.said;
    for (const OpenReading& o : r.open) EXPECT_EQ(o.fused, std::string(name) == "contracted") << o.text;
  }
  Toolchain without = tools;
  without.flags = "--fmad=false";
  for (const OpenReading& o : module.readings("contracted", without).open) EXPECT_FALSE(o.fused) << o.text;
  // Machine code of another reading than this ptxas has.
  const Readings other = module.readings("contracted", without, folder + "open.cuobjdump");
  EXPECT_TRUE(other.settled && other.open[0].fused) << other.said;
  Toolchain broken = tools;
  broken.ptxas = "/bin/false";
  EXPECT_NE(message_in([&] { module.readings("apart", broken); }).find("exit status"), std::string::npos);
}

TEST(PtxReadings, EachSumMayBeNamed) {
  const std::string text = kernel(
      "ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%b0];\nmul.f32 %f5, %f1, %f1; sub.f32 %f6, %f5, %f2;\n"
      "mul.f32 %f7, %f1, %f1; sub.f32 %f8, %f7, %f2; st.global.v2.f32 [%b1], {%f6, %f8};");
  const Module module(text, "test.ptx");
  const auto& open = module.kernel("").open;
  ASSERT_EQ(open.size(), 2U);
  Launch launch;
  launch.fused = {open[1].place};
  Buffers b{{{bits(0x1.001p0f), bits(1.0f), 0, 0}, std::vector<std::uint32_t>(2)}};
  const Report report = run(text, b, 1, 1, launch);
  EXPECT_EQ(number(b.of_words[1][0]), 0x1p-11f);
  EXPECT_EQ(number(b.of_words[1][1]), 0x1.0008p-11f);
  EXPECT_FALSE(report.open[0].fused);
  EXPECT_TRUE(report.open[1].fused);
}

}  // namespace
}  // namespace dodona::ptx
