#include "brigade/device/byte_count.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "gtest/gtest.h"

namespace brigade::device {
namespace {

TEST(ByteCountTest, TakesPowersOf1024InBothSpellings) {
  EXPECT_EQ(ParseByteCount("1"), 1);
  EXPECT_EQ(ParseByteCount("65536"), 65536);
  for (const char* const text : {"3K", "3k", "3KiB"}) EXPECT_EQ(ParseByteCount(text), 3 << 10);
  for (const char* const text : {"3M", "3m", "3MiB"}) EXPECT_EQ(ParseByteCount(text), 3 << 20);
  for (const char* const text : {"3G", "3g", "3GiB"}) {
    EXPECT_EQ(ParseByteCount(text), int64_t{3} << 30);
  }
  for (const char* const text : {"3T", "3TiB"}) EXPECT_EQ(ParseByteCount(text), int64_t{3} << 40);
  EXPECT_EQ(ParseByteCount("9223372036854775807"), std::numeric_limits<int64_t>::max());
}

TEST(ByteCountTest, RefusesWhatIsNoWholeNumberOfBytes) {
  for (const char* const text :
       {"", "0", "-1", "K", "KiB", "1.5M", "1KB", "1MB", "1kib", "1KK", "1KiBK", "1P", "x",
        "9223372036854775808", "9223372036854775807K", "9007199254740992K"}) {
    EXPECT_EQ(ParseByteCount(text), std::nullopt) << text;
  }
}

TEST(ByteCountTest, AFlagSaysHowItIsWritten) {
  ByteCount bytes = {5};
  std::string error;
  EXPECT_FALSE(AbslParseFlag("1MB", &bytes, &error));
  EXPECT_EQ(error, "it must be a number of bytes like 65536, 64K, 1M, 1G or 64KiB");
  EXPECT_EQ(bytes.value, 5);
  EXPECT_TRUE(AbslParseFlag("1M", &bytes, &error));
  EXPECT_EQ(bytes.value, 1 << 20);
}

TEST(ByteCountTest, WhatAFlagPrintsIsReadAsTheSame) {
  for (const int64_t value :
       {int64_t{1}, int64_t{1023}, int64_t{1} << 10, int64_t{1536}, int64_t{256} << 20,
        int64_t{1} << 50, std::numeric_limits<int64_t>::max()}) {
    EXPECT_EQ(ParseByteCount(AbslUnparseFlag({value})), value);
  }
  EXPECT_EQ(AbslUnparseFlag({256 << 20}), "256M");
}

}  // namespace
}  // namespace brigade::device
