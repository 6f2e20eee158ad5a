// Declares options and parses a command line. Values are read when the whole line was understood, by our own functions,
// so that errors read the same everywhere.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/text/console.h"
#include "variant/device.h"

namespace moetune {

struct Command;

/// The words that an option takes, made when a completion asks for them.
using WordSource = std::function<std::vector<std::string>()>;
/// A fixed list of them.
WordSource one_of(std::vector<std::string> words);

/// Reads a word of a command line; `option` is "--tokens".
using Reader = std::function<void(const std::string& word, const std::string& option)>;

/// An option or argument, as --help and completions print it, and what reads it.
struct DeclaredOption {
  std::vector<std::string> names = {};  // "-o", "--output"; empty for an argument
  std::string placeholder = {};         // "FILE"; empty for a flag; the name of an argument
  std::string help = {}, group = {};    // group: the heading in --help
  bool repeated = false;                // as often as wanted, or several arguments
  bool required = false;                // of an argument
  WordSource words = {};
  std::function<void(const std::vector<std::string>& values)> read = {};

  bool is_argument() const { return names.empty(); }
  bool is_flag() const { return placeholder.empty(); }
  const std::string& name() const { return is_argument() ? placeholder : names.back(); }  // the long one
  /// Whether it takes names of files.
  bool takes_files() const;
};
struct DeclaredCommand {
  std::string name, summary;
  std::vector<DeclaredOption> options = {};
};

/// The options of one subcommand while it declares them. The variables must outlive the parsing.
class OptionSet {
 public:
  explicit OptionSet(DeclaredCommand& command) : command_(command) {}

  /// Heading in --help of the options that follow.
  void group(const std::string& title) { group_ = title; }
  void flag(const std::string& names, bool& value, const std::string& help);
  // `words` are what shells complete a value to; files too where the placeholder has FILE, DIR, PATH or TABLE.
  // Arguments without words are files.

  /// At most once on a command line; what `value` holds before is its default, which --help prints.
  void value(const std::string& names, std::string& value, const std::string& placeholder, const std::string& help,
             WordSource words = {});
  void value(const std::string& names, Reader read, const std::string& placeholder, const std::string& help,
             WordSource words = {});
  void number(const std::string& names, std::optional<int64_t>& value, int64_t low, int64_t high,
              const std::string& help);
  /// In seconds.
  void duration(const std::string& names, std::optional<double>& value, const std::string& help,
                bool may_be_zero = false);
  /// As often as wanted, one value each time.
  void list(const std::string& names, std::vector<std::string>& values, const std::string& placeholder,
            const std::string& help, WordSource words = {});
  /// Likewise; each value is cut at commas, and each of its words is read.
  void list(const std::string& names, Reader read, const std::string& placeholder, const std::string& help,
            WordSource words = {});
  void argument(const std::string& name, std::string& value, const std::string& help, WordSource words = {},
                bool required = true);
  void arguments(const std::string& name, std::vector<std::string>& values, const std::string& help);

 private:
  void add(const std::string& names, DeclaredOption option);

  DeclaredCommand& command_;
  std::string group_ = "Options";
};

/// The words of all occurrences of a list, cut at commas, without blanks around them. Exit::request for an empty word;
/// `option` is what its error calls the list.
std::vector<std::string> list_words(const std::vector<std::string>& given, std::string_view option);

/// The options of a command line by their long names, each with its first value.
struct Given {
  std::string command = {};
  std::map<std::string, std::string> options = {};
};

/// Warns of each option that has no effect beside the others, or, with a device, on that device. Throws Exit::request
/// where a file or the cells that the option asks for would be missing. One list for all commands: effect.cpp.
void require_effect(const Given& given, const Terminal& terminal, const DeviceInfo* device = nullptr);

/// What a command line asks for: a command, or a text.
struct Request {
  const Command* command = nullptr;
  Given given = {};
  std::string text = {};       // help or version, where there is no command
  std::string color = "auto";  // --color
};

/// The command line of the program. Declare every command's options, then parse.
class CommandLine {
 public:
  explicit CommandLine(const std::vector<Command>& commands);

  /// The options of commands[index], to declare into.
  OptionSet options(size_t index) { return OptionSet(declared_.at(index + 1)); }
  /// argv[0] is the program. Exit::request errors name the nearest option or command. `terminal` gets the colours that
  /// --color asks for, before values are read.
  Request parse(const std::vector<std::string>& argv, Terminal* terminal = nullptr);
  /// Every command but the hidden ones; the first has no name: it is the program alone.
  std::vector<DeclaredCommand> declared() const;
  /// The help of the program and of every command as one page for man.
  std::string manual() const;

 private:
  const Command* find_command(std::string_view name) const;
  DeclaredCommand with_common_options(DeclaredCommand command) const;

  const std::vector<Command>& commands_;
  std::vector<DeclaredCommand> declared_;  // the program alone, then one for each of `commands`
};

}  // namespace moetune
