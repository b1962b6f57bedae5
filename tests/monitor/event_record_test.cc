#include "brigade/monitor/event_record.h"

#include <limits>
#include <string>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"

namespace brigade::monitor {
namespace {

std::string Hex(const std::string& bytes) { return absl::BytesToHexString(bytes); }

TEST(EventRecordTest, MaskedCrcIsThatOfTheFormat) {
  EXPECT_EQ(MaskedCrc("123456789"), 0xc78ab0e5u);
}

TEST(EventRecordTest, FileVersionIsTheKnownRecord) {
  EXPECT_EQ(Hex(Framed(VersionEvent(1.5))),
            "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c");
}

TEST(EventRecordTest, AScalarIsTheKnownRecord) {
  EXPECT_EQ(Hex(Framed(ScalarsEvent(2.0, 7, {{"loss", 0.5}}))),
            "1a00000000000000129bd82d09000000000000004010072a0d0a0b0a046c6f7373150000003f"
            "c33fc24a");
}

// A step of zero is left out; the zero of a value is not, and a step may have several bytes.
TEST(EventRecordTest, ZeroStepsAreLeftOutAndZeroValuesAreNot) {
  EXPECT_EQ(Hex(ScalarsEvent(0, 0, {{"a", 0}})),
            "2a0a0a080a0161"
            "1500000000");
  EXPECT_EQ(Hex(ScalarsEvent(0, 300, {{"a", 0}})),
            "10ac022a0a0a080a0161"
            "1500000000");
}

TEST(EventRecordTest, ValuesOfARecordAreOfOneEventAndThoseWithoutATagOfNone) {
  EXPECT_EQ(Hex(ScalarsEvent(0, 1, {{"a", 1}, {"", 2, "json"}, {"b", 2}})),
            "10012a14"
            "0a080a0161150000803f"
            "0a080a01621500000040");
  EXPECT_EQ(ScalarsEvent(1, 1, {{"", 2, "json"}}), "");
}

TEST(EventRecordTest, NumbersBeyondFloatsAreInfinite) {
  const double most = std::numeric_limits<double>::max();
  EXPECT_EQ(Hex(ScalarsEvent(0, 0, {{"a", most}})),
            "2a0a0a080a0161"
            "150000807f");
  EXPECT_EQ(Hex(ScalarsEvent(0, 0, {{"a", -most}})),
            "2a0a0a080a0161"
            "15000080ff");
}

TEST(EventRecordTest, AStartSaysFromWhichStep) {
  EXPECT_EQ(Hex(StartEvent(0, 33)), "10213a020801");
}

}  // namespace
}  // namespace brigade::monitor
