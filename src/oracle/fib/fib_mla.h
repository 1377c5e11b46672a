// Paged MLA decode of FlashInfer-Bench (separate caches, ragged page lists) as our ops have it (one cache, a page table).
#pragma once

#include "oracle/fib/fib_inputs.h"

namespace dodona::oracle::fib {

/// Pages are renumbered in the order in which the page lists name them; no other page is made or read, however many are declared.
/// Page sizes of 32 and 64 go to trtllm_batch_decode_with_kv_cache_mla, which has the log-sum-exp (base 2) too; others to
/// cutlass_mla_decode. Requests without a page, which our ops refuse, are left out and noted.
Case import_paged_mla(const Inputs& inputs, const ImportOptions& options, std::vector<std::string>& notes);

}  // namespace dodona::oracle::fib
