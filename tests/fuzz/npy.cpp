#include "io/npy.h"

#include "tests/fuzz/target.h"

namespace dodona::fuzz {

/// The first byte says which type is asked for, where it is one.
void npy(Bytes input) {
  if (input.empty()) return;
  const auto asked = static_cast<int>(input[0]);
  std::optional<DType> override;
  if (asked < dtype_count) override = static_cast<DType>(asked);
  unless_refused([&] {
    const Tensor array = io::npy_from_bytes(input.subspan(1), {}, "npy", override);
    const auto written = io::npy_bytes(array);
    require(equal(io::npy_from_bytes(written, {}, "again", io::npy_side_dtype(array.dtype())), array), "the array comes back as another");
  });
}

}  // namespace dodona::fuzz
