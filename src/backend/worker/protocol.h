// The messages between parent and worker: JSON, one line each. A request is {"id", "call", ...}; its answer has the
// same id and one of "ok" (the result), "fault" (of the candidate), "out_of_memory" or "error" (of request or machine).
#pragma once
#include <string>
#include <vector>

#include "backend/backend.h"

namespace moetune {

/// The version of the messages, which a worker names in its greeting; one that names none has version 1. It grows where
/// an older program would misread a message.
constexpr int kProtocol = 1;

/// One line, newline included. Bytes that are not UTF-8 are replaced; it doesn't throw.
std::string to_line(const Json& message);

/// Takes the first whole line off `buffer` (without its newline); false where there is none yet.
bool take_line(std::string& buffer, std::string& line);

/// The answer to what is being thrown: call it inside a catch block.
Json answer_of_current_exception();

/// The "ok" of an answer; throws what it says otherwise.
Json result_of(const Json& answer);

Json to_json(const BackendOptions& options);
BackendOptions backend_options_from_json(const JsonAt& json);
Json to_json(const SampleRequest& request);
SampleRequest sample_request_from_json(const JsonAt& json);
Json to_json(const std::vector<Block>& blocks);
std::vector<Block> blocks_from_json(const JsonAt& json);
Json to_json(const std::vector<ListedDevice>& devices);
std::vector<ListedDevice> devices_from_json(const JsonAt& json);

}  // namespace moetune
