#ifndef BRIGADE_TESTS_KERNELS_COUNTERS_EXPECT_GOALS_H_
#define BRIGADE_TESTS_KERNELS_COUNTERS_EXPECT_GOALS_H_

#include <cstdio>
#include <initializer_list>
#include <string>

#include "brigade/tests/kernels/counters/counted_launch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::kernels {

// The bytes of an element in all arrays that a kernel reads or writes (twice where both), and in
// those that move 16 bytes at a time: all but 16-bit arrays beside arrays of float.
struct ElementBytes {
  int64_t all, wide;
};

// Prints a row as in benchmarks/results/2026-11-22-counted-accesses.md: sectors over the fewest
// possible of loads and stores, the share of the bytes in accesses of 16 bytes, PTX instructions of
// an element.
inline void PrintRow(const std::string& name, const Counted& counted, ElementBytes bytes) {
  std::printf("| %s | %.2f | %.2f | %.0f %% | %.1f |\n", name.c_str(), counted.load_sectors(),
              counted.store_sectors(), 100 * counted.wide() / static_cast<double>(bytes.all),
              counted.instructions_per_element());
}

// What every kernel promises: nothing is wrong.
inline void ExpectNoFindings(const std::string& name, const Counted& counted) {
  EXPECT_THAT(counted.findings, ::testing::IsEmpty()) << name;
  EXPECT_EQ(counted.bank_conflicts, 0) << name;
}

// The bytes of an element in arrays of one type that warps move by single elements: those of arrays
// whose chunks start at sectors, and those of others.
struct SideBySide {
  int64_t element, at_sectors, elsewhere;
};

// The sectors that warps touch there over the fewest that hold as many bytes: 32 elements that
// start elsewhere lie in one sector more.
inline double MostSectors(std::initializer_list<SideBySide> arrays) {
  double bytes = 0, touched = 0;
  for (const SideBySide& each : arrays) {
    bytes += static_cast<double>(each.at_sectors + each.elsewhere);
    touched +=
        static_cast<double>(each.at_sectors) +
        static_cast<double>(each.elsewhere) * (1.0 + 1.0 / static_cast<double>(each.element));
  }
  return touched / bytes;
}

// What an element-wise kernel promises of large arrays that start alike: whole sectors, and groups
// but for the edges.
inline void ExpectWholeSectors(const std::string& name, const Counted& counted,
                               ElementBytes bytes) {
  ExpectNoFindings(name, counted);
  EXPECT_LE(counted.load_sectors(), 1.02) << name;
  EXPECT_LE(counted.store_sectors(), 1.02) << name;
  EXPECT_GE(counted.grouped(), 0.98 * static_cast<double>(bytes.all)) << name;
  EXPECT_GE(counted.wide(), 0.98 * static_cast<double>(bytes.wide)) << name;
  PrintRow(name, counted, bytes);
}

// What it promises of arrays that start differently: single elements, those of a warp side by side,
// each of them once.
inline void ExpectSideBySide(const std::string& name, const Counted& counted, ElementBytes bytes,
                             double most_load_sectors, double most_store_sectors) {
  ExpectNoFindings(name, counted);
  EXPECT_LE(counted.load_sectors(), most_load_sectors + 0.01) << name;
  EXPECT_LE(counted.store_sectors(), most_store_sectors + 0.01) << name;
  // But for the arguments.
  EXPECT_LE(counted.wide(), 0.1 * static_cast<double>(bytes.all)) << name;
  EXPECT_GE(counted.moved(), static_cast<double>(bytes.all)) << name;
  PrintRow(name, counted, bytes);
}

}  // namespace brigade::kernels

#endif  // BRIGADE_TESTS_KERNELS_COUNTERS_EXPECT_GOALS_H_
