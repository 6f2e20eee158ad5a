// The progress line and its arithmetic.
#include "cli/text/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/text/grid.h"
#include "base/text/units.h"
#include "cli/text/output.h"
#include "record/table/table.h"

namespace moetune {
namespace {

constexpr int kNarrowestName = 12;
constexpr std::chrono::milliseconds kFrame{100};
constexpr std::chrono::seconds kLogPause{30};
constexpr int kLogColumns = 100;

}  // namespace

double remaining_seconds(const RunState& state) {
  if (state.fresh == 0) return std::numeric_limits<double>::quiet_NaN();
  const double begun = static_cast<double>(state.cell + 1);
  const double to_come = static_cast<double>(state.cells) - begun;
  const double trials =
      static_cast<double>(state.planned - state.done) + to_come * static_cast<double>(state.planned_so_far) / begun;
  const double seconds = trials * state.elapsed / static_cast<double>(state.fresh);
  return state.budget > 0 ? std::min(seconds, std::max(0.0, state.budget - state.elapsed)) : seconds;
}

std::string progress_line(const RunState& state, int columns) {
  const std::string head = fmt::format("[{}/{}] ", state.cell + 1, state.cells);
  std::string tail = fmt::format("  {}/{}", state.done, state.planned);
  if (state.best > 0) tail += fmt::format("  best {}", format_time(state.best));
  const double eta = remaining_seconds(state);
  if (std::isfinite(eta)) tail += fmt::format("  ETA {}", format_time(std::max(eta, 1.0)));
  const int room = columns - display_width(head) - display_width(tail);
  if (room < kNarrowestName) return shortened(head + tail.substr(2), columns);
  return head + shortened(state.name, room) + tail;
}

std::string cell_line(const Entry& entry, const DeviceInfo& device, size_t cell, size_t cells) {
  std::string line = fmt::format("[{}/{}] {}: ", cell + 1, cells, id(entry.cell));
  if (!entry.skipped.empty()) return line + "no winner: " + entry.skipped;
  line += fmt::format("{}, {}", winner_text(entry, device), time_text(entry.measurement.time));
  if (const Rival* rival = find_rival(entry, "default"); rival && rival->ratio.value > 0)
    if (distrust(entry).empty()) line += fmt::format(", {} the default", factor_text(1 / rival->ratio.value));
  line += entry.legal > entry.measured ? fmt::format(", {} of {} measured", entry.measured, entry.legal)
                                       : fmt::format(", {} measured", entry.measured);
  if (entry.failed > 0) line += fmt::format(", {} failed", entry.failed);
  if (!entry.complete) line += ", stopped early";
  return line;
}

Progress::Progress(const Terminal& terminal, const DeviceInfo& device, bool quiet, double budget)
    : terminal_(terminal), device_(device), quiet_(quiet) {
  state_.budget = budget;
}

void Progress::on(const Event& event) {
  if (const auto* started = std::get_if<CellStarted>(&event)) {
    under_way_[started->device] = {started->index, started->resumed, started->planned};
    state_.cell = std::max(state_.cell, started->index);
    state_.cells = started->count;
    state_.name = id(*started->cell);
    state_.planned_so_far += started->planned;
    state_.best = 0;
    draw(true);
  } else if (const auto* finished = std::get_if<TrialFinished>(&event)) {
    UnderWay& cell = under_way_[finished->device];
    state_.fresh += std::max<int64_t>(finished->done - cell.done, 0);
    cell.done = finished->done;
    cell.planned = finished->planned;
    state_.best = finished->best ? finished->best->measurement.time.value : 0;
    draw(false);
  } else if (const auto* done = std::get_if<CellFinished>(&event)) {
    clear();
    const std::string line = cell_line(*done->entry, device_, under_way_[done->device].cell, state_.cells);
    const int columns = terminal_.is_terminal ? terminal_.columns - 2 : 0;
    if (!quiet_) print_to_stderr(fmt::format("{}\n", fmt::join(lines_of(line, columns), "\n  ")));
    drawn_ = Clock::now();
    under_way_.erase(done->device);
  } else if (const auto* warning = std::get_if<Note>(&event)) {
    clear();
    if (!quiet_) note(terminal_, warning->text);
  }
}

void Progress::draw(bool now) {
  const Clock::time_point time = Clock::now();
  if (quiet_ || !(terminal_.is_terminal ? now || time - drawn_ >= kFrame : time - drawn_ >= kLogPause)) return;
  drawn_ = time;
  state_.done = state_.planned = 0;
  for (const auto& [device, cell] : under_way_) state_.done += cell.done, state_.planned += cell.planned;
  state_.elapsed = std::chrono::duration<double>(time - begin_).count();
  if (!terminal_.is_terminal) return print_to_stderr(progress_line(state_, kLogColumns) + "\n");
  // One column stays free: a full line would wrap on some terminals.
  print_moving(progress_line(state_, terminal_.columns - 1));
  visible_ = true;
}

void Progress::clear() {
  if (visible_) print_moving("");
  visible_ = false;
}

}  // namespace moetune
