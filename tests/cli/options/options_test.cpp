// Cutting up command lines, and the nearest word for what isn't known.
#include "cli/options/options.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cli/commands/command.h"
#include "error_of.h"

namespace moetune {
namespace {

struct Held {
  std::string output = "table.json", file;
  std::vector<std::string> models;
  bool resume = false;
};

// A program of two commands: tune with options, check with an argument.
struct Program {
  std::vector<Command> commands;
  CommandLine line;
  Held values;

  Program() : commands(make()), line(commands) {
    OptionSet tune = line.options(0);
    tune.value("-o,--output", values.output, "FILE", "The table");
    tune.list("--model", values.models, "NAME", "A model");
    tune.flag("-r,--resume", values.resume, "Continue");
    OptionSet check = line.options(1);
    check.argument("TABLE", values.file, "A table");
  }
  static std::vector<Command> make() {
    Command tune, check, worker;
    tune.name = "tune", tune.summary = "Tune", tune.examples = "  moetune tune --model x";
    check.name = "check", check.summary = "Check";
    worker.name = "worker", worker.hidden = true;
    return {tune, check, worker};
  }
  Request parse(std::vector<std::string> words) {
    words.insert(words.begin(), "moetune");
    return line.parse(words);
  }
};

// "what (hint)" of the error of a command line.
std::string refusal(const std::vector<std::string>& words) {
  const Caught caught = error_of([&] { Program().parse(words); });
  EXPECT_EQ(caught.exit, Exit::request);
  return fmt::format("{} ({})", caught.what, caught.hint);
}

TEST(CommandLine, StoresValues) {
  Program untouched, program;
  untouched.parse({"tune"});
  EXPECT_EQ(untouched.values.output, "table.json");
  EXPECT_FALSE(untouched.values.resume);
  const Request request = program.parse({"tune", "-o", "a.json", "--model", "x", "--model=y", "--resume"});
  ASSERT_NE(request.command, nullptr);
  EXPECT_EQ(request.command->name, "tune");
  EXPECT_EQ(program.values.output, "a.json");
  EXPECT_EQ(program.values.models, (std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(program.values.resume);
  EXPECT_EQ(request.given.options,
            (std::map<std::string, std::string>{{"--output", "a.json"}, {"--model", "x"}, {"--resume", "true"}}));
  program.parse({"tune", "-oshort", "--resume=false"});
  EXPECT_EQ(program.values.output, "short");
  EXPECT_FALSE(program.values.resume);
  program.parse({"tune", "-ro", "both"});
  EXPECT_EQ(program.values.output, "both");
  EXPECT_TRUE(program.values.resume);
  program.parse({"tune", "--resume=false"});
  EXPECT_FALSE(program.values.resume);
  program.parse({"tune", "--output", "-4"});  // negative numbers are values
  EXPECT_EQ(program.values.output, "-4");
  program.parse({"check", "--", "--file"});
  EXPECT_EQ(program.values.file, "--file");
  EXPECT_EQ(program.parse({"check", "tune"}).command->name, "check");
  EXPECT_EQ(program.values.file, "tune") << "an argument may have the name of a command";
}

TEST(CommandLine, HelpAndVersion) {
  EXPECT_EQ(Program().parse({"help", "tune"}).text, Program().parse({"tune", "--help"}).text);
  EXPECT_EQ(Program().parse({"help"}).text, Program().parse({}).text);
  EXPECT_EQ(Program().parse({"-V"}).text, Program().parse({"--version"}).text);
  EXPECT_TRUE(Program().parse({"-V"}).text.starts_with("moetune "));
  const std::string all = Program().parse({}).text, tune = Program().parse({"tune", "--help"}).text;
  EXPECT_TRUE(holds(all, "Commands:") && holds(all, "Exit codes:") && !holds(all, "worker"));
  EXPECT_TRUE(holds(tune, "-o, --output FILE") && holds(tune, "[table.json]"));
  EXPECT_TRUE(holds(tune, "Examples:\n  moetune tune --model x"));
}

TEST(CommandLine, RefusesWithTheRemedy) {
  const std::string see = " (see 'moetune tune --help')", off = " (leave the value out)";
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"tune", "-o", ""}, "--output: the value is empty" + see},
      {{"tune", "--model", "x", "--model", ""}, "--model: the value is empty" + see},
      {{"check", ""}, "TABLE: the value is empty (see 'moetune check --help')"},
      {{"tune", "--resume=maybe"}, "--resume is a flag: 'maybe' is neither true nor false" + off},
      {{"tune", "--modle", "x"}, "unknown option '--modle' (did you mean '--model'?)"},
      {{"tune", "--modle=x"}, "unknown option '--modle' (did you mean '--model'?)"},
      {{"tune", "--zzzzzzz"}, "unknown option '--zzzzzzz'" + see},
      {{"--resume", "tune"}, "unknown option '--resume' (see 'moetune --help')"},
      {{"tnue", "--model", "x"}, "unknown command 'tnue' (did you mean 'tune'?)"},
      {{"help", "tnue"}, "unknown command 'tnue' (did you mean 'tune'?)"},
      {{"tnue", "--help"}, "unknown command 'tnue' (did you mean 'tune'?)"},
      {{"workre"}, "unknown command 'workre' (one of: tune, check)"},  // hidden commands are not suggested
      {{"tune", "stray"}, "unexpected argument 'stray'" + see},
      {{"check"}, "TABLE is required (see 'moetune check --help')"},
      {{"tune", "--output"}, "--output needs a value" + see},
      {{"tune", "-o", "a", "-o", "b"}, "--output is given more than once" + see}};
  for (const auto& [words, error] : cases) EXPECT_EQ(refusal(words), error);
}

TEST(CommandLine, ColorAnywhere) {
  EXPECT_EQ(Program().parse({"tune"}).color, "auto");
  EXPECT_EQ(Program().parse({"tune", "--color", "never"}).color, "never");
  EXPECT_EQ(Program().parse({"--color=always", "tune"}).color, "always");
}

}  // namespace
}  // namespace moetune
