// CSV.
#include "export/exporter.h"

#include <algorithm>
#include <map>

#include "built_in.h"
#include "record/sample.h"
#include "variant/variant.h"

namespace moetune {
namespace {

// A strict reader of RFC 4180, with line feeds.
std::vector<std::vector<std::string>> parse_csv(const std::string& text) {
  std::vector<std::vector<std::string>> rows(1, std::vector<std::string>(1));
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '"' && i + 1 < text.size() && text[i + 1] == '"')
      rows.back().back() += text[++i];
    else if (c == '"')
      quoted = !quoted;
    else if (!quoted && c == ',')
      rows.back().emplace_back();
    else if (!quoted && c == '\n' && i + 1 < text.size())
      rows.emplace_back(1);
    else if (quoted || c != '\n')
      rows.back().back() += c;
  }
  return rows;
}

std::map<std::string, std::string> record(const TunedTable& table, size_t index) {
  const auto rows = parse_csv(export_csv(table).files[0].text);
  EXPECT_EQ(rows.size(), table.entries.size() + 1);
  std::map<std::string, std::string> result;
  for (size_t i = 0; i < rows[0].size(); ++i) result[rows[0][i]] = rows[index + 1].at(i);
  return result;
}

// Without the columns of other variants' knobs.
TEST(Csv, IsTheGoldenText) {
  const auto rows = parse_csv(export_csv(sample::toys(sample::small_table())).files[0].text);
  const std::vector<std::string> knobs = built_in().knob_names();
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    for (size_t column = 0; column < row.size(); ++column) {
      const std::string& title = rows[0].at(column);
      if (std::ranges::find(knobs, title) != knobs.end() && !title.starts_with("block_")) continue;
      const char* const quote = row[column].find(',') == std::string::npos ? "" : "\"";
      text += (column ? "," : "") + (quote + row[column]) + quote;
    }
    text += "\n";
  }
  sample::expect_golden("table.csv", text);
}

TEST(Csv, EveryRowHasEveryColumnOnce) {
  const auto rows = parse_csv(export_csv(sample::small_table()).files[0].text);
  ASSERT_EQ(rows.size(), 4u);
  for (const auto& row : rows) EXPECT_EQ(row.size(), rows[0].size());
  std::map<std::string, int> columns;
  for (const std::string& column : rows[0]) EXPECT_EQ(++columns[column], 1) << column;
  for (const std::string& name : built_in().knob_names()) EXPECT_EQ(columns[name], 1) << name;
}

TEST(Csv, ColumnsAreTheSameForAnyTable) {
  const auto head = [](const TunedTable& table) {
    const std::string text = export_csv(table).files[0].text;
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(head(sample::table()), head(sample::small_table()));
}

TEST(Csv, QuotesCommasQuotesAndLineBreaks) {
  TunedTable table = sample::small_table();
  table.device.name = "a \"b\", c\nd";
  EXPECT_TRUE(holds(export_csv(table).files[0].text, "\n\"a \"\"b\"\", c\nd\",burst,"));
  EXPECT_EQ(record(table, 1)["device"], "a \"b\", c\nd");
}

TEST(Csv, MoreBaselinesShareAColumn) {
  TunedTable table = sample::small_table();
  table.entries[0].rivals.push_back(sample::rival("cublas-grouped", 30, 0.4));
  table.entries[0].rivals.push_back(sample::rival("triton", 18, 0.7));
  EXPECT_EQ(record(table, 0)["other_baselines_us"], "cublas-grouped=30;triton=18");
}

TEST(Csv, CpuWinnersFillTheirOwnKnobs) {
  TunedTable table = sample::small_table();
  table.entries[0].candidate = candidate_of("cpu", {32, 64, 64, 2});
  auto fields = record(table, 0);
  EXPECT_EQ(fields["threads"], "2");
  EXPECT_EQ(fields["warps"], "");
}

}  // namespace
}  // namespace moetune
