#include <cmath>

#include "oracle/alternatives/families.h"
#include "quant/element.h"

namespace dodona::oracle::alternatives {
namespace {

/// Elements of a head that make pair p of `pairs`.
std::pair<std::int64_t, std::int64_t> pair_of(std::int64_t p, std::int64_t pairs, bool neox) {
  return neox ? std::pair(p, p + pairs) : std::pair(2 * p, 2 * p + 1);
}

/// own * c + partner * s; the products either both rounded, or the second fused.
float rotated(float own, float c, float partner, float s, Way way) {
  return way == Way::strided ? std::fma(partner, s, own * c) : own * c + partner * s;
}

float rotated_step_by_step(DType type, float own, float c, float partner, float s) {
  return rounded(type, rounded(type, own * c) + rounded(type, partner * s));
}

struct Table {
  std::vector<float> values;
  std::int64_t width;
  std::vector<std::int64_t> positions;

  float cosine(std::int64_t token, std::int64_t p) const { return at(token, p); }
  float sine(std::int64_t token, std::int64_t p) const { return at(token, p + width / 2); }

 private:
  float at(std::int64_t token, std::int64_t column) const {
    return values[static_cast<std::size_t>(positions[static_cast<std::size_t>(token)] * width + column)];
  }
};

Table table_of(const Call& call, std::string_view positions) {
  const Tensor& table = call.tensor("cos_sin_cache");
  return {floats(table), table.size(1), integers(call.tensor(positions))};
}

/// Rotates a tensor [tokens, heads * size] in place.
void rotate(const Call& call, const Table& table, const Tensor& x, bool step_by_step) {
  const auto tokens = static_cast<std::int64_t>(table.positions.size()), size = call.integer("head_size");
  const std::vector<float> before = floats(x);
  const std::int64_t heads = tokens > 0 ? x.elements() / tokens / size : 0;
  for (std::int64_t row = 0; row < tokens * heads; ++row)
    for (std::int64_t p = 0; p < table.width / 2; ++p) {
      const auto [i, j] = pair_of(p, table.width / 2, call.flag("is_neox"));
      const float u = before[static_cast<std::size_t>(row * size + i)], v = before[static_cast<std::size_t>(row * size + j)];
      const float c = table.cosine(row / heads, p), s = table.sine(row / heads, p);
      const bool steps = step_by_step;
      store(x, row * size + i, steps ? rotated_step_by_step(x.dtype(), u, c, v, -s) : rotated(u, c, v, -s, call.way));
      store(x, row * size + j, steps ? rotated_step_by_step(x.dtype(), v, c, u, s) : rotated(v, c, u, s, call.way));
    }
}

void copy_rows(const Tensor& from, const Tensor& to, const std::vector<std::int64_t>& slots) {
  const std::int64_t width = slots.empty() ? 0 : from.elements() / static_cast<std::int64_t>(slots.size());
  for (std::int64_t t = 0; t < static_cast<std::int64_t>(slots.size()); ++t)
    for (std::int64_t i = 0; i < width; ++i)
      quant::set_bits(to, slots[static_cast<std::size_t>(t)] * width + i, quant::get_bits(from, t * width + i));
}

}  // namespace

bool apply_rope_with_cos_sin_cache_inplace(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Table table = table_of(call, "positions");
  for (const char* name : {"query", "key"}) rotate(call, table, call.tensor(name), false);
  if (call.find("cache_loc") == nullptr) return true;
  const std::vector<std::int64_t> slots = integers(call.tensor("cache_loc"));
  copy_rows(call.tensor("key"), call.tensor("k_buffer"), slots);
  copy_rows(call.tensor("value"), call.tensor("v_buffer"), slots);
  return true;
}

bool rotary_embedding(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Table table = table_of(call, "positions");
  for (const char* name : {"query", "key"})
    if (call.find(name) != nullptr) rotate(call, table, call.tensor(name), call.tensor(name).dtype() != DType::f32);
  return true;
}

bool mla_rope_quantize_fp8(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Table table = table_of(call, "pos_ids");
  const auto tokens = static_cast<std::int64_t>(table.positions.size());
  for (const bool is_query : {true, false}) {
    const auto scale = static_cast<float>(call.number(is_query ? "quant_scale_q" : "quant_scale_kv"));
    const Tensor &rope_out = call.tensor(is_query ? "q_rope_out" : "k_rope_out"),
                 &nope_out = call.tensor(is_query ? "q_nope_out" : "k_nope_out");
    const std::vector<float> rope = floats(call.tensor(is_query ? "q_rope" : "k_rope")),
                             nope = floats(call.tensor(is_query ? "q_nope" : "k_nope"));
    for (std::size_t i = 0; i < nope.size(); ++i) store_fp8(nope_out, static_cast<std::int64_t>(i), nope[i] * scale);
    const std::int64_t rows = static_cast<std::int64_t>(rope.size()) / table.width, heads = tokens > 0 ? rows / tokens : 0;
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t p = 0; p < table.width / 2; ++p) {
        const auto [i, j] = pair_of(p, table.width / 2, call.flag("is_neox"));
        const float u = rope[static_cast<std::size_t>(row * table.width + i)], v = rope[static_cast<std::size_t>(row * table.width + j)];
        const float c = table.cosine(row / heads, p), s = table.sine(row / heads, p);
        store_fp8(rope_out, row * table.width + i, rotated(u, c, v, -s, call.way) * scale);
        store_fp8(rope_out, row * table.width + j, rotated(v, c, u, s, call.way) * scale);
      }
  }
  return true;
}

}  // namespace dodona::oracle::alternatives
