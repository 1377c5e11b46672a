#include "model/buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <memory>

#include "dodona/error.h"

namespace dodona::model {

Tensor uninitialized(DType dtype, const Dims& shape) {
  constexpr std::size_t page = std::size_t{2} << 20, line = 64;
  const auto bytes = static_cast<std::size_t>(bytes_for(dtype, element_count(shape)));
  const std::size_t alignment = bytes >= 2 * page ? page : line;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  std::shared_ptr<void> memory(std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded), std::free);
  if (!memory) throw Error(ErrorCode::out_of_memory, "", "", "cannot allocate " + std::to_string(bytes) + " bytes for " + to_string(shape));
#ifdef MADV_HUGEPAGE
  // Advice only: without it the memory is the same, filled more slowly.
  if (alignment == page) static_cast<void>(!::madvise(memory.get(), rounded, MADV_HUGEPAGE));
#endif
  void* data = memory.get();
  return Tensor(std::move(memory), data, dtype, shape, contiguous_strides(shape), true);
}

}  // namespace dodona::model
