#include "ops/base/ftz_rows.h"

#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

void one_by_one(FtzOperation operation, const float* x, const float* y, const float* z, int n, float* to) {
  namespace hw = quant::hopper;
  for (int i = 0; i < n; ++i) {
    switch (operation) {
      case FtzOperation::mul: to[i] = hw::mul(x[i], y[i]); break;
      case FtzOperation::add: to[i] = hw::add(x[i], y[i]); break;
      case FtzOperation::fma: to[i] = hw::fma(x[i], y[i], z[i]); break;
    }
  }
}

}  // namespace

void mul_ftz(const float* x, const float* y, std::int64_t n, float* to, Isa isa) {
  dispatch<FtzRowKernel>(isa, FtzRow{FtzOperation::mul, x, y, nullptr, n, to, one_by_one});
}
void add_ftz(const float* x, const float* y, std::int64_t n, float* to, Isa isa) {
  dispatch<FtzRowKernel>(isa, FtzRow{FtzOperation::add, x, y, nullptr, n, to, one_by_one});
}
void fma_ftz(const float* x, const float* y, const float* z, std::int64_t n, float* to, Isa isa) {
  dispatch<FtzRowKernel>(isa, FtzRow{FtzOperation::fma, x, y, z, n, to, one_by_one});
}

}  // namespace dodona::ops
