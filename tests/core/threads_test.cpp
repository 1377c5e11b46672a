#include "core/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "dodona/error.h"
#include "tests/errors.h"

namespace dodona {
namespace {

constexpr double worth_a_team = 1e6;

/// Both roads of parallel_for, and the one of a single thread.
template <class Body>
void on_each_road(const Body& body) {
#ifndef DODONA_PLAIN_THREADS  // the thread sanitizer would take the team's own order for races
  body("team", [](std::int64_t count, const auto& call) { on_team(4, count, call); });
#endif
  body("plain threads", [](std::int64_t count, const auto& call) { on_plain_threads(4, count, call); });
  body("one thread", [](std::int64_t count, const auto& call) { parallel_for(1, count, worth_a_team, call); });
  body("parallel_for", [](std::int64_t count, const auto& call) { parallel_for(4, count, worth_a_team, call); });
}

TEST(ParallelFor, WhatABodyThrowsReachesTheCaller) {
  on_each_road([](const char* road, const auto& run) {
    for (const std::int64_t failing : {0, 499, 999}) {
      const std::string caught = helpers::message_in([&] {
        run(1000, [&](std::int64_t i) {
          if (i == failing) throw Error(ErrorCode::bad_value, "", "x", "is " + std::to_string(i));
        });
      });
      EXPECT_EQ(caught, "x is " + std::to_string(failing)) << road;
    }
    EXPECT_THROW(run(100, [](std::int64_t) { throw std::bad_alloc(); }), std::bad_alloc) << road;
  });
}

TEST(ParallelFor, AllCallsAreMadeOnceAndNoneAfterwards) {
  on_each_road([](const char* road, const auto& run) {
    std::vector<int> calls(1000, 0);
    run(1000, [&](std::int64_t i) { ++calls[static_cast<std::size_t>(i)]; });
    EXPECT_EQ(calls, std::vector<int>(1000, 1)) << road;
  });
}

TEST(ParallelFor, CallsThatHaveNotBegunAreLeftOutOnceOneFailed) {
  on_each_road([](const char* road, const auto& run) {
    std::atomic<int> begun = 0;
    EXPECT_THROW(run(1000,
                     [&](std::int64_t) {
                       ++begun;
                       throw std::runtime_error("no");
                     }),
                 std::runtime_error);
    EXPECT_LE(begun, 4) << road;
  });
}

}  // namespace
}  // namespace dodona
