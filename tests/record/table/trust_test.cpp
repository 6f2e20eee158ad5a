// Which entries are sure enough to be judged by.
#include "record/sample.h"

namespace moetune {
namespace {

Entry sure_entry() { return sample::entry(sample::cell(sample::small_up(), 16), sample::mma(16), 10); }

TEST(Distrust, ASureEntryHasNoReason) { EXPECT_EQ(distrust(sure_entry()), ""); }

TEST(Distrust, ASkippedEntryHasNothingToTrust) {
  EXPECT_EQ(distrust(sample::skipped_entry(sample::cell(sample::small_up(), 16), "out of memory")), "");
}

TEST(Distrust, NamesBusyProcessors) {
  for (const bool winner : {true, false}) {
    Entry entry = sure_entry();
    (winner ? entry.measurement : entry.rivals[1].measurement).waited = 0.123;
    EXPECT_EQ(distrust(entry), "other programs took 12 % of the processors' time");
  }
  Entry entry = sure_entry();
  entry.rivals[0].measurement.waited = 0.5;  // the default, which judges nothing here
  entry.measurement.waited = 0.05;
  EXPECT_EQ(distrust(entry), "");
}

TEST(Distrust, AnUncertainRatioToTheControlIsAReason) {
  Entry entry = sure_entry();
  entry.rivals[1].ratio = {0.5, 0.5 / 1.12, 0.5 * 1.12};
  EXPECT_EQ(distrust(entry), "its ratio to cublas-loop is uncertain by 12 %");
  entry.rivals[1].ratio = {0.5, 0.5 / 11, 0.5 * 11};
  EXPECT_EQ(distrust(entry), "its ratio to cublas-loop is uncertain by over 100 %");
  entry.rivals[1].ratio = {0.5, 0.5 / 1.05, 0.5 * 1.05};
  EXPECT_EQ(distrust(entry), "");
}

TEST(Distrust, AnUncertainTimeIsAReason) {
  Entry entry = sure_entry();
  entry.measurement.time.low = 8e-6, entry.measurement.time.high = 12e-6;
  EXPECT_EQ(distrust(entry), "its time is uncertain by 22 %");
}

TEST(Distrust, AFinalThatIsTooShortIsAReason) {
  Entry entry = sure_entry();
  entry.measurement.time.samples = 4;
  EXPECT_EQ(distrust(entry), "its final has 4 of the 5 rounds that an interval needs");
}

TEST(Control, IsTheFastestBaselineThenTheDefault) {
  Entry entry = sure_entry();
  entry.rivals.push_back(sample::rival("cublas-grouped", 15, 0.6667));
  EXPECT_EQ(find_control(entry)->name, "cublas-grouped");
  const std::vector<std::string> offered = {"cublas-loop"};
  EXPECT_EQ(find_control(entry, &offered)->name, "cublas-loop");
  entry.rivals.resize(1);
  EXPECT_EQ(find_control(entry)->name, "default");
  entry.rivals[0].candidate = entry.candidate;
  EXPECT_EQ(find_control(entry), nullptr);
}

TEST(Distrust, IsInTheFileAndIsMadeAnewByItsReaders) {
  Entry entry = sure_entry();
  entry.measurement.waited = 0.2;
  const Json json = to_json(sample::table({entry, sure_entry()}));
  EXPECT_EQ(json["entries"][0]["untrusted"], "other programs took 20 % of the processors' time");
  EXPECT_FALSE(json["entries"][1].contains("untrusted"));
}

}  // namespace
}  // namespace moetune
