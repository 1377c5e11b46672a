// Binding and validating one call: everything is checked here before an op writes anything.
#pragma once

#include <optional>
#include <string>

#include "core/describe.h"
#include "core/shape_expr.h"
#include "dodona/op.h"

namespace dodona {

struct CaseLine;

/// The schema's expressions, parsed once.
class CompiledSchema {
 public:
  /// Throws std::logic_error naming the op and the field when the schema contradicts itself.
  CompiledSchema(const OpInfo& info, const OpSchema& schema);

  struct TensorRules {
    ShapeExpr shape;
    int dtype_tensor = -1;         ///< tensor whose dtype is shared
    int dtype_attr = -1;           ///< attribute that holds the dtype
    std::optional<DimExpr> bound;  ///< ids are below its value
    int may_alias = -1;            ///< tensor whose memory an output may be
    int view_of = -1;              ///< tensor that an output is a view of
    int when_attr = -1;            ///< attribute that asks for an optional output
  };
  struct SymbolRules {
    int attr = -1;  ///< integer attribute of the same name
    const SymbolSpec* spec = nullptr;
  };

  SymbolNames symbols;
  std::vector<TensorRules> tensors;
  std::vector<SymbolRules> symbol_rules;
  std::vector<SymbolSpec> symbol_specs;
};

/// Parses and checks the schema in place.
void compile(const OpInfo& info, OpSchema& schema);

/// Copies `arguments` into the fields by name, prepared weights too. Unknown names and missing required ones are errors.
void bind(const OpInfo& info, const OpSchema& schema, const Arguments& arguments, Fields& fields);
/// Fills the fields that `prepared` stands for with tensors without memory.
void stand_in(const OpInfo& info, const OpSchema& schema, const Prepared& prepared, Fields& fields);
/// Throws unsupported when there are prepared weights, which `reader` does not read.
void refuse_prepared(const OpInfo& info, const Prepared& prepared, std::string_view reader);
/// Checks attributes, dtypes, shapes, layouts, aliasing and contents; allocates outputs that are undefined.
/// Returns the symbols' values.
SymbolValues validate(const OpInfo& info, const OpSchema& schema, Fields& fields);
/// The same for the arguments alone that can be prepared: all of them are given, and no others.
void validate_weights(const OpInfo& info, const OpSchema& schema, Fields& fields);
/// Stores the outputs of the fields in `arguments`.
void give_back(const OpSchema& schema, const Fields& fields, Arguments& arguments);
/// The fields by name: defined tensors, and all attributes.
Arguments arguments_of(const OpSchema& schema, const Fields& fields);

/// Whether `a` and `b` share at least one byte. Exact for strided views that interleave.
bool share_memory(const Tensor& a, const Tensor& b);

/// Shapes and dtypes of all tensors of the call that a case line describes, its attributes resolved in `attrs`; used to generate inputs.
/// The line may leave out sizes that are integer attributes. Optional tensors are planned as the line asks (--with, --without), else where
/// its sizes determine theirs. Throws bad_shape naming the size that is missing or impossible, bad_option for a presence that cannot be.
struct PlannedTensor {
  const TensorSpec* spec;
  DType dtype;
  Dims shape;
  std::int64_t bound;  ///< exclusive bound of ids, 0 for none
};
std::vector<PlannedTensor> plan(const OpInfo& info, const OpSchema& schema, const CaseLine& line, const Arguments& attrs);

}  // namespace dodona
