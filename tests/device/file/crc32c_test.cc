#include "brigade/device/file/crc32c.h"

#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "brigade/device/file/crc32c_methods.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

// Bit by bit, from the definition.
uint32_t Reference(absl::string_view bytes) {
  uint32_t sum = 0xffffffff;
  for (const char byte : bytes) {
    sum ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) * 0x82f63b78u);
  }
  return ~sum;
}

std::string RandomBytes(size_t size) {
  std::mt19937 random(7);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// RFC 3720, appendix B.4, and others' tables.
TEST(Crc32cTest, GivesTheKnownAnswers) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("a"), 0xc1d04330u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string ascending(32, '\0');
  std::iota(ascending.begin(), ascending.end(), '\0');
  EXPECT_EQ(Crc32c(ascending), 0x46dd794eu);
  std::vector<float> floats(100);
  std::iota(floats.begin(), floats.end(), 0.0f);
  const absl::string_view whole(reinterpret_cast<const char*>(floats.data()), 400);
  EXPECT_EQ(Crc32c(whole), 0x98949773u);
  EXPECT_EQ(Crc32c(whole.substr(0, 256)), 0x9b666601u);
  EXPECT_EQ(Crc32c(whole.substr(256)), 0xe51205b0u);
}

// Around the lengths at which one loop gives way to the next, at any address.
TEST(Crc32cTest, IsThatOfTheDefinitionForEachLengthAndAddress) {
  constexpr size_t kThreeStreams = 3 * 8192;
  const std::string bytes = RandomBytes(2 * kThreeStreams + 64);
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{9}, size_t{63}, size_t{255}, size_t{256},
        size_t{257}, size_t{511}, size_t{512}, size_t{1029}, kThreeStreams - 1, kThreeStreams,
        kThreeStreams + 1, kThreeStreams + 8, 2 * kThreeStreams - 1, 2 * kThreeStreams + 15}) {
    for (size_t begin = 0; begin < 8; ++begin) {
      const absl::string_view part = absl::string_view(bytes).substr(begin, size);
      const uint32_t first = Reference(absl::string_view(bytes).substr(0, begin));
      const uint32_t both = Reference(absl::string_view(bytes).substr(0, begin + size));
      for (const Crc32cMethod& method : Crc32cMethods()) {
        if (!method.is_there()) continue;
        EXPECT_EQ(~method.sum(part, ~first), both)
            << method.name << ": " << size << " bytes from " << begin;
      }
      EXPECT_EQ(Crc32c(part, first), both);
    }
  }
}

TEST(Crc32cTest, GoesOnAndCombines) {
  EXPECT_EQ(Crc32c("1234"), 0xf63af4eeu);
  EXPECT_EQ(Crc32c("56789"), 0x83b565d8u);
  EXPECT_EQ(CombineCrc32c(0xf63af4ee, 0x83b565d8, 5), 0xe3069283u);
  EXPECT_EQ(CombineCrc32c(0x9b666601, 0xe51205b0, 144), 0x98949773u);
  const std::string bytes = RandomBytes(100000);
  const absl::string_view view = bytes;
  for (const size_t at : {size_t{0}, size_t{1}, size_t{99}, size_t{65536}, bytes.size()}) {
    const absl::string_view first = view.substr(0, at), second = view.substr(at);
    EXPECT_EQ(Crc32c(second, Crc32c(first)), Crc32c(bytes));
    EXPECT_EQ(CombineCrc32c(Crc32c(first), Crc32c(second), second.size()), Crc32c(bytes));
  }
}

// Powers of x repeat after 2^31 - 1 bits: 2^k bytes move a sum as far as 2^(k - 31) do, which are
// few enough to be summed.
TEST(Crc32cTest, CombinesAnyLength) {
  const uint32_t first = Crc32c("first");
  for (int k = 31; k < 31 + 16; ++k) {
    const std::string zeros(size_t{1} << (k - 31), '\0');
    const uint32_t sum = Crc32c(zeros);
    EXPECT_EQ(CombineCrc32c(first, sum, uint64_t{1} << k), Crc32c(zeros, first)) << k;
    // And the upper half of the bits.
    EXPECT_EQ(CombineCrc32c(first, sum, (uint64_t{1} << k) + 0x7fffffff), Crc32c(zeros, first));
  }
  EXPECT_EQ(CombineCrc32c(first, 0, uint64_t{1} << 63), CombineCrc32c(first, 0, 2));
}

}  // namespace
}  // namespace brigade::device
