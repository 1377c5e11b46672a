// The k largest numbers of a row, their order, and the places that equal numbers may stand in: torch.topk, and what is made of it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dodona::ops {

/// As torch compares: NaN above all numbers, zeros of either sign equal.
bool is_larger(double a, double b);
bool are_equal(double a, double b);

/// Places of the k largest, falling, equal ones by their place.
std::vector<std::int64_t> largest(std::span<const double> row, std::int64_t k);

/// Whether `actual` are as right as `right`: as many places, each of the row and once, whose numbers equal the right ones one by one.
bool equally_large(std::span<const double> row, std::span<const std::int64_t> right, std::span<const std::int64_t> actual);

// ---- to the bit: torch selects by radix, and then sorts what it found (2.11, CUDA)

/// Beyond so many the order in which torch leaves them is not known.
inline constexpr std::int64_t most_sorted_by_torch = 128;

/// What lies above the k-th largest number in order of place, then as many as are wanted of those that equal it.
std::vector<std::int64_t> selected_by_torch(std::span<const double> row, std::int64_t k);
/// The same, sorted: torch.topk, and for k = 1 torch.max, as sgl-kernel's fast_topk chooses.
std::vector<std::int64_t> largest_by_torch(std::span<const double> row, std::int64_t k);

}  // namespace dodona::ops
