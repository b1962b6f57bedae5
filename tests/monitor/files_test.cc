// The back ends that write files.

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "brigade/device/status_macros.h"
#include "brigade/monitor/csv_files.h"
#include "brigade/monitor/event_file.h"
#include "brigade/monitor/event_record.h"
#include "brigade/monitor/json_lines.h"
#include "brigade/monitor/monitor.h"
#include "brigade/tests/testing/full_disk.h"
#include "brigade/tests/testing/late_disk.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::monitor {
namespace {

// An empty folder for a test.
std::string Folder() {
  const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string folder = absl::StrCat(::testing::TempDir(), "/", test->name());
  std::filesystem::remove_all(folder);
  return folder;
}

std::string Content(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::set<std::string> FilesIn(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

Record StepRecord(int64_t step, double loss) {
  return {.at = {step, 8 * step},
          .wall_time = 2,
          .values = {{"", 0.5 * static_cast<double>(step), "seconds", Value::Kind::kSinceStart},
                     {"Train/Samples/train_loss", loss, "loss"},
                     {"Train/Samples/skipped", 0, "skipped", Value::Kind::kFlag}}};
}

Record EvaluationRecord(int64_t step, double loss) {
  return {.at = {step, 8 * step},
          .wall_time = 2,
          .values = {{"Train/Samples/held out", loss, "held_out_loss"}},
          .is_made_again = true};
}

TEST(JsonLinesTest, EachLineIsThereAtOnceAndWhatIsNotFiniteIsNull) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/lines.jsonl");
  std::ofstream(path) << "{\"step\":7,\"held_out_loss\":2.5}\n";
  ASSERT_OK_AND_ASSIGN(const auto lines, JsonLines::Create(path));
  EXPECT_EQ(Content(path), "{\"step\":7,\"held_out_loss\":2.5}\n");
  ASSERT_OK(lines->Start({}));
  ASSERT_OK(lines->Write(EvaluationRecord(0, 5.5)));
  EXPECT_EQ(Content(path), "{\"step\":0,\"held_out_loss\":5.5}\n");
  ASSERT_OK(lines->Write(StepRecord(1, std::numeric_limits<double>::infinity())));
  // What has no key is of no line.
  ASSERT_OK(lines->Write({.at = {1, 8}, .values = {{"Train/Memory/bytes", 4}}}));
  EXPECT_EQ(Content(path),
            "{\"step\":0,\"held_out_loss\":5.5}\n"
            "{\"step\":1,\"seconds\":0.5,\"loss\":null,\"skipped\":false}\n");
}

// What came behind the step is made again; so is an evaluation at the step itself. Seconds go on.
TEST(JsonLinesTest, OfAResumedTrainingGoesOn) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/resumed.jsonl");
  const std::string kept =
      "{\"step\":0,\"held_out_loss\":5.5}\n"
      "{\"step\":1,\"seconds\":1.0,\"loss\":5.0}\n"
      "{\"step\":2,\"seconds\":2.5,\"loss\":4.5}\n";
  for (const char* rest :
       {"", "{\"step\":2,\"held_out_loss\":4.0}\n", "{\"step\":3,\"seconds\":3.0,\"loss\":4.0}\n",
        "{\"step\":3,\"sec", "null\n", "{\"step\":\"3\"}\n{\"step\":9,\"seconds\":9.0}\n"}) {
    std::ofstream(path) << kept << rest;
    ASSERT_OK_AND_ASSIGN(const auto lines, JsonLines::Create(path));
    ASSERT_OK(lines->Start({2, 16}));
    EXPECT_EQ(Content(path), kept) << rest;
    ASSERT_OK(lines->Write(StepRecord(3, 4.25)));
    EXPECT_EQ(Content(path),
              kept + "{\"step\":3,\"seconds\":4.0,\"loss\":4.25,\"skipped\":false}\n")
        << rest;
  }
}

// Lines that were damaged cost no others.
TEST(JsonLinesTest, OfAResumedTrainingKeepsWhatIsBehindDamagedLines) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/damaged.jsonl");
  const std::string damaged = "\n{\"step\"" + std::string(100 * 1000, '\0') + "}\n[\n";
  const std::string kept = damaged + "{\"step\":2,\"seconds\":2.5}\n";
  std::ofstream(path) << kept << damaged << "{\"step\":3,\"seconds\":3.5}\n";
  ASSERT_OK_AND_ASSIGN(const auto lines, JsonLines::Create(path));
  ASSERT_OK(lines->Start({2, 16}));
  EXPECT_EQ(Content(path), kept);
}

// Two trainings that were given one file: no line is ever cut or hidden in another, and it is said.
TEST(JsonLinesTest, WhatAnotherProcessDoesToTheFileIsToldAndLinesStayWhole) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/shared.jsonl");
  std::filesystem::remove(path);
  ASSERT_OK_AND_ASSIGN(const auto one, JsonLines::Create(path));
  ASSERT_OK(one->Start({}));
  ASSERT_OK(one->Write(EvaluationRecord(0, 5.5)));
  ASSERT_OK(one->Write(EvaluationRecord(1, 5.25)));
  ASSERT_OK_AND_ASSIGN(const auto other, JsonLines::Create(path));
  ASSERT_OK(other->Start({}));
  ASSERT_OK(other->Write(EvaluationRecord(7, 4.5)));
  const absl::Status status = one->Write(EvaluationRecord(2, 5));
  EXPECT_EQ(status,
            absl::FailedPreconditionError(absl::StrCat(
                "cannot write ", path, ": another process writes to it, or has cut it off")));
  ASSERT_OK(one->Write(EvaluationRecord(3, 4.75)));
  EXPECT_EQ(Content(path),
            "{\"step\":7,\"held_out_loss\":4.5}\n{\"step\":3,\"held_out_loss\":4.75}\n");
  EXPECT_FALSE(other->Write(EvaluationRecord(8, 4)).ok());

  // Values that go into a file without a name are missing.
  std::filesystem::remove(path);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(one->Write(EvaluationRecord(4, 4.5)).message(),
              absl::StrCat("cannot write ", path, ": it was removed"));
  }
}

TEST(JsonLinesTest, ErrorsNameTheFileAndALineThatDoesNotFitLeavesNothing) {
  EXPECT_EQ(JsonLines::Create("/nowhere/m.jsonl").status(),
            absl::NotFoundError("cannot write /nowhere/m.jsonl: No such file or directory"));
  const std::string path = absl::StrCat(::testing::TempDir(), "/full.jsonl");
  ASSERT_OK_AND_ASSIGN(const auto lines, JsonLines::Create(path));
  ASSERT_OK(lines->Start({}));
  ASSERT_OK(lines->Write(StepRecord(1, 5)));
  const std::string before = Content(path);
  {
    // Room for half of a line.
    const brigade::testing::FullDisk full(before.size() + 20);
    EXPECT_EQ(lines->Write(StepRecord(2, 4)).message(),
              absl::StrCat("cannot write ", path, ": File too large"));
    EXPECT_EQ(Content(path), before);
  }
  ASSERT_OK(lines->Write(StepRecord(3, 3)));
  EXPECT_EQ(Content(path),
            before + "{\"step\":3,\"seconds\":1.5,\"loss\":3.0,\"skipped\":false}\n");
}

TEST(CsvFilesTest, HaveAFileForEachTagAsDeepSpeedHas) {
  const std::string folder = Folder();
  ASSERT_OK_AND_ASSIGN(const auto csv, CsvFiles::Create(folder + "/deep/job"));
  ASSERT_OK(csv->Start({}));
  ASSERT_OK(csv->Write(StepRecord(1, 5.5)));
  ASSERT_OK(csv->Write(EvaluationRecord(1, 0.1)));
  ASSERT_OK(csv->Write(StepRecord(2, 4)));
  EXPECT_EQ(FilesIn(folder + "/deep/job"),
            (std::set<std::string>{"Train_Samples_held_out.csv", "Train_Samples_skipped.csv",
                                   "Train_Samples_train_loss.csv"}));
  EXPECT_EQ(Content(folder + "/deep/job/Train_Samples_train_loss.csv"),
            "step,train_loss\r\n8,5.5\r\n16,4\r\n");
  EXPECT_EQ(Content(folder + "/deep/job/Train_Samples_held_out.csv"), "step,held out\r\n8,0.1\r\n");
}

TEST(CsvFilesTest, GoOnBehindTheStepAndANewTrainingReplacesThem) {
  const std::string folder = Folder();
  ASSERT_OK_AND_ASSIGN(const auto first, CsvFiles::Create(folder));
  ASSERT_OK(first->Start({}));
  for (int64_t step = 1; step <= 3; ++step) ASSERT_OK(first->Write(StepRecord(step, 5)));
  ASSERT_OK(first->Write(EvaluationRecord(2, 4)));
  const std::string losses = folder + "/Train_Samples_train_loss.csv";
  std::ofstream(losses, std::ios::app) << "32,5";

  ASSERT_OK_AND_ASSIGN(const auto second, CsvFiles::Create(folder));
  ASSERT_OK(second->Start({2, 16}));
  ASSERT_OK(second->Write(EvaluationRecord(2, 4)));
  ASSERT_OK(second->Write(StepRecord(3, 7)));
  EXPECT_EQ(Content(losses), "step,train_loss\r\n8,5\r\n16,5\r\n24,7\r\n");
  EXPECT_EQ(Content(folder + "/Train_Samples_held_out.csv"), "step,held out\r\n16,4\r\n");

  ASSERT_OK_AND_ASSIGN(const auto third, CsvFiles::Create(folder));
  ASSERT_OK(third->Start({}));
  ASSERT_OK(third->Write(StepRecord(1, 9)));
  EXPECT_EQ(Content(losses), "step,train_loss\r\n8,9\r\n");
}

// A training that goes back behind what it has written itself, in files that it found.
TEST(MonitoredFilesTest, OfATrainingThatGoesBackNoStepIsThereTwice) {
  const std::string folder = Folder();
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/lines.jsonl";
  std::ofstream(path) << "{\"step\":1,\"seconds\":10.0,\"loss\":5.0}\n"
                      << "{\"step\":2,\"seconds\":11.0,\"loss\":5.0}\n";
  std::ofstream(folder + "/Train_Samples_train_loss.csv") << "step,train_loss\r\n8,5\r\n16,5\r\n";
  ASSERT_OK_AND_ASSIGN(const auto lines, JsonLines::Create(path));
  ASSERT_OK_AND_ASSIGN(const auto csv, CsvFiles::Create(folder));
  for (BackEnd* const to : {static_cast<BackEnd*>(lines.get()), static_cast<BackEnd*>(csv.get())}) {
    ASSERT_OK(to->Start({1, 8}));
    for (int64_t step = 2; step <= 5; ++step) ASSERT_OK(to->Write(StepRecord(step, 4)));
    for (const int64_t from : {3, 2}) {
      ASSERT_OK(to->Start({from, 8 * from}));
      ASSERT_OK(to->Write(StepRecord(from + 1, static_cast<double>(from))));
    }
    ASSERT_OK(to->Finish());
  }
  // Seconds go on from those of the first start.
  EXPECT_EQ(Content(path),
            "{\"step\":1,\"seconds\":10.0,\"loss\":5.0}\n"
            "{\"step\":2,\"seconds\":11.0,\"loss\":4.0,\"skipped\":false}\n"
            "{\"step\":3,\"seconds\":11.5,\"loss\":2.0,\"skipped\":false}\n");
  EXPECT_EQ(Content(folder + "/Train_Samples_train_loss.csv"),
            "step,train_loss\r\n8,5\r\n16,4\r\n24,2\r\n");
}

// As a spreadsheet or a version control system leaves it, or a machine that failed.
TEST(CsvFilesTest, WhatOthersMadeOfTheFileCostsNoValues) {
  const std::string folder = Folder();
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/Train_Samples_train_loss.csv";
  const std::string kept = "step,train_loss\n8,5\n\n16;4\nstep,train_loss\r\n16,4\n";
  std::ofstream(path) << kept << "24,3\n";
  ASSERT_OK_AND_ASSIGN(const auto csv, CsvFiles::Create(folder));
  ASSERT_OK(csv->Start({2, 16}));
  ASSERT_OK(csv->Write(StepRecord(3, 7)));
  EXPECT_EQ(Content(path), kept + "24,7\r\n");
}

TEST(CsvFilesTest, ATagThatIsNoFieldIsQuotedAndOneThatIsNoFileDoesNotStopOthers) {
  const std::string folder = Folder();
  ASSERT_OK_AND_ASSIGN(const auto csv, CsvFiles::Create(folder));
  ASSERT_OK(csv->Start({}));
  const std::string odd = "a/say \"b,c\"";
  const absl::Status status =
      csv->Write({.at = {1, 8}, .values = {{std::string(300, 'x'), 1}, {odd, 2}}});
  EXPECT_TRUE(absl::StrContains(status.message(), "File name too long")) << status;
  EXPECT_EQ(Content(absl::StrCat(folder, "/", CsvFiles::FileOf(odd))),
            "step,\"say \"\"b,c\"\"\"\r\n8,2\r\n");
  // No path leads out of the folder.
  EXPECT_EQ(CsvFiles::FileOf("../../etc/passwd"), ".._.._etc_passwd.csv");
}

TEST(EventFileTest, EachStartHasAFileBehindThoseThatAreThere) {
  const std::string folder = Folder();
  std::filesystem::create_directories(folder);
  // As after the clock was set back.
  const std::string late = "events.out.tfevents.5000000000.elsewhere";
  std::ofstream(folder + "/" + late) << "";
  ASSERT_OK_AND_ASSIGN(const auto first, EventFile::Create(folder));
  ASSERT_OK_AND_ASSIGN(const auto second, EventFile::Create(folder));
  const std::set<std::string> files = FilesIn(folder);
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(*files.begin(), late);
  EXPECT_TRUE(absl::StartsWith(*std::next(files.begin()), "events.out.tfevents.5000000001."));
  EXPECT_TRUE(absl::StartsWith(*files.rbegin(), "events.out.tfevents.5000000002."));
}

// The frames of a file, without their checksums, which events_test.py reads.
std::vector<std::string> FramesOf(const std::string& folder) {
  std::vector<std::string> frames;
  const std::string bytes = Content(absl::StrCat(folder, "/", *FilesIn(folder).rbegin()));
  for (size_t at = 0; at + 12 <= bytes.size();) {
    const size_t size = static_cast<unsigned char>(bytes[at]);
    frames.push_back(bytes.substr(at + 12, size));
    at += size + 16;
  }
  return frames;
}

TEST(EventFileTest, ATrainingThatGoesBackSaysFromWhere) {
  const std::string folder = Folder();
  ASSERT_OK_AND_ASSIGN(const auto file, EventFile::Create(folder));
  ASSERT_OK(file->Start({}));
  for (int64_t step = 1; step <= 3; ++step) ASSERT_OK(file->Write(StepRecord(step, 5)));
  ASSERT_OK(file->Start({1, 8}));
  ASSERT_OK(file->Write(StepRecord(2, 4)));
  const std::vector<std::string> frames = FramesOf(folder);
  // Version, start, three steps, another start at the samples behind the state, a step.
  ASSERT_EQ(frames.size(), 7u);
  // Behind the wall time.
  constexpr size_t kTime = 9;
  const auto payload = [](std::string framed) {
    const size_t size = static_cast<unsigned char>(framed[0]);
    return framed.substr(12 + kTime, size - kTime);
  };
  EXPECT_EQ(frames[1].substr(kTime), payload(Framed(StartEvent(1, 0))));
  EXPECT_EQ(frames[5].substr(kTime), payload(Framed(StartEvent(1, 9))));
}

TEST(EventFileTest, WhatDidNotFitOfTheBeginComesWithTheNextRecord) {
  const std::string folder = Folder();
  ASSERT_OK_AND_ASSIGN(const auto events, EventFile::Create(folder));
  {
    const brigade::testing::FullDisk full(30);
    EXPECT_OK(events->Start({2, 16}));
    EXPECT_TRUE(absl::StrContains(events->Write(StepRecord(3, 5)).message(), "File too large"));
  }
  EXPECT_EQ(FramesOf(folder).size(), 0u);
  const Record record = StepRecord(4, 5);
  ASSERT_OK(events->Write(record));
  // And only with that.
  ASSERT_OK(events->Write(StepRecord(5, 5)));
  const std::vector<std::string> frames = FramesOf(folder);
  ASSERT_EQ(frames.size(), 4u);
  EXPECT_TRUE(absl::StrContains(frames[0], "brain.Event:2"));
  // Behind the wall time.
  EXPECT_EQ(frames[1].substr(9), StartEvent(0, 17));
  EXPECT_EQ(frames[2], ScalarsEvent(2, 32, record.values));
}

// As one of another machine may.
TEST(MonitoredFilesTest, ADiskThatSaysOnlyAtTheEndThatItIsFullIsTold) {
  const std::string folder = Folder();
  ASSERT_TRUE(std::filesystem::create_directories(folder));
  std::vector<std::unique_ptr<BackEnd>> back_ends;
  ASSERT_OK_AND_ASSIGN(back_ends.emplace_back(), EventFile::Create(folder));
  ASSERT_OK_AND_ASSIGN(back_ends.emplace_back(), CsvFiles::Create(folder));
  ASSERT_OK_AND_ASSIGN(back_ends.emplace_back(), JsonLines::Create(folder + "/lines"));
  std::vector<std::string> told;
  Monitor monitor(std::move(back_ends),
                  {.on_trouble = [&](const std::string& text) { told.push_back(text); }});
  monitor.Start({});
  monitor.Publish(StepRecord(1, 5));
  const brigade::testing::LateDisk late(folder);
  const auto reports = monitor.Close(absl::Minutes(5));
  ASSERT_EQ(reports.size(), 3u);
  for (const BackEndReport& report : reports) {
    EXPECT_EQ(report.written, 1);
    EXPECT_EQ(report.dropped, 0);
    EXPECT_EQ(report.failed, 0);
    EXPECT_TRUE(absl::StrContains(report.Trouble(), absl::StrCat("cannot write ", folder)));
    EXPECT_TRUE(absl::StrContains(report.Trouble(), "No space left on device"));
  }
  // An event file, two of CSV, one of lines.
  EXPECT_EQ(late.closes(), 4);
  EXPECT_EQ(told.size(), 3u);
}

TEST(JsonLinesTest, BehindTheEndNothingIsWritten) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/ended.jsonl");
  ASSERT_OK_AND_ASSIGN(const auto lines, JsonLines::Create(path));
  ASSERT_OK(lines->Start({}));
  ASSERT_OK(lines->Finish());
  ASSERT_OK(lines->Finish());
  EXPECT_EQ(lines->Write(StepRecord(1, 5)).message(),
            absl::StrCat("cannot write ", path, ": it was closed"));
  EXPECT_FALSE(lines->Start({}).ok());
}

// A back end that could not start would be off for good.
TEST(EventFileTest, ADiskThatWasFullAtTheStartCostsRecordsUntilThereIsRoom) {
  const std::string folder = Folder();
  std::vector<std::unique_ptr<BackEnd>> back_ends;
  ASSERT_OK_AND_ASSIGN(back_ends.emplace_back(), EventFile::Create(folder));
  Monitor monitor(std::move(back_ends));
  {
    const brigade::testing::FullDisk full(30);
    monitor.Start({2, 16});
    monitor.Publish(StepRecord(3, 5));
    ASSERT_TRUE(monitor.Drain(absl::InfiniteDuration()));
  }
  monitor.Publish(StepRecord(4, 5));
  const BackEndReport report = monitor.Close(absl::InfiniteDuration()).at(0);
  EXPECT_EQ(report.written, 1);
  EXPECT_EQ(report.failed, 1);
  EXPECT_TRUE(absl::StrContains(report.Trouble(), "File too large")) << report.Trouble();
  EXPECT_EQ(FramesOf(folder).size(), 3u);
}

TEST(EventFileTest, ErrorsNameTheFolder) {
  EXPECT_EQ(EventFile::Create("/dev/null/runs").status().message(),
            "cannot make /dev/null/runs: Not a directory");
  EXPECT_EQ(CsvFiles::Create("/dev/null").status().message(),
            "cannot make /dev/null: Not a directory");
}

}  // namespace
}  // namespace brigade::monitor

namespace brigade {
namespace {

// Of monitor/README.md.
absl::Status PublishOneRecord() {
  std::vector<std::unique_ptr<monitor::BackEnd>> back_ends;
  BRIGADE_ASSIGN_OR_RETURN(back_ends.emplace_back(), monitor::EventFile::Create("logs/gpt"));
  monitor::Monitor monitor(std::move(back_ends));
  monitor.Start({.step = 0});
  monitor.Publish(monitor::Record{.at = {1, 16},
                                  .wall_time = monitor::WallSeconds(),
                                  .values = {{"Train/Samples/train_loss", 5.5, "loss"}}});
  for (const monitor::BackEndReport& of : monitor.Close(absl::Seconds(10)))
    std::cerr << of.Trouble();
  return absl::OkStatus();
}

TEST(ReadmeTest, WhatItShowsMakesAnEventFile) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/readme");
  std::filesystem::create_directories(folder);
  std::filesystem::current_path(folder);
  ASSERT_OK(PublishOneRecord());
  EXPECT_EQ(monitor::FilesIn(folder + "/logs/gpt").size(), 1u);
}

}  // namespace
}  // namespace brigade
