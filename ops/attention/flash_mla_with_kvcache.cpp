#include "ops/attention/flash_mla_with_kvcache.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/softmax/flash_mla/dense.h"
#include "ops/softmax/flash_mla/fp8.h"
#include "ops/softmax/layouts/mla_decode.h"
#include "ops/softmax/leaked_values.h"
#include "quant/element.h"

namespace dodona::ops {
namespace {

bool in_fp8(const FlashMlaWithKvcache& op) {
  return op.q.dtype() == f8_e4m3;
}

double given_scale(const FlashMlaWithKvcache& op) {
  return op.softmax_scale == 0 ? 1 / std::sqrt(static_cast<double>(mla_width)) : op.softmax_scale;
}

float descale(const Tensor& scale) {
  return scale.defined() ? *scale.as<const float>() : 1.0f;
}

MlaDecode decode_of(const FlashMlaWithKvcache& op) {
  const double scale = given_scale(op), narrow = static_cast<float>(scale);
  return {.q_nope = op.q.slice(3, 0, mla_latent),
          .q_pe = op.q.slice(3, mla_latent, mla_width),
          .cache = op.k_cache.reshape({op.k_cache.size(0), flash_mla_block, mla_width}),
          .page_table = op.block_table,
          .seq_lens = op.cache_seqlens,
          .out = op.out,
          .lse = op.softmax_lse,
          .scale = in_fp8(op) ? narrow * descale(op.descale_q) * descale(op.descale_k) : scale,
          .out_scale = descale(op.descale_k),
          .causal = op.causal,
          .empty_is_open = in_fp8(op),
          .flash_mla = true};
}

FlashMlaWork work_of(const FlashMlaWithKvcache& op) {
  const auto* const lengths = op.cache_seqlens.as<const std::int32_t>();
  return {in_fp8(op) ? FlashMlaKernel::dense_fp8 : FlashMlaKernel::dense,
          {lengths, lengths + op.cache_seqlens.size(0)},
          op.tile_scheduler_metadata,
          op.num_splits};
}

FlashMla call_of(const FlashMlaWithKvcache& op) {
  return {.q = op.q,
          .cache = op.k_cache,
          .block_table = op.block_table,
          .work = work_of(op),
          .out = op.out,
          .lse = op.softmax_lse,
          .scale = given_scale(op),
          .causal = op.causal,
          .descale_q = descale(op.descale_q),
          .descale_k = descale(op.descale_k)};
}

void make_inputs(FlashMlaWithKvcache& op, std::uint64_t) {
  write_flash_mla_schedule(work_of(op));
}

DType out_type(const FlashMlaWithKvcache& op) {
  return op.q.dtype() == f16 ? f16 : bf16;
}

void make_outputs(FlashMlaWithKvcache& op) {
  if (!op.out.defined() && op.q.defined() && op.q.rank() == 4)
    op.out = Tensor(out_type(op), {op.q.size(0), op.q.size(1), op.q.size(2), mla_latent});
}

void check(const FlashMlaWithKvcache& op) {
  if (op.is_fp8_kvcache && !in_fp8(op))
    throw Error(
        ErrorCode::unsupported, "", "is_fp8_kvcache",
        "is true and q is " + std::string(name(op.q.dtype())) + ": such a call gives a list of slots, and is flash_mla_sparse_decode");
  if (op.out.dtype() != out_type(op))
    throw Error(ErrorCode::bad_dtype, "", "out",
                "has dtype " + std::string(name(op.out.dtype())) + ", expected " + std::string(name(out_type(op))) + " as q is " +
                    std::string(name(op.q.dtype())));
  for (const auto& [scale, argument] : {std::pair(&op.descale_q, "descale_q"), std::pair(&op.descale_k, "descale_k")}) {
    if (scale->defined() && !in_fp8(op))
      throw Error(ErrorCode::bad_value, "", argument,
                  "is given, expected it with q of f8_e4m3 alone: q is " + std::string(name(op.q.dtype())));
    check_mla_scale(descale(*scale), argument);
  }
  check_mla_scale(decode_of(op).scale, "softmax_scale");
  check_mla_pages(decode_of(op), "block_table");
  check_flash_mla_schedule(work_of(op));
}

void golden_of(const FlashMlaWithKvcache& op, const MlaDecode& decode, const Exec& exec, Reference* reference) {
  const DType type = op.q.dtype();
  MlaAttention attention(decode);
  attention.lse_name = "softmax_lse";
  attention.nan_is_open = true;
  attention.splits_merged_by_lse = most_splits(op.num_splits);
  attention.score_errors = flash_mla_score_errors(type, decode.scale);
  if (type == f8_e4m3) {
    attention.score_errors->of_key = lost_by_fp8_steps;
    attention.value_unit = &quant::tensor_core::fp8_wgmma;
  }
  attention_golden(attention, WeightSum::unrounded, exec, reference);
}

void golden(const FlashMlaWithKvcache& op, const Exec& exec, Reference* reference) {
  golden_of(op, decode_of(op), exec, reference);
}

void fast(const FlashMlaWithKvcache& op, const Exec& exec) {
  attention_fast(MlaAttention(decode_of(op)), exec);
}

void hopper(const FlashMlaWithKvcache& op, const Exec& exec) {
  in_fp8(op) ? flash_mla_fp8_hopper(call_of(op), exec) : flash_mla_hopper(call_of(op), exec);
}

/// Whether a NaN is what tokens behind the query, whom the causal mask hides, left in its block.
bool explains_hidden_tokens(const FlashMlaWithKvcache& actual, std::string_view output, std::int64_t linear) {
  if (output != "out" || !actual.causal || !std::isnan(quant::get(actual.out, linear))) return false;
  const std::int64_t queries = actual.q.size(1), query = linear / (actual.q.size(2) * mla_latent) % queries;
  const std::int64_t request = linear / (actual.q.size(2) * mla_latent * queries);
  const std::int64_t tokens = actual.cache_seqlens.as<const std::int32_t>()[request];
  for (std::int64_t t = std::max<std::int64_t>(0, tokens - queries + query + 1); t < tokens; ++t) {
    const auto page = static_cast<std::int64_t>(quant::get(actual.block_table, request * actual.block_table.size(1) + t / flash_mla_block));
    if (holds_infinite_value(actual.k_cache.reshape({actual.k_cache.size(0) * flash_mla_block, 1, mla_width}),
                             {page * flash_mla_block + t % flash_mla_block, 1}, 0, linear % mla_latent))
      return true;
  }
  return false;
}

/// Whether a log-sum-exp is one of scores of 0: of all of a request's keys, or of those of splits in which none was masked; or infinite,
/// for upstream takes a sum that is NaN for none.
bool is_of_flushed_scores(const FlashMlaWithKvcache& actual, std::int64_t linear) {
  const double lse = quant::get(actual.softmax_lse, linear);
  const std::int64_t request = linear / (actual.softmax_lse.elements() / actual.q.size(0));
  const double keys = actual.cache_seqlens.as<const std::int32_t>()[request], most = std::log(std::fmax(keys, 1.0));
  constexpr double near = 0x1p-18;
  return lse == std::numeric_limits<double>::infinity() || (lse >= -near && lse <= most + near * (1 + most));
}

/// Whether a build that flushes denormals has a scale of 0, with which it then multiplies the -inf of keys that are not there.
bool explains_flushed_scale(const FlashMlaWithKvcache& actual, std::string_view output, std::int64_t linear) {
  if (!in_fp8(actual)) return false;
  const double scale = given_scale(actual) * std::numbers::log2e, of_q = descale(actual.descale_q), of_k = descale(actual.descale_k);
  if (!may_flush(of_q) && !may_flush(of_k) && !may_flush(scale * of_q) && !may_flush(scale * of_q * of_k)) return false;
  return output == "softmax_lse" ? is_of_flushed_scores(actual, linear) : std::isnan(quant::get(actual.out, linear));
}

/// The output without the factor of the values.
void undescaled(const FlashMlaWithKvcache& op, const Exec& exec, Reference* reference) {
  MlaDecode decode = decode_of(op);
  decode.out_scale = 1;
  golden_of(op, decode, exec, reference);
}

/// How far a request's queries see is made of its first one.
void golden_as_first(const FlashMlaWithKvcache& op, const Exec& exec, Reference* reference) {
  MlaDecode decode = decode_of(op);
  decode.as_first = true;
  golden_of(op, decode, exec, reference);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_flash_mla_with_kvcache() {
  return define<ops::FlashMlaWithKvcache>({
      .contract = R"(
As cutlass_mla_decode, of which it has the budget: z[j] one fp32 sum of 576 exact products; softmax about a running maximum; weights rounded to
the element type for their products with the latents, their sum taken over the unrounded ones; fp32 sums, times the reciprocal of the sum of
the weights, one rounding. Splits are
merged by powers of differences of their log-sum-exps, which do not add up to 1: 2^-22 (abs(lse) + 4) of the output, and never more
than n - 1 times the output of n splits (n = 2 at least). softmax_lse is the natural
logarithm, a product with ln 2 of that in base 2: one unit of 2^-24 more. A query that sees no key gives zeros and +inf. Heads are not judged with a NaN among their
scores (upstream's kernel gives +inf for a sum of weights that is NaN, and its maximum passes NaN by), nor those whose scores may come to 2^27 (f16) or 2^30 (bf16), for the kernel's weights may
then overflow: the maximum that is taken from a score is rounded, the score is not. Of e4m3 (2^27 too) sums are those of the fp8 tensor core,
or better: the budget holds what its steps of 32 may lose of a score, which are followed, and of the products of weights and values, 64 keys after 64
in either direction. Weights are rounded to e4m3 as they are, at most 1: shares of trtllm_batch_decode_with_kv_cache_mla. Where descale_k, or its quotient by the sum of the weights, is so small that it may be flushed, zeros are right as well. What a request of 0 tokens
gives is open there: upstream writes what its registers held. Upstream's kernel of e4m3 masks the last two blocks of 64 keys of a request alone: with
causal and more than 65 query tokens the first of these may see keys behind themselves in it, and in hopper mode; golden and fast mode mask all of them. How the work is cut shows in the H200's bits alone: hopper mode takes blocks of 64 keys in pairs by
tile_scheduler_metadata, and combines splits as FlashMLA does. Keys beyond a sequence's end are ignored. Here errors: a page in use out of range, descale_q or
descale_k without e4m3 (e4m3 without them: 1, where upstream asks for both), metadata that do not cut every request into the splits that num_splits has, a scale that is not positive.)",
      .contract_version = 4,
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .make_outputs = ops::make_outputs,
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .flops = [](const ops::FlashMlaWithKvcache& op) { return ops::attention_flops(ops::MlaAttention(ops::decode_of(op))); },
      .bytes_read = [](const ops::FlashMlaWithKvcache& op) { return ops::MlaAttention(ops::decode_of(op)).bytes_read(); },
      .defects =
          {{"hidden-tokens-show", "out",
            "new tokens behind a query are multiplied by weights of 0 in its block: what is not finite among their values gives NaN",
            ops::explains_hidden_tokens},
           {"flushed-scale-poisons", "out",
            "e4m3, where softmax_scale * log2(e) * descale_q * descale_k or a factor of it is flushed: scores that are masked, -inf, "
            "times 0 give NaN; log-sum-exps are +inf, or those of scores of 0 of all keys or of some splits' (held to that)",
            ops::explains_flushed_scale}},
      .mistakes = {{"values_not_descaled", "e4m3 values not multiplied with descale_k", ops::undescaled},
                   {"extent-of-first-query", "every query of a request sees what its first query does", ops::golden_as_first}},
      .cases = {"B=2 Q=1 N=4 pages=5 W=2 parts=4 --attr softmax_scale=0.1352337788608801",
                "B=2 Q=2 N=3 pages=6 W=3 parts=7 --attr softmax_scale=0.07 --attr causal=true --dtype q=f16",
                "B=2 Q=2 N=3 pages=5 W=2 parts=3 --attr softmax_scale=0.0005 --attr causal=true --dtype q=f8_e4m3 --with descale_q --with "
                "descale_k"},
      .bench_cases = {"B=1 Q=1 N=128 pages=64 W=64 parts=66 --attr softmax_scale=0.1352337788608801",
                      "B=8 Q=1 N=128 pages=128 W=16 parts=66 --attr softmax_scale=0.1352337788608801",
                      "B=1 Q=1 N=128 pages=64 W=64 parts=66 --attr softmax_scale=0.0005 --dtype q=f8_e4m3 --with descale_q --with "
                      "descale_k"},
  });
}
}  // namespace dodona
