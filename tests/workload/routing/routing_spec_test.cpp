// The words for routings: defaults, ranges, errors, and text that parses back.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "error_of.h"
#include "temporary_folder.h"
#include "workload/routing/routing.h"

namespace moetune {
namespace {

using Numbers = std::vector<double>;

Caught spec_refusal(std::string_view text) {
  return error_of([&] { parse_routing(text); });
}

TEST(ParseRouting, ReadsNameAndNumbers) {
  EXPECT_EQ(parse_routing("zipf:1.5"), (RoutingSpec{"zipf", {1.5}, "", ""}));
  EXPECT_EQ(parse_routing("hot:4:0.9"), (RoutingSpec{"hot", {4, 0.9}, "", ""}));
  EXPECT_EQ(parse_routing("uniform"), (RoutingSpec{"uniform", {}, "", ""}));
}
TEST(ParseRouting, FillsDefaults) {
  EXPECT_EQ(parse_routing("zipf").parameters, Numbers{1});
  EXPECT_EQ(parse_routing("powerlaw").parameters, Numbers{1.2});
  EXPECT_EQ(parse_routing("hot:8").parameters, (Numbers{8, 0.9}));
  EXPECT_EQ(parse_routing("grouped").parameters, (Numbers{8, 4}));
  EXPECT_EQ(parse_routing("zipf"), parse_routing("zipf:1.0"));
}
TEST(ParseRouting, SplitsTracesAtTheLastHash) {
  EXPECT_EQ(parse_routing("trace:loads.json#3"), (RoutingSpec{"trace", {}, "loads.json", "3"}));
  EXPECT_EQ(parse_routing("trace:a/b:c.json"), (RoutingSpec{"trace", {}, "a/b:c.json", ""}));
  EXPECT_EQ(parse_routing("trace:a#b.json#layer 7"), (RoutingSpec{"trace", {}, "a#b.json", "layer 7"}));
}
TEST(ParseRouting, WantsAFileOfATrace) {
  for (const char* text : {"trace", "trace:", "trace:#3"}) {
    EXPECT_NE(spec_refusal(text).what.find("names no file"), std::string::npos) << text;
    EXPECT_EQ(spec_refusal(text).hint, "write trace:FILE#LAYER");
  }
}
TEST(ParseRouting, SuggestsTheNearestName) {
  EXPECT_EQ(spec_refusal("zipff:1").what, "unknown routing 'zipff'");
  EXPECT_EQ(spec_refusal("zipff:1").hint, "did you mean 'zipf'?");
  EXPECT_EQ(spec_refusal("trcae:x").hint, "did you mean 'trace'?");
}
TEST(ParseRouting, NamesWrongNumbers) {
  EXPECT_EQ(spec_refusal("zipf:x").what, "routing 'zipf:x': a: 'x' is not a number");
  EXPECT_EQ(spec_refusal("zipf:").what, "routing 'zipf:': a: '' is not a number");
  EXPECT_EQ(spec_refusal("zipf:-1").what, "routing 'zipf:-1': a is -1, outside 0 to 10");
  EXPECT_EQ(spec_refusal("zipf:nan").what, "routing 'zipf:nan': a: 'nan' is not a number");
  EXPECT_EQ(spec_refusal("hot:2.5:0.5").what, "routing 'hot:2.5:0.5': k is 2.5, expected a whole number");
  EXPECT_EQ(spec_refusal("hot:4:1.1").what, "routing 'hot:4:1.1': p is 1.1, outside 0 to 1");
  EXPECT_EQ(spec_refusal("maxmean:0.9").what, "routing 'maxmean:0.9': R is 0.9, outside 1 to 100000");
}
TEST(ParseRouting, RefusesNumbersTooMany) {
  EXPECT_EQ(spec_refusal("zipf:1:2").what, "routing 'zipf:1:2' has too many numbers");
  EXPECT_EQ(spec_refusal("zipf:1:2").hint, "write zipf:a");
  EXPECT_EQ(spec_refusal("uniform:1").hint, "write uniform");
  EXPECT_EQ(spec_refusal("").what, "the routing is empty");
}

TEST(RoutingText, ParsesBackToTheSameSpec) {
  for (const char* text_in : {"balanced", "uniform", "zipf:1.0", "zipf:0.1", "powerlaw:1.01", "lognormal",
                              "dirichlet:1.1", "maxmean:7", "hot:4:0.875", "grouped:8:4", "single", "trace:a/b.json",
                              "trace:a.npy#0", "trace:a#b.json#", "trace:a#b.json#c"}) {
    const RoutingSpec spec = parse_routing(text_in);
    EXPECT_EQ(parse_routing(text(spec)), spec) << text_in;
    EXPECT_EQ(text(parse_routing(text(spec))), text(spec));
  }
}
TEST(RoutingText, IsShort) {
  EXPECT_EQ(text(parse_routing("zipf:1.000")), "zipf:1");
  EXPECT_EQ(text(parse_routing("zipf:-0")), "zipf:0");
  EXPECT_EQ(text(parse_routing("zipf:0.30000000000000004")), "zipf:0.30000000000000004");
  EXPECT_EQ(text(parse_routing("hot")), "hot:4:0.9");
  EXPECT_EQ(text(RoutingSpec{"trace", {}, "a#b.json", ""}), "trace:a#b.json#");
}

TEST(RoutingKinds, ListsEveryKindWithItsUsage) {
  std::vector<std::string> usages;
  for (const RoutingKind& kind : routing_kinds()) {
    usages.push_back(kind.usage);
    EXPECT_TRUE(kind.usage.starts_with(kind.name));
    EXPECT_FALSE(kind.description.empty());
    EXPECT_TRUE(kind.name == "trace" || kind.name == "shared" || parse_routing(kind.name).name == kind.name);
  }
  EXPECT_EQ(usages, (std::vector<std::string>{"balanced", "uniform", "zipf:a", "powerlaw:a", "lognormal:s",
                                              "dirichlet:f", "maxmean:R", "hot:k:p", "grouped:g:t", "single",
                                              "trace:FILE[#LAYER]", "shared:S:ROUTING"}));
}
TEST(RoutingKinds, NameRangesAndDefaults) {
  const std::vector<RoutingKind> kinds = routing_kinds();
  EXPECT_TRUE(kinds.at(2).description.ends_with("; a 0 to 10, 1 unless given")) << kinds.at(2).description;
}

TEST(RoutingSpec, NamesOfFilesAndLayersCanBeShown) {
  for (const char* text : {"trace:a\x1b.json", "trace:a.json#l\n1", "trace:\xff.npy"}) {
    const auto error = error_of([&] { parse_routing(text); });
    EXPECT_EQ(error.exit, Exit::request);
    EXPECT_NE(error.what.find("the name has characters that cannot be printed"), std::string::npos) << error.what;
  }
}

TEST(RoutingSpec, SharedExpertsStandBeforeTheRouting) {
  const RoutingSpec spec = parse_routing("shared:1:zipf");
  EXPECT_EQ(spec.shared, 1);
  EXPECT_EQ(text(spec), "shared:1:zipf:1");
  EXPECT_NE(spec, parse_routing("zipf"));
  EXPECT_EQ(parse_routing("shared"), parse_routing("shared:1:uniform"));
  for (const char* text : {"shared:1", "shared:0:uniform", "shared:1:shared:1:uniform"})
    EXPECT_EQ(error_of([&] { parse_routing(text); }).exit, Exit::request) << text;
}

TEST(RoutingSpec, AFileThatIsThereMayHoldTheLayersMark) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "my tr#1.json").string();
  const auto error = error_of([&] { parse_routing("trace:" + path); });
  EXPECT_EQ(error.what, "routing 'trace:" + path + "': there is no file '" + path +
                            "', and what follows the last '#' names a layer");
  EXPECT_EQ(error.hint, "for a file that isn't there yet write trace:" + path + "#");
  std::ofstream(path) << "{}";
  const RoutingSpec whole{"trace", {}, path, ""};
  EXPECT_EQ(parse_routing("trace:" + path), whole);
  EXPECT_EQ(parse_routing(text(whole)), whole);
  EXPECT_EQ(parse_routing("trace:" + path + "#3"), (RoutingSpec{"trace", {}, path, "3"}));
}

}  // namespace
}  // namespace moetune
