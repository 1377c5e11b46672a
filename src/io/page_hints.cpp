#include "io/page_hints.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace dodona::io {

void hint(std::span<const std::byte> bytes, Wanted wanted) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(bytes.data()), last = first + bytes.size();
  const bool soon = wanted == Wanted::soon;
  const std::uintptr_t begin = (soon ? first : first + page - 1) / page * page, end = soon ? last : last / page * page;
  // MADV_PAGEOUT, not MADV_DONTNEED: that one would clear memory that is no file's.
#ifdef MADV_PAGEOUT
  constexpr int give_back = MADV_PAGEOUT;
#else
  constexpr int give_back = MADV_NORMAL;
#endif
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, soon ? MADV_WILLNEED : give_back);
}

}  // namespace dodona::io
