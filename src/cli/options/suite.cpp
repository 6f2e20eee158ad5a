// Reading suites.
#include "cli/options/cells.h"

#include <fmt/format.h>

#include "base/embedded.h"
#include "base/error.h"
#include "base/system/file.h"

namespace moetune {
namespace {

constexpr std::string_view kFolder = "configs/suites/";

// As on a command line: a number is the text that one would type.
std::string typed(const JsonAt& json) {
  return json.value().is_number_integer() ? fmt::format("{}", json.integer()) : json.string();
}

// The schema refuses unknown keys.
void read_key(const std::string& key, const JsonAt& value, CellOptions& options) {
  for (const CellOption& one : cell_options()) {
    if (key != one.name) continue;
    if (one.list) (options.*one.list).push_back(typed(value));
    if (one.value) options.*one.value = typed(value);
    if (one.flag) options.fusion.*one.flag = value.boolean();
    if (one.on) options.*one.on = value.boolean();
  }
}

}  // namespace

std::vector<SuitePart> suite_from_json(const JsonAt& json) {
  require_schema(json, "suite");
  return list_at(json["cells"], [](const JsonAt& at) {
    SuitePart part{.where = at.where()};
    for (const auto& item : at.value().items()) read_key(item.key(), at[item.key()], part.options);
    return part;
  });
}

std::string suite_description(const std::string& name) {
  const std::string path = fmt::format("{}{}.json", kFolder, name);
  const Json json = parse_json(embedded_file(path).value_or("{}"), path);
  return json.contains("description") ? JsonAt(json, path)["description"].string() : "";
}

std::filesystem::path suite_file(const std::string& name_or_file) {
  if (embedded_file(fmt::format("{}{}.json", kFolder, name_or_file))) return {};
  return name_or_file;
}

std::vector<SuitePart> read_suite(const std::string& name_or_file) {
  const std::string path = fmt::format("{}{}.json", kFolder, name_or_file);
  if (const auto text = embedded_file(path)) return suite_from_json(JsonAt(parse_json(*text, path), path));
  if (name_or_file.ends_with(".json") || is_there(name_or_file))
    return suite_from_json(JsonAt(read_json(name_or_file), name_or_file));
  throw unknown_word("suite", name_or_file, embedded_names(kFolder));
}

}  // namespace moetune
