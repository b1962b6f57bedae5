#include "brigade/monitor/dashboard/dashboard.h"

#include <nlohmann/json.hpp>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "brigade/device/status_macros.h"
#include "brigade/monitor/dashboard/page.h"
#include "brigade/monitor/monitor.h"

namespace brigade::monitor {
namespace {

// About as many as a chart has pixels. Even.
constexpr size_t kMostPoints = 600;
// Tags beyond are not shown: no memory without an end, whatever is published.
constexpr size_t kMostTags = 200;

std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string SpansToJson(const std::vector<Timeline::Span>& spans) {
  std::string text;
  for (const Timeline::Span& span : spans) {
    absl::StrAppend(&text, text.empty() ? "" : ",", "[", Quoted(span.name), ",",
                    JsonNumber(span.begin), ",", JsonNumber(span.end), "]");
  }
  return absl::StrCat("[", text, "]");
}

std::string ToJson(const Timeline& timeline) {
  std::string split, lanes;
  for (const auto& [name, seconds] : timeline.split) {
    absl::StrAppend(&split, split.empty() ? "" : ",", "[", Quoted(name), ",", JsonNumber(seconds),
                    "]");
  }
  for (const Timeline::Lane& lane : timeline.lanes) {
    absl::StrAppend(&lanes, lanes.empty() ? "" : ",", "{\"name\":", Quoted(lane.name),
                    ",\"passes\":", SpansToJson(lane.passes),
                    ",\"others\":", SpansToJson(lane.others), "}");
  }
  return absl::StrCat("{\"step\":", timeline.step, ",\"seconds\":", JsonNumber(timeline.seconds),
                      ",\"split\":[", split, "],\"lanes\":[", lanes, "]}");
}

}  // namespace

Dashboard::Dashboard(const DashboardOptions& options)
    : title_(options.title), steps_(options.steps), unit_(options.unit), loss_(options.loss) {
  // The page's own script and style have this number; whatever else might get into it has not.
  std::random_device random;
  const std::string nonce = absl::StrFormat("%08x%08x%08x", random(), random(), random());
  page_ = std::make_shared<const std::string>(absl::StrReplaceAll(Page(), {{"@NONCE@", nonce}}));
  page_headers_ = absl::StrCat(
      "Content-Security-Policy: default-src 'none'; connect-src 'self'; img-src data:; "
      "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; script-src 'nonce-",
      nonce, "'; style-src 'nonce-", nonce, "'\r\n");
}

absl::StatusOr<std::unique_ptr<Dashboard>> Dashboard::Create(const DashboardOptions& options) {
  std::unique_ptr<Dashboard> dashboard(new Dashboard(options));
  BRIGADE_ASSIGN_OR_RETURN(
      dashboard->server_,
      LoopbackServer::Create(
          {.port = options.port, .handler = [dashboard = dashboard.get()](const std::string& path) {
             return dashboard->Respond(path);
           }}));
  return dashboard;
}

Dashboard::~Dashboard() = default;

std::string Dashboard::url() const {
  return absl::StrCat("http://127.0.0.1:", server_->port(), "/");
}

std::string Dashboard::name() const { return absl::StrCat("the page at ", url()); }

absl::Status Dashboard::Start(const Position& from) {
  const device::MutexLock lock(mutex_);
  from_ = at_ = from;
  for (auto& [tag, series] : series_) series.KeepUpTo(from.step);
  started_ = updated_ = WallSeconds();
  return absl::OkStatus();
}

absl::Status Dashboard::Write(const Record& record) {
  const device::MutexLock lock(mutex_);
  // What is measured of a step may come behind later steps.
  if (record.at.step >= at_.step) at_ = record.at;
  updated_ = record.wall_time;
  for (const Value& value : record.values) {
    if (value.tag.empty()) continue;
    auto series = series_.find(value.tag);
    if (series == series_.end()) {
      if (series_.size() >= kMostTags) continue;
      series = series_.emplace(value.tag, Series(kMostPoints)).first;
    }
    series->second.Add(record.at.step, value.value);
  }
  return absl::OkStatus();
}

absl::Status Dashboard::Show(const Timeline& timeline) {
  const device::MutexLock lock(mutex_);
  timeline_ = timeline;
  return absl::OkStatus();
}

std::string Dashboard::Data() const {
  const device::MutexLock lock(mutex_);
  std::string series;
  for (const auto& [tag, values] : series_) {
    absl::StrAppend(&series, series.empty() ? "" : ",", Quoted(tag),
                    ":{\"latest\":", JsonNumber(values.latest()), ",\"points\":", values.ToJson(),
                    "}");
  }
  return absl::StrCat(
      "{\"title\":", Quoted(title_), ",\"unit\":", Quoted(unit_), ",\"loss\":", Quoted(loss_),
      ",\"steps\":", steps_, ",\"from\":", from_.step, ",\"step\":", at_.step,
      ",\"samples\":", at_.samples, ",\"started\":",
      absl::StrFormat("%.3f,\"updated\":%.3f,\"now\":%.3f", started_, updated_, WallSeconds()),
      ",\"series\":{", series, "},\"timeline\":", ToJson(timeline_), "}");
}

HttpResponse Dashboard::Respond(const std::string& path) const {
  if (path == "/") return {"200 OK", "text/html; charset=utf-8", page_, page_headers_};
  if (path == "/data.json") {
    return {"200 OK", "application/json", std::make_shared<const std::string>(Data())};
  }
  return Refusal("404 Not Found", "there is / and /data.json");
}

}  // namespace brigade::monitor
