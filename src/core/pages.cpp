#include "core/pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>

#include "core/caches.h"

#if defined(__SANITIZE_ADDRESS__)
#define DODONA_ENDS_ARE_WATCHED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DODONA_ENDS_ARE_WATCHED 1
#endif
#endif

namespace dodona {
namespace {

constexpr std::size_t line = 64, page = 4096, huge_page = std::size_t{2} << 20;

/// May wait in any case: outputs of calls one behind the other, and what comes and goes while the memory in use grows.
constexpr std::size_t least_kept = std::size_t{64} << 20;

/// What is large is read once and in order, where small pages cost a fault and a walk of the page table each.
std::size_t unit_of(std::size_t bytes) {
  return bytes >= 2 * huge_page ? huge_page : page;
}

/// Whole huge pages from the system itself: what goes back to malloc may stay with the process.
void* map(std::size_t bytes) {
  if (!memory_allows(static_cast<std::int64_t>(bytes))) return nullptr;
  // As much more as may lie before the first huge page.
  void* const mapping = ::mmap(nullptr, bytes + huge_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(mapping);
  const std::size_t before = (huge_page - reinterpret_cast<std::uintptr_t>(begin) % huge_page) % huge_page;
  if (before > 0) ::munmap(begin, before);
  ::munmap(begin + before + bytes, huge_page - before);
#ifdef MADV_HUGEPAGE
  // Advice only: without it the memory is the same.
  static_cast<void>(::madvise(begin + before, bytes, MADV_HUGEPAGE));
#endif
  return begin + before;
}

void* get(std::size_t bytes) {
  return unit_of(bytes) == huge_page ? map(bytes) : std::aligned_alloc(line, bytes);
}
void give_back(void* memory, std::size_t bytes) {
  if (unit_of(bytes) == huge_page)
    ::munmap(memory, bytes);
  else
    std::free(memory);
}

/// Lies in the memory that waits, so that giving back needs none.
struct Waiting {
  std::size_t bytes;
  Waiting* next;
};

/// What is larger than asked for is lost while it is in use.
bool fits(std::size_t room, std::size_t bytes) {
  return room >= bytes && room - bytes <= bytes / 8;
}

class Pages {
 public:
  struct Room {
    void* memory;
    std::size_t bytes;
  };

  /// What waits and fits best, or new memory, for which what has waited longest goes back.
  Room take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    Waiting** best = nullptr;
    for (Waiting** at = &first_; *at != nullptr && (best == nullptr || (*best)->bytes > bytes); at = &(*at)->next)
      if (fits((*at)->bytes, bytes) && (best == nullptr || (*at)->bytes < (*best)->bytes)) best = at;
    const Room room = best != nullptr ? unlink(best) : fresh(bytes);
    if (room.memory == nullptr) return room;
    in_use_ += room.bytes;
    most_ = std::max(most_, in_use_);
    return room;
  }

  void put(const Room& room) {
    const std::lock_guard lock(mutex_);
    in_use_ -= room.bytes;
    waiting_ += room.bytes;
    first_ = new (room.memory) Waiting{room.bytes, first_};
    if (keepers_ == 0) drop_to(least_kept);
  }

  void keep() {
    const std::lock_guard lock(mutex_);
    if (keepers_++ == 0) most_ = in_use_;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    if (--keepers_ == 0) drop_to(least_kept);
  }
  std::size_t waiting() {
    const std::lock_guard lock(mutex_);
    return waiting_;
  }

 private:
  Room fresh(std::size_t bytes) {
    drop_to(std::max(most_, in_use_ + bytes) - in_use_ - bytes + least_kept);
    void* memory = get(bytes);
    if (memory == nullptr && first_ != nullptr) {
      drop_to(0);
      memory = get(bytes);
    }
    return {memory, bytes};
  }
  Room unlink(Waiting** at) {
    Waiting* const found = *at;
    *at = found->next;
    waiting_ -= found->bytes;
    return {found, found->bytes};
  }
  void drop(Waiting** at) {
    const Room room = unlink(at);
    give_back(room.memory, room.bytes);
  }
  /// What has waited longest first.
  void drop_to(std::size_t bytes) {
    while (waiting_ > bytes) {
      Waiting** last = &first_;
      while ((*last)->next != nullptr) last = &(*last)->next;
      drop(last);
    }
  }

  std::mutex mutex_;
  Waiting* first_ = nullptr;  ///< the one that came last
  std::size_t in_use_ = 0, waiting_ = 0, most_ = 0;
  int keepers_ = 0;
};

/// Never destroyed: tensors may outlive everything.
Pages& pages() {
  static Pages& all = *new Pages;
  return all;
}

}  // namespace

#ifdef DODONA_ENDS_ARE_WATCHED
const bool tensors_share_pages = false;
#else
const bool tensors_share_pages = true;
#endif

std::shared_ptr<void> take_pages(std::size_t bytes) {
  const std::size_t unit = unit_of(bytes);
  const Pages::Room room = pages().take((bytes + unit - 1) / unit * unit);
  if (room.memory == nullptr) return nullptr;
  return {room.memory, [room](void*) { pages().put(room); }};
}

KeepPages::KeepPages() {
  pages().keep();
}
KeepPages::~KeepPages() {
  pages().end();
}
std::size_t KeepPages::waiting() {
  return pages().waiting();
}

}  // namespace dodona
