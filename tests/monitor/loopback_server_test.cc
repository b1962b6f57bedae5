#include "brigade/monitor/dashboard/loopback_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::monitor {
namespace {

constexpr char kRequest[] = "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n";

// A connection to a port of this machine.
class Client {
 public:
  explicit Client(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void Say(const std::string& text) {
    EXPECT_EQ(send(fd_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  // All that comes until the server closes.
  std::string Hear() {
    std::string all;
    char bytes[65536];
    for (ssize_t got = 0; (got = recv(fd_, bytes, sizeof(bytes), 0)) > 0;) {
      all.append(bytes, static_cast<size_t>(got));
    }
    return all;
  }

 private:
  const int fd_;
};

// Its patience never ends, but where a test says so.
LoopbackServerOptions Options(std::string body) {
  const auto shared = std::make_shared<const std::string>(std::move(body));
  return {.handler =
              [shared](const std::string& path) {
                return path == "/a" ? HttpResponse{"200 OK", "text/plain", shared}
                                    : Refusal("404 Not Found", "no");
              },
          .most_connections = 8,
          .request_patience = absl::Hours(1),
          .answer_patience = absl::Hours(1)};
}

TEST(LoopbackServerTest, AnswersEachConnectionOnce) {
  ASSERT_OK_AND_ASSIGN(const auto server, LoopbackServer::Create(Options("body")));
  Client client(server->port()), other(server->port());
  // Both at a time, and what follows a request is of no interest.
  other.Say("GET /b HTTP/1.1\r\nHost: localhost\r\n");
  client.Say(absl::StrCat(kRequest, kRequest));
  const std::string said = client.Hear();
  EXPECT_TRUE(absl::StartsWith(said, "HTTP/1.1 200 OK\r\n")) << said;
  EXPECT_TRUE(absl::EndsWith(said, "\r\n\r\nbody")) << said;
  other.Say("\r\n");
  EXPECT_TRUE(absl::StartsWith(other.Hear(), "HTTP/1.1 404 Not Found\r\n"));
}

// Without that they would keep the places for an hour.
TEST(LoopbackServerTest, ANewConnectionTakesThePlaceOfTheOldestThatAsksNothing) {
  ASSERT_OK_AND_ASSIGN(const auto server, LoopbackServer::Create(Options("body")));
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 40; ++i) silent.push_back(std::make_unique<Client>(server->port()));
  Client client(server->port());
  client.Say(kRequest);
  EXPECT_TRUE(absl::EndsWith(client.Hear(), "body"));
  EXPECT_EQ(silent.front()->Hear(), "");
  // The last ones still have theirs.
  silent.back()->Say(kRequest);
  EXPECT_TRUE(absl::EndsWith(silent.back()->Hear(), "body"));
}

TEST(LoopbackServerTest, ThoseWhoDoNotReadHoldUpNobody) {
  // More than buffers of a connection have.
  const std::string body(32 << 20, 'x');
  ASSERT_OK_AND_ASSIGN(const auto server, LoopbackServer::Create(Options(body)));
  std::vector<std::unique_ptr<Client>> deaf;
  for (int i = 0; i < 40; ++i) {
    deaf.push_back(std::make_unique<Client>(server->port()));
    deaf.back()->Say(kRequest);
  }
  Client client(server->port());
  client.Say("GET /b HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(absl::StartsWith(client.Hear(), "HTTP/1.1 404"));
  // One that reads late gets the whole.
  EXPECT_TRUE(absl::EndsWith(deaf.back()->Hear(), std::string(1 << 20, 'x')));
}

TEST(LoopbackServerTest, PatienceEnds) {
  LoopbackServerOptions options = Options(std::string(32 << 20, 'x'));
  options.request_patience = options.answer_patience = absl::Milliseconds(20);
  ASSERT_OK_AND_ASSIGN(const auto server, LoopbackServer::Create(std::move(options)));
  Client half(server->port());
  half.Say("GET /a HT");
  EXPECT_EQ(half.Hear(), "");
}

TEST(LoopbackServerTest, EndsWithConnectionsInAllStates) {
  std::vector<std::unique_ptr<Client>> clients;
  {
    ASSERT_OK_AND_ASSIGN(const auto server,
                         LoopbackServer::Create(Options(std::string(32 << 20, 'x'))));
    for (const char* text : {"", "GET", kRequest, kRequest}) {
      clients.push_back(std::make_unique<Client>(server->port()));
      clients.back()->Say(text);
    }
  }
  for (const auto& client : clients) EXPECT_LT(client->Hear().size(), size_t{32} << 20);
}

TEST(LoopbackServerTest, APortThatIsTakenIsNamed) {
  ASSERT_OK_AND_ASSIGN(const auto server, LoopbackServer::Create(Options("")));
  LoopbackServerOptions options = Options("");
  options.port = server->port();
  EXPECT_EQ(
      LoopbackServer::Create(options).status().message(),
      absl::StrCat("cannot listen on 127.0.0.1:", server->port(), ": Address already in use"));
  options.port = 65536;
  EXPECT_EQ(LoopbackServer::Create(options).status().message(),
            "the port is 65536; it must be 0 to 65535");
}

}  // namespace
}  // namespace brigade::monitor
