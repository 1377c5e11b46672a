// What the parts of a call's validation share: context and words of error messages, names to positions.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/call.h"
#include "dodona/error.h"

namespace dodona::calls {

inline std::size_t slot(int i) {
  return static_cast<std::size_t>(i);
}

/// Context of error messages.
struct Call {
  const OpInfo& info;
  const OpSchema& schema;

  const TensorSpec& spec(int i) const { return schema.tensors[slot(i)]; }
  const CompiledSchema& compiled() const { return *schema.compiled; }
  [[noreturn]] void fail(ErrorCode code, const std::string& argument, const std::string& message) const;
  /// `H = 7168 (from input [4, 7168])` for every symbol of the alternative that is bound.
  std::string witnesses(const ShapeAlternative& alternative, const SymbolValues& values, const Fields& fields) const;
};

std::string join(const std::vector<DType>& types);

template <class T>
std::string join_values(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) {
    if (!text.empty()) text += ", ";
    if constexpr (std::is_same_v<T, std::string>) {
      text += value;
    } else {
      text += std::to_string(value);
    }
  }
  return text;
}

/// Positions in the schema; -1 for none.
int tensor_index(const OpSchema& schema, std::string_view name);
int attr_index(const OpSchema& schema, std::string_view name);

/// Converts `value` to the attribute's type where nothing is lost (whole numbers to numbers, words to dtypes).
AttrValue convert(const Call& call, const AttrSpec& spec, const AttrValue& value);

/// Whole numbers and yes or no (1 or 0) are sizes that shape expressions may name.
bool is_size(const AttrValue& value);
std::int64_t size_of(const AttrValue& value);

/// Refuses values outside what the schema takes.
void check_attr(const Call& call, const AttrSpec& spec, const AttrPointer& value);

/// Refuses sizes that the schema's symbols do not take.
void check_symbols(const Call& call, const SymbolValues& values, const Fields& fields);

/// Refuses layouts, alignments and overlaps that the schema does not take.
void check_memory(const Call& call, const Fields& fields);

}  // namespace dodona::calls
