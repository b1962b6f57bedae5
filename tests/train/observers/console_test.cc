#include "brigade/train/observers/console.h"

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>

#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::train {
namespace {

// What a console of 100 steps of 1000 bytes prints.
class Printed {
 public:
  explicit Printed(size_t columns, int64_t steps_per_print = 0)
      : console_(file_, columns, 100, 1000, steps_per_print) {}
  ~Printed() {
    std::fclose(file_);
    std::free(text_);
  }

  Console& console() { return console_; }
  std::string text() {
    std::fflush(file_);
    return text_;
  }

 private:
  char* text_ = nullptr;
  size_t size_ = 0;
  std::FILE* const file_ = open_memstream(&text_, &size_);
  Console console_;
};

StepMetrics Step(int64_t step) {
  return {.step = step,
          .seconds = 0.5 * static_cast<double>(step),
          .loss = 3.21987,
          .tokens_per_second = 1,  // of the last step: not what the line shows
          .loss_scale = 32768,
          .grad_norm = 1.2345,
          .learning_rate = 0.0028,
          .skipped = false};
}

TEST(ConsoleTest, ALineSaysHowItGoes) {
  Printed printed(0);
  ASSERT_OK(printed.console().OnEvaluation({0, 5.5}));
  ASSERT_OK(printed.console().OnStep(Step(1)));
  EXPECT_EQ(printed.text(),
            "held out after 0 steps: 5.5000 nats per byte\n"
            "step   1/100 loss 3.2199 2000 bytes/s scale 32768 norm 1.23 lr 2.8e-03 50s left\n");
}

TEST(ConsoleTest, UnitsAreThoseOfTheTraining) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* const file = open_memstream(&text, &size);
  Console console(file, 0, 100, 1000, 0, "image", "loss");
  ASSERT_OK(console.OnEvaluation({0, 5.5}));
  ASSERT_OK(console.OnStep(Step(1)));
  std::fclose(file);
  EXPECT_STREQ(
      text,
      "held out after 0 steps: 5.5000 loss per image\n"
      "step   1/100 loss 3.2199 2000 images/s scale 32768 norm 1.23 lr 2.8e-03 50s left\n");
  std::free(text);
}

TEST(ConsoleTest, ASkippedStepIsSaidToBe) {
  Printed printed(0);
  StepMetrics step = Step(1);
  step.skipped = true;
  step.grad_norm = std::numeric_limits<double>::infinity();
  ASSERT_OK(printed.console().OnStep(step));
  EXPECT_EQ(printed.text(),
            "step   1/100 loss 3.2199 2000 bytes/s scale 32768 norm inf lr 2.8e-03 50s left "
            "skipped: overflow\n");
}

TEST(ConsoleTest, ALogGetsTheFirstAndTheLastStepAndFewBetween) {
  Printed printed(0);
  for (int64_t step = 1; step <= 100; ++step) ASSERT_OK(printed.console().OnStep(Step(step)));
  EXPECT_EQ(printed.text(),
            "step   1/100 loss 3.2199 2000 bytes/s scale 32768 norm 1.23 lr 2.8e-03 50s left\n"
            "step 100/100 loss 3.2199 2000 bytes/s scale 32768 norm 1.23 lr 2.8e-03 0s left\n");
}

TEST(ConsoleTest, ALineComesEverySoManyStepsAndAtTheEnd) {
  Printed printed(0, 40);
  for (int64_t step = 1; step <= 100; ++step) ASSERT_OK(printed.console().OnStep(Step(step)));
  EXPECT_EQ(printed.text(),
            "step  40/100 loss 3.2199 2000 bytes/s scale 32768 norm 1.23 lr 2.8e-03 30s left\n"
            "step  80/100 loss 3.2199 2000 bytes/s scale 32768 norm 1.23 lr 2.8e-03 10s left\n"
            "step 100/100 loss 3.2199 2000 bytes/s scale 32768 norm 1.23 lr 2.8e-03 0s left\n");
}

TEST(ConsoleTest, InATerminalTheseLinesStay) {
  Printed printed(72, 2);
  ASSERT_OK(printed.console().OnStep(Step(1)));
  ASSERT_OK(printed.console().OnStep(Step(2)));
  EXPECT_EQ(printed.text(),
            "\rstep   1/100 loss 3.2199 2000 bytes/s scale 32768 norm 1.23 lr 2.8e-03 \033[K"
            "\rstep   2/100 loss 3.2199 2000 bytes/s scale 32768 norm 1.23 lr 2.8e-03 \033[K\n");
}

TEST(ConsoleTest, ATerminalsLineIsWrittenOverAndShortEnoughForIt) {
  Printed printed(72);
  ASSERT_OK(printed.console().OnStep(Step(1)));
  ASSERT_OK(printed.console().OnEvaluation({50, 4}));
  ASSERT_OK(printed.console().OnStep(Step(100)));
  EXPECT_EQ(printed.text(),
            "\rstep   1/100 loss 3.2199 2000 bytes/s scale 32768 norm 1.23 lr 2.8e-03 \033[K"
            "\rheld out after 50 steps: 4.0000 nats per byte\033[K\n"
            "\rstep 100/100 loss 3.2199 2000 bytes/s scale 32768 norm 1.23 lr 2.8e-03 \033[K\n");
}

// The rate and what is left are those of the steps that were made since, and of their time.
TEST(ConsoleTest, TheRateCountsFromTheStateThatWasLoaded) {
  Printed printed(0, 40);
  Console& console = printed.console();
  for (int64_t step = 1; step <= 40; ++step) ASSERT_OK(console.OnStep(Step(step)));
  // Back by 20 steps, then on to a later state.
  ASSERT_OK(console.OnLoad({.step = 20, .is_resumed = true, .resumed = "Step 20 of x"}));
  StepMetrics again = Step(40);
  again.seconds = 20 + 5;
  ASSERT_OK(console.OnStep(again));
  ASSERT_OK(console.OnLoad({.step = 70, .is_resumed = true, .resumed = "Step 70 of x"}));
  StepMetrics later = Step(80);
  later.seconds = 25 + 20;
  ASSERT_OK(console.OnStep(later));
  EXPECT_EQ(printed.text(),
            "step  40/100 loss 3.2199 2000 bytes/s scale 32768 norm 1.23 lr 2.8e-03 30s left\n"
            "Step 20 of x\n"
            "step  40/100 loss 3.2199 4000 bytes/s scale 32768 norm 1.23 lr 2.8e-03 15s left\n"
            "Step 70 of x\n"
            "step  80/100 loss 3.2199 500 bytes/s scale 32768 norm 1.23 lr 2.8e-03 40s left\n");
}

}  // namespace
}  // namespace brigade::train
