#include "brigade/profile/trace_rows.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::profile {
namespace {

using device::TracedOperation;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kSecond = 1'000'000'000;

TracedOperation Work(absl::string_view name, int64_t begin, int64_t end, int64_t bytes = 0) {
  return {TracedOperation::Kind::kWork, name, begin * kSecond, end * kSecond, bytes};
}
TracedOperation Wait(absl::string_view name, int64_t begin, int64_t end) {
  return {TracedOperation::Kind::kWait, name, begin * kSecond, end * kSecond};
}

// Marks are "F0" and "B1", "-", "step" and "end of step".
TraceNames Names() {
  return {[](absl::string_view name) -> std::optional<Place> {
            if (name == "-" || name == "step" || name == "end of step") return Place();
            if (name == "F0") return Place{0, Pass::kForward};
            if (name == "B1") return Place{1, Pass::kBackward};
            return std::nullopt;
          },
          [](const TracedOperation& operation) {
            if (absl::StartsWith(operation.name, "collective")) return Kind::kCollective;
            if (operation.kind == TracedOperation::Kind::kWait) return Kind::kWait;
            return operation.name == "gemm" ? Kind::kProduct : Kind::kOther;
          },
          [](absl::string_view name) { return name == "step"; },
          [](absl::string_view name) { return name == "end of step"; }};
}

std::vector<StreamOperations> Alone(std::vector<TracedOperation> operations) {
  return {{"compute", std::move(operations)}};
}

std::string Text(const Row& row) {
  constexpr const char* kPassNames[] = {"forward", "backward", "again", "none"};
  std::string text = absl::StrCat(row.stream, " ", row.place.unit, " ",
                                  kPassNames[static_cast<size_t>(row.place.pass)], " ", row.name,
                                  " x", row.calls, " ", row.seconds, "s ", row.bytes, "B");
  for (int limit = 0; limit < kLimits; ++limit) {
    const double seconds = row.limits[static_cast<size_t>(limit)];
    if (seconds > 0) absl::StrAppend(&text, " ", Name(static_cast<Limit>(limit)), " ", seconds);
  }
  return text;
}

std::vector<std::string> Texts(const std::vector<Row>& rows) {
  std::vector<std::string> texts;
  for (const Row& row : rows) texts.push_back(Text(row));
  return texts;
}

double Sum(const std::vector<Row>& rows, absl::string_view stream) {
  double seconds = 0;
  for (const Row& row : rows) seconds += row.stream == stream ? row.seconds : 0;
  return seconds;
}

TEST(TraceRowsTest, AMadeUpTraceHasTheseRows) {
  const std::vector<StreamOperations> streams = {
      {"compute",
       {Work("gemm", 0, 8, 1), Work("step", 10, 10), Work("copy", 10, 12, 100), Work("F0", 12, 12),
        Work("gemm", 12, 20, 1000), Work("gelu", 20, 21, 50), Work("gemm", 23, 30, 2000),
        Wait("weights", 30, 40), Work("B1", 40, 40), Work("gemm", 40, 45, 3000),
        Wait("collective", 45, 47), Work("-", 47, 47), Work("end of step", 50, 50),
        Work("gemm", 50, 60, 9999)}},
      {"communication",
       {Work("adam", 9, 11, 5), Work("collective sum", 15, 34, 700), Work("cast", 34, 37, 30),
        Wait("gradients", 37, 60)}}};
  ASSERT_EQ(FindStep(streams[0], Names()).begin_ns, 10 * kSecond);
  ASSERT_EQ(FindStep(streams[0], Names()).end_ns, 50 * kSecond);
  const std::vector<Row> rows = RowsOf(streams, "compute", 10 * kSecond, 50 * kSecond, Names());
  EXPECT_THAT(
      Texts(rows),
      ElementsAre(
          "compute -1 none copy x1 2s 100B", "compute 0 forward gemm x2 15s 3000B",
          "compute 0 forward gelu x1 1s 50B", "compute 0 forward idle x1 2s 0B host 2",
          // Of these ten seconds the other stream is in a collective for 4, works for 3 more, and
          // only waits for 3.
          "compute 0 forward weights x1 10s 0B memory 3 network 4 host 3",
          "compute 1 backward gemm x1 5s 3000B", "compute 1 backward collective x1 2s 0B network 2",
          "compute -1 none idle x1 3s 0B host 3",
          // What begins in the step counts as a whole, and nothing before.
          "communication -1 none collective sum x1 19s 700B network 19",
          "communication -1 none cast x1 3s 30B", "communication -1 none gradients x1 23s 0B"));
  EXPECT_DOUBLE_EQ(Sum(rows, "compute"), 40);
}

TEST(TraceRowsTest, RowsOfTheMainStreamAddUpToTheStepWhereverItIsCut) {
  StreamOperations compute = {"compute", {}};
  const char* const names[] = {"gemm", "F0", "gelu", "B1", "-", "copy"};
  int64_t at = 0;
  uint64_t random = 1;
  for (int i = 0; i < 200; ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    at += static_cast<int64_t>(random >> 60);
    const int64_t end = at + static_cast<int64_t>(random >> 33 & 3);
    compute.operations.push_back(random >> 40 & 1 ? Wait("event", at, end)
                                                  : Work(names[(random >> 50) % 6], at, end, 1));
    at = end;
  }
  for (int64_t begin = 0; begin < at; begin += 37) {
    for (const int64_t end : {begin + 1, begin + 100, at}) {
      const std::vector<Row> rows =
          RowsOf(Alone(compute.operations), "compute", begin * kSecond, end * kSecond, Names());
      EXPECT_NEAR(Sum(rows, "compute"), static_cast<double>(end - begin), 1e-6)
          << begin << " to " << end;
    }
  }
}

TEST(TraceRowsTest, AStepCanBeginInThePlaceOfAMarkBeforeIt) {
  const std::vector<Row> rows = RowsOf(Alone({Work("F0", 1, 1), Work("gemm", 2, 4, 8)}), "compute",
                                       3 * kSecond, 5 * kSecond, Names());
  EXPECT_THAT(Texts(rows), ElementsAre("compute 0 forward gemm x1 1s 8B",
                                       "compute 0 forward idle x1 1s 0B host 1"));
}

TEST(TraceRowsTest, AnEmptyTraceIsIdle) {
  EXPECT_THAT(RowsOf({}, "compute", 0, kSecond, Names()), IsEmpty());
  EXPECT_THAT(Texts(RowsOf(Alone({}), "compute", 0, kSecond, Names())),
              ElementsAre("compute -1 none idle x1 1s 0B host 1"));
}

// Steps before it and behind it, a save before the next one, and another end.
TEST(TraceRowsTest, AStepIsBetweenTheFirstEndAndTheBeginBeforeIt) {
  std::vector<TracedOperation> operations = {
      Work("step", 1, 1),         Work("gemm", 1, 3),        Work("step", 4, 4),
      Work("gemm", 4, 8),         Wait("end of step", 8, 9), Work("end of step", 9, 9),
      Work("save", 9, 20),        Work("step", 20, 20),      Work("gemm", 20, 24),
      Work("end of step", 24, 24)};
  StepMarks marks = FindStep({"compute", operations}, Names());
  EXPECT_EQ(marks.begin_ns, 4 * kSecond);
  EXPECT_EQ(marks.end_ns, 9 * kSecond);
  // What has been dropped is not there.
  marks = FindStep({"compute", {Work("gemm", 4, 8), Work("end of step", 9, 9)}}, Names());
  EXPECT_EQ(marks.begin_ns, std::nullopt);
  EXPECT_EQ(marks.end_ns, 9 * kSecond);
  EXPECT_EQ(FindStep({"compute", {}}, Names()).end_ns, std::nullopt);
}

}  // namespace
}  // namespace brigade::profile
