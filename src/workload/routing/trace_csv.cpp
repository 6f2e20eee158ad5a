// Recordings in CSV: rows per expert, or chosen experts, one a line.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text/units.h"
#include "workload/routing/recording.h"
#include "workload/routing/routing.h"
#include "workload/shape.h"

namespace moetune {
namespace {

struct Entry {
  int64_t expert, rows;  // rows per expert
  int64_t token, slot;   // or chosen experts
};

struct Table {
  std::vector<std::string> columns;
  std::map<std::string, int64_t> comments;  // tokens, top_k, experts
  std::vector<std::string> layers;          // in the order of the file
  std::map<std::string, std::vector<Entry>> entries;
  bool has(std::string_view column) const { return contains(columns, column); }
};

// "# tokens=2012, top_k=4": other words of a comment are for people.
void read_comment(std::string_view line, Table& table) {
  for (const std::string& piece : split(line.substr(1), ',')) {
    const std::vector<std::string> words = split(piece, '=');
    if (words.size() != 2 || (words[0] != "tokens" && words[0] != "top_k" && words[0] != "experts")) continue;
    table.comments[words[0]] = parse_integer(words[1], words[0], 1, words[0] == "experts" ? kMaxExperts : kMaxRows);
  }
}

// The values of a line, without white space and quotes around each.
std::vector<std::string> values_of(std::string_view line) {
  std::vector<std::string> values = split(line, ',');
  for (std::string& value : values)
    if (value.size() > 1 && value.front() == '"' && value.back() == '"') value = value.substr(1, value.size() - 2);
  return values;
}

void read_header(std::vector<std::string> columns, Table& table) {
  table.columns = std::move(columns);
  const bool rows = table.has("expert") && table.has("rows");
  const bool ids = table.has("token") && table.has("slot") && table.has("expert");
  if (rows == ids)
    throw request_error(fmt::format("the header is '{}'", fmt::join(table.columns, ",")),
                        "write layer,expert,rows or layer,token,slot,expert");
}

void read_entry(const std::vector<std::string>& words, Table& table) {
  if (words.size() != table.columns.size())
    throw request_error(fmt::format("{} values under {} columns", words.size(), table.columns.size()));
  std::string layer = "0";
  Entry entry{};
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& column = table.columns[i];
    const auto number = [&](int64_t high) { return parse_integer(words[i], column, 0, high); };
    if (column == "layer") layer = words[i];
    if (column == "expert") entry.expert = number(kMaxExperts - 1);
    if (column == "rows") entry.rows = number(kMaxRows);
    if (column == "token") entry.token = number(kMaxRows - 1);
    if (column == "slot") entry.slot = number(kMaxExperts - 1);
  }
  std::vector<Entry>& entries = table.entries[layer];
  if (entries.empty()) table.layers.push_back(layer);
  if (table.layers.size() > kMaxTraceLayers) throw request_error(fmt::format("more than {} layers", kMaxTraceLayers));
  entries.push_back(entry);
}

Table read_table(std::string_view text, const Where& where) {
  Table table;
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // spreadsheets write this mark of UTF-8
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    line.remove_prefix(line.find_first_not_of(" \t"));
    with_place({where.file, number}, [&] {
      if (line.front() == '#')
        read_comment(line, table);
      else if (table.columns.empty())
        read_header(values_of(line), table);
      else
        read_entry(values_of(line), table);
    });
  }
  if (table.columns.empty()) throw request_error("the file is empty");
  if (table.layers.empty()) throw request_error("has a header but no lines");
  return table;
}

int64_t largest(const Table& table, int64_t Entry::*member) {
  int64_t most = 0;
  for (const auto& [layer, entries] : table.entries)
    for (const Entry& entry : entries) most = std::max(most, entry.*member);
  return most;
}

std::vector<int32_t> rows_of(const std::vector<Entry>& entries, int64_t experts) {
  std::vector<int32_t> rows(static_cast<size_t>(experts), -1);
  for (const Entry& entry : entries) {
    int32_t& row = rows[static_cast<size_t>(entry.expert)];
    if (row >= 0) throw request_error(fmt::format("expert {} has two lines", entry.expert));
    row = static_cast<int32_t>(entry.rows);
  }
  for (int32_t& row : rows) row = std::max(row, 0);  // an expert without a line has no rows
  return rows;
}

std::vector<int32_t> ids_of(const std::vector<Entry>& entries, int64_t tokens, int64_t top_k) {
  // Before anything of that size is allocated.
  if (static_cast<int64_t>(entries.size()) != tokens * top_k)
    throw request_error(
        fmt::format("{} lines, but {} tokens with top_k {} make {}", entries.size(), tokens, top_k, tokens * top_k));
  std::vector<int32_t> ids(entries.size(), -1);
  for (const Entry& entry : entries) {
    int32_t& id = ids[static_cast<size_t>(entry.token * top_k + entry.slot)];
    if (id >= 0) throw request_error(fmt::format("token {} slot {} has two lines", entry.token, entry.slot));
    id = static_cast<int32_t>(entry.expert);
  }
  return ids;
}

Trace trace_of(const Table& table, int64_t experts, int64_t top_k) {
  const bool ids = table.has("slot");
  Trace trace;
  const int64_t seen = largest(table, &Entry::expert) + 1;
  trace.experts = agreed("experts", value_in(table.comments, "experts"), experts);
  if (trace.experts == 0) trace.experts = seen;
  require_known(seen, trace.experts);
  trace.top_k = agreed("top_k", value_in(table.comments, "top_k"), top_k);
  int64_t tokens = value_in(table.comments, "tokens");
  if (ids) {
    trace.top_k = agreed("top_k", largest(table, &Entry::slot) + 1, trace.top_k);
    const int64_t last = largest(table, &Entry::token) + 1;
    if (tokens != 0 && tokens != last)
      throw request_error(fmt::format("the last token is {}, but a comment says {} tokens", last - 1, tokens));
    tokens = last;
  }
  for (const std::string& layer : table.layers) {
    const std::vector<Entry>& entries = table.entries.at(layer);
    with_place(Where::of_option("layer " + layer), [&] {
      add_layer(trace, ids ? layer_from_ids(layer, ids_of(entries, tokens, trace.top_k), trace.top_k, trace.experts)
                           : layer_from_rows(layer, rows_of(entries, trace.experts), tokens, trace.top_k));
    });
  }
  return trace;
}

}  // namespace

Trace trace_from_csv(std::string_view text, const Where& where, int64_t experts, int64_t top_k) {
  return with_place(where, [&] { return trace_of(read_table(text, where), experts, top_k); });
}

}  // namespace moetune
