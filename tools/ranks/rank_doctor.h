// What collectives between the ranks of a job take.
#pragma once

namespace dodona::tools {

/// `dodona doctor` on every rank of a job; rank 0 shows.
int doctor_of_ranks(bool json);

}  // namespace dodona::tools
