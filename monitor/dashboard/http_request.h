#ifndef BRIGADE_MONITOR_DASHBOARD_HTTP_REQUEST_H_
#define BRIGADE_MONITOR_DASHBOARD_HTTP_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace brigade::monitor {

// What is said to a request.
struct HttpResponse {
  // "200 OK", "404 Not Found".
  std::string status;
  // "text/html; charset=utf-8".
  std::string content_type;
  // Shared by all who are sent it.
  std::shared_ptr<const std::string> body;
  // More lines of the head, each with its end.
  std::string headers = {};
};

// A response that says its status and why.
HttpResponse Refusal(absl::string_view status, absl::string_view why);

// A request for something, or what is said to it instead.
struct HttpRequest {
  // "/data.json", without what follows a "?".
  std::string path;
  bool is_head = false;
  // Not null: the request is refused.
  std::shared_ptr<const HttpResponse> refusal = nullptr;
};

// Reads the head of a request of HTTP/1.0 or 1.1, up to and with its empty line. Only GET and HEAD
// are understood, and only by who asks for this machine by one of its own names (Host is localhost,
// 127.0.0.1 or [::1], with any port, as through a tunnel): a page of a stranger whose name leads
// here would else be read as if it were his (DNS rebinding). So is an Origin of another name.
// Refused: whatever else. No text makes it fail otherwise.
HttpRequest ParseRequest(absl::string_view head);

// The whole answer, ready to be sent; of HEAD without the body. The connection closes behind it.
std::string HeadOf(const HttpResponse& response);

}  // namespace brigade::monitor

#endif  // BRIGADE_MONITOR_DASHBOARD_HTTP_REQUEST_H_
