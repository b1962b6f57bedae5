// Low-rank factors on a GPU against the same calls on the CPU, which other tests hold to the
// specification: every byte of memory must agree, so nothing is written beside its place either.

#include <vector>

#include "brigade/kernels/orthogonalize/orthogonalize.h"
#include "brigade/tests/kernels/gpu/both_devices.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using precision::DType;

struct Lists {
  std::vector<LowRankSegment> factors;
  std::vector<OrthogonalizeSegment> matrices;
};

Lists Lay(char* base) {
  Layout layout(base);
  Lists lists;
  const auto add = [&](int64_t rows, int64_t columns, int32_t rank, int64_t offset) {
    LowRankSegment s = {};
    s.rows = rows;
    s.columns = columns;
    s.rank = rank;
    s.matrix = layout.Take<float>(rows * columns, offset);
    s.p = layout.Take<float>(rows * rank, offset);
    s.q = layout.Take<float>(columns * rank, offset % 3);
    s.product = layout.Take<float>(rows * columns, offset % 2);
    s.workspace = layout.Take<float>(LowRankWorkspaceSize(rows, columns, rank));
    lists.factors.push_back(s);
    lists.matrices.push_back({layout.Take<float>(rows * rank, offset), rows, rank});
  };
  // Whole groups and edges, one tile of rows and several, more columns of a factor than a thread
  // has sums of.
  add(64, 128, 4, 0);
  add(31, 256, 1, 0);
  add(0, 8, 2, 0);
  add(33, 4, 3, 1);
  add(257, 260, 5, 0);
  add(600, 129, 9, 2);
  add(7, 1000, 8, 4);
  add(1030, 3, 2, 3);
  add(1, 1, 1, 1);
  add(20, 300, 33, 0);
  // More than one launch holds.
  for (int i = 0; i < 1010; ++i) add(1 + i % 5, 1 + i % 3, 1, i % 4);
  return lists;
}

void Prepare(char* base) {
  const Lists lists = Lay(base);
  uint32_t seed = 80;
  for (const LowRankSegment& s : lists.factors) {
    FillFloats(s.matrix, DType::kFloat32, s.rows * s.columns, ++seed);
    FillFloats(s.p, DType::kFloat32, s.rows * s.rank, ++seed);
    FillFloats(s.q, DType::kFloat32, s.columns * s.rank, ++seed);
  }
  for (const OrthogonalizeSegment& s : lists.matrices) {
    FillFloats(s.matrix, DType::kFloat32, s.rows * s.columns, ++seed);
  }
}

TEST(LowRankGpuTest, OrthogonalizeGivesTheCpusBits) {
  const BeforeAndAfter memory =
      ExpectSameOnBoth("orthogonalize", Prepare, [](char* base, device::Stream& stream) {
        return Orthogonalize(Lay(base).matrices, {}, stream);
      });
  EXPECT_FALSE(memory.after == memory.before);
}

TEST(LowRankGpuTest, RowsGiveTheCpusBits) {
  const BeforeAndAfter memory = ExpectSameOnBoth(
      "rows", Prepare,
      [](char* base, device::Stream& stream) { return LowRankRows(Lay(base).factors, stream); });
  EXPECT_FALSE(memory.after == memory.before);
}

TEST(LowRankGpuTest, ColumnsGiveTheCpusBits) {
  const BeforeAndAfter memory = ExpectSameOnBoth(
      "columns", Prepare,
      [](char* base, device::Stream& stream) { return LowRankColumns(Lay(base).factors, stream); });
  EXPECT_FALSE(memory.after == memory.before);
}

TEST(LowRankGpuTest, RestoreGivesTheCpusBits) {
  const BeforeAndAfter memory = ExpectSameOnBoth(
      "restore", Prepare,
      [](char* base, device::Stream& stream) { return LowRankRestore(Lay(base).factors, stream); });
  EXPECT_FALSE(memory.after == memory.before);
}

}  // namespace
}  // namespace brigade::kernels
