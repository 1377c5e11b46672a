#include "ops/sums/split_k.h"

#include <algorithm>

#include "dodona/error.h"

namespace dodona::ops {

namespace {
std::int64_t tile_of(DType type) {
  return 1024 / bits(type);
}
}  // namespace

const std::string_view split_k_contract = R"(
 Hopper mode, cuBLAS's order on an H100: K in tiles of 64, shared out to split_k chunks of ceil(tiles / split_k) tiles, the last ones
shorter; each chunk a chain of tensor-core steps of 16 products from zero; the chunks' fp32 sums added from the first to the last;
rounded once.)";

Accumulator in_chunks(Accumulator accumulator, std::int64_t split_k, DType type) {
  accumulator.parts = split_k;
  accumulator.tile = tile_of(type);
  return accumulator;
}

void check_split_k(std::int64_t split_k, std::int64_t k, DType type) {
  const std::int64_t tile = tile_of(type), tiles = std::max<std::int64_t>((k + tile - 1) / tile, 1), most = std::min(tiles, most_chunks);
  if (split_k < 1 || split_k > most)
    throw Error(ErrorCode::bad_value, "", "split_k",
                "is " + std::to_string(split_k) + ", expected 1 to " + std::to_string(most) + ": K = " + std::to_string(k) + " has " +
                    std::to_string(tiles) + (tiles == 1 ? " tile of " : " tiles of ") + std::to_string(tile));
}

std::optional<Refusal> unknown_half_product(Mode mode, std::string_view left_name, DType left, std::string_view right_name, DType right) {
  if (left == DType::f32 || right == DType::f32)
    return Refusal{std::string(left == DType::f32 ? left_name : right_name),
                   "of dtype f32 has no " + std::string(name(mode)) + " mode: the bits of cuBLAS are known for bf16 and f16"};
  if (left != right)
    return Refusal{std::string(right_name), "of dtype " + std::string(name(right)) + " has no " + std::string(name(mode)) +
                                                " mode beside " + std::string(left_name) + " of " + std::string(name(left)) +
                                                ": the GPUs' kernels take one type for both"};
  return {};
}

}  // namespace dodona::ops
