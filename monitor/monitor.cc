#include "brigade/monitor/monitor.h"

#include <atomic>
#include <chrono>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/threads/deadline.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/monitor/task_queue.h"

namespace brigade::monitor {

namespace {

// More than the two of each back end.
constexpr size_t kTold = 64;

using Tell = std::function<void(const std::string& text)>;

// A back end with what became of its records. Shared with its tasks, one of which may outlive the
// monitor.
class Desk {
 public:
  // `tell` never waits; it may be null.
  Desk(std::unique_ptr<BackEnd> back_end, Tell tell)
      : name_(back_end->name()), back_end_(std::move(back_end)), tell_(std::move(tell)) {}

  void Start(const Position& from) {
    const absl::Status status = back_end_->Start(from);
    if (status.ok()) return;
    is_off_ = true;
    Note(status, 0);
  }
  void Write(const Record& record) {
    if (is_off_) return Note(absl::OkStatus(), 1);
    Note(back_end_->Write(record), 1);
  }
  void Show(const Timeline& timeline) {
    if (!is_off_) Note(back_end_->Show(timeline), 0);
  }
  void Finish() {
    if (!is_off_) Note(back_end_->Finish(), 0);
  }
  void TellTrouble(absl::string_view text) const {
    if (tell_ != nullptr) tell_(absl::StrCat(name_, ": ", text));
  }

  const std::string& name() const { return name_; }
  BackEndReport report() const {
    device::MutexLock lock(mutex_);
    return report_;
  }

 private:
  // Of `records` that were handed over.
  void Note(const absl::Status& status, int64_t records) {
    bool is_first = false;
    {
      device::MutexLock lock(mutex_);
      (status.ok() && !is_off_ ? report_.written : report_.failed) += records;
      is_first = !status.ok() && report_.error.ok();
      if (is_first) report_.error = status;
    }
    if (is_first) TellTrouble(status.message());
  }

  const std::string name_;
  const std::unique_ptr<BackEnd> back_end_;
  const Tell tell_;
  // Of the thread of the tasks.
  bool is_off_ = false;
  mutable device::Mutex mutex_;
  BackEndReport report_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::string BackEndReport::Trouble() const {
  const int64_t lost = dropped + failed;
  if (lost == 0 && error.ok() && !is_stuck) return "";
  std::string text = absl::StrCat(name, ": ");
  if (lost == 0) return absl::StrCat(text, is_stuck ? "it does not end" : error.message());
  absl::StrAppend(&text, lost, " of ", written + lost, " records are missing");
  if (!error.ok()) absl::StrAppend(&text, ": ", error.message());
  if (dropped > 0) {
    absl::StrAppend(&text, error.ok() ? ": " : "; ", dropped,
                    is_stuck ? " waited for a write that does not end"
                             : " came faster than they could be written");
  }
  return text;
}

struct Monitor::Worker {
  Worker(std::unique_ptr<BackEnd> back_end, Tell tell, size_t capacity)
      : desk(std::make_shared<Desk>(std::move(back_end), std::move(tell))), queue(capacity) {}

  void Post(std::function<void(Desk&)> task) {
    if (queue.Post([desk = desk, task = std::move(task)] { task(*desk); })) return;
    if (!has_told.exchange(true)) {
      desk->TellTrouble("writing falls behind the training; records are dropped");
    }
  }

  const std::shared_ptr<Desk> desk;
  TaskQueue queue;
  std::atomic<int64_t> published = 0;
  // That there was no room; or it is closed, and nothing is told any more.
  std::atomic<bool> has_told = false;
};

Monitor::Monitor(std::vector<std::unique_ptr<BackEnd>> back_ends, Options options) {
  Tell tell;
  if (options.on_trouble != nullptr && !back_ends.empty()) {
    teller_ = std::make_shared<TaskQueue>(kTold);
    // A thread of its own: a back end that hangs cannot tell, and a training must not.
    tell = [teller = teller_, on_trouble = options.on_trouble](const std::string& text) {
      teller->Post([on_trouble, text] { on_trouble(text); });
    };
  }
  for (std::unique_ptr<BackEnd>& back_end : back_ends) {
    workers_.push_back(std::make_unique<Worker>(std::move(back_end), tell, options.capacity));
  }
}

Monitor::~Monitor() { Close(absl::ZeroDuration()); }

void Monitor::Start(const Position& from) {
  for (const auto& worker : workers_) {
    worker->queue.PostReserved([desk = worker->desk, from] { desk->Start(from); });
  }
}

void Monitor::Publish(Record record) {
  const auto shared = std::make_shared<const Record>(std::move(record));
  for (const auto& worker : workers_) {
    ++worker->published;
    worker->Post([shared](Desk& desk) { desk.Write(*shared); });
  }
}

void Monitor::Publish(Timeline timeline) {
  const auto shared = std::make_shared<const Timeline>(std::move(timeline));
  for (const auto& worker : workers_) {
    // Another one comes soon: one that is dropped is not missed.
    worker->queue.Post([desk = worker->desk, shared] { desk->Show(*shared); });
  }
}

bool Monitor::Drain(absl::Duration patience) {
  const auto deadline = device::DeadlineAfter(patience);
  bool all = true;
  for (const auto& worker : workers_) {
    const auto left = deadline - std::chrono::steady_clock::now();
    all &= worker->queue.Drain(absl::FromChrono(left));
  }
  return all;
}

std::vector<BackEndReport> Monitor::Close(absl::Duration patience) {
  const auto deadline = device::DeadlineAfter(patience);
  std::vector<BackEndReport> reports;
  // All at once: none waits for another one's disk.
  for (const auto& worker : workers_) {
    worker->has_told = true;
    worker->queue.BeginClose([desk = worker->desk] { desk->Finish(); });
  }
  for (const auto& worker : workers_) {
    const auto left = deadline - std::chrono::steady_clock::now();
    const bool ended = worker->queue.Close(absl::FromChrono(left));
    BackEndReport report = worker->desk->report();
    report.name = worker->desk->name();
    report.dropped = worker->published - report.written - report.failed;
    report.is_stuck = !ended;
    reports.push_back(std::move(report));
  }
  if (teller_ != nullptr) {
    teller_->Close(absl::FromChrono(deadline - std::chrono::steady_clock::now()));
  }
  return reports;
}

double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace brigade::monitor
