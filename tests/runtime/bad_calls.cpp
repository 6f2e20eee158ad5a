// Each function of moetune.h with calls that are wrong: all of them return, and say what is wrong. Over a driver
// without a device, on the export of export_main; sanitizers see the library's own code.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "runtime/moetune.h"
#include "temporary_folder.h"

namespace {

void* address(long number) { return reinterpret_cast<void*>(number << 32); }

struct BadCall {
  const char* name;
  std::function<int()> call;
  const char* sentence;  // a part of it
};

class BadCalls : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("FAKE_CUDA_LOG", "/dev/null", 1);
    folder = new moetune::TemporaryFolder;
    ASSERT_EQ(std::system((std::string(MOETUNE_EXPORT_MAIN) + " " + folder->path().string()).c_str()), 0);
    for (moetune_library** one : {&library, &other}) ASSERT_EQ(moetune_open(folder->path().c_str(), 0, one), 0);
    ASSERT_EQ(moetune_pick_layer(library, &up, &down, 16, 0, &up_kernel, &down_kernel), 0) << moetune_error();
    ASSERT_EQ(moetune_pick_layer(other, &up, &down, 16, 0, &other_up, &other_down), 0) << moetune_error();
    ASSERT_EQ(moetune_make_workspace(library, nullptr, 0, 16, &workspace), 0) << moetune_error();
    ASSERT_EQ(moetune_make_workspace(other, nullptr, 0, 16, &other_workspace), 0) << moetune_error();
  }
  static void TearDownTestSuite() {
    for (moetune_workspace* one : {workspace, other_workspace}) moetune_free_workspace(one);
    for (moetune_library* one : {library, other}) moetune_close(one);
    delete folder;
  }
  static void expect_sentences(const std::vector<BadCall>& calls) {
    for (const BadCall& one : calls) {
      EXPECT_NE(one.call(), 0) << one.name;
      EXPECT_NE(std::string(moetune_error()).find(one.sentence), std::string::npos)
          << one.name << ": " << moetune_error();
    }
  }
  // Operands of a launch of up, or of the layer; some may be changed.
  static std::vector<moetune_operand> operands(std::initializer_list<const char*> names) {
    std::vector<moetune_operand> list;
    for (const char* name : names) list.push_back({name, address(1 + std::ssize(list)), -1});
    return list;
  }
  static std::vector<moetune_operand> of_up() { return operands({"x", "w", "y", "m_sizes", "gather_indices"}); }
  static std::vector<moetune_operand> of_layer() {
    return operands({"x", "up", "hidden", "m_sizes", "gather_indices", "down", "y", "topk_weights"});
  }
  static int launch(const std::vector<moetune_operand>& list, moetune_workspace* memory = workspace) {
    return moetune_launch(up_kernel, 16, -1, memory, list.data(), list.size(), nullptr);
  }
  static int launch_layer(const std::vector<moetune_operand>& list) {
    return moetune_launch_layer(up_kernel, down_kernel, 16, -1, workspace, list.data(), list.size(), nullptr);
  }
  static moetune_request with(const char* op, const char* dtype, const char* fusion) {
    return {op, dtype, fusion, 6, 2, 256, 512};
  }

  static constexpr moetune_request up = {"fwd", "bf16", "permute_x+silu", 6, 2, 256, 512};
  static constexpr moetune_request down = {"fwd", "bf16", "permute_y+topk_weights", 6, 2, 512, 128};
  static inline moetune::TemporaryFolder* folder = nullptr;
  static inline moetune_library *library = nullptr, *other = nullptr;
  static inline const moetune_kernel *up_kernel = nullptr, *down_kernel = nullptr, *other_up = nullptr,
                                     *other_down = nullptr;
  static inline moetune_workspace *workspace = nullptr, *other_workspace = nullptr;
};

TEST_F(BadCalls, OfLibraries) {
  moetune_library* opened = nullptr;
  const moetune_served* served = nullptr;
  size_t count = 0;
  expect_sentences({
      {"no folder", [&] { return moetune_open(nullptr, 0, &opened); }, "moetune_open: folder is null"},
      {"nowhere to put it", [&] { return moetune_open(folder->path().c_str(), 0, nullptr); }, "library is null"},
      {"not there", [&] { return moetune_open("/nowhere", 0, &opened); }, "/nowhere/manifest.json"},
      {"an empty name", [&] { return moetune_open("", 0, &opened); }, "manifest.json"},
      {"list of nothing", [&] { return moetune_list(nullptr, &served, &count); }, "moetune_list: library is null"},
      {"list, no list", [&] { return moetune_list(library, nullptr, &count); }, "served is null"},
      {"list, no count", [&] { return moetune_list(library, &served, nullptr); }, "count is null"},
  });
  EXPECT_EQ(opened, nullptr);
  EXPECT_EQ(moetune_device(nullptr), -1);
  EXPECT_STREQ(moetune_kernel_name(nullptr), "");
  EXPECT_STREQ(moetune_kernel_id(nullptr), "");
  EXPECT_EQ(moetune_workspace_bytes(nullptr), 0);
  moetune_close(nullptr);
  moetune_free_workspace(nullptr);
}

TEST_F(BadCalls, OfPicks) {
  const moetune_kernel *first = nullptr, *second = nullptr;
  const moetune_request no_op = with(nullptr, "bf16", "plain"), no_dtype = with("fwd", nullptr, "plain"),
                        no_fusion = with("fwd", "bf16", nullptr), lacking = with("fwd", "bf16", "gather_x");
  const auto pick = [&](const moetune_request* request, int64_t tokens = 16, double skew = 0) {
    return moetune_pick(library, request, tokens, skew, &first);
  };
  const auto layer = [&](const moetune_request* a, const moetune_request* b, int64_t tokens = 16) {
    return moetune_pick_layer(library, a, b, tokens, 0, &first, &second);
  };
  expect_sentences({
      {"no library", [&] { return moetune_pick(nullptr, &up, 16, 0, &first); }, "moetune_pick: library is null"},
      {"no request", [&] { return pick(nullptr); }, "request is null"},
      {"no kernel", [&] { return moetune_pick(library, &up, 16, 0, nullptr); }, "kernel is null"},
      {"no op", [&] { return pick(&no_op); }, "the request's op is null"},
      {"no dtype", [&] { return pick(&no_dtype); }, "the request's dtype is null"},
      {"no fusion", [&] { return pick(&no_fusion); }, "the request's fusion is null"},
      {"not exported", [&] { return pick(&lacking); }, "has no kernel for fwd bf16 gather_x, 6 experts"},
      {"negative", [&] { return pick(&up, -1); }, "tokens must not be negative, found -1"},
      {"skew NaN", [&] { return pick(&up, 16, std::nan("")); }, "skew must be 0"},
      {"skew infinite", [&] { return pick(&up, 16, INFINITY); }, "skew must be 0"},
      {"skew negative", [&] { return pick(&up, 16, -1); }, "skew must be 0"},
      {"layer, no library", [&] { return moetune_pick_layer(nullptr, &up, &down, 16, 0, &first, &second); },
       "moetune_pick_layer: library is null"},
      {"layer, no up", [&] { return layer(nullptr, &down); }, "up is null"},
      {"layer, no down", [&] { return layer(&up, nullptr); }, "down is null"},
      {"layer, no first", [&] { return moetune_pick_layer(library, &up, &down, 16, 0, nullptr, &second); },
       "up_kernel is null"},
      {"layer, no second", [&] { return moetune_pick_layer(library, &up, &down, 16, 0, &first, nullptr); },
       "down_kernel is null"},
      {"layer, no op", [&] { return layer(&up, &no_op); }, "the request's op is null"},
      {"layer, not exported", [&] { return layer(&up, &lacking); }, "has no kernel for"},
      {"layer, negative", [&] { return layer(&up, &down, -1); }, "tokens must not be negative"},
  });
  EXPECT_EQ(first, nullptr);
}

TEST_F(BadCalls, OfNeedsAndWorkspaces) {
  moetune_need needs[1];
  size_t count = 0;
  moetune_workspace* made = nullptr;
  const moetune_request lacking = with("fwd", "bf16", "gather_x"), no_op = with(nullptr, "bf16", "plain");
  const auto make = [&](const moetune_request* request, size_t number, int64_t tokens = 16) {
    return moetune_make_workspace(library, request, number, tokens, &made);
  };
  expect_sentences({
      {"needs, no kernel", [&] { return moetune_needs(nullptr, 16, -1, needs, 1, &count); }, "kernel is null"},
      {"needs, no list", [&] { return moetune_needs(up_kernel, 16, -1, nullptr, 1, &count); }, "needs is null"},
      {"needs, no count", [&] { return moetune_needs(up_kernel, 16, -1, nullptr, 0, nullptr); }, "count is null"},
      {"needs, negative", [&] { return moetune_needs(up_kernel, -1, -1, needs, 1, &count); }, "-1 tokens"},
      {"needs, too many", [&] { return moetune_needs(up_kernel, INT64_MAX, -1, needs, 1, &count); },
       "tokens: expected"},
      {"needs, more rows", [&] { return moetune_needs(up_kernel, 16, 33, needs, 1, &count); }, "33 are more rows"},
      {"no library", [&] { return moetune_make_workspace(nullptr, nullptr, 0, 16, &made); }, "library is null"},
      {"no workspace", [&] { return moetune_make_workspace(library, nullptr, 0, 16, nullptr); }, "workspace is null"},
      {"no requests", [&] { return make(nullptr, 1); }, "requests is null, but count is not 0"},
      {"no op", [&] { return make(&no_op, 1); }, "the request's op is null"},
      {"not exported", [&] { return make(&lacking, 1); }, "has no kernel for fwd bf16 gather_x"},
      {"negative", [&] { return make(&up, 1, -1); }, "-1 tokens"},
      {"too many", [&] { return make(&up, 1, INT64_MAX); }, "tokens: expected"},
      {"reserve, no workspace", [&] { return moetune_reserve(nullptr, &up, 1, 16); }, "workspace is null"},
      {"reserve, no requests", [&] { return moetune_reserve(workspace, nullptr, 1, 16); }, "requests is null"},
      {"reserve, not exported", [&] { return moetune_reserve(workspace, &lacking, 1, 16); }, "has no kernel for"},
      {"reset", [&] { return moetune_reset(nullptr); }, "moetune_reset: workspace is null"},
  });
  EXPECT_EQ(made, nullptr);
}

TEST_F(BadCalls, OfLaunches) {
  const auto changed = [](std::vector<moetune_operand> list, size_t place, moetune_operand to) {
    list[place] = to;
    return list;
  };
  const std::vector<moetune_operand> all = of_up(), layer = of_layer();
  const moetune_operand nameless = {nullptr, address(1), -1};
  std::vector<moetune_operand> summed = layer;
  summed.push_back({"sum", nullptr, -1});
  const auto two = [&](const moetune_kernel* a, const moetune_kernel* b, moetune_workspace* memory) {
    return moetune_launch_layer(a, b, 16, -1, memory, layer.data(), layer.size(), nullptr);
  };
  expect_sentences({
      {"no kernel", [&] { return moetune_launch(nullptr, 16, -1, workspace, all.data(), 1, nullptr); },
       "kernel is null"},
      {"no operands", [&] { return moetune_launch(up_kernel, 16, -1, workspace, nullptr, 5, nullptr); },
       "operands is null, but count is not 0"},
      {"none", [&] { return launch({}); }, "the operand 'x' is missing"},
      {"a nameless one", [&] { return launch(changed(all, 0, nameless)); }, "the operand 'x' is missing"},
      {"null data",
       [&] {
         return launch(changed(all, 1, {"w", nullptr, -1}));
       },
       "the operand 'w' is missing"},
      {"too few bytes",
       [&] {
         return launch(changed(all, 1, {"w", address(2), 8}));
       },
       "'w' has 8 bytes, but needs"},
      {"not aligned",
       [&] {
         return launch(changed(all, 0, {"x", reinterpret_cast<void*>(1), -1}));
       },
       "'x' must begin at a multiple of 16 bytes"},
      {"no workspace", [&] { return launch(all, nullptr); }, "needs a workspace"},
      {"a workspace of another library", [&] { return launch(all, other_workspace); }, "is of another library"},
      {"negative", [&] { return moetune_launch(up_kernel, -16, -1, workspace, all.data(), 5, nullptr); }, "-16 tokens"},
      {"more rows", [&] { return moetune_launch(up_kernel, 16, 99, workspace, all.data(), 5, nullptr); },
       "99 are more rows"},
      {"scaled, no kernel",
       [&] { return moetune_launch_scaled(nullptr, 16, -1, workspace, all.data(), 5, nullptr, nullptr); },
       "kernel is null"},
      {"layer, no up", [&] { return two(nullptr, down_kernel, workspace); }, "up_kernel is null"},
      {"layer, no down", [&] { return two(up_kernel, nullptr, workspace); }, "down_kernel is null"},
      {"layer of two libraries", [&] { return two(up_kernel, other_down, workspace); }, "of two libraries"},
      {"layer, another workspace", [&] { return two(up_kernel, down_kernel, other_workspace); }, "another library"},
      {"layer, no operands",
       [&] { return moetune_launch_layer(up_kernel, down_kernel, 16, -1, workspace, nullptr, 8, nullptr); },
       "operands is null"},
      {"layer, none", [&] { return launch_layer({}); }, "the operand 'x' is missing"},
      {"layer, a nameless one", [&] { return launch_layer(changed(layer, 5, nameless)); }, "'w' is missing"},
      {"layer, null data",
       [&] {
         return launch_layer(changed(layer, 1, {"up", nullptr, -1}));
       },
       "'w' is missing"},
      {"layer, null sum", [&] { return launch_layer(summed); }, "sum"},
  });
  EXPECT_EQ(launch(all), 0) << moetune_error();
  EXPECT_EQ(launch_layer(layer), 0) << moetune_error();
}

TEST_F(BadCalls, OfServices) {
  const moetune_choice good = {64, 4, 1, 1, 0, 1, 1.0f};
  const auto choose = [&](const moetune_choice& how, int64_t tokens = 16, const char* dtype = "bf16") {
    return moetune_choose(library, &how, tokens, dtype, address(1), nullptr, address(2), address(3), nullptr);
  };
  const auto choice = [&](auto change) {
    moetune_choice how = good;
    change(how);
    return choose(how);
  };
  const auto route = [&](int64_t experts, int64_t slots, int64_t first, int64_t rows, int id_bytes = 4) {
    return moetune_route(library, experts, slots, first, rows, id_bytes, address(1), address(2), address(3), nullptr);
  };
  const auto reorder = [&](const char* format, int64_t n, int64_t k, int gates = 0, void* scales = address(2)) {
    return moetune_reorder(library, format, 6, n, k, gates, address(1), scales, nullptr, address(3), address(4),
                           nullptr);
  };
  expect_sentences({
      {"reorder, no scales", [&] { return reorder("mxfp4-reordered", 256, 512, 0, nullptr); }, "w_scales is null"},
      {"reorder, no format", [&] { return reorder(nullptr, 256, 512); }, "format is null"},
      {"reorder, a format that is not exported", [&] { return reorder("int4-group32-reordered", 256, 512); },
       "has no kernel that reads int4-group32-reordered"},
      {"reorder, no zero points", [&] { return reorder("uint4-group32-reordered", 256, 512); }, "w_zeros is null"},
      {"reorder, 0 columns", [&] { return reorder("mxfp4-reordered", 256, 0); }, "must be 1 or more"},
      {"reorder, half a group", [&] { return reorder("mxfp4-reordered", 256, 48); }, "multiple of 32"},
      {"reorder, 3 gates", [&] { return reorder("mxfp4-reordered", 256, 512, 3); }, "gates are 0"},
      {"reorder, half a gate", [&] { return reorder("mxfp4-reordered", 24, 512, 1); }, "multiple of 16"},
      {"choose, no library",
       [&] { return moetune_choose(nullptr, &good, 1, "bf16", nullptr, nullptr, nullptr, nullptr, nullptr); },
       "moetune_choose: library is null"},
      {"choose, no choice",
       [&] { return moetune_choose(library, nullptr, 1, "bf16", nullptr, nullptr, nullptr, nullptr, nullptr); },
       "how is null"},
      {"choose, no dtype", [&] { return choose(good, 16, nullptr); }, "logits are bf16, fp16 or fp32"},
      {"choose, another dtype", [&] { return choose(good, 16, "fp8"); }, "not fp8"},
      {"choose, negative", [&] { return choose(good, -1); }, "0 to 2^31 - 1 tokens"},
      {"choose, too many", [&] { return choose(good, INT64_MAX); }, "0 to 2^31 - 1 tokens"},
      {"choose, 0 experts", [&] { return choice([](auto& how) { how.experts = 0; }); }, "1 to 1024 experts"},
      {"choose, 1025 experts", [&] { return choice([](auto& how) { how.experts = 1025; }); }, "1 to 1024 experts"},
      {"choose, 0 groups", [&] { return choice([](auto& how) { how.groups = 0; }); }, "1 to 32 groups"},
      {"choose, groups that don't divide", [&] { return choice([](auto& how) { how.groups = 3; }); }, "1 to 32 groups"},
      {"choose, top_k 0", [&] { return choice([](auto& how) { how.top_k = 0; }); }, "top_k is 1 to 32"},
      {"choose, no logits",
       [&] { return moetune_choose(library, &good, 1, "bf16", nullptr, nullptr, address(2), address(3), nullptr); },
       "'logits' is missing"},
      {"route, no library",
       [&] { return moetune_route(nullptr, 8, 8, 0, 8, 4, address(1), address(2), address(3), nullptr); },
       "moetune_route: library is null"},
      {"route, 10^6 experts", [&] { return route(1'000'000, 64, 0, 64); }, "at most 65536 experts"},
      {"route, 0 experts", [&] { return route(0, 64, 0, 64); }, "must not be negative"},
      {"route, negative rows", [&] { return route(8, 64, 0, -1); }, "must not be negative"},
      {"route, 2^31 slots", [&] { return route(8, int64_t{1} << 31, 0, 64); }, "at most 2^31 - 1"},
      {"route, 2^31 rows", [&] { return route(8, 64, 0, int64_t{1} << 31); }, "at most 2^31 - 1"},
      {"route, first expert 2^63 - 1", [&] { return route(8, 64, INT64_MAX, 64); }, "at most 2^31 - 1"},
      {"route, ids of 2 bytes", [&] { return route(8, 64, 0, 64, 2); }, "4 or 8 bytes"},
      {"route, no ids", [&] { return moetune_route(library, 8, 8, 0, 8, 4, nullptr, address(2), address(3), nullptr); },
       "'topk_ids' is missing"},
  });
  EXPECT_EQ(route(65536, 64, 0, 64), 0) << moetune_error();
  EXPECT_EQ(reorder("mxfp4-reordered", 256, 512, 2), 0) << moetune_error();
}

}  // namespace
