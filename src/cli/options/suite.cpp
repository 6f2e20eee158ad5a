// Reading suites.
#include <fmt/format.h>

#include "base/embedded.h"
#include "base/error.h"
#include "base/system/file.h"
#include "cli/options/cells.h"

namespace moetune {
namespace {

constexpr std::string_view kFolder = "configs/suites/";

// As on a command line: a number is the text that one would type.
std::string typed(const JsonAt& json) {
  return json.value().is_number_integer() ? fmt::format("{}", json.integer()) : json.string();
}

void read_key(const CellOption& option, const JsonAt& json, CellRequest& request) {
  if (option.flag) return void(option.flag(request) = json.boolean());
  for (const std::string& word : option.list ? list_words({typed(json)}, option.name) : std::vector{typed(json)})
    option.read(request, word, option.name);
}

}  // namespace

std::vector<SuitePart> suite_from_json(const JsonAt& json) {
  require_schema(json, "suite");  // refuses unknown keys
  return list_at(json["cells"], [](const JsonAt& at) {
    SuitePart part{.where = at.place()};
    for (const CellOption& option : cell_options())
      if (at.has(option.name))
        with_place(at[option.name], [&](const JsonAt& value) { read_key(option, value, part.request); });
    return part;
  });
}

std::vector<Cell> make_cells(const SuitePart& part) {
  try {
    return make_cells(part.request);
  } catch (const CellRequestError& error) {
    Where where = part.where;
    where.pointer = pointer_to(where.pointer, error.field());
    throw error.at(where);
  } catch (const Error& error) {
    throw error.at(part.where);
  }
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
