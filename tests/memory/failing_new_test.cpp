#include "failing_new.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>

namespace dodona::failing_new {
namespace {

struct State {
  std::atomic<bool> armed{false}, happened{false};
  std::atomic<std::int64_t> successes{0};
  bool lasting = false;
  Where where = Where::anywhere;
  std::thread::id owner;
};
State state;

bool fails() {
  if (!state.armed.load()) return false;
  if (state.where == Where::other_threads && std::this_thread::get_id() == state.owner) return false;
  const std::int64_t left = state.successes.fetch_sub(1);
  if (left > 0 || (left < 0 && !state.lasting)) return false;
  state.happened = true;
  return true;
}

void* allocate(std::size_t size, std::size_t alignment) {
  void* const memory =
      fails() ? nullptr : std::aligned_alloc(alignment, (std::max<std::size_t>(size, 1) + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

Failure::Failure(std::int64_t successes, Where where, bool lasting) {
  state.successes = successes;
  state.lasting = lasting;
  state.where = where;
  state.owner = std::this_thread::get_id();
  state.happened = false;
  state.armed = true;
}

Failure::~Failure() {
  state.armed = false;
}

bool Failure::happened() const {
  return state.happened;
}

namespace {

TEST(FailingNew, FailsOnceOrFromThenOn) {
  bool second = false, third = false;
  for (const bool lasting : {false, true}) {
    const Failure failure(1, Where::anywhere, lasting);
    std::unique_ptr<int> a(new (std::nothrow) int), b(new (std::nothrow) int), c(new (std::nothrow) int);
    second = b != nullptr;
    third = c != nullptr;
    if (a == nullptr || second || third == lasting) std::abort();
  }
  EXPECT_FALSE(second);
  EXPECT_FALSE(third);
}

}  // namespace
}  // namespace dodona::failing_new

// The forms for arrays, and those that do not throw, come down to these.
[[gnu::noinline]] void* operator new(std::size_t size) {
  return dodona::failing_new::allocate(size, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  return dodona::failing_new::allocate(size, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
