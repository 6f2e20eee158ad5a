// Writes tables as files of servers, with notes on what the knobs mean in those programs.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "export/serving/serving.h"
#include "variant/variant.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kServed = 8192;  // files are exact at least up to so many tokens

// How the rows of one layer were chosen.
struct Tally {
  std::set<int64_t> tuned, down_tuned;     // token counts with a winner's row in the file, in that of down
  std::map<std::string, int64_t> refused;  // reason why the server's own row replaces a winner -> how many
};
constexpr const char *kUntimed = "the times of both rows are not known for all routings",
                     *kNotFaster = "it is not faster by more than the noise for all routings";

// Rows for one file, or for up's and down's.
struct Writer {
  const ServingLayer& layer;
  const ServingRequest& request;
  const ServingTimes& times;

  const ServedFile& file() const { return layer.file; }
  const Server& server() const { return *layer.file.server; }
  bool two_files() const { return server().down_files; }
  bool from_down() const { return !two_files() && layer.up.empty(); }
  const ServingWinners& winners() const { return from_down() ? layer.down : layer.up; }
  RowPair own(int64_t tokens) const { return file().own(tokens); }
  std::string own_text() const {
    return file().rows.empty() ? fmt::format("{}'s default", server().title) : "rows of " + file().source.string();
  }

  // Of several candidates the first whose row the server can run, with that BLOCK_SIZE_M unless it is 0; else why not.
  std::optional<ServingRow> row_of(const ServingWinner& winner, bool ties, int64_t block_m, std::string& reason) const {
    std::vector<Candidate> choices = {winner.candidate};
    if (ties) choices.insert(choices.end(), winner.ties.begin(), winner.ties.end());
    for (const Candidate& candidate : choices) {
      const auto row = serving_row(candidate);
      if (!row)
        reason = fmt::format("winners of {} are of another kernel than the server's", candidate.variant->name);
      else if (file().format.blocks() && row->block_k != 64 && row->block_k != 128)
        reason = "over blocks of 128 a BLOCK_SIZE_K must be 64 or 128";
      else if (block_m != 0 && row->block_m != block_m)
        reason = "it has another BLOCK_SIZE_M than up";
      else
        return row;
    }
    return std::nullopt;
  }

  // The rows of winners at two counts, the server's own where there are none.
  RowPair rows(int64_t first, int64_t second, RowPair pair, Tally& tally) const {
    std::string reason;
    const auto up = winners().find(first), down = layer.down.find(second);
    const auto refuse = [&] {
      if (!reason.empty()) ++tally.refused[reason];
      reason.clear();
    };
    if (up != winners().end()) {
      if (const auto row = row_of(up->second, false, 0, reason)) tally.tuned.insert(first), pair.first = *row;
      refuse();
    }
    if (!two_files()) return pair.second = pair.first, pair;
    pair.second.block_m = pair.first.block_m;
    if (down == layer.down.end()) return pair;
    // Both GEMMs use one sorting of the rows, so down must have the block_m of up.
    if (const auto row = row_of(down->second, true, pair.first.block_m, reason)) {
      tally.down_tuned.insert(second), pair.second = *row, pair.second.use_tma = false;
      reason.clear();
    }
    refuse();
    return pair;
  }

  // Why not to write `ours` for that many tokens; empty where it is faster for every routing of the table.
  std::string refusal(int64_t tokens, const RowPair& ours, const RowPair& replaced) const {
    struct Sum {
      double high = 0, low = 0;  // of ours, at most; of what the server runs, at least
      bool timed = true;
    };
    std::map<std::pair<std::string, uint64_t>, Sum> sums;  // over the projections
    for (const Cell& cell : layer.cells) {
      const ServingRow &row = row_for(ours, cell), &old = row_for(replaced, cell);
      if (cell.tokens != tokens || row == old) continue;
      const auto time = times.find(cell, row), other = times.find(cell, old);
      Sum& sum = sums[{text(cell.routing), cell.seed}];
      sum.timed = sum.timed && time && other;
      if (time && other) sum.high += time->high, sum.low += other->low;
    }
    if (std::ranges::any_of(sums,
                            [](const auto& one) { return one.second.timed && one.second.high >= one.second.low; }))
      return kNotFaster;
    const bool timed = std::ranges::all_of(sums, [](const auto& one) { return one.second.timed; });
    return request.unproven || (timed && !sums.empty()) ? "" : kUntimed;
  }

  // Token counts of winners; vLLM has up's alone.
  std::set<int64_t> counts() const {
    std::set<int64_t> counts;
    for (const auto& [tokens, winner] : winners()) counts.insert(tokens);
    for (const auto& [tokens, winner] : layer.down)
      if (two_files()) counts.insert(tokens);
    return counts;
  }

  bool down_wins_like_up() const {
    return std::ranges::all_of(layer.down, [&](const auto& winner) {
      const auto up = layer.up.find(winner.first);
      return up != layer.up.end() && up->second.candidate == winner.second.candidate;
    });
  }
};

void add_note(const Writer& writer, const std::string& file, const std::set<int64_t>& tuned,
              std::vector<std::string>& notes) {
  const auto& counts = serving_token_counts();
  if (std::ranges::all_of(counts, [&](int64_t count) { return tuned.contains(count); }))
    notes.push_back(fmt::format("{}: tuned for all of its token counts", file));
  else if (!tuned.empty())
    notes.push_back(
        fmt::format("{}: tuned for {} tokens; the other rows are {}", file, fmt::join(tuned, ", "), writer.own_text()));
}

// Where a file changes from the row of a token count to that of the next: the last count that the row at `low` serves,
// where the next row is at `high`. Between winners as `lookup` has it, at their geometric mean or where a robust choice
// ends, and in the middle elsewhere.
int64_t turn_between(const ServingWinners& winners, int64_t low, int64_t high) {
  if (!winners.contains(low) || !winners.contains(high)) return (low + high) / 2;
  if (const auto end = winners.at(low).last; end && *end < high) return *end;
  return middle_of(low, high);
}

// The rows of each token count from 1 on: of the winner that serves it, or the server's own. The last go on for ever.
std::vector<RowPair> rows_of_counts(const Writer& writer, std::set<int64_t> counts) {
  counts.insert(serving_token_counts().begin(), serving_token_counts().end());
  for (const auto& [tokens, row] : writer.file().rows) counts.insert(tokens);
  const int64_t last =
      std::max({2 * *counts.rbegin(), kServed, 130 * writer.file().experts});  // rules may turn up to here
  std::vector<RowPair> rows;
  Tally unused;
  RowPair own;
  for (auto at = counts.begin(); at != counts.end(); ++at) {
    const int64_t low = *at, high = std::next(at) == counts.end() ? last + 1 : *std::next(at);
    const bool ends = high > last;
    const auto turn = [&](const ServingWinners& winners) { return ends ? last : turn_between(winners, low, high); };
    const int64_t first = turn(writer.winners()), second = writer.two_files() ? turn(writer.layer.down) : first;
    for (int64_t tokens = std::ssize(rows) + 1; tokens < high; ++tokens) {
      const RowPair here = writer.own(tokens);
      const bool as_before = tokens > low + 1 && tokens != first + 1 && tokens != second + 1 && here == own;
      own = here;
      const bool other = runs_other_kernel(writer.server(), tokens, writer.file().experts, writer.file().format);
      rows.push_back(other ? here
                     : as_before
                         ? rows.back()
                         : writer.rows(tokens <= first ? low : high, tokens <= second ? low : high, own, unused));
    }
  }
  return rows;
}

// Keys with which the servers' rule, the nearest key by subtraction, gives each count its rows: `keys`, and ends of
// runs of equal rows where those don't do. Both files get them: their rows of a key go together.
std::set<int64_t> keys_of(const std::vector<RowPair>& rows, std::set<int64_t> keys) {
  const auto row = [&](int64_t tokens) -> const RowPair& { return rows[static_cast<size_t>(tokens - 1)]; };
  const auto nearest = [&](int64_t tokens) {
    const auto above = keys.lower_bound(tokens);
    if (above == keys.begin()) return *above;
    return above == keys.end() || tokens - *std::prev(above) <= *above - tokens ? *std::prev(above) : *above;
  };
  for (bool again = true; again;) {
    again = false;
    for (int64_t tokens = 1; tokens <= std::ssize(rows); ++tokens) {
      if (row(nearest(tokens)) == row(tokens)) continue;
      int64_t end = tokens;  // of its run, on the side of the wrong key
      const int64_t step = nearest(tokens) < tokens ? -1 : 1;
      while (end + step >= 1 && end + step <= std::ssize(rows) && row(end + step) == row(tokens)) end += step;
      again = keys.insert(end).second;
    }
  }
  return keys;
}

// The winners that may be written, and what is said of the others.
ServingLayer proven(const Writer& writer, Tally& tally, bool& differs) {
  for (const int64_t tokens : writer.counts()) {
    Tally one;
    const RowPair own = writer.own(tokens), rows = writer.rows(tokens, tokens, own, one);
    if (!one.tuned.empty() || !one.down_tuned.empty())
      if (const std::string reason = rows == own ? "" : writer.refusal(tokens, rows, own); !reason.empty()) {
        one = {};
        one.refused[reason] = 1;
      }
    differs = differs || ((!one.tuned.empty() || !one.down_tuned.empty()) && rows != own);
    for (const auto& [reason, count] : one.refused) tally.refused[reason] += count;
    tally.tuned.merge(one.tuned), tally.down_tuned.merge(one.down_tuned);
  }
  ServingLayer kept = writer.layer;
  std::erase_if(writer.from_down() ? kept.down : kept.up,
                [&](const auto& one) { return !tally.tuned.contains(one.first); });
  if (writer.two_files())
    std::erase_if(kept.down, [&](const auto& one) { return !tally.down_tuned.contains(one.first); });
  return kept;
}

void write_layer(const Writer& writer, Export& result) {
  const ServedFile& file = writer.file();
  const std::string& title = std::string(writer.server().title);
  const auto say = [&](const std::string& sentence) {
    result.notes.push_back(fmt::format("{}: {}", file.name, sentence));
  };
  if (const std::string why = obstacle(file); !why.empty()) return say("left out: " + why);
  Tally tally;
  bool differs = false;
  const ServingLayer kept = proven(writer, tally, differs);
  for (const auto& [reason, count] : tally.refused)
    say(fmt::format("{} {} replaced by {}: {}", count, count == 1 ? "winner is" : "winners are", writer.own_text(),
                    reason));
  if (!differs) return say("not written, because it would only hold " + writer.own_text());
  add_note(writer, file.name, tally.tuned, result.notes);
  if (writer.two_files()) add_note(writer, file.down_name, tally.down_tuned, result.notes);
  if (writer.from_down()) say("the table has no up projection, these are down's winners");
  if (!writer.two_files() && !writer.from_down() && !writer.down_wins_like_up())
    say(fmt::format("{} runs both projections with one row, these are up's winners", title));
  if (const int64_t width = padded_width(writer.server(), kept.model, file.intermediate); width != file.intermediate)
    say(fmt::format("{} pads the width {} of {} to {}", title, file.intermediate, kept.model, width));

  std::set<int64_t> keys = tally.tuned;
  keys.insert(tally.down_tuned.begin(), tally.down_tuned.end());
  if (file.rows.empty()) keys.insert(serving_token_counts().begin(), serving_token_counts().end());
  for (const auto& [tokens, row] : file.rows) keys.insert(tokens);
  const std::vector<RowPair> rows = rows_of_counts({kept, writer.request, writer.times}, writer.counts());
  ServingRows first, second;
  for (const int64_t tokens : keys_of(rows, std::move(keys))) {
    first.emplace_back(tokens, rows[static_cast<size_t>(tokens - 1)].first);
    second.emplace_back(tokens, rows[static_cast<size_t>(tokens - 1)].second);
  }
  const bool split_k = file.format.groups() && writer.server().rows_of_other_kernel > 0;
  result.files.push_back({writer.request.prefix + file.name, serving_text(first, split_k)});
  if (!tally.down_tuned.empty() || !file.down_rows.empty())
    result.files.push_back({writer.request.prefix + file.down_name, serving_text(second)});
}

// A row of another kernel's knobs would replace what the server bundles for its own, and make it slower.
Error nothing_fits(const Server& server, const std::vector<std::string>& notes) {
  const std::string_view program = server.title;
  const auto says = [&](const char* reason) {
    return std::ranges::any_of(notes, [&](const std::string& note) { return note.find(reason) != std::string::npos; });
  };
  const bool untimed = says(kUntimed), slower = says(kNotFaster);
  std::string what =
      untimed || slower
          ? fmt::format("the table has no row that is known to be faster than {}'s own", program)
          : fmt::format("the table has no row for {}'s Triton kernel; knobs of other kernels make it slower", program);
  for (const std::string& note : notes) what += "\n  " + note;
  if (slower && !untimed) return {Exit::no, what, fmt::format("{} needs no file for these layers", program)};
  return {
      Exit::no, what,
      fmt::format("moetune tune --for {} with the model's options (--model, --tp, --dtype) times that kernel's rows "
                  "beside {}'s own{}",
                  server.word, program, untimed ? "; --unproven takes the winners without that" : "")};
}

// What the knobs mean in the other program.
void note_meaning(const TunedTable& table, std::string_view program, std::vector<std::string>& notes) {
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

}  // namespace

std::string install_advice(const Server& server, bool has_base) {
  if (server.variable_hides_bundled)
    return fmt::format(
        "put the files into configs/triton_X_Y_Z (your Triton's version) beside those that {} bundles, in "
        "{}/{}: {} replaces that folder for all layers, so a folder that it names must hold its files too",
        server.title, server.word, fs::path(server.bundled[0]).parent_path().string(), server.variable);
  return fmt::format(
      "put the files into a folder and name it in {}; {} reads them before those that it bundles, whose "
      "rows they hide{}",
      server.variable, server.title, has_base ? "" : ": start from those of the same names with --base");
}

Export export_serving(const Server& server, const TunedTable& table, const ServingRequest& request) {
  if (table.device.kind != DeviceKind::cuda)
    throw Error(
        Exit::no,
        fmt::format("the table was tuned on a cpu ({}), {}'s kernel runs on GPUs", table.device.name, server.title),
        "tune on a GPU, or export with --format csv or markdown");
  Export result;
  note_meaning(table, server.title, result.notes);
  const ServingTimes times(request.measured ? *request.measured : table, request);
  for (ServingLayer& layer : serving_layers(server, table, result.notes)) {
    find_rows(layer.file, request.places);
    write_layer({layer, request, times}, result);
  }
  if (result.files.empty()) throw nothing_fits(server, result.notes);
  return result;
}

}  // namespace moetune
