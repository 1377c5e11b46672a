// Coefficient tables of the H200's approximate functions. special.h evaluates them.
#pragma once

#include <array>
#include <cstdint>

namespace dodona::quant::hopper {

/// One segment: v = c0 + c1*J + c2*S(J), in exact integers; see special.h.
struct Quadratic {
  std::int64_t c0;
  std::int32_t c1, c2;
};

extern const std::array<Quadratic, 64> ex2_segments;
extern const std::array<Quadratic, 64> lg2_segments;
extern const std::array<Quadratic, 128> rcp_segments;
extern const std::array<Quadratic, 128> rsqrt_segments;
extern const std::array<Quadratic, 128> sqrt_segments;
extern const std::array<Quadratic, 51> tanh_segments;

}  // namespace dodona::quant::hopper
