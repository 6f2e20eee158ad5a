// Updates of a table as JSON.
#include "record/table/update.h"

#include "base/error.h"

namespace moetune {
namespace {

std::string text_of(const JsonAt& json) {
  std::string text = json.string();
  if (text.empty()) json.fail("expected a text");
  return text;
}

}  // namespace

Json to_json(const Update& update) {
  return {{"date", update.date}, {"reason", update.reason}, {"tool", update.tool}, {"cells", update.cells}};
}

Update update_from_json(const JsonAt& json) {
  Update update{
      .date = text_of(json["date"]), .reason = text_of(json["reason"]), .tool = json["tool"].value(), .cells = {}};
  if (!update.tool.is_object()) json["tool"].fail("expected an object");
  for (size_t i = 0; i < json["cells"].size(); ++i) update.cells.push_back(text_of(json["cells"][i]));
  return update;
}

}  // namespace moetune
