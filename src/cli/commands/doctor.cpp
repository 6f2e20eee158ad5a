// `moetune doctor`: what is this machine, how noisy is it, what are its ceilings?
#include "cli/commands/command.h"

namespace moetune {
namespace {

constexpr double kNoisy = 0.02;      // half-width of a block time's interval, above which small gains are lost in noise
constexpr double kThrottled = 0.90;  // of the burst rate

struct DoctorOptions {
  DeviceOptions device;
  OutputFormat format = OutputFormat::text;
  bool quick = false;
};

struct Patient {
  std::string word;
  DeviceInfo info;
  Json environment;
  std::optional<Ceilings> ceilings;
};

// "auto" and "cuda" stand for one of the listed devices.
std::string listed_word(const DeviceInfo& info, const std::string& word, const std::vector<ListedDevice>& listed) {
  for (const ListedDevice& device : listed)
    if (device.info.kind == info.kind && device.info.id == info.id) return device.word;
  return word;
}

Patient examine(const DoctorOptions& options, const std::string& word, const std::vector<ListedDevice>& listed,
                const Invocation& invocation) {
  DeviceOptions device = options.device;
  device.device = word;
  const std::unique_ptr<Backend> backend = open_worker(device);
  Patient patient{listed_word(backend->device(), word, listed), backend->device(), backend->environment(), {}};
  if (options.quick) return patient;
  if (options.device.device != "all") require_effect(invocation.given, invocation.terminal, &patient.info);
  device.device = patient.word;
  const DeviceLock held = lock(*backend, device, invocation);
  print_to_stderr(fmt::format("measuring {} ({})\n", patient.word, patient.info.name));
  patient.ceilings = backend->ceilings();
  return patient;
}

std::vector<std::string> notes_on(const Patient& patient) {
  std::vector<std::string> notes;
  if (!patient.ceilings) return notes;
  const Ceilings& c = *patient.ceilings;
  if (c.noise > kNoisy)
    notes.push_back(fmt::format("{}: times scatter by ±{:.1f} %: stop other programs, or give tune and check more time",
                                patient.word, 100 * c.noise));
  if (c.dense_sustained > 0 && c.dense_sustained < kThrottled * c.dense_burst)
    notes.push_back(
        fmt::format("{}: under sustained load its rate is {:.0f} % of the burst rate (a power or heat limit): tables "
                    "hold times near the burst rate, unless tuned with --regime sustained",
                    patient.word, 100 * c.dense_sustained / c.dense_burst));
  return notes;
}

// Why no GPU is here, and what is missing to compile for one elsewhere.
std::vector<std::string> missing_for_gpus(DeviceOptions device) {
  std::vector<std::string> sentences;
  for (const char* word : {"cuda", "h200"}) try {
      device.device = word;
      open_worker(device)->environment();
    } catch (const Error& error) {
      sentences.push_back(fmt::format("{}: {}", error.what(), error.hint()));
    }
  return sentences;
}

Json to_json(const Patient& patient) {
  Json json = {{"word", patient.word}, {"device", to_json(patient.info)}, {"environment", patient.environment}};
  if (patient.ceilings) json["ceilings"] = to_json(*patient.ceilings);
  return json;
}

void add_environment(Grid& grid, const Json& environment) {
  for (const auto& [key, value] : environment.items())
    if (value.is_object())
      add_environment(grid, value);
    else
      grid.rows.push_back({key, value.is_string() ? value.get<std::string>() : value.dump()});
}

std::string text_of(const Patient& patient, OutputFormat format) {
  Grid grid{{{patient.word}, {patient.info.name}}, {}};
  const auto add = [&](const std::string& what, const std::string& value) { grid.rows.push_back({what, value}); };
  const DeviceInfo& info = patient.info;
  const bool gpu = info.kind == DeviceKind::cuda;
  add("id", info.id);
  if (gpu) add("compute capability", fmt::format("{}.{}", info.compute_capability / 10, info.compute_capability % 10));
  add(gpu ? "SMs" : "threads", fmt::format("{}", info.processors));
  add(gpu ? "L2" : "last-level cache", format_bytes(static_cast<double>(info.cache_bytes)));
  add("memory", format_bytes(static_cast<double>(info.memory_bytes)));
  add_environment(grid, patient.environment);
  if (patient.ceilings) {
    const Ceilings& c = *patient.ceilings;
    if (gpu) add("read bandwidth", rate_text(c.read_bandwidth, "B"));
    add(gpu ? "dense bf16, burst" : "dense fp32", rate_text(c.dense_burst, "FLOP"));
    if (gpu) add("dense bf16, sustained", rate_text(c.dense_sustained, "FLOP"));
    add("noise of a block", fmt::format("± {:.2f} %", 100 * c.noise));
  }
  return grid_text(grid, {.format = format});
}

Exit run_doctor(const DoctorOptions& options, const Invocation& invocation) {
  const std::vector<ListedDevice> listed = list_devices_in_worker(worker_options(options.device));
  Json devices = Json::array();
  std::string report;
  std::vector<std::string> notes;
  const bool all = options.device.device == "all";
  for (const std::string& word : all ? mapped(listed, &ListedDevice::word) : std::vector{options.device.device}) {
    const Patient patient = examine(options, word, listed, invocation);
    for (const std::string& sentence : notes_on(patient)) notes.push_back(sentence);
    report += (report.empty() ? "" : "\n") + text_of(patient, options.format);
    devices.push_back(to_json(patient));
  }
  const bool ready = notes.empty();
  if (options.device.device == "auto" && devices[0]["word"] == "cpu")
    for (const std::string& sentence : missing_for_gpus(options.device)) notes.push_back(sentence);
  for (const std::string& sentence : notes)
    report += "\n" + paragraph(fmt::format("Note: {}.", sentence), style_of(options.format, invocation.terminal));
  print_document(options.format,
                 document("doctor", invocation.argv, {{"devices", std::move(devices)}, {"notes", notes}}), report,
                 ready ? "This machine is ready for tuning. Next: moetune tune --help" : "");
  return Exit::yes;
}

void declare_doctor(OptionSet& set, DoctorOptions& options) {
  declare(set, options.device);
  set.flag("--quick", options.quick, "Describe the machine without measuring it");
  declare_format(set, options.format);
}

}  // namespace

Command doctor_command() {
  return {.name = "doctor",
          .summary = "Describe this machine: devices, noise, measured ceilings",
          .examples =
              "  moetune doctor\n"
              "  moetune doctor --device cpu --format json\n"
              "  moetune doctor --device all --quick",
          .declare = with_options<DoctorOptions, declare_doctor, run_doctor>};
}

}  // namespace moetune
