#include "ops/nsa/fp8_mqa_logits.h"

#include <algorithm>

#include "core/random.h"

namespace dodona::ops {

MqaLogits Fp8MqaLogits::call() const {
  const std::int64_t keys = kv.size(0), heads = q.size(1), width = q.size(2);
  MqaLogits call{heads, width, clean_logits, logits, {}};
  for (std::int64_t m = 0; m < q.size(0); ++m) {
    // As upstream: negative numbers are large ones.
    const auto bound = [&](const Tensor& t) { return std::min<std::int64_t>(t.as<const std::uint32_t>()[m], keys); };
    const std::int64_t begin = bound(cu_seq_len_k_start), end = std::max(begin, bound(cu_seq_len_k_end));
    LogitRow row{q.as<const std::byte>() + m * heads * width, weights.as<const float>() + m * weights.stride(0), begin, end, {}};
    // Parts that threads share out.
    constexpr std::int64_t part = 4096;
    for (std::int64_t n = begin; n < end; n += part)
      row.runs.push_back({n, std::min(part, end - n), kv.as<const std::byte>() + n * width, kv_sf.as<const float>() + n});
    call.rows.push_back(std::move(row));
  }
  return call;
}

namespace {

void make_inputs(Fp8MqaLogits& op, std::uint64_t seed) {
  const InputDraw draw(seed, "cu_seq_len_k_end");
  for (std::int64_t m = 0; m < op.q.size(0); ++m) {
    const std::int32_t start = op.cu_seq_len_k_start.as<const std::int32_t>()[m];
    const auto room = static_cast<std::uint64_t>(std::max<std::int64_t>(1, op.kv.size(0) - start));
    op.cu_seq_len_k_end.as<std::int32_t>()[m] = start + 1 + static_cast<std::int32_t>(draw.below(m, room));
  }
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_fp8_mqa_logits() {
  auto op = ops::mqa_logits_op<ops::Fp8MqaLogits>("logits[m, n] = kv_sf[n] * sum_h weights[m, h] * max(0, q[m, h] . kv[n]).");
  op.contract_version = 2;
  op.make_inputs = ops::make_inputs;
  op.cases = {"M=3 H=64 D=128 N=150", "M=4 H=32 D=64 N=77 --attr clean_logits=false", "M=2 H=8 D=32 N=40 --dist outliers"};
  op.bench_cases = {"M=64 H=64 D=128 N=4096"};
  return define<ops::Fp8MqaLogits>(std::move(op));
}
}  // namespace dodona
