// .npy headers, honest and hostile, elements, and the recordings in them.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "error_of.h"
#include "workload/routing/recording.h"

namespace moetune {
namespace {

using Ints = std::vector<int32_t>;

std::string number(uint64_t value, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

// A file as numpy.save writes it: the header is padded to a multiple of 64 bytes.
std::string npy(const std::string& descr, const std::string& shape, const std::string& data, bool fortran = false,
                int version = 1) {
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}", descr, fortran ? "True" : "False", shape);
  const size_t length_bytes = version == 1 ? 2 : 4;
  while ((8 + length_bytes + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  return "\x93NUMPY" + number(static_cast<uint64_t>(version), 1) + number(0, 1) + number(header.size(), length_bytes) +
         header + data;
}

std::string elements(const std::vector<int64_t>& values, size_t bytes) {
  std::string data;
  for (const int64_t value : values) data += number(static_cast<uint64_t>(value), bytes);
  return data;
}

std::string header_refusal(const std::string& bytes) {
  return error_of([&] { read_npy(bytes, "t.npy"); }).what;
}

class NpyTypes : public testing::TestWithParam<std::tuple<const char*, size_t>> {};
TEST_P(NpyTypes, AreDecoded) {
  const auto [descr, bytes] = GetParam();
  const std::string file = npy(descr, "(2, 2)", elements({0, 100, 7, -2}, bytes));
  const NpyArray array = read_npy(file, "t.npy");
  EXPECT_EQ(element(array, file, 1), 100);
  EXPECT_EQ(element(array, file, 2), 7);
  const bool is_signed = descr[1] == 'i';
  EXPECT_EQ(element(array, file, 3), is_signed || bytes == 8 ? -2 : (int64_t{1} << (8 * bytes)) - 2);
}
INSTANTIATE_TEST_SUITE_P(Types, NpyTypes,
                         testing::Values(std::tuple{"|u1", 1}, std::tuple{"|i1", 1}, std::tuple{"<u2", 2},
                                         std::tuple{"<i2", 2}, std::tuple{"<u4", 4}, std::tuple{"<i4", 4},
                                         std::tuple{"<u8", 8}, std::tuple{"<i8", 8}));

TEST(Npy, ReadsAllVersions) {
  for (const int version : {1, 2, 3})
    EXPECT_EQ(read_npy(npy("<i2", "(1, 3)", elements({1, 2, 3}, 2), false, version), "t.npy").shape,
              (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(header_refusal(npy("<i2", "(1,)", elements({1}, 2), false, 4)), "t.npy: .npy format version 4 is unknown");
}
TEST(Npy, RefusesOtherTypes) {
  for (const char* descr : {">i2", "<f4", "|O", "|b1", "<c8", "<i3"}) {
    const Caught error = error_of([&] { read_npy(npy(descr, "(1,)", "12345678"), "t.npy"); });
    EXPECT_EQ(error.what, fmt::format("t.npy: elements of type '{}' are not whole numbers that moetune reads", descr));
    EXPECT_EQ(error.hint, "save it with array.astype('<i4')");
  }
}
TEST(Npy, RefusesRecordTypes) {
  std::string file = npy("<i2", "(1,)", "12");
  const size_t at = file.find("'<i2'");
  file.replace(at, 5, "[('a', '<i2')]");
  EXPECT_EQ(error_of([&] { read_npy(file, "t"); }).exit, Exit::request);
}
TEST(Npy, NamesACutFileAtEveryByte) {
  const std::string whole = npy("<i4", "(2, 3)", elements({1, 2, 3, 4, 5, 6}, 4));
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_EQ(error_of([&] { read_npy(whole.substr(0, size), "t"); }).exit, Exit::request) << size;
  EXPECT_EQ(header_refusal(whole.substr(0, whole.size() - 1)),
            "t.npy: a shape of (2, 3) asks for 24 bytes of data, the file has 23");
  EXPECT_EQ(header_refusal(whole.substr(0, 40)), "t.npy: the file ends within its header");
  EXPECT_EQ(header_refusal(whole.substr(0, 5)), "t.npy: expected a .npy file");
}
TEST(Npy, RefusesDataThatAreTooMuch) {
  EXPECT_EQ(header_refusal(npy("|u1", "(2,)", "123")),
            "t.npy: a shape of (2) asks for 2 bytes of data, the file has 3");
}
TEST(Npy, RefusesHostileShapesWithoutAllocating) {
  EXPECT_EQ(header_refusal(npy("<i8", "(4611686018427387904, 4)", "")),
            "t.npy: a shape of (4611686018427387904, 4) asks for too many bytes of data, the file has 0");
  EXPECT_EQ(header_refusal(npy("<i8", "(1000000000, 1000000)", "x")),
            "t.npy: a shape of (1000000000, 1000000) asks for 8000000000000000 bytes of data, the file has 1");
  for (const char* shape : {"(-1,)", "(99999999999999999999,)", "(1, x)", "7", "(1,1,1,1,1,1,1,1,1)", "("})
    EXPECT_EQ(header_refusal(npy("|u1", shape, "1")), "t.npy: the shape in the .npy header cannot be read") << shape;
}
TEST(Npy, RefusesHeadersThatLackAKey) {
  std::string file = npy("|u1", "(1,)", "1");
  file.replace(file.find("shape"), 5, "shope");
  EXPECT_EQ(header_refusal(file), "t.npy: the .npy header has no 'shape'");
  file = npy("|u1", "(1,)", "1");
  file.replace(file.find("False"), 5, "Maybe");
  EXPECT_EQ(header_refusal(file), "t.npy: the array is in Fortran order");
  file = npy("|u1", "(1,)", "1");
  EXPECT_EQ(error_of([&] { read_npy("\x93NUMPY\x02" + number(0, 1) + number(0xffffffff, 4) + "{}", "t.npy"); }).what,
            "t.npy: the file ends within its header");
}

// ---- recordings

Trace read_array(const std::string& bytes, int64_t experts = 0, int64_t top_k = 0) {
  return trace_from_npy(bytes, "t.npy", experts, top_k);
}
std::string npy_refusal(const std::string& bytes, int64_t experts = 0, int64_t top_k = 0) {
  return error_of([&] { read_array(bytes, experts, top_k); }).what;
}

TEST(NpyTrace, ReadsTokensLayersAndSlots) {
  // [3 tokens, 3 layers, 2 slots]
  const std::vector<int64_t> values = {0, 1, 2, 3, 4, 5, 6, 7, 3, 2, 5, 0, 1, 2, 3, 4, 5, 6};
  const Trace trace = read_array(npy("<i2", "(3, 3, 2)", elements(values, 2)));
  EXPECT_EQ(trace.experts, 8);
  EXPECT_EQ(trace.top_k, 2);
  ASSERT_EQ(trace.layers.size(), 3u);
  EXPECT_EQ(trace.layers[0].topk_ids, (Ints{0, 1, 6, 7, 1, 2}));
  EXPECT_EQ(trace.layers[1].topk_ids, (Ints{2, 3, 3, 2, 3, 4}));
  EXPECT_EQ(trace.layers[2].name, "2");
  EXPECT_EQ(trace.layers[2].tokens, 3);
}
TEST(NpyTrace, RefusesFortranOrderWithTheRemedy) {
  const Caught error = error_of([] { read_array(npy("|u1", "(1, 2)", elements({0, 1}, 1), true)); });
  EXPECT_EQ(error.what, "t.npy: the array is in Fortran order");
  EXPECT_EQ(error.hint, "save it with numpy.ascontiguousarray(array)");
}
TEST(NpyTrace, ReadsTwoDimensionsAsOneLayer) {
  const Trace trace = read_array(npy("<i8", "(3, 2)", elements({0, 1, 1, 2, 2, 0}, 8)), 16, 2);
  ASSERT_EQ(trace.layers.size(), 1u);
  EXPECT_EQ(trace.experts, 16);
  EXPECT_EQ(trace.layers[0].m_sizes.size(), 16u);
}
TEST(NpyTrace, RefusesWhatDoesNotFit) {
  const std::string file = npy("<i2", "(2, 2)", elements({0, 1, 9, 2}, 2));
  EXPECT_EQ(npy_refusal(file, 8, 2), "t.npy: expert 9 is recorded, but the layer has 8 experts");
  EXPECT_EQ(npy_refusal(file, 16, 4), "t.npy: top_k: the recording has 2, the layer 4");
  EXPECT_EQ(npy_refusal(npy("<i2", "(2, 2)", elements({0, 1, 3, 3}, 2))), "t.npy: layer 0: token 1 has expert 3 twice");
}
TEST(NpyTrace, AsksWhetherLayersComeFirst) {
  const Caught error = error_of([] { read_array(npy("|u1", "(1, 2, 2)", elements({0, 1, 2, 3}, 1))); });
  EXPECT_EQ(error.what, "t.npy: a shape of (1, 2, 2) may be [layers, tokens, top_k] or [tokens, layers, top_k]");
  EXPECT_NE(error.hint.find("save array.transpose(1, 0, 2)"), std::string::npos) << error.hint;
}
TEST(NpyTrace, NamesZeroExperts) {
  const Caught error = error_of([] { read_array(npy("|u1", "(1, 2)", elements({1, 9}, 1)), 8, 2); });
  EXPECT_NE(error.hint.find("add --zero-experts 2"), std::string::npos) << error.hint;
}
TEST(NpyTrace, NamesPaddingAndHugeIds) {
  const Caught error = error_of([] { read_array(npy("<i2", "(2, 2, 2)", elements({0, 1, 3, -1, 0, 1, 2, 3}, 2))); });
  EXPECT_EQ(error.what, "t.npy: token 0, layer 1, slot 1: -1 is not an expert");
  EXPECT_EQ(error.hint, "-1 often pads: leave those tokens out");
  EXPECT_EQ(npy_refusal(npy("<i8", "(1, 1)", elements({int64_t{1} << 40}, 8))),
            "t.npy: token 0, layer 0, slot 0: 1099511627776 is not an expert");
  EXPECT_EQ(npy_refusal(npy("<u8", "(1, 1)", elements({-5}, 8))),
            "t.npy: token 0, layer 0, slot 0: -5 is not an expert");
}
TEST(Npy, CountsTheElementsOfAShape) {
  EXPECT_EQ(header_refusal(npy("|u1", "(4294967296, 4294967296, 4294967296)", "12")),
            "t.npy: a shape of (4294967296, 4294967296, 4294967296) asks for too many bytes of data, the file has 2");
  EXPECT_EQ(header_refusal(npy("|u1", "(0, 4294967296)", "12")),
            "t.npy: a shape of (0, 4294967296) asks for 0 bytes of data, the file has 2");
}
TEST(NpyTrace, RefusesOtherDimensionsAndNothing) {
  EXPECT_EQ(npy_refusal(npy("|u1", "(2,)", "12")), "t.npy: has 1 dimensions");
  EXPECT_EQ(npy_refusal(npy("|u1", "(1, 1, 1, 1)", "1")), "t.npy: has 4 dimensions");
  EXPECT_EQ(npy_refusal(npy("|u1", "(0, 4)", "")), "t.npy: a shape of (0, 4) records nothing");
  EXPECT_EQ(npy_refusal(npy("|u1", "(1025, 1025, 1)", std::string(1025 * 1025, '\1'))),
            "t.npy: 1025 layers, moetune takes at most 1024");
  EXPECT_EQ(npy_refusal(npy("|u1", "()", "1")), "t.npy: has 0 dimensions");
}

}  // namespace
}  // namespace moetune
