#include "brigade/kernels/digest/digest.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/digest/digest_cpu.h"
#include "brigade/kernels/digest/digest_tile.h"
#include "brigade/tests/kernels/bad_arrays.h"
#include "brigade/tests/kernels/testing.h"
#include "brigade/tests/spec/digest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

std::vector<unsigned char> RandomBytes(int64_t size, std::mt19937& random) {
  std::vector<unsigned char> bytes(static_cast<size_t>(size));
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

spec::Digest OnStream(const std::vector<DigestSegment>& segments, device::Stream& stream) {
  TensorDigest digest = {};
  EXPECT_OK(Digest(segments, {&digest, 1}, stream));
  EXPECT_OK(stream.Synchronize());
  return {digest.words[0], digest.words[1]};
}

spec::Digest InGpuThreads(const std::vector<DigestSegment>& segments) {
  uint64_t sums[2] = {};
  for (const DigestSegment& segment : segments) {
    ForEachGpuThread(DigestTiles(segment), kWarp,
                     [&](int64_t tile, int thread) { DigestThread(segment, tile, thread, sums); });
  }
  return {sums[0], sums[1]};
}

void ExpectEverywhere(const std::vector<DigestSegment>& segments, const spec::Digest& wanted,
                      const std::string& what) {
  OnEveryCpu([&](device::Stream& stream, const std::string& how) {
    EXPECT_EQ(OnStream(segments, stream), wanted) << what << ", " << how;
  });
  EXPECT_EQ(InGpuThreads(segments), wanted) << what << ", GPU threads";
}

// Whole tensors, at any address.
TEST(DigestTest, IsTheSpecificationsForEverySizeAndAddress) {
  std::mt19937 random(71);
  for (const int64_t size :
       {0,  1,    2,    3,    4,    5,    7,    15,   16,    17,    31,    32,
        33, 1023, 1024, 1025, 2047, 2048, 2049, 8192, 32767, 32768, 32769, 70001}) {
    const std::vector<unsigned char> bytes = RandomBytes(size, random);
    for (const int64_t offset : {0, 1, 2, 3, 4, 13, 16, 20, 32}) {
      GuardedArray<unsigned char> array(size, offset);
      std::copy(bytes.begin(), bytes.end(), array.data());
      ExpectEverywhere({{array.data(), size, 0, 0, 0, 0}}, spec::DigestOf(bytes),
                       absl::StrCat(size, " bytes at ", offset));
    }
  }
}

// Parts in memory of their own, of any lengths, in any order.
TEST(DigestTest, AddsUpOverAnyPartition) {
  std::mt19937 random(72);
  for (const int unit : {1, 2, 4}) {
    const int64_t size = int64_t{unit} * 41117;
    const std::vector<unsigned char> bytes = RandomBytes(size, random);
    for (int round = 0; round < 6; ++round) {
      std::set<int64_t> cuts = {0, size};
      for (int i = 0; i < 2 << round; ++i) {
        cuts.insert(static_cast<int64_t>(random() % static_cast<uint64_t>(size)) / unit * unit);
      }
      std::vector<GuardedArray<unsigned char>> parts;
      std::vector<DigestSegment> segments;
      parts.reserve(cuts.size());
      for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
        const int64_t length = *std::next(cut) - *cut;
        parts.emplace_back(length, static_cast<int64_t>(random() % 8) * unit);
        std::copy_n(bytes.begin() + *cut, length, parts.back().data());
        segments.push_back({parts.back().data(), length, *cut, 0, 0, 0});
      }
      std::shuffle(segments.begin(), segments.end(), random);
      ExpectEverywhere(segments, spec::DigestOf(bytes), absl::StrCat(unit, ", round ", round));
    }
  }
}

// The columns of a matrix over ranks, and a rank's elements over slices.
TEST(DigestTest, AddsUpOverColumns) {
  std::mt19937 random(73);
  for (const auto& [rows, columns, ranks] : {std::tuple<int64_t, int64_t, int64_t>(7, 12, 3),
                                             {300, 96, 4},
                                             {3, 90002, 2},
                                             {5, 65536, 2},
                                             {1000, 10, 5}}) {
    for (const int64_t width : {1, 2, 4}) {
      const std::vector<unsigned char> bytes = RandomBytes(rows * columns * width, random);
      const int64_t run = columns / ranks * width;
      std::vector<std::vector<unsigned char>> held(static_cast<size_t>(ranks));
      std::vector<DigestSegment> segments;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        std::vector<unsigned char>& mine = held[static_cast<size_t>(rank)];
        for (int64_t row = 0; row < rows; ++row) {
          const auto from = bytes.begin() + row * columns * width + rank * run;
          mine.insert(mine.end(), from, from + run);
        }
        // A slice ends within a run, so that the next one begins with what is left of it.
        const int64_t half = rows / 2 * run + run / width / 2 * width;
        const int64_t rest = (rows / 2 + 1) * run - half;
        const int64_t first = rank * run;
        segments.push_back({mine.data(), half, first, run, columns * width, 0});
        segments.push_back({mine.data() + half, rest,
                            first + half - rows / 2 * run + rows / 2 * columns * width, 0, 0, 0});
        segments.push_back({mine.data() + half + rest, rows * run - half - rest,
                            first + (rows / 2 + 1) * columns * width, run, columns * width, 0});
      }
      ExpectEverywhere(segments, spec::DigestOf(bytes),
                       absl::StrCat(rows, " x ", columns, " of ", width, " bytes"));
    }
  }
}

TEST(DigestTest, KeepsTheDigestsOfManyTensorsApartAndAddsToThem) {
  std::mt19937 random(74);
  const std::vector<unsigned char> bytes = RandomBytes(100'000, random);
  std::vector<DigestSegment> segments;
  std::vector<TensorDigest> digests(1500), wanted(1500);
  for (size_t i = 0; i < digests.size(); ++i) {
    digests[i] = wanted[i] = {{random(), random()}};
    const int64_t begin = static_cast<int64_t>(random() % 90'000);
    const int64_t size = static_cast<int64_t>(random() % 200);
    segments.push_back({bytes.data() + begin, size, 0, 0, 0, static_cast<int64_t>(i)});
    const spec::Digest own = spec::DigestOf({bytes.begin() + begin, bytes.begin() + begin + size});
    for (size_t w = 0; w < 2; ++w) wanted[i].words[w] += own[w];
  }
  const CpuRun cpu = OnCpu(3);
  ASSERT_OK(Digest(segments, absl::MakeSpan(digests), *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  EXPECT_EQ(std::memcmp(digests.data(), wanted.data(), digests.size() * sizeof(TensorDigest)), 0);
}

// What it is for. Each sum on its own finds each.
TEST(DigestTest, FindsEveryFlippedBitAndSwappedElement) {
  std::mt19937 random(75);
  std::vector<unsigned char> bytes = RandomBytes(4096, random);
  const auto digest = [&] { return DigestRange({bytes.data(), 4096, 0, 0, 0, 0}, 0, 4096); };
  const TensorDigest before = digest();
  const auto expect_found = [&](const std::string& what) {
    const TensorDigest after = digest();
    EXPECT_NE(after.words[0], before.words[0]) << what;
    EXPECT_NE(after.words[1], before.words[1]) << what;
  };
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    expect_found(absl::StrCat("bit ", bit));
    bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
  }
  for (size_t i = 0; i + 2 < bytes.size(); i += 2) {
    if (bytes[i] == bytes[i + 2]) continue;
    std::swap(bytes[i], bytes[i + 2]);
    expect_found(absl::StrCat("swapped ", i));
    std::swap(bytes[i], bytes[i + 2]);
  }
  // Every sign of a tensor, as of zeros that became negative ones.
  for (size_t i = 3; i < bytes.size(); i += 4) bytes[i] ^= 0x80;
  expect_found("all signs");
}

// The last bytes of a tensor of more than 2^40.
TEST(DigestTest, CountsPlacesWithin64Bits) {
  std::mt19937 random(76);
  const std::vector<unsigned char> bytes = RandomBytes(48, random);
  constexpr int64_t kFirst = (int64_t{1} << 40) + 4;
  spec::Digest wanted = spec::DigestOf(bytes);
  for (size_t w = 0; w < 2; ++w) {
    // base^(2^38 + 1), by squaring.
    uint64_t power = spec::kDigestBases[w];
    for (int i = 0; i < 38; ++i) power *= power;
    wanted[w] *= power * spec::kDigestBases[w];
  }
  ExpectEverywhere({{bytes.data(), 48, kFirst, 0, 0, 0}}, wanted, "far");
}

TEST(DigestTest, RejectsEveryBadArray) {
  const CpuRun cpu = OnCpu(1);
  BadArrays arrays("digest");
  std::vector<DigestSegment> segments = {{nullptr, 10, 0, 0, 0, 0}, {nullptr, 11, 0, 0, 0, 1}};
  TensorDigest* digests;
  arrays.Add("data of segment 0", segments[0].data, 10, 1, 1, BadArrays::kRead);
  arrays.Add("data of segment 1", segments[1].data, 11, 1, 1, BadArrays::kRead);
  arrays.Add("digests", digests, 2, BadArrays::kWritten);
  arrays.ExpectRefused(*cpu.stream, [&] { return Digest(segments, {digests, 2}, *cpu.stream); });
}

TEST(DigestTest, RejectsBadSizesAndPlaces) {
  const CpuRun cpu = OnCpu(1);
  const std::vector<unsigned char> bytes(64);
  TensorDigest digest = {};
  const auto expect = [&](const DigestSegment& segment, const char* message) {
    EXPECT_THAT(Digest({segment}, {&digest, 1}, *cpu.stream),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  expect({bytes.data(), -1, 0, 0, 0, 0}, "digest: segment 0 has negative size -1");
  expect({bytes.data(), 4, -4, 0, 0, 0}, "digest: segment 0: first is -4");
  expect({bytes.data(), 4, 0, -2, 0, 0}, "digest: segment 0: run is -2");
  expect({bytes.data(), 4, 0, 2, -8, 0}, "digest: segment 0: stride is -8");
  expect({bytes.data(), 4, 0, 0, 0, 1}, "digest: segment 0: digest is 1, of 1");
  expect({bytes.data(), 4, 0, 0, 0, -1}, "digest: segment 0: digest is -1, of 1");
}

}  // namespace
}  // namespace brigade::kernels
