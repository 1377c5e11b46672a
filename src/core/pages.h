// The memory of large tensors, which one may leave to the next.
#pragma once

#include <cstddef>
#include <memory>

namespace dodona {

/// No under AddressSanitizer, which watches each tensor's end to the byte.
extern const bool tensors_share_pages;
/// From here on a tensor's memory is pages of its own.
inline constexpr std::size_t least_pages = std::size_t{256} << 10;

/// From 4 MiB on huge pages where the system gives them; contents indeterminate. Empty where there is no memory.
std::shared_ptr<void> take_pages(std::size_t bytes);

/// While one lives, what large tensors give back waits for those that come: the system clears each page that it hands out, which can take
/// as long as what is computed in it. There is never more than was in use at once, and 64 MiB; when the last one ends, all but these goes
/// back.
class KeepPages {
 public:
  KeepPages();
  ~KeepPages();
  KeepPages(const KeepPages&) = delete;
  KeepPages& operator=(const KeepPages&) = delete;

  /// Bytes that wait.
  static std::size_t waiting();
};

}  // namespace dodona
