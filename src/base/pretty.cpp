// Where lines break in JSON files.
#include "base/pretty.h"

#include <algorithm>

namespace moetune {
namespace {

constexpr size_t kLineWidth = 160;  // a candidate with all its knobs

bool all_plain(const Json& json) {
  return std::none_of(json.begin(), json.end(), [](const Json& value) { return value.is_structured(); });
}

// `used` columns of this line are taken.
void append(std::string& out, const Json& json, size_t indent, size_t used);

std::string one_line(const Json& json) {
  if (!json.is_structured()) return compact_json(json);
  std::string line = json.is_array() ? "[" : "{";
  const std::string_view comma = json.is_array() ? "," : ", ";
  for (auto item = json.begin(); item != json.end(); ++item) {
    if (item != json.begin()) line += comma;
    if (json.is_object()) line += compact_json(item.key()) + ": ";
    line += compact_json(*item);
  }
  return line + (json.is_array() ? "]" : "}");
}

void append_lines(std::string& out, const Json& json, size_t indent) {
  const std::string margin(indent + 2, ' ');
  out += json.is_array() ? "[" : "{";
  for (auto item = json.begin(); item != json.end(); ++item) {
    const size_t line_start = out.size() + (item == json.begin() ? 1 : 2);
    out += (item == json.begin() ? "\n" : ",\n") + margin;
    if (json.is_object()) out += compact_json(item.key()) + ": ";
    append(out, *item, indent + 2, out.size() - line_start);
  }
  out += "\n" + std::string(indent, ' ') + (json.is_array() ? "]" : "}");
}

void append(std::string& out, const Json& json, size_t indent, size_t used) {
  if (!json.is_structured() || json.empty()) {
    out += one_line(json);
    return;
  }
  if (all_plain(json)) {
    const std::string line = one_line(json);
    if (json.is_array() || used + line.size() < kLineWidth) {
      out += line;
      return;
    }
  }
  append_lines(out, json, indent);
}

}  // namespace

std::string compact_json(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string pretty_json(const Json& json) {
  std::string out;
  append(out, json, 0, 0);
  return out + "\n";
}

}  // namespace moetune
