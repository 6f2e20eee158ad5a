// Text and JSON of what crosses the process border.
#include "backend/backend.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "variant/catalog.h"

namespace moetune {

double seconds_at_most(const SampleRequest& request) {
  const double blocks = 2 * request.blocks * request.block_seconds;  // warming included
  if (request.regime == Regime::burst) return blocks;
  return kMaxLoadSeconds + std::max(blocks, 2 * request.blocks * kSustainedBlockSeconds);
}

void require_regime(Regime regime, const DeviceInfo& device) {
  if (regime == Regime::burst || device.kind == DeviceKind::cuda) return;
  throw request_error(
      fmt::format("--regime {}: {} is a cpu, which is timed in the regime burst only", name(regime), device.name),
      "leave --regime out, or name a GPU with --device");
}

std::string text(const Contender& contender) {
  if (!contender.baseline.empty()) return contender.baseline;
  if (!contender.down.variant) return text(contender.candidate);
  return fmt::format("{}then {}", contender.candidate.variant ? text(contender.candidate) + ", " : "",
                     text(contender.down));
}

Json to_json(const Contender& contender) {
  if (!contender.baseline.empty()) return {{"baseline", contender.baseline}};
  Json json = Json::object();
  if (contender.candidate.variant) json["candidate"] = to_json(contender.candidate);
  if (contender.down.variant) json["down"] = to_json(contender.down);
  return json;
}

Contender contender_from_json(const JsonAt& json, const Catalog& catalog) {
  if (json.has("baseline")) return {.baseline = json["baseline"].string()};
  Contender contender;
  if (json.has("down")) contender.down = candidate_from_json(json["down"], catalog);
  if (json.has("candidate") || !contender.down.variant)
    contender.candidate = candidate_from_json(json["candidate"], catalog);
  return contender;
}

void Backend::load_layer(const Problem&, const Problem&) { throw Error(Exit::bug, "this backend runs no layers"); }

Json environment_with_packs(Backend& backend, const Catalog& catalog) {
  Json environment = backend.environment();
  const std::string packs = catalog.pack_names();
  if (backend.device().kind == DeviceKind::cuda && !packs.empty()) environment["identity"]["packs"] = packs;
  return environment;
}

Json to_json(const Ceilings& c) {
  Json json = {{"dense_burst_tflops", rounded(c.dense_burst * 1e-12, 4)}, {"noise", rounded(c.noise, 3)}};
  if (c.read_bandwidth > 0) json["read_tbps"] = rounded(c.read_bandwidth * 1e-12, 4);
  if (c.dense_sustained > 0) json["dense_sustained_tflops"] = rounded(c.dense_sustained * 1e-12, 4);
  return json;
}

Ceilings ceilings_from_json(const JsonAt& json) {
  const auto rate = [&](const char* key) { return json.has(key) ? json[key].number() * 1e12 : 0; };
  return {.read_bandwidth = rate("read_tbps"),
          .dense_burst = rate("dense_burst_tflops"),
          .dense_sustained = rate("dense_sustained_tflops"),
          .noise = json["noise"].number()};
}

std::vector<std::string> Backend::baselines(const Layer& layer) const {
  std::vector<std::string> all = baselines();
  if (!is_quantised(layer.format)) std::erase_if(all, [](const std::string& name) { return name.ends_with("-bf16"); });
  return all;
}

}  // namespace moetune
