// Faults of a request or of the machine: they end a command with its exit code. A candidate's fault is data, not this.
#pragma once
#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace moetune {

/// Exit codes of every command; never a count.
enum class Exit : int {
  yes = 0,            // done, and the answer is good
  no = 1,             // done, and the answer is no
  request = 2,        // the request is wrong
  machine = 3,        // this machine cannot, or the environments don't compare
  inconclusive = 4,   // what was measured is too noisy: `check`, `tune --require-quiet`
  bug = 70,           // ours
  interrupted = 130,  // stopped by the user; partial results kept
};

/// Where a fault is. Each part may be empty.
struct Where {
  Where() = default;
  template <std::convertible_to<std::string> File>
  Where(File&& path, size_t line_number = 0) : file(std::forward<File>(path)), line(line_number) {}
  /// Of an option's or a knob's value.
  static Where of_option(std::string_view name);

  std::string file;             // or another source of text: "the worker's answer"
  size_t line = 0, column = 0;  // from 1
  std::string pointer;          // in JSON: "entries[3].candidate"
  std::string option;           // "--tokens", "block_m"

  /// "table.json: entries[3].candidate", "list.json[2]", "journal.jsonl:2:7", "--tokens".
  std::string text() const;
};

/// A place in JSON one step further in: "entries" and "[3]" give "entries[3]", and then "us" gives "entries[3].us".
std::string pointer_to(std::string_view pointer, std::string_view step);

enum class ErrorKind { other, syntax, unknown_word };

/// What went wrong in a sentence, where, and a hint that says what to do about it. Place and hint may be empty.
class Error : public std::runtime_error {
 public:
  Error(Exit exit, std::string sentence, std::string hint = {}, ErrorKind kind = ErrorKind::other, Where place = {});
  // what() is the place and the sentence: "table.json: entries[3]: 'us' is missing".
  Exit exit() const { return exit_; }
  const std::string& sentence() const { return sentence_; }
  const std::string& hint() const { return hint_; }
  ErrorKind kind() const { return kind_; }
  const Where& place() const { return place_; }

  /// The same error at a place. What the error says of its place already is kept: it is more exact.
  Error at(const Where& outer) const;

 private:
  Exit exit_;
  std::string sentence_, hint_;
  ErrorKind kind_;
  Where place_;
};

inline Error request_error(const std::string& what, std::string hint = {}) {
  return Error(Exit::request, what, std::move(hint));
}
inline Error machine_error(const std::string& what, std::string hint = {}) {
  return Error(Exit::machine, what, std::move(hint));
}

/// read(), whose errors get a place.
template <typename Read>
auto with_place(const Where& place, Read read) -> decltype(read()) {
  try {
    return read();
  } catch (const Error& error) {
    throw error.at(place);
  }
}

/// The known word nearest to `word` by edit distance (transpositions count one), or "" where none is near:
/// at most a third of the longer word may differ.
std::string nearest(std::string_view word, std::span<const std::string> known);

/// The error for a word that isn't known: "unknown routing 'zipff'", with the nearest word, or all, as the hint.
Error unknown_word(std::string_view kind, std::string_view word, const std::vector<std::string>& known);

/// The place of a word among those that are known, such as the names of an enum. Errors as of unknown_word.
template <typename Words>
size_t place_of_word(std::string_view kind, std::string_view word, const Words& known) {
  const auto found = std::ranges::find(known, word);
  if (found != std::end(known)) return static_cast<size_t>(found - std::begin(known));
  throw unknown_word(kind, word, {std::begin(known), std::end(known)});
}

}  // namespace moetune
