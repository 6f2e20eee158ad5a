// Messages to text and back. Numbers keep all their bits: nothing is rounded between two processes.
#include "backend/worker/protocol.h"

#include <new>

#include "base/error.h"

namespace moetune {

std::string to_line(const Json& message) { return message.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

bool take_line(std::string& buffer, std::string& line) {
  const size_t end = buffer.find('\n');
  if (end == std::string::npos) return false;
  line = buffer.substr(0, end);
  buffer.erase(0, end + 1);
  return true;
}

Json answer_of_current_exception() {
  const auto error = [](Exit exit, const char* what, const std::string& hint) -> Json {
    return {{"error", {{"exit", static_cast<int>(exit)}, {"what", what}, {"hint", hint}}}};
  };
  try {
    throw;
  } catch (const CandidateFault& fault) {
    return {{"fault", {{"status", name(fault.status)}, {"what", fault.what()}}}};
  } catch (const OutOfMemory& memory) {
    return {{"out_of_memory", {{"needed_bytes", memory.needed_bytes}, {"what", memory.what()}}}};
  } catch (const std::bad_alloc&) {
    return {{"out_of_memory", {{"needed_bytes", 0}, {"what", "this machine has no memory left"}}}};
  } catch (const Error& fault) {
    return error(fault.exit(), fault.what(), fault.hint());
  } catch (const std::exception& fault) {
    return error(Exit::bug, fault.what(), "");
  } catch (...) {
    return error(Exit::bug, "the worker threw something other than an exception", "");
  }
}

Json result_of(const Json& message) {
  const JsonAt answer(message, "the worker's answer");
  if (answer.has("fault")) {
    const JsonAt fault = answer["fault"];
    throw CandidateFault(parse_status(fault["status"].string()), fault["what"].string());
  }
  if (answer.has("out_of_memory")) {
    const JsonAt memory = answer["out_of_memory"];
    throw OutOfMemory(memory["what"].string(), memory["needed_bytes"].integer());
  }
  if (answer.has("error")) {
    const JsonAt error = answer["error"];
    throw Error(static_cast<Exit>(error["exit"].integer(0, 255)), error["what"].string(), error["hint"].string());
  }
  if (!message.is_object() || !message.contains("ok")) answer.fail("neither a result nor a fault");
  return message["ok"];
}

Json to_json(const BackendOptions& options) {
  Json json = {{"kernels_folder", options.kernels_folder},
               {"cache", options.cache},
               {"compile_threads", options.compile_threads}};
  if (!options.packs.empty()) json["packs"] = options.packs;
  return json;
}

BackendOptions backend_options_from_json(const JsonAt& json) {
  return {.kernels_folder = json["kernels_folder"].string(),
          .packs = json.has("packs") ? list_at(json["packs"], &JsonAt::string) : std::vector<std::string>(),
          .cache = json["cache"].boolean(),
          .compile_threads = static_cast<int>(json["compile_threads"].integer(0, 1 << 20))};
}

Json to_json(const SampleRequest& request) {
  return {{"blocks", request.blocks},
          {"block_seconds", request.block_seconds},
          {"hot", request.hot},
          {"regime", name(request.regime)}};
}

SampleRequest sample_request_from_json(const JsonAt& json) {
  return {.blocks = static_cast<int>(json["blocks"].integer(0, 1 << 30)),
          .block_seconds = json["block_seconds"].number(),
          .hot = json["hot"].boolean(),
          .regime = parse_regime(json["regime"].string())};
}

Json to_json(const std::vector<Block>& blocks) {
  return json_list(blocks, [](const Block& block) -> Json {
    return {{"seconds", block.seconds},
            {"launches", block.launches},
            {"clock_mhz", block.clock_mhz},
            {"waited", block.waited},
            {"metrics", metrics_json(block.metrics, [](double value) { return Json(value); })}};
  });
}

std::vector<Block> blocks_from_json(const JsonAt& json) {
  return list_at(json, [](const JsonAt& block) -> Block {
    return {.seconds = block["seconds"].number(),
            .launches = static_cast<int>(block["launches"].integer(0, 1 << 30)),
            .clock_mhz = block["clock_mhz"].number(),
            .waited = block["waited"].number(),
            .metrics = block.has("metrics") ? metrics_from_json(block["metrics"], &JsonAt::number) : Metrics<double>()};
  });
}

Json to_json(const std::vector<ListedDevice>& devices) {
  return json_list(devices, [](const ListedDevice& device) -> Json {
    return {{"word", device.word}, {"info", to_json(device.info)}};
  });
}

std::vector<ListedDevice> devices_from_json(const JsonAt& json) {
  return list_at(json, [](const JsonAt& device) -> ListedDevice {
    return {device["word"].string(), device_from_json(device["info"])};
  });
}

}  // namespace moetune
