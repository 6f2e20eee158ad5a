// Updates of a table as JSON.
#include "record/table/update.h"

#include "base/error.h"

namespace moetune {
Json to_json(const Update& update) {
  return {{"date", update.date}, {"reason", update.reason}, {"tool", update.tool}, {"cells", update.cells}};
}

Update update_from_json(const JsonAt& json) {
  Update update{
      .date = json["date"].string(), .reason = json["reason"].string(), .tool = json["tool"].value(), .cells = {}};
  for (size_t i = 0; i < json["cells"].size(); ++i) update.cells.push_back(json["cells"][i].string());
  return update;
}

}  // namespace moetune
