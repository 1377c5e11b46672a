#include "ops/softmax/fast/attend_amx.h"

#include "simd/amx.h"

namespace dodona::ops {

const AttendTiles* attend_tiles(Isa isa) {
  if (!uses_amx(isa)) return nullptr;
  static const AttendTiles tiles = dispatch<AttendAmxKernel>(isa);
  return tiles.run != nullptr ? &tiles : nullptr;  // builds of the generic tier alone have none, whatever the CPU has
}

bool takes_tiles(const AttendUnit& unit) {
  // Parts of the queries end where a group of K does.
  return held_by_tiles(unit.type) && held_by_tiles(unit.query_type) && held_by_tiles(unit.weight_type) &&
         (unit.queries[1].width == 0 || unit.queries[0].width % 32 == 0);
}

AttendTilesMemory AttendTilesMemory::in(std::byte* p, std::int64_t lanes, std::int64_t key_width, std::int64_t value_width,
                                        std::int64_t* bytes) {
  *bytes = 0;
  const auto take = [&](std::int64_t size) {
    std::byte* const at = p == nullptr ? nullptr : p + *bytes;
    *bytes += (size + 63) / 64 * 64;
    return at;
  };
  AttendTilesMemory m{};
  m.queries = take(lanes / 16 * attend_chunks(key_width) * attend_chunk);
  m.keys = take(attend_block / 16 * attend_chunks(key_width) * attend_chunk);
  m.values = take(attend_block / 32 * (value_width / 16) * attend_step);
  m.weights = take(lanes / 16 * attend_chunk);
  m.row = take(4 * (key_width + value_width) + 256);
  m.scores = reinterpret_cast<float*>(take(attend_block * lanes * 4));
  m.outputs = reinterpret_cast<float*>(take(lanes * value_width * 4));
  return m;
}

std::int64_t attend_tiles_scratch_floats(std::int64_t lanes, std::int64_t key_width, std::int64_t value_width) {
  std::int64_t bytes = 0;
  static_cast<void>(AttendTilesMemory::in(nullptr, lanes, key_width, value_width, &bytes));
  return bytes / 4;
}

}  // namespace dodona::ops
