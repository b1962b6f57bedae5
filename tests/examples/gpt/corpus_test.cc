#include "brigade/examples/gpt/corpus.h"

#include <cmath>
#include <cstdint>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::string Path(const std::string& name) { return absl::StrCat(::testing::TempDir(), "/", name); }

std::string Write(const std::string& name, const std::string& bytes) {
  std::ofstream(Path(name), std::ios::binary) << bytes;
  return Path(name);
}

std::string Sample(const Corpus& corpus, uint64_t seed, int64_t step, int64_t sample) {
  std::vector<uint8_t> text(17);
  SampleText(corpus, seed, step, sample, absl::MakeSpan(text));
  return std::string(text.begin(), text.end());
}

TEST(CorpusTest, HoldsOutTwoWholeLicences) {
  ASSERT_OK_AND_ASSIGN(const Corpus corpus, ReadLicences());
  EXPECT_THAT(corpus.held_out, HasSubstr("Apache License"));
  EXPECT_THAT(corpus.held_out, HasSubstr("Mozilla Public License Version 2.0"));
  EXPECT_THAT(corpus.training, HasSubstr("GNU GENERAL PUBLIC LICENSE"));
  EXPECT_EQ(corpus.training.find("Apache License"), std::string::npos);
  EXPECT_GT(corpus.training.size(), 100'000u);
  EXPECT_THAT(corpus.description,
              MatchesRegex("[0-9]+ licences .[0-9]+ bytes.; held out: Apache-2.0, MPL-2.0 "
                           ".[0-9]+ bytes."));
}

TEST(CorpusTest, AFolderWithoutThoseLicencesIsNamed) {
  EXPECT_EQ(ReadLicences("/nowhere").status(),
            absl::NotFoundError("no licence texts in \"/nowhere\": No such file or directory; "
                                "name a text by --data"));
  const std::string text = Write("text", "a text");
  EXPECT_EQ(ReadLicences(text.substr(0, text.rfind('/'))).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(CorpusTest, HoldsOutTheLastTenthOfAFile) {
  const std::string path = Write("bytes", std::string(90, 'a') + std::string(10, '\0') + "b");
  ASSERT_OK_AND_ASSIGN(const Corpus corpus, ReadCorpus(path));
  EXPECT_EQ(corpus.training, std::string(90, 'a') + '\0');
  EXPECT_EQ(corpus.held_out, std::string(9, '\0') + 'b');
  EXPECT_EQ(corpus.description, absl::StrCat(path, " (91 bytes); held out: its last 10 bytes"));
}

TEST(CorpusTest, HoldsOutNoMoreThanAnEvaluationCanBear) {
  ASSERT_OK_AND_ASSIGN(const Corpus corpus, ReadCorpus(Write("long", std::string(1 << 20, 'a'))));
  EXPECT_EQ(corpus.held_out.size(), 65536u);
  EXPECT_EQ(corpus.training.size(), (1u << 20) - 65536u);
}

TEST(CorpusTest, BadFilesAreNamed) {
  EXPECT_EQ(ReadCorpus("/nowhere/text").status(),
            absl::NotFoundError("cannot open /nowhere/text: No such file or directory"));
  EXPECT_EQ(ReadCorpus("/tmp").status(),
            absl::InvalidArgumentError("/tmp is a folder, not a file"));
  EXPECT_EQ(ReadCorpus("/dev/zero").status(),
            absl::InvalidArgumentError("/dev/zero is a device, not a file"));
  const std::string empty = Write("empty", "");
  EXPECT_EQ(ReadCorpus(empty).status(), absl::InvalidArgumentError(empty + " is empty"));
}

TEST(CorpusTest, BothPartsNeedATextOfTheContext) {
  EXPECT_OK(CheckLength({"12345", "12345", ""}, 4));
  EXPECT_EQ(CheckLength({"12345", "1234", ""}, 4),
            absl::InvalidArgumentError(
                "the text is too short: held-out part has 4 bytes; a context of 4 needs 5"));
  EXPECT_EQ(CheckLength({"", "12345", ""}, 4),
            absl::InvalidArgumentError(
                "the text is too short: training part has 0 bytes; a context of 4 needs 5"));
}

TEST(CorpusTest, SamplesDependOnSeedStepAndNumberAlone) {
  ASSERT_OK_AND_ASSIGN(const Corpus corpus, ReadLicences());
  EXPECT_EQ(Sample(corpus, 1, 2, 3), Sample(corpus, 1, 2, 3));
  // No two of many are alike: of seeds, steps and numbers, 1, 2 and 3 of each.
  std::set<std::string> samples;
  for (int i = 0; i < 27; ++i) {
    samples.insert(Sample(corpus, 1 + i / 9, 1 + i / 3 % 3, 1 + i % 3));
  }
  EXPECT_EQ(samples.size(), 27u);
  for (const std::string& sample : samples) EXPECT_THAT(corpus.training, HasSubstr(sample));
}

TEST(CorpusTest, SamplesBeginAnywhere) {
  Corpus corpus;
  for (char c = 'a'; c < 'a' + 20; ++c) corpus.training += c;
  std::set<std::string> samples;
  for (int i = 0; i < 200; ++i) samples.insert(Sample(corpus, 1, i, 0));
  EXPECT_EQ(samples, (std::set<std::string>{"abcdefghijklmnopq", "bcdefghijklmnopqr",
                                            "cdefghijklmnopqrs", "defghijklmnopqrst"}));
}

TEST(CorpusTest, NgramLossIsThatOfCounting) {
  const Corpus corpus = {"abababac\xff\xff\xff", "abac\xff\xff", ""};
  // Each byte after the first, by how often it followed the one before in training: of 4 times that
  // something followed 'a' it was 'b' three times and 'c' once; 'a' followed 'b' 3 of 3 times; \xff
  // followed 'c' 1 of 1, and \xff 2 of 2 times.
  const auto nats = [](double count, double of) { return -std::log((count + 0.01) / (of + 2.56)); };
  EXPECT_NEAR(NgramLoss(corpus, 2),
              (nats(3, 4) + nats(3, 3) + nats(1, 4) + nats(1, 1) + nats(2, 2)) / 5, 1e-12);
  // "ba" after "ab" 3 of 3, "bac" 1 of 3, "ac\xff" 1 of 1, "c\xff\xff" 1 of 1.
  EXPECT_NEAR(NgramLoss(corpus, 3), (nats(3, 3) + nats(1, 3) + nats(1, 1) + nats(1, 1)) / 4, 1e-12);
  // What was never seen has the probability of chance.
  EXPECT_NEAR(NgramLoss({"aaaa", "zzz", ""}, 2), std::log(256.0), 1e-12);
}

TEST(CorpusTest, NgramModelsOfTheLicencesAreGoodRivals) {
  ASSERT_OK_AND_ASSIGN(const Corpus corpus, ReadLicences());
  EXPECT_NEAR(NgramLoss(corpus, 2), 2.51, 0.05);
  EXPECT_NEAR(NgramLoss(corpus, 3), 1.84, 0.05);
}

}  // namespace
}  // namespace brigade::gpt
