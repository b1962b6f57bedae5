#include "brigade/monitor/dashboard/http_request.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace brigade::monitor {
namespace {

// "200" of what is accepted, else the status that is said.
std::string StatusOf(const std::string& head) {
  const HttpRequest request = ParseRequest(head);
  return request.refusal == nullptr ? "200" : request.refusal->status.substr(0, 3);
}

std::string OfHost(const std::string& host) {
  return StatusOf(absl::StrCat("GET / HTTP/1.1\r\nHost: ", host, "\r\n\r\n"));
}

TEST(HttpRequestTest, PathIsWithoutWhatFollowsAQuestionMark) {
  const HttpRequest get = ParseRequest("GET /data.json?a=b?c HTTP/1.1\r\nhOST:  localhost\r\n\r\n");
  EXPECT_EQ(get.refusal, nullptr);
  EXPECT_EQ(get.path, "/data.json");
  EXPECT_FALSE(get.is_head);
  EXPECT_TRUE(ParseRequest("HEAD / HTTP/1.0\nHost: localhost\n\n").is_head);
}

TEST(HttpRequestTest, OnlyNamesOfThisMachineAreHosts) {
  for (const char* host :
       {"localhost", "LocalHost:8080", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:65535"}) {
    EXPECT_EQ(OfHost(host), "200") << host;
  }
  for (const char* host :
       {"", "evil.example", "evil.example:8080", "localhost.evil.example", "localhost:80.evil",
        "127.0.0.1.evil.example", "127.0.0.2", "0.0.0.0", "[::1", "[::1].evil", "localhost:123456",
        "localhost@evil", "evil@localhost", "::1"}) {
    EXPECT_EQ(OfHost(host), "403") << host;
  }
}

TEST(HttpRequestTest, PagesOfOtherOriginsAreRefused) {
  const auto of = [](const char* origin) {
    return StatusOf(
        absl::StrCat("GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: ", origin, "\r\n\r\n"));
  };
  EXPECT_EQ(of("http://localhost:8080"), "200");
  for (const char* origin :
       {"null", "https://evil.example", "http://localhost.evil.example", "x"}) {
    EXPECT_EQ(of(origin), "403") << origin;
  }
}

TEST(HttpRequestTest, WhatIsNoRequestIsRefused) {
  const std::string host = "\r\nHost: localhost\r\n\r\n";
  EXPECT_EQ(StatusOf(""), "400");
  EXPECT_EQ(StatusOf("\r\n\r\n"), "400");
  EXPECT_EQ(StatusOf("GET /" + host), "400");
  EXPECT_EQ(StatusOf("GET  / HTTP/1.1" + host), "400");
  EXPECT_EQ(StatusOf("GET http://localhost/ HTTP/1.1" + host), "400");
  EXPECT_EQ(StatusOf("GET / HTTP/2" + host), "505");
  EXPECT_EQ(StatusOf("POST / HTTP/1.1" + host), "405");
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\n\r\n"), "400");
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n"), "400");
  // Of two hosts one may be behind the head, which is then no header.
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\n\r\nHost: localhost\r\n\r\n"), "400");
}

TEST(HttpRequestTest, AnswersCloseTheConnectionAndLetNobodyFrameThem) {
  const std::string head = HeadOf(Refusal("404 Not Found", "why"));
  EXPECT_TRUE(head.starts_with("HTTP/1.1 404 Not Found\r\n")) << head;
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));
  for (const char* line :
       {"Connection: close\r\n", "Content-Length: 19\r\n", "X-Frame-Options: DENY",
        "Cross-Origin-Resource-Policy: same-origin\r\n"}) {
    EXPECT_NE(head.find(line), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace brigade::monitor
