#include "oracle/fib/fib_mla.h"

#include <algorithm>
#include <cstring>

#include "dodona/error.h"
#include "oracle/cases/generate.h"
#include "quant/element.h"

namespace dodona::oracle::fib {
namespace {

const Field& field(const Inputs& inputs, const char* name) {
  const Field* found = inputs.definition().input(name);
  if (found == nullptr) throw Error(ErrorCode::bad_file, "", inputs.definition().path, std::string("has no input ") + name);
  return *found;
}

[[noreturn]] void fail(const Inputs& inputs, const std::string& why) {
  throw Error(ErrorCode::bad_file, "", inputs.definition().name, why);
}

using Numbers = std::vector<std::int64_t>;

Numbers numbers_of(const Tensor& tensor) {
  Numbers values;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) values.push_back(static_cast<std::int64_t>(quant::get(tensor, i)));
  return values;
}

Tensor as_i32(const Numbers& values, const Dims& shape) {
  Tensor tensor(DType::i32, shape);
  for (std::size_t i = 0; i < values.size(); ++i) tensor.as<std::int32_t>()[i] = static_cast<std::int32_t>(values[i]);
  return tensor;
}

/// Whole numbers from the file, or `made` where the workload says random.
Numbers integers(const Inputs& inputs, const char* name, const std::function<Numbers()>& made) {
  const Field& f = field(inputs, name);
  return inputs.source(f).kind == Source::Kind::file ? numbers_of(inputs.load(f)) : made();
}

/// Which pages belong to which request, and what they are called in the smaller cache.
struct Pages {
  std::vector<std::size_t> requests;  ///< those that have pages
  std::vector<Numbers> lists;         ///< of new page numbers, one for each of them
  Numbers lengths;                    ///< tokens
  Numbers old;                        ///< old number of each new page
};

Pages pages_of(const Inputs& inputs, std::int64_t page_size, std::map<std::string, Tensor>& known, std::vector<std::string>& notes) {
  const std::int64_t requests = inputs.axis("batch_size"), indices_count = inputs.axis("num_kv_indices");
  const std::int64_t page_count = inputs.axis("num_pages");
  const Numbers indptr = integers(inputs, "kv_indptr", [&] {
    Numbers even;
    for (std::int64_t b = 0; b <= requests; ++b) even.push_back(indices_count * b / std::max<std::int64_t>(requests, 1));
    return even;
  });
  known["kv_indptr"] = as_i32(indptr, {static_cast<std::int64_t>(indptr.size())});
  inputs.check_constraints(known, notes);
  if (static_cast<std::int64_t>(indptr.size()) != requests + 1) fail(inputs, "kv_indptr must have batch_size + 1 entries");
  const Numbers indices = integers(inputs, "kv_indices", [&] {
    Tensor tensor(DType::i32, {indices_count});
    fill(tensor, Role::page_table, page_count, "normal", 0, "kv_indices");
    return numbers_of(tensor);
  });
  if (indptr.front() != 0 || !std::is_sorted(indptr.begin(), indptr.end()) || indptr.back() > static_cast<std::int64_t>(indices.size()))
    fail(inputs, "kv_indptr must rise from 0 to at most num_kv_indices");
  Numbers last(static_cast<std::size_t>(requests), page_size);
  if (inputs.definition().input("kv_last_page_len") != nullptr) {
    last = integers(inputs, "kv_last_page_len", [&] { return last; });
  } else if (page_size > 1) {
    notes.emplace_back("there is no kv_last_page_len: last pages count as full");
  }
  Pages pages;
  std::map<std::int64_t, std::int64_t> renumbered;
  std::int64_t left_out = 0;
  for (std::size_t b = 0; b < static_cast<std::size_t>(requests); ++b) {
    const std::int64_t count = indptr[b + 1] - indptr[b];
    if (count == 0) {
      ++left_out;
      continue;
    }
    if (last[b] < 1 || last[b] > page_size)
      fail(inputs, "kv_last_page_len is " + std::to_string(last[b]) + ", expected 1 to " + std::to_string(page_size));
    Numbers list;
    for (std::int64_t i = indptr[b]; i < indptr[b + 1]; ++i) {
      const std::int64_t page = indices[static_cast<std::size_t>(i)];
      if (page < 0 || page >= page_count)
        fail(inputs, "kv_indices has the page " + std::to_string(page) + " of " + std::to_string(page_count));
      const auto [at, added] = renumbered.try_emplace(page, static_cast<std::int64_t>(pages.old.size()));
      if (added) pages.old.push_back(page);
      list.push_back(at->second);
    }
    pages.requests.push_back(b);
    pages.lists.push_back(std::move(list));
    pages.lengths.push_back((count - 1) * page_size + last[b]);
  }
  if (left_out > 0)
    notes.push_back(std::to_string(left_out) + " of " + std::to_string(requests) +
                    " requests have no page and are left out (output 0, log-sum-exp -inf)");
  if (pages.requests.empty()) fail(inputs, "no request has a page");
  return pages;
}

/// The pages in use of one cache, row-major [pages, P, width].
Tensor gather(const Inputs& inputs, const char* name, const Pages& pages, const Dims& page_shape, std::uint64_t seed) {
  const Field& f = field(inputs, name);
  const auto type = parse_fib_dtype(f.dtype);
  if (!type) fail(inputs, std::string(name) + " has dtype '" + f.dtype + "'");
  const auto count = static_cast<std::int64_t>(pages.old.size());
  Tensor cache(*type, {count, page_shape[0], page_shape[1]});
  const bool stored = inputs.source(f).kind == Source::Kind::file;
  const Tensor whole = stored ? inputs.load(f) : Tensor();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t old = pages.old[static_cast<std::size_t>(i)];
    const Tensor page = cache.slice(0, i, i + 1);
    // A page has the same values whatever else is in use.
    if (stored) {
      copy(whole.slice(0, old, old + 1), page);
    } else {
      fill(page, Role::values, 0, "normal", seed, std::string(name) + "/" + std::to_string(old));
    }
  }
  return cache;
}

/// Rows of the requests that are kept.
Tensor queries(const Inputs& inputs, const char* name, const Pages& pages, std::uint64_t seed) {
  const Field& f = field(inputs, name);
  const auto type = parse_fib_dtype(f.dtype);
  if (!type) fail(inputs, std::string(name) + " has dtype '" + f.dtype + "'");
  Tensor all = inputs.source(f).kind == Source::Kind::file ? inputs.load(f) : Tensor(*type, inputs.shape(f));
  if (inputs.source(f).kind != Source::Kind::file) fill(all, Role::values, 0, "normal", seed, name);
  Dims shape = all.shape();
  shape[0] = static_cast<std::int64_t>(pages.requests.size());
  Tensor kept(*type, shape);
  for (std::size_t i = 0; i < pages.requests.size(); ++i) {
    const auto b = static_cast<std::int64_t>(pages.requests[i]), to = static_cast<std::int64_t>(i);
    copy(all.slice(0, b, b + 1), kept.slice(0, to, to + 1));
  }
  return kept;
}

/// [.., a] and [.., b] side by side.
Tensor joined(const Tensor& a, const Tensor& b) {
  Dims shape = a.shape();
  shape[shape.rank() - 1] += b.size(-1);
  Tensor both(a.dtype(), shape);
  const int last = shape.rank() - 1;
  copy(a, both.slice(last, 0, a.size(-1)));
  copy(b, both.slice(last, a.size(-1), shape[last]));
  return both;
}

}  // namespace

Case import_paged_mla(const Inputs& inputs, const ImportOptions& options, std::vector<std::string>& notes) {
  const std::int64_t page_size = inputs.axis("page_size");
  std::map<std::string, Tensor> known;
  const Pages pages = pages_of(inputs, page_size, known, notes);
  const auto count = static_cast<std::int64_t>(pages.requests.size());
  const bool trtllm = page_size == 32 || page_size == 64;
  // cutlass_mla_decode wants tables whose width is a multiple of 128 tokens.
  std::int64_t width = 1;
  for (const Numbers& list : pages.lists) width = std::max(width, static_cast<std::int64_t>(list.size()));
  if (!trtllm && page_size > 0 && page_size < 128) width = (width + 128 / page_size - 1) / (128 / page_size) * (128 / page_size);
  Numbers table(static_cast<std::size_t>(count * width), 0);
  for (std::size_t b = 0; b < pages.lists.size(); ++b)
    std::copy(pages.lists[b].begin(), pages.lists[b].end(), table.begin() + static_cast<std::int64_t>(b) * width);

  const Tensor q_nope = queries(inputs, "q_nope", pages, options.seed), q_pe = queries(inputs, "q_pe", pages, options.seed);
  const Tensor ckv = gather(inputs, "ckv_cache", pages, {page_size, inputs.axis("head_dim_ckv")}, options.seed);
  const Tensor kpe = gather(inputs, "kpe_cache", pages, {page_size, inputs.axis("head_dim_kpe")}, options.seed);
  const Field& scale = field(inputs, "sm_scale");
  double sm_scale = 0.13523377886088012;  // what DeepSeek-R1 serves with; for workloads that leave it open
  if (inputs.source(scale).kind == Source::Kind::scalar) {
    sm_scale = inputs.scalar(scale);
  } else {
    notes.emplace_back("sm_scale is not given: 0.1352337788608801");
  }

  Case c;
  c.op = &registry().at(trtllm ? "trtllm_batch_decode_with_kv_cache_mla" : "cutlass_mla_decode");
  if (trtllm) {
    const Tensor query = joined(q_nope, q_pe);
    c.inputs.set("query", query.reshape({count, 1, query.size(1), query.size(2)}));
    c.inputs.set("kv_cache", joined(ckv, kpe));
    c.inputs.set("block_tables", as_i32(table, {count, width}));
    c.inputs.set("seq_lens", as_i32(pages.lengths, {count}));
    c.inputs.set("lse", Tensor(DType::f32, {count, 1, query.size(1)}));
    c.inputs.set_attr("bmm1_scale", sm_scale);
    c.inputs.set_attr("return_lse", true);
  } else {
    c.inputs.set("q_nope", q_nope);
    c.inputs.set("q_pe", q_pe);
    c.inputs.set("kv_c_and_k_pe_cache", joined(ckv, kpe));
    c.inputs.set("seq_lens", as_i32(pages.lengths, {count}));
    c.inputs.set("page_table", as_i32(table, {count, width}));
    c.inputs.set_attr("sm_scale", sm_scale);
    notes.emplace_back("cutlass_mla_decode has no log-sum-exp: lse is not part of the case");
  }
  return c;
}

}  // namespace dodona::oracle::fib
