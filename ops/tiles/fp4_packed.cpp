#include "ops/tiles/fp4_packed.h"

#include <string>
#include <vector>

#include "core/threads.h"
#include "dodona/error.h"
#include "ops/tiles/fp4_multiply.h"
#include "quant/sizes.h"

namespace dodona::ops {
namespace {

using enum DType;

[[noreturn]] void fail(ErrorCode code, const char* op, const std::string& argument, const std::string& message) {
  throw Error(code, op, argument, message);
}

void require_matrix(const char* op, const char* argument, const Tensor& t, DType type, const Dims& shape) {
  if (!t.defined()) fail(ErrorCode::missing_argument, op, argument, "is missing");
  if (t.dtype() != type)
    fail(ErrorCode::bad_dtype, op, argument, "has dtype " + std::string(name(t.dtype())) + ", expected " + std::string(name(type)));
  if (!(t.shape() == shape))
    fail(ErrorCode::bad_shape, op, argument, "has shape " + to_string(t.shape()) + ", expected " + to_string(shape));
  if (!t.contiguous()) fail(ErrorCode::bad_stride, op, argument, "has strides " + to_string(t.strides()) + ", expected contiguous");
}

void require_rank_2(const char* op, const char* argument, const Tensor& t) {
  if (!t.defined()) fail(ErrorCode::missing_argument, op, argument, "is missing");
  if (t.rank() != 2) fail(ErrorCode::bad_shape, op, argument, "has shape " + to_string(t.shape()) + ", expected rank 2");
}

void require_output(const char* op, const Tensor& out, std::int64_t m, std::int64_t n) {
  if (out.defined() && out.dtype() != bf16 && out.dtype() != f16 && out.dtype() != f32)
    fail(ErrorCode::bad_dtype, op, "out", "has dtype " + std::string(name(out.dtype())) + ", expected one of bf16, f16, f32");
  require_matrix(op, "out", out, out.defined() ? out.dtype() : bf16, {m, n});
  if (!out.writable()) fail(ErrorCode::bad_value, op, "out", "is read-only, expected writable memory");
}

}  // namespace

PackedFp4 PackedFp4::pack(const Tensor& b, const Tensor& block_scale_b, const Exec& exec) {
  constexpr const char* op = "PackedFp4";
  require_rank_2(op, "b", b);
  const std::int64_t n = b.size(0), k = b.size(1) * 2;
  require_matrix(op, "b", b, u8, {n, k / 2});
  if (n % 32 != 0 || k % 32 != 0)
    fail(ErrorCode::bad_shape, op, "b", "has shape " + to_string(b.shape()) + ", expected N and K to be multiples of 32");
  require_matrix(op, "block_scale_b", block_scale_b, f8_e4m3, {quant::align(n, 128), quant::align(k / 16, 4)});
  PackedFp4 packed;
  packed.n_ = n;
  packed.k_ = k;
  packed.memory_ = Tensor(u8, {n / fp4_panel_rows * fp4_panel_bytes(k)});
  const Fp4Weights raw{nullptr, b.as<std::uint8_t>(), block_scale_b.as<std::uint8_t>(), n, k};
  parallel_for(exec.threads, n / fp4_panel_rows, static_cast<double>(k), [&](std::int64_t panel) {
    dispatch<Fp4PackKernel>(exec.isa, raw, panel, packed.memory_.as<std::uint8_t>() + panel * fp4_panel_bytes(k));
  });
  return packed;
}

void fp4_mm_packed(const Tensor& a, const Tensor& a_scale, const PackedFp4& b, float alpha, const Tensor& out, const Exec& exec) {
  constexpr const char* op = "fp4_mm_packed";
  require_rank_2(op, "a", a);
  if (b.empty()) fail(ErrorCode::missing_argument, op, "b", "is empty");
  const std::int64_t m = a.size(0);
  require_matrix(op, "a", a, u8, {m, b.k() / 2});
  require_matrix(op, "a_scale", a_scale, f8_e4m3, {quant::align(m, 128), quant::align(b.k() / 16, 4)});
  require_output(op, out, m, b.n());
  const Fp4Group group{0, m, 0, b.weights(), alpha};
  fp4_multiply({&group, 1}, a, a_scale, out, exec);
}

void fp4_group_mm_packed(const Tensor& a, const Tensor& a_scale, std::span<const PackedFp4Group> groups, const Tensor& out,
                         const Exec& exec) {
  constexpr const char* op = "fp4_group_mm_packed";
  require_rank_2(op, "a", a);
  require_rank_2(op, "a_scale", a_scale);
  require_rank_2(op, "out", out);
  const std::int64_t m = a.size(0), k = a.size(1) * 2, n = out.size(1), scale_rows = a_scale.size(0);
  require_matrix(op, "a", a, u8, {m, k / 2});
  require_matrix(op, "a_scale", a_scale, f8_e4m3, {scale_rows, quant::align(k / 16, 4)});
  require_output(op, out, m, n);
  std::vector<Fp4Group> checked;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const PackedFp4Group& group = groups[i];
    const std::string which = "groups[" + std::to_string(i) + "]";
    if (group.rows == 0) continue;
    if (group.weights == nullptr || group.weights->empty()) fail(ErrorCode::missing_argument, op, which, "has rows and no weights");
    if (group.weights->n() != n || group.weights->k() != k)
      fail(ErrorCode::bad_shape, op, which,
           "has weights [" + std::to_string(group.weights->n()) + ", " + std::to_string(group.weights->k()) + "], expected [" +
               std::to_string(n) + ", " + std::to_string(k) + "]");
    if (group.row < 0 || group.rows < 0 || group.rows > m - group.row)
      fail(ErrorCode::bad_value, op, which,
           "has " + std::to_string(group.rows) + " rows from " + std::to_string(group.row) + ", expected rows below " + std::to_string(m));
    if (group.scale_row < 0 || group.scale_row % 128 != 0 || group.scale_row > scale_rows - quant::align(group.rows, 128))
      fail(ErrorCode::bad_value, op, which,
           "has its scales at row " + std::to_string(group.scale_row) + ", expected a multiple of 128 with " +
               std::to_string(quant::align(group.rows, 128)) + " rows below " + std::to_string(scale_rows));
    checked.push_back({group.row, group.rows, group.scale_row, group.weights->weights(), group.alpha});
  }
  fp4_multiply(checked, a, a_scale, out, exec);
}

}  // namespace dodona::ops
