// Presets, models found by name, and their layers. Hugging Face configs are read in hf_config.cpp.
#include "workload/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/embedded.h"
#include "base/error.h"
#include "base/system/file.h"
#include "workload/model/fields.h"

namespace moetune {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kFolder = "configs/models/";

std::vector<Model> read_presets() {
  std::vector<Model> models;
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.path.starts_with(kFolder)) continue;
    const std::string path(file.path);
    const Json json = parse_json(file.text, path);
    models.push_back(model_from_json(JsonAt(json, path)));
  }
  std::ranges::sort(models, [](const Model& a, const Model& b) { return a.name < b.name; });
  return models;
}

// "Qwen3-30B-A3B/config.json" is qwen3-30b-a3b, "mixtral.json" mixtral; in a download cache
// "models--Qwen--Qwen3-30B-A3B/snapshots/<hash>/config.json" the first folder names the model.
std::string name_of_config(const fs::path& path) {
  std::error_code ignored;
  const fs::path whole = fs::absolute(path, ignored).lexically_normal();
  if (whole.stem() != "config" && whole.stem() != "params") return lower(whole.stem().string());
  for (const fs::path& part : whole)
    if (const std::string word = part.string(); word.starts_with("models--"))
      return lower(word.substr(word.rfind("--") + 2));
  const std::string folder = lower(whole.parent_path().filename().string());
  return folder.empty() ? "config" : folder;
}

const Model* find_preset(const std::string& wanted) {
  for (const Model& model : model_presets())
    if (model.name == wanted || contains(model.aliases, wanted)) return &model;
  return nullptr;
}

std::vector<Model> read_config(const fs::path& path, const Model& given) {
  const Json json = read_json(path, Dialect::python);
  const JsonAt root(json, path.string());
  if (json.contains("schema")) return {model_from_json(root)};
  const fs::path beside = path.parent_path() / "hf_quant_config.json";  // of ModelOpt
  const Json format = is_there(beside) ? read_json(beside, Dialect::python) : Json();
  const JsonAt format_at(format, beside.string());
  return models_from_hf_config(root, name_of_config(path), given, format.is_null() ? nullptr : &format_at);
}

// "owner/name", as the Hugging Face hub calls a model.
bool is_hub_name(const std::string& name) {
  const size_t slash = name.find('/');
  return slash != std::string::npos && slash > 0 && slash + 1 < name.size() && slash == name.rfind('/') &&
         name[0] != '.' && name[0] != '~';
}

// The preset of its name, or an error that says how to get its config.json.
const Model* find_hub_preset(const std::string& hub_name) {
  const std::string name = lower(hub_name.substr(hub_name.find('/') + 1));
  if (const Model* preset = find_preset(name)) return preset;
  const Model* nearest = nullptr;
  for (const Model& model : model_presets())
    if (name.starts_with(model.name + "-") && (!nearest || model.name.size() > nearest->name.size())) nearest = &model;
  const std::string download =
      fmt::format("download its config.json (hf download {} config.json) and give the file to --model", hub_name);
  throw request_error(
      fmt::format("there is no file {}, and moetune downloads nothing from the Hugging Face hub", hub_name),
      nearest ? fmt::format("--model {} has the sizes of that model; for the checkpoint's format add --dtype, or {}",
                            nearest->name, download)
              : download);
}

}  // namespace

Model model_from_json(const JsonAt& json) {
  require_schema(json, "model");
  Model model;
  model.name = json["name"].string();
  model.architecture = json["architecture"].string();
  if (json.has("aliases")) model.aliases = list_at(json["aliases"], &JsonAt::string);
  model.experts = json["experts"].integer(1, kMaxExperts);
  model.top_k = json["top_k"].integer(1, model.experts);
  model.hidden = json["hidden"].integer(1);
  model.intermediate = json["intermediate"].integer(1);
  model.gated = json["gated"].boolean();
  if (json.has("activation")) model.activation = json["activation"].string();
  if (json.has("format")) set_format(model, json["format"].string());
  return model;
}

const std::vector<Model>& model_presets() {
  static const std::vector<Model> models = read_presets();
  return models;
}

void set_format(Model& model, const std::string& word) {
  model.format = {}, model.other_format = {};
  const auto row = std::ranges::find(formats(), word, &Format::word);
  if (row == formats().end())
    model.other_format = word;
  else if (word != "bf16")
    model.format = *row;
}

std::vector<Model> find_models(const std::string& name, const Model& given) {
  if (const size_t mark = name.rfind('#'); mark != std::string::npos && model_file(name).empty()) {
    const std::vector<Model> models = find_models(name.substr(0, mark), given);
    const std::string number = name.substr(mark + 1);
    for (size_t i = 0; i < models.size(); ++i)
      if (number == std::to_string(i + 1)) return {models[i]};
    throw request_error(fmt::format("{}: there is no kind '{}' of expert layers", name, number),
                        fmt::format("the kinds are numbered 1 to {}", models.size()));
  }
  const std::string wanted = lower(name);
  const fs::path file = model_file(name);
  if (file.filename() == "config.json" && is_folder(name) && !is_there(file))
    throw request_error(fmt::format("{}: the folder has no config.json", name));
  const Model* preset = file.empty() && is_hub_name(name) ? find_hub_preset(name) : find_preset(wanted);
  if (preset || !file.empty()) {
    std::vector<Model> models = preset ? std::vector<Model>{*preset} : read_config(file, given);
    for (int64_t Model::*const size : {&Model::experts, &Model::top_k, &Model::hidden, &Model::intermediate})
      for (Model& model : models)
        if (given.*size > 0) model.*size = given.*size;
    return models;
  }
  std::vector<std::string> words;
  for (const Model& model : model_presets()) {
    words.push_back(model.name);
    words.insert(words.end(), model.aliases.begin(), model.aliases.end());
  }
  throw unknown_word("model", wanted, words);
}

fs::path model_file(const std::string& name) {
  const std::string wanted = lower(name);
  if (find_preset(wanted)) return {};
  if (is_folder(name)) return fs::path(name) / "config.json";
  return wanted.ends_with(".json") || is_there(name) ? fs::path(name) : fs::path();
}

Layer make_layer(const Model& model, Projection projection, const Format& format, int64_t tp, int64_t ep) {
  if (tp < 1 || model.intermediate % tp != 0)
    throw request_error(
        fmt::format("tp {} does not divide the intermediate size {} of {}", tp, model.intermediate, model.name));
  if (ep < 1 || model.experts % ep != 0)
    throw request_error(fmt::format("ep {} does not divide the {} experts of {}", ep, model.experts, model.name));
  const int64_t width = model.intermediate / tp;
  const bool up = projection == Projection::up;
  return {.model = model.name,
          .projection = projection,
          .experts = model.experts,
          .top_k = model.top_k,
          .n = up ? (model.gated ? 2 * width : width) : model.hidden,
          .k = up ? model.hidden : width,
          .format = format,
          .tp = tp,
          .ep = ep,
          .zero_experts = model.zero_experts,
          .gate = {model.gated}};
}

}  // namespace moetune
