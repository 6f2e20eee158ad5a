// Files of constants: what is read, what is refused, and that models use them.
#include "variant/cost.h"

#include <gtest/gtest.h>

#include "base/embedded.h"
#include "built_in.h"
#include "error_of.h"
#include "h200.h"

namespace moetune {
namespace {

Json constants_of(const std::string& name) {
  return parse_json(*embedded_file("configs/cost/" + name + ".json"), name);
}

TEST(Constants, AreThoseOfTheModel) {
  Json missing = constants_of("wgmma"), other = missing, zero = missing;
  missing["constants"].erase("launch");
  other["variant"] = "simt";
  zero["constants"]["launch"]["value"] = 0;
  const auto error = [](const Json& json) {
    return error_of([&] { constants_from_json(JsonAt(json, "cost.json")); }).what;
  };
  EXPECT_EQ(error(missing), "cost.json: constants: 'launch' is missing");
  EXPECT_NE(error(other).find("cost.json: variant"), std::string::npos);
  EXPECT_NE(error(zero).find("cost.json: constants.launch.value"), std::string::npos);
}

TEST(Constants, GoIntoTheVariant) {
  Shape shape;
  shape.layer = {.model = "custom", .experts = 64, .top_k = 4, .n = 2048, .k = 2048};
  const Problem problem = make_problem({.shape = shape, .tokens = 64, .routing = parse_routing("uniform"), .seed = 0});
  for (const std::string name : {"mma", "wgmma"}) {
    Json slower = constants_of(name);
    slower["constants"]["launch"]["value"] = 1.0;
    const Variant& before = find_variant(name);
    const VariantPtr after = with_constants(JsonAt(slower, name));
    const Candidate candidate = before.fallback(problem, h200());
    EXPECT_NEAR(after->seconds(candidate, problem, h200()), 1 + before.seconds(candidate, problem, h200()), 1e-4);
    EXPECT_EQ(after->fallback(problem, h200()), candidate);
  }
}

}  // namespace
}  // namespace moetune
