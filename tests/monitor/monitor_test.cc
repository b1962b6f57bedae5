#include "brigade/monitor/monitor.h"

#include <atomic>
#include <latch>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/monitor/task_queue.h"
#include "gtest/gtest.h"

namespace brigade::monitor {
namespace {

constexpr absl::Duration kLong = absl::Minutes(5);

// Shared with a back end, which may outlive the test's monitor.
struct Seen {
  std::string Steps() {
    device::MutexLock lock(mutex);
    return steps;
  }

  device::Mutex mutex;
  std::string steps;
};

// Writes down the steps that it gets.
class Scribe : public BackEnd {
 public:
  Scribe(std::string name, std::shared_ptr<Seen> seen)
      : name_(std::move(name)), seen_(std::move(seen)) {}
  std::string name() const override { return name_; }
  absl::Status Start(const Position& from) override {
    return Note(absl::StrCat("from ", from.step));
  }
  absl::Status Write(const Record& record) override { return Note(absl::StrCat(record.at.step)); }
  absl::Status Show(const Timeline& timeline) override {
    return Note(absl::StrCat("line ", timeline.step));
  }

 protected:
  absl::Status Note(const std::string& text) {
    device::MutexLock lock(seen_->mutex);
    absl::StrAppend(&seen_->steps, seen_->steps.empty() ? "" : ", ", text);
    return absl::OkStatus();
  }

 private:
  const std::string name_;
  const std::shared_ptr<Seen> seen_;
};

// Does not return from its first write until it is let go: a pipe that nobody reads.
class Stuck final : public Scribe {
 public:
  struct Door {
    std::latch entered{1}, opened{1}, left{1};
  };
  Stuck(std::shared_ptr<Seen> seen, std::shared_ptr<Door> door)
      : Scribe("pipe", std::move(seen)), door_(std::move(door)) {}
  ~Stuck() override { door_->left.count_down(); }
  absl::Status Write(const Record& record) override {
    if (!has_entered_) door_->entered.count_down();
    has_entered_ = true;
    door_->opened.wait();
    return Scribe::Write(record);
  }

 private:
  const std::shared_ptr<Door> door_;
  bool has_entered_ = false;
};

// Refuses records of odd steps.
class Picky final : public Scribe {
 public:
  using Scribe::Scribe;
  absl::Status Write(const Record& record) override {
    if (record.at.step % 2 == 0) return Scribe::Write(record);
    return absl::ResourceExhaustedError(absl::StrCat("disk full at ", record.at.step));
  }
};

class Absent final : public Scribe {
 public:
  using Scribe::Scribe;
  absl::Status Start(const Position&) override { return absl::DataLossError("not our file"); }
};

// Finds out at its end that nothing has stayed.
class Late final : public Scribe {
 public:
  using Scribe::Scribe;
  absl::Status Finish() override {
    Note("end").IgnoreError();
    return absl::ResourceExhaustedError("disk full at the end");
  }
};

// Its end lets the other one go on.
class Opens final : public Scribe {
 public:
  Opens(std::shared_ptr<Seen> seen, std::shared_ptr<Stuck::Door> door)
      : Scribe("disk", std::move(seen)), door_(std::move(door)) {}
  absl::Status Finish() override {
    door_->opened.count_down();
    return Note("end");
  }

 private:
  const std::shared_ptr<Stuck::Door> door_;
};

class LateAndAbsent final : public Scribe {
 public:
  using Scribe::Scribe;
  absl::Status Start(const Position&) override { return absl::DataLossError("not our file"); }
  absl::Status Finish() override { return Note("end"); }
};

std::vector<std::unique_ptr<BackEnd>> Of(std::unique_ptr<BackEnd> one,
                                         std::unique_ptr<BackEnd> other = nullptr) {
  std::vector<std::unique_ptr<BackEnd>> all;
  all.push_back(std::move(one));
  if (other != nullptr) all.push_back(std::move(other));
  return all;
}

TEST(MonitorTest, EachBackEndGetsAllInOrder) {
  const auto a = std::make_shared<Seen>(), b = std::make_shared<Seen>();
  Monitor monitor(Of(std::make_unique<Scribe>("a", a), std::make_unique<Scribe>("b", b)));
  monitor.Start({2, 16});
  for (int64_t step = 3; step <= 5; ++step) monitor.Publish(Record{.at = {step, 8 * step}});
  monitor.Publish(Timeline{.step = 5});
  ASSERT_TRUE(monitor.Drain(kLong));
  EXPECT_EQ(a->Steps(), "from 2, 3, 4, 5, line 5");
  EXPECT_EQ(b->Steps(), a->Steps());
  for (const BackEndReport& report : monitor.Close(kLong)) {
    EXPECT_EQ(report.written, 3);
    EXPECT_EQ(report.Trouble(), "");
  }
  monitor.Publish(Record{.at = {6, 48}});
  EXPECT_EQ(a->Steps(), "from 2, 3, 4, 5, line 5");
}

TEST(MonitorTest, OneThatDoesNotReturnCostsItsOwnRecordsAlone) {
  const auto stuck = std::make_shared<Seen>(), other = std::make_shared<Seen>();
  const auto door = std::make_shared<Stuck::Door>();
  {
    Monitor monitor(Of(std::make_unique<Stuck>(stuck, door), std::make_unique<Scribe>("b", other)),
                    {.capacity = 4});
    monitor.Start({});
    monitor.Publish(Record{.at = {0, 0}});
    door->entered.wait();
    // This thread goes on, although the door stays shut. The other gets every record.
    for (int64_t step = 1; step <= 100; ++step) {
      monitor.Publish(Record{.at = {step, step}});
      if (step % 10 == 0) {
        ASSERT_FALSE(monitor.Drain(absl::Milliseconds(1)));
      }
      while (!absl::StrContains(other->Steps(), absl::StrCat(step))) {
        absl::SleepFor(absl::Milliseconds(1));
      }
    }
    const auto reports = monitor.Close(absl::Seconds(1));
    EXPECT_EQ(reports[0].Trouble(),
              "pipe: 101 of 101 records are missing: 101 waited for a write that does not end");
    EXPECT_EQ(reports[1].Trouble(), "");
    EXPECT_EQ(reports[1].written, 101);
  }
  // The monitor is gone, and the write that was under way still has all it needs.
  door->opened.count_down();
  door->left.wait();
  EXPECT_EQ(stuck->Steps(), "from 0, 0");
}

TEST(MonitorTest, OneThatFallsBehindDropsCountsAndTells) {
  const auto seen = std::make_shared<Seen>();
  const auto door = std::make_shared<Stuck::Door>();
  std::atomic<int> told = 0;
  std::string text;
  Monitor monitor(Of(std::make_unique<Stuck>(seen, door)),
                  {.capacity = 4, .on_trouble = [&](const std::string& trouble) {
                     text = trouble;
                     ++told;
                   }});
  monitor.Start({});
  monitor.Publish(Record{.at = {1, 1}});
  door->entered.wait();
  for (int64_t step = 2; step <= 5; ++step) monitor.Publish(Record{.at = {step, step}});
  EXPECT_EQ(told, 0);
  // It is told while the write is still under way, which may not end.
  for (int64_t step = 6; step <= 100; ++step) monitor.Publish(Record{.at = {step, step}});
  while (told == 0) absl::SleepFor(absl::Milliseconds(1));
  door->opened.count_down();
  ASSERT_TRUE(monitor.Drain(kLong));
  monitor.Publish(Record{.at = {101, 101}});
  const auto reports = monitor.Close(kLong);
  EXPECT_EQ(seen->Steps(), "from 0, 1, 2, 3, 4, 5, 101");
  EXPECT_EQ(reports[0].written, 6);
  EXPECT_EQ(reports[0].dropped, 95);
  EXPECT_EQ(told, 1);
  EXPECT_EQ(text, "pipe: writing falls behind the training; records are dropped");
  EXPECT_EQ(reports[0].Trouble(),
            "pipe: 95 of 101 records are missing: 95 came faster than they could be written");
}

// Files would have steps twice.
TEST(MonitorTest, AStartHasRoomHoweverManyRecordsWait) {
  const auto seen = std::make_shared<Seen>();
  const auto door = std::make_shared<Stuck::Door>();
  Monitor monitor(Of(std::make_unique<Stuck>(seen, door)), {.capacity = 2});
  monitor.Start({});
  monitor.Publish(Record{.at = {1, 1}});
  door->entered.wait();
  for (int64_t step = 2; step <= 9; ++step) monitor.Publish(Record{.at = {step, step}});
  for (const int64_t step : {5, 1}) monitor.Start({step, step});
  // Nor does it take theirs.
  monitor.Publish(Record{.at = {2, 2}});
  door->opened.count_down();
  ASSERT_TRUE(monitor.Drain(kLong));
  monitor.Publish(Record{.at = {3, 3}});
  const auto reports = monitor.Close(kLong);
  EXPECT_EQ(seen->Steps(), "from 0, 1, 2, 3, from 5, from 1, 3");
  EXPECT_EQ(reports[0].written, 4);
  EXPECT_EQ(reports[0].dropped, 7);
}

TEST(MonitorTest, AnErrorIsToldOnceAndTheNextRecordIsTried) {
  const auto seen = std::make_shared<Seen>();
  std::vector<std::string> told;
  Monitor monitor(Of(std::make_unique<Picky>("disk", seen)),
                  {.on_trouble = [&](const std::string& trouble) { told.push_back(trouble); }});
  monitor.Start({});
  for (int64_t step = 1; step <= 4; ++step) monitor.Publish(Record{.at = {step, step}});
  const auto reports = monitor.Close(kLong);
  EXPECT_EQ(seen->Steps(), "from 0, 2, 4");
  EXPECT_EQ(told, std::vector<std::string>{"disk: disk full at 1"});
  EXPECT_EQ(reports[0].Trouble(), "disk: 2 of 4 records are missing: disk full at 1");
}

TEST(MonitorTest, OneThatCannotStartGetsNothing) {
  const auto seen = std::make_shared<Seen>();
  Monitor monitor(Of(std::make_unique<Absent>("old", seen)));
  monitor.Start({});
  monitor.Publish(Record{.at = {1, 1}});
  monitor.Publish(Timeline{.step = 1});
  const auto reports = monitor.Close(kLong);
  EXPECT_EQ(seen->Steps(), "");
  EXPECT_EQ(reports[0].Trouble(), "old: 1 of 1 records are missing: not our file");
}

TEST(MonitorTest, TheEndComesLastAndWhatItFindsIsTold) {
  const auto late = std::make_shared<Seen>(), absent = std::make_shared<Seen>();
  std::vector<std::string> told;
  Monitor monitor(
      Of(std::make_unique<Late>("disk", late), std::make_unique<LateAndAbsent>("old", absent)),
      {.capacity = 2, .on_trouble = [&](const std::string& trouble) {
         if (absl::StrContains(trouble, "full")) told.push_back(trouble);
       }});
  monitor.Start({});
  monitor.Publish(Record{.at = {1, 1}});
  auto reports = monitor.Close(kLong);
  EXPECT_EQ(late->Steps(), "from 0, 1, end");
  // Of what could not start there is no end.
  EXPECT_EQ(absent->Steps(), "");
  EXPECT_EQ(told, std::vector<std::string>{"disk: disk full at the end"});
  EXPECT_EQ(reports[0].written, 1);
  EXPECT_EQ(reports[0].Trouble(), "disk: disk full at the end");
  // What comes behind the end is counted.
  monitor.Publish(Record{.at = {2, 2}});
  reports = monitor.Close(kLong);
  EXPECT_EQ(late->Steps(), "from 0, 1, end");
  EXPECT_EQ(reports[0].dropped, 1);
  EXPECT_TRUE(absl::StrContains(reports[0].Trouble(), "1 of 2 records are missing"));
}

// Its end has room, however full the queue is, and is asked for although another one is stuck,
// which here it alone can end.
TEST(MonitorTest, TheEndHasRoomAndWaitsForNoOther) {
  const auto stuck = std::make_shared<Seen>(), other = std::make_shared<Seen>();
  const auto door = std::make_shared<Stuck::Door>();
  {
    Monitor monitor(Of(std::make_unique<Stuck>(stuck, door), std::make_unique<Opens>(other, door)),
                    {.capacity = 1});
    monitor.Start({});
    monitor.Publish(Record{.at = {1, 1}});
    door->entered.wait();
    const auto reports = monitor.Close(kLong);
    EXPECT_FALSE(reports[0].is_stuck);
    EXPECT_EQ(stuck->Steps(), "from 0, 1");
    EXPECT_EQ(other->Steps(), "from 0, 1, end");
  }
  door->left.wait();
}

TEST(TaskQueueTest, TheLastOneHasRoomAndIsMissedByNobody) {
  const auto door = std::make_shared<Stuck::Door>();
  TaskQueue queue(1);
  ASSERT_TRUE(queue.Post([door] {
    door->entered.count_down();
    door->opened.wait();
    door->left.count_down();
  }));
  door->entered.wait();
  ASSERT_TRUE(queue.Post([] {}));
  std::atomic<int> last = 0;
  queue.BeginClose([&] { ++last; });
  queue.BeginClose([&] { last += 10; });
  EXPECT_FALSE(queue.Post([] {}));
  // One runs, and one that is not the last one waits.
  EXPECT_FALSE(queue.Close(absl::ZeroDuration()));
  EXPECT_EQ(queue.dropped(), 3);
  door->opened.count_down();
  door->left.wait();

  TaskQueue other(1);
  other.BeginClose([&] { ++last; });
  EXPECT_TRUE(other.Close(kLong));
  EXPECT_EQ(last, 1);
}

TEST(TaskQueueTest, ClosedWithoutPatienceItCountsWhatDidNotRun) {
  const auto door = std::make_shared<Stuck::Door>();
  TaskQueue queue(2);
  ASSERT_TRUE(queue.Post([door] {
    door->entered.count_down();
    door->opened.wait();
    door->left.count_down();
  }));
  door->entered.wait();
  EXPECT_TRUE(queue.Post([] {}));
  EXPECT_TRUE(queue.Post([] {}));
  EXPECT_FALSE(queue.Post([] {}));
  EXPECT_FALSE(queue.Drain(absl::ZeroDuration()));
  EXPECT_FALSE(queue.Close(absl::ZeroDuration()));
  EXPECT_EQ(queue.dropped(), 3);
  EXPECT_FALSE(queue.Post([] {}));
  door->opened.count_down();
  door->left.wait();
  // By now it has, or soon will have, ended.
  EXPECT_TRUE(queue.Close(kLong));
}

}  // namespace
}  // namespace brigade::monitor
