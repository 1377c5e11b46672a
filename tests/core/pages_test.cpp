#include "core/pages.h"

#include <gtest/gtest.h>
#include <sys/sysinfo.h>

#include <cstring>
#include <thread>
#include <vector>

#include "dodona/error.h"
#include "dodona/tensor.h"
#include "tests/errors.h"

namespace dodona {
namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20;

Tensor bytes(std::int64_t count) {
  return Tensor::uninitialized(DType::u8, {count});
}

class Pages : public testing::Test {
 public:
  void SetUp() override {
    if (!tensors_share_pages) GTEST_SKIP() << "tensors are watched each by itself";
    bytes(256 * mib);  // for what other tests left
  }
};

TEST_F(Pages, OneTensorLeavesItsMemoryToTheNext) {
  const KeepPages keep;
  const void* const first = bytes(32 * mib).data();
  EXPECT_EQ(KeepPages::waiting(), 32U * mib);
  const Tensor next = bytes(31 * mib + 5);
  EXPECT_EQ(next.data(), first);
  EXPECT_EQ(KeepPages::waiting(), 0U);
  EXPECT_NE(bytes(32 * mib).data(), first);
}

/// The system hands out more than there is, and kills who comes to use it.
TEST_F(Pages, MoreThanIsLeftIsRefusedBeforeItIsUsed) {
  struct sysinfo machine {};
  ASSERT_EQ(::sysinfo(&machine), 0);
  const auto all = static_cast<std::int64_t>((machine.totalram + machine.totalswap) * machine.mem_unit);
  const Error error = helpers::error_from([&] { bytes(all - 64 * mib); });
  EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  EXPECT_NE(std::string(error.what()).find("more memory than is left"), std::string::npos) << error.what();
}

TEST_F(Pages, WhatFitsBestIsTaken) {
  const KeepPages keep;
  std::vector<const void*> at;
  {
    const Tensor a = bytes(36 * mib), b = bytes(34 * mib), c = bytes(64 * mib);
    at = {a.data(), b.data(), c.data()};
  }
  EXPECT_EQ(bytes(33 * mib).data(), at[1]);
  EXPECT_EQ(bytes(35 * mib).data(), at[0]);
  const Tensor no_half_of_it = bytes(40 * mib);
  EXPECT_NE(no_half_of_it.data(), at[2]);
}

TEST_F(Pages, LittleWaitsWhereNobodyKeepsIt) {
  EXPECT_EQ(KeepPages::waiting(), 0U);
  { const Tensor a = bytes(32 * mib), b = bytes(24 * mib), c = bytes(28 * mib); }
  EXPECT_LE(KeepPages::waiting(), 64U * mib);
  EXPECT_GE(KeepPages::waiting(), 32U * mib);
  {
    const KeepPages outer;
    { const KeepPages inner; }
    { const Tensor a = bytes(100 * mib), b = bytes(60 * mib); }
    EXPECT_GE(KeepPages::waiting(), 160U * mib);
  }
  EXPECT_LE(KeepPages::waiting(), 64U * mib);
}

TEST_F(Pages, ThereIsHardlyMoreThanWasInUseAtOnce) {
  const KeepPages keep;
  { const Tensor a = bytes(96 * mib), b = bytes(128 * mib); }
  EXPECT_EQ(KeepPages::waiting(), 224U * mib);
  const Tensor larger = bytes(112 * mib);  // fits into none; what waits longest makes way
  EXPECT_EQ(KeepPages::waiting(), 96U * mib);
  const Tensor most = bytes(200 * mib);
  EXPECT_EQ(KeepPages::waiting(), 0U);
}

TEST_F(Pages, WhatComesAndGoesIsLeftWhileTheMemoryInUseGrows) {
  const KeepPages keep;
  const void* const first = bytes(16 * mib).data();
  const Tensor stays = bytes(24 * mib);
  EXPECT_EQ(bytes(16 * mib).data(), first);
}

TEST_F(Pages, ZerosAreZerosInMemoryThatWasUsed) {
  const KeepPages keep;
  Tensor used = bytes(8 * mib);
  const void* const memory = used.data();
  std::memset(used.data(), 0xAB, static_cast<std::size_t>(8 * mib));
  used = Tensor();
  const Tensor zeros(DType::u8, {8 * mib});
  ASSERT_EQ(zeros.data(), memory);
  for (std::int64_t i = 0; i < 8 * mib; ++i) ASSERT_EQ(zeros.as<std::uint8_t>()[i], 0) << i;
}

TEST_F(Pages, ThreadsShareThem) {
  const KeepPages keep;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 50; ++i) {
        const Tensor mine = bytes(4 * mib);
        auto* const data = mine.as<std::uint8_t>();
        data[0] = static_cast<std::uint8_t>(t);
        data[4 * mib - 1] = static_cast<std::uint8_t>(i);
        std::this_thread::yield();
        EXPECT_EQ(data[0], t);
        EXPECT_EQ(data[4 * mib - 1], i);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(KeepPages::waiting(), 16U * mib);
}

TEST_F(Pages, MoreThanAnyMemoryIsRefused) {
  EXPECT_EQ(take_pages(std::size_t{1} << 60), nullptr);
  const KeepPages keep;
  bytes(32 * mib);
  EXPECT_EQ(take_pages(std::size_t{1} << 60), nullptr);
  EXPECT_NE(take_pages(32 * mib), nullptr);
}

}  // namespace
}  // namespace dodona
