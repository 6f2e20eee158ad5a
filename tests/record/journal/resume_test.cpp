// Which runs may continue a journal.
#include <functional>

#include "built_in.h"
#include "record/open_journal.h"
#include "record/sample.h"

namespace moetune {
namespace {

using sample::header;

TEST(Resume, TheSameRunMayContinue) {
  const sample::Folder folder;
  { const Journal journal = create_journal(folder / "j", header()); }
  JournalHeader now = header();
  EXPECT_NO_THROW(require_resumable(read_journal(folder / "j", built_in()).header, now));
  std::swap(now.cells[0], now.cells[1]);
  now.device.memory_bytes -= 4096;  // measured, as the peak
  now.device.peak_flops *= 1.01;
  now.environment["host"] = "node2";
  EXPECT_NO_THROW(require_resumable(header(), now));
}

struct Difference {
  std::function<void(JournalHeader&)> change;
  Exit exit;
  std::string what, hint;
};

TEST(Resume, DifferencesAreNamedWithARemedy) {
  const std::string gone = "the journal is of other cells: 1 of its 2 cells are not asked for now ";
  const Difference differences[] = {
      {[](JournalHeader& now) { now.device.id = "GPU-9999"; }, Exit::machine,
       "the journal is of NVIDIA H200 with 132 SMs (GPU-1234), this is NVIDIA H200 with 132 SMs (GPU-9999)",
       "go on with that device (see --device), or start afresh without --resume"},
      {[](JournalHeader& now) { now.device = {.kind = DeviceKind::cpu, .name = "EPYC", .id = "cpu", .processors = 2}; },
       Exit::machine, "the journal is of NVIDIA H200 with 132 SMs (GPU-1234), this is EPYC with 2 threads (cpu)",
       "go on with that device (see --device), or start afresh without --resume"},
      {[](JournalHeader& now) { now.environment["identity"]["kernels"] = "beef"; }, Exit::machine,
       "times of the journal don't compare: kernels was \"f00d\" and is \"beef\"",
       "go back to that environment, or start afresh without --resume"},
      {[](JournalHeader& now) {
         now.environment["identity"] = {{"driver", "590.2"}, {"cublas", "13.0"}};
       },
       Exit::machine,
       "times of the journal don't compare: cublas was nothing and is \"13.0\", driver was \"580.1\" and is "
       "\"590.2\", kernels was \"f00d\" and is nothing",
       "go back to that environment, or start afresh without --resume"},
      {[](JournalHeader& now) { now.environment = nullptr; }, Exit::machine,
       "times of the journal don't compare: driver was \"580.1\" and is nothing, kernels was \"f00d\" and is nothing",
       "go back to that environment, or start afresh without --resume"},
      {[](JournalHeader& now) { now.cells.pop_back(); }, Exit::request,
       gone + "(custom/up/fwd/bf16/t64/zipf:1/e4/top2/n64/k32)",
       "ask for the same cells, name another --journal, or start afresh without --resume"},
      {[](JournalHeader& now) { now.cells[1].seed = 1; }, Exit::request,
       gone + "(custom/up/fwd/bf16/t64/zipf:1/e4/top2/n64/k32), and 1 of the 2 cells asked for are not in it "
              "(custom/up/fwd/bf16/t64/zipf:1/e4/top2/n64/k32/seed1)",
       "ask for the same cells, name another --journal, or start afresh without --resume"},
      {[](JournalHeader& now) { now.space = "full"; }, Exit::request, "the journal has the space quick, this run full",
       "pass --space quick, or start afresh without --resume"},
      {[](JournalHeader& now) { now.strategy = "random"; }, Exit::request,
       "the journal has the strategy exhaustive, this run random",
       "pass --strategy exhaustive, or start afresh without --resume"},
      {[](JournalHeader& now) { now.seed = 8; }, Exit::request, "the journal has the seed 7, this run 8",
       "pass --seed 7, or start afresh without --resume"},
      {[](JournalHeader& now) { now.regime = Regime::sustained; }, Exit::request,
       "the journal has the regime burst, this run sustained",
       "pass --regime burst, or start afresh without --resume"}};
  for (const Difference& difference : differences) {
    JournalHeader now = header();
    difference.change(now);
    const auto fault = error_of([&] { require_resumable(header(), now); });
    EXPECT_EQ(fault.exit, difference.exit) << difference.what;
    EXPECT_EQ(fault.what, difference.what);
    EXPECT_EQ(fault.hint, difference.hint);
  }
}

TEST(Resume, AnIdentityThatIsNoObjectIsComparedWhole) {
  JournalHeader before = header(), now = header();
  before.environment["identity"] = "a";
  now.environment["identity"] = "b";
  EXPECT_EQ(error_of([&] { require_resumable(before, now); }).exit, Exit::machine);
  now.environment["identity"] = "a";
  EXPECT_NO_THROW(require_resumable(before, now));
}

TEST(Resume, AHeaderWithoutARegimeIsOfBurst) {
  JournalHeader sustained = header();
  sustained.regime = Regime::sustained;
  Json json = to_json(sustained);
  EXPECT_EQ(journal_header_from_json(JsonAt(json, "header")).regime, Regime::sustained);
  json.erase("regime");
  EXPECT_EQ(journal_header_from_json(JsonAt(json, "header")).regime, Regime::burst);
}

}  // namespace
}  // namespace moetune
