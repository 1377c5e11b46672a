#include "io/npz.h"

#include "tests/fuzz/target.h"

namespace dodona::fuzz {

void npz(Bytes input) {
  constexpr std::uint64_t expanded = 1 << 24;
  unless_refused([&] {
    const auto file = io::NpzFile::from_bytes(input, {}, "npz", expanded);
    std::vector<std::pair<std::string, Tensor>> arrays;
    for (const std::string& name : file.names()) {
      try {
        arrays.emplace_back(name, file.tensor(name));
      } catch (const Error&) {  // another member may still be sound
      }
    }
    const auto written = io::npz_bytes(arrays);
    const auto again = io::NpzFile::from_bytes(written);
    require(again.names().size() == arrays.size(), "arrays are lost");
    for (const auto& [name, array] : arrays) require(equal(again.tensor(name), array), "an array comes back as another");
  });
}

}  // namespace dodona::fuzz
