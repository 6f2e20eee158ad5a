// Look-up of fields.
#include "workload/model/fields.h"

#include <algorithm>
#include <cctype>

namespace moetune {

std::optional<JsonAt> field(JsonAt json, const std::string& path) {
  size_t begin = 0;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string key = path.substr(begin, end - begin);
    if (!json.has(key)) return std::nullopt;
    json = json[key];
    begin = end + 1;
  }
  return json;
}

std::optional<Found> first_field(const Scopes& scopes, const FieldNames& names) {
  for (const std::string& name : names)
    for (const JsonAt& scope : scopes)
      if (std::optional<JsonAt> at = field(scope, name)) return Found{name, *at};
  return std::nullopt;
}

Json value_of(const JsonAt& json, const FieldNames& names) {
  const auto found = first_field({json}, names);
  return found ? found->at.value() : Json();
}

std::string text_of(const JsonAt& json, const std::string& path) {
  const Json value = value_of(json, {path});
  return value.is_string() ? value.get<std::string>() : "";
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool has_one_of(const std::string& text, const FieldNames& words) {
  return std::ranges::any_of(words, [&](const std::string& word) { return text.find(word) != std::string::npos; });
}

}  // namespace moetune
