#include "model/layer/ranks.h"

#include <cstring>
#include <numeric>

#include "core/define.h"
#include "model/layer/pass.h"
#include "ops/utility/all_reduce.h"

namespace dodona::model {

Tensor RankGroup::gather_alike(const Tensor& mine) {
  const std::vector<Tensor> parts = gather(mine);
  Dims shape{static_cast<std::int64_t>(parts.size())};
  for (const std::int64_t size : mine.shape()) shape.push_back(size);
  Tensor all = Tensor::uninitialized(mine.dtype(), shape);
  const std::int64_t bytes = bytes_for(mine.dtype(), mine.elements());
  for (std::size_t r = 0; r < parts.size(); ++r)
    std::memcpy(all.as<std::byte>() + static_cast<std::int64_t>(r) * bytes, parts[r].data(), static_cast<std::size_t>(bytes));
  return all;
}

Tensor terms_of_ranks(const Pass& p, Shared shared, const Tensor& partial) {
  if (p.trace.plans()) return {};
  RankGroup& group = shared == Shared::columns ? *p.ranks.tensor : *p.ranks.experts;
  return group.gather_alike(partial.contiguous() ? partial : partial.clone());
}

std::vector<Tensor> RankGroup::exchange(std::int64_t me, const std::vector<Tensor>& to_each) {
  const auto ranks = static_cast<std::int64_t>(to_each.size());
  const Tensor sizes(DType::i64, {ranks});
  std::int64_t total = 0;
  for (std::int64_t r = 0; r < ranks; ++r) total += sizes.as<std::int64_t>()[r] = to_each[static_cast<std::size_t>(r)].elements();
  const Tensor mine(DType::u8, {total});
  std::byte* at = mine.as<std::byte>();
  for (const Tensor& part : to_each) {
    std::memcpy(at, part.data(), static_cast<std::size_t>(part.elements()));
    at += part.elements();
  }
  const Tensor all = gather_alike(sizes);
  const std::vector<Tensor> parts = gather(mine);
  std::vector<Tensor> received;
  for (std::int64_t r = 0; r < ranks; ++r) {
    const std::int64_t* const of_rank = all.as<const std::int64_t>() + r * ranks;
    const std::int64_t begin = std::accumulate(of_rank, of_rank + me, std::int64_t{0});
    received.push_back(parts[static_cast<std::size_t>(r)].slice(0, begin, begin + of_rank[me]));
  }
  return received;
}

Tensor all_reduced(const Pass& p, Shared shared, Part part, std::string_view note, const Tensor& partial) {
  const Shard& shard = p.weights.source().shard();
  const std::int64_t ranks = shared == Shared::columns ? shard.heads.count : shard.experts.count;
  if (ranks == 1) return partial;
  const Tensor terms = terms_of_ranks(p, shared, partial);
  Work work = reading({partial});
  work.bytes *= static_cast<double>(ranks);
  return p.trace.run1({.part = part,
                       .name = "tensor_model_parallel_all_reduce()",
                       .note = note,
                       .inputs = {{"input", partial.shape()}},
                       .outputs = {{"output", partial.dtype()}},
                       .work = work},
                      [&] { return ops::run(ops::AllReduce{.inp = terms}, p.exec()).out; });
}

}  // namespace dodona::model
