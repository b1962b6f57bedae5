// A catalogue of faults, each of which the emulator reports by its kind and the line of the source.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "brigade/tests/emulator/ptx/run_ptx.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::emulator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kSize = 200;  // of 256 threads

// Where the source says that the fault of a kernel is, as ends of "file:line".
std::vector<std::string> PlacesOf(const std::string& kernel) {
  const std::string source = FileText("tests/emulator/ptx/broken_kernels.cu");
  const std::vector<std::string> lines = absl::StrSplit(source, '\n');
  std::vector<std::string> places;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (absl::EndsWith(lines[i], absl::StrCat("// fault: ", kernel))) {
      places.push_back(absl::StrCat("/broken_kernels.cu:", i + 1));
    }
  }
  return places;
}

class BrokenKernelsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    constexpr char kPath[] = "tests/emulator/ptx/_nvcc/broken_kernels/broken_kernels.ptx";
    auto device = PtxDevice::Create(FileText(kPath), "broken_kernels.ptx");
    ASSERT_OK(device);
    device_ = *std::move(device);
    std::vector<float> values(kSize);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) + 0.25f;
    in_ = device_->Upload(values, "in");
    out_ = device_->Upload(std::vector<float>(kSize), "out");
  }

  std::vector<Finding> Run(const std::string& kernel, uint64_t seed = 0) {
    LaunchOptions options;
    options.grid.x = 2;
    options.block.x = 128;
    options.seed = seed;
    options.most_instructions = 20'000;
    auto result = device_->Run(kernel, {in_, out_, kSize}, options);
    EXPECT_OK(result);
    return result.ok() ? result->findings : std::vector<Finding>();
  }

  // The kernel's one fault, for several seeds.
  void ExpectFault(const std::string& kernel, FindingKind kind, const std::string& what) {
    SCOPED_TRACE(kernel);
    const std::vector<std::string> places = PlacesOf(kernel);
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const std::vector<Finding> findings = Run(kernel, seed);
      // A fault may show at several instructions of its line, and a read before a write in another
      // way as well.
      const auto found = std::find_if(findings.begin(), findings.end(),
                                      [&](const Finding& finding) { return finding.kind == kind; });
      ASSERT_TRUE(found != findings.end()) << findings.size();
      EXPECT_THAT(found->what, HasSubstr(what));
      for (const Finding& finding : findings) {
        EXPECT_EQ(finding.kernel, kernel);
        const std::string place = finding.caller.empty() ? finding.source : finding.caller;
        EXPECT_TRUE(std::any_of(places.begin(), places.end(), [&](const std::string& each) {
          return absl::EndsWith(place, each);
        })) << finding.ToString();
        EXPECT_GT(finding.line, 0);
      }
    }
  }

  std::unique_ptr<PtxDevice> device_;
  uint64_t in_ = 0, out_ = 0;
};

TEST_F(BrokenKernelsTest, GoodOnesHaveNoFindings) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    EXPECT_THAT(Run("Good", seed), IsEmpty());
    EXPECT_THAT(Run("WarpBarrier", seed), IsEmpty());
  }
}

TEST_F(BrokenKernelsTest, AccessesOutsideOfArrays) {
  ExpectFault("OffByOne", FindingKind::kOutOfBounds,
              "read of 4 bytes at byte 800 of 800 of \"in\"");
  ExpectFault("MissingTail", FindingKind::kOutOfBounds, "of 800 of \"out\"");
  ExpectFault("SharedOutOfRange", FindingKind::kOutOfBounds,
              "of 512 of shared \"_ZZ16SharedOutOfRangeE6shared\"");
  ExpectFault("Misaligned", FindingKind::kMisaligned, "read of 16 bytes at byte");
}

TEST_F(BrokenKernelsTest, UseAfterFree) {
  ASSERT_OK(device_->memory().Free(in_));
  const std::vector<Finding> findings = Run("Good");
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, FindingKind::kOutOfBounds);
  EXPECT_THAT(findings[0].what, AllOf(HasSubstr("of 800 of \"in\", which has been freed")));
}

TEST_F(BrokenKernelsTest, APointerThatIsNone) {
  in_ = 0x1234560;
  const std::vector<Finding> findings = Run("Good");
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(findings[0].what, HasSubstr("which is not on the device"));
}

TEST_F(BrokenKernelsTest, BytesThatNobodyHasWritten) {
  ExpectFault("SharedNotWritten", FindingKind::kUninitialized, "has never been written");
  in_ = device_->memory().Allocate(kSize * 4, "young").value();
  const std::vector<Finding> findings = Run("Good");
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, FindingKind::kUninitialized);
  EXPECT_THAT(findings[0].what, HasSubstr("\"young\""));
}

TEST_F(BrokenKernelsTest, Races) {
  ExpectFault("MissingBarrier", FindingKind::kRaceInBlock, "no barrier is between");
  ExpectFault("MissingSecondBarrier", FindingKind::kRaceInBlock, "no barrier is between");
  ExpectFault("MissingWarpBarrier", FindingKind::kRaceInBlock, "no barrier is between");
  ExpectFault("TwoThreadsOneWord", FindingKind::kRaceInBlock, "of \"out\": thread (");
  ExpectFault("TwoBlocksOneWord", FindingKind::kRaceBetweenBlocks,
              "write of 4 bytes at byte 0 of 800 of \"out\": block ");
  // By the order of the blocks it is the read or the write that comes second.
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const std::vector<Finding> findings = Run("ReadsWhatAnotherBlockWrites", seed);
    ASSERT_THAT(findings, SizeIs(1));
    EXPECT_EQ(findings[0].kind, FindingKind::kRaceBetweenBlocks);
  }
}

TEST_F(BrokenKernelsTest, BarriersThatSomeNeverReach) {
  ExpectFault("BarrierInBranch", FindingKind::kBarrier, "56 threads of 128 have left the kernel");
  ExpectFault("WrongMask", FindingKind::kBarrier, "the mask is ffffffff, here are ffff");
}

TEST_F(BrokenKernelsTest, ATrap) {
  ExpectFault("EndsItself", FindingKind::kTrap, "the launch is ended");
}

TEST_F(BrokenKernelsTest, CopiesThatNobodyWaitsFor) {
  EXPECT_THAT(Run("GoodCopy"), IsEmpty());
  ExpectFault("CopyWithoutWait", FindingKind::kRaceInBlock, "has not been waited for");
}

TEST_F(BrokenKernelsTest, ProductsWithoutSomeLanes) {
  ExpectFault("ProductOfSomeLanes", FindingKind::kBarrier, "ffff");
}

TEST_F(BrokenKernelsTest, Masks) {
  ExpectFault("MaskWithoutItself", FindingKind::kLaneMask, "the mask is without the lane itself");
  ExpectFault("LaneOutsideOfMask", FindingKind::kLaneMask, "which is not in the mask");
}

TEST_F(BrokenKernelsTest, DivisionByZero) {
  ExpectFault("DividesByZero", FindingKind::kDivisionByZero, "not specified");
}

TEST_F(BrokenKernelsTest, EndlessLoop) {
  const std::vector<float> one = {1};
  in_ = device_->Upload(one, "one");
  out_ = device_->Upload(one, "another");
  ExpectFault("Endless", FindingKind::kEndless, "the launch is ended");
}

TEST_F(BrokenKernelsTest, WrongRoundingShowsInTheBits) {
  EXPECT_THAT(Run("WrongRounding"), IsEmpty());
  const auto cut = device_->Download<float>(out_, kSize);
  const auto in = device_->Download<float>(in_, kSize);
  int different = 0;
  for (size_t i = 0; i < cut.size(); ++i) different += cut[i] != in[i] + 1e-7f ? 1 : 0;
  EXPECT_GT(different, 0);
}

TEST_F(BrokenKernelsTest, LaunchesThatCudaRefuses) {
  const auto refused = [&](int grid, int block, int64_t shared) {
    LaunchOptions options;
    options.grid.x = grid;
    options.block.x = block;
    options.dynamic_shared_bytes = shared;
    return device_->Run("Good", {in_, out_, kSize}, options).status();
  };
  using ::brigade::testing::StatusIs;
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(refused(0, 128, 0), StatusIs(kInvalid, HasSubstr("a grid of 0 blocks")));
  EXPECT_THAT(refused(1, 1025, 0), StatusIs(kInvalid, HasSubstr("a block of 1025 threads")));
  EXPECT_THAT(refused(1, 128, 1 << 20), StatusIs(kInvalid, HasSubstr("bytes of shared memory")));
  LaunchOptions options;
  EXPECT_THAT(Launch(LoadedModule(), device_->module().kernels[0], {}, options).status(),
              StatusIs(kInvalid, HasSubstr("0 bytes of parameters instead of 24")));
}

}  // namespace
}  // namespace brigade::emulator
