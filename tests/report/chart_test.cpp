// Charts: where points lie, what is left out, and that texts stay texts.
#include "report/report_content.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <regex>

namespace moetune {
namespace {

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

Chart chart(std::vector<ChartPoint> points) {
  return {.description = "times",
          .x = {.label = "tokens", .logarithmic = true},
          .y = {.label = "µs", .logarithmic = true},
          .series = {{.style = 0, .points = std::move(points)}}};
}

// The places of the first line, as numbers x, y, x, y, ...
std::vector<double> places(const std::string& picture) {
  std::smatch line;
  EXPECT_TRUE(std::regex_search(picture, line, std::regex("class=\"line\" d=\"([^\"]*)\"")));
  std::vector<double> numbers;
  const std::string path = line[1];
  const std::regex number("[0-9.]+");
  for (std::sregex_iterator at(path.begin(), path.end(), number), end; at != end; ++at)
    numbers.push_back(std::stod(at->str()));
  return numbers;
}

TEST(Chart, PointsOfALogarithmicScaleAreEvenlySpaced) {
  const std::vector<double> at = places(svg(chart({{1, {10}}, {16, {100}}, {256, {1000}}})));
  ASSERT_EQ(at.size(), 6u);
  EXPECT_NEAR(at[2] - at[0], at[4] - at[2], 0.11);
  EXPECT_NEAR(at[1] - at[3], at[3] - at[5], 0.11);
  EXPECT_GT(at[1], at[5]);  // larger is higher
}

TEST(Chart, AllPointsLieInThePicture) {
  for (const bool logarithmic : {false, true}) {
    Chart all = chart({{1, {3}}, {7, {1e6}}, {8192, {0.002}}});
    all.x.logarithmic = all.y.logarithmic = logarithmic;
    const std::vector<double> at = places(svg(all));
    for (size_t i = 0; i < at.size(); i += 2) {
      EXPECT_TRUE(at[i] >= 50 && at[i] <= 348) << at[i];
      EXPECT_TRUE(at[i + 1] >= 12 && at[i + 1] <= 200) << at[i + 1];
    }
  }
}

TEST(Chart, DrawsPointsBeyondTheScaleAsArrows) {
  Chart within = chart({{1, {1}}, {2, {2}}, {3, {3}}}), beyond = chart({{1, {1}}, {2, {2}}, {3, {50}}});
  within.y.max = beyond.y.max = 3;
  within.y.min = beyond.y.min = 0.5;
  EXPECT_EQ(places(svg(beyond)), places(svg(within)));
  EXPECT_NE(svg(beyond), svg(within));  // an arrow
  beyond.y.max = 0;
  EXPECT_NE(places(svg(beyond)), places(svg(within)));
}

TEST(Chart, TicksThatComeFirstAreKept) {
  Chart ratios = chart({{1, {0.85}}, {2, {1.2}}});
  ratios.y.ticks = {1, 0.98, 1.02};
  EXPECT_EQ(count(svg(ratios), ">1<"), 1 + 1);  // of y and of x
  EXPECT_EQ(count(svg(ratios), ">0.98<"), 0);
}

TEST(Chart, PointsWithoutAPlaceAreLeftOut) {
  const double nan = std::nan(""), infinite = std::numeric_limits<double>::infinity();
  const std::string picture = svg(chart({{1, {10}}, {2, {nan}}, {4, {0}}, {8, {infinite}}, {16, {-3}}, {32, {20}}}));
  EXPECT_EQ(count(picture, "<title>"), 2);
  EXPECT_EQ(count(picture, "nan"), 0);
  EXPECT_EQ(count(picture, "inf"), 0);
  EXPECT_EQ(svg(chart({})), "");
  EXPECT_EQ(svg(chart({{0, {1}}, {1, {nan}}})), "");
}

TEST(Chart, LeavesOutAbsurdValues) {
  for (const bool logarithmic : {false, true})
    for (const double absurd : {1e302, 1e308, std::numeric_limits<double>::max()}) {
      Chart all = chart({{1, {10, 9, absurd}, "first"}, {2, {20}}, {3, {absurd}}, {absurd, {30}}});
      all.x.logarithmic = all.y.logarithmic = logarithmic;
      const std::string picture = svg(all);
      EXPECT_EQ(count(picture, "<title>"), 2) << absurd;
      EXPECT_EQ(count(picture, "nan") + count(picture, "inf"), 0) << absurd;
      EXPECT_LT(picture.size(), 4000u) << absurd;
      EXPECT_TRUE(std::regex_search(picture, std::regex("M[0-9.]+ [0-9.]+V1[0-9.]+\""))) << picture;  // cut at the top
    }
}

TEST(Chart, TicksOfALargeScaleHaveRoom) {
  const std::string picture = svg(chart({{1, {1e-28}}, {2, {1e28}}}));
  EXPECT_LE(count(picture, "text-anchor=\"end\""), 12);
  EXPECT_EQ(count(svg(chart({{1, {1e29}}, {2, {std::nextafter(1e29, 1e30)}}})), "nan"), 0);
}

TEST(Chart, OnePointHasScalesToo) {
  for (const double value : {1e-9, 1.0, 0.5, 989.0, 1e12}) {
    const std::string picture = svg(chart({{16, {value}}}));
    EXPECT_EQ(count(picture, "nan"), 0) << value;
    EXPECT_EQ(count(picture, "inf"), 0) << value;
    EXPECT_GE(count(picture, "text-anchor=\"end\""), 1) << value;  // a tick of y
  }
}

TEST(Chart, ANarrowLogarithmicRangeHasTicks) {
  const std::string picture = svg(chart({{16, {410}}, {4096, {460}}}));
  EXPECT_GE(count(picture, "text-anchor=\"end\""), 3);
}

TEST(Chart, TicksOffTheScaleAndThoseTooCloseAreLeftOut) {
  Chart all = chart({{16, {1}}, {4096, {2}}});
  all.x.ticks = {1, 16, 17, 256, 4096, 65536};
  const std::string picture = svg(all);
  for (const char* tick : {">16<", ">256<", ">4096<"}) EXPECT_EQ(count(picture, tick), 1) << tick;
  for (const char* tick : {">17<", ">65536<"}) EXPECT_EQ(count(picture, tick), 0) << tick;
}

TEST(Chart, IntervalsAreDrawnAndKeptInThePicture) {
  const std::string without = svg(chart({{1, {10}}, {2, {20}}}));
  const std::string with = svg(chart({{1, {10, 5, 80}}, {2, {20}}}));
  EXPECT_EQ(count(with, "class=\"line\""), count(without, "class=\"line\"") + 1);
  EXPECT_NE(places(with), places(without));
}

TEST(Chart, TextsStayTexts) {
  const std::string hostile = "</svg><script>alert(1)</script>\" onload='x'";
  Chart all = chart({{1, {10}, hostile}});
  all.description = all.x.label = all.y.label = hostile;
  const std::string picture = svg(all);
  EXPECT_EQ(count(picture, "<script"), 0);
  EXPECT_EQ(count(picture, "</svg>"), 1);
  EXPECT_EQ(count(picture, "\" onload"), 0);
  EXPECT_GE(count(picture, "&lt;script&gt;"), 3);
}

TEST(Sample, LooksLikeTheMarkersOfItsStyle) {
  EXPECT_EQ(count(svg_sample(0), "class=\"s0\""), 1);
  EXPECT_EQ(count(svg_sample(8), "class=\"s0 hollow\""), 1);
}

TEST(Chart, LabelsOfTicksLieWithinThePicture) {
  const std::string picture = svg(chart({{1, {5}}, {300, {800}}, {768, {900}}}));
  const std::regex label("<text x=\"([0-9.]+)\" y=\"[0-9]+\" text-anchor=\"middle\">([0-9]+)</text>");
  int found = 0;
  for (std::sregex_iterator it(picture.begin(), picture.end(), label), end; it != end; ++it, ++found)
    EXPECT_LE(std::stod((*it)[1]) + 4 * static_cast<double>((*it)[2].length()), 360) << it->str();
  EXPECT_GE(found, 2);
}

}  // namespace
}  // namespace moetune
