#include "ops/nsa/fp8_paged_mqa_logits.h"

#include <algorithm>
#include <bit>

#include "core/random.h"

namespace dodona::ops {

MqaLogits Fp8PagedMqaLogits::call() const {
  const std::int64_t queries = q.size(1), heads = q.size(2), width = q.size(3), page_bytes = page * (width + 4);
  MqaLogits call{heads, width, clean_logits, logits, {}};
  for (std::int64_t b = 0; b < q.size(0); ++b)
    for (std::int64_t j = 0; j < queries; ++j) {
      const std::int64_t m = b * queries + j;
      const std::int64_t end = std::max<std::int64_t>(0, context_lens.as<const std::int32_t>()[b] - queries + j + 1);
      LogitRow row{q.as<const std::byte>() + m * heads * width, weights.as<const float>() + m * weights.stride(0), 0, end, {}};
      for (std::int64_t n = 0; n < end; n += page) {
        const std::int64_t id = block_table.as<const std::int32_t>()[b * block_table.stride(0) + n / page];
        const auto* const keys = fused_kv_cache.as<const std::byte>() + id * page_bytes;
        row.runs.push_back({n, std::min(page, end - n), keys, reinterpret_cast<const float*>(keys + page * width)});
      }
      call.rows.push_back(std::move(row));
    }
  return call;
}

namespace {

[[noreturn]] void bad(const char* argument, std::int64_t value, std::int64_t at, const std::string& expected) {
  throw Error(ErrorCode::bad_value, "", argument,
              "holds " + std::to_string(value) + " at element " + std::to_string(at) + ", expected " + expected);
}

void check(const Fp8PagedMqaLogits& op) {
  const std::int64_t most = std::min(op.max_context_len, op.block_table.size(1) * Fp8PagedMqaLogits::page),
                     pages = op.fused_kv_cache.size(0);
  for (std::int64_t b = 0; b < op.q.size(0); ++b) {
    const std::int64_t length = op.context_lens.as<const std::int32_t>()[b];
    if (length < 0 || length > most)
      bad("context_lens", length, b, "0 to " + std::to_string(most) + ", as max_context_len and the columns of block_table allow");
    for (std::int64_t w = 0; w * Fp8PagedMqaLogits::page < length; ++w)
      if (const std::int64_t id = op.block_table.as<const std::int32_t>()[b * op.block_table.stride(0) + w]; id < 0 || id >= pages)
        bad("block_table", id, b * op.block_table.size(1) + w, "a page of fused_kv_cache, 0 to " + std::to_string(pages - 1));
  }
}

void make_inputs(Fp8PagedMqaLogits& op, std::uint64_t seed) {
  const InputDraw draw(seed, "fused_kv_cache");
  const std::int64_t keys = Fp8PagedMqaLogits::page * op.q.size(3), page_bytes = keys + 4 * Fp8PagedMqaLogits::page;
  auto* const bytes = op.fused_kv_cache.as<std::byte>();
  for (std::int64_t first = 0; first < op.fused_kv_cache.elements(); first += page_bytes) {
    for (std::int64_t i = 0; i < keys; ++i) {
      const auto code = static_cast<unsigned>(draw.below(first + i, 254));
      bytes[first + i] = static_cast<std::byte>(code < 0x7F ? code : code + 1);
    }
    for (std::int64_t at = first + keys; at < first + page_bytes; at += 4) {
      const auto bits = static_cast<std::uint32_t>(127 - 8 + draw.below(at, 16)) << 23;
      for (int i = 0; i < 4; ++i) bytes[at + i] = static_cast<std::byte>(bits >> 8 * i);
    }
  }
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_fp8_paged_mqa_logits() {
  auto op = ops::mqa_logits_op<ops::Fp8PagedMqaLogits>(
      "logits[b * Q + j, n] = s[n] * sum_h weights[b * Q + j, h] * max(0, q[b, j, h] . k[n]) for n <= context_lens[b] - Q + j. Lengths "
      "beyond max_context_len or the table, and pages outside of the cache, are errors; upstream does not look.");
  op.check = ops::check;
  op.contract_version = 2;
  op.make_inputs = ops::make_inputs;
  op.cases = {"B=2 Q=1 H=64 D=128 pages=5 W=2 --attr max_context_len=128",
              "B=2 Q=2 H=32 D=64 pages=7 W=3 --attr max_context_len=150 --attr clean_logits=true",
              "B=1 Q=1 H=8 D=32 pages=1 W=1 parts=133 --with schedule_meta --attr max_context_len=40"};
  op.bench_cases = {"B=8 Q=1 H=64 D=128 pages=512 W=64 --attr max_context_len=4096"};
  return define<ops::Fp8PagedMqaLogits>(std::move(op));
}
}  // namespace dodona
