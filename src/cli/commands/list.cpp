// `moetune list`: the words that moetune knows.
#include "base/embedded.h"
#include "cli/commands/command.h"
#include "cli/files/file_kinds.h"
#include "export/serving/served_plan.h"
#include "tune/search/strategy.h"
#include "variant/space/space.h"
#include "workload/model.h"
#include "workload/routing/trace.h"

namespace moetune {
namespace {

// Folders of files inside the binary.
constexpr const char *kModels = "configs/models/", *kRoutings = "configs/routings/", *kSpaces = "configs/spaces/",
                     *kSuites = "configs/suites/", *kSchemas = "configs/schema/", *kServed = "configs/tuned/served/";

struct ListOptions {
  std::string what, show, recording, variant;
  std::vector<std::string> packs;
  OutputFormat format = OutputFormat::text;
};

// Each lister makes JSON objects that begin with a name; grids come from the same objects.

Json list_variants(const Catalog& catalog) {
  return json_list(catalog.variants(), [](const VariantPtr& variant) -> Json {
    return {{"name", variant->name},
            {"device", variant->device == DeviceKind::cuda ? "cuda" : "cpu"},
            {"knobs", json_list(variant->knobs, [](const Knob& knob) { return knob.name; })},
            {"summary", variant->summary}};
  });
}

// A knob that several variants have with the same words and help is listed once.
Json list_knobs(const Catalog& catalog) {
  Json items = Json::array();
  for (const VariantPtr& variant : catalog.variants())
    for (const Knob& knob : variant->knobs) {
      const auto same = std::ranges::find_if(items, [&](const Json& item) {
        return item["name"] == knob.name && item["words"] == knob.words && item["help"] == knob.help;
      });
      if (same != items.end())
        (*same)["variants"].push_back(variant->name);
      else
        items.push_back({{"name", knob.name},
                         {"variants", Json::array({variant->name})},
                         {"words", knob.words},
                         {"help", knob.help}});
    }
  return items;
}

Json list_models(const Catalog&) {
  return json_list(model_presets(), [](const Model& model) -> Json {
    return {{"name", model.name},
            {"experts", model.experts},
            {"top_k", model.top_k},
            {"hidden", model.hidden},
            {"intermediate", model.intermediate},
            {"gated", model.gated},
            {"aliases", model.aliases},
            {"activation", model.activation},
            {"format", model.format                 ? model.format->word
                       : model.other_format.empty() ? "bf16"
                                                    : model.other_format}};
  });
}

Json list_routings(const Catalog&) {
  Json items = json_list(routing_kinds(), [](const RoutingKind& kind) -> Json {
    return {{"name", kind.name}, {"usage", kind.usage}, {"description", kind.description}};
  });
  for (const std::string& name : embedded_names(kRoutings))
    items.push_back(
        {{"name", "trace:" + name}, {"usage", "trace:" + name + "[#LAYER]"}, {"description", "a built-in recording"}});
  return items;
}

Json list_spaces(const Catalog& catalog) {
  return json_list(embedded_names(kSpaces), [&](const std::string& name) {
    Json item = {{"name", name}};
    for (const VariantSpace& part : load_space(name, catalog).variants) {
      int64_t product = 1;
      for (const auto& [knob, values] : part.values) product *= static_cast<int64_t>(values.size());
      item[part.variant->name] = product;
    }
    return item;
  });
}

Json list_suites(const Catalog&) {
  return json_list(embedded_names(kSuites), [](const std::string& name) -> Json {
    const CellOptions options{.suite = name, .parts = read_suite(name)};
    return {{"name", name}, {"cells", make_cells(options).size()}, {"description", suite_description(name)}};
  });
}

Json list_formats(const Catalog&) {
  return json_list(export_formats(), [](const auto& format) -> Json {
    return {{"name", format.first}, {"description", format.second}};
  });
}

Json list_served(const Catalog&) {
  return json_list(ready_files(), [](const ReadyFile& file) -> Json {
    return {{"name", std::filesystem::path(file.name()).stem().string()},
            {"server", file.server->word},
            {"file", file.path}};
  });
}

Json list_devices_here(const Catalog&) {
  return json_list(list_devices_in_worker(worker_options({})), [](const ListedDevice& device) -> Json {
    return {{"name", device.word},
            {"device", device.info.name},
            {"compute_capability", device.info.compute_capability},
            {"processors", device.info.processors},
            {"memory", format_bytes(static_cast<double>(device.info.memory_bytes))},
            {"memory_bytes", device.info.memory_bytes},
            {"id", device.info.id}};
  });
}

Json list_strategies(const Catalog&) {
  return json_list(strategies(), [](const StrategyText& strategy) -> Json {
    return {{"name", strategy.name}, {"description", strategy.description}};
  });
}

Json list_schemas(const Catalog&) {
  return json_list(file_kinds(), [](const FileKind& kind) -> Json {
    return {{"name", kind.name},
            {"version", kind.version},
            {"written_by", kind.written_by},
            {"holds", kind.holds},
            {"file", fmt::format("configs/schema/{}.json", kind.name)}};
  });
}

struct Lister {
  std::string what;
  Json (*list)(const Catalog& catalog);
  std::string folder = {};  // of the files inside the binary that --show prints
};
const std::vector<Lister>& listers() {
  static const std::vector<Lister> all = {{"variants", list_variants},      {"knobs", list_knobs},
                                          {"models", list_models, kModels}, {"routings", list_routings, kRoutings},
                                          {"spaces", list_spaces, kSpaces}, {"suites", list_suites, kSuites},
                                          {"formats", list_formats},        {"devices", list_devices_here},
                                          {"strategies", list_strategies},  {"schemas", list_schemas, kSchemas},
                                          {"served", list_served, kServed}};
  return all;
}

std::vector<std::string> list_topics() { return mapped(listers(), &Lister::what); }

std::vector<std::string> shown_names() {
  std::vector<std::string> names;
  for (const Lister& lister : listers())
    if (!lister.folder.empty()) std::ranges::copy(embedded_names(lister.folder), std::back_inserter(names));
  return names;
}

// A layer of a recording an item: its tokens, and the figures of its rows.
Json describe_recording(const std::string& file) {
  Trace trace;
  with_open_top_k([&](int64_t top_k) { trace = read_trace(file, 0, top_k); });
  return json_list(trace.layers, [&](const TraceLayer& layer) {
    Json item = {{"name", layer.name}, {"experts", trace.experts}, {"top_k", trace.top_k}, {"tokens", layer.tokens}};
    item.update(to_json(figures({.tokens = layer.tokens, .top_k = trace.top_k, .m_sizes = layer.m_sizes})));
    return item;
  });
}

// A file as it lies in configs.
void show(const Lister& lister, const std::string& name) {
  if (lister.folder.empty()) {
    const auto shown = filtered(listers(), [](const Lister& one) { return !one.folder.empty(); });
    throw request_error(fmt::format("--show: {} are not kept in files", lister.what),
                        fmt::format("it prints one of the {}", fmt::join(mapped(shown, &Lister::what), ", ")));
  }
  for (const EmbeddedFile& file : embedded_files())
    if (file.path.starts_with(lister.folder) && file.path.ends_with(fmt::format("/{}.json", name)))
      return print(file.text);
  throw unknown_word("name", name, embedded_names(lister.folder));
}

std::string cell_text(const Json& value);
std::string words_text(const Json& list, std::string_view between) {
  std::string words;
  for (const Json& word : list) words.append(words.empty() ? "" : between).append(cell_text(word));
  return words;
}

std::string cell_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  return value.is_array() ? words_text(value, " ") : value.dump();
}

// For text of 80 columns: aliases beside their name, "glm-5 (glm-5.1, glm-5.2)"; a knob's words behind its help; of a
// name and its usage the latter; no files, which have the name of their schema; of a recording what differs by layer.
void narrow(Json& items) {
  for (Json& item : items) {
    const std::string aliases = item.contains("aliases") ? words_text(item["aliases"], ", ") : "";
    const std::string words = item.contains("words") ? words_text(item["words"], ", ") : "";
    if (!aliases.empty()) item["name"] = fmt::format("{} ({})", item["name"].get<std::string>(), aliases);
    if (!words.empty()) item["help"] = fmt::format("{} ({})", item["help"].get<std::string>(), words);
    if (item.contains("usage")) item["name"] = item["usage"];
    for (const char* moved : {"aliases", "words", "usage", "file", "activation", "format"}) item.erase(moved);
    if (item.contains("max_over_mean"))
      for (const char* known : {"experts", "top_k", "cv", "max_rows"}) item.erase(known);
  }
}

// People read sizes with their unit, programs numbers.
Grid grid_of(const Json& items) {
  Grid grid;
  for (const Json& item : items)
    for (const auto& field : item.items()) {
      if (field.key().ends_with("_bytes")) continue;
      const auto known = [&](const Column& column) { return column.title == field.key(); };
      if (std::ranges::none_of(grid.columns, known)) grid.columns.push_back({field.key(), field.value().is_number()});
    }
  for (const Json& item : items)
    grid.rows.push_back(mapped(grid.columns, [&](const Column& column) {
      return item.contains(column.title) ? cell_text(item[column.title]) : "";
    }));
  return grid;
}

Exit run_list(const ListOptions& options, const Invocation& invocation) {
  const Lister& lister = listers()[place_of_word("list", options.what, list_topics())];
  if (!options.show.empty()) return show(lister, options.show), Exit::yes;
  if (!options.recording.empty() && lister.what != "routings")
    throw request_error("--recording is for the list of routings", "moetune list routings --recording FILE");
  if (!options.variant.empty() && lister.what != "knobs")
    throw request_error("--variant is for the list of knobs", "moetune list knobs --variant mma");
  Json items = options.recording.empty() ? lister.list(Catalog(options.packs)) : describe_recording(options.recording);
  if (!options.variant.empty()) {
    const std::string name = Catalog(options.packs).find(options.variant)->name;
    Json own = Json::array();
    for (const Json& item : items)
      if (contains(item["variants"], Json(name))) own.push_back(item);
    items = own;
  }
  if (options.format == OutputFormat::text) narrow(items);
  print_document(options.format, document("list", invocation.argv, {{"what", options.what}, {"items", items}}),
                 grid_text(grid_of(items), style_of(options.format, invocation.terminal)));
  return Exit::yes;
}

void declare_list(OptionSet& set, ListOptions& options) {
  set.argument("WHAT", options.what, fmt::format("{}", fmt::join(list_topics(), ", ")), list_topics);
  set.value("--show", options.show, "NAME", "Print a file: of models, routings, spaces, suites or schemas",
            shown_names);
  set.value("--recording", options.recording, "NAME|FILE",
            "Describe a recorded routing: tokens, rows, active experts and skew of each layer");
  set.value("--variant", options.variant, "NAME", "Of the knobs, those that this variant has");
  declare_packs(set, options.packs);
  declare_format(set, options.format);
}

}  // namespace

Command list_command() {
  return {.name = "list",
          .summary = "List models, knobs, routings, devices, schemas, ...",
          .examples =
              "  moetune list models\n"
              "  moetune list knobs --variant mma\n"
              "  moetune list routings --recording loads.json\n"
              "  moetune list schemas --show table\n"
              "  moetune list devices --format json",
          .declare = with_options<ListOptions, declare_list, run_list>};
}

}  // namespace moetune
