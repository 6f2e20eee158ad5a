// Names from the rooms below and from the files inside the binary.
#include <algorithm>

#include "base/embedded.h"
#include "cli/options/options.h"
#include "export/exporter.h"
#include "variant/catalog.h"
#include "workload/model.h"
#include "workload/routing/routing.h"

namespace moetune {

std::vector<std::string> arch_names(const std::vector<std::string>& given, const std::vector<std::string>& otherwise) {
  std::vector<std::string> names;
  for (const std::string& word : list_words(given, "--arch", otherwise))
    if (const std::string name = arch(device_of_arch(word)); std::ranges::find(names, name) == names.end())
      names.push_back(name);
  return names;
}

std::vector<std::string> device_words() {
  std::vector<std::string> words = {"auto", "cpu", "cuda", "cuda:0", "cuda:all"};
  for (std::string& word : gpu_words()) words.push_back(std::move(word));
  return words;
}

std::vector<std::string> format_words() { return mapped<std::string>(exporters(), &Exporter::format); }

std::vector<std::string> model_words() { return mapped(model_presets(), &Model::name); }

std::vector<std::string> routing_words() {
  std::vector<std::string> words;
  for (const RoutingKind& kind : routing_kinds())
    if (kind.name != "trace") words.push_back(kind.name);
  for (const std::string& name : embedded_names("configs/routings/")) words.push_back("trace:" + name);
  return words;
}

std::vector<std::string> space_words() { return embedded_names("configs/spaces/"); }

std::vector<std::string> suite_words() { return embedded_names("configs/suites/"); }

std::vector<std::string> variant_words() {
  const Catalog catalog;
  return mapped(catalog.variants(), [](const VariantPtr& variant) { return variant->name; });
}

}  // namespace moetune
