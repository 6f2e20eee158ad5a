// Journals: what is written, what is read back, and what becomes of damaged ones.
#include "record/journal/journal.h"

#include <fstream>
#include <functional>

#include "base/random.h"
#include "built_in.h"
#include "record/open_journal.h"
#include "record/sample.h"

namespace moetune {
namespace {

using sample::failed_trial;
using sample::Folder;
using sample::header;
using sample::mma;
using sample::trial;

const std::string kCell = "custom/up/fwd/bf16/t16/uniform/e4/top2/n64/k32";

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// A header, a finished and a failed trial, and one under way.
std::string journal_text(const std::filesystem::path& path, Candidate (*of)(const Candidate&) = nullptr) {
  const auto tiled = [&](int block_m) { return of ? of(mma(block_m)) : mma(block_m); };
  Journal journal = create_journal(path, header());
  journal.started(kCell, tiled(64));
  journal.finished(kCell, trial(tiled(64), 10));
  journal.started(kCell, tiled(128));
  journal.finished(kCell, failed_trial(tiled(128), Status::crashed, "signal 11"));
  journal.started(kCell, tiled(32));
  return read_text(path);
}

TEST(Journal, HoldsWhatWasWrittenInOrder) {
  const Folder folder;
  journal_text(folder / "j");
  const JournalContents contents = read_journal(folder / "j", built_in());
  EXPECT_EQ(contents.header.cells, header().cells);
  EXPECT_EQ(contents.header.device, header().device);
  EXPECT_EQ(contents.header.environment, header().environment);
  EXPECT_EQ(contents.header.space, "quick");
  EXPECT_EQ(contents.header.strategy, "exhaustive");
  EXPECT_EQ(contents.header.seed, 7u);
  ASSERT_EQ(contents.trials.size(), 1u);
  const std::vector<Trial>& trials = contents.trials.at(kCell);
  ASSERT_EQ(trials.size(), 2u);
  EXPECT_EQ(trials[0].candidate, mma(64));
  EXPECT_NEAR(trials[0].measurement.time.value, 10e-6, 1e-12);
  EXPECT_EQ(trials[1].status, Status::crashed);
  EXPECT_EQ(trials[1].reason, "signal 11");
}

TEST(Journal, RecordsHowLongTrialsAndFinalsTook) {
  const Folder folder;
  Journal journal = create_journal(folder / "j", header());
  Trial timed = trial(mma(64), 10);
  timed.took = 0.125;
  EXPECT_TRUE(read_journal(folder / "j", built_in()).trials.empty());
  journal.started(kCell, mma(64));
  EXPECT_EQ(read_journal(folder / "j", built_in()).unfinished.at(kCell).size(), 1u) << "on disk when the call returns";
  journal.finished(kCell, timed);
  EXPECT_TRUE(read_journal(folder / "j", built_in()).unfinished.empty());
  journal.finished(kCell, trial(mma(128), 10));
  const Entry found = sample::entry(header().cells.at(0), mma(64), 10);
  journal.decided(found, header().device, 2, true);
  journal.decided(found, header().device, 2.5, false);
  const JournalContents contents = read_journal(folder / "j", built_in());
  EXPECT_EQ(contents.trials.at(kCell)[0].took, 0.125);
  EXPECT_EQ(contents.trials.at(kCell)[1].took, 0) << "unknown, as in older journals";
  EXPECT_EQ(contents.final_seconds, (std::map<std::string, double>{{kCell, 2.5}}));
  EXPECT_TRUE(contents.searched.empty()) << "the last final counts";
  EXPECT_EQ(to_json(contents.decided.at(kCell), header().device), to_json(found, header().device));
}

TEST(Journal, AFinalOfAnotherCellIsRefused) {
  const Folder folder;
  Journal journal = create_journal(folder / "j", header());
  Entry other = sample::entry(header().cells.at(0), mma(64), 10);
  journal.decided(other, header().device, 2, true);
  std::string text = read_text(folder / "j");
  text.replace(text.rfind("\"entry\""), 7, "\"kept\"");
  write(folder / "old", text);
  EXPECT_TRUE(read_journal(folder / "old", built_in()).decided.empty());
  EXPECT_EQ(read_journal(folder / "old", built_in()).final_seconds.size(), 1u) << "a journal of an earlier version";
  write(folder / "wrong",
        read_text(folder / "j") + R"({"kind": "final", "cell": ")" + kCell + R"(", "took_us": 1, "entry": {}})" + "\n");
  EXPECT_TRUE(holds(error_of([&] { read_journal(folder / "wrong", built_in()); }).what, "entry"));
}

TEST(Journal, IsTheGoldenText) {
  const Folder folder;
  sample::expect_golden("journal.jsonl", journal_text(folder / "j", sample::toy));
}

TEST(Journal, WritesNothingWithoutAFile) {
  Journal journal;
  journal.started(kCell, mma(64));
  journal.finished(kCell, trial(mma(64), 1));
}

TEST(Journal, WritesToADeviceFile) {
  Journal journal = create_journal("/dev/null", header());
  journal.started(kCell, mma(64));
  EXPECT_EQ(error_of([] { create_journal("/dev/null", header()); }).exit, Exit::yes);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(Journal, KeepsAReasonOnOneLine) {
  const Folder folder;
  {
    Journal journal = create_journal(folder / "j", header());
    journal.finished(kCell, failed_trial(mma(64), Status::compile_error, "caf\xe9\nline two \"quoted\""));
  }
  EXPECT_EQ(read_journal(folder / "j", built_in()).trials.at(kCell)[0].reason, "caf\xef\xbf\xbd\nline two \"quoted\"");
}

TEST(Journal, AnUnwritablePlaceIsAnError) {
  const Folder folder;
  EXPECT_NE(error_of([&] { create_journal(folder / "missing/j", header()); }).exit, Exit::yes);
}

TEST(ClaimedJournal, HasOneWriter) {
  const Folder folder;
  Journal first = create_journal(folder / "j", header());
  first.started(kCell, mma(64));
  const std::string text = read_text(folder / "j");
  for (const auto& second : {std::function([&] { create_journal(folder / "j", header()); }),
                             std::function([&] { reopen_journal(folder / "j"); })}) {
    const auto fault = error_of(second);
    EXPECT_EQ(fault.exit, Exit::request);
    EXPECT_TRUE(holds(fault.what, "another moetune")) << fault.what;
    EXPECT_TRUE(holds(fault.what, "is using " + (folder / "j").string())) << fault.what;
    EXPECT_EQ(read_text(folder / "j"), text);
  }
}

TEST(ClaimedJournal, KeepsItsContent) {
  const Folder folder;
  EXPECT_TRUE(Journal::claim(folder / "new").empty());
  EXPECT_EQ(read_text(folder / "new"), "");
  const std::string text = journal_text(folder / "j").substr(0, 300);
  write(folder / "j", text);
  const Journal journal = Journal::claim(folder / "j");
  EXPECT_FALSE(journal.empty());
  EXPECT_EQ(read_text(folder / "j"), text);
}

TEST(ClaimedJournal, ACopyIsKeptBeforeItBeginsAnew) {
  const Folder folder;
  const std::string text = journal_text(folder / "j");
  write(folder / "j.old", "older");
  Journal journal = Journal::claim(folder / "j");
  EXPECT_EQ(journal.keep_copy(), folder / "j.old2");
  journal.begin(header());
  EXPECT_EQ(read_text(folder / "j.old"), "older");
  EXPECT_EQ(read_text(folder / "j.old2"), text);
  EXPECT_TRUE(read_journal(folder / "j", built_in()).trials.empty());
  EXPECT_EQ(error_of([&] { Journal::claim(folder / "j"); }).exit, Exit::request);  // ours all the time
}

TEST(Unfinished, CountsEachStartWithoutAnEndByCell) {
  const Folder folder;
  const std::string other = id(header().cells[1]);
  {
    Journal journal = create_journal(folder / "j", header());
    journal.started(kCell, mma(64));
    journal.started(kCell, mma(128));
    journal.started(other, mma(64));
    journal.started(other, mma(64));
    journal.finished(other, failed_trial(mma(64), Status::timeout, "late"));  // an end at last clears the candidate
  }
  reopen_journal(folder / "j").started(kCell, mma(64));
  const JournalContents contents = read_journal(folder / "j", built_in());
  EXPECT_EQ(contents.unfinished.size(), 1u);
  EXPECT_EQ(contents.unfinished.at(kCell).at(text(mma(64))), 2);
  EXPECT_EQ(contents.unfinished.at(kCell).at(text(mma(128))), 1);
  EXPECT_EQ(contents.trials.at(other).size(), 1u);
}

TEST(CutJournal, LosesOnlyItsLastLineWhereverThatIsCut) {
  const Folder folder;
  Journal journal = create_journal(folder / "j", header());
  journal.started(kCell, mma(64));
  journal.finished(kCell, trial(mma(64), 10));
  const std::string text = read_text(folder / "j");
  const size_t last = text.rfind('\n', text.size() - 2) + 1;
  for (size_t length = last; length <= text.size(); ++length) {
    const size_t whole = length == text.size();
    write(folder / "cut", text.substr(0, length));
    const JournalContents cut = read_journal(folder / "cut", built_in());
    ASSERT_EQ(cut.trials.size(), whole) << length;
    ASSERT_EQ(cut.unfinished.size(), 1 - whole) << length;
    reopen_journal(folder / "cut").finished(kCell, trial(mma(128), 20));
    const std::vector<Trial> trials = read_journal(folder / "cut", built_in()).trials.at(kCell);
    ASSERT_EQ(trials.size(), 1 + whole) << length;
    ASSERT_EQ(trials.back().candidate, mma(128)) << length;
  }
}

TEST(CutJournal, WithoutAWholeHeaderIsRefused) {
  const Folder folder;
  { const Journal journal = create_journal(folder / "j", header()); }
  const std::string text = read_text(folder / "j");
  for (size_t length = 0; length < text.size(); length += 7) {
    write(folder / "cut", text.substr(0, length));
    const auto fault = error_of([&] { read_journal(folder / "cut", built_in()); });
    ASSERT_EQ(fault.exit, Exit::request);
    ASSERT_TRUE(holds(fault.what, "cut off in its header")) << fault.what;
    ASSERT_EQ(fault.hint, "start afresh without --resume");
  }
}

TEST(CutJournal, DropsWhatFollowsTheLastWholeLine) {
  const Folder folder;
  const std::string text = journal_text(folder / "j");
  for (const std::string& tail : {std::string(5000, '\0'), std::string(300000, 'x'), std::string()}) {
    write(folder / "cut", text + tail);
    EXPECT_EQ(read_journal(folder / "cut", built_in()).trials.at(kCell).size(), 2u);
    { const Journal journal = reopen_journal(folder / "cut"); }
    EXPECT_EQ(read_text(folder / "cut"), text);
  }
}

TEST(WrongJournal, NamesLineAndPlace) {
  const Folder folder;
  const std::string text = journal_text(folder / "j");
  const size_t second = text.find('\n') + 1, end = text.find('\n', second),
               last = text.rfind('\n', text.size() - 2) + 1;
  const auto with = [&](const std::string& part, const std::string& other) {
    return std::string(text).replace(text.find(part), part.size(), other);
  };
  const std::pair<std::string, std::string> cases[] = {
      {std::string(text).insert(end, "}"), "j:2:" + std::to_string(end - second + 1) + ": not valid JSON"},
      {text.substr(0, second + 20) + "\n" + text.substr(end + 1), "j:2:21: the JSON ends too early"},
      {text + "\n" + text.substr(last), "j:7: the line is empty"},
      {with("\"block_m\":128", "\"block_m\":-12"), "j:4: candidate.block_m: -12 is outside 0"},
      {with(kCell + "\",\"candidate\"", "some/other/cell\",\"candidate\""),
       "j:2: cell: 'some/other/cell' is not a cell of the header"},
      {text + text, "j:7: a second header: two journals were joined"},
      {text + "{}\n", "j:7: 'kind' is missing"},
      {text + "[1]\n", "j:7: expected an object, found an array"},
      {"{\"schema\": \"moetune.table/1\"}\n", "j:1: its schema is 'moetune.table/1', expected 'moetune.journal/1'"},
      {"hello\n", "j:1:1: not valid JSON"},
      {with("signal 11", "signal \xff\xfe"), "j:5:"},
      {text + std::string(100000, '[') + std::string(100000, ']') + "\n", "j:7: nested deeper than 64 levels"}};
  for (const auto& [damaged, expected] : cases) {
    write(folder / "j", damaged);
    const auto fault = error_of([&] { read_journal(folder / "j", built_in()); });
    EXPECT_EQ(fault.exit, Exit::request);
    EXPECT_TRUE(holds(fault.what, expected)) << fault.what << "\nexpected " << expected;
  }
}

TEST(WrongJournal, MustBeARegularFileOfAPlausibleSize) {
  const Folder folder;
  const auto fault = error_of([&] { read_journal(folder / "j", built_in()); });
  EXPECT_TRUE(holds(fault.what, "there is no such journal"));
  EXPECT_EQ(fault.hint, "start afresh without --resume");
  EXPECT_TRUE(holds(error_of([&] { read_journal(folder / "", built_in()); }).what, "a journal must be a regular file"));
  write(folder / "j", "");
  std::filesystem::resize_file(folder / "j", uintmax_t{5} << 30);  // sparse
  EXPECT_TRUE(holds(error_of([&] { read_journal(folder / "j", built_in()); }).what, "j: far too long for a journal"));
}

TEST(Journal, IgnoresUnknownFieldsAndKinds) {
  const Folder folder;
  std::string text = journal_text(folder / "j"), dos;
  for (const char c : text) dos += c == '\n' ? std::string("\r\n") : std::string(1, c);
  text.replace(text.find("\"kind\":\"trial\""), 14, "\"kind\":\"trial\",\"power_w\":412");
  for (const std::string& other : {dos, text + "{\"kind\":\"note\",\"text\":\"from a later version\"}\n"}) {
    write(folder / "j", other);
    EXPECT_EQ(read_journal(folder / "j", built_in()).trials.at(kCell).size(), 2u);
  }
}

TEST(WrongJournal, ChangedBytesAreReadOrRefused) {
  const Folder folder;
  const std::string text = journal_text(folder / "j");
  Random random(1);
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    std::string changed = text;
    changed[random.below(changed.size())] = static_cast<char>(random.below(256));
    write(folder / "changed", changed);
    try {
      EXPECT_LE(read_journal(folder / "changed", built_in()).trials.size(), 2u);
    } catch (const Error& error) {
      ASSERT_TRUE(holds(error.what(), "changed:")) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(JournalHeaderJson, ACellUnderAnotherNameIsAnError) {
  Json json = to_json(header());
  json["cells"][1]["id"] = "old-name";
  const auto fault = error_of([&] { journal_header_from_json(JsonAt(json, "j:1")); });
  EXPECT_TRUE(holds(fault.what, "j:1: cells[1]: the cell is called custom/up/"));
  EXPECT_TRUE(holds(fault.hint, "start afresh"));
}

}  // namespace
}  // namespace moetune
