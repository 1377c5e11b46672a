#include "ops/base/copy_row.h"

#include "ops/base/row_lanes.h"

namespace dodona::DODONA_TIER {
namespace {

void copy_row(const ops::CopyRow& row) {
  const auto* from = static_cast<const char*>(row.from);
  auto* to = static_cast<char*>(row.to);
  std::int64_t done = 0;
  if (row.writing != ops::Writing::cached && can_stream(to))
    for (; done + 64 <= row.bytes; done += 64) {
      std::int32_t line[16] = {};
      if (from != nullptr) __builtin_memcpy(line, from + done, sizeof line);
      stream(i32x16::load(line), to + done);
    }
  const auto left = static_cast<std::size_t>(row.bytes - done);
  from != nullptr ? __builtin_memcpy(to + done, from + done, left) : __builtin_memset(to + done, 0, left);
  if (row.writing == ops::Writing::streamed_last) stream_end();
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void CopyRowKernel::run(const CopyRow& row) {
  DODONA_TIER::copy_row(row);
}
template void CopyRowKernel::run<tier::DODONA_TIER>(const CopyRow&);

}  // namespace dodona::ops
