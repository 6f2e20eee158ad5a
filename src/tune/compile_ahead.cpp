// A thread that hands candidates to the compiling process, a few at a time.
#include "tune/compile_ahead.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cstdint>
#include <exception>

#include "tune/protocol.h"

namespace moetune {
namespace {

constexpr int kDeathsInARow = 3;

// One core is left to the worker that times and to its parent.
int spare_cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) - 1); }

}  // namespace

CompileAhead::CompileAhead(const WorkerOptions& options) : options_(options), cancel_(::eventfd(0, EFD_CLOEXEC)) {
  int& threads = options_.backend.compile_threads;
  if (threads == 0) threads = spare_cores();
  part_size_ = static_cast<size_t>(threads);
}

CompileAhead::~CompileAhead() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  ::eventfd_write(cancel_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

void CompileAhead::want(const Shape& shape, std::span<const Candidate> candidates) {
  const std::lock_guard lock(mutex_);
  if (over_ || cancel_.get() < 0) return;
  if (shape != shape_) begun_.clear();
  shape_ = shape;
  wanted_.clear();
  for (const Candidate& candidate : candidates)
    if (!begun_.contains(candidate)) wanted_.push_back(candidate);
  if (!thread_.joinable() && !wanted_.empty()) thread_ = std::thread([this] { work(); });
  changed_.notify_all();
}

std::optional<CompileAhead::Part> CompileAhead::next_part() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return over_ || !wanted_.empty(); });
  if (over_) return std::nullopt;
  Part part{.shape = shape_, .candidates = {}};
  while (!wanted_.empty() && part.candidates.size() < part_size_) {
    if (begun_.insert(wanted_.front()).second) part.candidates.push_back(wanted_.front());
    wanted_.pop_front();
  }
  return part;
}

bool CompileAhead::is_over() {
  const std::lock_guard lock(mutex_);
  return over_;
}

// Nothing that goes wrong here is told: the backend compiles what is missing and tells it then.
void CompileAhead::work() {
  try {
    while (const std::optional<Part> part = next_part()) compile(*part);
  } catch (const std::exception&) {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
}

// Where a part ends the process, its candidates are compiled one by one: those that end it alone are left out.
void CompileAhead::compile(const Part& part) {
  try {
    ask(part);
    deaths_ = 0;
  } catch (const WorkerGone&) {
    if (is_over()) throw;
    for (const Candidate& candidate : part.candidates)
      if (part.candidates.size() > 1) compile({part.shape, {candidate}});
    if (part.candidates.size() == 1 && ++deaths_ == kDeathsInARow) throw;
  }
}

void CompileAhead::ask(const Part& part) {
  if (!link_.alive()) {
    link_ = Link(options_.command);
    link_.cancel_on(cancel_.get());
    link_.ask("hello", {{"device", options_.device}, {"options", to_json(options_.backend)}}, options_.start_seconds);
  }
  Json list = Json::array();
  for (const Candidate& candidate : part.candidates) list.push_back(to_json(candidate));
  link_.ask("compile", {{"shape", to_json(part.shape)}, {"candidates", std::move(list)}}, options_.compile_seconds);
}

}  // namespace moetune
