#include "model/layer/experts/deepep.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/define.h"
#include "model/layer/values.h"
#include "ops/moe/deepep/deepep_combine.h"
#include "ops/moe/deepep/deepep_low_latency_combine.h"
#include "ops/moe/deepep/deepep_low_latency_dispatch.h"
#include "ops/moe/deepep/deepep_low_latency_dispatch_nvfp4.h"
#include "quant/sizes.h"
#include "quant/swizzle.h"

namespace dodona::model {
namespace {

/// Bytes for one rank.
class Letter {
 public:
  void add(const void* data, std::int64_t bytes) {
    const auto* const begin = static_cast<const std::uint8_t*>(data);
    bytes_.insert(bytes_.end(), begin, begin + bytes);
  }
  template <class T>
  void add(const std::vector<T>& values) {
    add(values.data(), static_cast<std::int64_t>(values.size() * sizeof(T)));
  }
  Tensor tensor() const {
    Tensor all = Tensor::uninitialized(DType::u8, {static_cast<std::int64_t>(bytes_.size())});
    std::memcpy(all.data(), bytes_.data(), bytes_.size());
    return all;
  }

 private:
  std::vector<std::uint8_t> bytes_;
};

/// What another rank sent, read from its beginning on.
class Reader {
 public:
  explicit Reader(const Tensor& letter) : at_(letter.as<const std::byte>()) {}
  const std::byte* take(std::int64_t bytes) { return std::exchange(at_, at_ + bytes); }
  template <class T>
  std::vector<T> values(std::size_t count) {
    std::vector<T> list(count);
    std::memcpy(list.data(), take(static_cast<std::int64_t>(count * sizeof(T))), count * sizeof(T));
    return list;
  }

 private:
  const std::byte* at_;
};

std::int64_t sum_of(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

}  // namespace

Exec for_transport(const Exec& exec) {
  Exec transport = exec;
  if (of_a_gpu(exec.mode)) transport.mode = Mode::fast;
  return transport;
}

/// Rows of experts, [E, S, ...]; scales of NVFP4 lie in the tiles that its products read, those of each expert apart.
struct LowLatencyExchange::RowsOfExperts {
  Tensor all;
  bool tiled = false;
  std::int64_t columns = 0;  ///< of tiled ones

  std::int64_t row_bytes() const { return tiled ? columns : bytes_for(all.dtype(), all.size(2)); }
  void read(std::int64_t expert, std::int64_t row, Letter& to) const {
    const std::byte* const rows = all.as<const std::byte>() + expert * bytes_for(all.dtype(), all.size(1) * all.size(2));
    if (!tiled) return to.add(rows + row * row_bytes(), row_bytes());
    for (std::int64_t c = 0; c < columns; ++c) to.add(rows + place(row, c), 1);
  }
  void write(std::int64_t expert, std::int64_t row, const std::byte* from) const {
    std::byte* const rows = all.as<std::byte>() + expert * bytes_for(all.dtype(), all.size(1) * all.size(2));
    if (!tiled) {
      std::memcpy(rows + row * row_bytes(), from, static_cast<std::size_t>(row_bytes()));
      return;
    }
    for (std::int64_t c = 0; c < columns; ++c) rows[place(row, c)] = from[c];
  }

 private:
  std::int64_t place(std::int64_t row, std::int64_t c) const {
    return quant::scale_offset(quant::ScaleLayout::swizzled_128x4, row, c, columns);
  }
};

std::vector<std::int64_t> LowLatencyExchange::choose(const Tensor& topk_idx) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks_.experts), 0), place(counts.size(), -1), ids;
  for (std::int64_t i = 0; i < topk_idx.elements(); ++i)
    if (const std::int64_t e = topk_idx.as<const std::int64_t>()[i]; e >= 0) ++counts.at(static_cast<std::size_t>(e));
  chosen_.clear(), sent_.clear();
  for (std::size_t e = 0; e < counts.size(); ++e)
    if (counts[e] > 0) {
      place[e] = static_cast<std::int64_t>(chosen_.size());
      chosen_.push_back(static_cast<std::int64_t>(e)), sent_.push_back(counts[e]);
    }
  for (std::int64_t i = 0; i < topk_idx.elements(); ++i) {
    const std::int64_t e = topk_idx.as<const std::int64_t>()[i];
    ids.push_back(e < 0 ? -1 : place[static_cast<std::size_t>(e)]);
  }
  ids_ = tensor_of(ids, {1, topk_idx.size(0), topk_idx.size(1)}, DType::i64);
  room_ = sent_.empty() ? 0 : *std::max_element(sent_.begin(), sent_.end());
  return counts;
}

std::vector<LowLatencyExchange::RowsOfExperts> LowLatencyExchange::sent_rows(const Tensor& x) {
  std::vector<RowsOfExperts> rows;
  const auto experts = static_cast<std::int64_t>(chosen_.size());
  if (experts == 0) return rows;
  const std::int64_t tokens = x.size(0), most = std::max(tokens, room_);
  const bool fp4 = format_.x_global_scale.defined();
  const auto take = [&](const auto& op) {
    src_info_ = op.packed_recv_src_info, layout_range_ = op.packed_recv_layout_range;
    rows.push_back({op.packed_recv_x});
    if (op.packed_recv_x_scales.defined()) rows.push_back({op.packed_recv_x_scales, fp4, width_ / 16});
  };
  if (fp4)
    take(ops::run(ops::DeepepLowLatencyDispatchNvfp4{.x = x.reshape({1, tokens, width_}),
                                                     .x_global_scale = format_.x_global_scale,
                                                     .topk_idx = ids_,
                                                     .num_max_dispatch_tokens_per_rank = most,
                                                     .num_experts = experts,
                                                     .spare_rows = most - room_},
                  for_transport(exec_)));
  else
    take(ops::run(ops::DeepepLowLatencyDispatch{.x = x.reshape({1, tokens, width_}),
                                                .topk_idx = ids_,
                                                .num_max_dispatch_tokens_per_rank = most,
                                                .num_experts = experts,
                                                .spare_rows = most - room_,
                                                .use_fp8 = format_.use_fp8,
                                                .round_scale = format_.round_scale,
                                                .use_ue8m0 = format_.use_ue8m0},
                  for_transport(exec_)));
  return rows;
}

std::vector<Tensor> LowLatencyExchange::letters(const std::vector<std::int64_t>& counts, const std::vector<RowsOfExperts>& rows) const {
  const std::int64_t here = ranks_.here();
  std::vector<Tensor> written;
  for (std::int64_t r = 0; r < ranks_.share.count; ++r) {
    Letter letter;
    for (std::int64_t e = r * here; e < (r + 1) * here; ++e) {
      const auto count = static_cast<std::int32_t>(counts[static_cast<std::size_t>(e)]);
      letter.add(&count, sizeof count);
    }
    for (std::size_t a = 0; a < chosen_.size(); ++a) {
      if (chosen_[a] / here != r) continue;
      const auto expert = static_cast<std::int64_t>(a);
      for (std::int64_t i = 0; i < sent_[a]; ++i) {
        letter.add(src_info_.as<const std::int32_t>() + expert * room_ + i, sizeof(std::int32_t));
        for (const RowsOfExperts& kind : rows) kind.read(expert, i, letter);
      }
    }
    written.push_back(letter.tensor());
  }
  return written;
}

std::vector<LowLatencyExchange::RowsOfExperts> LowLatencyExchange::make_room(Received& received, std::int64_t tile) const {
  std::vector<std::int64_t> with_rows;
  for (const std::int64_t count : received.counts)
    if (count > 0) with_rows.push_back(count);
  const auto groups = static_cast<std::int64_t>(with_rows.size());
  if (groups == 0) return {};
  const std::int64_t room = quant::align(*std::max_element(with_rows.begin(), with_rows.end()), tile), scales = width_ / 128;
  const bool fp4 = format_.x_global_scale.defined();
  received.count = tensor_of(with_rows, {groups}, DType::i32);
  received.src_info = Tensor(DType::i32, {groups, room});
  if (fp4) {
    received.x = Tensor(DType::u8, {groups, room, width_ / 2});
    received.scales = Tensor(DType::f8_e4m3, {groups, quant::align(room, 128), quant::align(width_ / 16, 4)});
  } else if (format_.use_fp8) {
    received.x = Tensor(DType::f8_e4m3, {groups, room, width_});
    received.scales =
        format_.use_ue8m0 ? Tensor(DType::i32, {groups, room, quant::ceil_div(scales, 4)}) : Tensor(DType::f32, {groups, room, scales});
  } else {
    received.x = Tensor(DType::bf16, {groups, room, width_});
  }
  std::vector<RowsOfExperts> rows{{received.x}};
  if (received.scales.defined()) rows.push_back({received.scales, fp4, width_ / 16});
  return rows;
}

LowLatencyExchange::Received LowLatencyExchange::read(const std::vector<Tensor>& letters, std::int64_t tile) {
  const auto here = static_cast<std::size_t>(ranks_.here());
  std::vector<Reader> readers;
  from_each_.clear();
  Received all{.counts = std::vector<std::int64_t>(here, 0), .x = {}, .scales = {}, .count = {}, .src_info = {}};
  for (const Tensor& letter : letters) {
    const auto each = readers.emplace_back(letter).values<std::int32_t>(here);
    from_each_.emplace_back(each.begin(), each.end());
    for (std::size_t e = 0; e < each.size(); ++e) all.counts[e] += each[e];
  }
  const std::vector<RowsOfExperts> into = make_room(all, tile);
  if (into.empty()) return all;
  std::vector<std::int64_t> next(all.counts.size(), 0);
  for (std::size_t r = 0; r < readers.size(); ++r) {
    std::int64_t group = -1;
    for (std::size_t e = 0; e < here; ++e) {
      if (all.counts[e] > 0) ++group;
      for (std::int64_t i = 0; i < from_each_[r][e]; ++i) {
        const std::int64_t row = next[e]++;
        std::memcpy(all.src_info.as<std::int32_t>() + group * all.src_info.size(1) + row, readers[r].take(sizeof(std::int32_t)),
                    sizeof(std::int32_t));
        for (const RowsOfExperts& kind : into) kind.write(group, row, readers[r].take(kind.row_bytes()));
      }
    }
  }
  return all;
}

LowLatencyExchange::Received LowLatencyExchange::dispatch(const Tensor& x, const Tensor& topk_idx, std::int64_t tile) {
  width_ = x.size(1);
  const std::vector<std::int64_t> counts = choose(topk_idx);
  return read(ranks_.group.exchange(ranks_.share.index, letters(counts, sent_rows(x))), tile);
}

Tensor LowLatencyExchange::combine(const Tensor& rows, const Tensor& topk_weights) {
  const std::int64_t bytes = 2 * width_;
  std::vector<Letter> letters(from_each_.size());
  std::int64_t group = -1;
  for (std::size_t e = 0; e < from_each_.front().size(); ++e) {
    std::int64_t row = 0;
    for (std::size_t r = 0; r < from_each_.size(); ++r)
      for (std::int64_t i = 0; i < from_each_[r][e]; ++i, ++row) {
        if (row == 0) ++group;
        letters[r].add(rows.as<const std::byte>() + (group * rows.size(1) + row) * bytes, bytes);
      }
  }
  std::vector<Tensor> to_each;
  to_each.reserve(letters.size());
  for (const Letter& letter : letters) to_each.push_back(letter.tensor());
  const std::vector<Tensor> received = ranks_.group.exchange(ranks_.share.index, to_each);
  const std::int64_t tokens = ids_.size(1), experts = static_cast<std::int64_t>(chosen_.size());
  if (experts == 0) return Tensor(DType::bf16, {tokens, width_});
  const Tensor mine(DType::bf16, {experts, room_, width_});
  std::vector<Reader> readers(received.begin(), received.end());
  for (std::int64_t a = 0; a < experts; ++a) {
    const std::int64_t count = sent_[static_cast<std::size_t>(a)];
    const auto rank = static_cast<std::size_t>(chosen_[static_cast<std::size_t>(a)] / ranks_.here());
    std::memcpy(mine.as<std::byte>() + a * room_ * bytes, readers[rank].take(count * bytes), static_cast<std::size_t>(count * bytes));
  }
  return ops::run(ops::DeepepLowLatencyCombine{.x = mine,
                                               .topk_idx = ids_,
                                               .topk_weights = topk_weights.reshape(ids_.shape()),
                                               .src_info = src_info_,
                                               .layout_range = layout_range_},
                  exec_)
      .combined_x.reshape({tokens, width_});
}

NormalExchange::Received NormalExchange::dispatch(const Tensor& x, const Tensor& scales, const Tensor& topk_idx,
                                                  const Tensor& topk_weights) {
  const std::int64_t topk = topk_idx.size(1), here = ranks_.here();
  tokens_ = x.size(0);
  to_each_.assign(static_cast<std::size_t>(ranks_.share.count), {});
  std::vector<Tensor> letters;
  const auto row_bytes = [](const Tensor& t) { return t.defined() ? bytes_for(t.dtype(), t.size(1)) : 0; };
  for (std::int64_t r = 0; r < ranks_.share.count; ++r) {
    Letter letter;
    for (std::int64_t t = 0; t < tokens_; ++t) {
      std::vector<std::int64_t> ids(static_cast<std::size_t>(topk), -1);
      std::vector<float> weights(ids.size(), 0.0f);
      bool goes = false;
      for (std::size_t k = 0; k < ids.size(); ++k) {
        const std::int64_t at = t * topk + static_cast<std::int64_t>(k), e = topk_idx.as<const std::int64_t>()[at];
        if (e < 0 || e / here != r) continue;
        ids[k] = e - r * here, weights[k] = topk_weights.as<const float>()[at], goes = true;
      }
      if (!goes) continue;
      to_each_[static_cast<std::size_t>(r)].push_back(t);
      const auto token = static_cast<std::int32_t>(t);
      letter.add(&token, sizeof token);
      letter.add(ids);
      letter.add(weights);
      letter.add(x.as<const std::byte>() + t * row_bytes(x), row_bytes(x));
      if (scales.defined()) letter.add(scales.as<const std::byte>() + t * row_bytes(scales), row_bytes(scales));
    }
    letters.push_back(letter.tensor());
  }
  const std::vector<Tensor> received = ranks_.group.exchange(ranks_.share.index, letters);
  const std::int64_t row = 4 + topk * 12 + row_bytes(x) + row_bytes(scales);
  from_each_.clear();
  for (const Tensor& letter : received) from_each_.push_back(letter.elements() / row);
  const std::int64_t rows = sum_of(from_each_);
  Received all{.x = Tensor(x.dtype(), {rows, x.size(1)}),
               .scales = scales.defined() ? Tensor(scales.dtype(), {rows, scales.size(1)}) : Tensor(),
               .topk_idx = Tensor(DType::i64, {rows, topk}),
               .topk_weights = Tensor(DType::f32, {rows, topk}),
               .src_idx = Tensor(DType::i32, {rows})};
  std::int64_t at = 0;
  for (std::size_t r = 0; r < received.size(); ++r) {
    Reader reader(received[r]);
    const auto put = [&](const Tensor& into, std::int64_t bytes) {
      std::memcpy(into.as<std::byte>() + at * bytes, reader.take(bytes), static_cast<std::size_t>(bytes));
    };
    for (std::int64_t i = 0; i < from_each_[r]; ++i, ++at) {
      put(all.src_idx, 4);
      put(all.topk_idx, 8 * topk);
      put(all.topk_weights, 4 * topk);
      put(all.x, row_bytes(x));
      if (scales.defined()) put(all.scales, row_bytes(scales));
    }
  }
  return all;
}

Tensor NormalExchange::combine(const Tensor& rows, std::int64_t ranks_per_node) {
  const std::int64_t width = rows.size(1), ranks = ranks_.share.count, me = ranks_.share.index;
  std::vector<Tensor> to_each;
  std::int64_t begin = 0;
  for (const std::int64_t count : from_each_) {
    Letter letter;
    letter.add(rows.as<const std::byte>() + begin * 2 * width, count * 2 * width);
    to_each.push_back(letter.tensor());
    begin += count;
  }
  const std::vector<Tensor> received = ranks_.group.exchange(me, to_each);
  if (tokens_ == 0) return Tensor(DType::bf16, {0, width});
  // The op's call of a job in which this rank alone has tokens.
  const Tensor all(DType::bf16, {ranks, tokens_, width}), sources(DType::i32, {ranks, tokens_}), ends(DType::i32, {ranks, ranks}),
      goes(DType::boolean, {ranks, tokens_, ranks});
  for (std::int64_t d = 0; d < ranks; ++d) {
    const auto& tokens = to_each_[static_cast<std::size_t>(d)];
    const auto count = static_cast<std::int64_t>(tokens.size());
    std::memcpy(all.as<std::byte>() + d * tokens_ * 2 * width, received[static_cast<std::size_t>(d)].data(),
                static_cast<std::size_t>(count * 2 * width));
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t token = tokens[static_cast<std::size_t>(i)];
      sources.as<std::int32_t>()[d * tokens_ + i] = static_cast<std::int32_t>(token);
      goes.as<std::uint8_t>()[(me * tokens_ + token) * ranks + d] = 1;
    }
    for (std::int64_t r = me; r < ranks; ++r) ends.as<std::int32_t>()[r * ranks + d] = static_cast<std::int32_t>(count);
  }
  const Tensor sums =
      ops::run(
          ops::DeepepCombine{
              .x = all, .recv_src_idx = sources, .rank_prefix_matrix = ends, .is_token_in_rank = goes, .ranks_per_node = ranks_per_node},
          exec_)
          .combined_x;
  return sums.slice(0, me, me + 1).reshape({tokens_, width});
}

}  // namespace dodona::model
