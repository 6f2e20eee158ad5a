// Faults of a request or of the machine: they end a command with its exit code. A candidate's fault is data, not this.
#pragma once
#include <algorithm>
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

/// What went wrong in a sentence, and a hint that says what to do about it (may be empty).
class Error : public std::runtime_error {
 public:
  Error(Exit exit, const std::string& what, std::string hint = {});
  Exit exit() const { return exit_; }
  const std::string& hint() const { return hint_; }

 private:
  Exit exit_;
  std::string hint_;
};

inline Error request_error(const std::string& what, std::string hint = {}) {
  return Error(Exit::request, what, std::move(hint));
}
inline Error machine_error(const std::string& what, std::string hint = {}) {
  return Error(Exit::machine, what, std::move(hint));
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
