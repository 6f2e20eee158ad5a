// Which winners a search begins with.
#include "tune/search/strategy.h"

#include <gtest/gtest.h>

#include "built_in.h"
#include "tune/fake_backend.h"

namespace moetune {
namespace {

Entry entry(Cell cell, int block_m) {
  Entry e;
  e.figures = figures(make_problem(cell).routing);
  e.cell = std::move(cell);
  e.candidate = parse_candidate("cpu block_m=" + std::to_string(block_m) + " block_n=64 block_k=64 threads=1");
  return e;
}

std::vector<int> begun_with(const Cell& cell, const std::vector<Entry>& entries, bool* near = nullptr) {
  std::vector<const Entry*> pointers;
  for (const Entry& e : entries) pointers.push_back(&e);
  const WarmStart start = warm_start(make_problem(cell), pointers);
  if (near) *near = start.near;
  std::vector<int> blocks;
  for (const Candidate& candidate : start.candidates) blocks.push_back(*find_value(candidate, "block_m"));
  return blocks;
}

TEST(WarmStart, TheNearestRowsFirst) {
  bool near = false;
  const std::vector<Entry> entries = {entry(fake::small_cell(1024), 12), entry(fake::small_cell(48), 24),
                                      entry(fake::small_cell(256), 48)};
  EXPECT_EQ(begun_with(fake::small_cell(64), entries, &near), (std::vector<int>{24, 48, 12}));
  EXPECT_TRUE(near);
  EXPECT_EQ(begun_with(fake::small_cell(96), {entries[1]}, &near), (std::vector<int>{24}));
  EXPECT_FALSE(near);
}

TEST(WarmStart, AnotherShapeIsFartherAndNeverNear) {
  Cell wide = fake::small_cell(64);
  wide.shape.layer.n *= 2;
  bool near = true;
  EXPECT_EQ(begun_with(fake::small_cell(64), {entry(wide, 12)}, &near), std::vector<int>{12});
  EXPECT_FALSE(near);
  EXPECT_EQ(begun_with(fake::small_cell(64), {entry(wide, 12), entry(fake::small_cell(96), 24)}),
            (std::vector<int>{24, 12}));
}

TEST(WarmStart, NothingOfAnotherOpOrWidthOrWithoutAWinner) {
  Cell dx = fake::small_cell(64), fp32 = dx;
  dx.shape.op = Op::dx, fp32.shape.layer.format = find_format("fp32");
  Entry skipped = entry(fake::small_cell(64), 12);
  skipped.skipped = "out of memory";
  EXPECT_TRUE(begun_with(fake::small_cell(64), {entry(dx, 12), entry(fp32, 24), skipped}).empty());
}

TEST(WarmStart, TwelveAtMostEachOnce) {
  std::vector<Entry> entries;
  for (int tokens = 16; tokens <= 16 * 16; tokens += 16)
    entries.push_back(entry(fake::small_cell(tokens), tokens / 16 * 12));
  entries.push_back(entry(fake::small_cell(64), 48));
  EXPECT_EQ(begun_with(fake::small_cell(64), entries).size(), 12u);
  EXPECT_EQ(begun_with(fake::small_cell(64), entries).front(), 48);
}

}  // namespace
}  // namespace moetune
