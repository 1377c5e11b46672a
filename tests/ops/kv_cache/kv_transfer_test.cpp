// Transfers between pools of the KV cache, whatever their layouts.
#include <gtest/gtest.h>

#include <cstring>

#include "dodona/error.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

Tensor slots(const std::vector<std::int64_t>& values) {
  Tensor t(DType::i64, {static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), t.as<std::int64_t>());
  return t;
}

/// A call of a transfer by name, its outputs written in place.
struct Transfer {
  std::string name;
  NamedTensors tensors;
  std::vector<std::pair<std::string, std::int64_t>> attrs = {};

  const Tensor& at(const std::string& argument) const { return *find(tensors, argument); }
  void run(const Exec& exec) const {
    Arguments arguments;
    for (const auto& [argument, tensor] : tensors) arguments.set(argument, tensor);
    for (const auto& [attr, value] : attrs) arguments.set_attr(attr, value);
    registry().at(name).run(arguments, exec);
  }
  std::string error() const {
    return message_in([&] { run(in_mode(Mode::fast)); });
  }
};

/// The bits at an index of several dimensions.
std::uint64_t bits_at(const Tensor& t, const Dims& index) {
  std::int64_t linear = 0;
  for (int d = 0; d < t.rank(); ++d) linear = linear * t.size(d) + index[d];
  return quant::get_bits(t, linear);
}

TEST(KvTransfer, APageHeadPoolHoldsHeadsBeforeSlots) {
  const Tensor src_k = normal(DType::bf16, {3, 2, 4, 5, 8}, "k"), src_v = normal(DType::bf16, {3, 2, 4, 5, 8}, "v");
  for (const Mode mode : all_modes)
    for (const bool heads_apart : {false, true}) {
      const Dims shape = heads_apart ? Dims{6, 2, 8} : Dims{6, 16};
      const Transfer t{"transfer_kv_per_layer_ph_lf",
                       {{"src_k", src_k},
                        {"src_v", src_v},
                        {"dst_k", Tensor(DType::bf16, shape)},
                        {"dst_v", Tensor(DType::bf16, shape)},
                        {"src_indices", slots({7, 0, 11})},
                        {"dst_indices", slots({1, 5, 2})}},
                       {{"layer_id", 3}, {"page_size", 4}, {"head_num", 2}, {"item_size", 32}, {"src_layout_dim", 160}}};
      t.run(in_mode(mode));
      const std::int64_t from[] = {7, 0, 11}, to[] = {1, 5, 2};
      for (int i = 0; i < 3; ++i)
        for (std::int64_t h = 0; h < 2; ++h)
          for (std::int64_t d = 0; d < 8; ++d) {
            EXPECT_EQ(quant::get_bits(t.at("dst_k"), to[i] * 16 + h * 8 + d), bits_at(src_k, {from[i] / 4, h, from[i] % 4, 3, d}));
            EXPECT_EQ(quant::get_bits(t.at("dst_v"), to[i] * 16 + h * 8 + d), bits_at(src_v, {from[i] / 4, h, from[i] % 4, 3, d}));
          }
      for (std::int64_t d = 0; d < 16; ++d) EXPECT_EQ(quant::get_bits(t.at("dst_k"), d), 0u) << "slot 0 is not named";
    }
}

TEST(KvTransfer, ToAPageFirstPoolAndBackIsTheIdentity) {
  const Tensor layers = normal(DType::f16, {3, 9, 8}, "layers"), back(DType::f16, {3, 9, 8}), pool(DType::f16, {7, 3, 8});
  Transfer{"transfer_kv_all_layer_mla_lf_pf",
           {{"src_layers", layers}, {"dst", pool}, {"src_indices", slots({8, 2, 5})}, {"dst_indices", slots({0, 6, 3})}},
           {{"num_layers", 3}}}
      .run(in_mode(Mode::fast));
  for (std::int64_t l = 0; l < 3; ++l)
    Transfer{"transfer_kv_per_layer_mla_pf_lf",
             {{"src", pool},
              {"dst", back.slice(0, l, l + 1).reshape({9, 8})},
              {"src_indices", slots({0, 6, 3})},
              {"dst_indices", slots({8, 2, 5})}},
             {{"layer_id", l}}}
        .run(in_mode(Mode::golden));
  for (std::int64_t l = 0; l < 3; ++l)
    for (const std::int64_t slot : {8, 2, 5})
      for (std::int64_t d = 0; d < 8; ++d) EXPECT_EQ(bits_at(back, {l, slot, d}), bits_at(layers, {l, slot, d}));
}

TEST(KvTransfer, LayersMayLieApartInMemory) {
  // K and V of one allocation, [layers, 2, slots, item]: K's layers are every other block.
  const Tensor both = normal(DType::bf16, {3, 18, 8}, "both"), k = both.slice(1, 0, 9), v = both.slice(1, 9, 18);
  const auto run = [](const Tensor& keys, const Tensor& values) {
    const Tensor dst_k(DType::bf16, {3, 9, 8}), dst_v(DType::bf16, {3, 9, 8});
    Transfer{"transfer_kv_all_layer",
             {{"src_k_layers", keys},
              {"src_v_layers", values},
              {"dst_k_layers", dst_k},
              {"dst_v_layers", dst_v},
              {"src_indices", slots({0, 4})},
              {"dst_indices", slots({3, 8})}},
             {{"num_layers", 3}}}
        .run(in_mode(Mode::fast));
    return dst_v;
  };
  EXPECT_TRUE(same_bits(run(k, v), run(k.clone(), v.clone())));
}

TEST(KvTransfer, OfAPageTheFirstIndexAloneIsLookedAt) {
  const Tensor src = normal(DType::bf16, {1, 3, 2, 4, 8}, "src");
  const auto copied = [&](const std::vector<std::int64_t>& from, const std::vector<std::int64_t>& to) {
    const Tensor dst(DType::bf16, {1, 12, 8});
    Transfer{"transfer_kv_per_layer_direct_pf_lf",
             {{"src_ptrs", src}, {"dst_ptrs", dst}, {"src_indices", slots(from)}, {"dst_indices", slots(to)}},
             {{"layer_id", 1}, {"page_size", 4}}}
        .run(in_mode(Mode::fast));
    return dst;
  };
  // 9 lies in page 2 of the source, which begins at 8; the destination begins where the first index says.
  const Tensor whole = copied({8, 9, 10, 11}, {3, 4, 5, 6});
  EXPECT_TRUE(same_bits(copied({9, 0, 0, 0}, {3, 0, 11, 0}), whole));
  for (std::int64_t s = 0; s < 4; ++s) EXPECT_EQ(bits_at(whole, {0, 3 + s, 5}), bits_at(src, {0, 2, 1, s, 5}));
}

TEST(KvTransfer, OfItemsThatShareASlotTheLastIsStoredAndNoneIsJudged) {
  const Tensor src = normal(DType::f32, {3, 4}, "src");
  for (const int threads : {1, 2, 5}) {
    const Tensor dst(DType::f32, {2, 4});
    Transfer{"transfer_kv_per_layer_mla",
             {{"src", src}, {"dst", dst}, {"src_indices", slots({0, 1, 2})}, {"dst_indices", slots({1, 0, 1})}}}
        .run(in_mode(Mode::fast, threads));
    EXPECT_EQ(quant::get(dst, 4), quant::get(src, 8));
  }
  Arguments inputs;
  inputs.set("src", src);
  inputs.set("dst", Tensor(DType::f32, {2, 4}));
  inputs.set("src_indices", slots({0, 1, 2}));
  inputs.set("dst_indices", slots({1, 0, 1}));
  const Tensor actual(DType::f32, {2, 4});
  for (std::int64_t d = 0; d < 4; ++d) quant::set(actual, d, quant::get(src, 4 + d)), quant::set(actual, 4 + d, quant::get(src, d));
  const Op& op = registry().at("transfer_kv_per_layer_mla");
  EXPECT_EQ(oracle::judge(op, inputs, {{"dst", actual}}, {}).failing(), 0);
  quant::set(actual, 1, 7);
  EXPECT_EQ(oracle::judge(op, inputs, {{"dst", actual}}, {}).failing(), 1);
}

TEST(KvTransfer, LargeTransfersStreamTheSameBytes) {
  // Above what the caches keep, with items that do not end on whole lines.
  const std::int64_t count = 9000;
  const Tensor src(DType::u8, {count, 656}), dst(DType::u8, {count, 656});
  for (std::int64_t i = 0; i < src.elements(); ++i) src.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(i * 7 + i / 656);
  std::vector<std::int64_t> order(static_cast<std::size_t>(count)), to(order);
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = static_cast<std::int64_t>(i), to[i] = static_cast<std::int64_t>((i * 7) % order.size());
  Transfer{"transfer_kv_per_layer_mla", {{"src", src}, {"dst", dst}, {"src_indices", slots(order)}, {"dst_indices", slots(to)}}}.run(
      in_mode(Mode::fast, 2));
  for (std::size_t i = 0; i < order.size(); ++i)
    ASSERT_EQ(std::memcmp(src.as<std::uint8_t>() + order[i] * 656, dst.as<std::uint8_t>() + to[i] * 656, 656), 0) << i;
}

TEST(KvTransfer, NoItemsCopyNothing) {
  const Tensor src = normal(DType::bf16, {3, 8}, "src"), dst = normal(DType::bf16, {3, 8}, "dst"), before = dst.clone();
  Transfer{"transfer_kv_per_layer_mla", {{"src", src}, {"dst", dst}, {"src_indices", slots({})}, {"dst_indices", slots({})}}}.run(
      in_mode(Mode::fast));
  EXPECT_TRUE(same_bits(dst, before));
}

TEST(KvTransfer, WhatLeadsOutsideOrContradictsThePoolsIsAnError) {
  Transfer t{"transfer_kv_per_layer_mla_pf_lf",
             {{"src", Tensor(DType::bf16, {4, 3, 8})},
              {"dst", Tensor(DType::bf16, {5, 8})},
              {"src_indices", slots({0, 3})},
              {"dst_indices", slots({0, 4})}},
             {{"layer_id", 2}}};
  EXPECT_EQ(t.error(), "");
  const auto with = [&](const char* argument, const Tensor& tensor, std::vector<std::pair<std::string, std::int64_t>> attrs) {
    Transfer bad = t;
    for (auto& [name, old] : bad.tensors)
      if (name == argument) old = tensor;
    bad.attrs = std::move(attrs);
    return bad.error();
  };
  EXPECT_EQ(with("", {}, {{"layer_id", 3}}),
            "transfer_kv_per_layer_mla_pf_lf: layer_id is 3, expected below 3, the layers of src [4, 3, 8]");
  EXPECT_NE(with("", {}, {{"layer_id", 0}, {"item_size", 24}}).find("item_size is 24, expected 16 bytes as dst [5, 8] has"),
            std::string::npos);
  EXPECT_NE(with("", {}, {{"layer_id", 0}, {"src_layout_dim", 16}}).find("src_layout_dim is 16, expected 48 bytes as src"),
            std::string::npos);
  EXPECT_NE(with("dst_indices", slots({0, 5}), {{"layer_id", 0}}).find("dst_indices holds 5 at element 1, expected 0 to 4"),
            std::string::npos);
  EXPECT_NE(with("src_indices", slots({0, -1}), {{"layer_id", 0}}).find("src_indices holds -1 at element 1"), std::string::npos);
  Transfer odd{
      "transfer_kv_per_layer_mla",
      {{"src", Tensor(DType::u8, {4, 12})}, {"dst", Tensor(DType::u8, {4, 12})}, {"src_indices", slots({0})}, {"dst_indices", slots({0})}}};
  EXPECT_NE(odd.error().find("items of 12 bytes, expected a multiple of 8 bytes"), std::string::npos) << odd.error();
  Transfer pages{"transfer_kv_direct",
                 {{"src_layers", Tensor(DType::f32, {1, 4, 2})},
                  {"dst_layers", Tensor(DType::f32, {1, 4, 2})},
                  {"src_indices", slots({0, 1, 2})},
                  {"dst_indices", slots({0, 1, 2})}},
                 {{"page_size", 2}}};
  EXPECT_NE(pages.error().find("expected whole pages of page_size = 2"), std::string::npos) << pages.error();
}

TEST(KvTransfer, TheFrameworksCopiesTakeItemsOfAnySize) {
  // Six bytes an item, of which upstream's kernels would copy none.
  const Tensor src = normal(DType::bf16, {2, 5, 3}, "src");
  for (const Mode mode : all_modes) {
    const Tensor dst(DType::bf16, {2, 4, 3});
    Transfer{"transfer_kv_direct",
             {{"src_layers", src}, {"dst_layers", dst}, {"src_indices", slots({4, 0})}, {"dst_indices", slots({1, 3})}},
             {{"page_size", 1}}}
        .run(in_mode(mode));
    for (std::int64_t l = 0; l < 2; ++l)
      for (std::int64_t d = 0; d < 3; ++d) EXPECT_EQ(bits_at(dst, {l, 1, d}), bits_at(src, {l, 4, d}));
  }
}

TEST(KvTransfer, HeadsThatLieApartAreWholeWords) {
  const auto of_width = [](std::int64_t width) {
    return Transfer{"transfer_kv_per_layer_ph_lf",
                    {{"src_k", Tensor(DType::bf16, {1, 2, 4, 3, width})},
                     {"src_v", Tensor(DType::bf16, {1, 2, 4, 3, width})},
                     {"dst_k", Tensor(DType::bf16, {4, 2, width})},
                     {"dst_v", Tensor(DType::bf16, {4, 2, width})},
                     {"src_indices", slots({3})},
                     {"dst_indices", slots({0})}},
                    {{"layer_id", 1}, {"page_size", 4}, {"head_num", 2}}};
  };
  EXPECT_EQ(of_width(4).error(), "");
  for (const std::int64_t width : {2, 6})
    EXPECT_NE(of_width(width).error().find("heads of " + std::to_string(2 * width) + " bytes, expected a multiple of 8 bytes"),
              std::string::npos);
}

TEST(KvTransfer, ABlockHasThirtyTwoWarpsAtMost) {
  Transfer t{
      "transfer_kv_per_layer_mla",
      {{"src", Tensor(DType::u8, {4, 8})}, {"dst", Tensor(DType::u8, {4, 8})}, {"src_indices", slots({0})}, {"dst_indices", slots({0})}},
      {{"num_warps_per_block", 32}}};
  EXPECT_EQ(t.error(), "");
  t.attrs = {{"num_warps_per_block", 33}};
  EXPECT_NE(t.error().find("num_warps_per_block must be from 1 to 32, got 33"), std::string::npos) << t.error();
}

TEST(KvTransfer, PagesMayBeNumberedIn32Bits) {
  const Tensor src = normal(DType::bf16, {1, 2, 1, 2, 4}, "src");
  const auto copied = [&](const Tensor& from, const Tensor& to) {
    const Tensor dst(DType::bf16, {1, 4, 4});
    Transfer{"transfer_kv_per_layer_direct_pf_lf",
             {{"src_ptrs", src}, {"dst_ptrs", dst}, {"src_indices", from}, {"dst_indices", to}},
             {{"layer_id", 0}, {"page_size", 2}}}
        .run(in_mode(Mode::golden));
    return dst;
  };
  EXPECT_TRUE(
      same_bits(copied(tensor_of(DType::i32, {2}, {2, 3}), tensor_of(DType::i32, {2}, {1, 2})), copied(slots({2, 3}), slots({1, 2}))));
}

TEST(KvTransfer, APageThatLeavesItsPoolIsAnError) {
  Transfer t{"transfer_kv_per_layer_direct_pf_lf",
             {{"src_ptrs", Tensor(DType::bf16, {1, 3, 2, 4, 8})},
              {"dst_ptrs", Tensor(DType::bf16, {1, 6, 8})},
              {"src_indices", slots({0, 1, 2, 3})},
              {"dst_indices", slots({3, 4, 5, 5})}},
             {{"layer_id", 0}, {"page_size", 4}}};
  EXPECT_NE(t.error().find("dst_indices leads to slot 6 at element 3, expected 0 to 5"), std::string::npos) << t.error();
}

}  // namespace
}  // namespace dodona
