#include "brigade/emulator/runtime/fat_binary.h"

#include <fatbinary_section.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>

#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::emulator {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kMissing = absl::StatusCode::kFailedPrecondition;

// The section of an object of nvcc's that holds its fat binary.
std::string SectionOf(const std::string& name) {
  std::ifstream file("tests/emulator/runtime/" + name + ".fatbin", std::ios::binary);
  EXPECT_TRUE(file.is_open()) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

// As an object's code registers it; a heap block of its own, so that AddressSanitizer sees its end.
absl::StatusOr<std::string> Read(const std::string& bytes, int magic = FATBINC_MAGIC) {
  const auto aligned = std::make_unique<uint64_t[]>((bytes.size() + 7) / 8);
  std::memcpy(aligned.get(), bytes.data(), bytes.size());
  const __fatBinC_Wrapper_t wrapper = {
      magic, FATBINC_VERSION, reinterpret_cast<const unsigned long long*>(aligned.get()), nullptr};
  return PtxOf(&wrapper);
}

TEST(FatBinaryTest, HoldsThePtxOfOneArchitecture) {
  ASSERT_OK_AND_ASSIGN(const std::string ptx, Read(SectionOf("one")));
  EXPECT_THAT(ptx, AllOf(HasSubstr(".target sm_90"), HasSubstr("AddKernel")));
  EXPECT_EQ(ptx.find('\0'), std::string::npos);
}

TEST(FatBinaryTest, GivesThePtxOfTheHighestOfSeveralArchitectures) {
  ASSERT_OK_AND_ASSIGN(const std::string ptx, Read(SectionOf("two")));
  EXPECT_THAT(ptx, AllOf(HasSubstr(".target sm_90"), Not(HasSubstr(".target sm_80"))));
}

TEST(FatBinaryTest, NamesTheFlagForCompressedPtx) {
  EXPECT_THAT(Read(SectionOf("compressed")), StatusIs(kMissing, HasSubstr("--no-compress")));
}

TEST(FatBinaryTest, NamesTheFlagForMachineCodeAlone) {
  std::string section = SectionOf("one");
  constexpr size_t kKind = 16;
  ASSERT_EQ(section[kKind], 1);
  section[kKind] = 2;
  EXPECT_THAT(Read(section), StatusIs(kMissing, HasSubstr("code=compute_90")));
}

TEST(FatBinaryTest, RefusesWhatIsNone) {
  EXPECT_THAT(PtxOf(nullptr), StatusIs(kInvalid, HasSubstr("no fat binary")));
  EXPECT_THAT(Read(SectionOf("one"), 7), StatusIs(kInvalid, HasSubstr("no fat binary")));
  std::string section = SectionOf("one");
  section[0] = 0;
  EXPECT_THAT(Read(section), StatusIs(kInvalid, HasSubstr("begins with")));
}

// All but the length of the whole, which nothing else tells.
TEST(FatBinaryTest, MutatedOnesAreErrorsOrOtherPtxButNoCrash) {
  constexpr size_t kLength = 8, kEntries = 16;
  std::minstd_rand random(1);
  int errors = 0;
  for (const char* name : {"one", "two", "compressed"}) {
    const std::string section = SectionOf(name);
    for (int i = 0; i < 3000; ++i) {
      std::string mutated = section;
      for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes) {
        // Mostly the headers, of which the first two are.
        const size_t at = random() % (random() % 4 == 0 ? section.size() : kEntries + 64);
        if (at >= kLength && at < kEntries) continue;
        mutated[at] = static_cast<char>(random() % 4 == 0 ? 0xff : random());
      }
      errors += !Read(mutated).ok();
    }
  }
  EXPECT_GT(errors, 1000);
}

}  // namespace
}  // namespace brigade::emulator
