#include "ops/kv_cache/create_chunked_prefix_cache_kv_indices.h"

#include <algorithm>

#include "core/random.h"
#include "core/threads.h"
#include "ops/base/golden_output.h"

namespace dodona::ops {
namespace {

using Chunks = CreateChunkedPrefixCacheKvIndices;

std::int64_t at(const Tensor& numbers, std::int64_t i) {
  const std::int64_t place = i * numbers.stride(0);
  return numbers.dtype() == i64 ? numbers.as<const std::int64_t>()[place] : numbers.as<const std::int32_t>()[place];
}

void make_outputs(Chunks& op) {
  const Tensor& ends = op.chunk_cu_seq_lens;
  if (op.chunk_kv_indices.defined() || !ends.defined() || ends.dtype() != i32 || ends.rank() != 1 || ends.size(0) == 0) return;
  // A sum beyond what the requests' rows hold is refused where the offsets are checked, so no memory is asked for it.
  const std::int64_t rows = ends.size(0) - 1, columns = op.req_to_token.rank() == 2 ? op.req_to_token.size(1) : 0;
  const std::int64_t end = std::max<std::int64_t>(0, at(ends, rows));
  op.chunk_kv_indices = Tensor(i32, {rows > 0 && columns >= end / rows ? end : 0});
}

void make_inputs(Chunks& op, std::uint64_t seed) {
  const InputDraw starts(seed, "chunk_start_idx");
  for (std::int64_t b = 0; b < op.chunk_seq_lens.elements(); ++b) {
    const std::int64_t length = at(op.chunk_cu_seq_lens, b + 1) - at(op.chunk_cu_seq_lens, b);
    const std::int64_t room = std::max<std::int64_t>(0, op.req_to_token.size(1) - length);
    op.chunk_seq_lens.as<std::int32_t>()[b] = static_cast<std::int32_t>(length);
    op.chunk_start_idx.as<std::int32_t>()[b] = static_cast<std::int32_t>(starts.below(b, static_cast<std::uint64_t>(room + 1)));
  }
}

void check(const Chunks& op) {
  const std::int64_t requests = op.chunk_seq_lens.size(0), columns = op.req_to_token.size(1);
  const auto fail = [](const char* argument, std::int64_t got, std::int64_t b, std::int64_t wanted, const char* why) {
    throw Error(ErrorCode::bad_value, "", argument,
                "holds " + std::to_string(got) + " at element " + std::to_string(b) + ", expected " + why + std::to_string(wanted));
  };
  std::int64_t end = 0;
  for (std::int64_t b = 0; b <= requests; ++b) {
    if (at(op.chunk_cu_seq_lens, b) != end)
      fail("chunk_cu_seq_lens", at(op.chunk_cu_seq_lens, b), b, end, "the running sum of chunk_seq_lens, ");
    if (b == requests) break;
    const std::int64_t start = at(op.chunk_start_idx, b), length = at(op.chunk_seq_lens, b);
    if (length > columns - start) fail("chunk_seq_lens", length, b, columns - start, "at most what req_to_token has behind the start, ");
    end += length;
  }
  if (op.chunk_kv_indices.size(0) != end)
    throw Error(
        ErrorCode::bad_shape, "", "chunk_kv_indices",
        "has shape " + to_string(op.chunk_kv_indices.shape()) + ", expected [" + std::to_string(end) + "] as chunk_cu_seq_lens ends");
}

void golden(const Chunks& op, const Exec&, Reference* reference) {
  for (std::int64_t b = 0; b < op.chunk_seq_lens.size(0); ++b)
    for (std::int64_t i = 0; i < at(op.chunk_seq_lens, b); ++i) {
      const std::int64_t token = at(op.req_pool_indices, b) * op.req_to_token.size(1) + at(op.chunk_start_idx, b) + i;
      quant::set_bits(op.chunk_kv_indices, at(op.chunk_cu_seq_lens, b) + i, quant::get_bits(op.req_to_token, token));
    }
  record_exact(op.chunk_kv_indices, reference, "chunk_kv_indices");
}

void fast(const Chunks& op, const Exec& exec) {
  parallel_for(exec.threads, op.chunk_seq_lens.size(0), 4096.0, [&](std::int64_t b) {
    const auto* const from =
        op.req_to_token.as<const std::int32_t>() + at(op.req_pool_indices, b) * op.req_to_token.stride(0) + at(op.chunk_start_idx, b);
    std::copy_n(from, at(op.chunk_seq_lens, b), op.chunk_kv_indices.as<std::int32_t>() + at(op.chunk_cu_seq_lens, b));
  });
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_create_chunked_prefix_cache_kv_indices() {
  return define<ops::CreateChunkedPrefixCacheKvIndices>({
      .contract = R"(
Whole numbers, copied. Here errors, where upstream reads or writes outside: a request or a chunk beyond req_to_token, offsets that are
not the running sums of the lengths, an output of another length than their end.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::fast,
      .make_outputs = ops::make_outputs,
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .cases = {"R=5 C=33 B=3 n=30", "R=2 C=300 B=5 n=250 --dtype req_pool_indices=i32", "R=1 C=1 B=1 n=1"},
      .bench_cases = {"R=64 C=16384 B=16 n=16384"},
  });
}
}  // namespace dodona
