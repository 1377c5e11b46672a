// Attention to rows of keys and values in memory, as golden and fast mode take it: an op says what lies where, and nothing else.
//
// A row is some queries that share their keys: the heads of one token, or one head of tokens that follow each other. With the keys that it
// sees a query has
//     z[j] = q . k[j],   p = softmax(scale * z),   out = out_scale * sum over j of p[j] * v[j].
// Masks are the keys that a row does not list, and of those that it lists a query may see the first ones alone, as causal masks have it, or
// not the first ones, as windows have it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "dodona/exec.h"
#include "dodona/op.h"
#include "dodona/tensor.h"
#include "ops/softmax/scores.h"
#include "quant/tensor_core/unit.h"

namespace dodona::ops {

/// Columns of the queries of one row: `width` of them, a multiple of 16, query after query.
struct QueryPart {
  const std::byte* first_head = nullptr;
  std::int64_t head_stride = 0;  ///< bytes
  std::int64_t width = 0;
};
/// One after the other they make a query; the second may have no columns.
using QueryParts = std::array<QueryPart, 2>;

/// What the row of a key is.
enum class KeyRows {
  elements,  ///< key_width elements of the keys' type
  k_cache,   ///< 656 bytes, see ops/rows/cache/k_cache_row.h: bf16(code * bf16(scale)) for its codes, and bf16 elements; values begin keys
};

/// Keys of other types than those behind them: a cache of 8 bits before new tokens.
struct CachedKeys {
  DType type;                         ///< of the keys and their values
  DType queries;                      ///< of Attention::cached_queries
  DType weights;                      ///< what weights are rounded to for their products with the values; f32: not at all
  std::optional<ScoreErrors> errors;  ///< of their scores
};

class Attention {
 public:
  std::int64_t rows = 0, heads = 0;             ///< heads: queries of a row, at most
  std::int64_t key_width = 0, value_width = 0;  ///< elements, multiples of 16
  bool values_in_keys = false;                  ///< a value is the beginning of its key
  DType type = DType::bf16;                     ///< of queries, keys and values
  KeyRows key_rows = KeyRows::elements;
  std::optional<CachedKeys> cached;         ///< see cached_keys
  double scale = 1, out_scale = 1;          ///< narrowed to fp32, as kernels take them
  double cap = 0;                           ///< not 0: scores scale * z become cap * tanh(scale * z / cap); narrowed to fp32
  double cap_error = cap_of_exponentials;   ///< relative to the cap: of the kernels' tanh
  Tensor out;                               ///< rows of value_width, inner stride 1, equally far apart
  Tensor lse;                               ///< f32, contiguous: log2 of the sum of exp(scale * z); may be undefined
  std::int64_t out_step = 1, lse_step = 1;  ///< rows of out, and numbers of lse, from one query of a row to the next
  Tensor top;                               ///< f32, as lse: log2(e) times the largest score; may be undefined
  bool natural_lse = false;                 ///< the natural logarithm in the place of log2, and the largest score itself
  double lse_of_none = -std::numeric_limits<double>::infinity();  ///< of a query that sees no key

  // What golden mode asks beside.
  std::string_view out_name = "out", lse_name = "lse", top_name = "max_logits";  ///< as the op calls them
  std::optional<ScoreErrors> score_errors = {};  ///< of the op's kernels, where their scores are no fp32 sums
  bool weights_normalised = false;               ///< rounded after their division by the sum so far, or before it
  bool nan_is_open = false;                      ///< what a query gets that has a NaN among its scores is not compared
  bool none_is_open = false;                     ///< what a query gets that sees no key is not compared
  bool lse_of_rounded_weights = false;           ///< lse may be that of the sum of the rounded weights
  bool lse_of_none_is_open = false;              ///< of that lse alone
  /// Where kernels begin their running maximum of q . k, and what masked keys have in its place.
  double lowest_maximum = -std::numeric_limits<double>::infinity();
  /// So many splits of a row, at most, may be merged by powers of differences of rounded log-sum-exps, which do not add up to 1. 0: none.
  std::int64_t splits_merged_by_lse = 0;
  bool sink_leads = false;  ///< kernels may take sinks into the maximum that weights are rounded about
  /// A unit whose steps may add up the products of weights and values in the place of fp32, 64 keys after 64; where keys are cached, of
  /// those alone.
  const quant::tensor_core::MmaSpec* value_unit = nullptr;
  int partials_rounded = 0;  ///< how often outputs of splits may be rounded to the output's type before the last merge

  virtual ~Attention() = default;
  /// Keys that the row lists.
  virtual std::int64_t visible(std::int64_t row) const = 0;
  /// So many of them a query of the row sees, the first ones; those behind it no fewer. Without any it gives zeros and -inf.
  virtual std::int64_t visible_to(std::int64_t row, std::int64_t) const { return visible(row); }
  /// Of these it does not see the first so many; a query behind it no fewer. Fast mode alone: golden mode takes rows that hide none.
  virtual std::int64_t hidden_to(std::int64_t, std::int64_t) const { return 0; }
  /// So many keys at the beginning of the row's list are `cached`; 0 without that.
  virtual std::int64_t cached_keys(std::int64_t) const { return 0; }
  /// A score of the query whose value is 0, as it is, or -inf: none.
  virtual double sink(std::int64_t, std::int64_t) const { return -std::numeric_limits<double>::infinity(); }
  /// Likewise of this row.
  virtual bool open_for_none(std::int64_t) const { return none_is_open; }
  /// Queries of the row.
  virtual std::int64_t queries_of(std::int64_t) const { return heads; }
  /// Row of `out`, and number in `lse`, of the row's first query.
  virtual std::int64_t out_row(std::int64_t row) const { return row * heads; }
  virtual std::int64_t lse_row(std::int64_t row) const { return out_row(row); }
  /// What the scores of a query of the row are multiplied with, after the cap.
  virtual double temperature(std::int64_t, std::int64_t) const { return 1; }
  /// How far the elements of a query, and of one of the row's keys, may be from these in honest implementations; nullptr: nowhere.
  virtual const double* query_errors(std::int64_t, std::int64_t) const { return nullptr; }
  virtual const double* key_errors(std::int64_t, std::int64_t) const { return nullptr; }
  virtual QueryParts queries(std::int64_t row) const = 0;
  /// The same as cached keys meet them.
  virtual QueryParts cached_queries(std::int64_t row) const { return queries(row); }
  /// Addresses of `count` of these keys from number `first` on, and unless values_in_keys of their values.
  virtual void list(std::int64_t row, std::int64_t first, std::int64_t count, const std::byte** keys, const std::byte** values) const = 0;
};

/// Where the sum of the weights is taken: over the fp32 weights, or where the contract leaves it open over the rounded ones.
enum class WeightSum { unrounded, open };

/// Writes out and lse, and with a reference records them.
void attention_golden(const Attention& call, WeightSum sum, const Exec& exec, Reference* reference);
/// As attend.h says.
void attention_fast(const Attention& call, const Exec& exec);

/// log2 position / log2 length for positions beyond a length that is not 0, else 1.
double temperature(std::int64_t position, std::int64_t length);

/// Two products of every query with every key that it sees.
double attention_flops(const Attention& call);

}  // namespace dodona::ops
