// Strangers who connect to the addresses of a group before its ranks do.

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/bootstrap/fields.h"
#include "brigade/device/status_macros.h"
#include "brigade/tests/collectives/engines/gloo/processes.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {
namespace {

constexpr int kRanks = 3;

// Where ranks 0 and 1 listen for each other and for rank 2, as they have published it.
absl::StatusOr<std::vector<int>> PortsOfOthers(Store& store) {
  std::vector<int> ports;
  for (int rank = 0; rank < 2; ++rank) {
    BRIGADE_ASSIGN_OR_RETURN(const std::string published,
                             store.Get(absl::StrCat("world/", rank), kNever));
    BRIGADE_ASSIGN_OR_RETURN(const auto fields, UnpackFields(published));
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer == rank) continue;
      sockaddr_in address = {};
      std::memcpy(&address, fields.at(static_cast<size_t>(2 + peer)).data(), sizeof(address));
      ports.push_back(ntohs(address.sin_port));
    }
  }
  return ports;
}

// A descriptor that stays open.
int ConnectTo(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const auto* const to = reinterpret_cast<const sockaddr*>(&address);
  return connect(fd, to, sizeof(address)) == 0 ? fd : -1;
}

TEST(ProvedPairTest, StrangersTakeNobodysPlace) {
  std::mt19937 random(5);
  std::string noise(100'000, '\0');
  for (char& byte : noise) byte = static_cast<char>(random());
  // Nothing; less than a proof, as long as one, more; what Gloo takes for the begin of a message.
  for (const std::string& bytes :
       {std::string(), noise.substr(0, 31), noise.substr(0, 32), noise, std::string(4096, '\0')}) {
    SCOPED_TRACE(bytes.size());
    const int port = FreePort();
    const std::vector<Report> reports =
        RunRanks(kRanks, [&](int rank, Fault& fault) -> absl::Status {
          BRIGADE_ASSIGN_OR_RETURN(auto store, TcpStore::Create(StoreOptions(rank, kRanks, port)));
          if (rank == 2) {
            BRIGADE_ASSIGN_OR_RETURN(const auto ports, PortsOfOthers(*store));
            for (const int each : ports) {
              const int stranger = ConnectTo(each);
              if (stranger < 0) return absl::ErrnoToStatus(errno, "a stranger cannot connect");
              send(stranger, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            }
          }
          GlooOptions options;
          options.rank = rank;
          options.size = kRanks;
          options.store = store;
          options.connect_timeout = kNever;
          options.timeout = kNever;
          BRIGADE_ASSIGN_OR_RETURN(const auto transport, CreateGlooTransport(options));
          BRIGADE_RETURN_IF_ERROR(ExchangeInRing(*transport, 1000));
          fault.AwaitAll();
          return absl::OkStatus();
        });
    for (const Report& report : reports) EXPECT_OK(report.status);
  }
}

}  // namespace
}  // namespace brigade::collectives::testing
