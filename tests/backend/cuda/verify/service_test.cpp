// The kernels around a measured one compile for every dtype without a GPU.
#include "backend/cuda/verify/service.h"

#include <gtest/gtest.h>

namespace moetune {
namespace {

class ServiceUnit : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Arch, ServiceUnit, testing::Values("sm_80", "sm_90a"),
                         [](const auto& test) { return test.param; });

TEST_P(ServiceUnit, CompilesForEveryDtypeWithoutSpills) {
  const std::string units[] = {service_unit(Dtype::bf16), service_unit(Dtype::fp16), service_unit(Dtype::fp32),
                               service_unit(Dtype::fp8),  service_unit(Dtype::int8), service_unit(Dtype::int4)};
  const CompilerOptions options{.arch = GetParam(), .sources = kernel_sources(), .cache = false};
  const std::vector<CompiledUnit> compiled = compile_units(units, options);
  for (const CompiledUnit& unit : compiled) {
    EXPECT_EQ(unit.result.status, Status::ok) << unit.result.reason << unit.log;
    EXPECT_EQ(unit.result.spill_bytes, 0);
    for (const char* kernel : {"fill", "dequantise"}) EXPECT_NE(unit.cubin.find(kernel), std::string::npos) << kernel;
    for (const char* kernel : {"move_rows", "narrow_rows", "compare", "sum_squares", "fill_weights"})
      EXPECT_EQ(unit.cubin.find(kernel) == std::string::npos, &unit == &compiled.back()) << kernel;  // of 4 bits
  }
}

// What exports hold beside their kernels, for the oldest and the newest architecture: launches begin early from sm_90
// on.
TEST(ServiceUnitOfExports, CompilesWithoutSpills) {
  const std::string unit = route_unit();
  for (const std::string arch : {"sm_75", "sm_90a", "sm_120a"}) {
    const CompiledUnit compiled =
        compile_units({&unit, 1}, {.arch = arch, .sources = kernel_sources(), .cache = false}).front();
    EXPECT_EQ(compiled.result.status, Status::ok) << arch << ": " << compiled.log;
    for (const char* kernel : {"choose", "route_int32", "route_int64", "sum_bf16", "sum_fp16"})
      EXPECT_NE(compiled.cubin.find(kernel), std::string::npos) << arch << ": " << kernel;
  }
}

}  // namespace
}  // namespace moetune
