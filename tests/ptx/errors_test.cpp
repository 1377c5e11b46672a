// What cannot be run: one clear error each.
#include "run.h"

namespace dodona::ptx {
namespace {

using Words = std::vector<std::uint32_t>;

std::string of_text(const std::string& text) {
  return message_in([&] { Module(text, "test.ptx"); });
}
void says(const std::string& message, const std::string& words) {
  EXPECT_NE(message.find(words), std::string::npos) << message;
}

TEST(PtxErrors, BrokenTextNamesItsLine) {
  says(of_text(""), ".version is missing");
  says(of_text("hello"), "test.ptx line 1: expected a declaration");
  says(of_text(".version 1.0\n"), "PTX of version 1.0 is not known here");
  says(of_text(".version 8.7\n.target gfx90a\n"), "the target gfx90a is not known here");
  says(of_text(".version 8.7\n.target sm_90\n.address_size 32\n"), "addresses of 64 bits");
  says(of_text(".version 8.7\n.target sm_90\n.address_size 64\n"), "no kernel");
  says(of_text(kernel("bra NOWHERE;")), "there is no label NOWHERE");
  says(of_text(kernel("add.s32 %r1, %r2")), "expected ';'");
  says(of_text(kernel("mov.b32 %r1, 0f3F8;")), "0f has 8 digits");
  says(of_text(kernel("X: X: ret;")), "the label X is there twice");
  says(of_text(kernel("/* never ends")), "a comment does not end");
  says(of_text(kernel("}").substr(0, 300)), "test.ptx line");
  says(of_text(kernel("mov.b32 %r1, \x01;")), "belongs to no PTX");
}

TEST(PtxErrors, InstructionsThatAreNotThereAreErrorsWhereTheyAreReached) {
  const std::string text = kernel("setp.eq.u32 %p1, %t, 99; @%p1 foo.bar.b32 %r1, %r2;\nst.global.b32 [%a1], %t;");
  EXPECT_EQ(Module(text).kernels()[0].missing.size(), 1U);
  Buffers b{{Words(32), Words(32)}};
  EXPECT_NO_THROW(run(text, b, 1, 32)) << "nobody comes there";
  Buffers c{{Words(128), Words(128)}};
  says(message_in([&] { run(kernel("foo.bar.b32 %r1, %r2;"), c); }), "foo.bar.b32 %r1, %r2: this instruction is not there");
  says(message_in([&] { run(kernel("add.s32 %d1, %r1, %r2;"), c); }), "the register %d1 has another size than the instruction");
}

TEST(PtxErrors, ArgumentsOfTheWrongKind) {
  const Module module(
      ".version 8.7\n.target sm_90\n.address_size 64\n.entry k(.param .u64 .ptr .global p, .param .u32 n) .reqntid 32 { ret; }");
  Words x(8);
  Launch launch;
  launch.block = {32, 1, 1};
  const auto message = [&] { return message_in([&] { (void)module.launch("k", launch); }); };
  says(message(), "k: args are too few: parameter 1 (.u32 n)");
  launch.arguments = {buffer(x.data(), 32)};
  says(message(), "parameter 1");
  launch.arguments = {buffer(x.data(), 32), value(std::int64_t{3})};
  says(message(), "k: args[1] has 8 bytes, but the kernel takes 4 (parameter 1, .u32 n)");
  launch.arguments = {buffer(x.data(), 32), buffer(x.data(), 32)};
  says(message(), "args[1] is memory, but the kernel takes 4 bytes");
  launch.arguments = {buffer(x.data(), 32), value(3), value(4)};
  says(message(), "args[2] is one too many");
  launch.arguments = {buffer(x.data(), 32), value(3)};
  EXPECT_EQ(message(), "");
  launch.block = {64, 1, 1};
  says(message(), "block must be (32, 1, 1) (.reqntid), got (64, 1, 1)");
  launch.block = {0, 0, 0};
  EXPECT_EQ(message(), "") << "the kernel says what its block is";
  launch.grid = {1, 70000, 1};
  says(message(), "grid must be");
  launch.grid = {1, 1, 1};
  launch.dynamic_shared = 1 << 20;
  says(message(), "shared is 1048576 bytes");
  launch.dynamic_shared = 0;
  says(message_in([&] { (void)module.launch("other", launch); }), "has no kernel 'other'; it has k");
}

TEST(PtxErrors, EndlessLoopsAreStopped) {
  Buffers b{{Words(32), Words(32)}};
  Launch launch;
  launch.limit = 10000;
  const std::string message = message_in([&] { run(kernel("AGAIN: add.u32 %r1, %r1, 1;\nbra AGAIN;"), b, 1, 32, launch); });
  says(message, "10000 instructions");
  says(message, "line");
}

TEST(PtxErrors, ClustersOfSeveralBlocksAreNotThere) {
  const Module module(".version 8.7\n.target sm_90\n.address_size 64\n.entry k() .reqnctapercluster 2 { ret; }");
  Launch launch;
  launch.grid = {2, 1, 1};
  launch.block = {32, 1, 1};
  says(message_in([&] { (void)module.launch("k", launch); }), "grid wants clusters of several blocks (.reqnctapercluster)");
}

TEST(PtxErrors, RecursionIsNotThere) {
  says(of_text(".version 8.7\n.target sm_90\n.address_size 64\n.func f() { call f, (); ret; }\n.entry k() { ret; }"),
       "the function f calls itself");
}

}  // namespace
}  // namespace dodona::ptx
