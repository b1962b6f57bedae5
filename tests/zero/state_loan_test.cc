// State that is lent between two updates.

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using ::brigade::testing::StatusIs;
using collectives::OnThreads;
using collectives::Rank;
using precision::DType;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;

class StateLoanTest : public ::testing::TestWithParam<Home> {
 protected:
  static ZeroOptions Options(DType dtype = DType::kBFloat16, bool overlap_comm = true) {
    ZeroOptions options;
    GetParam().Set(options);
    options.dtype = dtype;
    options.overlap_comm = overlap_comm;
    options.bucket_elements = 1000;
    return options;
  }
  // After a step.
  static std::unique_ptr<ZeroOptimizer> Create(Rank& self, const ZeroOptions& options) {
    auto zero = CreateZero(ToyModel(), options, self).value();
    EXPECT_OK(InitializeToy(*zero));
    ToyTrainer trainer(*zero, self);
    EXPECT_OK(trainer.Step());
    EXPECT_OK(self.stream->Synchronize());
    return zero;
  }
  // A reader that copies the state when the gate opens.
  static absl::Status CaptureBehind(device::Gate& gate, ZeroOptimizer& zero, device::Stream& reader,
                                    CapturedState& seen) {
    absl::Status status = zero.LendState(reader);
    if (status.ok()) status = device::Block(reader, gate);
    if (status.ok()) status = EnqueueCapture(zero, reader, seen);
    if (status.ok()) status = zero.ReturnState();
    return status;
  }
};

INSTANTIATE_TEST_SUITE_P(Homes, StateLoanTest, ::testing::ValuesIn(Homes()),
                         [](const auto& info) { return ToString(info.param); });

TEST_P(StateLoanTest, TheNextPassesRunBesideTheReaderAndTheUpdateAfterIt) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    for (const bool overlap_comm : {true, false}) {
      device::Gate gate;
      OnThreads({.size = 2}, [&](Rank& self) {
        auto zero = Create(self, Options(dtype, overlap_comm));
        ToyTrainer trainer(*zero, self);
        trainer.step = 1;
        const auto before = Capture(*zero, self).value();
        auto reader = self.context->CreateStream("reader").value();
        CapturedState seen;
        ASSERT_OK(CaptureBehind(gate, *zero, *reader, seen));
        ASSERT_OK(trainer.MicroBatch(0));
        // While nothing has been read.
        ASSERT_OK(self.stream->Synchronize());
        const int64_t waits = self.context->host_waits();
        ASSERT_OK(zero->Step());
        EXPECT_EQ(self.context->host_waits(), waits);
        EXPECT_EQ(zero->state_wait_ns(), 0);
        self.AwaitOthers();
        gate.Open();
        ASSERT_OK(reader->Synchronize());
        EXPECT_EQ(seen, before);
        const auto after = Capture(*zero, self).value();
        EXPECT_EQ(after.step.step, 2);
        EXPECT_NE(after.arrays, before.arrays);
      });
    }
  }
}

TEST_P(StateLoanTest, AStateIsThatOfTheUpdatesEnqueuedBeforeTheLoan) {
  OnThreads({.size = 2}, [&](Rank& self) {
    auto zero = Create(self, Options());
    ToyTrainer trainer(*zero, self);
    for (trainer.step = 1; trainer.step < 4;) ASSERT_OK(trainer.Step());
    EXPECT_EQ(Capture(*zero, self).value().step.step, 4);
  });
}

TEST_P(StateLoanTest, StepBlocksUntilAnotherThreadReturnsTheStateAndCountsTheTime) {
  OnThreads({.size = 2}, [&](Rank& self) {
    auto zero = Create(self, Options());
    ToyTrainer trainer(*zero, self);
    const auto before = Capture(*zero, self).value();
    auto reader = self.context->CreateStream("reader").value();
    ASSERT_OK(zero->LendState(*reader));
    ASSERT_OK(trainer.MicroBatch(0));
    EXPECT_EQ(zero->state_wait_ns(), 0);
    CapturedState seen;
    std::atomic<bool> returned = false;
    std::thread other([&] {
      absl::SleepFor(absl::Milliseconds(200));
      EXPECT_OK(EnqueueCapture(*zero, *reader, seen));
      returned = true;
      EXPECT_OK(zero->ReturnState());
    });
    EXPECT_OK(zero->Step());
    EXPECT_TRUE(returned);
    other.join();
    const int64_t waited = zero->state_wait_ns();
    EXPECT_GT(waited, 0);
    ASSERT_OK(reader->Synchronize());
    EXPECT_EQ(seen, before);
    // One that is back in time costs nothing more.
    ASSERT_OK(zero->LendState(*reader));
    ASSERT_OK(zero->ReturnState());
    ASSERT_OK(trainer.Step());
    EXPECT_EQ(zero->state_wait_ns(), waited);
    ASSERT_OK(self.stream->Synchronize());
  });
}

TEST_P(StateLoanTest, TheUpdateWaitsForAllReadersSinceTheLastOne) {
  device::Gate gate;
  OnThreads({.size = 2}, [&](Rank& self) {
    auto zero = Create(self, Options());
    ToyTrainer trainer(*zero, self);
    const auto before = Capture(*zero, self).value();
    auto slow = self.context->CreateStream("slow reader").value();
    auto fast = self.context->CreateStream("fast reader").value();
    CapturedState seen_slow, seen_fast;
    ASSERT_OK(CaptureBehind(gate, *zero, *slow, seen_slow));
    ASSERT_OK(zero->LendState(*fast));
    ASSERT_OK(EnqueueCapture(*zero, *fast, seen_fast));
    ASSERT_OK(zero->ReturnState());
    ASSERT_OK(trainer.Step());
    self.AwaitOthers();
    gate.Open();
    ASSERT_OK(slow->Synchronize());
    ASSERT_OK(fast->Synchronize());
    EXPECT_EQ(seen_slow, before);
    EXPECT_EQ(seen_fast, before);
    ASSERT_OK(zero->step_stream().Synchronize());
    ASSERT_OK(self.stream->Synchronize());
  });
}

TEST_P(StateLoanTest, ALoadWaitsForTheReader) {
  device::Gate gate;
  OnThreads({.size = 2}, [&](Rank& self) {
    auto zero = Create(self, Options());
    const auto before = Capture(*zero, self).value();
    auto reader = self.context->CreateStream("reader").value();
    CapturedState seen;
    ASSERT_OK(CaptureBehind(gate, *zero, *reader, seen));
    // The reader goes on while the load waits for it.
    const std::jthread opens([&] {
      absl::SleepFor(absl::Milliseconds(20));
      gate.Open();
    });
    ASSERT_OK(zero->LoadState(before.step, [&](int bucket, int, ElementRange range, void* values) {
      std::memset(values, 0,
                  static_cast<size_t>(range.size * StateWidth(zero->plan().bucket(bucket))));
      return absl::OkStatus();
    }));
    ASSERT_OK(reader->Synchronize());
    EXPECT_EQ(seen, before);
    EXPECT_NE(Capture(*zero, self).value(), before);
  });
}

// Whether the reader has returned the state by then, or does so when nobody waits for it any more.
TEST_P(StateLoanTest, AnErrorOfTheStreamsIsNoLongerOneOfReadersAfterCancelStep) {
  for (const bool returns_late : {false, true}) {
    for (const bool is_read_again : {false, true}) {
      OnThreads({.size = 2}, [&](Rank& self) {
        auto zero = Create(self, Options());
        ToyTrainer trainer(*zero, self);
        trainer.step = 1;
        const auto before = Capture(*zero, self).value();
        auto reader = self.context->CreateStream("reader").value();
        ASSERT_OK(zero->step_stream().Enqueue(
            {"fails"}, [](device::ThreadPool&) { return absl::DataLossError("of the stream"); }));
        ASSERT_OK(zero->LendState(*reader));
        const auto return_state = [&](bool now) {
          if (now) {
            EXPECT_OK(zero->ReturnState());
          }
        };
        return_state(!returns_late);
        EXPECT_THAT(reader->Synchronize(), StatusIs(absl::StatusCode::kDataLoss));
        ASSERT_OK(zero->CancelStep());
        return_state(returns_late);
        if (is_read_again) {
          auto other = self.context->CreateStream("other reader").value();
          CapturedState seen;
          ASSERT_OK(zero->LendState(*other));
          ASSERT_OK(EnqueueCapture(*zero, *other, seen));
          ASSERT_OK(zero->ReturnState());
          ASSERT_OK(other->Synchronize());
          EXPECT_EQ(seen, before);
        }
        ASSERT_OK(trainer.Step());
        ASSERT_OK(zero->step_stream().Synchronize());
        ASSERT_OK(self.stream->Synchronize());
      });
    }
  }
}

// A save goes on when the step after it is given up on.
TEST_P(StateLoanTest, AReaderGoesOnBesideCancelStep) {
  device::Gate gate;
  OnThreads({.size = 2}, [&](Rank& self) {
    auto zero = Create(self, Options());
    ToyTrainer trainer(*zero, self);
    trainer.step = 1;
    const auto before = Capture(*zero, self).value();
    auto reader = self.context->CreateStream("reader").value();
    CapturedState seen;
    ASSERT_OK(CaptureBehind(gate, *zero, *reader, seen));
    ASSERT_OK(trainer.MicroBatch(0));
    self.AwaitOthers();
    const std::jthread opens([&] {
      absl::SleepFor(absl::Milliseconds(20));
      gate.Open();
    });
    ASSERT_OK(zero->CancelStep());
    ASSERT_OK(reader->Synchronize());
    EXPECT_EQ(seen, before);
    ASSERT_OK(trainer.Step());
    ASSERT_OK(zero->step_stream().Synchronize());
    ASSERT_OK(self.stream->Synchronize());
  });
}

TEST_P(StateLoanTest, LoansOutOfTurnAreRefusedAndChangeNothing) {
  OnThreads({.size = 2}, [&](Rank& self) {
    auto zero = Create(self, Options());
    ToyTrainer trainer(*zero, self);
    const auto before = Capture(*zero, self).value();
    auto reader = self.context->CreateStream("reader").value();
    const auto refused = [](const std::string& text) {
      return StatusIs(kPrecondition, HasSubstr(text));
    };
    EXPECT_THAT(zero->ReturnState(), refused("ReturnState: the state is not lent"));
    ASSERT_OK(zero->LendState(*reader));
    EXPECT_THAT(zero->LendState(*reader), refused("LendState: the state is lent"));
    ASSERT_OK(zero->ReturnState());
    EXPECT_THAT(zero->ReturnState(), refused("ReturnState: the state is not lent"));

    // On one rank.
    if (self.rank == 1) {
      ASSERT_OK(zero->LendState(*reader));
    }
    const auto lent = [&](const char* call) {
      return StatusIs(kPrecondition, AllOf(HasSubstr(absl::StrCat(call, ": the state is lent")),
                                           HasSubstr(self.rank == 1 ? "" : "rank 1: ")));
    };
    EXPECT_THAT(LoadCaptured(*zero, {before.step, {}}), lent("LoadState"));
    EXPECT_THAT(InitializeToy(*zero), lent("InitializeParameters"));
    if (self.rank == 1) {
      ASSERT_OK(zero->ReturnState());
    }
    EXPECT_EQ(Capture(*zero, self).value(), before);

    ASSERT_OK(trainer.MicroBatch(0));
    EXPECT_THAT(zero->LendState(*reader),
                refused(absl::StrCat("stage ", GetParam().stage,
                                     ", LendState: in the middle of a step; call it after")));
    ASSERT_OK(zero->CancelStep());
    EXPECT_EQ(Capture(*zero, self).value(), before);
  });
}

}  // namespace
}  // namespace brigade::zero
