// Small kernels written for a test: the frame around a few lines of PTX.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "dodona/error.h"
#include "dodona/ptx.h"
#include "tests/errors.h"

namespace dodona::ptx {

/// A kernel of pointers `p0`, `p1`... whose body finds %tid.x in %t, the thread's place among all in %g, and p0 + 4 %g in %a0 and so on.
inline std::string kernel(const std::string& body, int pointers = 2, const std::string& before = {}) {
  std::string parameters, begin;
  for (int i = 0; i < pointers; ++i) {
    const std::string n = std::to_string(i);
    parameters += (i == 0 ? "" : ", ") + std::string(".param .u64 p") + n;
    begin += "ld.param.u64 %b" + n + ", [p" + n + "]; mad.wide.u32 %a" + n + ", %g, 4, %b" + n + ";\n";
  }
  return ".version 8.7\n.target sm_90a\n.address_size 64\n" + before + "\n.visible .entry k(" + parameters +
         ")\n{\n.reg .pred %p<20>; .reg .b16 %h<40>; .reg .b32 %r<200>; .reg .f32 %f<100>; .reg .b64 %d<40>; .reg .f64 %x<20>;\n"
         ".reg .b64 %a<8>; .reg .b64 %b<8>; .reg .b32 %t; .reg .b32 %g; .reg .b32 %n;\n"
         "mov.u32 %t, %tid.x; mov.u32 %g, %ctaid.x; mov.u32 %n, %ntid.x; mad.lo.u32 %g, %g, %n, %t;\n" +
         begin + body + "\nret;\n}\n";
}

struct Buffers {
  std::vector<std::vector<std::uint32_t>> of_words;
};

/// Runs `text` with the buffers in place.
inline Report run(const std::string& text, Buffers& buffers, std::uint32_t blocks = 1, std::uint32_t threads = 32, Launch launch = {}) {
  const Module module(text, "test.ptx");
  launch.grid = {blocks, 1, 1};
  launch.block = {threads, 1, 1};
  for (auto& words : buffers.of_words) launch.arguments.push_back(buffer(words.data(), words.size() * 4));
  return module.launch("", launch);
}

inline std::uint32_t bits(float x) {
  return std::bit_cast<std::uint32_t>(x);
}
inline float number(std::uint32_t x) {
  return std::bit_cast<float>(x);
}

/// What `body` leaves in %r0 of each thread, of x in %r1 (and of y in %r2).
inline std::vector<std::uint32_t> results(const std::string& body, std::vector<std::uint32_t> x, std::vector<std::uint32_t> y = {}) {
  const auto threads = static_cast<std::uint32_t>(x.size());
  if (y.empty()) y.assign(x.size(), 0);
  Buffers b{{std::move(x), std::move(y), std::vector<std::uint32_t>(threads)}};
  const Report report = run(kernel("ld.global.b32 %r1, [%a0]; ld.global.b32 %r2, [%a1]; mov.b32 %f1, %r1; mov.b32 %f2, %r2;\n" + body +
                                       "\nst.global.b32 [%a2], %r0;",
                                   3),
                            b, 1, threads);
  EXPECT_TRUE(report.findings.empty()) << report.findings.front().text;
  return b.of_words[2];
}

using helpers::message_in;

}  // namespace dodona::ptx
