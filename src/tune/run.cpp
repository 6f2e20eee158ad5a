// What the devices of a run do one at a time.
#include "tune/run.h"

namespace moetune {

bool stopped(const Run& run) { return run.shared.stop || run.shared.over; }

void fail(Shared& shared, const std::exception_ptr& failure) {
  if (!shared.failure) shared.failure = failure;
  shared.over = true;
  shared.queue.end();
}

void with_lock(const Run& run, const std::function<void()>& action) {
  const std::lock_guard lock(run.shared.mutex);
  try {
    action();
  } catch (...) {
    fail(run.shared, std::current_exception());
    throw;
  }
}

size_t workers_of_device(const Run& run) {
  const std::lock_guard lock(run.shared.mutex);
  return value_in(run.shared.workers, run.backend.device().id);
}

void emit(const Run& run, const Event& event) {
  if (run.shared.listen) with_lock(run, [&] { run.shared.listen(event); });
}

void warn(const Run& run, const std::string& text) {
  with_lock(run, [&] {
    if (run.shared.said.insert(text).second && run.shared.listen) run.shared.listen(Note{text});
  });
}

}  // namespace moetune
