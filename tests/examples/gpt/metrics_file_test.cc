#include "brigade/examples/gpt/metrics_file.h"

#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "brigade/tests/testing/full_disk.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

std::string Path() { return absl::StrCat(::testing::TempDir(), "/metrics.jsonl"); }

std::string Content() {
  std::ifstream file(Path());
  return {std::istreambuf_iterator<char>(file), {}};
}

constexpr StepMetrics kStep = {.step = 3,
                               .seconds = 1.5,
                               .loss = 4.25,
                               .tokens_per_second = 2048,
                               .loss_scale = 65536,
                               .grad_norm = std::numeric_limits<double>::infinity(),
                               .learning_rate = 0.125,
                               .skipped = true};

TEST(MetricsFileTest, EachLineIsThereAtOnceAndWhatIsNotFiniteIsNull) {
  ASSERT_OK_AND_ASSIGN(const auto file, MetricsFile::Create(Path()));
  ASSERT_OK(file->OnStart({}));
  ASSERT_OK(file->OnEvaluation({0, 5.5}));
  EXPECT_EQ(Content(), "{\"step\":0,\"held_out_loss\":5.5}\n");
  ASSERT_OK(file->OnStep(kStep));
  EXPECT_EQ(Content(),
            "{\"step\":0,\"held_out_loss\":5.5}\n"
            "{\"step\":3,\"seconds\":1.5,\"loss\":4.25,\"tokens_per_second\":2048.0,"
            "\"loss_scale\":65536.0,\"grad_norm\":null,\"learning_rate\":0.125,"
            "\"skipped\":true}\n");
}

TEST(MetricsFileTest, OfANewTrainingReplacesTheFile) {
  std::ofstream(Path()) << "{\"step\":7,\"held_out_loss\":2.5}\n";
  ASSERT_OK_AND_ASSIGN(const auto file, MetricsFile::Create(Path()));
  EXPECT_EQ(Content(), "{\"step\":7,\"held_out_loss\":2.5}\n");
  ASSERT_OK(file->OnStart({}));
  ASSERT_OK(file->OnEvaluation({0, 5.5}));
  EXPECT_EQ(Content(), "{\"step\":0,\"held_out_loss\":5.5}\n");
}

// What came behind the step is made again; so is an evaluation at the step itself. Seconds go on.
TEST(MetricsFileTest, OfAResumedTrainingGoesOn) {
  const std::string kept =
      "{\"step\":0,\"held_out_loss\":5.5}\n"
      "{\"step\":1,\"seconds\":1.0,\"loss\":5.0}\n"
      "{\"step\":2,\"seconds\":2.5,\"loss\":4.5}\n";
  const std::string added =
      "{\"step\":3,\"seconds\":4.0,\"loss\":4.25,\"tokens_per_second\":2048.0,"
      "\"loss_scale\":65536.0,\"grad_norm\":null,\"learning_rate\":0.125,"
      "\"skipped\":true}\n";
  for (const char* rest :
       {"", "{\"step\":2,\"held_out_loss\":4.0}\n", "{\"step\":3,\"seconds\":3.0,\"loss\":4.0}\n",
        "{\"step\":3,\"sec", "null\n", "{\"step\":\"3\"}\n{\"step\":1,\"seconds\":9.0}\n"}) {
    std::ofstream(Path()) << kept << rest;
    ASSERT_OK_AND_ASSIGN(const auto file, MetricsFile::Create(Path()));
    ASSERT_OK(file->OnStart({.step = 2, .resumed = "from here"}));
    EXPECT_EQ(Content(), kept) << rest;
    ASSERT_OK(file->OnStep(kStep));
    EXPECT_EQ(Content(), kept + added) << rest;
  }
}

TEST(MetricsFileTest, ErrorsNameTheFile) {
  EXPECT_EQ(MetricsFile::Create("/nowhere/m.jsonl").status(),
            absl::NotFoundError("cannot write /nowhere/m.jsonl: No such file or directory"));
  ASSERT_OK_AND_ASSIGN(const auto file, MetricsFile::Create(Path()));
  const brigade::testing::FullDisk full(0);
  EXPECT_EQ(file->OnStep(kStep).message(),
            absl::StrCat("cannot write ", Path(), ": File too large"));
}

}  // namespace
}  // namespace brigade::gpt
