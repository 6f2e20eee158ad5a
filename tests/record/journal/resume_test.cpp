// Which runs may continue a journal.
#include "record/sample.h"

namespace moetune {
namespace {

using sample::cell;
using sample::header;
using sample::small_up;

TEST(Resume, TheSameRunMay) { EXPECT_NO_THROW(require_resumable(header(), header())); }

TEST(Resume, AHeaderReadBackFromItsFileMay) {
  const sample::Folder folder;
  { const Journal journal = Journal::create(folder / "j", header()); }
  EXPECT_NO_THROW(require_resumable(read_journal(folder / "j").header, header()));
}

TEST(Resume, TheOrderOfCellsDoesNotMatter) {
  JournalHeader now = header();
  std::swap(now.cells[0], now.cells[1]);
  EXPECT_NO_THROW(require_resumable(header(), now));
}

TEST(Resume, MeasuredFiguresAndTheHostMayDiffer) {
  JournalHeader now = header();
  now.device.memory_bytes -= 4096;
  now.device.peak_flops *= 1.01;
  now.environment["host"] = "node2";
  EXPECT_NO_THROW(require_resumable(header(), now));
}

TEST(Resume, AnotherGpuOfTheSameModelDoesNotCompare) {
  JournalHeader now = header();
  now.device.id = "GPU-9999";
  const auto fault = error_of([&] { require_resumable(header(), now); });
  EXPECT_EQ(fault.exit, Exit::machine);
  EXPECT_EQ(fault.what, "the journal is of NVIDIA H200 (GPU-1234, 132 SMs), this is NVIDIA H200 (GPU-9999, 132 SMs)");
  EXPECT_EQ(fault.hint, "go on with that device (see --device), or start afresh without --resume");
}

TEST(Resume, AnotherKindOfDeviceDoesNotCompare) {
  JournalHeader now = header();
  now.device = {.kind = DeviceKind::cpu, .name = "EPYC", .id = "cpu", .processors = 2};
  EXPECT_TRUE(holds(error_of([&] { require_resumable(header(), now); }).what, "this is EPYC (cpu, 2 threads)"));
}

TEST(Resume, OtherKernelsDoNotCompare) {
  JournalHeader now = header();
  now.environment["identity"]["kernels"] = "beef";
  const auto fault = error_of([&] { require_resumable(header(), now); });
  EXPECT_EQ(fault.exit, Exit::machine);
  EXPECT_EQ(fault.what, "times of the journal don't compare: kernels was \"f00d\" and is \"beef\"");
  EXPECT_EQ(fault.hint, "go back to that environment, or start afresh without --resume");
}

TEST(Resume, EveryDifferenceOfTheIdentityIsNamed) {
  JournalHeader now = header();
  now.environment["identity"] = {{"driver", "590.2"}, {"cublas", "13.0"}};
  EXPECT_EQ(
      error_of([&] { require_resumable(header(), now); }).what,
      "times of the journal don't compare: cublas was nothing and is \"13.0\", driver was \"580.1\" and is \"590.2\", "
      "kernels was \"f00d\" and is nothing");
}

TEST(Resume, AnIdentityThatWentAwayIsADifference) {
  JournalHeader now = header();
  now.environment.erase("identity");
  EXPECT_EQ(error_of([&] { require_resumable(header(), now); }).exit, Exit::machine);
  now.environment = nullptr;
  EXPECT_EQ(error_of([&] { require_resumable(header(), now); }).exit, Exit::machine);
}

TEST(Resume, AnIdentityThatIsNoObjectIsComparedWhole) {
  JournalHeader before = header(), now = header();
  before.environment["identity"] = "a";
  now.environment["identity"] = "b";
  EXPECT_EQ(error_of([&] { require_resumable(before, now); }).exit, Exit::machine);
  now.environment["identity"] = "a";
  EXPECT_NO_THROW(require_resumable(before, now));
}

TEST(Resume, AMissingCellIsNamed) {
  const auto fault = error_of([&] { require_resumable(header(), header({cell(small_up(), 16)})); });
  EXPECT_EQ(fault.exit, Exit::request);
  EXPECT_EQ(fault.what,
            "the journal is of other cells: 1 of its 2 cells are not asked for now "
            "(custom/up/fwd/bf16/t64/zipf:1/e4/top2/n64/k32)");
  EXPECT_EQ(fault.hint, "ask for the same cells, name another --journal, or start afresh without --resume");
}

TEST(Resume, AddedCellsAreNamedToo) {
  const auto fault = error_of([&] {
    require_resumable(header(), header({cell(small_up(), 16), cell(small_up(), 32)}));
  });
  EXPECT_TRUE(holds(fault.what, "1 of its 2 cells are not asked for now"));
  EXPECT_TRUE(holds(fault.what, ", and 1 of the 2 cells asked for are not in it (custom/up/fwd/bf16/t32/uniform"));
}

TEST(Resume, ACellWithAnotherSeedIsAnotherCell) {
  EXPECT_EQ(error_of([&] {
              require_resumable(header({cell(small_up(), 16)}), header({cell(small_up(), 16, "uniform", 1)}));
            }).exit,
            Exit::request);
}

TEST(Resume, SpaceStrategyAndSeedAreNamedWithTheOptionToPass) {
  JournalHeader now = header();
  now.seed = 8;
  auto fault = error_of([&] { require_resumable(header(), now); });
  EXPECT_EQ(fault.exit, Exit::request);
  EXPECT_EQ(fault.what, "the journal has the seed 7, this run 8");
  EXPECT_EQ(fault.hint, "pass --seed 7, or start afresh without --resume");
  now.strategy = "random";
  EXPECT_EQ(error_of([&] { require_resumable(header(), now); }).what,
            "the journal has the strategy exhaustive, this run random");
  now.space = "full";
  EXPECT_EQ(error_of([&] { require_resumable(header(), now); }).hint,
            "pass --space quick, or start afresh without --resume");
}

}  // namespace
TEST(Resume, AnotherRegimeIsARequestError) {
  JournalHeader now = header();
  now.regime = Regime::sustained;
  const auto fault = error_of([&] { require_resumable(header(), now); });
  EXPECT_EQ(fault.exit, Exit::request);
  EXPECT_EQ(fault.what, "the journal has the regime burst, this run sustained");
  EXPECT_EQ(fault.hint, "pass --regime burst, or start afresh without --resume");
}

TEST(Resume, AHeaderTellsItsRegimeAndAnOldOneIsOfBurst) {
  JournalHeader sustained = header();
  sustained.regime = Regime::sustained;
  Json json = to_json(sustained);
  EXPECT_EQ(journal_header_from_json(JsonAt(json, "header")).regime, Regime::sustained);
  json.erase("regime");
  EXPECT_EQ(journal_header_from_json(JsonAt(json, "header")).regime, Regime::burst);
}

}  // namespace moetune
