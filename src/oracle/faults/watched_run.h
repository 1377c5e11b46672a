// Golden runs whose attention is watched.
#pragma once

#include "core/attention_watch.h"
#include "core/flaw.h"
#include "oracle/faults/faults.h"

namespace dodona::oracle {

inline GoldenRun run_watched(const FaultCase& call, AttentionWatch& watch) {
  Flaw none;
  none.watch = &watch;
  Exec exec = call.exec;
  exec.flaw = &none;
  return run_golden(call.op, call.inputs, exec);
}

}  // namespace dodona::oracle
