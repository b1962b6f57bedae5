#include "brigade/digests/digest_file.h"

#include <sys/resource.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "brigade/device/files.h"
#include "brigade/tests/spec/digest.h"
#include "brigade/tests/testing/full_disk.h"
#include "brigade/tests/testing/late_disk.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::digests {
namespace {

using ::brigade::testing::StatusIs;
using kernels::TensorDigest;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

const DigestHeader kHeader = {
    .tensors = {{"h.0", "h.0.w", {3, 4}, 12}, {"h.0", "h.0.b", {4}, 4}, {"h.1", "ln", {2}, 2}},
    .run = "stage 2"};

StepRecord Record(int64_t step, uint64_t seed, bool has_gradients = true) {
  StepRecord record = {.step = step, .skipped = step % 2 == 0, .gradients = {}, .weights = {}};
  for (uint64_t t = 0; t < 3; ++t) {
    if (has_gradients) record.gradients.push_back({{seed + t, ~seed}});
    record.weights.push_back({{seed << 40, t}});
  }
  return record;
}

std::string PathOf(const std::string& name) { return ::testing::TempDir() + "/" + name; }

void ExpectSame(const std::vector<TensorDigest>& a, const std::vector<TensorDigest>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].words[0], b[i].words[0]);
    EXPECT_EQ(a[i].words[1], b[i].words[1]);
  }
}

void WriteFile(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

// JSON cannot hold them; and what is there stays.
TEST(DigestFileTest, RefusesNamesThatAreNoUtf8) {
  const std::string path = PathOf("bytes");
  WriteFile(path, "something else");
  DigestHeader name = kHeader, unit = kHeader, run = kHeader;
  name.tensors[1].name = "w\xff";
  unit.tensors[2].unit = "u\xff";
  run.run = "r\xff";
  for (const auto& [header, said] :
       {std::pair(name, "w"), std::pair(unit, "u"), std::pair(run, "r")}) {
    EXPECT_THAT(DigestFile::Create(path, header, 0),
                StatusIs(kInvalid, AllOf(HasSubstr(path + ": \"" + said), HasSubstr("UTF-8"))));
  }
  EXPECT_EQ(*device::ReadFile(path), "something else");
  name.tensors[1].name = "w\xc3\xa4";
  EXPECT_OK(DigestFile::Create(path, name, 0));
}

TEST(DigestFileTest, ReadsWhatWasWritten) {
  const std::string path = PathOf("written");
  WriteFile(path, "something else");
  {
    auto file = DigestFile::Create(path, kHeader, 0);
    ASSERT_OK(file);
    ASSERT_OK((*file)->Write(Record(10, 3)));
    ASSERT_OK((*file)->Write(Record(15, 4, false)));
  }
  const auto log = ReadDigests(path);
  ASSERT_OK(log);
  EXPECT_EQ(log->header.run, "stage 2");
  ASSERT_EQ(log->header.tensors.size(), 3u);
  EXPECT_EQ(log->header.tensors[0].shape, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(log->header.tensors[0].size, 12);
  ASSERT_EQ(log->steps.size(), 2u);
  EXPECT_EQ(log->steps[0].step, 10);
  EXPECT_TRUE(log->steps[0].skipped);
  EXPECT_FALSE(log->steps[1].skipped);
  ExpectSame(log->steps[0].gradients, Record(10, 3).gradients);
  ExpectSame(log->steps[0].weights, Record(10, 3).weights);
  EXPECT_TRUE(log->steps[1].gradients.empty());
  ExpectSame(log->steps[1].weights, Record(15, 4).weights);
}

// The bytes, so that others can read them; and a unit's digest by the specification.
TEST(DigestFileTest, IsLinesOfJson) {
  const std::string path = PathOf("lines");
  ASSERT_OK(
      (*DigestFile::Create(path, {.tensors = {kHeader.tensors[2]}, .run = "r"}, 0))
          ->Write({.step = 1, .skipped = false, .gradients = {{{1, 2}}}, .weights = {{{3, 4}}}}));
  const spec::Digest gradients = spec::DigestOfUnit({{1, 2}}),
                     weights = spec::DigestOfUnit({{3, 4}});
  char units[2][33];
  std::snprintf(units[0], 33, "%016llx%016llx", static_cast<unsigned long long>(gradients[0]),
                static_cast<unsigned long long>(gradients[1]));
  std::snprintf(units[1], 33, "%016llx%016llx", static_cast<unsigned long long>(weights[0]),
                static_cast<unsigned long long>(weights[1]));
  EXPECT_EQ(device::ReadFile(path).value(),
            std::string(R"({"brigade_digests":1,"run":"r","tensors":[{"unit":"h.1","name":"ln",)"
                        R"("shape":[2]}]})"
                        "\n"
                        R"({"step":1,"unit":"h.1","skipped":false,"gradients":")") +
                units[0] + R"(","weights":")" + units[1] +
                R"(","tensors":{"ln":["00000000000000010000000000000002",)"
                R"("00000000000000030000000000000004"]}})"
                "\n");
}

TEST(DigestFileTest, GoesOnBehindTheStepThatIsResumed) {
  const std::string path = PathOf("resumed");
  for (const int64_t done : {int64_t{0}, int64_t{7}, int64_t{20}}) {
    auto file = DigestFile::Create(path, kHeader, 0);
    ASSERT_OK(file);
    for (const int64_t step : {5, 10, 15}) {
      ASSERT_OK((*file)->Write(Record(step, static_cast<uint64_t>(step))));
    }
    file->reset();
    file = DigestFile::Create(path, kHeader, done);
    ASSERT_OK(file);
    ASSERT_OK((*file)->Write(Record(30, 9)));
    file->reset();
    const auto log = ReadDigests(path);
    ASSERT_OK(log);
    std::vector<int64_t> steps;
    for (const StepRecord& each : log->steps) steps.push_back(each.step);
    EXPECT_EQ(steps, done == 0   ? std::vector<int64_t>({30})
                     : done == 7 ? std::vector<int64_t>({5, 30})
                                 : std::vector<int64_t>({5, 10, 15, 30}));
  }
  DigestHeader other = kHeader;
  other.tensors[1].shape = {2, 2};
  EXPECT_THAT(DigestFile::Create(path, other, 5).status(),
              StatusIs(kInvalid, HasSubstr("no digests of this model")));
}

TEST(DigestFileTest, LeavesOutAStepThatIsCutOff) {
  const std::string path = PathOf("cut");
  auto file = DigestFile::Create(path, kHeader, 0);
  ASSERT_OK((*file)->Write(Record(1, 1)));
  ASSERT_OK((*file)->Write(Record(2, 2)));
  file->reset();
  const std::string text = device::ReadFile(path).value();
  WriteFile(path, text.substr(0, text.size() - 20));
  const auto log = ReadDigests(path);
  ASSERT_OK(log);
  ASSERT_EQ(log->steps.size(), 1u);
  EXPECT_EQ(log->steps[0].step, 1);
}

// What a run that is killed leaves may end with a line, but within a step.
TEST(DigestFileTest, LeavesOutAStepOfWhichLinesAreMissing) {
  const std::string path = PathOf("killed");
  auto file = DigestFile::Create(path, kHeader, 0);
  ASSERT_OK((*file)->Write(Record(1, 1)));
  ASSERT_OK((*file)->Write(Record(2, 2)));
  file->reset();
  const std::string text = device::ReadFile(path).value();
  const size_t last_line = text.rfind('\n', text.size() - 2) + 1;
  // With the begin of the next line, too.
  for (const size_t size : {last_line, last_line + 9}) {
    WriteFile(path, text.substr(0, size));
    const auto log = ReadDigests(path);
    ASSERT_OK(log);
    ASSERT_EQ(log->steps.size(), 1u);
    EXPECT_EQ(log->steps[0].step, 1);
    // A training that goes on behind that step writes no second part of it.
    file = DigestFile::Create(path, kHeader, 2);
    ASSERT_OK(file);
    ASSERT_OK((*file)->Write(Record(3, 3)));
    file->reset();
    const auto resumed = ReadDigests(path);
    ASSERT_OK(resumed);
    ASSERT_EQ(resumed->steps.size(), 2u);
    EXPECT_EQ(resumed->steps[1].step, 3);
    ExpectSame(resumed->steps[1].weights, Record(3, 3).weights);
  }
  // A step that is whole stays, though the next one has begun.
  WriteFile(path, text + "{\"step\":3");
  EXPECT_EQ(ReadDigests(path)->steps.size(), 2u);
}

TEST(DigestFileTest, AFullDiskCostsStepsAndNoFile) {
  const std::string path = PathOf("full");
  auto file = DigestFile::Create(path, kHeader, 0);
  ASSERT_OK((*file)->Write(Record(1, 1)));
  const auto bytes = static_cast<rlim_t>(device::ReadFile(path).value().size());
  {
    // With room for the begin of a step.
    const brigade::testing::FullDisk full(bytes + 50);
    EXPECT_THAT((*file)->Write(Record(2, 2)).message(), HasSubstr("cannot write " + path));
    EXPECT_EQ(device::ReadFile(path).value().size(), bytes);
  }
  ASSERT_OK((*file)->Write(Record(3, 3)));
  const auto log = ReadDigests(path);
  ASSERT_OK(log);
  ASSERT_EQ(log->steps.size(), 2u);
  EXPECT_EQ(log->steps[1].step, 3);
  ExpectSame(log->steps[1].weights, Record(3, 3).weights);
  {
    const brigade::testing::FullDisk full(10);
    EXPECT_THAT(DigestFile::Create(PathOf("none"), kHeader, 0).status().message(),
                HasSubstr("cannot write " + PathOf("none")));
  }
}

// As one of another machine may.
TEST(DigestFileTest, ADiskThatSaysOnlyAtTheEndThatItIsFullIsNamed) {
  const std::string path = PathOf("late");
  auto file = DigestFile::Create(path, kHeader, 0);
  ASSERT_OK((*file)->Write(Record(1, 1)));
  ASSERT_OK((*file)->Sync());
  const brigade::testing::LateDisk late(path);
  EXPECT_THAT((*file)->Sync().message(),
              HasSubstr("cannot write " + path + ": No space left on device"));
  EXPECT_EQ(late.syncs(), 1);
}

TEST(DigestFileTest, NamesTheLineThatIsNone) {
  const std::string path = PathOf("wrong");
  ASSERT_OK((*DigestFile::Create(path, kHeader, 0))->Write(Record(1, 1)));
  const std::string text = device::ReadFile(path).value();
  const auto expect = [&](const std::string& content, const std::string& message) {
    WriteFile(path, content);
    EXPECT_THAT(ReadDigests(path).status(), StatusIs(kInvalid, HasSubstr(path + message)));
  };
  expect("", ": this is no file of digests");
  expect("{}\n", ":1: this is no file of digests");
  expect("{\"brigade_digests\":2,\"run\":\"\",\"tensors\":[]}\n", ":1: this is no file");
  expect(
      "{\"brigade_digests\":1,\"run\":\"\",\"tensors\":[{\"unit\":\"u\",\"name\":\"n\","
      "\"shape\":[9223372036854775807,2]}]}\n",
      ":1: this is no file");
  expect(text + "{}\n", ":4: this is no line of digests");
  expect(text + "[1\n", ":4: this is no line of digests");
  const size_t at = text.find("\"step\":1");
  expect(std::string(text).replace(at, 8, "\"step\":0"), ":2: this is no line of digests");
  const size_t name = text.rfind("ln\":[");
  expect(std::string(text).replace(name, 2, "xx"), ":3: this is no line of digests");
  expect(std::string(text).replace(name + 6, 1, "g"), ":3: this is no line of digests");
  const size_t second = text.find('\n') + 1, third = text.find('\n', second) + 1;
  const std::string of_step_2 = std::string(text.substr(second)).replace(0, 9, "{\"step\":2");
  expect(text.substr(0, third) + of_step_2, ":3: the step before this line lacks tensors");
  expect(text + text.substr(third), ":4: the step has a tensor of this line twice");
  // A digit of a tensor's gradient, of its weights, and of the unit's own; one step that is skipped
  // in part.
  const std::string changed = "the unit's digest is not that of its tensors: the file has changed";
  for (const size_t digit : {name + 6, name + 45, text.find("\"weights\":\"") + 11}) {
    const char other = text[digit] == '0' ? '1' : '0';
    expect(std::string(text).replace(digit, 1, 1, other),
           digit < third ? ":2: " + changed : ":3: " + changed);
  }
  const size_t skipped = text.rfind("false");
  expect(std::string(text).replace(skipped, 5, "true"), ":3: this is no line of digests");
}

}  // namespace
}  // namespace brigade::digests
