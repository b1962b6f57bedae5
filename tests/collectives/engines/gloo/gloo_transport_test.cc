#include "brigade/collectives/engines/gloo/gloo_transport.h"

#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/bootstrap/file_store.h"
#include "brigade/device/status_macros.h"
#include "brigade/tests/collectives/engines/gloo/processes.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

void ExpectAllOk(const std::vector<Report>& reports) {
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    EXPECT_OK(reports[rank].status) << "rank " << rank;
  }
}

absl::Status Expectation(bool holds, const std::string& what) {
  return holds ? absl::OkStatus() : absl::InternalError(what);
}

// The i-th message from `from` to `to`.
std::vector<char> MessageOf(int from, int to, int i, int64_t bytes) {
  std::vector<char> message(bytes);
  std::iota(message.begin(), message.end(), static_cast<char>(100 * from + 10 * to + i));
  return message;
}

TEST(GlooTransportTest, MessagesBetweenAllRanksArriveInOrder) {
  const std::vector<int64_t> sizes = {0, 1, 31, 0, 33, 4096, 8 << 20, 5, 5, 0};
  const int port = FreePort();
  ExpectAllOk(RunRanks(4, [&](int rank, Fault&) -> absl::Status {
    auto transport = Join(rank, 4, port, kNever);
    if (!transport.ok()) return transport.status();
    std::vector<std::vector<std::vector<char>>> sent(4), received(4);
    for (size_t i = 0; i < sizes.size(); ++i) {
      for (int peer = 0; peer < 4; ++peer) {
        sent[peer].push_back(MessageOf(rank, peer, i, sizes[i]));
        received[peer].emplace_back(sizes[i]);
      }
    }
    // Half of the receives are announced before the messages come, the others after.
    for (const bool early : {true, false}) {
      for (int peer = 0; peer < 4; ++peer) {
        for (size_t i = 0; i < sizes.size(); ++i) {
          if (peer == rank || (early != ((rank + peer) % 2 == 0))) continue;
          BRIGADE_RETURN_IF_ERROR((*transport)->Expect(peer, received[peer][i].data(), sizes[i]));
        }
        for (size_t i = 0; early && i < sizes.size(); ++i) {
          if (peer == rank) continue;
          BRIGADE_RETURN_IF_ERROR((*transport)->Send(peer, sent[peer][i].data(), sizes[i]));
        }
      }
    }
    for (int peer = 0; peer < 4; ++peer) {
      for (size_t i = 0; peer != rank && i < sizes.size(); ++i) {
        BRIGADE_RETURN_IF_ERROR((*transport)->Await(peer));
        BRIGADE_RETURN_IF_ERROR(Expectation(received[peer][i] == MessageOf(peer, rank, i, sizes[i]),
                                            absl::StrCat("message ", i, " of rank ", peer)));
      }
    }
    BRIGADE_RETURN_IF_ERROR((*transport)->Flush());
    const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    for (int peer = -1; peer <= 4; ++peer) {
      const bool is_peer = peer >= 0 && peer < 4 && peer != rank;
      BRIGADE_RETURN_IF_ERROR(Expectation((*transport)->sent_bytes(peer) == (is_peer ? total : 0),
                                          absl::StrCat("bytes sent to rank ", peer)));
    }
    return (*transport)->status();
  }));
}

TEST(GlooTransportTest, MeetsInAFolder) {
  const std::string folder = absl::StrCat(std::getenv("TEST_TMPDIR"), "/store");
  ExpectAllOk(RunRanks(3, [&](int rank, Fault&) -> absl::Status {
    FileStoreOptions files;
    files.rank = rank;
    files.size = 3;
    files.folder = folder;
    auto store = FileStore::Create(files);
    if (!store.ok()) return store.status();
    GlooOptions options;
    options.rank = rank;
    options.size = 3;
    options.store = *std::move(store);
    options.host = "127.0.0.1";
    auto transport = CreateGlooTransport(options);
    if (!transport.ok()) return transport.status();
    return ExchangeInRing(**transport, 1000);
  }));
}

TEST(GlooTransportTest, ASubsetOfTheRanksFormsAGroupOfItsOwn) {
  const int port = FreePort();
  ExpectAllOk(RunRanks(4, [&](int rank, Fault&) -> absl::Status {
    auto world = Join(rank, 4, port, kNever);
    if (!world.ok()) return world.status();
    GlooOptions options;
    options.rank = rank / 2;
    options.size = 2;
    options.store = (*world)->store();
    options.prefix = rank % 2 == 0 ? "even" : "odd";
    auto half = CreateGlooTransport(options);
    if (!half.ok()) return half.status();
    BRIGADE_RETURN_IF_ERROR(ExchangeInRing(**half, 100));
    return ExchangeInRing(**world, 100);
  }));
}

TEST(GlooTransportTest, AGroupOfOneNeedsNobody) {
  auto transport = CreateGlooTransport(GlooOptions()).value();
  EXPECT_OK(transport->Flush());
  EXPECT_THAT(transport->Send(0, nullptr, 0), StatusIs(absl::StatusCode::kInvalidArgument,
                                                       "Send: rank 0 is no peer of rank 0 of 1"));
  transport->Abort(absl::DataLossError("lost"));
  EXPECT_THAT(transport->Flush(), StatusIs(absl::StatusCode::kDataLoss, "lost"));
}

TEST(GlooTransportTest, WrongCallsChangeNothing) {
  const int port = FreePort();
  ExpectAllOk(RunRanks(2, [&](int rank, Fault&) -> absl::Status {
    auto transport = Join(rank, 2, port, kNever);
    if (!transport.ok()) return transport.status();
    const int peer = 1 - rank;
    char byte = 0;
    const std::vector<std::pair<absl::Status, std::string>> wrong = {
        {(*transport)->Send(2, &byte, 1),
         absl::StrCat("Send: rank 2 is no peer of rank ", rank, " of 2")},
        {(*transport)->Expect(-1, &byte, 1),
         absl::StrCat("Expect: rank -1 is no peer of rank ", rank, " of 2")},
        {(*transport)->Await(rank),
         absl::StrCat("Await: rank ", rank, " is no peer of rank ", rank, " of 2")},
        {(*transport)->Send(peer, &byte, -1), absl::StrCat("Send: -1 bytes, with rank ", peer)},
        {(*transport)->Expect(peer, nullptr, 1),
         absl::StrCat("Expect: 1 bytes at null, with rank ", peer)},
        {(*transport)->Await(peer),
         absl::StrCat("Await: no message of rank ", peer, " is expected")},
    };
    for (const auto& [status, text] : wrong) {
      const bool right_code = absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status);
      BRIGADE_RETURN_IF_ERROR(
          Expectation(right_code && status.message() == text, status.ToString()));
    }
    return ExchangeInRing(**transport, 10);
  }));
}

// Before and behind the receive's post, and behind messages of their own size.
TEST(GlooTransportTest, AMessageOfACapacityWritesWhatItHas) {
  const int port = FreePort();
  ExpectAllOk(RunRanks(2, [&](int rank, Fault&) -> absl::Status {
    auto joined = Join(rank, 2, port, kNever);
    if (!joined.ok()) return joined.status();
    Transport& transport = **joined;
    const int peer = 1 - rank;
    constexpr int64_t kCapacity = 5000;
    const std::string sent(kCapacity, static_cast<char>('a' + rank));
    int64_t total = 0;
    for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{100}, kCapacity - 1, kCapacity}) {
      for (const bool expects_first : {true, false}) {
        std::string received(kCapacity, '-'), whole(1000, '-');
        const auto expect = [&] { return transport.Expect(peer, received.data(), kCapacity); };
        if (expects_first) BRIGADE_RETURN_IF_ERROR(expect());
        BRIGADE_RETURN_IF_ERROR(transport.SendUpTo(peer, sent.data(), bytes, kCapacity));
        BRIGADE_RETURN_IF_ERROR(transport.Send(peer, sent.data(), 1000));
        if (!expects_first) BRIGADE_RETURN_IF_ERROR(expect());
        BRIGADE_RETURN_IF_ERROR(transport.Expect(peer, whole.data(), 1000));
        BRIGADE_RETURN_IF_ERROR(transport.Await(peer));
        BRIGADE_RETURN_IF_ERROR(transport.Await(peer));
        BRIGADE_RETURN_IF_ERROR(transport.Flush());
        total += bytes + 1000;
        const char letter = static_cast<char>('a' + peer);
        const auto begin = static_cast<size_t>(bytes);
        BRIGADE_RETURN_IF_ERROR(Expectation(
            received == std::string(begin, letter) + std::string(kCapacity - begin, '-') &&
                whole == std::string(1000, letter),
            absl::StrCat("wrong bytes behind a message of ", bytes)));
      }
    }
    BRIGADE_RETURN_IF_ERROR(Expectation(transport.sent_bytes(peer) == total, "wrong bytes sent"));
    const absl::Status wrong = transport.SendUpTo(peer, sent.data(), 2, 1);
    return Expectation(
        absl::IsInvalidArgument(wrong) &&
            wrong.message() == absl::StrCat("Send: 2 bytes of a capacity of 1, with rank ", peer),
        wrong.ToString());
  }));
}

TEST(GlooTransportTest, OneWhoLeavesEarlyDoesNotDisturbTheOthers) {
  const int port = FreePort();
  const std::vector<Report> reports = RunRanks(3, [&](int rank, Fault&) -> absl::Status {
    auto transport = Join(rank, 3, port, kNever);
    if (!transport.ok()) return transport.status();
    BRIGADE_RETURN_IF_ERROR(ExchangeInRing(**transport, 1 << 20));
    if (rank == 2) return absl::OkStatus();
    absl::SleepFor(absl::Milliseconds(300));
    const int peer = 1 - rank;
    char sent = 1, received = 0;
    for (int i = 0; i < 100; ++i) {
      BRIGADE_RETURN_IF_ERROR((*transport)->Expect(peer, &received, 1));
      BRIGADE_RETURN_IF_ERROR((*transport)->Send(peer, &sent, 1));
      BRIGADE_RETURN_IF_ERROR((*transport)->Await(peer));
      BRIGADE_RETURN_IF_ERROR((*transport)->Flush());
    }
    BRIGADE_RETURN_IF_ERROR((*transport)->Expect(2, &received, 1));
    return (*transport)->Await(2);
  });
  EXPECT_OK(reports[2].status);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(reports[rank].status,
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 2 has left, but rank")));
  }
}

}  // namespace
}  // namespace brigade::collectives::testing
