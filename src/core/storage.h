// What a tensor's memory holds, as its schema says: the one place where packed codes become elements.
#pragma once

#include "dodona/op.h"

namespace dodona {

/// The codes in the bytes or words of a tensor, one element each, over the same memory; any other tensor as it is, and one of floats. A
/// tensor with gaps or another order of its bytes is copied first: codes that are to be written need a contiguous one.
Tensor as_codes(const Tensor& tensor, const Storage& storage);

}  // namespace dodona
