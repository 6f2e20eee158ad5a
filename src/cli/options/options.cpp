// Command lines: CLI11 cuts them into options and their values, the errors and the help are ours.
#include "cli/options/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/embedded.h"
#include "base/text/units.h"
#include "cli/commands/command.h"
#include "cli/text/help.h"

namespace moetune {
namespace {

constexpr const char* kColorHelp = "auto, always or never";

HelpPage main_help(const std::vector<Command>& commands) {
  HelpSection list{"Commands", {}};
  for (const Command& command : commands)
    if (!command.hidden) list.lines.push_back({std::string(command.name), std::string(command.summary)});
  const HelpSection options{
      "Options",
      {{"-h, --help", "Print this help; 'moetune help COMMAND' or COMMAND --help prints that command's"},
       {"-V, --version", "Print the version and the commit"},
       {"--color WHEN", kColorHelp}}};
  return {.summary =
              "Finds, proves and keeps the fastest way to run the grouped GEMMs of a mixture-of-experts layer on "
              "this machine, for the routing that the model really produces.",
          .usage = "Usage: moetune COMMAND [OPTIONS]",
          .sections = {list, options},
          .closing =
              "Exit codes: 0 yes, 1 the answer is no, 2 the request is wrong, 3 this machine cannot, 4 "
              "inconclusive, 70 a bug of ours, 130 interrupted (partial results are kept).",
          .examples =
              "moetune list models\n"
              "moetune tune --model qwen3-30b-a3b --tokens 16,256,4096 --routing uniform,zipf:1.0\n"
              "moetune tune --help"};
}

std::string see_help(const DeclaredCommand& command) {
  return fmt::format("see 'moetune{}{} --help'", command.name.empty() ? "" : " ", command.name);
}

// "-o, --output FILE", with dots where it may be given more than once; an argument's name alone.
std::string help_name(const DeclaredOption& option) {
  return fmt::format("{}{}{}{}", fmt::join(option.names, ", "), option.is_argument() || option.is_flag() ? "" : " ",
                     option.placeholder, option.repeated ? " ..." : "");
}

HelpPage command_help(const Command& command, const DeclaredCommand& declared) {
  std::string usage = fmt::format("Usage: moetune {} [OPTIONS]", command.name);
  std::vector<HelpSection> sections;
  for (const DeclaredOption& option : declared.options) {
    if (option.is_argument()) usage += " " + help_name(option);
    auto section = std::ranges::find(sections, option.group, &HelpSection::title);
    if (section == sections.end()) section = sections.insert(sections.end(), {option.group, {}});
    section->lines.push_back({help_name(option), option.help});
  }
  std::ranges::stable_partition(sections, [](const HelpSection& section) { return section.title == "Arguments"; });
  return {.summary = std::string(command.summary), .usage = usage, .sections = sections, .examples = command.examples};
}

// The values of a command line by the place of their option in the declared ones; what is left is not understood.
struct Parsed {
  std::map<size_t, std::vector<std::string>> values;
  std::vector<std::string> left;

  bool has(const DeclaredCommand& command, std::string_view name) const {
    return std::ranges::any_of(values, [&](const auto& item) { return command.options[item.first].name() == name; });
  }
};

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

// The error for what was not understood. An unknown option is the likelier cause of whatever else is wrong.
Error left_over(const DeclaredCommand& command, const std::vector<std::string>& left) {
  const auto option = std::ranges::find_if(left, is_option);
  if (option == left.end())
    return request_error(fmt::format("unexpected argument '{}'", left.front()), see_help(command));
  const std::string word = option->substr(0, option->find('='));
  std::vector<std::string> known;
  for (const DeclaredOption& one : command.options) std::ranges::copy(one.names, std::back_inserter(known));
  const std::string near = nearest(word, known);
  return request_error(fmt::format("unknown option '{}'", word),
                       near.empty() ? see_help(command) : fmt::format("did you mean '{}'?", near));
}

// The options of a command for CLI11, in the order of `command`. Values stay text.
std::vector<CLI::Option*> declare(CLI::App& app, const DeclaredCommand& command) {
  app.set_help_flag();  // --help is an option like the others
  std::vector<CLI::Option*> options;
  for (const DeclaredOption& one : command.options) {
    const std::string names = one.is_argument() ? one.placeholder : fmt::format("{}", fmt::join(one.names, ","));
    CLI::Option* const option = one.is_flag() ? app.add_flag(names) : app.add_option(names);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    if (one.is_argument() && one.repeated) option->expected(-1);  // one or more
    options.push_back(option);
  }
  return options;
}

// What CLI11 did not take, without the mark that only arguments follow.
std::vector<std::string> left_by(const CLI::App& app) {
  std::vector<std::string> left = app.remaining();
  std::erase(left, "--");
  return left;
}

Parsed parsed_by(const CLI::App& app, const std::vector<CLI::Option*>& options) {
  Parsed parsed{.values = {}, .left = left_by(app)};
  for (size_t place = 0; place < options.size(); ++place)
    if (options[place]->count() > 0) parsed.values[place] = options[place]->results();
  return parsed;
}

// "--output: 1 required TEXT missing" said plainly. An unknown option is the likelier cause of whatever else is wrong.
Error not_parsed(const CLI::ParseError& error, const DeclaredCommand& command, const CLI::App& app) {
  if (const auto left = left_by(app); !left.empty()) return left_over(command, left);
  const std::string what = error.what();
  return request_error(what.ends_with(" missing") ? what.substr(0, what.find(':')) + " needs a value" : what,
                       see_help(command));
}

// Checks what needs no reader. An empty value is a common mistake of scripts: a variable that is not set.
void require_understood(const DeclaredCommand& command, const Parsed& parsed) {
  if (!parsed.left.empty()) throw left_over(command, parsed.left);
  for (size_t place = 0; place < command.options.size(); ++place) {
    const DeclaredOption& option = command.options[place];
    const std::vector<std::string>& values = value_in(parsed.values, place);
    const auto refuse = [&](const char* why) {
      throw request_error(fmt::format("{}{}", option.name(), why), see_help(command));
    };
    if (option.required && values.empty()) refuse(" is required");
    if (!option.repeated && !option.is_flag() && values.size() > 1) refuse(" is given more than once");
    if (contains(values, "")) refuse(": the value is empty");
  }
}

Given given_options(const DeclaredCommand& command, const Parsed& parsed) {
  Given given{.command = command.name};
  for (const auto& [place, values] : parsed.values) {
    const DeclaredOption& option = command.options[place];
    if (!option.is_argument() && !(option.is_flag() && values.back() == "false"))
      given.options[option.name()] = values.front();
  }
  return given;
}

}  // namespace

bool DeclaredOption::takes_files() const {
  if (is_argument()) return !words;
  return std::ranges::any_of(std::vector<std::string>{"FILE", "DIR", "PATH", "TABLE"},
                             [&](const std::string& word) { return placeholder.find(word) != std::string::npos; });
}

void OptionSet::add(const std::string& names, DeclaredOption option) {
  option.names = split(names, ',');
  option.group = group_;
  command_.options.push_back(std::move(option));
}

void OptionSet::flag(const std::string& names, bool& value, const std::string& help) {
  add(names, {.help = help, .read = [&value, name = split(names, ',').back()](const std::vector<std::string>& words) {
                value = words.back() == "true";
                if (!value && words.back() != "false")
                  throw request_error(fmt::format("{} is a flag: '{}' is neither true nor false", name, words.back()),
                                      "leave the value out");
              }});
}

void OptionSet::value(const std::string& names, std::string& value, const std::string& placeholder,
                      const std::string& help, WordSource words) {
  this->value(
      names, [&value](const std::string& word, const std::string&) { value = word; }, placeholder,
      value.empty() ? help : fmt::format("{} [{}]", help, value), std::move(words));
}

void OptionSet::value(const std::string& names, Reader read, const std::string& placeholder, const std::string& help,
                      WordSource words) {
  add(names, {.placeholder = placeholder,
              .help = help,
              .words = std::move(words),
              .read = [read = std::move(read), name = split(names, ',').back()](const auto& values) {
                read(values.front(), name);
              }});
}

void OptionSet::number(const std::string& names, std::optional<int64_t>& value, int64_t low, int64_t high,
                       const std::string& help) {
  this->value(
      names,
      [&value, low, high](const std::string& word, const std::string& option) {
        value = parse_integer(word, option, low, high);
      },
      "N", help);
}

void OptionSet::duration(const std::string& names, std::optional<double>& value, const std::string& help,
                         bool may_be_zero) {
  this->value(
      names,
      [&value, may_be_zero](const std::string& word, const std::string& option) {
        value = with_place(Where::of_option(option), [&] { return parse_duration(word, may_be_zero); });
      },
      "TIME", help);
}

void OptionSet::list(const std::string& names, std::vector<std::string>& values, const std::string& placeholder,
                     const std::string& help, WordSource words) {
  add(names, {.placeholder = placeholder,
              .help = help,
              .repeated = true,
              .words = std::move(words),
              .read = [&values](const auto& given) { values = given; }});
}

void OptionSet::list(const std::string& names, Reader read, const std::string& placeholder, const std::string& help,
                     WordSource words) {
  add(names, {.placeholder = placeholder,
              .help = help,
              .repeated = true,
              .words = std::move(words),
              .read = [read = std::move(read), name = split(names, ',').back()](const auto& given) {
                for (const std::string& word : list_words(given, name)) read(word, name);
              }});
}

void OptionSet::argument(const std::string& name, std::string& value, const std::string& help, WordSource words,
                         bool required) {
  command_.options.push_back({.placeholder = name,
                              .help = help,
                              .group = "Arguments",
                              .required = required,
                              .words = std::move(words),
                              .read = [&value](const auto& given) { value = given.front(); }});
}

void OptionSet::arguments(const std::string& name, std::vector<std::string>& values, const std::string& help) {
  command_.options.push_back({.placeholder = name,
                              .help = help,
                              .group = "Arguments",
                              .repeated = true,
                              .required = true,
                              .read = [&values](const auto& given) { values = given; }});
}

WordSource one_of(std::vector<std::string> words) {
  return [words = std::move(words)] { return words; };
}

std::vector<std::string> list_words(const std::vector<std::string>& given, std::string_view option) {
  std::vector<std::string> result;
  for (const std::string& list : given)
    for (const std::string& word : split(list, ',')) {
      if (word.empty())
        throw request_error(fmt::format("the list '{}' has an empty word", list),
                            "write a list as one word, such as 1,16, or in quotes: '1, 16'")
            .at(Where::of_option(option));
      result.push_back(word);
    }
  return result;
}

CommandLine::CommandLine(const std::vector<Command>& commands) : commands_(commands), declared_(1) {
  for (const Command& command : commands_)
    declared_.push_back({std::string(command.name), std::string(command.summary)});
  declared_[0].options.push_back({.names = {"-V", "--version"}});
}

const Command* CommandLine::find_command(std::string_view name) const {
  const auto found = std::ranges::find(commands_, name, &Command::name);
  return found == commands_.end() ? nullptr : &*found;
}

// They come last in the help of each command.
DeclaredCommand CommandLine::with_common_options(DeclaredCommand command) const {
  command.options.push_back({.names = {"-h", "--help"}, .help = "Print this help", .group = "Other"});
  command.options.push_back({.names = {"--color"},
                             .placeholder = "WHEN",
                             .help = kColorHelp,
                             .group = "Other",
                             .words = one_of({"auto", "always", "never"})});
  return command;
}

std::vector<DeclaredCommand> CommandLine::declared() const {
  std::vector<DeclaredCommand> all;
  for (const DeclaredCommand& command : declared_)
    if (const Command* known = find_command(command.name); !known || !known->hidden)
      all.push_back(with_common_options(command));
  return all;
}

std::string CommandLine::manual() const {
  std::string text = fmt::format(
      ".TH MOETUNE 1 \"\" \"moetune {}\"\n.SH NAME\nmoetune \\- tunes the grouped GEMMs of mixture\\-of\\-experts "
      "layers\n",
      build_info().version);
  text += page_roff("DESCRIPTION", main_help(commands_));
  for (const DeclaredCommand& command : declared())
    if (const Command* known = find_command(command.name))
      text += page_roff(fmt::format("moetune {}", command.name), command_help(*known, command));
  return text;
}

Request CommandLine::parse(const std::vector<std::string>& argv, Terminal* terminal) {
  const int width = help_width(look_at_terminal("auto").output_columns);
  std::vector<std::string> words(argv.begin() + (argv.empty() ? 0 : 1), argv.end());
  if (!words.empty() && words[0] == "help") words.erase(words.begin()), words.emplace_back("--help");

  CLI::App app("", "moetune");
  app.allow_extras();
  app.require_subcommand(0, 1);
  std::vector<DeclaredCommand> declared;
  std::vector<CLI::App*> apps;
  std::vector<std::vector<CLI::Option*>> options;
  for (const DeclaredCommand& one : declared_) {
    declared.push_back(with_common_options(one));
    apps.push_back(apps.empty() ? &app : app.add_subcommand(one.name, one.summary));
    options.push_back(declare(*apps.back(), declared.back()));
  }
  const DeclaredCommand& program = declared[0];
  const auto place = [&]() -> size_t {  // of the chosen command; 0 without
    return app.get_subcommands().empty() ? 0 : std::ranges::find(apps, app.get_subcommands()[0]) - apps.begin();
  };
  std::ranges::reverse(words);  // as CLI11 wants them
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    throw not_parsed(error, declared[place()], *apps[place()]);
  }
  const DeclaredCommand& chosen = declared[place()];
  const Command* const command = place() > 0 ? &commands_[place() - 1] : nullptr;
  const Parsed before = parsed_by(app, options[0]);
  const Parsed parsed = command ? parsed_by(*apps[place()], options[place()]) : Parsed{};

  const bool wants_help = before.has(program, "--help") || parsed.has(chosen, "--help");
  if (command && wants_help) return {.text = page_text(command_help(*command, chosen), width)};
  if (!before.left.empty() && !is_option(before.left.front())) {
    std::vector<std::string> names;
    for (const Command& one : commands_)
      if (!one.hidden) names.emplace_back(one.name);
    throw unknown_word("command", before.left.front(), names);
  }
  if (const BuildInfo build = build_info(); before.has(program, "--version"))
    return {.text =
                fmt::format("moetune {} ({}{})\n", build.version, build.commit, build.dirty ? ", with changes" : "")};
  require_understood(program, before);
  if (!command) return {.text = page_text(main_help(commands_), width)};
  require_understood(chosen, parsed);

  Request request{.command = command, .given = given_options(chosen, parsed)};
  for (const Given& given : {given_options(program, before), request.given})
    if (const auto color = given.options.find("--color"); color != given.options.end()) request.color = color->second;
  if (terminal) *terminal = look_at_terminal(request.color);
  for (const auto& [at, values] : parsed.values)
    if (const DeclaredOption& option = chosen.options[at]; option.read) option.read(values);
  return request;
}

}  // namespace moetune
