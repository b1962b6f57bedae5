#include "brigade/monitor/dashboard/http_request.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace brigade::monitor {
namespace {

HttpRequest Refused(absl::string_view status, absl::string_view why) {
  HttpRequest request;
  request.refusal = std::make_shared<const HttpResponse>(Refusal(status, why));
  return request;
}

HttpRequest Malformed(absl::string_view why) { return Refused("400 Bad Request", why); }

// "localhost:8080", "[::1]".
bool IsThisMachine(absl::string_view host) {
  for (const absl::string_view name : {"localhost", "127.0.0.1", "[::1]"}) {
    absl::string_view rest = host;
    if (!absl::StartsWithIgnoreCase(rest, name)) continue;
    rest.remove_prefix(name.size());
    if (rest.empty()) return true;
    if (!absl::ConsumePrefix(&rest, ":") || rest.size() > 5) continue;
    bool digits = true;
    for (const char c : rest) digits &= absl::ascii_isdigit(static_cast<unsigned char>(c));
    if (digits) return true;
  }
  return false;
}

}  // namespace

HttpResponse Refusal(absl::string_view status, absl::string_view why) {
  return {std::string(status), "text/plain; charset=utf-8",
          std::make_shared<const std::string>(absl::StrCat(status, ": ", why, "\n"))};
}

HttpRequest ParseRequest(absl::string_view head) {
  std::vector<absl::string_view> lines = absl::StrSplit(head, '\n');
  for (absl::string_view& line : lines) absl::ConsumeSuffix(&line, "\r");
  const std::vector<absl::string_view> words = absl::StrSplit(lines[0], ' ');
  if (words.size() != 3) return Malformed("the first line is no request");
  if (words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0") {
    return Refused("505 HTTP Version Not Supported", "HTTP/1.1 is spoken here");
  }
  std::optional<absl::string_view> host;
  for (size_t i = 1; i < lines.size() && !lines[i].empty(); ++i) {
    const std::pair<absl::string_view, absl::string_view> header =
        absl::StrSplit(lines[i], absl::MaxSplits(':', 1));
    const absl::string_view value = absl::StripAsciiWhitespace(header.second);
    if (absl::EqualsIgnoreCase(header.first, "host")) {
      if (host.has_value()) return Malformed("two hosts are named");
      host = value;
    } else if (absl::EqualsIgnoreCase(header.first, "origin")) {
      absl::string_view origin = value;
      if (!absl::ConsumePrefix(&origin, "http://") || !IsThisMachine(origin)) {
        return Refused("403 Forbidden", "a page of another origin asks");
      }
    }
  }
  if (!host.has_value()) return Malformed("no host is named");
  if (!IsThisMachine(*host)) {
    return Refused("403 Forbidden",
                   "this page is for its own machine alone: http://127.0.0.1, http://localhost");
  }
  if (words[0] != "GET" && words[0] != "HEAD") {
    return Refused("405 Method Not Allowed", "GET alone is understood");
  }
  absl::string_view path = words[1].substr(0, words[1].find('?'));
  if (!absl::StartsWith(path, "/")) return Malformed("the path does not begin with /");
  return {.path = std::string(path), .is_head = words[0] == "HEAD"};
}

std::string HeadOf(const HttpResponse& response) {
  return absl::StrCat("HTTP/1.1 ", response.status, "\r\nContent-Type: ", response.content_type,
                      "\r\nContent-Length: ", response.body->size(),
                      "\r\nConnection: close\r\nCache-Control: no-store\r\n"
                      "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
                      "Cross-Origin-Resource-Policy: same-origin\r\nX-Frame-Options: DENY\r\n",
                      response.headers, "\r\n");
}

}  // namespace brigade::monitor
