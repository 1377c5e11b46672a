// Inputs made from a case line: valid by role, and the same bytes on any machine and thread count.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/case_line.h"
#include "dodona/op.h"

namespace dodona::oracle {

/// The arguments that `line` describes, or of a line with a window those rows of them: inputs filled from Philox streams keyed by (seed,
/// argument name), attributes with the dialect's recipe, and inputs that the op makes of others (TensorSpec::kin). Optional tensors are
/// there as the line says (--with,
/// --without), else where it determines their sizes.
/// Throws Error: unknown_op, bad_shape (missing or impossible sizes), bad_value, bad_option, out_of_memory.
Arguments generate(const CaseLine& line, int threads = 1);

/// How one input of a line is made: with the line's seed and distribution this is all that fill() needs.
struct InputPlan {
  /// What says which parts of a cache are in use: a table of pages and the requests' lengths, or a list of slots alone; of rows in groups,
  /// the groups' lengths alone.
  struct Slots {
    std::string table, lengths;
  };

  std::string name;
  Role role = Role::values;
  DType dtype = DType::f32;
  Dims shape;              ///< of the whole call's
  std::int64_t bound = 0;  ///< exclusive upper bound of ids and positions, 0 for none
  Layout layout = Layout::rows;
  bool kin = false;                                              ///< made of other inputs by the op
  std::vector<std::pair<std::int64_t, std::int64_t>> part = {};  ///< begin and end along each axis; empty without a window
  std::vector<Special> specials = {};                            ///< that strike it, in their order
  std::optional<Slots> slots = {};                               ///< where stale-cache or stale-rows strikes
};
/// The inputs of the line, in the order of the schema. Throws as generate().
std::vector<InputPlan> plan_inputs(const CaseLine& line);
/// Elements of all inputs of a case line, and one: how much work it is, roughly. 1 for a line that cannot be read.
double elements_of(const std::string& line);

/// Fills a contiguous tensor of the given role; docs/inputs.md states what each role and distribution is. `bound`: exclusive upper bound
/// of ids and positions; for an indptr its last value. `dist` as in a case line.
void fill(const Tensor& tensor, Role role, std::int64_t bound, const std::string& dist, std::uint64_t seed, std::string_view name,
          int threads = 1);

}  // namespace dodona::oracle
