// Ctrl-C and similar signals become a flag that the loops look at.
#pragma once
#include <atomic>

namespace moetune {

/// From now on the first SIGINT, SIGTERM or SIGHUP sets the flag returned (and says so on standard error), the second
/// ends the process and its children at once. A signal that was ignored before (nohup) stays ignored.
const std::atomic<bool>& stop_on_signals();

/// From now on SIGINT, SIGTERM and SIGHUP end the process and its children at once with Exit::interrupted. An ignored
/// one stays ignored.
void end_on_signals();

/// Writes to closed pipes and past file size limits fail with an error instead of a signal.
void ignore_write_signals();

/// Opens /dev/null on those of the descriptors 0 to 2 that are closed, or the next file to be opened could become
/// standard output. Reading and writing them still fails.
void hold_standard_descriptors();

}  // namespace moetune
