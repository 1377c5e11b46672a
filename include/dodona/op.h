// Ops: schemas, arguments, the inventory, and calls by name.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "dodona/dtype.h"
#include "dodona/exec.h"
#include "dodona/prepared.h"
#include "dodona/tensor.h"

namespace dodona {

enum class Category { normalization, activation, rope, attention, gemm, quantization, moe, sampling, speculative, nsa, kv_cache, utility };
std::string_view name(Category category);

enum class Source { sgl_kernel, flashinfer, triton, torch, deep_gemm, tilelang };
std::string_view name(Source source);

/// Where a kernel comes from. Several projects may offer it under one name with the same parameters; the one it was taken from is first.
class Sources {
 public:
  constexpr Sources() = default;
  constexpr Sources(Source only) : list_{only}, count_(1) {}
  constexpr Sources(std::initializer_list<Source> sources) {
    for (const Source source : sources) list_[count_++] = source;
  }
  constexpr const Source* begin() const { return list_.data(); }
  constexpr const Source* end() const { return list_.data() + count_; }
  constexpr Source first() const { return list_[0]; }
  constexpr bool contains(Source wanted) const {
    for (const Source source : *this)
      if (source == wanted) return true;
    return false;
  }

 private:
  std::array<Source, 4> list_{};
  std::size_t count_ = 0;
};
/// `sgl-kernel, flashinfer`
std::string to_string(const Sources& sources);

enum class Direction { in, out, inout };

/// What a tensor means, where a number is not just a number. Inputs are generated valid by role, outputs compared by role.
enum class Role {
  values,      ///< plain numbers
  weight,      ///< a learned weight: near 1 or near 0, finite
  positions,   ///< token positions, each below the bound
  indices,     ///< slots or rows, distinct, each below the bound
  page_table,  ///< page ids; those in use lie below the bound, which the op checks as it knows them
  lengths,     ///< lengths of sequences, 1 or more, each below the bound
  indptr,      ///< rising offsets that begin at 0
  expert_ids,  ///< expert numbers, each below the bound
  scale,       ///< positive, never NaN
  cos_sin,     ///< cosines in the first half of each row, sines in the second
  probs,
  logits,
  lse_base_2,
  lse_base_e,
  coins,  ///< uniform draws
};
std::string_view name(Role role);

/// How an output is compared.
enum class Judge {
  exact,     ///< bits are equal
  code,      ///< codes are equal, or adjacent where the value before rounding lies within the stated distance of the boundary
  budget,    ///< every element is within its budget
  top_k,     ///< members are the contract's, after Op::condition has settled the choices that it leaves open by the actual ones
  grouping,  ///< each group holds the same members
};
std::string_view name(Judge judge);

/// Which memory layouts an argument may have.
enum class Layout {
  rows,          ///< inner stride 1, the other strides free
  contiguous,    ///< row-major, no gaps
  column_major,  ///< last two dimensions swapped in memory: [.., k, n] stored as [.., n, k] without gaps
  any,           ///< all strides free
};
std::string_view name(Layout layout);

/// Where the scale of row r and group g lies in a matrix of scales.
enum class ScaleOrder {
  linear,          ///< row by row, groups next to each other
  swizzled_128x4,  ///< tiles of 128 rows x 4 groups, in a tile row r at (r mod 32)*16 + (r/32)*4; rows pad to 128, groups to 4
  swizzled_8x4,    ///< tiles of 8 x 4, row by row inside; rows pad to 8, groups to 4
  m_major,         ///< group by group: the tensor is [groups, rows]
  ue8m0_words,     ///< i32 words of four groups of a row, group by group of words, rows padded to 4: [rows, groups/4] by columns
  interleaved_4,   ///< four groups of a row next to each other: the tensor is [groups/4, rows*4]
};
std::string_view name(ScaleOrder order);

/// What a tensor's memory holds, where that is more than its elements in the order of its shape.
struct Storage {
  /// The bytes hold codes of this type, the first one in the low bits: f4_e2m1 makes two codes a byte. Codes are what is judged.
  std::optional<DType> code;

  struct Scales {
    std::string of;                      ///< the tensor whose elements are scaled
    std::int64_t rows = 1, columns = 0;  ///< one scale for so many of its rows and columns; 0: for all of them
    ScaleOrder order = ScaleOrder::linear;
    bool by_expert = false;  ///< each expert's rows begin a tile of their own
  };
  std::optional<Scales> scales;
};
/// In words, for readers: "f4_e2m1 codes, two a byte, the first in the low nibble". Empty where there is nothing to say.
std::string to_string(const Storage& storage);

struct OpInfo {
  std::string_view name;
  Category category;
  Sources sources;
};

struct TensorSpec {
  std::string name;
  Direction direction = Direction::in;
  bool optional = false;
  bool on_request = false;    ///< an optional input that a case line has only where it asks for it: --with NAME
  std::vector<DType> dtypes;  ///< accepted element types; empty when it follows another argument or an attribute
  std::string same_dtype_as;  ///< name of the tensor whose dtype it shares
  std::string dtype_attr;     ///< name of the attribute that names its dtype
  std::string shape;          ///< shape expression, see core/shape_expr.h
  Layout layout = Layout::rows;
  Storage storage;
  int alignment = 1;  ///< bytes that the base address must be a multiple of
  Role role = Role::values;
  std::string bound;       ///< for ids, positions and lengths: the dimension expression that every value is below
  bool may_stray = false;  ///< values outside the bound are legal: it only says what to generate
  std::string kin;         ///< of an input that case lines do not draw but make of other inputs: how, in words
  Judge judge = Judge::budget;
  bool padded = false;  ///< holds elements that the contract leaves unspecified
  std::string view_of;  ///< an output that is no memory of its own but a view of this argument, made by the call
  bool given = false;   ///< an output that the caller always gives, for its shape follows from no other argument
  std::string when;     ///< an optional output that the call makes when this attribute is true
  std::string doc;
};

using AttrValue = std::variant<std::int64_t, double, bool, std::string, DType>;
std::string to_string(const AttrValue& value);

struct AttrSpec {
  std::string name;
  AttrValue default_value;  ///< its alternative is the attribute's type
  bool required = false;
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices;                               ///< for text: the accepted words
  std::vector<DType> dtypes;                                      ///< for dtypes: the accepted ones
  bool recipe = false;                                            ///< a numerics choice, stored in every case
  bool ignored = false;                                           ///< accepted for upstream's signature, without effect on values
  std::vector<std::pair<std::string, AttrValue>> dialect_values;  ///< values under dialects other than the default one
  std::string doc;
};

struct SymbolSpec {
  std::string name = {};
  std::int64_t multiple_of = 1, minimum = 0, maximum = std::int64_t{1} << 40;
  std::vector<std::int64_t> choices = {};  ///< accepted values; empty for all
};

/// Properties that become tests.
struct Properties {
  std::vector<std::string> rows_independent;                  ///< symbols along which a row alone equals the row in its batch
  std::vector<std::pair<std::string, std::string>> in_place;  ///< (output, input) that may be the same memory
  std::vector<std::string> prepared;                          ///< arguments that fast mode takes packed, see Op::pack
};

class CompiledSchema;

struct OpSchema {
  /// Upstream's parameters in their order, each a tensor or attribute of this schema, or PARAMETER=NAME where upstream has another name
  /// for it, or PARAMETER= where it says nothing that the others do not: "input, weight, eps, out=output". Empty when upstream takes the
  /// tensors that it reads, then attributes.
  std::string signature;
  std::vector<TensorSpec> tensors;
  std::vector<AttrSpec> attrs;
  std::vector<SymbolSpec> symbols;
  Properties properties;
  std::shared_ptr<const CompiledSchema> compiled;

  const TensorSpec* find_tensor(std::string_view name) const;
  const AttrSpec* find_attr(std::string_view name) const;
};

/// Named tensors and attributes of one call.
struct Arguments {
  NamedTensors tensors;
  std::vector<std::pair<std::string, AttrValue>> attrs;
  Prepared prepared = {};  ///< stands for the arguments that it was made of, which are not given then; for fast mode

  /// nullptr when absent.
  const Tensor* find(std::string_view name) const;
  const AttrValue* find_attr(std::string_view name) const;
  void set(std::string_view name, Tensor tensor);
  void set_attr(std::string_view name, AttrValue value);
};

/// How the elements of an output judged by `grouping` belong together: within a group the members may stand in any order.
struct Grouping {
  std::string noun;                 ///< what a group is, for reports: expert
  std::vector<std::int32_t> group;  ///< of each element; -1 where the value itself is asked for (padding)
  /// The other output that fixes the order after all: each member stands where `exact` has it. Set by Op::condition.
  std::string follows;
};

/// What golden mode knows of one output beyond its rounded value.
/// An honest implementation computes a value within `slack` of `exact` and rounds it once to the output's type;
/// slack 0 says that nothing is open and the bits must be those of the rounded `exact`. Judged by bits, a NaN with slack may be any NaN.
struct ReferenceOutput {
  std::string name;
  std::vector<double> exact, slack;       ///< row-major over the logical shape; codes that are packed in bytes count one by one
  std::vector<std::uint8_t> unspecified;  ///< empty, or 1 where the contract says nothing (padding)
  std::optional<Grouping> grouping;       ///< for the judge of that name
};

/// A value: copies are independent.
class Reference {
 public:
  /// The record of the output called `name`, made on first use for `elements` elements.
  ReferenceOutput& output(std::string_view name, std::int64_t elements);
  const ReferenceOutput* find(std::string_view name) const;

 private:
  std::deque<ReferenceOutput> outputs_;  ///< records stay where they are while others are added
};

/// A known defect of an op's upstream kernel: recognised by name in recorded outputs, never imitated by golden mode.
struct KnownDefect {
  std::string_view id, output, summary;
};
/// The known defect that explains the element `linear` of an actual output; nullptr for none.
using DefectFinder = std::function<const KnownDefect*(std::string_view output, std::int64_t linear)>;

/// Why a mode is not to be had for some arguments: which one, and what of it.
struct Refusal {
  std::string argument, reason;
};

/// What upstream's own test of an op compares, and how closely.
enum class CustomaryKind {
  close,       ///< |actual - expected| <= atol + rtol |expected| everywhere
  below,       ///< largest |actual - expected| < atol
  cosine,      ///< cosine similarity over the whole output > atol
  sorted,      ///< as close, after sorting each row
  round_trip,  ///< input_permutation undoes output_permutation; the experts are not looked at
  unchecked,   ///< the test does not look at this output
};
struct Customary {
  std::string_view output;  ///< `*` for every output that has no line of its own
  CustomaryKind kind;
  double rtol, atol;
  std::string_view source;
};

/// An op under the names of FlashInfer-Bench's Definitions.
struct FibNames {
  using Pairs = std::vector<std::pair<std::string_view, std::string_view>>;
  std::string_view api;      ///< last part of the public function's name; empty when there is none
  std::string_view type;     ///< op_type of Definitions that name no function
  std::string_view prefix;   ///< of their own name: gemma_rmsnorm has rmsnorm's op_type and arguments, and adds 1 to its weight
  Pairs arguments, outputs;  ///< ours, theirs
};

/// A mistake that kernels of an op are known to make and that no other call of it would reproduce: what a failing kernel is compared
/// with, and what the judges must notice.
struct KernelMistake {
  std::string_view id, text;
  bool may_hide = false;  ///< it may change results by no more than the contract leaves open
};

/// Work of one call, for benchmarks: bytes read and written at least once, and floating-point operations.
struct Cost {
  double bytes_read = 0, bytes_written = 0, flops = 0;
};

/// One kernel of the inventory.
class Op {
 public:
  virtual ~Op() = default;

  const OpInfo& info() const { return info_; }
  std::string_view name() const { return info_.name; }
  const OpSchema& schema() const { return schema_; }
  /// The numerics, written down.
  const std::string& contract() const { return contract_; }
  /// Rises when the contract changes, so that old records are told from failures.
  int contract_version() const { return contract_version_; }
  /// Case lines (without the op's name) that sweeps and benchmarks run.
  const std::vector<std::string>& cases() const { return cases_; }
  const std::vector<std::string>& bench_cases() const { return bench_cases_; }
  std::span<const KnownDefect> defects() const { return defects_; }
  std::span<const Customary> customary() const { return customary_; }
  std::span<const FibNames> fib_names() const { return fib_names_; }
  virtual bool has(Mode mode) const = 0;
  /// Fills the inputs that are made of other inputs (TensorSpec::kin), where `arguments` hold their memory; a pure function of the other
  /// arguments and the seed. docs/inputs.md says how each is made.
  virtual void make_inputs(Arguments& arguments, std::uint64_t seed) const = 0;
  std::vector<Mode> modes() const;
  /// Why a call with these arguments, which must be valid, has no such mode; nothing when it has. Running it all the same is an error
  /// with this reason.
  virtual std::optional<Refusal> refusal(const Arguments& arguments, Mode mode) const = 0;
  bool supports(const Arguments& arguments, Mode mode) const { return !refusal(arguments, mode); }

  /// Validates everything, allocates the outputs that are not given, runs, and stores the outputs in `arguments`.
  /// Throws Error before anything is written.
  virtual void run(Arguments& arguments, const Exec& exec) const = 0;
  /// Packs the arguments that schema().properties.prepared names: all of them and no others are given. Throws Error; `unsupported` for an
  /// op whose fast mode reads its arguments as they are.
  virtual Prepared pack(const Arguments& weights, const Exec& exec) const = 0;
  /// Validates and allocates missing outputs without running.
  virtual void prepare(Arguments& arguments) const = 0;
  /// Runs golden mode and records what the judge needs. Outputs land in `arguments` as in run().
  virtual void reference(Arguments& arguments, const Exec& exec, Reference& reference) const = 0;
  /// Adjusts the reference to choices that the actual outputs made and the contract leaves open (ties within rounding, a scale's
  /// last bit), so that what depends on them is judged as it should follow. `arguments` hold the inputs and the actual outputs.
  virtual void condition(Arguments& arguments, const Exec& exec, Reference& reference) const = 0;
  /// Whether condition() ever changes a reference.
  virtual bool conditions() const = 0;
  /// Looks for known upstream defects in actual outputs, which `arguments` hold beside the inputs and which it keeps alive. Empty when
  /// no defect of the op shows in its outputs.
  virtual DefectFinder defect_finder(const Arguments& arguments) const = 0;
  /// The op's own mistakes, the likeliest first.
  virtual std::vector<KernelMistake> mistakes() const = 0;
  /// As reference(), for a kernel that makes the mistake of this id. Throws bad_option when the op declares none of that name.
  virtual void mistaken_reference(std::string_view id, Arguments& arguments, const Exec& exec, Reference& reference) const = 0;
  virtual Cost cost(Arguments& arguments) const = 0;

 protected:
  OpInfo info_;
  OpSchema schema_;
  std::string contract_;
  int contract_version_ = 1;
  std::vector<std::string> cases_, bench_cases_;
  std::vector<KnownDefect> defects_;
  std::vector<Customary> customary_;
  std::vector<FibNames> fib_names_;
};

/// Sees the calls made with an Exec that names it: what each op was given, what it wrote, and in golden mode what is open about that.
class Witness {
 public:
  virtual ~Witness() = default;
  /// Before the op runs: validated arguments, its outputs allocated. In golden mode what a judge needs goes into the reference that is
  /// returned; null asks for none.
  virtual Reference* begins(const Op& op, const Arguments& arguments) = 0;
  /// After the op of the last `begins` ran without an error.
  virtual void ends() = 0;
};

/// Dialects that bundle the recipe choices of an upstream; the first one is the default.
std::span<const std::string_view> dialects();

/// The inventory. An op is made when it is first asked for: who calls one does not wait for the others.
class Registry {
 public:
  struct Entry {
    std::string_view name;  ///< a literal
    std::unique_ptr<Op> (*make)();
  };
  explicit Registry(std::span<const Entry> entries);
  ~Registry();
  /// Throws unknown_op, naming the nearest known names.
  const Op& at(std::string_view name) const;
  const Op* find(std::string_view name) const;
  std::span<const Entry> entries() const;
  /// All of them, in the order of the entries.
  std::span<const std::unique_ptr<Op>> all() const;

 private:
  struct Ops;
  std::unique_ptr<Ops> ops_;
};
const Registry& registry();

}  // namespace dodona
