#include "brigade/train/interrupt.h"

#include <signal.h>

#include <cstdio>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace brigade::train {
namespace {

void (*HandlerOf(int signal))(int) {
  struct sigaction action = {};
  sigaction(signal, nullptr, &action);
  return action.sa_handler;
}

TEST(InterruptTest, TheSignalAsksToStopAndNothingElse) {
  for (const int signal : {SIGINT, SIGTERM}) {
    bool gave_up = false;
    {
      Interrupt interrupt(absl::Minutes(1), [&] { gave_up = true; });
      EXPECT_FALSE(interrupt.stop());  // also after the one before was interrupted
      raise(signal);
      EXPECT_TRUE(interrupt.stop());
      raise(signal);
    }
    EXPECT_FALSE(gave_up);
  }
}

TEST(InterruptTest, SignalsDoWhatTheyDidBeforeWhenItIsGone) {
  signal(SIGINT, SIG_IGN);
  {
    Interrupt interrupt(absl::Milliseconds(1), [] {});
    EXPECT_NE(HandlerOf(SIGINT), SIG_IGN);
    EXPECT_NE(HandlerOf(SIGTERM), SIG_DFL);
  }
  EXPECT_EQ(HandlerOf(SIGINT), SIG_IGN);
  EXPECT_EQ(HandlerOf(SIGTERM), SIG_DFL);
  signal(SIGINT, SIG_DFL);
}

TEST(InterruptTest, ItDoesNotGiveUpUnlessInterrupted) {
  bool gave_up = false;
  {
    Interrupt interrupt(absl::Milliseconds(0), [&] { gave_up = true; });
    absl::SleepFor(absl::Milliseconds(200));
  }
  EXPECT_FALSE(gave_up);
}

// Without any patience the watcher gives up at its first look, unless it has ended.
TEST(InterruptTest, ATrainingAtItsReportIsNotGivenUp) {
  bool gave_up = false;
  {
    Interrupt interrupt(absl::Milliseconds(0), [&] { gave_up = true; });
    interrupt.Disarm();
    raise(SIGINT);
    absl::SleepFor(absl::Milliseconds(200));
  }
  EXPECT_FALSE(gave_up);
}

// The destructor returns without waiting for the end of the patience, at which the process would
// end.
TEST(InterruptTest, ATrainingThatReachesItsReportInTimeIsNotGivenUp) {
  bool gave_up = false;
  {
    Interrupt interrupt(absl::Minutes(1), [&] { gave_up = true; });
    raise(SIGINT);
    interrupt.Disarm();
  }
  EXPECT_FALSE(gave_up);
}

TEST(InterruptDeathTest, ATrainingThatDoesNotStopIsGivenUp) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Interrupt interrupt(absl::Milliseconds(50), [] { std::fputs("the report\n", stderr); });
        raise(SIGINT);
        absl::SleepFor(absl::Minutes(1));
      },
      ::testing::ExitedWithCode(Interrupt::kExitCode), "^the report\n$");
}

}  // namespace
}  // namespace brigade::train
