// Digests as nvcc compiles them: the CPU's bits, whole sectors, and few instructions.

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/digest/digest.h"
#include "brigade/kernels/digest/digest_tile.h"
#include "brigade/tests/kernels/counters/counted_launch.h"
#include "brigade/tests/kernels/counters/expect_goals.h"
#include "brigade/tests/kernels/testing.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

// Words of four bytes.
constexpr int64_t kWords = (int64_t{1} << 16) + 77;

std::vector<uint32_t> Words() {
  std::mt19937 random(91);
  std::vector<uint32_t> words(kWords);
  for (uint32_t& word : words) word = static_cast<uint32_t>(random());
  return words;
}

TensorDigest OnTheCpu(const std::vector<DigestSegment>& segments) {
  const CpuRun cpu = OnCpu(1);
  TensorDigest digest = {};
  EXPECT_OK(Digest(segments, {&digest, 1}, *cpu.stream));
  EXPECT_OK(cpu.stream->Synchronize());
  return digest;
}

// Runs the kernel on a segment whose bytes begin `shift` bytes past a sector.
Counted Launch(const std::vector<uint32_t>& words, DigestSegment segment, int64_t shift,
               TensorDigest& digest) {
  CountedKernels device("digest");
  void* const data = device.Allocate("data", segment.size, shift);
  device.Write(data, words.data(), segment.size);
  segment.data = data;
  digest = {};
  TensorDigest* const sums = device.Upload("digest", &digest, 1);
  DigestArguments<kFewSegments> arguments = {};
  arguments.digests = sums;
  arguments.batch.segments[0] = segment;
  arguments.batch.first_tile[1] = DigestTiles(segment);
  arguments.batch.count = 1;
  const Counted counted =
      device.Launch(absl::StrCat("DigestKernel<", kFewSegments, ">"), segment.size / 4,
                    CeilDiv(DigestTiles(segment), kTileThreads / kWarp), kTileThreads, arguments);
  digest = device.Download(sums, 1)[0];
  return counted;
}

void ExpectSame(const TensorDigest& digest, const TensorDigest& wanted, const std::string& what) {
  EXPECT_EQ(std::memcmp(&digest, &wanted, sizeof(wanted)), 0) << what;
}

TEST(DigestCountersTest, LoadsWholeSectors) {
  const std::vector<uint32_t> words = Words();
  for (const int64_t shift : {0, 4, 16, 20}) {
    const DigestSegment segment = {words.data(), 4 * kWords, 8, 0, 0, 0};
    TensorDigest digest;
    const Counted counted = Launch(words, segment, shift, digest);
    const std::string name = absl::StrCat("digest, shift ", shift);
    ExpectSame(digest, OnTheCpu({segment}), name);
    ExpectNoFindings(name, counted);
    EXPECT_LE(counted.load_sectors(), 1.02) << name;
    // A third of what a GPU has in the time that a word takes from memory.
    EXPECT_LE(counted.instructions_per_element(), 12.0) << name;
    PrintRow(name, counted, {4, 4});
  }
}

// Columns, and words that lie anywhere.
TEST(DigestCountersTest, GivesTheCpusBitsForEveryPlace) {
  const std::vector<uint32_t> words = Words();
  for (const DigestSegment& segment :
       {DigestSegment{words.data(), 20'000, 12, 520, 4 * 520, 0},
        DigestSegment{words.data(), 20'001, 6, 34, 102, 0},
        DigestSegment{words.data(), 9'999, 3, 0, 0, 0}, DigestSegment{words.data(), 3, 1, 0, 0, 0},
        DigestSegment{words.data(), 80'000, 0, 40'000, 120'000, 0}}) {
    for (const int64_t shift : {0, 2, 5}) {
      TensorDigest digest;
      const Counted counted = Launch(words, segment, shift, digest);
      const std::string name = absl::StrCat("run ", segment.run, ", shift ", shift);
      ExpectSame(digest, OnTheCpu({segment}), name);
      EXPECT_TRUE(counted.findings.empty()) << name;
    }
  }
}

}  // namespace
}  // namespace brigade::kernels
