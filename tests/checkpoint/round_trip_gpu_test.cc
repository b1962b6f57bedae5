// Checkpoints of trainings on a GPU are those of the CPU, byte by byte.

#include "absl/strings/str_cat.h"
#include "brigade/tests/checkpoint/crash_file_system.h"
#include "brigade/tests/checkpoint/toy_training.h"
#include "gtest/gtest.h"

namespace brigade::checkpoint {
namespace {

using testing::CrashFileSystem;
using testing::FilesOf;
using testing::Train;

TEST(RoundTripGpuTest, SavesAndLoadsTheCpusBytes) {
  CrashFileSystem three, six;
  Train({.stage = 0, .ranks = 2, .last = 3, .to = &three});
  const auto wanted = Train({.stage = 0, .ranks = 2, .last = 6, .to = &six});
  for (int stage = 0; stage < zero::kStages; ++stage) {
    SCOPED_TRACE(absl::StrCat("stage ", stage));
    CrashFileSystem saved, resumed;
    Train({.stage = stage, .ranks = 2, .last = 3, .to = &saved, .device = device::Cuda()});
    EXPECT_EQ(FilesOf(saved, 3), FilesOf(three, 3));
    // From the CPU's, and on the CPU from this one.
    EXPECT_EQ(Train({.stage = stage,
                     .ranks = 2,
                     .first = 3,
                     .last = 6,
                     .from = &three,
                     .to = &resumed,
                     .device = device::Cuda()}),
              wanted);
    EXPECT_EQ(FilesOf(resumed, 6), FilesOf(six, 6));
    EXPECT_EQ(Train({.stage = stage, .ranks = 2, .first = 3, .last = 6, .from = &saved}), wanted);
  }
}

}  // namespace
}  // namespace brigade::checkpoint
