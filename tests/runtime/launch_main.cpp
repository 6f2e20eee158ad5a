// What a caller of include/moetune/kernels.h does: picks a kernel of a folder, makes a workspace, launches it twice on
// addresses that stand for operands, and routes. Prints the kernel's name, or the error.
//   launch_main FOLDER op=fwd experts=8 top_k=2 n=64 k=64 tokens=16 [fusion=..] [dtype=..] [skew=..] [rows=..]
//               [room=TOKENS] [bytes=NAME:BYTES] [shift=NAME:BYTES] [other_gpu=1] [route=0]
// With picks=MOST it prints instead which cell answers for each number of tokens up to MOST.
#include <cstdio>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moetune/kernels.h"

using namespace moetune_kernels;

int main(int argc, char** argv) try {
  std::map<std::string, std::string> given;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    given[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  }
  const auto number = [&](const char* name, long otherwise) {
    return given.count(name) ? std::stol(given[name]) : otherwise;
  };
  Library library(argv[1], number("other_gpu", 0) == 1);
  Request request;
  if (given.count("op")) request.op = given["op"];
  if (given.count("dtype")) request.dtype = given["dtype"];
  if (given.count("fusion")) request.fusion = given["fusion"];
  request.experts = number("experts", 0), request.top_k = number("top_k", 0);
  request.n = number("n", 0), request.k = number("k", 0), request.tokens = number("tokens", 0);
  if (given.count("skew")) request.skew = std::stod(given["skew"]);
  const auto picked = [&](const Kernel& kernel) {
    return kernel.cell().has("id") ? kernel.cell()["id"].string() : "range";
  };
  if (given.count("picks")) {
    for (request.tokens = 1; request.tokens <= number("picks", 0); ++request.tokens)
      std::printf("%s\n", picked(library.pick(request)).c_str());
    return 0;
  }
  const Kernel& kernel = library.pick(request);
  std::printf("%s %s\n", kernel.name().c_str(), picked(kernel).c_str());

  const Extent extent = {request.tokens, number("rows", -1)};
  const Workspace workspace({&kernel}, {number("room", request.tokens), number("rows", -1)});
  const Call call = kernel.call(extent, workspace);
  std::vector<Operand> operands;
  CUdeviceptr address = 0x100000000000;
  for (const Value& operand : kernel.description()["operands"].items())
    operands.push_back({operand["name"].string(), address += 0x1000000000, -1});
  const auto given_for = [&](const char* word, std::string_view name) -> std::optional<long> {
    const std::string& text = given[word];
    if (text.substr(0, text.find(':')) != name) return std::nullopt;
    return std::stol(text.substr(text.find(':') + 1));
  };
  for (Operand& operand : operands) {
    operand.bytes = given_for("bytes", operand.name).value_or(-1);
    operand.data += static_cast<CUdeviceptr>(given_for("shift", operand.name).value_or(0));
  }
  for (int i = 0; i < 2; ++i) call.launch(operands, reinterpret_cast<CUstream>(0x77));
  if (number("route", 1) == 1)
    library.route(request.experts, request.tokens * request.top_k, 0, request.tokens * request.top_k, true,
                  {{"m_sizes", 0x1000, -1}, {"gather_indices", 0x2000, -1}, {"topk_ids", 0x3008, -1}},
                  reinterpret_cast<CUstream>(0x77));
  workspace.reset();
  return 0;
} catch (const std::exception& error) {
  std::printf("error: %s\n", error.what());
  return 1;
}
