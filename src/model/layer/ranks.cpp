#include "model/layer/ranks.h"

#include <cstring>

#include "core/define.h"
#include "model/layer/pass.h"
#include "ops/utility/all_reduce.h"

namespace dodona::model {
namespace {

/// [R, T, H].
Tensor stacked(const std::vector<Tensor>& parts) {
  const Tensor& one = parts.front();
  Tensor all = Tensor::uninitialized(one.dtype(), {static_cast<std::int64_t>(parts.size()), one.size(0), one.size(1)});
  const std::int64_t bytes = bytes_for(one.dtype(), one.elements());
  for (std::size_t r = 0; r < parts.size(); ++r)
    std::memcpy(all.as<std::byte>() + static_cast<std::int64_t>(r) * bytes, parts[r].data(), static_cast<std::size_t>(bytes));
  return all;
}

}  // namespace

Tensor all_reduced(const Pass& p, Part part, std::string_view note, const Tensor& partial) {
  const std::int64_t ranks = p.weights.source().shard().heads.count;
  if (ranks == 1) return partial;
  Tensor terms;
  if (!p.trace.plans()) terms = stacked(p.ranks.tensor->gather(partial.contiguous() ? partial : partial.clone()));
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
