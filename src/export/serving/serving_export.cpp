// Writes tables as vLLM's and SGLang's files, with notes on what the knobs mean in those programs.
#include "export/exporter.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "export/serving/serving.h"
#include "variant/variant.h"

namespace moetune {
namespace {

// How the rows of one file were chosen.
struct Tally {
  std::vector<int64_t> tuned;             // token counts
  std::map<std::string, int64_t> pinned;  // reason why the default replaces a winner -> how many
};

std::string not_of_a_pack(const Candidate& candidate) {
  return fmt::format("winners of {} are of another kernel than the server's", candidate.variant->name);
}

struct Writer {
  Server server;
  const TunedTable& table;
  const ServingLayer& layer;

  ServingRow row(const ServingWinners& winners, int64_t tokens, Tally& tally) const {
    const auto found = winners.find(tokens);
    if (found != winners.end()) {
      if (const auto row = serving_row(found->second.candidate)) {
        tally.tuned.push_back(tokens);
        return *row;
      }
      ++tally.pinned[not_of_a_pack(found->second.candidate)];
    }
    return default_row(server, tokens, layer.experts);
  }

  // Both GEMMs use one sorting of the rows, so down must have the block_m of up: the winner where it has that value,
  // else the first of its ties that has it.
  ServingRow down_row(int64_t tokens, int64_t block_m, Tally& tally) const {
    ServingRow fallback = default_row(server, tokens, layer.experts);
    fallback.block_m = block_m;
    const auto found = layer.down.find(tokens);
    if (found == layer.down.end()) return fallback;
    const ServingWinner& winner = found->second;
    std::vector<Candidate> choices = {winner.candidate};
    choices.insert(choices.end(), winner.ties.begin(), winner.ties.end());
    for (const Candidate& candidate : choices)
      if (const auto row = serving_row(candidate); row && row->block_m == block_m) {
        tally.tuned.push_back(tokens);
        return *row;
      }
    ++tally.pinned[is_triton(winner.candidate) ? "it has another BLOCK_SIZE_M than up"
                                               : not_of_a_pack(winner.candidate)];
    return fallback;
  }

  bool down_wins_like_up() const {
    return std::ranges::all_of(layer.down, [&](const auto& winner) {
      const auto up = layer.up.find(winner.first);
      return up != layer.up.end() && up->second.candidate == winner.second.candidate;
    });
  }

  std::set<int64_t> token_counts() const {
    std::set<int64_t> counts(serving_token_counts().begin(), serving_token_counts().end());
    const bool up_alone = server == Server::vllm && !layer.up.empty();
    for (const auto& [tokens, winner] : layer.up) counts.insert(tokens);
    for (const auto& [tokens, winner] : layer.down)
      if (!up_alone) counts.insert(tokens);
    return counts;
  }

  std::string file_name(bool down) const {
    return serving_file_name(server, layer.experts, layer.intermediate, table.device.name, layer.dtype, down);
  }
};

void tell(const Writer& writer, const std::string& file, const Tally& tally, std::vector<std::string>& notes) {
  const std::string_view server = name(writer.server);
  if (tally.tuned.size() == writer.token_counts().size())
    notes.push_back(fmt::format("{}: tuned for all of its token counts", file));
  else if (!tally.tuned.empty())
    notes.push_back(fmt::format("{}: tuned for {} tokens; the other rows are {}'s default", file,
                                fmt::join(tally.tuned, ", "), server));
  for (const auto& [reason, count] : tally.pinned)
    notes.push_back(fmt::format("{}: {} {} replaced by {}'s default: {}", file, count,
                                count == 1 ? "winner is" : "winners are", server, reason));
}

// The rows of one token count: up's, or down's where it is alone; and down's of SGLang's second file.
struct RowPair {
  ServingRow first, second;
  bool operator==(const RowPair&) const = default;
};

// Where a file changes from the row of a token count to that of the next.
struct Turns {
  const ServingWinners& winners;
  const std::vector<int64_t>& tuned;  // of the token counts with a row

  // The last count that the row at `low` serves, where the next row is at `high`: between winners as `lookup` has it,
  // at their geometric mean or where a robust choice ends. Other rows are the server's own, and change as it would.
  int64_t between(int64_t low, int64_t high) const {
    const auto is_tuned = [&](int64_t tokens) { return std::ranges::find(tuned, tokens) != tuned.end(); };
    if (!is_tuned(low) || !is_tuned(high)) return (low + high) / 2;
    if (const auto end = winners.at(low).last; end && *end < high) return *end;
    return middle_of(low, high);
  }
};

// Adds keys beside the turns, so that the servers' rule, the nearest key by subtraction, turns there too. Both files
// get them: their rows of a key go together.
template <typename RowsOf>  // (count of the first row, count of the second) -> RowPair
void add_turns(std::map<int64_t, RowPair>& rows, const Turns& first, const Turns& second, const RowsOf& rows_of) {
  const std::map<int64_t, RowPair> counts = rows;
  for (auto at = counts.begin(); std::next(at) != counts.end(); ++at) {
    const int64_t low = at->first, high = std::next(at)->first;
    const int64_t turns[] = {first.between(low, high), second.between(low, high)};
    if (turns[0] == turns[1] && turns[0] == (low + high) / 2) continue;
    const auto at_count = [&](int64_t tokens) {
      return rows_of(tokens <= turns[0] ? low : high, tokens <= turns[1] ? low : high);
    };
    for (const int64_t last : turns)
      if (const RowPair before = at_count(last), after = at_count(last + 1); before != after) {
        rows.emplace(last, before);
        rows.emplace(last + 1, after);
      }
  }
}

void write_layer(const Writer& writer, Export& result) {
  const bool two_files = writer.server == Server::sglang;
  const bool from_down = !two_files && writer.layer.up.empty();
  const ServingWinners& winners = from_down ? writer.layer.down : writer.layer.up;
  const auto rows_of = [&](int64_t first, int64_t second, Tally& tally, Tally& down_tally) {
    RowPair pair{.first = writer.row(winners, first, tally), .second = {}};
    if (two_files) pair.second = writer.down_row(second, pair.first.block_m, down_tally);
    return pair;
  };
  Tally tally, down_tally, unused;
  std::map<int64_t, RowPair> rows;
  for (const int64_t tokens : writer.token_counts()) rows[tokens] = rows_of(tokens, tokens, tally, down_tally);
  const Turns turns{winners, tally.tuned};
  add_turns(rows, turns, two_files ? Turns{writer.layer.down, down_tally.tuned} : turns,
            [&](int64_t first, int64_t second) { return rows_of(first, second, unused, unused); });
  const std::string file = writer.file_name(false), down_file = writer.file_name(true);
  tell(writer, file, tally, result.notes);
  if (two_files) tell(writer, down_file, down_tally, result.notes);
  if (tally.tuned.empty() && down_tally.tuned.empty()) {
    result.notes.push_back(fmt::format("{}: not written, because it would only hold defaults", file));
    return;
  }
  if (from_down)
    result.notes.push_back(fmt::format("{}: the table has no up projection, these are down's winners", file));
  if (!two_files && !from_down && !writer.down_wins_like_up())
    result.notes.push_back(
        fmt::format("{}: {} runs both projections with one row, these are up's winners", file, name(writer.server)));
  ServingRows first_rows, second_rows;
  for (const auto& [tokens, pair] : rows) {
    first_rows.emplace_back(tokens, pair.first);
    second_rows.emplace_back(tokens, pair.second);
    second_rows.back().second.use_tma = false;
  }
  result.files.push_back({file, serving_text(first_rows)});
  if (!down_tally.tuned.empty()) result.files.push_back({down_file, serving_text(second_rows)});
}

// A row of another kernel's knobs would replace what the server bundles for its own, and make it slower.
Error nothing_fits(std::string_view program, std::string_view format, const std::vector<std::string>& notes) {
  std::string what =
      fmt::format("the table has no row for {}'s Triton kernel; knobs of other kernels make it slower", program);
  for (const std::string& note : notes) what += "\n  " + note;
  return {Exit::no, what,
          fmt::format("make a pack of that kernel with scripts/pack_triton.py -o triton-pack, tune forward cells with "
                      "moetune tune --pack triton-pack --variant triton_moe -o triton.json and the options of the "
                      "cells, then moetune export triton.json --format {} -o {}-configs",
                      format, format)};
}

// What the knobs mean in the other program.
void tell_meaning(const TunedTable& table, std::string_view program, std::vector<std::string>& notes) {
  std::set<std::string> packs;
  for (const Entry& entry : table.entries)
    if (entry.skipped.empty() && entry.cell.shape.op == Op::fwd && is_triton(entry.candidate))
      packs.insert(entry.candidate.variant->name);
  for (const std::string& pack : packs)
    notes.push_back(
        fmt::format("the knobs of the pack {} are written as they were measured: they tune {}'s kernel where the pack "
                    "was made of it",
                    pack, program));
}

Export write_serving(Server server, const TunedTable& table) {
  const std::string_view program = name(server);
  if (table.device.kind != DeviceKind::cuda)
    throw Error(Exit::no,
                fmt::format("the table was tuned on a cpu ({}), {}'s kernel runs on GPUs", table.device.name, program),
                "tune on a GPU, or export with --format csv or markdown");
  Export result;
  tell_meaning(table, program, result.notes);
  std::vector<std::string> left_out;
  const std::vector<ServingLayer> layers = serving_layers(table, left_out);
  result.notes.insert(result.notes.end(), left_out.begin(), left_out.end());
  for (const ServingLayer& layer : layers) write_layer({server, table, layer}, result);
  if (result.files.empty()) throw nothing_fits(program, server == Server::vllm ? "vllm" : "sglang", result.notes);
  result.notes.emplace_back(
      server == Server::vllm
          ? "put the files into a folder and name it in VLLM_TUNED_CONFIG_FOLDER"
          : "put the files into configs/triton_X_Y_Z (your Triton's version) under SGLANG_MOE_CONFIG_DIR");
  return result;
}

}  // namespace

Export export_vllm(const TunedTable& table) { return write_serving(Server::vllm, table); }

Export export_sglang(const TunedTable& table) { return write_serving(Server::sglang, table); }

}  // namespace moetune
