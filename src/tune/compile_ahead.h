// Compiling before a trial asks for it, in a process of its own: the device doesn't wait for the compiler, and a crash
// of the compiler leaves the worker that times alone.
#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "base/process.h"
#include "tune/link.h"
#include "tune/worker.h"

namespace moetune {

/// Fills the cache on disk in the background. A candidate that the compiler rejects, or that ends it, is left out here:
/// compile() of the backend tells why.
class CompileAhead {
 public:
  /// `options` start the process; their device says what to compile for ("arch:sm_90a"). It starts with the first
  /// want().
  explicit CompileAhead(const WorkerOptions& options);
  CompileAhead(const CompileAhead&) = delete;
  CompileAhead& operator=(const CompileAhead&) = delete;
  ~CompileAhead();  // ends the process at once

  /// Compiles these next, in this order, and returns at once. What an earlier call wanted and has not been begun is
  /// forgotten. Where the process cannot start, or ends again and again, nothing is compiled.
  void want(const Shape& shape, std::span<const Candidate> candidates);

 private:
  struct Part {
    Shape shape;
    std::vector<Candidate> candidates;
  };
  void work();
  std::optional<Part> next_part();
  bool is_over();
  void compile(const Part& part);
  void ask(const Part& part);

  WorkerOptions options_;
  size_t part_size_;  // candidates compiled at a time
  Fd cancel_;         // can be read once the process shall end
  Link link_;         // used by the thread alone, like deaths_
  int deaths_ = 0;    // of single candidates, in a row

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  Shape shape_;
  std::deque<Candidate> wanted_;
  std::set<Candidate> begun_;  // of this shape
  bool over_ = false;          // stopped, or given up
  std::thread thread_;         // starts with the first want()
};

}  // namespace moetune
