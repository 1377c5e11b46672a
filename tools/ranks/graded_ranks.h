// A kernel graded by the ranks of a job, each with a process of the kernel's own.
#pragma once

#include <functional>

#include "oracle/grade/grade.h"

namespace dodona::tools {

/// On every rank of a job; `ready` gives what is asked for. Rank 0 has the grade, which is that of one process, calls and verdicts alike,
/// for a kernel whose outputs follow from its inputs, and gives it to `show`, whose exit code it returns; the others return 0. An error on
/// a rank ends all with exit code 2.
int grade_over_mpi(const std::function<oracle::GradeRequest()>& ready, const std::function<void(int done, int total)>& progress,
                   const std::function<int(const oracle::Grade&)>& show);

}  // namespace dodona::tools
