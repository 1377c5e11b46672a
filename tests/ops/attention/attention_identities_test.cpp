// What attention is in whatever kernel: identities of the softmax, over every op whose keys lie in a pool.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/ops/helpers.h"
#include "tests/ops/ints.h"

namespace dodona {
namespace {

using namespace helpers;

/// Rows of a matrix, which may be strided, under leading dimensions of one and with some of their columns.
Tensor columns(const Tensor& t, std::int64_t begin, std::int64_t end, int leading) {
  auto* const data = t.as<std::uint16_t>() + begin;
  if (leading == 1) return {data, t.dtype(), {1, t.size(0), end - begin}, {t.size(0) * t.stride(0), t.stride(0), 1}};
  return {data, t.dtype(), {1, 1, t.size(0), end - begin}, {t.size(0) * t.stride(0), t.size(0) * t.stride(0), t.stride(0), 1}};
}
Tensor table(const std::vector<std::int32_t>& values, const Dims& shape) {
  return ints(values).reshape(shape);
}

constexpr std::int64_t heads = 4, pool = 192;  // tokens of the pool
constexpr double scale = 0.0721687836;

/// Attention of one query token to tokens of a pool of MLA rows, by one of the ops.
struct Kernel {
  const char* op;
  std::int64_t page;  ///< tokens of a page; 1: tokens are named one by one
  std::function<Arguments(const Tensor& q, const Tensor& rows, const std::vector<std::int32_t>& pages, std::int32_t length)> call;
  bool hopper = false;

  /// [heads, 512].
  Tensor run(Mode mode, const Tensor& q, const Tensor& rows, const std::vector<std::int32_t>& pages, std::int32_t length) const {
    const Tensor o = NamedOp{op}.outputs(call(q, rows, pages, length), in_mode(mode)).front().second;
    return o.reshape({o.elements() / 512, 512}).slice(0, 0, q.size(0));
  }
  std::int64_t failing(const Tensor& q, const Tensor& rows, const std::vector<std::int32_t>& pages, std::int32_t length,
                       const Tensor& o) const {
    const Arguments a = call(q, rows, pages, length);
    oracle::NamedTensors outputs = NamedOp{op}.outputs(a, in_mode(Mode::golden));
    outputs.front().second = o.reshape(outputs.front().second.shape());
    return NamedOp{op}.failing(a, outputs);
  }
  std::vector<Mode> modes() const {
    return hopper ? std::vector<Mode>{Mode::golden, Mode::fast, Mode::hopper} : std::vector<Mode>{Mode::golden, Mode::fast};
  }
};

Tensor with_heads(const Tensor& q, std::int64_t count) {
  Tensor more(q.dtype(), {count, q.size(1)});
  for (std::int64_t i = 0; i < more.elements(); ++i) quant::set(more, i, quant::get(q, i % q.elements()));
  return more;
}

Arguments paged(const char* table_name, const char* lengths_name, const Tensor& rows, std::int64_t page,
                const std::vector<std::int32_t>& pages, std::int32_t length) {
  Arguments a;
  a.set(table_name, table(pages, {1, static_cast<std::int64_t>(pages.size())}));
  a.set(lengths_name, ints({length}));
  a.set(std::string(table_name) == "page_table" ? "kv_c_and_k_pe_cache" : "kv_cache", rows.reshape({pool / page, page, 576}));
  return a;
}

Kernel trtllm(std::int64_t page) {
  return {"trtllm_batch_decode_with_kv_cache_mla", page,
          [page](const Tensor& q, const Tensor& rows, const std::vector<std::int32_t>& pages, std::int32_t length) {
            Arguments a = paged("block_tables", "seq_lens", rows, page, pages, length);
            a.set("query", columns(q, 0, 576, 2));
            a.set_attr("bmm1_scale", scale);
            return a;
          }};
}

std::vector<Kernel> kernels() {
  std::vector<Kernel> list{trtllm(32), trtllm(64)};
  list.push_back({"xqa_batch_decode_with_kv_cache_mla", 32,
                  [](const Tensor& q, const Tensor& rows, const std::vector<std::int32_t>& pages, std::int32_t length) {
                    Arguments a = paged("block_tables", "seq_lens", rows, 32, pages, length);
                    a.set("query", with_heads(q, 128).reshape({1, 1, 128, 576}));
                    a.set_attr("bmm1_scale", scale);
                    return a;
                  }});
  for (const std::int64_t page : {1, 16, 32, 64, 128})
    list.push_back({"cutlass_mla_decode", page,
                    [page](const Tensor& q, const Tensor& rows, const std::vector<std::int32_t>& pages, std::int32_t length) {
                      // The table's width is a multiple of 128 / page.
                      std::vector<std::int32_t> wide = pages;
                      while (static_cast<std::int64_t>(wide.size()) % (128 / page) != 0) wide.push_back(-1);
                      const std::int64_t whole = pool / page * page;
                      Arguments a;
                      a.set("page_table", table(wide, {1, static_cast<std::int64_t>(wide.size())}));
                      a.set("seq_lens", ints({length}));
                      a.set("kv_c_and_k_pe_cache", rows.slice(0, 0, whole).reshape({whole / page, page, 576}));
                      a.set("q_nope", columns(q, 0, 512, 1));
                      a.set("q_pe", columns(q, 512, 576, 1));
                      a.set_attr("sm_scale", scale);
                      return a;
                    }});
  for (const std::int64_t page : {1, 16, 64})
    list.push_back({"batch_mla_paged_attention", page,
                    [page](const Tensor& q, const Tensor& rows, const std::vector<std::int32_t>& pages, std::int32_t length) {
                      Arguments a;
                      const Tensor cache = rows.reshape({pool / page, page, 576});
                      a.set("q_nope", columns(q, 0, 512, 1));
                      a.set("q_pe", columns(q, 512, 576, 1));
                      a.set("ckv_cache", cache.slice(2, 0, 512));
                      a.set("kpe_cache", cache.slice(2, 512, 576));
                      a.set("qo_indptr", ints({0, 1}));
                      a.set("kv_indptr", ints({0, static_cast<std::int32_t>(pages.size())}));
                      a.set("kv_indices", ints(pages));
                      a.set("kv_len_arr", ints({length}));
                      a.set_attr("sm_scale", scale);
                      return a;
                    }});
  const auto by_slots = [](bool values_in_keys) {
    return [=](const Tensor& q, const Tensor& rows, const std::vector<std::int32_t>& pages, std::int32_t length) {
      Arguments a;
      a.set("q", columns(q, 0, 576, 1));
      a.set("k_buffer", rows.reshape({pool, 1, 576}));
      a.set("kv_indptr", ints({0, length}));
      a.set("kv_indices", ints({pages.begin(), pages.begin() + length}));
      if (values_in_keys) {
        a.set_attr("v_is_slice_of_k", true);
        a.set("num_kv_splits", ints({3}));
      } else {
        a.set("v_buffer", rows.reshape({pool, 1, 576}).slice(2, 0, 512));
        a.set_attr("num_kv_splits", std::int64_t{3});
      }
      a.set_attr("sm_scale", scale);
      return a;
    };
  };
  list.push_back({"decode_attention_fwd", 1, by_slots(true), true});
  list.push_back({"decode_attention_fwd_grouped_rope", 1, by_slots(false), true});
  list.push_back({"trtllm_batch_decode_sparse_mla", 1,
                  [](const Tensor& q, const Tensor& rows, const std::vector<std::int32_t>& pages, std::int32_t length) {
                    Arguments a;
                    std::vector<std::int32_t> chosen = pages;
                    std::fill(chosen.begin() + length, chosen.end(), -1);
                    a.set("query", columns(q, 0, 576, 2));
                    a.set("kv_cache", rows.reshape({pool / 32, 32, 576}));
                    a.set("block_tables", table(chosen, {1, 1, static_cast<std::int64_t>(chosen.size())}));
                    a.set_attr("bmm1_scale", scale);
                    return a;
                  }});
  return list;
}

/// Every page of the pool in an order that is not the pool's.
std::vector<std::int32_t> all_pages(std::int64_t page) {
  const auto count = static_cast<std::int32_t>(pool / page);
  std::vector<std::int32_t> pages;
  for (std::int32_t i = 0; i < count; ++i) pages.push_back(count - 1 - i);
  return pages;
}
std::int32_t tokens_of(std::int64_t page) {
  return static_cast<std::int32_t>(pool / page * page);
}

const Tensor& queries() {
  static const Tensor q = normal(DType::bf16, {heads, 576}, "q");
  return q;
}
const Tensor& rows() {
  static const Tensor r = normal(DType::bf16, {pool, 576}, "rows");
  return r;
}

TEST(AttentionIdentities, OneKeyGivesItsValue) {
  for (const Kernel& k : kernels())
    for (const Mode mode : k.modes()) {
      const Tensor o = k.run(mode, queries(), rows(), all_pages(k.page), 1);
      const std::int64_t first = (pool / k.page - 1) * k.page;
      for (std::int64_t i = 0; i < heads * 512; ++i)
        ASSERT_EQ(quant::get(o, i), quant::get(rows(), first * 576 + i % 512)) << k.op << " page " << k.page << " " << name(mode);
    }
}

TEST(AttentionIdentities, LengthsAtTheEdgesOfPagesAndTilesAreWithinTheBudget) {
  for (const Kernel& k : kernels())
    for (const std::int32_t length : {1, 31, 32, 33, 63, 64, 65, 127, 128}) {
      if (length > tokens_of(k.page)) continue;
      for (const Mode mode : k.modes()) {
        if (mode == Mode::golden) continue;
        const Tensor o = NamedOp{k.op}.outputs(k.call(queries(), rows(), all_pages(k.page), length), in_mode(mode)).front().second;
        EXPECT_EQ(k.failing(queries(), rows(), all_pages(k.page), length, o), 0)
            << k.op << " page " << k.page << " " << length << name(mode);
      }
    }
}

TEST(AttentionIdentities, WhatLiesBehindTheTokensHasNoEffect) {
  for (const Kernel& k : kernels()) {
    const std::int32_t length = std::min<std::int32_t>(77, tokens_of(k.page));
    const std::vector<std::int32_t> pages = all_pages(k.page);
    Tensor poisoned = rows().clone();
    for (std::int64_t token = 0; token < pool; ++token) {
      const auto at = std::find(pages.begin(), pages.end(), static_cast<std::int32_t>(token / k.page));
      if (at != pages.end() && (at - pages.begin()) * k.page + token % k.page < length) continue;
      for (std::int64_t d = 0; d < 576; ++d)
        quant::set(poisoned, token * 576 + d, d % 2 == 0 ? infinity : std::numeric_limits<double>::quiet_NaN());
    }
    for (const Mode mode : k.modes())
      EXPECT_TRUE(same_bits(k.run(mode, queries(), rows(), pages, length), k.run(mode, queries(), poisoned, pages, length)))
          << k.op << " page " << k.page << " " << name(mode);
  }
}

TEST(AttentionIdentities, TheOrderOfTheKeysDoesNotMatterWithinTheBudget) {
  for (const Kernel& k : kernels()) {
    std::vector<std::int32_t> pages = all_pages(k.page), turned = pages;
    std::reverse(turned.begin(), turned.end());
    for (const Mode mode : k.modes()) {
      const Tensor o = NamedOp{k.op}.outputs(k.call(queries(), rows(), turned, tokens_of(k.page)), in_mode(mode)).front().second;
      EXPECT_EQ(k.failing(queries(), rows(), pages, tokens_of(k.page), o), 0) << k.op << " page " << k.page << " " << name(mode);
    }
  }
}

TEST(AttentionIdentities, KeysThatAreAllAlikeGiveTheMeanOfTheValues) {
  Tensor alike = rows().clone();
  // Scores of latent parts that a query of zeros there does not see: all equal.
  Tensor q = queries().clone();
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t d = 0; d < 576; ++d) quant::set(q, h * 576 + d, 0.0);
  for (const Kernel& k : kernels()) {
    const std::int32_t length = std::min<std::int32_t>(64, tokens_of(k.page));
    std::vector<std::int32_t> pages = all_pages(k.page);
    const Tensor o = k.run(Mode::golden, q, alike, pages, length);
    for (std::int64_t d = 0; d < 512; d += 37) {
      double sum = 0;
      for (std::int32_t j = 0; j < length; ++j)
        sum += quant::get(alike, (pages[static_cast<std::size_t>(j / k.page)] * k.page + j % k.page) * 576 + d);
      EXPECT_EQ(quant::get(o, d), quant::round_to(DType::bf16, sum / length)) << k.op << " page " << k.page;
    }
  }
}

TEST(AttentionIdentities, AnotherScoreForAllKeysChangesNothing) {
  // One more column that all keys have alike: softmax does not see it.
  Tensor shifted = rows().clone();
  for (std::int64_t j = 0; j < pool; ++j) quant::set(shifted, j * 576 + 575, 3.0);
  Tensor with = queries().clone(), without = queries().clone();
  for (std::int64_t h = 0; h < heads; ++h) quant::set(with, h * 576 + 575, 2.0), quant::set(without, h * 576 + 575, 0.0);
  for (const Kernel& k : kernels())
    EXPECT_TRUE(same_bits(k.run(Mode::golden, with, shifted, all_pages(k.page), tokens_of(k.page)),
                          k.run(Mode::golden, without, shifted, all_pages(k.page), tokens_of(k.page))))
        << k.op;
}

TEST(AttentionIdentities, HeadsOfAWiderTensorGiveTheSameBits) {
  Tensor wide(DType::bf16, {heads, 700});
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t d = 0; d < 576; ++d) quant::set(wide, h * 700 + 96 + d, quant::get(queries(), h * 576 + d));
  // Strides of a multiple of 16 elements, as hopper mode of some kernels asks for.
  Tensor spaced(DType::bf16, {heads, 704});
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t d = 0; d < 576; ++d) quant::set(spaced, h * 704 + 96 + d, quant::get(queries(), h * 576 + d));
  for (const Kernel& k : kernels()) {
    if (std::string(k.op) == "xqa_batch_decode_with_kv_cache_mla") continue;  // its queries here are copies
    for (const Mode mode : k.modes()) {
      const Tensor& from = mode == Mode::hopper ? spaced : wide;
      EXPECT_TRUE(same_bits(k.run(mode, queries(), rows(), all_pages(k.page), 50),
                            k.run(mode, from.slice(1, 96, 672), rows(), all_pages(k.page), 50)))
          << k.op << " " << name(mode);
    }
  }
}

TEST(AttentionIdentities, SplitsMergeToTheWhole) {
  // Base-2 logarithms of two halves and merge_state give what one call over both gives.
  const NamedOp batch{"batch_mla_paged_attention"}, merge{"merge_state"};
  for (const Kernel& k : kernels()) {
    if (std::string(k.op) != "batch_mla_paged_attention" || k.page != 16) continue;
    const auto part = [&](std::int32_t first, std::int32_t count) {
      std::vector<std::int32_t> pages;
      for (std::int32_t i = first; i < first + count; ++i) pages.push_back(i);
      Arguments a = k.call(queries(), rows(), pages, count * 16);
      a.set_attr("return_lse", true);
      return batch.outputs(a, in_mode(Mode::golden));
    };
    const auto left = part(0, 4), right = part(4, 8), whole = part(0, 12);
    Arguments m;
    m.set("v_a", left[0].second);
    m.set("s_a", left[1].second);
    m.set("v_b", right[0].second);
    m.set("s_b", right[1].second);
    const auto merged = merge.outputs(m, in_mode(Mode::golden));
    // Each of the four outputs is rounded to bf16, by 2^-8 of itself at most; those of the halves are weighed by parts of 1.
    for (std::int64_t i = 0; i < heads * 512; ++i) {
      const double exact = quant::get(whole[0].second, i);
      const double halves = std::fmax(std::fabs(quant::get(left[0].second, i)), std::fabs(quant::get(right[0].second, i)));
      EXPECT_NEAR(quant::get(merged[0].second, i), exact, 0x1p-8 * (halves + 2.1 * std::fabs(exact)));
    }
    for (std::int64_t i = 0; i < heads; ++i) EXPECT_NEAR(quant::get(merged[1].second, i), quant::get(whole[1].second, i), 1e-5);
  }
}

}  // namespace
}  // namespace dodona
