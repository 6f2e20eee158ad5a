// A thread for each process hands it one candidate after the other.
#include "backend/worker/compiler_pool.h"

#include <signal.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <exception>
#include <system_error>

#include "backend/worker/protocol.h"

namespace moetune {
namespace {

constexpr size_t kMaxLanes = 32;  // each process takes memory for NVRTC

}  // namespace

CompilerPool::CompilerPool(const WorkerOptions& options) : options_(options), cancel_(::eventfd(0, EFD_CLOEXEC)) {
  const int threads = options_.backend.compile_threads;
  max_lanes_ = std::min(kMaxLanes,
                        threads > 0 ? static_cast<size_t>(threads) : std::max(1u, std::thread::hardware_concurrency()));
  options_.backend.compile_threads = 1;
  over_ = cancel_.get() < 0;
}

CompilerPool::~CompilerPool() {
  give_up();
  ::eventfd_write(cancel_.get(), 1);
  for (Lane& lane : lanes_) lane.thread.join();
}

void CompilerPool::give_up() {
  const std::lock_guard lock(mutex_);
  over_ = true;
  changed_.notify_all();
}

void CompilerPool::take_up(const Shape& shape) {
  if (shape == shape_) return;
  begun_.clear();
  wanted_.clear();
  later_.clear();
  shape_ = shape;
}

size_t CompilerPool::half() const { return std::max<size_t>(1, max_lanes_ / 2); }

void CompilerPool::start_lanes() {
  const size_t jobs = asked_.size() + wanted_.size() + std::min(later_.size(), half());
  for (size_t free = idle_; free < jobs && lanes_.size() < max_lanes_; ++free) {
    Lane& lane = lanes_.emplace_back();
    try {
      lane.thread = std::thread([this, &lane] { work(lane); });
    } catch (const std::system_error&) {  // no more threads: those that run do the work
      lanes_.pop_back();
      max_lanes_ = lanes_.size();
    }
  }
  if (jobs > 0 && lanes_.empty()) over_ = true;
  changed_.notify_all();
}

std::map<Candidate, CompileResult> CompilerPool::compile(const Shape& shape, std::span<const Candidate> candidates) {
  std::unique_lock lock(mutex_);
  take_up(shape);
  for (const Candidate& candidate : candidates)
    if (!begun_.contains(candidate)) asked_.push_back(candidate);
  if (!over_) start_lanes();
  const auto done = [&](const Candidate& candidate) { return is_done(candidate); };
  changed_.wait(lock, [&] { return over_ || std::ranges::all_of(candidates, done); });
  asked_.clear();
  std::map<Candidate, CompileResult> results;
  for (const Candidate& candidate : candidates)
    if (done(candidate) && *begun_[candidate]) results[candidate] = **begun_[candidate];
  return results;
}

size_t CompilerPool::first_of(const Shape& shape, std::span<const Candidate> candidates) {
  std::unique_lock lock(mutex_);
  take_up(shape);
  const auto is_coming = [&](const Candidate& candidate) {
    return begun_.contains(candidate) || contains(wanted_, candidate) || contains(later_, candidate);
  };
  auto first = candidates.end();
  changed_.wait(lock, [&] {
    first = std::ranges::find_if(candidates, [&](const Candidate& candidate) { return is_done(candidate); });
    return first != candidates.end() || over_ || std::ranges::none_of(candidates, is_coming);
  });
  return first == candidates.end() ? 0 : static_cast<size_t>(first - candidates.begin());
}

bool CompilerPool::is_done(const Candidate& candidate) const {
  const auto found = begun_.find(candidate);
  return found != begun_.end() && found->second;
}

bool CompilerPool::want(const Shape& shape, std::span<const Candidate> next, std::span<const Candidate> later) {
  const std::lock_guard lock(mutex_);
  if (over_) return false;
  take_up(shape);
  const auto replace = [&](std::deque<Candidate>& queue, std::span<const Candidate> candidates) {
    queue.clear();
    for (const Candidate& candidate : candidates)
      if (!begun_.contains(candidate)) queue.push_back(candidate);
  };
  replace(wanted_, next);
  replace(later_, later);
  start_lanes();
  return !over_;
}

std::optional<CompilerPool::Job> CompilerPool::next_job() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    const auto has_room = [&] { return lanes_.size() - idle_ < half(); };
    changed_.wait(lock,
                  [&] { return over_ || !asked_.empty() || !wanted_.empty() || (!later_.empty() && has_room()); });
    --idle_;
    if (over_) return std::nullopt;
    std::deque<Candidate>& queue = !asked_.empty() ? asked_ : !wanted_.empty() ? wanted_ : later_;
    Job job{.shape = shape_, .candidate = queue.front()};
    queue.pop_front();
    if (begun_.try_emplace(job.candidate).second) return job;
  }
}

void CompilerPool::finish(const Job& job, Result result) {
  const std::lock_guard lock(mutex_);
  deaths_ = result ? 0 : deaths_ + 1;
  if (deaths_ == kDeathsInARow) over_ = true;
  if (job.shape == shape_) begun_[job.candidate] = std::move(result);
  changed_.notify_all();
}

// Errors are not reported here: the backend compiles what is missing and reports them then.
void CompilerPool::work(Lane& lane) {
  try {
    while (const std::optional<Job> job = next_job()) finish(*job, ask(lane, *job));
  } catch (const std::exception&) {
    give_up();
  }
}

// A SIGKILL may come from a user, or from the kernel when memory is short, so the candidate gets one more try.
CompilerPool::Result CompilerPool::ask(Lane& lane, const Job& job) {
  for (int attempt = 1;; ++attempt) {
    if (!lane.link.alive()) {
      lane.link = Link(options_.command);
      lane.link.cancel_on(cancel_.get());
      lane.link.ask("hello", {{"device", options_.device}, {"options", to_json(options_.backend)}},
                    options_.start_seconds);
    }
    try {
      const Json answer = lane.link.ask(
          "compile", {{"shape", to_json(job.shape)}, {"candidates", Json::array({to_json(job.candidate)})}},
          options_.compile_seconds);
      return compile_result_from_json(JsonAt(answer, "the compiler's results")[size_t{0}]);
    } catch (const WorkerGone& gone) {
      if (attempt > 1 || gone.signal != SIGKILL) return std::nullopt;
    }
  }
}

}  // namespace moetune
