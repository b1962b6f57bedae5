#ifndef BRIGADE_MONITOR_DASHBOARD_DASHBOARD_H_
#define BRIGADE_MONITOR_DASHBOARD_DASHBOARD_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/monitor/back_end.h"
#include "brigade/monitor/dashboard/loopback_server.h"
#include "brigade/monitor/dashboard/series.h"
#include "brigade/monitor/record.h"

namespace brigade::monitor {

struct DashboardOptions {
  // 0: any that is free.
  int port = 0;
  // What is trained, in words.
  std::string title;
  // How many steps there will be; 0: nobody knows.
  int64_t steps = 0;
  // Of what losses are means, and in what they count.
  std::string unit = "byte";
  std::string loss = "nats";
};

// A page that shows a training while it runs, to browsers on this machine: one page without
// anything from elsewhere, which asks for /data.json each second.
//
// Memory       Does not grow with the training: at most 600 points of each tag.
// Threads      Of BackEnd; requests are served by a thread of its own (LoopbackServer).
class Dashboard final : public BackEnd {
 public:
  // Listens. Errors of LoopbackServer.
  static absl::StatusOr<std::unique_ptr<Dashboard>> Create(const DashboardOptions& options);
  ~Dashboard() override;

  // "http://127.0.0.1:8080/".
  std::string url() const;

  std::string name() const override;
  absl::Status Start(const Position& from) override;
  absl::Status Write(const Record& record) override;
  absl::Status Show(const Timeline& timeline) override;

 private:
  explicit Dashboard(const DashboardOptions& options);

  HttpResponse Respond(const std::string& path) const;
  std::string Data() const;

  const std::string title_;
  const int64_t steps_;
  const std::string unit_, loss_;
  // The page, and the lines of its head that say what it may load: nothing.
  std::shared_ptr<const std::string> page_;
  std::string page_headers_;

  mutable device::Mutex mutex_;
  Position from_ ABSL_GUARDED_BY(mutex_);
  Position at_ ABSL_GUARDED_BY(mutex_);
  double started_ ABSL_GUARDED_BY(mutex_) = 0;
  double updated_ ABSL_GUARDED_BY(mutex_) = 0;
  // By their tags.
  std::map<std::string, Series> series_ ABSL_GUARDED_BY(mutex_);
  Timeline timeline_ ABSL_GUARDED_BY(mutex_);

  // Last: it uses the others.
  std::unique_ptr<LoopbackServer> server_;
};

}  // namespace brigade::monitor

#endif  // BRIGADE_MONITOR_DASHBOARD_DASHBOARD_H_
