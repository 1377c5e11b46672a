// One call of an op as a file that a kernel's process maps: the inputs, and room for the outputs.
//
// A safetensors file. `in.NAME` are the inputs; `out.NAME` is where an output goes: what an argument written in place holds before the
// call, and junk for everything else. Metadata (all strings): `op`; `attrs`, JSON, with `strides` as in case files; `outputs`, a JSON list
// of
// {"name", "argument": whether the call is given it, "returned": whether upstream's function returns it}. Nothing in it tells how the
// inputs were made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dodona/op.h"

namespace dodona::oracle {

/// The file exists as long as the object.
class CallFile {
 public:
  /// `junk` seeds what rooms for outputs hold. Throws Error(bad_file) if the folder cannot be written.
  CallFile(std::string path, const Op& op, const Arguments& inputs, std::uint64_t junk);
  ~CallFile();
  CallFile(const CallFile&) = delete;
  CallFile& operator=(const CallFile&) = delete;

  const std::string& path() const { return path_; }

  struct Contents {
    NamedTensors outputs;
    std::string changed;                 ///< what a kernel must not write and has written: `the input weight`; empty for nothing
    std::vector<std::string> untouched;  ///< outputs that hold what they held before, to the byte
    std::string broken;                  ///< why the file can no longer be read; empty when it can
  };
  /// What the file holds now. It is read through the descriptor that made it: another file put in its place is not seen.
  Contents read() const;

 private:
  std::string path_;
  const Op* op_;
  std::vector<std::byte> before_;
  std::size_t header_bytes_ = 0;
  int fd_ = -1;
};

}  // namespace dodona::oracle
