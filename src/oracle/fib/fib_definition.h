// FlashInfer-Bench data: Definitions (what a kernel computes) and Workloads (sizes and inputs), in the two dialects that exist.
//
// flashinfer-bench's own rules, and flashinfer's `fi_trace` dumps, which look alike and keep few of them: every rule that a file does not
// keep is listed. Python in these files is documentation here: nothing executes it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dodona/dtype.h"
#include "dodona/tensor.h"
#include "io/json.h"

namespace dodona::oracle::fib {

struct Axis {
  std::string name;
  std::optional<std::int64_t> value;  ///< of a const axis; nothing for a var one
};

struct Field {
  std::string name;
  bool scalar = false;             ///< a Python number: shape null
  std::vector<std::string> shape;  ///< axis names
  std::string dtype;
  bool optional = false;  ///< fi_trace only
};

struct Definition {
  std::string path, name, op_type, description;
  std::vector<Axis> axes;
  std::vector<Field> inputs, outputs;
  std::vector<std::string> tags, constraints;
  std::vector<std::string> deviations;  ///< from flashinfer-bench's rules; empty for a file of that dialect

  const Field* input(std::string_view name) const;
  const Field* output(std::string_view name) const;
  /// The rest of the first tag that begins with `prefix`; empty for none.
  std::string tag(std::string_view prefix) const;
  std::string_view dialect() const { return deviations.empty() ? "flashinfer-bench" : "fi_trace"; }
};

/// Throws Error(bad_file) naming file and field where not even a lenient reader can tell what is meant.
Definition read_definition(const std::string& path);
Definition parse_definition(const io::Json& json, const std::string& path);

/// Where one input of a workload comes from.
struct Source {
  enum class Kind { random, scalar, file };
  Kind kind = Kind::random;
  io::Json value;         ///< scalar
  std::string path, key;  ///< file: relative to the root of the set, and the tensor in it
};

struct Workload {
  std::string definition, uuid, where;  ///< where: file and line
  std::map<std::string, std::int64_t> axes;
  std::map<std::string, Source> inputs;
  io::Json json;  ///< as read
};

/// One workload a line; blank lines are passed over. Lines that hold a solution's result count as the workload they ran.
std::vector<Workload> read_workloads(const std::string& path);

/// Sizes of all axes: constants, then the workload's. Throws Error naming what is missing, unknown or given twice.
std::map<std::string, std::int64_t> axis_values(const Definition& definition, const Workload& workload);
Dims shape_of(const Definition& definition, const Field& field, const std::map<std::string, std::int64_t>& axes);

/// float32, bfloat16, float8_e4m3fn... as ours; nothing for names that are none.
std::optional<DType> parse_fib_dtype(std::string_view name);
/// The name of `type` in a Definition; types that the schema lacks are whole numbers of the same bits.
std::string_view fib_dtype(DType type);
/// Whether fib_dtype() says all of it.
bool fib_has(DType type);
/// Whether what is stored as one of the types may be the other's bits: any bytes are, and i64 for types as wide.
bool stands_for(DType stored, DType meant);

}  // namespace dodona::oracle::fib
