// The files that a command reads and writes: what it may replace is decided here, before any work is done.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options/contenders.h"
#include "cli/text/output.h"
#include "record/journal/journal.h"
#include "record/table/table.h"

namespace moetune {

/// What a file to write will hold. One that is there already is replaced only where it holds the same.
struct Content {
  std::string_view name;         // for "is not a ..."; empty: any file is replaced
  std::string_view schema = {};  // of a JSON file: "moetune.table/"; empty for others
  std::string_view begin = {};   // of other files
  std::string_view mark = {};    // must occur in them too
  std::string_view other = {};   // how such files may begin instead
  bool operator==(const Content&) const = default;
};
namespace content {
inline constexpr Content table{"table of moetune", "moetune.table/"};
inline constexpr Content journal{"journal of moetune", "moetune.journal/"};
inline constexpr Content bench{"result of moetune bench", "moetune.bench/"};
inline constexpr Content verify{"result of moetune verify", "moetune.verify/"};
inline constexpr Content check{"result of moetune check", "moetune.check/"};
inline constexpr Content junit{"JUnit file of moetune check", {}, "<?xml", "moetune"};
inline constexpr Content summary{"Markdown file of moetune check", {}, "# moetune check", {}, "### moetune check"};
inline constexpr Content benchmark{"benchmark file of moetune check", {}, "[", "\"unit\"", "[]"};
inline constexpr Content history{"history of moetune check", "moetune.history/"};
inline constexpr Content csv{"CSV file of moetune export", {}, "device,regime,id,"};
inline constexpr Content report{"Markdown file of moetune export", {}, "# Tuned on"};
inline constexpr Content html_report{"page of moetune report", {}, "<!doctype html>", "content=\"moetune report\""};
inline constexpr Content markdown_report{"Markdown file of moetune report", {}, "# moetune report"};
inline constexpr Content serving{"kernel configuration", {}, "{", "\"BLOCK_SIZE_M\""};
inline constexpr Content runtime{"runtime table of moetune export", "moetune.runtime/"};
inline constexpr Content kernel{};
}  // namespace content

/// `option` is the word by which the user knows the file: "--table", "TABLE".
struct InputFile {
  std::string option;
  std::filesystem::path path;
};
struct OutputFile {
  std::string option;
  std::filesystem::path path;
  Content content;
};

struct Files {
  std::vector<InputFile> inputs;
  std::vector<OutputFile> outputs;
};

/// Files that these options read, which no output may replace: a suite, models' config.json files, recordings; a space.
/// Built-in files don't count.
void add_inputs(Files& files, const CellOptions& options, const std::vector<Cell>& cells);
void add_inputs(Files& files, const SearchOptions& options);

/// Adds the file, unless `path` is empty.
void add_input(Files& files, const std::string& option, const std::string& path);
void add_output(Files& files, const std::string& option, const std::string& path, const Content& content);

/// Throws Exit::request where an output is an input or another output (also through links), cannot be written, is not a
/// regular file (a journal may be a device), or exists and holds anything but what will be written. Makes the folders
/// of outputs, unless `dry`; then it is enough that they can be made.
void require_outputs(const Files& files, bool dry = false);

/// Whether a file begins as such a one does. A file that cannot be read does not.
bool begins_as(const std::filesystem::path& path, const Content& content);
bool is_journal(const std::filesystem::path& path);

/// "-o -" for a command whose results are one JSON document: it goes to standard output in place of the text, as with
/// --format json. Exit::request where --format asks for another format there.
void output_to_standard_output(std::string& output, OutputFormat& format);

/// Runs all of `writers` in their order. Where some throw an Error, throws one afterwards that names each failure once,
/// with the exit code and the hint of the first.
void write_outputs(const std::vector<std::function<void()>>& writers);

/// --base: files or folders that are there.
std::vector<std::filesystem::path> base_files(const std::vector<std::string>& bases);

/// Writes the file. Other text that is there is kept under another name, which is noted.
void write_kept(const std::filesystem::path& path, std::string_view text, const Terminal& terminal);

/// `given`, else the file beside the table; empty where there is none.
std::string journal_file(const std::string& given, const std::string& table_file);

/// The journal of journal_file, where it is of the run that made `table`: of its device, environment and regime, with
/// cells and winners of the table. One of another run is Exit::machine where it was given; beside the table it is left
/// out with a note.
std::optional<JournalContents> find_journal(const std::string& given, const std::string& table_file,
                                            const TunedTable& table, const Catalog& catalog, const Terminal& terminal);

}  // namespace moetune
