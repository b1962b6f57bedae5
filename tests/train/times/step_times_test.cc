#include "brigade/train/times/step_times.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "brigade/monitor/monitor.h"
#include "brigade/tests/train/times/traced.h"
#include "brigade/train/observers/metric_records.h"
#include "brigade/train/observers/step_watcher.h"
#include "gtest/gtest.h"

namespace brigade::train {
namespace {

using device::TracedOperation;

TracedOperation Wait(absl::string_view name, int64_t begin, int64_t end) {
  return {TracedOperation::Kind::kWait, name, begin * kSecond, end * kSecond};
}

// One step on the stream of passes: 1 s of waiting, 2 s forward, 3 s backward.
std::vector<TracedOperation> PassesAt(int64_t at) {
  return {Work("step", at, at),
          Work("pass F0", at, at),
          Wait("parameters", at, at + 1),
          Work("forward 0", at + 1, at + 1),
          Work("gemm", at + 1, at + 3),
          Work("end of part", at + 3, at + 3),
          Work("pass B0", at + 3, at + 3),
          Work("backward 0", at + 3, at + 3),
          Work("gemm", at + 3, at + 6),
          Work("end of part", at + 6, at + 6),
          Work("end of pass", at + 6, at + 6)};
}

// Beside the passes of that step: an exchange half hidden, an update behind them.
std::vector<TracedOperation> OthersAt(int64_t at) {
  return {Work("reduce_scatter", at + 5, at + 7), Work("adam", at + 7, at + 8),
          Work("all_gather", at + 8, at + 11)};
}

std::string Said(const std::vector<StepTime::Span>& spans) {
  std::string text;
  for (const StepTime::Span& span : spans) {
    absl::StrAppend(&text, span.name, " ", span.begin_ns / kSecond, "-", span.end_ns / kSecond,
                    " ");
  }
  return text;
}

TEST(StepTimesTest, AStepGoesFromItsFirstPassToThatOfTheNext) {
  StepTimes times(4);
  std::vector<StepTime> steps;
  for (int64_t at = 0; at < 40; at += 10) {
    times.Add(0, PassesAt(at));
    for (StepTime& step : times.Take()) steps.push_back(std::move(step));
    times.Add(1, OthersAt(at));
  }
  // The last two may not be known yet.
  ASSERT_EQ(steps.size(), 2u);
  const StepTime& second = steps[1];
  EXPECT_EQ(second.step, 6);
  EXPECT_EQ(second.begin_ns, 11 * kSecond);
  EXPECT_EQ(second.end_ns, 21 * kSecond);
  // Waits are no part of passes.
  EXPECT_EQ(Said(second.lists), "F0 11-13 B0 13-16 ");
  EXPECT_EQ(Said(second.others), "exchange 15-17 update 17-18 exchange 18-21 ");
  EXPECT_EQ(second.split.gemm, 5);
  EXPECT_EQ(second.split.exposed_communication, 4);
  EXPECT_EQ(second.split.hidden_communication, 1);
  EXPECT_EQ(second.split.optimizer, 1);
  EXPECT_EQ(second.split.idle, 0);
  EXPECT_EQ(second.split.wall(), 10);
  EXPECT_EQ(second.passes[PassPart::kForward], 2);
  EXPECT_EQ(second.passes[PassPart::kBackward], 3);

  const std::vector<StepTime> rest = times.Finish();
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest[1].step, 8);
  EXPECT_EQ(rest[1].end_ns, 41 * kSecond);
  EXPECT_EQ(rest[1].passes[PassPart::kForward], 2);
}

// Operations come in pieces, in which a mark is alone.
TEST(StepTimesTest, AreTheSameHoweverOperationsComeIn) {
  StepTimes whole(0), pieces(0);
  for (int64_t at = 0; at < 30; at += 10) {
    whole.Add(1, OthersAt(at));
    whole.Add(0, PassesAt(at));
    for (const TracedOperation& operation : PassesAt(at)) pieces.Add(0, {operation});
    for (const TracedOperation& operation : OthersAt(at)) pieces.Add(1, {operation});
  }
  const auto a = whole.Finish(), b = pieces.Finish();
  ASSERT_EQ(a.size(), 3u);
  ASSERT_EQ(b.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(Said(a[i].lists), Said(b[i].lists));
    EXPECT_EQ(Said(a[i].others), Said(b[i].others));
    EXPECT_EQ(a[i].split.idle, b[i].split.idle);
    EXPECT_EQ(a[i].split.exposed_communication, b[i].split.exposed_communication);
  }
}

TEST(StepTimesTest, WithoutMarksThereAreNoSteps) {
  StepTimes times(0);
  times.Add(0, {Work("forward 0", 0, 0), Work("gemm", 0, 3)});
  EXPECT_EQ(times.Finish().size(), 0u);
}

// Keeps what it is given.
class Kept final : public monitor::BackEnd {
 public:
  struct Seen {
    std::vector<monitor::Record> records;
    std::vector<monitor::Timeline> timelines;
  };
  explicit Kept(Seen& seen) : seen_(seen) {}
  std::string name() const override { return "kept"; }
  absl::Status Start(const monitor::Position&) override { return absl::OkStatus(); }
  absl::Status Write(const monitor::Record& record) override {
    seen_.records.push_back(record);
    return absl::OkStatus();
  }
  absl::Status Show(const monitor::Timeline& timeline) override {
    seen_.timelines.push_back(timeline);
    return absl::OkStatus();
  }

 private:
  Seen& seen_;
};

std::vector<std::unique_ptr<monitor::BackEnd>> KeptIn(Kept::Seen& seen) {
  std::vector<std::unique_ptr<monitor::BackEnd>> all;
  all.push_back(std::make_unique<Kept>(seen));
  return all;
}

std::vector<StepTime> StepsOf(int64_t steps) {
  StepTimes times(0);
  for (int64_t at = 0; at < 10 * steps; at += 10) {
    times.Add(0, PassesAt(at));
    times.Add(1, OthersAt(at));
  }
  return times.Finish();
}

TEST(StepWatcherTest, PublishesPartsOfStepsAndALineOfEachRank) {
  Kept::Seen seen;
  monitor::Monitor monitor(KeptIn(seen));
  double update = 0;
  StepWatcher watcher(
      monitor, {.ranks = 2,
                .samples_of_step = 8,
                .has_values = true,
                .has_timelines = true,
                .on_breakdown = [&](const StepBreakdown& parts) { update += parts.update; }});
  watcher.Watch("rank 1", StepsOf(2));
  watcher.Watch("rank 0", StepsOf(2));
  ASSERT_TRUE(monitor.Drain(absl::Minutes(5)));
  EXPECT_EQ(update, 2000);
  ASSERT_EQ(seen.records.size(), 2u);
  EXPECT_EQ(seen.records[1].at.step, 2);
  EXPECT_EQ(seen.records[1].at.samples, 16);
  std::string values;
  for (const monitor::Value& value : seen.records[0].values) {
    EXPECT_EQ(value.key, "");
    absl::StrAppend(&values, value.tag.substr(value.tag.rfind('/') + 1), " ", value.value, "\n");
  }
  EXPECT_EQ(values,
            "elapsed_time_ms_forward 2000\nelapsed_time_ms_backward 7000\n"
            "elapsed_time_ms_backward_inner 3000\nelapsed_time_ms_backward_allreduce 4000\n"
            "elapsed_time_ms_step 1000\n");
  // The second comes too soon behind the first.
  ASSERT_EQ(seen.timelines.size(), 1u);
  const monitor::Timeline& timeline = seen.timelines[0];
  EXPECT_EQ(timeline.step, 1);
  EXPECT_EQ(timeline.seconds, 10);
  ASSERT_EQ(timeline.lanes.size(), 2u);
  EXPECT_EQ(timeline.lanes[0].name, "rank 0");
  ASSERT_EQ(timeline.lanes[1].passes.size(), 2u);
  EXPECT_EQ(timeline.lanes[1].passes[1].name, "B0");
  EXPECT_EQ(timeline.lanes[1].passes[1].begin, 2);
  EXPECT_EQ(timeline.lanes[1].passes[1].end, 5);
}

TEST(MetricRecordsTest, HaveDeepSpeedsTagsOverSamplesAndTheKeysOfJsonLines) {
  StepMetrics metrics = {.step = 3, .seconds = 1.5, .loss = 4.25, .skipped = true};
  metrics.device_memory.bytes = 30;
  metrics.device_memory.peak_bytes = 50;
  metrics.device_memory.by_purpose[0] = 30;
  metrics.device_memory.peak_by_purpose[0] = 40;
  const monitor::Record record = RecordOf(metrics, 16);
  EXPECT_EQ(record.at.samples, 48);
  EXPECT_FALSE(record.is_made_again);
  std::string tags, keys;
  for (const monitor::Value& value : record.values) {
    absl::StrAppend(&tags, value.tag, "\n");
    absl::StrAppend(&keys, value.key, " ");
  }
  EXPECT_EQ(tags,
            "\nTrain/Samples/train_loss\nTrain/Samples/tokens_per_second\n"
            "Train/Samples/loss_scale\nTrain/Samples/grad_norm\nTrain/Samples/lr\n"
            "Train/Samples/skipped\nTrain/Memory/device_bytes\nTrain/Memory/device_peak_bytes\n"
            "Train/Memory/device_parameters_bytes\nTrain/Memory/device_parameters_peak_bytes\n");
  EXPECT_EQ(keys, "seconds loss tokens_per_second loss_scale grad_norm learning_rate skipped     ");
  const monitor::Record evaluation = RecordOf(Evaluation{3, 2.5}, 16);
  EXPECT_TRUE(evaluation.is_made_again);
  EXPECT_EQ(evaluation.values[0].key, "held_out_loss");
}

}  // namespace
}  // namespace brigade::train
