// Outputs that a kernel made, read from a file of somebody else's.
#pragma once

#include <string>

#include "oracle/cases/case_file.h"

namespace dodona::oracle {

/// What a call of the op returns, from the inputs' sizes alone.
struct ExpectedOutput {
  std::string name;
  DType dtype = DType::f32;
  Dims shape;
};
std::vector<ExpectedOutput> expected_outputs(const Op& op, const Arguments& inputs);

/// Reads the outputs of a case from .safetensors, .npz (one array per output) or .npy (ops with one output). Names are the op's output
/// names, with or without `out.`; in a file that has `out.` names everything else is passed over, so a whole case file will do. Types that
/// NumPy lacks (bf16, f8, f4) may come as raw u1/u2 of the same width. Throws Error: bad_file for a file that is none, and one error that
/// names every output that is missing, unknown, or of another type or shape. `window`: of inputs that are some rows of a call; of an output
/// that has all of its rows these are taken.
NamedTensors load_actual(const std::string& path, const Op& op, const Arguments& inputs, const Window& window = {});

/// All tensors of such a file by name, without a case that says what they are: uint16 is read as bf16, a lone array is called `output`. In
/// a file that has `out.` names only those, without it.
NamedTensors load_outputs(const std::string& path);

}  // namespace dodona::oracle
