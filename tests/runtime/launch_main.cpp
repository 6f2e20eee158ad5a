// What a caller of moetune.h does: picks a kernel of a folder, makes a workspace, launches it twice on addresses that
// stand for operands, and routes. Prints the kernel's name, or the error.
//   launch_main FOLDER op=fwd experts=8 top_k=2 n=64 k=64 tokens=16 [fusion=..] [dtype=..] [skew=..] [rows=..]
//               [room=TOKENS] [bytes=NAME:BYTES] [shift=NAME:BYTES] [other_gpu=1] [route=0]
//               [sum=SHIFT]
//               [choose=EXPERTS logits=DTYPE groups=.. top_groups=.. bias=1]
//               [strides=X_ROW,X_STEP,W_EXPERT,W_ROW,W_STEP]
// With picks=MOST it prints instead which cell answers for each number of tokens up to MOST; with tokens=A,B it
// launches for A, B, ... tokens in turn; with down_n, down_k and down_fusion it launches a layer once.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/moetune.h"

namespace {

void require(int result) {
  if (result == 0) return;
  std::printf("error: %s\n", moetune_error());
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> given = {{"op", "fwd"}, {"dtype", "bf16"}, {"fusion", "plain"}};
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    given[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  }
  const auto number = [&](const char* name, long otherwise) {
    return given.count(name) ? std::stol(given[name]) : otherwise;
  };
  moetune_library* library = nullptr;
  require(moetune_open(argv[1], static_cast<int>(number("other_gpu", 0)), &library));
  const moetune_request request = {given["op"].c_str(),  given["dtype"].c_str(), given["fusion"].c_str(),
                                   number("experts", 0), number("top_k", 0),     number("n", 0),
                                   number("k", 0)};
  const double skew = given.count("skew") ? std::stod(given["skew"]) : 0;
  const moetune_kernel* kernel = nullptr;
  for (long tokens = 1; tokens <= number("picks", 0); ++tokens) {
    require(moetune_pick(library, &request, tokens, skew, &kernel));
    std::printf("%s\n", moetune_kernel_id(kernel));
  }
  if (given.count("picks")) return 0;
  if (given.count("down_n")) {
    const moetune_request down = {given["op"].c_str(), given["dtype"].c_str(), given["down_fusion"].c_str(),
                                  request.experts,     request.top_k,          number("down_n", 0),
                                  number("down_k", 0)};
    const moetune_request both[] = {request, down};
    const moetune_kernel* last = nullptr;
    moetune_workspace* room = nullptr;
    const long tokens = number("tokens", 0);
    require(moetune_pick_layer(library, &request, &down, tokens, skew, &kernel, &last));
    std::printf("%s, then %s\n", moetune_kernel_id(kernel), moetune_kernel_id(last));
    require(moetune_make_workspace(library, both, 2, tokens, &room));
    std::vector<moetune_operand> operands;
    long address = 0x100000000000;
    for (const char* name : {"x", "up", "hidden", "m_sizes", "gather_indices", "down", "y", "topk_weights"})
      operands.push_back({name, reinterpret_cast<void*>(address += 0x1000000000), -1});
    if (given.count("sum")) operands.push_back({"sum", reinterpret_cast<void*>(0x200000000000 + number("sum", 0)), -1});
    if (given.count("without"))
      std::erase_if(operands, [&](const moetune_operand& operand) { return operand.name == given["without"]; });
    require(moetune_launch_layer(kernel, last, tokens, -1, room, operands.data(), operands.size(),
                                 reinterpret_cast<void*>(0x77)));
    moetune_free_workspace(room);
    moetune_close(library);
    return 0;
  }

  moetune_workspace* workspace = nullptr;
  const long rows = number("rows", -1), first = number("tokens", 0);
  require(moetune_make_workspace(library, &request, 1, number("room", first), &workspace));
  const auto given_for = [&](const char* word, const std::string& name) -> long {
    const std::string& text = given[word];
    return text.substr(0, text.find(':')) == name ? std::stol(text.substr(text.find(':') + 1)) : -1;
  };
  moetune_strides strides = {};
  const bool strided = std::sscanf(given["strides"].c_str(), "%ld,%ld,%ld,%ld,%ld", &strides.x_row, &strides.x_step,
                                   &strides.w_expert, &strides.w_row, &strides.w_step) == 5;
  void* const stream = reinterpret_cast<void*>(0x77);
  std::stringstream words(given["tokens"]);
  for (std::string word; std::getline(words, word, ',');) {
    const long tokens = std::stol(word);
    require(moetune_pick(library, &request, tokens, skew, &kernel));
    std::printf("%s %s\n", moetune_kernel_name(kernel), moetune_kernel_id(kernel));
    moetune_need needs[16];
    size_t count = 0;
    require(moetune_needs(kernel, tokens, rows, needs, 16, &count));
    std::vector<moetune_operand> operands;
    long address = 0x100000000000;
    for (size_t i = 0; i < count; ++i) {
      const long shift = given_for("shift", needs[i].name);
      address += 0x1000000000;
      operands.push_back({needs[i].name, reinterpret_cast<void*>(address + (shift > 0 ? shift : 0)),
                          given_for("bytes", needs[i].name)});
    }
    for (int i = 0; i < 2; ++i)
      require(strided ? moetune_launch_scaled(kernel, tokens, rows, workspace, operands.data(), count, &strides, stream)
                      : moetune_launch(kernel, tokens, rows, workspace, operands.data(), count, stream));
  }
  if (given.count("choose")) {
    const moetune_choice how = {
        number("choose", 0), request.top_k, number("groups", 1), number("top_groups", 1), 1, 0, 2.5f};
    require(moetune_choose(library, &how, first, given["logits"].c_str(), reinterpret_cast<void*>(0x5000),
                           given.count("bias") ? reinterpret_cast<void*>(0x6000) : nullptr,
                           reinterpret_cast<void*>(0x4000), reinterpret_cast<void*>(0x3000), stream));
  }
  if (number("route", 1) == 1)
    require(moetune_route(library, request.experts, first * request.top_k, 0, first * request.top_k, 8,
                          reinterpret_cast<void*>(0x3008), reinterpret_cast<void*>(0x1000),
                          reinterpret_cast<void*>(0x2000), stream));
  require(moetune_reset(workspace));
  moetune_free_workspace(workspace);
  moetune_close(library);
}
