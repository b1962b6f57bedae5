// Saving takes the ring, loading two chunks: of a state that is many times as large.

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "brigade/checkpoint/checkpoint_folder.h"
#include "brigade/checkpoint/loader.h"
#include "brigade/checkpoint/saver.h"
#include "brigade/tests/checkpoint/toy_training.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/toy_model.h"
#include "gtest/gtest.h"

namespace brigade::checkpoint {
namespace {

using collectives::Rank;

constexpr int64_t kChunk = int64_t{4} << 20;
constexpr int64_t kState = 24 * kChunk;
constexpr int64_t kRing = 2 * kChunk;
// What the parts of a process take beside: stacks, arenas, files' names.
constexpr int64_t kSlack = kChunk;

// A value of /proc/self/status in bytes.
int64_t StatusOf(absl::string_view name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!absl::StartsWith(line, absl::StrCat(name, ":"))) continue;
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t kibibytes = 0;
    EXPECT_TRUE(absl::SimpleAtoi(words[words.size() - 2], &kibibytes)) << line;
    return kibibytes << 10;
  }
  ADD_FAILURE() << name;
  return 0;
}

// The most memory of the process from now on, beyond what it has now.
class PeakOfProcess {
 public:
  PeakOfProcess() {
    // 5: the peak is what there is now.
    std::ofstream("/proc/self/clear_refs") << 5;
    before_ = StatusOf("VmRSS");
    EXPECT_LT(StatusOf("VmHWM") - before_, int64_t{1} << 20);
  }
  int64_t bytes() const { return StatusOf("VmHWM") - before_; }

 private:
  int64_t before_ = 0;
};

TEST(SaverMemoryTest, IsThatOfTheRingAndOfTwoChunks) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory counts too";
#endif
  for (const WriteMode mode : {WriteMode::kInPlace, WriteMode::kPieceFiles}) {
    // Master and two moments of one parameter in fp32.
    const int64_t elements = kState / 12;
    const std::string root = absl::StrCat(::testing::TempDir(), "/memory", static_cast<int>(mode));
    collectives::OnThreads({.size = 1}, [&](Rank& self) {
      zero::ZeroOptions options;
      options.dtype = precision::DType::kFloat32;
      options.bucket_elements = 1 << 16;
      zero::ModelSpec model = {{"a", {}}};
      for (int i = 0; i < 64; ++i) {
        model[0].parameters.push_back({absl::StrCat("w", i), elements / 64});
      }
      auto zero = CreateZero(model, options, self).value();
      ASSERT_OK(InitializeToy(*zero));
      const auto state = zero::Capture(*zero, self).value();
      const int64_t device_bytes = self.context->memory_stats().current_bytes();
      self.context->memory_stats().ResetPeaks();
      {
        const PeakOfProcess peak;
        auto saver =
            Saver::Create(
                {.root = root, .mode = mode, .staging_bytes = kRing, .chunk_bytes = kChunk}, *zero,
                *self.communicator, *self.context)
                .value();
        EXPECT_EQ(saver->staging_bytes(), kRing);
        ASSERT_OK(saver->Begin({}));
        const auto report = saver->Wait();
        ASSERT_OK(report);
        EXPECT_GT(report->bytes, kState);
        EXPECT_LT(peak.bytes(), kRing + kSlack);
      }
      EXPECT_EQ(self.context->memory_stats().peak_bytes(), device_bytes);
      {
        const PeakOfProcess peak;
        ASSERT_OK(Load(CheckpointPath(root, 0), {}, *zero, *self.communicator));
        EXPECT_LT(peak.bytes(), 2 * kChunk + kSlack);
      }
      EXPECT_EQ(self.context->memory_stats().peak_bytes(), device_bytes);
      EXPECT_EQ(zero::Capture(*zero, self).value(), state);
    });
  }
}

}  // namespace
}  // namespace brigade::checkpoint
