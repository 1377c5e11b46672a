#include "io/page_hints.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace dodona::io {

void hint(std::span<const std::byte> bytes, Wanted wanted) {
  const auto page = static_cast<std::ptrdiff_t>(::sysconf(_SC_PAGESIZE)), size = static_cast<std::ptrdiff_t>(bytes.size());
  const auto behind = static_cast<std::ptrdiff_t>(reinterpret_cast<std::uintptr_t>(bytes.data()) % static_cast<std::uintptr_t>(page));
  const bool soon = wanted == Wanted::soon;
  // Whole pages: those that have a part of it, or those that have nothing else.
  const std::ptrdiff_t begin = soon ? -behind : (page - behind) % page, end = soon ? size : size - (behind + size) % page;
  // MADV_PAGEOUT, not MADV_DONTNEED: that one would clear memory that is no file's.
#ifdef MADV_PAGEOUT
  constexpr int give_back = MADV_PAGEOUT;
#else
  constexpr int give_back = MADV_NORMAL;
#endif
  if (begin < end)
    ::madvise(const_cast<std::byte*>(bytes.data()) + begin, static_cast<std::size_t>(end - begin), soon ? MADV_WILLNEED : give_back);
}

}  // namespace dodona::io
