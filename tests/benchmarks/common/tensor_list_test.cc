#include "brigade/benchmarks/common/tensor_list.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "gtest/gtest.h"

namespace brigade::benchmarks {
namespace {

void ExpectToFit(const TensorList& list, int64_t elements, int64_t alignment) {
  EXPECT_EQ(std::accumulate(list.sizes().begin(), list.sizes().end(), int64_t{0}), elements);
  for (const int role : {0, 1}) {
    int64_t end = 0;
    const auto offsets = list.Offsets(role);
    for (size_t i = 0; i < offsets.size(); ++i) {
      ASSERT_GE(list.sizes()[i], 1);
      ASSERT_GE(offsets[i], end);
      ASSERT_EQ(offsets[i] % alignment, 0);
      end = offsets[i] + list.sizes()[i];
    }
    EXPECT_LE(end, list.extent());
  }
}

TEST(TensorListTest, AMixedListHasAllElementsOnceInItsExtent) {
  const TensorList list = TensorList::Mixed(100, 1 << 18);
  EXPECT_EQ(list.sizes().size(), 100);
  ExpectToFit(list, 1 << 18, 1);
}

TEST(TensorListTest, AGptIsAThousandTensorsWithMostElementsInMatrices) {
  for (const int64_t elements : {1'000'000, 100'000'000, 1'000'000'000}) {
    SCOPED_TRACE(elements);
    const TensorList list = TensorList::Gpt(elements);
    ASSERT_EQ(list.sizes().size(), 1000);
    ExpectToFit(list, elements, 128);
    const int64_t width = list.sizes().back();
    EXPECT_EQ(width % 8, 0);
    EXPECT_EQ(std::count(list.sizes().begin(), list.sizes().end(), 4 * width * width), 2 * 83);
    EXPECT_LT(list.sizes()[0], 0.5 * static_cast<double>(elements));
  }
  EXPECT_EQ(TensorList::Gpt(1'000'000'000).sizes().back(), 968);
}

}  // namespace
}  // namespace brigade::benchmarks
