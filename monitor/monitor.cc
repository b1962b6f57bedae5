#include "brigade/monitor/monitor.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/threads/deadline.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/monitor/task_queue.h"

namespace brigade::monitor {
namespace {

// A back end with what became of its records. Shared with its tasks, one of which may outlive the
// monitor.
class Desk {
 public:
  Desk(std::unique_ptr<BackEnd> back_end, std::function<void(const std::string&)> on_trouble)
      : name_(back_end->name()),
        back_end_(std::move(back_end)),
        on_trouble_(std::move(on_trouble)) {}

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
  void Tell(const std::string& text) const {
    if (on_trouble_ != nullptr) on_trouble_(text);
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
    if (is_first) Tell(absl::StrCat(name_, ": ", std::string(status.message())));
  }

  const std::string name_;
  const std::unique_ptr<BackEnd> back_end_;
  const std::function<void(const std::string&)> on_trouble_;
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
  Worker(std::unique_ptr<BackEnd> back_end, const Options& options)
      : desk(std::make_shared<Desk>(std::move(back_end), options.on_trouble)),
        // One more for Start, which is never dropped.
        queue(options.capacity + 1) {}

  void Post(std::function<void(Desk&)> task) {
    const bool taken = queue.Post([desk = desk, task = std::move(task)] { task(*desk); });
    if (!taken) {
      has_dropped = true;
    } else if (has_dropped && !has_told.exchange(true)) {
      // There is room again: the thread that has made it tells what was lost meanwhile.
      queue.Post([desk = desk] {
        desk->Tell(
            absl::StrCat(desk->name(), ": writing falls behind the training; records are dropped"));
      });
    }
  }

  const std::shared_ptr<Desk> desk;
  TaskQueue queue;
  std::atomic<int64_t> published = 0;
  std::atomic<bool> has_dropped = false, has_told = false;
  // Once it is closed.
  std::optional<BackEndReport> report;
};

Monitor::Monitor(std::vector<std::unique_ptr<BackEnd>> back_ends, Options options) {
  for (std::unique_ptr<BackEnd>& back_end : back_ends) {
    workers_.push_back(std::make_unique<Worker>(std::move(back_end), options));
  }
}

Monitor::~Monitor() { Close(absl::ZeroDuration()); }

void Monitor::Start(const Position& from) {
  for (const auto& worker : workers_) {
    worker->Post([from](Desk& desk) { desk.Start(from); });
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
  for (const auto& worker : workers_) {
    if (!worker->report.has_value()) {
      const auto left = deadline - std::chrono::steady_clock::now();
      const bool ended = worker->queue.Close(absl::FromChrono(left));
      BackEndReport report = worker->desk->report();
      report.name = worker->desk->name();
      report.dropped = worker->published - report.written - report.failed;
      report.is_stuck = !ended;
      worker->report = std::move(report);
    }
    reports.push_back(*worker->report);
  }
  return reports;
}

double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace brigade::monitor
