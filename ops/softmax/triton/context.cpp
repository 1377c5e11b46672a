#include "ops/softmax/triton/context.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "core/threads.h"
#include "ops/softmax/triton/arithmetic.h"
#include "quant/element.h"

namespace dodona::ops {
namespace {

constexpr std::int64_t block = 128;
constexpr float infinity = std::numeric_limits<float>::infinity();
using Floats = std::vector<float>;
using Codes = std::vector<std::uint16_t>;

const std::uint16_t* row_of(const Tensor& t, std::int64_t token, std::int64_t head) {
  return t.as<const std::uint16_t>() + token * t.stride(0) + head * t.stride(1);
}

/// Sum and maximum of a row so far.
struct Running {
  float sum = 0, top = -infinity;
};

/// One block of a row: scores become weights, as they are before their rounding. Returns what earlier sums are multiplied with.
float weigh(Running& row, std::span<float> p) {
  float top = -infinity;
  for (const float x : p) top = std::fmax(top, x);
  for (float& x : p) x = triton::exp(x - top);
  const float largest = std::fmax(row.top, top), before = triton::exp(row.top - largest), now = triton::exp(top - largest);
  const float sum = std::fma(row.sum, before, now * triton::row_sum(p));
  const float share = triton::div(now, sum), factor = before * triton::div(row.sum, sum);
  for (float& x : p) x = x * share;
  row = {sum, largest};
  return factor;
}

/// Rows of one head from token `first` of a request on.
void rows_of_block(const Ragged& call, const RaggedRequest& request, std::int64_t head, std::int64_t first, Isa isa) {
  const DType type = call.query.dtype();
  const std::int64_t width = call.query.size(2), tokens = request.queries, count = std::min(block, tokens - first);
  const std::int64_t key_head = head / (call.query.size(1) / call.key.size(1));
  const std::int64_t end = request.causal ? std::min(first + block, tokens) : tokens;
  const auto scale = static_cast<float>(call.scale);
  std::vector<Running> rows(static_cast<std::size_t>(count));
  Floats sums(static_cast<std::size_t>(count * width));
  for (std::int64_t n = 0; n < end; n += block) {
    Codes keys(static_cast<std::size_t>(block * width)), values(keys.size());
    for (std::int64_t j = 0; j < std::min(block, tokens - n); ++j) {
      std::copy_n(row_of(call.key, request.first_key + n + j, key_head), width, keys.data() + j * width);
      const std::uint16_t* const value = row_of(call.value, request.first_key + n + j, key_head);
      for (std::int64_t d = 0; d < width; ++d) values[static_cast<std::size_t>(d * block + j)] = value[d];
    }
    Floats scores(static_cast<std::size_t>(count * block));
    triton::multiply(type, {row_of(call.query, request.first_query + first, head), count, call.query.stride(0)},
                     {keys.data(), block, width}, width, scores.data(), block, isa);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::span<float> p(scores.data() + i * block, static_cast<std::size_t>(block));
      for (std::int64_t j = 0; j < block; ++j) {
        const bool seen = n + j < tokens && (!request.causal || n + j <= first + i);
        float& x = p[static_cast<std::size_t>(j)];
        x = std::fma(scale, x, seen ? 0.0f : -infinity);
      }
      const float factor = weigh(rows[static_cast<std::size_t>(i)], p);
      for (std::int64_t d = 0; d < width; ++d) sums[static_cast<std::size_t>(i * width + d)] *= factor;
    }
    Codes weights(scores.size());
    quant::from_f32(type, scores.data(), weights.data(), static_cast<std::int64_t>(scores.size()));
    triton::multiply(type, {weights.data(), count, block}, {values.data(), width, block}, block, sums.data(), width, isa);
  }
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t d = 0; d < width; ++d)
      quant::set(call.out, ((request.first_query + first + i) * call.query.size(1) + head) * width + d,
                 static_cast<double>(sums[static_cast<std::size_t>(i * width + d)]));
}

}  // namespace

void triton_context_hopper(const Ragged& call, const std::vector<RaggedRequest>& requests, const Exec& exec) {
  struct Task {
    const RaggedRequest* request;
    std::int64_t head, first;
  };
  std::vector<Task> tasks;
  for (const RaggedRequest& request : requests)
    for (std::int64_t first = 0; first < request.queries; first += block)
      for (std::int64_t head = 0; head < call.query.size(1); ++head) tasks.push_back({&request, head, first});
  parallel_for(exec.threads, static_cast<std::int64_t>(tasks.size()), 1e7, [&](std::int64_t i) {
    const Task& task = tasks[static_cast<std::size_t>(i)];
    rows_of_block(call, *task.request, task.head, task.first, exec.isa);
  });
}

}  // namespace dodona::ops
