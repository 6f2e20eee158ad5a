// Schemas are compiled once into nodes that refer to one another; a document is walked together with its node. The
// place of a fault is put together on the way back, so that valid documents cost no text.
#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <regex>
#include <stdexcept>

#include "base/embedded.h"
#include "base/error.h"

namespace moetune {
namespace {

constexpr std::string_view kFolder = "configs/schema/";
constexpr std::string_view kTypes[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
constexpr std::string_view kTypeWords[] = {"null",     "true or false", "an integer", "a number",
                                           "a string", "an array",      "an object"};

struct Node {
  bool never = false;  // the schema `false`
  const Node* other = nullptr;
  unsigned types = 0;  // bits, in the order of kTypes; 0: any
  Json words = nullptr, constant = nullptr;
  std::optional<double> minimum, above, maximum;
  size_t min_length = 0, min_items = 0, max_items = SIZE_MAX, min_properties = 0;
  bool unique = false;
  std::string pattern;
  std::regex expression;
  std::vector<std::string> required;
  std::vector<std::pair<std::string, const Node*>> properties;
  const Node *rest = nullptr, *items = nullptr, *keys = nullptr, *no = nullptr;
  const Node *condition = nullptr, *then = nullptr, *otherwise = nullptr;
  std::vector<const Node*> all, any, one;
};

struct Fault {
  std::string what, pointer = {};    // pointer: "entries[3].candidate", empty for the document itself
  std::string word = {}, kind = {};  // an unknown one of `known`
  std::vector<std::string> known = {};
  size_t depth = 0;
};

class Schemas {
 public:
  const Node& file(const std::string& name) {
    const auto found = roots_.find(name);
    if (found != roots_.end()) return *found->second;
    const std::string path = fmt::format("{}{}", kFolder, name);
    const auto text = embedded_file(path);
    if (!text) throw std::logic_error(path + ": no such schema");
    return *(roots_[name] = &document(parse_json(*text, path), name));
  }

  const Node& document(const Json& schema, const std::string& file) {
    const Json& kept = documents_[file] = schema;
    if (kept.contains("$defs"))
      for (const auto& item : kept["$defs"].items()) resolve("#/$defs/" + item.key(), file);
    return compile(kept, file);
  }

 private:
  const Node* resolve(const std::string& reference, const std::string& file) {
    const size_t hash = reference.find('#');
    const std::string name = hash == 0 ? file : reference.substr(0, hash);
    if (name != file) this->file(name);
    const auto known = references_.find(name + reference.substr(hash));
    if (known != references_.end()) return known->second;
    const Json& schema = documents_.at(name).at(Json::json_pointer(reference.substr(hash + 1)));
    return references_[name + reference.substr(hash)] = &compile(schema, name);
  }

  std::vector<const Node*> list(const Json& schemas, const std::string& file) {
    return mapped(schemas, [&](const Json& schema) -> const Node* { return &compile(schema, file); });
  }

  const Node& compile(const Json& schema, const std::string& file) {
    Node& node = nodes_.emplace_back();
    if (schema.is_boolean()) return node.never = !schema.get<bool>(), node;
    for (const auto& item : schema.items()) add(node, item.key(), item.value(), file);
    return node;
  }

  void add(Node& node, const std::string& key, const Json& value, const std::string& file) {
    if (key == "$schema" || key == "title" || key == "description" || key == "$defs") return;
    const auto child = [&] { return &compile(value, file); };
    if (key == "type") {
      for (const Json& type : value.is_array() ? value : Json::array({value}))
        node.types |= 1U << (std::ranges::find(kTypes, type.get<std::string>()) - kTypes);
    } else if (key == "properties") {
      for (const auto& item : value.items()) node.properties.emplace_back(item.key(), &compile(item.value(), file));
    } else if (key == "pattern") {
      node.pattern = value.get<std::string>();
      node.expression = std::regex(node.pattern, std::regex::ECMAScript | std::regex::optimize);
    }  // clang-format off
    else if (key == "$ref") node.other = resolve(value.get<std::string>(), file);
    else if (key == "enum") node.words = value;
    else if (key == "const") node.constant = value;
    else if (key == "required") node.required = value.get<std::vector<std::string>>();
    else if (key == "minimum") node.minimum = value.get<double>();
    else if (key == "exclusiveMinimum") node.above = value.get<double>();
    else if (key == "maximum") node.maximum = value.get<double>();
    else if (key == "minLength") node.min_length = value.get<size_t>();
    else if (key == "minItems") node.min_items = value.get<size_t>();
    else if (key == "maxItems") node.max_items = value.get<size_t>();
    else if (key == "minProperties") node.min_properties = value.get<size_t>();
    else if (key == "uniqueItems") node.unique = value.get<bool>();
    else if (key == "additionalProperties") node.rest = child();
    else if (key == "items") node.items = child();
    else if (key == "propertyNames") node.keys = child();
    else if (key == "not") node.no = child();
    else if (key == "if") node.condition = child();
    else if (key == "then") node.then = child();
    else if (key == "else") node.otherwise = child();
    else if (key == "allOf") node.all = list(value, file);
    else if (key == "anyOf") node.any = list(value, file);
    else if (key == "oneOf") node.one = list(value, file);
    // clang-format on
    else
      throw std::logic_error(fmt::format("{}{}: the keyword '{}' is not evaluated", kFolder, file, key));
  }

  std::deque<Node> nodes_;
  std::map<std::string, Json> documents_;
  std::map<std::string, const Node*> roots_, references_;
};

// The bit of kTypes that suits a value best.
size_t type_of(const Json& value) {
  if (value.is_null()) return 0;
  if (value.is_boolean()) return 1;
  if (value.is_number()) return value.is_number_integer() ? 2 : 3;
  return value.is_string() ? 4 : value.is_array() ? 5 : 6;
}

bool has_type(unsigned types, const Json& value) {
  if ((types >> type_of(value) & 1) != 0) return true;
  if (!value.is_number()) return false;
  const double number = value.get<double>();  // 16.0 is an integer too
  return (types >> 3 & 1) != 0 || ((types >> 2 & 1) != 0 && std::trunc(number) == number);
}

// How much of what a form requires is there, from 0 to 1: which form a value was meant to have.
double likeness(const Node& node, const Json& value) {
  double best = node.other ? likeness(*node.other, value) : 0;
  for (const auto& forms : {node.any, node.one, node.all})
    for (const Node* form : forms) best = std::max(best, likeness(*form, value));
  if (node.required.empty() || !value.is_object()) return best;
  const auto there = std::ranges::count_if(node.required, [&](const auto& key) { return value.contains(key); });
  return std::max(best, static_cast<double>(there) / static_cast<double>(node.required.size()));
}

// Each function is true where the value is good; else `fault`, which may be null, says why. Recursion ends with the
// document, whose depth parse_json limits: no schema refers to itself without a step into the document.
bool holds(const Node& node, const Json& value, Fault* fault);

bool failed(Fault* fault, std::string what) {
  if (fault) *fault = {.what = std::move(what)};
  return false;
}

bool within(Fault* fault, const std::string& step) {
  if (!fault) return false;
  ++fault->depth;
  fault->pointer = pointer_to(step, fault->pointer);
  return false;
}

bool value_holds(const Node& node, const Json& value, Fault* fault) {
  if (node.never) return failed(fault, "must not be there");
  if (node.types != 0 && !has_type(node.types, value)) {
    std::vector<std::string_view> words;
    for (size_t i = 0; i < std::size(kTypes); ++i)
      if ((node.types >> i & 1) != 0) words.push_back(kTypeWords[i]);
    const bool fraction = value.is_number_float() && node.types == 1U << 2;
    return failed(fault, fmt::format("expected {}, found {}", fmt::join(words, " or "),
                                     fraction ? value.dump() : std::string(kind_of(value))));
  }
  if (!node.words.is_null() && !contains(node.words, value)) {
    if (!value.is_string())
      return failed(fault, fmt::format("expected one of {}, found {}", node.words.dump(), value.dump()));
    if (!fault) return false;
    failed(fault, "");
    fault->word = value.get<std::string>();
    for (const Json& word : node.words)
      fault->known.push_back(word.is_string() ? word.get<std::string>() : word.dump());
    return false;
  }
  if (!node.constant.is_null() && value != node.constant)
    return failed(fault, fmt::format("expected {}, found {}", node.constant.dump(), value.dump()));
  if (value.is_number()) {
    const double number = value.get<double>();
    if (node.minimum && number < *node.minimum)
      return failed(fault, fmt::format("must be at least {}, found {}", *node.minimum, value.dump()));
    if (node.above && number <= *node.above)
      return failed(fault, fmt::format("must be more than {}, found {}", *node.above, value.dump()));
    if (node.maximum && number > *node.maximum)
      return failed(fault, fmt::format("must be at most {}, found {}", *node.maximum, value.dump()));
  }
  if (!value.is_string()) return true;
  const std::string& text = value.get_ref<const std::string&>();
  if (text.size() < node.min_length) return failed(fault, "the text is empty");
  return node.pattern.empty() || std::regex_search(text, node.expression) ||
         failed(fault, fmt::format("'{}' does not match {}", text, node.pattern));
}

bool object_holds(const Node& node, const Json& value, Fault* fault) {
  for (const std::string& key : node.required)
    if (!value.contains(key)) return failed(fault, fmt::format("'{}' is missing", key));
  if (value.size() < node.min_properties) return failed(fault, "is empty");
  const size_t count = node.properties.size();
  size_t next = 0;  // files mostly have the order of their schema
  for (const auto& [key, member] : value.get_ref<const Json::object_t&>()) {
    if (node.keys && !holds(*node.keys, key, fault)) {
      if (fault) fault->kind = "key";
      return within(fault, key);
    }
    const Node* child = node.rest;
    for (size_t tried = 0; tried < count; ++tried, ++next) {
      if (next == count) next = 0;
      if (node.properties[next].first != key) continue;
      child = node.properties[next].second;
      break;
    }
    if (child && !holds(*child, member, fault)) return within(fault, key);
  }
  return true;
}

bool array_holds(const Node& node, const Json& value, Fault* fault) {
  if (value.size() < node.min_items)
    return failed(
        fault, value.empty() ? "is empty" : fmt::format("has {} elements, expected {}", value.size(), node.min_items));
  if (value.size() > node.max_items)
    return failed(fault, fmt::format("has {} elements, expected at most {}", value.size(), node.max_items));
  for (size_t i = 0; node.items && i < value.size(); ++i)
    if (!holds(*node.items, value[i], fault)) return within(fault, fmt::format("[{}]", i));
  for (size_t i = 0; node.unique && i < value.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (value[i] == value[j]) return failed(fault, fmt::format("has {} twice", value[i].dump()));
  return true;
}

// Of several forms the fault of the one that the value was meant to have, or of all that it is equally far from.
bool any_holds(const std::vector<const Node*>& forms, const Json& value, Fault* fault) {
  if (std::ranges::any_of(forms, [&](const Node* form) { return holds(*form, value, nullptr); })) return true;
  if (!fault) return false;
  std::pair<double, size_t> best = {-1, 0};
  for (const Node* form : forms) {
    Fault one;
    holds(*form, value, &one);
    const std::pair<double, size_t> score = {likeness(*form, value), one.depth};
    if (score > best)
      best = score, *fault = std::move(one);
    else if (score == best && one.pointer == fault->pointer && one.what != fault->what && one.word.empty())
      fault->what += ", or " + one.what;
  }
  return false;
}

bool one_holds(const std::vector<const Node*>& forms, const Json& value, Fault* fault) {
  std::vector<std::string> good;
  for (const Node* form : forms)
    if (holds(*form, value, nullptr)) good.push_back(form->required.empty() ? "another form" : form->required.front());
  if (good.size() == 1) return true;
  if (good.empty()) return any_holds(forms, value, fault);
  return failed(fault, fmt::format("may have only one of '{}'", fmt::join(good, "', '")));
}

bool holds(const Node& node, const Json& value, Fault* fault) {
  if (node.other && !holds(*node.other, value, fault)) return false;
  if (!value_holds(node, value, fault)) return false;
  if (value.is_object() && !object_holds(node, value, fault)) return false;
  if (value.is_array() && !array_holds(node, value, fault)) return false;
  for (const Node* part : node.all)
    if (!holds(*part, value, fault)) return false;
  if (!node.any.empty() && !any_holds(node.any, value, fault)) return false;
  if (!node.one.empty() && !one_holds(node.one, value, fault)) return false;
  if (node.no && holds(*node.no, value, nullptr))
    return failed(fault, node.no->required.empty() ? "has a form that is not allowed here"
                                                   : fmt::format("'{}' must not be there", node.no->required.front()));
  if (!node.condition) return true;
  const Node* rule = holds(*node.condition, value, nullptr) ? node.then : node.otherwise;
  return !rule || holds(*rule, value, fault);
}

void require(const Node& node, const JsonAt& file) {
  Fault fault;
  if (holds(node, file.value(), &fault)) return;
  Where place;
  place.pointer = fault.pointer;
  Error error = request_error(fault.what);
  if (!fault.known.empty()) {
    std::string kind = fault.pointer.substr(fault.pointer.rfind('.') + 1);
    kind = kind.substr(0, kind.find('['));
    if (!fault.kind.empty() || kind.empty()) kind = fault.kind.empty() ? "word" : fault.kind;
    error = unknown_word(kind, fault.word, fault.known);
  }
  throw error.at(place).at(file.place());
}

}  // namespace

void require_valid(const JsonAt& file, std::string_view kind) {
  // Commands read files from several threads: schemas are compiled for all before the first file is checked.
  static const std::map<std::string, const Node*, std::less<>> by_kind = [] {
    static Schemas schemas;
    std::map<std::string, const Node*, std::less<>> roots;
    for (const std::string& name : embedded_names(kFolder)) roots[name] = &schemas.file(name + ".json");
    return roots;
  }();
  const auto found = by_kind.find(kind);
  if (found == by_kind.end()) throw std::logic_error(fmt::format("{}{}.json: no such schema", kFolder, kind));
  require(*found->second, file);
}

void require_schema(const JsonAt& file, std::string_view kind, int version) {
  const std::string wanted = fmt::format("moetune.{}/{}", kind, version);
  if (!file.has("schema")) file.fail(fmt::format("expected a {} file, but \"schema\" is missing", kind));
  const std::string found = file["schema"].string();
  if (found != wanted) {
    const bool ours = found.starts_with(fmt::format("moetune.{}/", kind));
    const bool newer = ours && found.size() >= wanted.size() && found > wanted;
    file.fail(fmt::format("its schema is '{}', expected '{}'", found, wanted),
              newer  ? "a newer moetune wrote it: read it with that version"
              : ours ? "another version of moetune wrote it: make it again with this one"
                     : "moetune validate FILE says what a file is");
  }
  require_valid(file, kind);
}

void require_matches(const JsonAt& file, const Json& schema) {
  Schemas schemas;
  require(schemas.document(schema, "."), file);
}

}  // namespace moetune
