#include "ops/rope/rotary_embedding.h"

#include "ops/rows/rotation/rotate.h"

namespace dodona::ops {
namespace {

/// What the schema cannot tell: which dimensions number the tokens.
void check_heads(const RotaryEmbedding& op, const char* name, const Tensor& tensor) {
  const int token_dims = op.positions.rank();
  const bool flat = tensor.rank() == token_dims + 1, explicit_heads = tensor.rank() == token_dims + 2;
  bool fits = flat ? tensor.size(-1) % op.head_size == 0 : explicit_heads && tensor.size(-1) == op.head_size;
  for (int d = 0; fits && d < token_dims; ++d) fits = tensor.size(d) == op.positions.size(d);
  if (fits) return;
  const std::string tokens = token_dims == 1 ? "T" : "B, S";
  throw Error(ErrorCode::bad_shape, "", name,
              "has shape " + to_string(tensor.shape()) + ", expected [" + tokens + ", heads*head_size] or [" + tokens +
                  ", heads, head_size] with [" + tokens + "] = " + to_string(op.positions.shape()) +
                  " (from positions), head_size = " + std::to_string(op.head_size));
}

void check(const RotaryEmbedding& op) {
  check_table(op.cos_sin_cache, op.head_size);
  check_heads(op, "query", op.query);
  if (!op.key.defined()) return;
  check_heads(op, "key", op.key);
  const Heads query = heads_of(op.query, op.positions.rank(), op.head_size), key = heads_of(op.key, op.positions.rank(), op.head_size);
  const std::string counts = std::to_string(key.count) + " heads and query has " + std::to_string(query.count);
  if (key.count == 0 ? query.count != 0 : query.count % key.count != 0)
    throw Error(ErrorCode::bad_shape, "", "key", "has " + counts + ", expected a divisor of the query's");
  // The kernel steps over both with the query's stride.
  if (key.count > 1 && key.head_stride != query.head_stride)
    throw Error(ErrorCode::bad_stride, "", "key",
                "has strides " + to_string(op.key.strides()) + " for shape " + to_string(op.key.shape()) +
                    ", expected heads as far apart as those of query " + to_string(op.query.shape()) + " with strides " +
                    to_string(op.query.strides()));
}

Rotation rotation_of(const RotaryEmbedding& op) {
  return {.query = op.query,
          .key = op.key,
          .positions = op.positions,
          .table = op.cos_sin_cache,
          .head_size = op.head_size,
          .neox = op.is_neox,
          .rounding = op.query.dtype() == f32 ? RotaryRounding::once : RotaryRounding::each_step};
}

void golden(const RotaryEmbedding& op, const Exec& exec, Reference* reference) {
  rotate_golden(rotation_of(op), exec, reference);
}

void fast(const RotaryEmbedding& op, const Exec& exec) {
  rotate_fast(rotation_of(op), exec);
}

void hopper(const RotaryEmbedding& op, const Exec& exec) {
  rotate_hopper(rotation_of(op), FusedProduct::partner, exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_rotary_embedding() {
  return define<ops::RotaryEmbedding>({
      .contract = R"(
With c, s the cosine and sine of the pair at the token's position, in the type: bf16 and f16: round(round(first*c) -
round(second*s)) and round(round(second*c) + round(first*s)), each rounding to the type (nearest even): nothing is open, except
in bf16 what flushed denormals carry. fp32: first*c - second*s and second*c + first*s in fp32; either product may be fused with
the sum, and what its rounding changes is the budget. Elements from R on keep their bits. A product that overflows fp32 leaves
an fp32 element open.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .check = ops::check,
      .bytes_read = [](const ops::RotaryEmbedding& op) { return ops::rope_bytes_read(op.positions, op.query, op.key, op.cos_sin_cache); },
      .customary = {{"*", CustomaryKind::below, 0, 1e-2, "sgl-kernel/tests/test_mm_rotary_embedding.py (bf16, f16)"}},
      .cases = {"T=4 P=256 R=64 Nq=128 Nk=1 --attr head_size=64 --attr is_neox=false", "T=5 P=128 R=64 Nq=16 Nk=4 --attr head_size=64",
                "T=3 P=64 R=64 Nq=8 Nk=8 --attr head_size=128 --attr is_neox=false --dtype query=f16",
                "T=3 P=64 R=64 Nq=4 --attr head_size=64 --dtype query=f32",
                "T=3 P=64 R=22 Nq=4 Nk=2 --attr head_size=23 --dtype positions=i32 --dist edge"},
      .bench_cases = {"T=1 P=163840 R=64 Nq=128 Nk=1 --attr head_size=64 --attr is_neox=false",
                      "T=512 P=163840 R=64 Nq=128 Nk=1 --attr head_size=64 --attr is_neox=false",
                      "T=512 P=163840 R=64 Nq=128 Nk=1 --attr head_size=64"},
  });
}
}  // namespace dodona
