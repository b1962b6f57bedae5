// The figures of the ZeRO paper's table, which it gives rounded. (Rajbhandari et al. 2020, arXiv
// 1910.02054, table 1.)

#include "brigade/zero/plan/memory_model.h"

#include <cmath>

#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

struct Row {
  double parameters;
  int64_t ranks;
  double gigabytes[3];  // stages 1, 2, 3
};

constexpr Row kTable[] = {
    {7.5e9, 4, {52.5, 41.3, 30}},      {128e9, 4, {896, 704, 512}},
    {1e12, 4, {7000, 5500, 4000}},     {7.5e9, 16, {35.6, 21.6, 7.5}},
    {128e9, 16, {608, 368, 128}},      {1e12, 16, {4750, 2875, 1000}},
    {7.5e9, 64, {31.4, 16.6, 1.88}},   {128e9, 64, {536, 284, 32}},
    {1e12, 64, {4187, 2218, 250}},     {7.5e9, 256, {30.4, 15.4, 0.47}},
    {128e9, 256, {518, 263, 8}},       {1e12, 256, {4046, 2054, 62.5}},
    {7.5e9, 1024, {30.1, 15.1, 0.12}}, {128e9, 1024, {513, 257, 2}},
    {1e12, 1024, {4011, 2013, 15.6}},
};

TEST(MemoryModelTest, GivesThePapersTable) {
  for (const Row& row : kTable) {
    for (int stage = 1; stage <= 3; ++stage) {
      const double printed = row.gigabytes[stage - 1];
      const double exact = PaperBytes(row.parameters, row.ranks, stage) / 1e9;
      // A unit of the last digit printed, of which there are two below 1, three below 1000, then
      // four: the paper rounds some figures and cuts others off.
      const double digits = printed < 1 ? 1 : printed < 1000 ? 2 : 3;
      const double unit = std::pow(10.0, std::floor(std::log10(printed)) - digits);
      EXPECT_NEAR(exact, printed, unit) << row.parameters << " " << row.ranks << " " << stage;
    }
    EXPECT_EQ(PaperBytes(row.parameters, row.ranks, 0), 16 * row.parameters);
  }
}

}  // namespace
}  // namespace brigade::zero
