// Which options have an effect on which requests: the list, and what is said about it.
#include <fmt/format.h>

#include "base/error.h"
#include "base/text/units.h"
#include "cli/options/options.h"
#include "export/serving/server.h"

namespace moetune {
namespace {

// When these options of a command have no effect: with another option, without it (or without one of its values), on a
// cpu, or always.
enum class When { with, without, on_cpu, always };
struct NoEffect {
  std::string_view command, options;  // empty: any command
  When when;
  std::string_view other = {}, values = {};
  bool refused = false;
};
constexpr std::string_view kServers = "servers";  // in place of values: the words of all servers
constexpr NoEffect kRules[] = {
    {"compile", "--output", When::with, "--show-unit", {}, true},
    {"compile", "--format,--kernels,--no-cache", When::with, "--show-unit"},
    {"list", "--format,--pack,--recording,--variant", When::with, "--show"},
    {"doctor", "--kernels,--no-cache", When::with, "--quick"},
    {"doctor", "--pack", When::always},
    {"check", "--commit", When::without, "--history"},
    {"check", "--pack,--update", When::with, "--peers", {}, true},
    {"check", "--rounds,--patience,--wait,--regime,--time-budget,--device", When::with, "--peers"},
    {"export", "--arch,--no-cache", When::without, "--format", "kernels", true},
    {"export", "--journal,--base,--unproven", When::without, "--format", kServers, true},
    {"export", "--triton", When::without, "--format", "sglang", true},
    {"check", "--reason", When::without, "--update", {}, true},
    {"tune", "--kernel-file,--base,--shared-experts", When::without, "--for", {}, true},
    {"tune",
     "--op,--projection,--permute-x,--permute-y,--by-slot,--topk-weights,--suite,--variant,--pack,--choose,"
     "--bucket-loss,--shard,--append,--fast-sums,--gated,--interleaved,--store-h,--bias,--accumulate,--fp32-dw,"
     "--sum-slots,--weight-gradient",
     When::with,
     "--for",
     {},
     true},
    {"tune", "--at-once", When::on_cpu},
    {"", "--pack,--kernels,--no-cache", When::on_cpu},
};

// "with --show-unit", "without --format vllm or sglang", "on a cpu"; empty where the options have an effect.
std::string obstacle(const NoEffect& rule, const Given& given, const DeviceInfo* device) {
  if (rule.when == When::on_cpu) return device && device->kind == DeviceKind::cpu ? "on a cpu" : "";
  if (device) return "";
  if (rule.when == When::always) return fmt::format("on {}", rule.command);
  const auto other = given.options.find(std::string(rule.other));
  const std::vector<std::string> values = rule.values == kServers ? server_words() : split(rule.values, ',');
  const bool there = other != given.options.end() && (rule.values.empty() || contains(values, other->second));
  if (there != (rule.when == When::with)) return "";
  return fmt::format("{} {}{}{}", there ? "with" : "without", rule.other, rule.values.empty() ? "" : " ",
                     fmt::join(values, " or "));
}

}  // namespace

void require_effect(const Given& given, const Terminal& terminal, const DeviceInfo* device) {
  for (const NoEffect& rule : kRules) {
    if (!rule.command.empty() && rule.command != given.command) continue;
    const std::string why = obstacle(rule, given, device);
    for (const std::string& option : split(rule.options, ',')) {
      if (why.empty() || !given.options.contains(option)) continue;
      const std::string sentence = fmt::format("{} has no effect {}", option, why);
      if (rule.refused) throw request_error(sentence, fmt::format("leave {} out", option));
      warn(terminal, sentence);
    }
  }
}

}  // namespace moetune
