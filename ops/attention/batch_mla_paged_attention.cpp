#include "ops/attention/batch_mla_paged_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "core/random.h"
#include "ops/softmax/flashinfer/paged_mla_fa2.h"
#include "ops/softmax/layouts/mla_decode.h"
#include "ops/softmax/layouts/offsets.h"
#include "ops/softmax/layouts/paged_mla.h"
#include "quant/element.h"
#include "quant/sizes.h"

namespace dodona::ops {
namespace {

using Call = BatchMlaPagedAttention;

PagedMla call_of(const Call& op, bool as_first = false) {
  return {.q_nope = op.q_nope,
          .q_pe = op.q_pe,
          .ckv = op.ckv_cache,
          .kpe = op.kpe_cache,
          .query_offsets = op.qo_indptr,
          .page_offsets = op.kv_indptr,
          .pages = op.kv_indices,
          .lengths = op.kv_len_arr,
          .out = op.out,
          .lse = op.lse,
          .scale = op.sm_scale,
          .ckv_scale = static_cast<float>(op.ckv_scale),
          .kpe_scale = static_cast<float>(op.kpe_scale),
          .ckv_scales = op.ckv_scale_arr,
          .causal = op.causal,
          .as_first = as_first};
}

PagedMlaAttention attention_of(const Call& op, bool as_first = false) {
  PagedMlaAttention attention(call_of(op, as_first));
  attention.natural_lse = op.return_lse_base_on_e;
  attention.partials_rounded = 1;
  attention.score_errors = ScoreErrors::of_rounded_maximum(attention.key_width, attention.type, attention.scale);
  attention.lse_of_rounded_weights = true;
  attention.lse_of_none_is_open = true;
  attention.nan_is_open = true;
  attention.lowest_maximum = -5e4;
  return attention;
}

void make_inputs(Call& op, std::uint64_t seed) {
  const InputDraw draw(seed, "kv_len_arr");
  const std::int64_t requests = op.kv_len_arr.elements(), page_size = op.ckv_cache.size(1);
  const std::int64_t most = page_size * (op.kv_indices.elements() / requests);
  std::int64_t end = 0;
  for (std::int64_t b = 0; b < requests; ++b) {
    const auto length = b == 0 ? most : static_cast<std::int64_t>(draw.below(b, static_cast<std::uint64_t>(most + 1)));
    op.kv_len_arr.as<std::int32_t>()[b] = static_cast<std::int32_t>(length);
    op.kv_indptr.as<std::int32_t>()[b] = static_cast<std::int32_t>(end);
    end += quant::ceil_div(length, page_size);
  }
  op.kv_indptr.as<std::int32_t>()[requests] = static_cast<std::int32_t>(end);
}

/// Both scales with e4m3, none without.
void check_scales(const Call& op) {
  const bool in_fp8 = op.ckv_cache.dtype() == f8_e4m3;
  if (in_fp8 && op.q_nope.dtype() != bf16)
    throw Error(ErrorCode::bad_dtype, "", "q_nope",
                "has dtype " + std::string(name(op.q_nope.dtype())) + ", expected bf16 with ckv_cache of f8_e4m3");
  if (op.ckv_scale_arr.defined() && (!in_fp8 || op.ckv_scale != 0))
    throw Error(ErrorCode::bad_value, "", "ckv_scale_arr",
                std::string("is given, expected none ") + (in_fp8 ? "beside ckv_scale" : "without caches of f8_e4m3"));
  const auto check_one = [&](double scale, const char* argument, bool needed) {
    if (needed) check_mla_scale(scale, argument);
    if (!in_fp8 && scale != 0)
      throw Error(ErrorCode::bad_value, "", argument, "is " + to_string(AttrValue(scale)) + ", expected none without caches of f8_e4m3");
  };
  check_one(op.ckv_scale, "ckv_scale", in_fp8 && !op.ckv_scale_arr.defined());
  check_one(op.kpe_scale, "kpe_scale", in_fp8);
}

void check(const Call& op) {
  check_mla_scale(op.sm_scale, "sm_scale");
  check_scales(op);
  check_offsets(op.qo_indptr, "qo_indptr", op.q_nope.size(0), tokens_of("q_nope", op.q_nope), true);
  check_offsets(op.kv_indptr, "kv_indptr", op.kv_indices.size(0), "the number of kv_indices", false);
  const auto* const pages = op.kv_indptr.as<const std::int32_t>();
  const std::int64_t page_size = op.ckv_cache.size(1);
  for (std::int64_t b = 0; b < op.kv_len_arr.size(0); ++b)
    if (const std::int64_t length = op.kv_len_arr.as<const std::int32_t>()[b], room = (pages[b + 1] - pages[b]) * page_size; length > room)
      throw Error(ErrorCode::bad_value, "", "kv_len_arr",
                  "holds " + std::to_string(length) + " at element " + std::to_string(b) + ", expected at most the " +
                      std::to_string(room) + " tokens of the pages that kv_indptr gives the request");
}

void golden(const Call& op, const Exec& exec, Reference* reference) {
  attention_golden(attention_of(op), WeightSum::open, exec, reference);
}

/// The rotated parts of keys are multiplied with the latents' scale.
void golden_with_one_scale(const Call& op, const Exec& exec, Reference* reference) {
  Call one = op;
  if (op.ckv_scale != 0) one.kpe_scale = op.ckv_scale;
  golden(one, exec, reference);
}

/// All queries of a request see what the last one sees.
void golden_without_mask(const Call& op, const Exec& exec, Reference* reference) {
  Call all = op;
  all.causal = false;
  golden(all, exec, reference);
}

/// How far a request's queries see is made of its first one.
void golden_as_first(const Call& op, const Exec& exec, Reference* reference) {
  attention_golden(attention_of(op, true), WeightSum::open, exec, reference);
}

void fast(const Call& op, const Exec& exec) {
  attention_fast(attention_of(op), exec);
}

std::optional<Refusal> unsupported(const Call& op, Mode mode) {
  if (mode != Mode::hopper) return {};
  if (op.backend != "fa2") return Refusal{"backend", "'" + op.backend + "' has no hopper mode, expected fa2"};
  if (op.return_lse_base_on_e)
    return Refusal{"return_lse_base_on_e", "is true, where two threads race for the factor ln 2: bits are not settled"};
  return {};
}

void hopper(const Call& op, const Exec& exec) {
  flashinfer_mla_fa2_hopper(call_of(op), exec);
}

/// The request of a token, and which of its queries the token is.
struct Place {
  std::int64_t request, query;
};
Place place_of(const Call& op, std::int64_t token) {
  const auto* const ends = op.qo_indptr.as<const std::int32_t>();
  const auto* const end = std::upper_bound(ends, ends + op.qo_indptr.size(0), token);
  return {end - ends - 1, token - end[-1]};
}

/// The call of one head of a token that sees the first `keys` tokens of its request alone.
Call alone(const Call& op, std::int64_t token, std::int64_t head, std::int64_t request, std::int64_t keys) {
  Call one = op;
  const auto offsets = [](std::int32_t begin, std::int32_t end) {
    Tensor both(i32, {2});
    both.as<std::int32_t>()[0] = begin, both.as<std::int32_t>()[1] = end;
    return both;
  };
  one.q_nope = op.q_nope.slice(0, token, token + 1).slice(1, head, head + 1);
  one.q_pe = op.q_pe.slice(0, token, token + 1).slice(1, head, head + 1);
  one.qo_indptr = offsets(0, 1);
  const auto* const pages = op.kv_indptr.as<const std::int32_t>() + request;
  one.kv_indptr = offsets(pages[0], pages[1]);
  one.kv_len_arr = Tensor(i32, {1});
  one.kv_len_arr.as<std::int32_t>()[0] = static_cast<std::int32_t>(keys);
  one.out = Tensor(op.out.dtype(), {1, 1, mla_latent});
  one.lse = op.lse.defined() ? Tensor(f32, {1, 1}) : Tensor();
  one.causal = false;
  return one;
}

/// Whether the number is one that the call's contract allows; of a token without keys 0, or -inf as its log-sum-exp.
bool is_of(const Call& op, std::string_view output, std::int64_t linear, double number) {
  if (op.kv_len_arr.as<const std::int32_t>()[0] == 0)
    return output == "out" ? number == 0 : number == -std::numeric_limits<double>::infinity();
  Reference reference;
  golden(op, Exec{.mode = Mode::golden, .threads = 1}, &reference);
  const ReferenceOutput* const record = reference.find(output);
  if (record == nullptr) return false;
  const auto i = static_cast<std::size_t>(linear);
  if (!record->unspecified.empty() && record->unspecified[i] != 0) return true;
  const DType type = output == "out" ? op.out.dtype() : f32;
  return number >= quant::round_to(type, record->exact[i] - record->slack[i]) &&
         number <= quant::round_to(type, record->exact[i] + record->slack[i]);
}

/// Upstream's kernels take blocks of 64 or 128 rows, heads of one token after those of the other, and go through tiles of 64 keys, of e4m3
/// 32, up to the last one of the block's whole tokens: of one that begins in the block and ends behind it a tile may be missing, in which
/// only its own key lies.
bool explains_lost_key(const Call& actual, std::string_view output, std::int64_t linear) {
  const bool is_lse = output == "lse";
  const std::int64_t heads = actual.q_nope.size(1), row = is_lse ? linear : linear / mla_latent, token = row / heads;
  const auto [request, query] = place_of(actual, token);
  const auto* const ends = actual.qo_indptr.as<const std::int32_t>();
  const std::int64_t queries = ends[request + 1] - ends[request], hidden = queries - 1 - query;
  const std::int64_t own_key = actual.kv_len_arr.as<const std::int32_t>()[request] - hidden - 1;
  const std::int64_t tile = actual.ckv_cache.dtype() == f8_e4m3 ? 32 : 64;
  const bool may_lose = actual.causal && own_key >= 0 && own_key % tile == 0 && query * heads / 64 != ((query + 1) * heads - 1) / 64 &&
                        query * heads % 64 != 0;
  return may_lose && is_of(alone(actual, token, row % heads, request, own_key), output, is_lse ? 0 : linear % mla_latent,
                           quant::get(is_lse ? actual.lse : actual.out, linear));
}

/// Tokens that a query does not see are multiplied by weights of 0.
bool explains_hidden_tokens(const Call& actual, std::string_view output, std::int64_t linear) {
  if (output != "out" || !std::isnan(quant::get(actual.out, linear))) return false;
  const Place at = place_of(actual, linear / (actual.q_nope.size(1) * mla_latent));
  const std::int64_t page_size = actual.ckv_cache.size(1), column = linear % mla_latent;
  const auto* const pages = actual.kv_indptr.as<const std::int32_t>();
  for (std::int64_t j = 0; j < (pages[at.request + 1] - pages[at.request]) * page_size; ++j) {
    const std::int64_t page = actual.kv_indices.as<const std::int32_t>()[pages[at.request] + j / page_size];
    const std::int64_t element = page * actual.ckv_cache.stride(0) + j % page_size * actual.ckv_cache.stride(1) + column;
    if (!std::isfinite(quant::load(actual.ckv_cache.dtype(), actual.ckv_cache.data(), element))) return true;
  }
  return false;
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_batch_mla_paged_attention() {
  return define<ops::BatchMlaPagedAttention>({
      .contract = R"(
As trtllm_batch_decode_with_kv_cache_mla, of which it has the budget: upstream adds up the weights after their rounding to the queries' type.
Beside that outputs of splits may be rounded to the output's type before they are merged: a unit of it of sum of p * |ckv|, of denormals of f16 2^-25. lse is base 2, of the weights rounded or not, or natural:
the same times ln 2, rounded once more (upstream's fa2 kernel takes ln 2 twice in some rows: wrong). A query of a request
without tokens gives zeros, and its lse is not judged, nor anything of one that sees none of the tokens that there are: upstream begins its maximum at -5e4 and
puts that in the place of masked q . k, so that its lse is about -5e4 and masked tokens may weigh. For the same reason rows are not judged whose largest
q . k lies below -5e4 + 104 / sm_scale, and, as its rounded maximum is taken from products that are not rounded, rows whose scores overflow by that rounding
(from |sm_scale * q . k| of about 2^30 / log2 e on, 2^27 in f16). What a query gets that has a NaN among its scores is not judged: maxima drop it, and kernels take NaN codes of e4m3 for numbers.
What lies behind a request's tokens has no effect. Here errors: offsets
that fall, lengths beyond the pages, pages out of range, e4m3 without its scales or scales without it. Numbers of e4m3 caches are bf16(code * s), s the
scale rounded to bf16, or where each 128 columns of a token have one that scale as it is; keys and values alike. The cutlass backend is not taken, which
takes no scale at all. Hopper mode has the order of FlashInfer's fa2 kernel as of 2026-08-22 (ops/softmax/flashinfer/paged_mla_fa2.h) with backend=fa2, as planned for 132 multiprocessors: own keys that
it loses are lost there, and NaN codes of e4m3 are 480. Releases up to 0.6.18 give other bits in rows that see no token, or none whose q . k is above -5e4.)",
      .contract_version = 4,
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .flops = [](const ops::BatchMlaPagedAttention& op) { return ops::attention_flops(ops::attention_of(op)); },
      .bytes_read =
          [](const ops::BatchMlaPagedAttention& op) {
            double tokens = static_cast<double>(op.q_nope.size(0) * op.q_nope.size(1));
            for (std::int64_t b = 0; b < op.kv_len_arr.size(0); ++b) tokens += op.kv_len_arr.as<const std::int32_t>()[b];
            return tokens * static_cast<double>(bytes_for(op.ckv_cache.dtype(), ops::mla_width));
          },
      .defects = {{"own-key-lost", "out",
                   "heads that do not divide 64, with causal and several queries: a token whose heads lie in two blocks of rows misses "
                   "its own key in the first where that begins a tile of 64 keys (32 of e4m3); where it is the only one, zeros and -inf",
                   ops::explains_lost_key},
                  {"hidden-tokens-show", "out",
                   "tokens that a query does not see are multiplied by weights of 0: what is not finite among their values gives NaN",
                   ops::explains_hidden_tokens}},
      .mistakes = {{"rope-part-with-latent-scale", "kpe_cache is multiplied with ckv_scale", ops::golden_with_one_scale},
                   {"mask-left-out", "every query sees all tokens of its request", ops::golden_without_mask},
                   {"extent-of-first-query", "every query of a request sees what its first query does", ops::golden_as_first}},
      .cases = {"T=5 N=4 pages=24 P=16 B=2 n=20 --attr causal=true --attr sm_scale=0.1352337788608801 --attr return_lse=true",
                "T=3 N=2 pages=60 P=1 B=3 n=50 --attr sm_scale=0.0721687836 --dtype q_nope=f16",
                "T=5 N=3 pages=12 P=16 B=2 n=10 --attr causal=true --attr sm_scale=0.07 --attr return_lse=true --attr backend=fa2",
                "T=2 N=3 pages=2 P=16 B=1 n=2 --attr sm_scale=0.0721687836 --attr return_lse=true --attr return_lse_base_on_e=true",
                // NOLINTNEXTLINE(bugprone-suspicious-missing-comma)
                "T=4 N=3 pages=6 P=16 B=2 n=4 --attr causal=true --attr sm_scale=0.02 --attr ckv_scale=0.3 --attr kpe_scale=0.7 --dtype "
                "ckv_cache=f8_e4m3",
                "T=2 N=2 pages=4 P=16 B=1 n=3 --with ckv_scale_arr --attr sm_scale=0.004 --attr kpe_scale=1 --attr return_lse=true "
                "--dtype ckv_cache=f8_e4m3"},
      .bench_cases = {"T=1 N=128 pages=64 P=64 B=1 n=64 --attr sm_scale=0.1352337788608801"},
  });
}
}  // namespace dodona
