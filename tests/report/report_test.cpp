// The report: its sections, figures and texts, with and without journal and peers.
#include "report/report.h"

#include <map>
#include <regex>
#include <set>

#include "record/sample.h"
#include "report/report_content.h"

namespace moetune {
namespace {

using sample::cell;
using sample::entry;
using sample::failed_trial;
using sample::mma;
using sample::small_up;
using sample::trial;

constexpr const char* kHostile = "</style><script>alert(1)</script>\"'><img src=x onerror=y> & | `*[a](http://b)";

Cell first_cell() { return cell(small_up(), 16); }
Cell second_cell() { return cell(small_up(), 64, "zipf:1"); }

TunedTable small_table() {
  return sample::table({entry(first_cell(), mma(16), 12.3), entry(second_cell(), mma(32, 64), 20.5),
                        sample::skipped_entry(cell(small_up(), 256, "single"), "out of memory")});
}

JournalContents journal() {
  JournalContents contents{.header = sample::header(), .trials = {}, .unfinished = {}};
  contents.trials[id(first_cell())] = {
      trial(mma(32, 128), 20),
      failed_trial(mma(16, 64, 32), Status::wrong_result, "row 3 differs"),
      trial(mma(16, 128), 10),
      trial(mma(16, 64), 11),
      trial(mma(16, 128, 128), 12.5),
      failed_trial(mma(32, 64, 32), Status::wrong_result, "row 3 differs"),
      failed_trial(mma(64, 64, 32), Status::timeout, "it took over 2 s"),
  };
  contents.trials[id(second_cell())] = {trial(mma(32, 64), 20)};
  contents.unfinished[id(second_cell())] = {{text(mma(128)), 2}};
  contents.final_seconds[id(first_cell())] = 1.5;
  return contents;
}

Peers peers() {
  return {.device = "NVIDIA H200",
          .times = {{id(first_cell()), {{"triton", sample::measurement(15)}}},
                    {id(second_cell()), {{"triton", sample::measurement(10.25)}}},
                    {"of another table", {{"absent", sample::measurement(1)}}}}};
}

Grid grid_with(const ReportSection& section, const std::string& column) {
  for (const ReportPart& part : section.parts)
    for (const Column& title : part.grid.columns)
      if (title.title == column) return part.grid;
  throw std::runtime_error("no table has the column " + column);
}

// What a row says in a column; the row is named by its first text.
std::string at(const Grid& grid, const std::string& row, const std::string& column) {
  for (size_t c = 0; c < grid.columns.size(); ++c)
    for (const auto& texts : grid.rows)
      if (grid.columns[c].title == column && texts[0] == row) return texts[c];
  ADD_FAILURE() << "no " << row << ", " << column;
  return "";
}

std::string all_text(const ReportSection& section) {
  std::string out;
  for (const ReportPart& part : section.parts) {
    out += part.heading + "\n";
    for (const std::string& paragraph : part.paragraphs) out += paragraph + "\n";
    out += markdown(part.grid);
  }
  return out;
}

// A report of everything that the tests have.
struct Inputs {
  TunedTable table = small_table();
  JournalContents contents = journal();
  Peers others = peers();
  ReportInput all() const { return {&table, &contents, &others}; }
  ReportInput alone() const { return {&table, nullptr, nullptr}; }
};

// Candidates are toys and their space is a file.
TEST(Report, MarkdownIsTheGoldenText) {
  Inputs inputs;
  inputs.table = sample::toys(inputs.table);
  inputs.contents.header.space = "my-space.json";
  for (auto& [cell, trials] : inputs.contents.trials)
    for (Trial& one : trials) one.candidate = sample::toy(one.candidate);
  for (auto& [cell, candidates] : inputs.contents.unfinished) candidates = {{text(sample::toy(mma(128))), 2}};
  sample::expect_golden("report.md", report_markdown(inputs.all()));
}

TEST(Report, BeginsWithTheAnswerAndOneChart) {
  Inputs inputs;
  inputs.table.tool["date"] = "2026-11-27T12:00:00";
  const ReportPart first = opening(inputs.all());
  EXPECT_EQ(
      first.paragraphs.at(0),
      "2 cells of custom (fwd) on NVIDIA H200 (burst, 2026-11-27): the winners are 0.78x (0.50x to 1.22x) as fast "
      "as the fastest baseline or peer and 1.25x (1.25x to 1.25x) as fast as the default.");
  ASSERT_EQ(first.figures.size(), 1u);
  EXPECT_TRUE(holds(first.figures[0].svg, "0.50x ± 3.0 % the winner&#39;s time"));
  for (Entry& entry : inputs.table.entries) entry.measurement.waited = 0.5;
  const std::vector<std::string> doubted = opening(inputs.all()).paragraphs;
  EXPECT_EQ(doubted.at(0), "2 cells of custom (fwd) on NVIDIA H200 (burst, 2026-11-27).");
  EXPECT_EQ(doubted.back(), "2 of 2 cells are too noisy to trust and not counted here.");
  const ReportSection summary = summary_section(inputs.all());
  EXPECT_EQ(summary.parts[0].paragraphs[0],
            "2 of 3 cells have a winner, of which 2 are too noisy to trust and left out of the speed-ups.");
  EXPECT_EQ(summary.parts[0].paragraphs[1],
            "2 candidates with block_k=32 gave wrong results in 1 cell. The first, in " + id(first_cell()) +
                ": row 3 differs.");
  EXPECT_TRUE(summary.parts[0].grid.rows.empty());
}

TEST(Report, AWinnerIsNamedWithWhatIsFaster) {
  Inputs inputs;
  const auto beaten = [&](size_t i) { return beaten_text(inputs.all(), inputs.table.entries[i]); };
  EXPECT_EQ(beaten(0), "");
  EXPECT_EQ(beaten(1), "100 % slower than triton");
  EXPECT_TRUE(holds(report_html(inputs.all()), "100 % slower than triton</td>"));
  inputs.contents.trials[id(first_cell())].push_back(trial(mma(32, 64), 4));
  EXPECT_EQ(beaten(0), "150 % slower than the fastest trial of its search, block_m=32 block_n=64");
  EXPECT_EQ(beaten(2), "");
}

TEST(Report, SectionsSayWhatIsMissing) {
  const Inputs inputs;
  EXPECT_TRUE(holds(all_text(summary_section(inputs.alone())), "There are no times of other libraries"));
  for (const auto section : {block_section, knob_section, search_section, failure_section})
    EXPECT_TRUE(holds(all_text(section(inputs.alone())), "There is no journal: give"));
}

// With roofs at 0.8 times of the first cell.
Inputs roofed() {
  Inputs inputs;
  const Entry& entry = inputs.table.entries[0];
  inputs.table.device.peak_flops = entry.flops / (0.8 * entry.measurement.time.value);
  inputs.table.device.peak_bandwidth = entry.bytes / (0.8 * entry.measurement.time.value);
  return inputs;
}

TEST(Report, ARoofNeedsThePeaksOfTheDevice) {
  Inputs inputs = roofed();
  const auto names = [](const ReportPart& part) { return mapped(part.figures.at(0).legend, &LegendEntry::name); };
  const ReportPart with = results_section(inputs.all()).parts.at(0);
  EXPECT_EQ(names(with),
            (std::vector<std::string>{kWinner, kDefault, kComputeRoof, kMemoryRoof, "cublas-loop", "triton"}));
  EXPECT_EQ(at(with.grid, "16", "of roof"), "80.0 %");
  inputs.table.device.peak_bandwidth = 0;
  const ReportPart without = results_section(inputs.all()).parts.at(0);
  EXPECT_EQ(names(without), (std::vector<std::string>{kWinner, kDefault, kComputeRoof, "cublas-loop", "triton"}));
  EXPECT_EQ(at(without.grid, "16", "of roof"), "");
}

TEST(Report, ANameLooksTheSameInEveryChart) {
  Inputs inputs = roofed();
  inputs.table.entries[1].rivals.erase(inputs.table.entries[1].rivals.begin());  // the default is not in every cell
  std::map<std::string, std::set<int>> styles;
  const ReportPart first = opening(inputs.all()), results = results_section(inputs.all()).parts.at(0);
  for (const ReportPart* part : {&first, &results})
    for (const Figure& figure : part->figures)
      for (const auto& [style, name] : figure.legend) {
        styles[name].insert(style);
        EXPECT_TRUE(holds(figure.svg, fmt::format("<g class=\"s{}\">", style))) << name;
      }
  EXPECT_EQ(styles.size(), 7u);
  for (const auto& [name, found] : styles) EXPECT_EQ(found.size(), 1u) << name;
  EXPECT_NE(styles[kDefault], styles[kFastest]);
}

TEST(Report, TheLossOfAnUntrustedCellIsNoFact) {
  TunedTable table = sample::table(
      {entry(cell(small_up(), 16, "zipf:1"), mma(16), 15), entry(cell(small_up(), 16, "balanced"), mma(16), 10)});
  const auto loss = [&] {
    return at(grid_with(routing_section({&table, nullptr, nullptr}), "loss"), id(table.entries[0].cell), "loss");
  };
  EXPECT_EQ(loss(), "+50.0 %");
  table.entries[0].measurement.waited = 0.5;
  EXPECT_EQ(loss(), "noisy");
}

TEST(Report, HeatMapsAreShadedByTheLoss) {
  const ReportSection section = block_section(Inputs().all());
  ASSERT_EQ(section.parts.size(), 2u);  // the second cell has one tile
  EXPECT_EQ(section.parts[1].shades, (std::vector<std::vector<int>>{{-1, 4, 0}, {-1, -1, 5}}));
}

TEST(Report, ATrialThatWasRepeatedCountsOnceByItsLastTime) {
  Inputs inputs;
  auto& trials = inputs.contents.trials[id(first_cell())];
  trials.push_back(trial(mma(16, 128), 11));
  EXPECT_EQ(timed_trials(inputs.all(), first_cell()).size(), 4u);
  EXPECT_EQ(at(block_section(inputs.all()).parts[1].grid, "16", "block_n 128"), "best (2)");
  EXPECT_EQ(at(block_section(inputs.all()).parts[1].grid, "16", "block_n 64"), "best (1)");
}

TEST(Report, RoutingCountsExpertsByTheirRows) {
  TunedTable table = small_table();
  table.entries.resize(1);
  table.entries[0].m_sizes = {0, 1, 3, 28};
  table.entries.push_back(table.entries[0]);
  table.entries[1].cell.routing = parse_routing("zipf:1"), table.entries[1].m_sizes = {8, 8, 8, 8};
  const ReportSection section = routing_section({&table, nullptr, nullptr});
  EXPECT_EQ(grid_with(section, "experts by rows").rows[0].back(), "0: 1, 1: 1, 2-3: 1, 16-31: 1");
  ASSERT_EQ(section.parts[0].figures.size(), 1u);  // routings side by side
  EXPECT_EQ(section.parts[0].figures[0].legend.size(), 2u);
}

TEST(Report, AnEmptyTableIsAReportToo) {
  const TunedTable table = sample::table();
  const JournalContents contents = journal();
  for (const JournalContents* journal : {static_cast<const JournalContents*>(nullptr), &contents}) {
    EXPECT_TRUE(holds(report_markdown({&table, journal, nullptr}), "0 of 0 cells have a winner."));
    EXPECT_TRUE(holds(report_html({&table, journal, nullptr}), "The table has no entries."));
  }
}

TEST(Report, ThePageRefersToNothingOutside) {
  const std::string page = report_html(Inputs().all());
  EXPECT_FALSE(std::regex_search(page, std::regex("(src|href)=\"(?!#|data:,)|url\\(|@import|https?:")));
}

// Everything that files give, in every place: names, layers, reasons, versions. HTML: tests/cli/report/test_report.py.
TEST(Report, MarkdownShowsHostileTextAsText) {
  Inputs inputs;
  inputs.table.device.name = inputs.contents.header.space = inputs.contents.header.strategy = kHostile;
  inputs.table.environment = {{kHostile, {{kHostile, kHostile}}}, {"list", {kHostile}}};
  inputs.table.tool = {{"argv", {kHostile}}};
  inputs.others.times.at(id(first_cell())).at(0).peer = kHostile;
  Layer hostile = small_up();
  hostile.model = kHostile;
  for (Entry& entry : inputs.table.entries) entry.cell.shape.layer = hostile;
  inputs.table.entries[0].rivals[1].name = std::string(kHostile) + "2";
  inputs.table.entries[2].skipped = kHostile;
  auto& trials = inputs.contents.trials[id(inputs.table.entries[0].cell)] = inputs.contents.trials[id(first_cell())];
  trials[1].reason = kHostile;
  inputs.contents.unfinished[kHostile] = {{kHostile, 1}};
  const std::string text = report_markdown(inputs.all());
  EXPECT_FALSE(holds(text, "<script"));
  EXPECT_FALSE(std::regex_search(text, std::regex("(^|[^\\\\])\\[a\\]\\(http:")));
}

}  // namespace
}  // namespace moetune
