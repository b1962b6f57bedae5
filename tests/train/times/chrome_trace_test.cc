#include "brigade/train/times/chrome_trace.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "brigade/tests/testing/full_disk.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::train {
namespace {

using ::brigade::testing::StatusIs;
using device::TracedOperation;
using device::TracedStream;
using nlohmann::json;
using ::testing::ElementsAre;

constexpr auto kWork = TracedOperation::Kind::kWork;
constexpr auto kWait = TracedOperation::Kind::kWait;

std::string PathOf(const std::string& name) { return ::testing::TempDir() + "/" + name; }

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

json Read(const std::string& path) { return json::parse(ReadText(path)); }

TEST(ChromeTraceTest, WritesATrackForEachStreamOfEachRank) {
  const std::string path = PathOf("tracks.json");
  auto trace = ChromeTrace::Create(path).value();
  ASSERT_OK(trace->Append(std::vector<TracedStream>{
      {"rank 0", "compute", {{kWork, "gemm", 1'000'007, 1'002'500}}},
      {"rank 0", "communication", {{kWait, "written", 1'000'000, 1'000'000}}}}));
  ASSERT_OK(trace->Append(std::vector<TracedStream>{
      {"rank 12", "compute", {}}, {"rank 0", "compute", {{kWork, "adam", 2'000'000, 3'000'000}}}}));
  ASSERT_OK(trace->Finish());

  const auto metadata = [](const char* what, int process, int thread, const json& argument) {
    return json{{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", argument}};
  };
  const auto named = [&](const char* what, int process, int thread, const char* name) {
    return metadata(what, process, thread, {{"name", name}});
  };
  const auto sorted = [&](int process, int thread) {
    return metadata("process_sort_index", process, thread, {{"sort_index", process}});
  };
  const auto happened = [](const char* name, const char* category, double begin, double duration,
                           int thread) {
    return json{{"name", name},    {"cat", category}, {"ph", "X"},    {"ts", begin},
                {"dur", duration}, {"pid", 0},        {"tid", thread}};
  };
  EXPECT_THAT(Read(path), ElementsAre(named("process_name", 0, 1, "rank 0"),         //
                                      sorted(0, 1),                                  //
                                      named("thread_name", 0, 1, "compute"),         //
                                      happened("gemm", "work", 1000.007, 2.493, 1),  //
                                      named("thread_name", 0, 2, "communication"),   //
                                      happened("wait for written", "wait", 1000.0, 0.0, 2),
                                      named("process_name", 12, 1, "rank 12"),  //
                                      sorted(12, 1),                            //
                                      named("thread_name", 12, 1, "compute"),   //
                                      happened("adam", "work", 2000.0, 1000.0, 1)));
}

// Forward passes of micro-batches 0 and 1, of chunks 0 and 1, and a wait between them that is part
// of neither; then a pass that has not ended.
TEST(ChromeTraceTest, PassesOfAPipelineHaveATrackBesideTheirStream) {
  const std::string path = PathOf("passes.json");
  auto trace = ChromeTrace::Create(path).value();
  ASSERT_OK(trace->Append(std::vector<TracedStream>{{"rank 0",
                                                     "compute",
                                                     {{kWork, "pass F0", 1000, 1000},
                                                      {kWork, "forward 3", 1000, 1000},
                                                      {kWork, "gemm", 1000, 5000}}}}));
  ASSERT_OK(trace->Append(std::vector<TracedStream>{{"rank 0",
                                                     "compute",
                                                     {{kWork, "gemm", 6000, 7000},
                                                      {kWait, "input 0 filled", 7000, 8000},
                                                      {kWork, "pass F1'", 8000, 8000},
                                                      {kWork, "gemm", 8000, 8500},
                                                      {kWork, "end of pass", 8600, 8600},
                                                      {kWork, "end of pass", 8700, 8700},
                                                      {kWork, "pass B0", 9000, 9000}}}}));
  ASSERT_OK(trace->Finish());
  std::vector<std::string> compute, passes;
  for (const json& event : Read(path)) {
    if (event["ph"] != "X") continue;
    (event["tid"] == 1 ? compute : passes)
        .push_back(event["name"].get<std::string>() + " " + event["cat"].get<std::string>() + " " +
                   event["ts"].dump() + " " + event["dur"].dump());
  }
  EXPECT_THAT(compute,
              ElementsAre("forward 3 work 1.0 0.0", "gemm work 1.0 4.0", "gemm work 6.0 1.0",
                          "wait for input 0 filled wait 7.0 1.0", "gemm work 8.0 0.5"));
  EXPECT_THAT(passes, ElementsAre("F0 pass 1.0 6.0", "F1' pass 8.0 0.5"));
  EXPECT_THAT(ReadText(path), ::testing::HasSubstr("compute passes"));
}

TEST(ChromeTraceTest, KeepsAnyNameValid) {
  const std::string path = PathOf("names.json");
  auto trace = ChromeTrace::Create(path).value();
  ASSERT_OK(trace->Append(std::vector<TracedStream>{
      {"rank \"0\"\\", "a\nb", {{kWork, "\x01\"gemm\" \xC3\xA9 \xFF", 0, 1}}}}));
  ASSERT_OK(trace->Finish());
  const json events = Read(path);
  EXPECT_EQ(events[0]["args"]["name"], "rank \"0\"\\");
  EXPECT_EQ(events[0]["pid"], 1'000'000);
  EXPECT_EQ(events[2]["args"]["name"], "a\nb");
  EXPECT_EQ(events[3]["name"], "\x01\"gemm\" \xC3\xA9 \xEF\xBF\xBD");
}

TEST(ChromeTraceTest, SaysHowManyOperationsAreMissing) {
  const std::string path = PathOf("dropped.json");
  auto trace = ChromeTrace::Create(path).value();
  ASSERT_OK(trace->Append(
      std::vector<TracedStream>{{"rank 0", "compute", {{kWork, "gemm", 1000, 5000}}, 17}}));
  ASSERT_OK(trace->Finish());
  const json event = Read(path)[4];
  EXPECT_EQ(event["name"], "17 operations dropped");
  EXPECT_EQ(event["ph"], "i");
  EXPECT_EQ(event["ts"], 5.0);
}

TEST(ChromeTraceTest, GoesOnBehindTheLastWholeEvent) {
  const std::string path = PathOf("goes_on.json");
  const auto append = [](ChromeTrace& trace, int64_t begin_ns) {
    return trace.Append(std::vector<TracedStream>{
        {"rank 0", "compute", {{kWork, "gemm", begin_ns, begin_ns + 1000}}}});
  };
  // Finished, killed before that, and killed amid a line.
  for (const absl::string_view end : {"\n]\n", "", ",\n{\"name\":\"gem"}) {
    auto first = ChromeTrace::Create(path).value();
    ASSERT_OK(append(*first, 5000));
    ASSERT_OK(first->Finish());
    std::string content = ReadText(path);
    content.resize(content.size() - 3);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content << end;
    // On a clock that has gone on, and on one that has begun anew.
    auto second = ChromeTrace::Create(path, /*goes_on=*/true).value();
    ASSERT_OK(append(*second, 7000));
    ASSERT_OK(second->Finish());
    auto third = ChromeTrace::Create(path, /*goes_on=*/true).value();
    ASSERT_OK(append(*third, 100));
    ASSERT_OK(append(*third, 2100));
    ASSERT_OK(third->Finish());
    std::vector<double> begins;
    for (const json& event : Read(path)) {
      if (event["name"] == "gemm") begins.push_back(event["ts"]);
    }
    EXPECT_THAT(begins, ElementsAre(5.0, 7.0, 8.0, 10.0)) << end;
  }
  // Nothing to go on with.
  for (const absl::string_view begin : {"", "[]\n", "[\n{\"na", "something else"}) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << begin;
    auto trace = ChromeTrace::Create(path, /*goes_on=*/true).value();
    ASSERT_OK(append(*trace, 3000));
    ASSERT_OK(trace->Finish());
    EXPECT_EQ(Read(path).back()["ts"], 3.0) << begin;
  }
}

TEST(ChromeTraceTest, IsValidWithoutAnyOperation) {
  const std::string path = PathOf("empty.json");
  ASSERT_OK(ChromeTrace::Create(path).value()->Finish());
  EXPECT_EQ(Read(path), json::array());
}

TEST(ChromeTraceTest, SaysWhyItCannotOpenTheFile) {
  const std::string path = PathOf("no/such/folder/trace.json");
  EXPECT_THAT(ChromeTrace::Create(path),
              StatusIs(absl::StatusCode::kNotFound,
                       "cannot write " + path + ": No such file or directory"));
}

TEST(ChromeTraceTest, SaysThatTheDiskIsFull) {
  const std::string path = PathOf("full.json");
  const std::string why = "cannot write trace " + path + ": File too large";
  const auto fails = [&](const absl::Status& status) { EXPECT_EQ(status.message(), why); };
  const std::vector<TracedStream> streams = {{"rank 0", "compute", {{kWork, "gemm", 0, 1}}}};
  auto few = ChromeTrace::Create(path).value();
  const brigade::testing::FullDisk full(0);
  ASSERT_OK(few->Append(streams));  // not on its way to the disk yet
  fails(few->Finish());

  auto many = ChromeTrace::Create(path).value();
  absl::Status appended;
  for (int i = 0; i < 10'000 && appended.ok(); ++i) appended = many->Append(streams);
  fails(appended);
  fails(many->Append(streams));
  fails(many->Finish());
}

}  // namespace
}  // namespace brigade::train
