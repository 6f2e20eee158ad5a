// Processes that compile, each one kernel at a time, because threads of one process wait for one another in NVRTC. The
// process that measures doesn't compile, and a crash of the compiler costs one candidate.
#pragma once
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include "backend/worker/link.h"
#include "backend/worker/worker.h"

namespace moetune {

/// Fills the cache on disk. A candidate that ends its process has no result here: compile() of the backend says why.
class CompilerPool {
 public:
  /// `options` start the processes, at most as many as their compile_threads (0: as the machine has cores); their
  /// device says what to compile for ("arch:sm_90a"). A process starts when there is work that no other is free to do.
  explicit CompilerPool(const WorkerOptions& options);
  CompilerPool(const CompilerPool&) = delete;
  CompilerPool& operator=(const CompilerPool&) = delete;
  ~CompilerPool();  // ends the processes at once

  /// Compiles these before all that want() named, and waits for them. Those without a result are missing.
  std::map<Candidate, CompileResult> compile(const Shape& shape, std::span<const Candidate> candidates);

  /// Compiles `next` in this order when nothing else is asked for, then `later`, those while half of the processes have
  /// other work at most: all together slow each other down. Returns at once. What an earlier call named and has not
  /// been begun is forgotten. False where no process can start, or they end again and again: nothing is compiled.
  bool want(const Shape& shape, std::span<const Candidate> next, std::span<const Candidate> later = {});

  /// The place of the first of these that is done; waits for one of those that compile() or want() named. 0 where none
  /// of them comes.
  size_t first_of(const Shape& shape, std::span<const Candidate> candidates);

 private:
  using Result = std::optional<CompileResult>;  // none: it ended the process
  struct Job {
    Shape shape;
    Candidate candidate;
  };
  struct Lane {
    Link link;  // used by the thread alone
    std::thread thread;
  };
  void take_up(const Shape& shape);
  bool is_done(const Candidate& candidate) const;
  size_t half() const;  // of the processes
  void start_lanes();
  void work(Lane& lane);
  std::optional<Job> next_job();
  Result ask(Lane& lane, const Job& job);
  void finish(const Job& job, Result result);
  void give_up();

  WorkerOptions options_;
  size_t max_lanes_;
  Fd cancel_;  // can be read once the processes must end

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  Shape shape_;
  std::deque<Candidate> asked_, wanted_, later_;
  std::map<Candidate, std::optional<Result>> begun_;  // of this shape; none: under way
  std::deque<Lane> lanes_;
  size_t idle_ = 0;    // lanes that wait for work
  int deaths_ = 0;     // in a row
  bool over_ = false;  // stopped, or given up
};

}  // namespace moetune
