// A page for people about a tuned table, its journal, the times of other libraries and past checks.
#pragma once
#include <string>

#include "record/comparison.h"
#include "record/history.h"
#include "record/journal/journal.h"
#include "record/table/table.h"

namespace moetune {

struct ReportInput {
  const TunedTable* table = nullptr;                 // null: a page of the history alone
  const JournalContents* journal = nullptr;          // of the run that made the table; null = none
  const Peers* peers = nullptr;                      // measured on the table's device in its regime; null = none
  const std::vector<HistoryRun>* history = nullptr;  // null = none
};

/// One HTML page that needs no other file: style sheet, charts and a script that sorts tables are inside. All text from
/// the input is shown as text.
std::string report_html(const ReportInput& input);

/// The same sections and figures in Markdown, without charts.
std::string report_markdown(const ReportInput& input);

}  // namespace moetune
