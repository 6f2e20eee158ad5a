// CLI11 as a parser of texts, with errors that name the nearest word.
#include "cli/options/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <deque>

#include "base/embedded.h"
#include "base/text/units.h"
#include "cli/commands/command.h"
#include "cli/text/help.h"

namespace moetune {

// The parsers, and what CLI11 has no place for: what options complete to, and what reads their values.
struct Apps {
  CLI::App main;
  std::vector<CLI::App*> commands;
  std::string color = "auto";
  bool version = false;
  std::map<const CLI::Option*, WordSource> words;
  std::map<const CLI::Option*, Reader> readers;
  std::map<const CLI::Option*, bool*> flags;
  std::deque<std::string> values;  // of options with a reader
  std::deque<std::vector<std::string>> lists;
};

namespace {

constexpr const char* kColorHelp = "auto, always or never";

void declare_color(CLI::App& app, std::string& color, std::map<const CLI::Option*, WordSource>& words) {
  CLI::Option* option = app.add_option("--color", color, kColorHelp)->type_name("WHEN")->group("Other");
  words[option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)] = one_of({"auto", "always", "never"});
}

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

// "-o", "--output"; none for an argument.
std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  if (option.get_positional()) return names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

std::string see_help(const CLI::App& app) {
  const std::string name = app.get_parent() ? "moetune " + app.get_name() : "moetune";
  return fmt::format("see '{} --help'", name);
}

// A value is missing only behind the last word.
std::string without_value(const CLI::App& app, const std::string& last) {
  const std::string word = last.substr(0, last.find('='));
  const CLI::Option* option = app.get_option_no_throw(word);
  return fmt::format("{} needs a value", option ? option->get_name() : word);
}

void read_flags(const std::map<const CLI::Option*, bool*>& flags, const CLI::App& app) {
  for (const auto& [option, value] : flags) try {
      if (option->count() > 0) *value = option->as<bool>();
    } catch (const CLI::ConversionError&) {
      throw request_error(fmt::format("{} is a flag: '{}' is neither true nor false", option->get_name(),
                                      fmt::join(option->results(), ",")),
                          see_help(app));
    }
}

void require_once(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options())
    if (option->get_expected_max() == 1 && option->count() > 1)
      throw request_error(fmt::format("{} is given more than once", option->get_name()), see_help(app));
}

// Throws where there are words but no command: the first is a mistyped command, unless it is an option.
void require_command(const std::vector<Command>& commands, const std::vector<std::string>& extras) {
  if (extras.empty() || extras.front().starts_with('-')) return;
  std::vector<std::string> names;
  for (const Command& command : commands)
    if (!command.hidden) names.emplace_back(command.name);
  throw unknown_word("command", extras.front(), names);
}

// The words behind the program's name. "help tune" is "tune --help".
std::vector<std::string> arguments_of(const std::vector<std::string>& argv) {
  std::vector<std::string> words(argv.begin() + (argv.empty() ? 0 : 1), argv.end());
  if (words.empty() || words[0] != "help") return words;
  words.erase(words.begin());
  words.emplace_back("--help");
  return words;
}

std::string long_name(const CLI::Option& option) { return "--" + option.get_lnames().at(0); }

// An empty value is a common mistake of scripts: a variable that is not set.
Given given_options(const CLI::App& app) {
  Given given{.command = app.get_name()};
  for (const CLI::Option* option : app.get_options())
    for (const std::string& value : option->results()) {
      if (value.empty()) throw request_error(fmt::format("{}: the value is empty", option->get_name()), see_help(app));
      const bool off = option->get_expected_max() == 0 && value == "false";
      if (!option->get_positional() && !off) given.options.try_emplace(long_name(*option), value);
    }
  return given;
}

void read_values(const CLI::App& app, const std::map<const CLI::Option*, Reader>& readers) {
  for (const CLI::Option* option : app.get_options()) {
    const auto read = readers.find(option);
    if (read == readers.end()) continue;
    const bool list = option->get_expected_max() > 1;
    for (const std::string& word : list ? list_words(option->results(), long_name(*option)) : option->results())
      read->second(word, long_name(*option));
  }
}

// The error for what an app did not understand.
Error left_over(const CLI::App& app, const std::vector<std::string>& extras) {
  const auto option =
      std::ranges::find_if(extras, [](const std::string& word) { return word.size() > 1 && word[0] == '-'; });
  if (option == extras.end())
    return request_error(fmt::format("unexpected argument '{}'", extras.front()), see_help(app));
  const std::string word = option->substr(0, option->find('='));
  std::vector<std::string> known;
  for (const CLI::Option* one : app.get_options()) std::ranges::copy(names_of(*one), std::back_inserter(known));
  const std::string near = nearest(word, known);
  return request_error(fmt::format("unknown option '{}'", word),
                       near.empty() ? see_help(app) : fmt::format("did you mean '{}'?", near));
}

bool takes_files(const std::string& placeholder) {
  return std::ranges::any_of(std::vector<std::string>{"FILE", "DIR", "PATH", "TABLE"},
                             [&](const std::string& word) { return placeholder.find(word) != std::string::npos; });
}

DeclaredOption declared_option(const CLI::Option& option, const WordSource& words) {
  const bool positional = option.get_positional();
  std::string placeholder = positional ? option.get_name(true) : option.get_type_name();
  if (!positional && option.get_expected_max() == 0) placeholder.clear();  // a flag
  return {.names = names_of(option),
          .placeholder = placeholder,
          .help = option.get_description(),
          .repeated = option.get_expected_max() > 1,
          .files = positional ? !words : takes_files(placeholder),
          .words = words ? words() : std::vector<std::string>()};
}

// "-o, --output FILE", with dots where it may be given more than once; an argument's name alone.
std::string help_name(const CLI::Option& option) {
  const DeclaredOption declared = declared_option(option, {});
  return fmt::format("{}{}{}{}", fmt::join(declared.names, ", "),
                     declared.names.empty() || declared.placeholder.empty() ? "" : " ", declared.placeholder,
                     declared.repeated ? " ..." : "");
}

// Versions of CLI11 lay help out differently, and none knows the width of a terminal.
HelpPage command_help(const Command& command, const CLI::App& app) {
  std::string usage = fmt::format("Usage: moetune {} [OPTIONS]", command.name);
  std::vector<HelpSection> sections;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) usage += " " + help_name(*option);
    const std::string title = option->get_positional() ? "Arguments" : option->get_group();
    auto section = std::ranges::find_if(sections, [&](const auto& s) { return s.title == title; });
    if (section == sections.end()) section = sections.insert(sections.end(), {title, {}});
    section->lines.push_back({help_name(*option), option->get_description()});
  }
  std::stable_partition(sections.begin(), sections.end(), [](const auto& s) { return s.title == "Arguments"; });
  return {.summary = std::string(command.summary), .usage = usage, .sections = sections, .examples = command.examples};
}

}  // namespace

void OptionSet::flag(const std::string& names, bool& value, const std::string& help) {
  apps_.flags[app_.add_flag(names, help)->group(group_)] = &value;
}

void OptionSet::value(const std::string& names, std::string& value, const std::string& placeholder,
                      const std::string& help, WordSource words) {
  const std::string full = value.empty() ? help : fmt::format("{} [{}]", help, value);
  CLI::Option* option = app_.add_option(names, value, full)->type_name(placeholder)->group(group_);
  apps_.words[option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)] = std::move(words);
}

void OptionSet::value(const std::string& names, Reader read, const std::string& placeholder, const std::string& help,
                      WordSource words) {
  value(names, apps_.values.emplace_back(), placeholder, help, std::move(words));
  apps_.readers[app_.get_options().back()] = std::move(read);
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
      [&value, may_be_zero](const std::string& word, const std::string&) { value = parse_duration(word, may_be_zero); },
      "TIME", help);
}

void OptionSet::list(const std::string& names, std::vector<std::string>& values, const std::string& placeholder,
                     const std::string& help, WordSource words) {
  // One value each time: "--model a TABLE" must not swallow the argument behind it.
  apps_.words[app_.add_option(names, values, help)->type_name(placeholder)->group(group_)->allow_extra_args(false)] =
      std::move(words);
}

void OptionSet::list(const std::string& names, Reader read, const std::string& placeholder, const std::string& help,
                     WordSource words) {
  list(names, apps_.lists.emplace_back(), placeholder, help, std::move(words));
  apps_.readers[app_.get_options().back()] = std::move(read);
}

void OptionSet::argument(const std::string& name, std::string& value, const std::string& help, WordSource words,
                         bool required) {
  apps_.words[app_.add_option(name, value, help)->type_name("")->required(required)] = std::move(words);
}

void OptionSet::arguments(const std::string& name, std::vector<std::string>& values, const std::string& help) {
  app_.add_option(name, values, help)->type_name("")->required();
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

CommandLine::CommandLine(const std::vector<Command>& commands) : commands_(commands), apps_(new Apps) {
  CLI::App& main = apps_->main;
  main.name("moetune");
  main.allow_extras();
  main.require_subcommand(0, 1);
  apps_->flags[main.add_flag("-V,--version")] = &apps_->version;
  declare_color(main, apps_->color, apps_->words);
  for (const Command& command : commands_)
    apps_->commands.push_back(main.add_subcommand(std::string(command.name), std::string(command.summary)));
}

CommandLine::~CommandLine() = default;

OptionSet CommandLine::options(size_t index) { return OptionSet(*apps_, *apps_->commands.at(index)); }

// It comes last in the help of each command.
void CommandLine::declare_what_all_have() {
  for (CLI::App* app : apps_->commands) {
    if (app->get_option_no_throw("--color")) break;
    app->set_help_flag("-h,--help", "Print this help")->group("Other");
    declare_color(*app, apps_->color, apps_->words);
  }
}

std::vector<DeclaredCommand> CommandLine::declared() {
  declare_what_all_have();
  const auto all = [&](const CLI::App& app, std::string name, std::string summary) {
    DeclaredCommand command{std::move(name), std::move(summary), {}};
    for (const CLI::Option* option : app.get_options()) {
      const auto words = apps_->words.find(option);
      command.options.push_back(declared_option(*option, words == apps_->words.end() ? WordSource{} : words->second));
    }
    return command;
  };
  std::vector<DeclaredCommand> result = {all(apps_->main, "", "")};
  for (size_t i = 0; i < commands_.size(); ++i)
    if (!commands_[i].hidden)
      result.push_back(all(*apps_->commands[i], std::string(commands_[i].name), std::string(commands_[i].summary)));
  return result;
}

std::string CommandLine::manual() {
  declare_what_all_have();
  std::string text = fmt::format(
      ".TH MOETUNE 1 \"\" \"moetune {}\"\n.SH NAME\nmoetune \\- tunes the grouped GEMMs of mixture\\-of\\-experts "
      "layers\n",
      build_info().version);
  text += page_roff("DESCRIPTION", main_help(commands_));
  for (size_t i = 0; i < commands_.size(); ++i)
    if (!commands_[i].hidden)
      text += page_roff(fmt::format("moetune {}", commands_[i].name), command_help(commands_[i], *apps_->commands[i]));
  return text;
}

Request CommandLine::parse(const std::vector<std::string>& argv) {
  const int width = help_width(look_at_terminal("auto").output_columns);
  CLI::App& main = apps_->main;
  declare_what_all_have();
  std::vector<std::string> reversed = arguments_of(argv);
  std::ranges::reverse(reversed);  // as CLI11 wants them
  const auto chosen = [&]() -> const CLI::App& {
    return main.get_subcommands().empty() ? main : *main.get_subcommands().front();
  };
  const auto command = [&] {
    return std::ranges::find_if(commands_, [&](const Command& one) { return one.name == chosen().get_name(); });
  };
  try {
    main.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    if (command() != commands_.end()) return {.text = page_text(command_help(*command(), chosen()), width)};
    require_command(commands_, main.remaining());
    return {.text = page_text(main_help(commands_), width)};
  } catch (const CLI::ParseError& error) {
    // An unknown option is the likelier cause of whatever else is wrong.
    if (const auto extras = chosen().remaining(); !extras.empty()) throw left_over(chosen(), extras);
    const bool missing = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ArgumentMismatch);
    throw request_error(missing ? without_value(chosen(), argv.back()) : error.what(), see_help(chosen()));
  }
  read_flags(apps_->flags, chosen());
  if (const BuildInfo build = build_info(); apps_->version)
    return {.text =
                fmt::format("moetune {} ({}{})\n", build.version, build.commit, build.dirty ? ", with changes" : "")};
  require_command(commands_, main.remaining());
  for (const CLI::App* app : std::initializer_list<const CLI::App*>{&main, &chosen()}) {
    if (const auto extras = app->remaining(); !extras.empty()) throw left_over(*app, extras);
    require_once(*app);
  }
  if (command() == commands_.end()) return {.text = page_text(main_help(commands_), width)};
  const Given given = given_options(chosen());
  read_values(chosen(), apps_->readers);
  return {.command = &*command(), .given = given, .color = apps_->color};
}

}  // namespace moetune
