// What is known of GPUs by their names.
#include <gtest/gtest.h>

#include "backend/cuda/cuda_backend.h"

namespace moetune {
namespace {

TEST(Roof, IsOfTheGpuThatTheNameMeans) {
  EXPECT_EQ(peaks_of("NVIDIA H200").bandwidth, 4.8e12);
  EXPECT_EQ(peaks_of("NVIDIA GH200 480GB").bandwidth, 4.0e12);
  EXPECT_EQ(peaks_of("NVIDIA H100 80GB HBM3").bandwidth, 3.35e12);
  EXPECT_EQ(peaks_of("NVIDIA H100 NVL").bandwidth, 3.9e12);
  EXPECT_EQ(peaks_of("NVIDIA A100-SXM4-80GB").flops, 312e12);
  EXPECT_EQ(peaks_of("NVIDIA GeForce RTX 4090").bandwidth, 1.008e12);
}

TEST(Roof, IsNoneWhereOnlyAPartOfAWordIsKnown) {
  EXPECT_EQ(peaks_of("NVIDIA RTX A1000").flops, 0);
  EXPECT_EQ(peaks_of("NVIDIA H2000").flops, 0);
  EXPECT_EQ(peaks_of("NVIDIA L400").bandwidth, 0);
  EXPECT_EQ(peaks_of("").flops, 0);
}

}  // namespace
}  // namespace moetune
