// What disks do to a training whose state is in files: an error that says what was to be
// transferred, and a state as it was; or the bits of a training without.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/file/file_store.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/device/file/disk_fault.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using ::brigade::testing::StatusIs;
using collectives::Rank;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

device::DiskFault& fault = device::TheDiskFault();

std::vector<Home> HomesWithFiles() {
  std::vector<Home> homes;
  for (Home home : Homes()) {
    if (!home.offload.file_state()) continue;
    // The engine whose calls are replaced here.
    home.offload.file.engine = device::FileEngineKind::kThreads;
    homes.push_back(home);
  }
  return homes;
}

class FileFaultTest : public ::testing::TestWithParam<Home> {
 protected:
  FileFaultTest() {
    fault.file = "/brigade_rank_0_";
    fault.Clear();
  }
  ~FileFaultTest() override { fault.Clear(); }

  ZeroOptions Options() const {
    ZeroOptions options;
    GetParam().Set(options);
    options.bucket_elements = 1000;
    return options;
  }

  // The bits of so many steps.
  static std::vector<std::vector<float>> Trained(const ZeroOptions& options, int steps) {
    std::vector<std::vector<float>> result;
    collectives::OnThreads({.size = 2}, [&](Rank& self) {
      auto zero = CreateZero(ToyModel(), options, self).value();
      ASSERT_OK(InitializeToy(*zero));
      ToyTrainer trainer(*zero, self);
      while (trainer.step < steps) ASSERT_OK(trainer.Step());
      auto exported = Exported(*zero);
      ASSERT_OK(exported);
      if (self.rank == 0) result = *std::move(exported);
    });
    return result;
  }

  // A step, waited for to its end in the file.
  static absl::Status StepWithoutAbort(ZeroOptimizer& zero, ToyTrainer& trainer, Rank& self) {
    absl::Status status = trainer.Step();
    if (status.ok()) status = self.stream->Synchronize();
    auto reader = self.context->CreateStream("reader").value();
    if (status.ok()) status = zero.LendState(*reader);
    if (status.ok()) status = zero.ReturnState();
    if (status.ok()) status = zero.step_stream().Synchronize();
    return status;
  }
  // As a trainer does it: if it fails, the others do not wait for this rank, and learn of it by
  // their next collective at the latest.
  static absl::Status StepToTheEnd(ZeroOptimizer& zero, ToyTrainer& trainer, Rank& self) {
    absl::Status status = StepWithoutAbort(zero, trainer, self);
    if (status.ok()) status = self.communicator->Barrier(*self.stream);
    if (status.ok()) status = self.stream->Synchronize();
    if (!status.ok()) self.communicator->Abort(status);
    return status;
  }

  // The third step fails by what `begin` does on rank 0; the state is then that before, or cannot
  // be read.
  template <typename Begin>
  static void FailThirdStep(const ZeroOptions& options, const Begin& begin,
                            const ::testing::Matcher<const std::string&>& text,
                            bool state_is_lost = false) {
    collectives::OnThreads({.size = 2}, [&](Rank& self) {
      auto zero = CreateZero(ToyModel(), options, self).value();
      ASSERT_OK(InitializeToy(*zero));
      ToyTrainer trainer(*zero, self);
      for (int step = 0; step < 2; ++step) ASSERT_OK(StepToTheEnd(*zero, trainer, self));
      const auto before = Capture(*zero, self);
      ASSERT_OK(before);
      ASSERT_OK(self.communicator->Barrier(*self.stream));
      ASSERT_OK(self.stream->Synchronize());
      if (self.rank == 0) begin();
      ASSERT_OK(self.communicator->Barrier(*self.stream));
      const absl::Status status = StepToTheEnd(*zero, trainer, self);
      EXPECT_FALSE(status.ok()) << "rank " << self.rank;
      EXPECT_THAT(std::string(status.message()), text) << "rank " << self.rank;
      ASSERT_OK(zero->CancelStep());
      if (self.rank != 0) return;
      fault.Clear();
      const auto after = Capture(*zero, self);
      if (state_is_lost) {
        EXPECT_THAT(std::string(after.status().message()), text);
        return;
      }
      ASSERT_OK(after);
      EXPECT_EQ(after->step.step, before->step.step);
      EXPECT_EQ(*after, *before);
    });
  }
};

TEST_P(FileFaultTest, AnErrorOfTheDiskNamesWhatWasTransferredAndLeavesTheState) {
  for (const bool write : {false, true}) {
    for (const int error : {EIO, ENOSPC}) {
      if (!write && error == ENOSPC) continue;
      for (const int after : {0, 1, 5}) {
        SCOPED_TRACE(absl::StrCat(write ? "write " : "read ", error, " after ", after));
        const auto begin = [&] {
          fault.after = after;
          fault.of_writes = write;
          fault.error = error;
        };
        ZeroOptions options = Options();
        // Beside passes with weights that are a step late, in the stages that have it.
        options.offload.delay_update = after == 1 && !options.offload.file_parameters();
        options.offload.delay_warm_up = 0;
        FailThirdStep(options, begin,
                      AllOf(HasSubstr(write ? "cannot write chunk " : "cannot read chunk "),
                            AnyOf(HasSubstr(" (optimizer state of bucket "),
                                  HasSubstr(" (weights of bucket ")),
                            HasSubstr("brigade_rank_0_"), HasSubstr(" bytes at byte "),
                            HasSubstr(error == EIO ? "Input/output error" : "No space left")));
      }
    }
  }
}

TEST_P(FileFaultTest, AFileThatWasCutIsNamed) {
  const auto cut = [] {
    for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
      if (!fault.IsOf(each.path())) continue;
      ASSERT_EQ(truncate(each.path().c_str(), 5000), 0);
    }
  };
  FailThirdStep(Options(), cut, AllOf(HasSubstr("brigade_rank_0_"), HasSubstr(" was cut: it has")),
                /*state_is_lost=*/true);
}

TEST_P(FileFaultTest, AFlippedBitIsFoundByTheChecksums) {
  ZeroOptions options = Options();
  options.offload.file.checksums = true;
  const auto flip = [] {
    for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
      if (!fault.IsOf(each.path())) continue;
      // One bit of each slot.
      const int fd = open(each.path().c_str(), O_RDWR);
      ASSERT_GE(fd, 0);
      char byte = 0;
      for (off_t at = 17; pread(fd, &byte, 1, at) == 1; at += 4096) {
        byte = static_cast<char>(byte ^ 8);
        ASSERT_EQ(pwrite(fd, &byte, 1, at), 1);
      }
      ASSERT_EQ(fsync(fd), 0);
      close(fd);
    }
  };
  // Parts of chunks, as a checkpoint reads them, have no sums.
  collectives::OnThreads({.size = 2}, [&](Rank& self) {
    auto zero = CreateZero(ToyModel(), options, self).value();
    ASSERT_OK(InitializeToy(*zero));
    ToyTrainer trainer(*zero, self);
    ASSERT_OK(StepToTheEnd(*zero, trainer, self));
    if (self.rank == 0) flip();
    ASSERT_OK(self.communicator->Barrier(*self.stream));
    const absl::Status status = StepToTheEnd(*zero, trainer, self);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("brigade_rank_0_"), HasSubstr(" is damaged: its "),
                      HasSubstr(" bytes at byte "), HasSubstr(" of bucket ")));
    EXPECT_OK(zero->CancelStep());
  });
}

TEST_P(FileFaultTest, ShortTransfersAndASlowDiskChangeNoBit) {
  const auto wanted = Trained(Options(), 3);
  ASSERT_FALSE(wanted.empty());
  fault.bytes = 1536;
  EXPECT_EQ(Trained(Options(), 3), wanted);
  fault.Clear();
  // 10 MB/s.
  fault.ns_per_byte = 100;
  EXPECT_EQ(Trained(Options(), 3), wanted);
}

// Rank 1 hears of it, and does not wait for a rank that is gone.
TEST_P(FileFaultTest, AnErrorBetweenStepsIsAnErrorOnAllRanks) {
  collectives::OnThreads({.size = 2}, [&](Rank& self) {
    auto zero = CreateZero(ToyModel(), Options(), self).value();
    const auto fail = [&](int error) {
      ASSERT_OK(self.communicator->Barrier(*self.stream));
      ASSERT_OK(self.stream->Synchronize());
      if (self.rank == 0) fault.error = error;
      ASSERT_OK(self.communicator->Barrier(*self.stream));
      ASSERT_OK(self.stream->Synchronize());
    };
    fault.of_writes = true;
    fail(ENOSPC);
    EXPECT_THAT(InitializeToy(*zero),
                StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("cannot write chunk")));
    fail(0);
    ASSERT_OK(zero->CancelStep());
    ASSERT_OK(InitializeToy(*zero));
    fault.of_writes = false;
    fail(EIO);
    EXPECT_THAT(Exported(*zero).status(),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("cannot read chunk")));
    fail(0);
    ASSERT_OK(zero->CancelStep());
    EXPECT_OK(Exported(*zero).status());
  });
}

// After an error the training goes on from what was captured, with the bits of one without.
TEST_P(FileFaultTest, ATrainingGoesOnFromTheStateThatWasLeft) {
  const auto train = [&](bool fails) {
    std::vector<std::vector<float>> result;
    collectives::OnThreads({.size = 1}, [&](Rank& self) {
      auto zero = CreateZero(ToyModel(), Options(), self).value();
      ASSERT_OK(InitializeToy(*zero));
      ToyTrainer trainer(*zero, self);
      while (trainer.step < 2) ASSERT_OK(StepWithoutAbort(*zero, trainer, self));
      if (fails) {
        fault.of_writes = true;
        fault.after = 3;
        fault.error = EIO;
        EXPECT_THAT(StepWithoutAbort(*zero, trainer, self),
                    StatusIs(absl::StatusCode::kDataLoss, HasSubstr("cannot write chunk")));
        fault.Clear();
        ASSERT_OK(zero->CancelStep());
        EXPECT_THAT(
            zero->Acquire(0, Pass::kForward),
            StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("LoadState comes first")));
        const auto left = Capture(*zero, self);
        ASSERT_OK(left);
        ASSERT_OK(LoadCaptured(*zero, *left));
        trainer.step = 2;
      }
      while (trainer.step < 5) ASSERT_OK(trainer.Step());
      auto exported = Exported(*zero);
      ASSERT_OK(exported);
      result = *std::move(exported);
    });
    return result;
  };
  const auto wanted = train(false);
  EXPECT_EQ(train(true), wanted);
}

INSTANTIATE_TEST_SUITE_P(Homes, FileFaultTest, ::testing::ValuesIn(HomesWithFiles()),
                         [](const auto& info) { return ToString(info.param); });

}  // namespace
}  // namespace brigade::zero
