// A tuning run over the fake backend, with everything that it says kept for a test to look at.
#pragma once
#include <atomic>
#include <string>
#include <vector>

#include "built_in.h"
#include "tune/fake_backend.h"
#include "tune/tuner.h"

namespace moetune::fake {

/// A tool as schemas ask for it.
inline const Json kTool = {
    {"name", "moetune"}, {"version", "0.1.0"}, {"commit", "0"}, {"dirty", false}, {"argv", Json::array()}};

struct Tuning {
  FakeBackend backend;
  TuneRequest request;
  Journal journal;
  JournalContents before;
  std::atomic<bool> stop{false};

  // What it said.
  std::vector<std::string> events;
  std::vector<std::string> notes;
  std::vector<Trial> trials;
  std::vector<size_t> tables;  // entries of each table handed over
  int64_t planned = -1, resumed = -1;
  std::function<void(const Event&)> also = {};

  explicit Tuning(Script script = {}) : backend(std::move(script)) {
    request.cells = {small_cell()};
    request.tool = kTool;
    request.space = small_space();
    request.strategy = "exhaustive";
    request.block_seconds = 1e-3;
  }

  TunedTable run() {
    return tune(
        request, {&backend}, journal, before, [this](const Event& event) { hear(event); }, stop,
        [this](const TunedTable& table) { tables.push_back(table.entries.size()); });
  }

  JournalHeader header() {
    return {.cells = request.cells,
            .device = backend.device(),
            .environment = backend.environment(),
            .space = request.space.name,
            .strategy = request.strategy,
            .seed = request.seed};
  }

  /// The only entry.
  Entry run_one() {
    const TunedTable table = run();
    if (table.entries.size() != 1) throw std::runtime_error("expected one entry");
    return table.entries[0];
  }

  void hear(const Event& event) {
    if (const auto* cell = std::get_if<CellStarted>(&event)) {
      planned = cell->planned;
      resumed = cell->resumed;
      events.push_back("cell");
    }
    if (const auto* started = std::get_if<TrialStarted>(&event)) events.push_back("start " + text(*started->candidate));
    if (const auto* finished = std::get_if<TrialFinished>(&event)) {
      trials.push_back(*finished->trial);
      events.push_back("finish " + text(finished->trial->candidate));
    }
    if (std::get_if<CellFinished>(&event)) events.push_back("done");
    if (const auto* note = std::get_if<Note>(&event)) notes.push_back(note->text);
    if (also) also(event);
  }

  Candidate fallback() { return find_variant("cpu").fallback(make_problem(request.cells[0]), backend.device()); }
};

}  // namespace moetune::fake
