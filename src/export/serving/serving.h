// The tuned-configuration files of vLLM and SGLang: their rows, names and defaults.
// Which entry of a table becomes which row: serving_layer.h.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "workload/dtype.h"

namespace moetune {

/// Knobs of the fused Triton kernel that both run for an MoE layer.
struct ServingRow {
  int64_t block_m = 0, block_n = 0, block_k = 0;
  int64_t group_m = 1;            // m tiles walked together
  int64_t warps = 4, stages = 3;  // Triton's own defaults
  std::optional<bool> use_tma;    // SGLang's file of the down projection only
  bool operator==(const ServingRow&) const = default;
};

/// Token count -> row, in the order of the file.
using ServingRows = std::vector<std::pair<int64_t, ServingRow>>;

enum class Server { vllm, sglang };
std::string_view name(Server server);

/// Token counts that their own tuners fill.
const std::vector<int64_t>& serving_token_counts();

/// What the server runs for `tokens` where it has no file; `experts` are those of one rank.
ServingRow default_row(Server server, int64_t tokens, int64_t experts);

/// The file name that the server looks for. `intermediate` is one rank's, after the SwiGLU halving; `down` is SGLang's
/// second file. Exit::request for a device name that no file can have.
std::string serving_file_name(Server server, int64_t experts, int64_t intermediate, const std::string& device,
                              Dtype dtype, bool down);

/// Indent 4 and a newline at the end, as both programs write them.
std::string serving_text(const ServingRows& rows);

}  // namespace moetune
