// Which options have an effect on which requests: one list for all commands.
#pragma once
#include <map>
#include <string>

#include "cli/text/console.h"
#include "variant/device.h"

namespace moetune {

/// The options of a command line by their long names, each with its first value.
struct Given {
  std::string command = {};
  std::map<std::string, std::string> options = {};
};

/// Warns of each option that has no effect beside the others, or, with a device, on that device. Throws Exit::request
/// where a file or the cells that the option asks for would be missing.
void require_effect(const Given& given, const Terminal& terminal, const DeviceInfo* device = nullptr);

}  // namespace moetune
