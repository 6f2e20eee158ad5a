// Cutting up command lines, and the nearest word for what isn't known.
#include "cli/options/options.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "cli/commands/command.h"

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
    tune.flag("--resume", values.resume, "Continue");
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
  Error error_of(const std::vector<std::string>& words) {
    try {
      parse(words);
    } catch (const Error& error) {
      return error;
    }
    return Error(Exit::yes, "no error");
  }
};

TEST(CommandLine, HelpIsAWordToo) {
  EXPECT_EQ(Program().parse({"help", "tune"}).text, Program().parse({"tune", "--help"}).text);
  EXPECT_EQ(Program().parse({"help"}).text, Program().parse({}).text);
  for (const std::vector<std::string>& words : {std::vector<std::string>{"help", "tnue"}, {"tnue", "--help"}}) {
    EXPECT_STREQ(Program().error_of(words).what(), "unknown command 'tnue'");
    EXPECT_EQ(Program().error_of(words).hint(), "did you mean 'tune'?");
  }
  EXPECT_EQ(Program().parse({"-V"}).text, Program().parse({"--version"}).text);
  EXPECT_TRUE(Program().parse({"-V"}).text.starts_with("moetune "));
}

TEST(CommandLine, RefusesEmptyValues) {
  EXPECT_STREQ(Program().error_of({"tune", "-o", ""}).what(), "--output: the value is empty");
  EXPECT_STREQ(Program().error_of({"tune", "--model", "x", "--model", ""}).what(), "--model: the value is empty");
  EXPECT_STREQ(Program().error_of({"check", ""}).what(), "TABLE: the value is empty");
  EXPECT_EQ(Program().error_of({"tune", "-o", ""}).exit(), Exit::request);
}

TEST(CommandLine, FlagsTakeTrueAndFalseAlone) {
  const Error error = Program().error_of({"tune", "--resume=maybe"});
  EXPECT_STREQ(error.what(), "--resume is a flag: 'maybe' is neither true nor false");
  EXPECT_EQ(error.exit(), Exit::request);
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
}

TEST(CommandLine, NegativeNumbersAreValues) {
  Program program;
  program.parse({"tune", "--output", "-4"});
  EXPECT_EQ(program.values.output, "-4");
}

TEST(CommandLine, AnArgumentMayBeCalledLikeACommand) {
  Program program;
  EXPECT_EQ(program.parse({"check", "tune"}).command->name, "check");
  EXPECT_EQ(program.values.file, "tune");
}

TEST(CommandLine, NothingAtAllIsHelp) {
  Program program;
  const Request request = program.parse({});
  EXPECT_EQ(request.command, nullptr);
  EXPECT_NE(request.text.find("Commands:"), std::string::npos);
  EXPECT_NE(request.text.find("Exit codes:"), std::string::npos);
  EXPECT_EQ(request.text.find("worker"), std::string::npos);
}

TEST(CommandLine, HelpOfACommandEndsWithItsExamples) {
  Program program;
  const std::string text = program.parse({"tune", "--help"}).text;
  EXPECT_NE(text.find("--output"), std::string::npos);
  EXPECT_NE(text.find("[table.json]"), std::string::npos);
  EXPECT_NE(text.find("Examples:\n  moetune tune --model x"), std::string::npos);
}

TEST(CommandLine, UnknownOptionTellsTheNearest) {
  Program program;
  const Error error = program.error_of({"tune", "--modle", "x"});
  EXPECT_STREQ(error.what(), "unknown option '--modle'");
  EXPECT_EQ(error.hint(), "did you mean '--model'?");
  EXPECT_EQ(error.exit(), Exit::request);
  EXPECT_EQ(program.error_of({"tune", "--modle=x"}).hint(), "did you mean '--model'?");
}

TEST(CommandLine, UnknownOptionWithNothingNear) {
  Program program;
  EXPECT_EQ(program.error_of({"tune", "--zzzzzzz"}).hint(), "see 'moetune tune --help'");
}

TEST(CommandLine, UnknownCommandTellsTheNearest) {
  Program program;
  const Error error = program.error_of({"tnue", "--model", "x"});
  EXPECT_STREQ(error.what(), "unknown command 'tnue'");
  EXPECT_EQ(error.hint(), "did you mean 'tune'?");
}

TEST(CommandLine, HiddenCommandsAreNotSuggested) {
  Program program;
  EXPECT_EQ(program.error_of({"workre"}).hint(), "one of: tune, check");
}

TEST(CommandLine, OptionsBeforeTheCommand) {
  Program program;
  EXPECT_STREQ(program.error_of({"--resume", "tune"}).what(), "unknown option '--resume'");
}

TEST(CommandLine, WordsTooMany) {
  Program program;
  EXPECT_STREQ(program.error_of({"tune", "stray"}).what(), "unexpected argument 'stray'");
}

TEST(CommandLine, MissingArgumentOrValue) {
  Program program;
  EXPECT_STREQ(program.error_of({"check"}).what(), "TABLE is required");
  EXPECT_STREQ(program.error_of({"tune", "--output"}).what(), "--output needs a value");
}

TEST(CommandLine, AValueTwice) {
  Program program;
  EXPECT_STREQ(program.error_of({"tune", "-o", "a", "-o", "b"}).what(), "--output is given more than once");
}

TEST(CommandLine, ColorAnywhere) {
  EXPECT_EQ(Program().parse({"tune"}).color, "auto");
  EXPECT_EQ(Program().parse({"tune", "--color", "never"}).color, "never");
  EXPECT_EQ(Program().parse({"--color=always", "tune"}).color, "always");
}

}  // namespace
}  // namespace moetune
