#include "io/safetensors.h"

#include "tests/fuzz/target.h"

namespace dodona::fuzz {

void safetensors(Bytes input) {
  unless_refused([&] {
    const auto file = io::SafetensorsFile::from_bytes(input);
    io::NamedTensors tensors;
    bool whole = true;
    for (const io::SafetensorsEntry& entry : file.entries()) {
      require(file.find(entry.name) == &entry, "an entry is not found by its name");
      try {
        tensors.emplace_back(entry.name, file.tensor(entry));
      } catch (const Error&) {
        whole = false;  // a type that tensors here cannot have, a boolean of 2
      }
    }
    if (!whole) return;
    const auto written = io::safetensors_bytes(tensors, file.metadata());
    const auto again = io::SafetensorsFile::from_bytes(written);
    require(again.metadata() == file.metadata(), "the metadata come back as others");
    require(again.entries().size() == tensors.size(), "tensors are lost");
    for (const auto& [name, tensor] : tensors) require(equal(again.tensor(name), tensor), "a tensor comes back as another");
  });
}

}  // namespace dodona::fuzz
