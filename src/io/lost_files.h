// Mapped files that another program cuts short.
#pragma once

namespace dodona::io {

/// From now on SIGBUS, which reading a mapped file raises where its end is gone, ends the process with one line on stderr that names the
/// file, and exit code 2. For programs, not for libraries: the signal is the whole process's.
void report_lost_files();

}  // namespace dodona::io
