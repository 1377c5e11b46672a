// Packed weights of a whole mixture of experts.
#include <cstring>
#include <string>

#include "dodona/error.h"
#include "ops/schemes/whole_moe/weights.h"
#include "ops/tiles/panel/panel.h"
#include "ops/tiles/panel_i8/panel_i8.h"

namespace dodona::ops {
namespace {

using namespace whole_moe;

/// What a part begins with: how raw weights lay.
struct PackedHead {
  std::int32_t block_major, scales_in_tiles;

  bool operator==(const PackedHead&) const = default;
};
constexpr std::int64_t packed_head = 64;

PackedHead head_of(const WholeMoe& moe) {
  return {moe.first.block_major, moe.scheme.numbers == MoeNumbers::nvfp4 && moe.first.scales_in_tiles};
}

std::int64_t packed_code_bytes(const MoeMatrix& matrix, MoeNumbers numbers) {
  if (numbers == MoeNumbers::nvfp4) return i8_packed_bytes(I8Format::nvfp4, matrix.n, matrix.k);
  if (code_of(numbers) == DType::f8_e4m3) return panel_packed_bytes(matrix.n, matrix.k);
  return quant::align(2 * matrix.n * matrix.k, 64);
}
/// Scales beside the packed codes, not among them.
std::int64_t packed_scale_bytes(const MoeMatrix& matrix, MoeNumbers numbers) {
  if (numbers == MoeNumbers::nvfp4 || !matrix.scales.defined() || matrix.scales.elements() == 0) return 0;
  return quant::align(matrix.scales.elements() / matrix.scales.size(0) * 4, 64);
}

/// Where the matrix begins, and the end of it: of scales those count that are packed.
std::int64_t place_packed(MoeMatrix::Packed& packed, const MoeMatrix& matrix, MoeNumbers numbers, bool with_scales, std::int64_t at) {
  packed.codes_at = at;
  packed.scales_at = at + packed_code_bytes(matrix, numbers);
  return packed.scales_at + (with_scales ? packed_scale_bytes(matrix, numbers) : 0);
}

void pack_matrix(const MoeMatrix& matrix, MoeNumbers numbers, const MoeMatrix::Packed& to, std::byte* part, const Exec& exec) {
  const DType type = code_of(numbers);
  std::byte* const codes = part + to.codes_at;
  if (numbers == MoeNumbers::nvfp4) {
    Tensor tiles;
    i8_pack(I8Format::nvfp4, fp4_weights(matrix, 0, 0, tiles), codes, exec);
    return;
  }
  const Weight weight = weight_of(matrix, 0, type, exec);
  const std::int64_t row_bytes = matrix.k * bits(type) / 8;
  if (type == DType::f8_e4m3) {
    panel_pack({weight.codes, row_bytes, 0, type}, matrix.n, matrix.k, codes, exec);
  } else {
    std::memcpy(codes, weight.codes, static_cast<std::size_t>(matrix.n * row_bytes));
  }
  if (packed_scale_bytes(matrix, numbers) > 0)
    std::memcpy(part + to.scales_at, scales_of(matrix, 0), static_cast<std::size_t>(matrix.scales.elements() * 4));
}

}  // namespace

std::int64_t whole_moe_packed_bytes(const WholeMoe& moe) {
  MoeMatrix::Packed packed;
  const std::int64_t first = place_packed(packed, moe.first, moe.scheme.numbers, true, packed_head);
  return place_packed(packed, moe.second, moe.scheme.numbers, true, first);
}

void pack_whole_moe(const WholeMoe& moe, std::byte* part, const Exec& exec) {
  const PackedHead head = head_of(moe);
  std::memset(part, 0, static_cast<std::size_t>(whole_moe_packed_bytes(moe)));
  std::memcpy(part, &head, sizeof head);
  MoeMatrix::Packed packed;
  std::int64_t at = packed_head;
  for (const MoeMatrix* const matrix : {&moe.first, &moe.second}) {
    at = place_packed(packed, *matrix, moe.scheme.numbers, true, at);
    pack_matrix(*matrix, moe.scheme.numbers, packed, part, exec);
  }
}

void take_packed(WholeMoe& moe, const Prepared& prepared) {
  std::int64_t at = packed_head;
  for (MoeMatrix* const matrix : {&moe.first, &moe.second}) {
    matrix->packed.parts = &prepared;
    const bool with_scales = matrix->scales.defined() && matrix->scales.data() == nullptr;
    at = place_packed(matrix->packed, *matrix, moe.scheme.numbers, with_scales, at);
  }
  for (std::int64_t part = 0; part < prepared.parts(); ++part) {
    if (prepared.part(part) == nullptr) continue;
    PackedHead head{};
    std::memcpy(&head, prepared.part(part), sizeof head);
    if (head == head_of(moe)) continue;
    throw Error(ErrorCode::bad_value, "", "prepared",
                "holds weights of expert " + std::to_string(part) +
                    " that were packed in another order: packing has to be told weight_layout and arithmetic as the call is");
  }
}

}  // namespace dodona::ops
