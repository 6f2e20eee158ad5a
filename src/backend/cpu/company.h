// How much of this process's processors other programs use. Not how long our own threads wait: see machine.h.
#pragma once
#include <chrono>

namespace moetune {

/// Watches from its construction on. Other programs slow ours down even where ours never waits: they share caches and
/// memory.
class Company {
 public:
  Company();

  /// The share of its processors' time that others used in the last quarter of a second or longer; 0 before that, and
  /// where the system doesn't tell. The system counts in hundredths of a second, so a single share is coarse; the
  /// mean of many is not.
  double share();

 private:
  struct Reading {
    std::chrono::steady_clock::time_point when;
    double processors = 0;  // that were read
    double idle = 0;        // seconds, of all of them
    double own = 0;         // seconds that this process had them
  };
  static Reading read();

  Reading last_;
  double share_ = 0;
};

}  // namespace moetune
