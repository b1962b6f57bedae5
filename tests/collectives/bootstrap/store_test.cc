#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/bootstrap/file_store.h"
#include "brigade/collectives/bootstrap/tcp_store.h"
#include "brigade/collectives/engines/gloo/gloo_transport.h"
#include "brigade/collectives/internal/socket.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/steady_time.h"
#include "brigade/tests/collectives/engines/gloo/processes.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gloo/common/error.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {
namespace {

using ::brigade::device::SteadyTime;
using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Creates the store of a rank and keeps it until all processes have made this call, or AwaitAll.
absl::Status CreateStore(TcpStoreOptions options, Fault& fault) {
  const auto store = TcpStore::Create(options);
  fault.AwaitAll();
  return store.status();
}

TEST(TcpStoreTest, AllRanksSeeWhatOneHasSet) {
  const int port = FreePort();
  const std::vector<Report> reports = RunRanks(3, [&](int rank, Fault& fault) -> absl::Status {
    auto store = TcpStore::Create(StoreOptions(rank, 3, port));
    if (!store.ok()) return store.status();
    const std::string binary("a\0:\n", 4);
    BRIGADE_RETURN_IF_ERROR(
        (*store)->Set(absl::StrCat("key", rank), binary + std::to_string(rank), kNever));
    for (int peer = 0; peer < 3; ++peer) {
      auto value = (*store)->Get(absl::StrCat("key", peer), kNever);
      if (!value.ok()) return value.status();
      if (*value != binary + std::to_string(peer)) return absl::InternalError(*value);
    }
    BRIGADE_RETURN_IF_ERROR((*store)->Set(absl::StrCat("done", rank), "", kNever));
    BRIGADE_RETURN_IF_ERROR(GetOfAllRanks(**store, "done", 3, kNever, "the end").status());
    fault.AwaitAll();  // rank 0 serves the others' last look
    return absl::OkStatus();
  });
  for (const Report& report : reports) EXPECT_OK(report.status);
}

TEST(TcpStoreTest, KeysAreSetOnceAndWaitsEnd) {
  auto store = TcpStore::Create(StoreOptions(0, 1, FreePort())).value();
  EXPECT_OK(store->Set("key", "1", kNever));
  EXPECT_OK(store->Set("key", "1", kNever));
  EXPECT_THAT(store->Set("key", "2", kNever),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("key 'key' has another value")));
  EXPECT_THAT(
      store->Get("other", absl::Milliseconds(100)),
      StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("nobody has set key 'other'")));
  EXPECT_EQ(store->Get("key", absl::ZeroDuration()).value(), "1");
  EXPECT_OK(store->Remove("key", kNever));
  EXPECT_OK(store->Remove("key", kNever));
  EXPECT_THAT(store->Get("key", absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_OK(store->Set("key", "2", kNever));
}

// Who waits for no key does not wait for the one without a name.
TEST(TcpStoreTest, AKeyMayBeEmpty) {
  const int port = FreePort();
  const std::vector<Report> reports = RunRanks(2, [&](int rank, Fault& fault) -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(auto store, TcpStore::Create(StoreOptions(rank, 2, port)));
    if (rank == 0) BRIGADE_RETURN_IF_ERROR(store->Set("", "nothing", kNever));
    fault.AwaitAll();
    if (rank == 1) BRIGADE_RETURN_IF_ERROR(store->Set("key", "value", kNever));
    BRIGADE_ASSIGN_OR_RETURN(const std::string value, store->Get("key", kNever));
    BRIGADE_ASSIGN_OR_RETURN(const std::string nothing, store->Get("", kNever));
    fault.AwaitAll();
    return value == "value" && nothing == "nothing" ? absl::OkStatus()
                                                    : absl::InternalError(value + nothing);
  });
  for (const Report& report : reports) EXPECT_OK(report.status);
}

TEST(TcpStoreTest, ServesGloosOwnContexts) {
  auto store = TcpStore::Create(StoreOptions(0, 1, FreePort())).value();
  ::gloo::rendezvous::Store& gloo = *store;
  gloo.set("key", {'a', '\0', 'b'});
  EXPECT_EQ(gloo.get("key"), (std::vector<char>{'a', '\0', 'b'}));
  gloo.wait({"key"}, std::chrono::milliseconds(10));
  EXPECT_THROW(gloo.wait({"key", "other"}, std::chrono::milliseconds(10)), ::gloo::IoException);
}

TEST(TcpStoreTest, RanksThatDoNotComeAreNamed) {
  const int port = FreePort();
  const std::vector<Report> reports = RunRanks(4, [&](int rank, Fault& fault) {
    if (rank < 2) return CreateStore(StoreOptions(rank, 4, port, kDeadline), fault);
    fault.AwaitAll();
    return absl::OkStatus();
  });
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(reports[rank].status,
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         StartsWith(absl::StrCat(
                             "ranks 2 and 3 did not join MASTER_ADDR=127.0.0.1, MASTER_PORT=", port,
                             " within ", absl::FormatDuration(kDeadline)))));
  }
}

TEST(TcpStoreTest, TwoProcessesWithOneRankAreAnErrorOnAllRanksAtOnce) {
  for (const int twin : {0, 2}) {
    const int port = FreePort();
    // Ranks 0, 1, 2 of 4, and the twin.
    const std::vector<Report> reports = RunRanks(4, [&](int process, Fault& fault) {
      return CreateStore(StoreOptions(process == 3 ? twin : process, 4, port), fault);
    });
    for (const Report& report : reports) {
      EXPECT_THAT(report.status,
                  StatusIs(absl::StatusCode::kAlreadyExists,
                           StartsWith(absl::StrCat("two processes have rank ", twin, ": "))));
    }
  }
}

TEST(TcpStoreTest, WorldSizesThatDifferAreAnErrorOnAllRanksAtOnce) {
  const int port = FreePort();
  const std::vector<Report> reports = RunRanks(3, [&](int rank, Fault& fault) {
    return CreateStore(StoreOptions(rank, rank == 2 ? 3 : 4, port), fault);
  });
  for (const Report& report : reports) {
    EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                        AllOf(StartsWith("world sizes differ: rank 2 ("),
                                              HasSubstr("was started with 3 ranks, "
                                                        "the store's server with 4"))));
  }
}

TEST(TcpStoreTest, AProcessTooManyDoesNotHarmAWholeGroup) {
  const int port = FreePort();
  const std::vector<Report> reports = RunRanks(3, [&](int process, Fault& fault) -> absl::Status {
    if (process == 2) {
      fault.AwaitAll();  // the others are a whole group
      return CreateStore(StoreOptions(1, 2, port), fault);
    }
    auto store = TcpStore::Create(StoreOptions(process, 2, port));
    fault.AwaitAll();
    fault.AwaitAll();  // process 2 was refused
    if (!store.ok()) return store.status();
    return (*store)->Set(absl::StrCat("key", process), "", kNever);
  });
  EXPECT_OK(reports[0].status);
  EXPECT_OK(reports[1].status);
  EXPECT_THAT(reports[2].status, StatusIs(absl::StatusCode::kAlreadyExists,
                                          StartsWith("two processes have rank 1: ")));
}

TEST(TcpStoreTest, APortInUseIsNamed) {
  const internal::Socket other = internal::Socket::Listen("", 0).value();
  EXPECT_THAT(TcpStore::Create(StoreOptions(0, 2, other.local_port())).status(),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       absl::StrCat("rank 0 cannot listen on MASTER_PORT=", other.local_port(),
                                    ": Address already in use")));
}

TEST(TcpStoreTest, AnAddressThatDoesNotAnswerIsNamed) {
  const int port = FreePort();
  EXPECT_THAT(TcpStore::Create(StoreOptions(1, 2, port, absl::Milliseconds(300))).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(StartsWith(absl::StrCat("cannot reach the store of rank 0 at "
                                                     "MASTER_ADDR=127.0.0.1, MASTER_PORT=",
                                                     port, " (tried ")),
                             HasSubstr("Connection refused"))));
  TcpStoreOptions options = StoreOptions(1, 2, port);
  options.master_addr = "no such host";
  EXPECT_THAT(TcpStore::Create(options).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("MASTER_ADDR=no such host")));
}

TEST(RankNamesTest, AreAFewWords) {
  EXPECT_EQ(RankNames({3}), "rank 3");
  EXPECT_EQ(RankNames({1, 3}), "ranks 1 and 3");
  EXPECT_EQ(RankNames({1, 3, 5}), "ranks 1, 3 and 5");
  std::vector<int> many(1000);
  std::iota(many.begin(), many.end(), 0);
  EXPECT_THAT(RankNames(many),
              AllOf(StartsWith("ranks 0, 1, 2, "), ::testing::EndsWith(", 31 and 968 others")));
}

TEST(TcpStoreTest, WrongOptionsAreNamed) {
  EXPECT_THAT(TcpStore::Create(StoreOptions(2, 1'000'000, 1)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "a group of 1000000 ranks; there are at most 16384"));
  EXPECT_THAT(TcpStore::Create(StoreOptions(2, 2, 1)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "no rank 2 in a group of 2"));
  EXPECT_THAT(
      TcpStore::Create(StoreOptions(0, 2, 65536)).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, "MASTER_PORT=65536 is not in 1 to 65535"));
}

TEST(TcpStoreTest, ClientsOfAnotherProtocolAreIgnored) {
  const int port = FreePort();
  const std::vector<Report> reports = RunRanks(2, [&](int rank, Fault& fault) -> absl::Status {
    if (rank == 0) return CreateStore(StoreOptions(0, 2, port), fault);
    const SteadyTime deadline = SteadyTime::Now() + kNever;
    auto client = internal::Socket::Connect("127.0.0.1", port, deadline);
    while (!client.ok() && SteadyTime::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(5));
      client = internal::Socket::Connect("127.0.0.1", port, deadline);
    }
    if (!client.ok()) return client.status();
    const std::string request = "GET / HTTP/1.1\r\n\r\n";
    send(client->fd(), request.data(), request.size(), MSG_NOSIGNAL);
    if (client->ReceiveFrame(deadline).ok()) return absl::InternalError("it was answered");
    return CreateStore(StoreOptions(1, 2, port), fault);
  });
  for (const Report& report : reports) EXPECT_OK(report.status);
}

class FileStoreTest : public ::testing::Test {
 protected:
  FileStoreOptions Options(int rank, int size, absl::Duration timeout = kNever) {
    FileStoreOptions options;
    options.rank = rank;
    options.size = size;
    options.timeout = timeout;
    options.folder = absl::StrCat(std::getenv("TEST_TMPDIR"), "/",
                                  ::testing::UnitTest::GetInstance()->current_test_info()->name());
    return options;
  }
};

TEST_F(FileStoreTest, TwoProcessesWithOneRankAreAnErrorOnAllRanks) {
  const std::vector<Report> reports = RunRanks(4, [&](int process, Fault&) {
    return FileStore::Create(Options(process == 3 ? 2 : process, 4)).status();
  });
  for (const Report& report : reports) {
    EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kAlreadyExists,
                                        StartsWith("two processes have rank 2 in ")));
  }
}

TEST_F(FileStoreTest, WorldSizesThatDifferAreAnError) {
  const std::vector<Report> reports = RunRanks(
      2, [&](int rank, Fault&) { return FileStore::Create(Options(rank, 2 + rank)).status(); });
  EXPECT_THAT(reports[0].status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                          HasSubstr("rank 1 was started with 3 ranks, rank 0 "
                                                    "with 2")));
  EXPECT_FALSE(reports[1].status.ok());
}

TEST_F(FileStoreTest, RanksThatDoNotComeAreNamed) {
  EXPECT_THAT(
      FileStore::Create(Options(1, 3, absl::Milliseconds(50))).status(),
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               AllOf(StartsWith("ranks 0 and 2 did not join "), HasSubstr(Options(1, 3).folder))));
}

TEST_F(FileStoreTest, KeysAreSetOnceAndMayHoldAnything) {
  auto store = FileStore::Create(Options(0, 1)).value();
  const std::string value("\0/\n", 3);
  EXPECT_OK(store->Set("../a b/%", value, kNever));
  EXPECT_EQ(store->Get("../a b/%", absl::ZeroDuration()).value(), value);
  EXPECT_THAT(store->Set("../a b/%", "2", kNever), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(store->Get("b", absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("nobody has set key 'b'")));
  EXPECT_OK(store->Remove("../a b/%", kNever));
  EXPECT_OK(store->Remove("../a b/%", kNever));
  EXPECT_OK(store->Set("../a b/%", "2", kNever));
}

TEST_F(FileStoreTest, KeysMayBeLong) {
  auto store = FileStore::Create(Options(0, 1)).value();
  const std::string long_key(5000, ',');
  EXPECT_OK(store->Set(long_key + "a", "1", kNever));
  EXPECT_OK(store->Set(long_key + "b", "2", kNever));
  EXPECT_EQ(store->Get(long_key + "a", absl::ZeroDuration()).value(), "1");
  EXPECT_EQ(store->Get(long_key + "b", absl::ZeroDuration()).value(), "2");
}

TEST_F(FileStoreTest, AFolderThatEverybodyWritesToIsRefused) {
  const FileStoreOptions options = Options(0, 1);
  ASSERT_EQ(mkdir(options.folder.c_str(), 0700), 0);
  ASSERT_EQ(chmod(options.folder.c_str(), 01777), 0);
  EXPECT_THAT(FileStore::Create(options).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, StartsWith(options.folder)));
}

// What cannot be read is no rank that is missing.
TEST_F(FileStoreTest, WhatIsNoValueIsNamedAtOnce) {
  auto store = FileStore::Create(Options(0, 1)).value();
  const std::string folder = Options(0, 1).folder;
  ASSERT_EQ(mkfifo((folder + "/pipe").c_str(), 0600), 0);
  EXPECT_THAT(store->Get("pipe", kNever).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("/pipe is a pipe")));
  ASSERT_OK(store->Set("large", "", kNever));
  ASSERT_EQ(truncate((folder + "/large").c_str(), off_t{1} << 43), 0);
  EXPECT_THAT(store->Get("large", kNever).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("/large has ")));
}

TEST(ConnectTest, ARankThatJoinsTheStoreButNotTheGroupIsNamed) {
  const int port = FreePort();
  const std::vector<Report> reports = RunRanks(3, [&](int rank, Fault& fault) {
    auto store = TcpStore::Create(StoreOptions(rank, 3, port));
    fault.AwaitAll();
    if (!store.ok()) return store.status();
    GlooOptions options;
    options.rank = rank;
    options.size = 3;
    options.store = *std::move(store);
    options.connect_timeout = kDeadline;
    const absl::Status status =
        rank == 1 ? absl::OkStatus() : CreateGlooTransport(options).status();
    fault.AwaitAll();
    return status;
  });
  for (const int rank : {0, 2}) {
    EXPECT_THAT(reports[rank].status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                               absl::StrCat("rank 1 did not join 'world' within ",
                                                            absl::FormatDuration(kDeadline), "")));
  }
}

TEST(ConnectTest, AnInterfaceThatDoesNotExistIsNamed) {
  const int port = FreePort();
  const std::vector<Report> reports = RunRanks(2, [&](int rank, Fault&) {
    auto store = TcpStore::Create(StoreOptions(rank, 2, port));
    if (!store.ok()) return store.status();
    GlooOptions options;
    options.rank = rank;
    options.size = 2;
    options.store = *std::move(store);
    options.interface = "nosuch0";
    return CreateGlooTransport(options).status();
  });
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(reports[rank].status,
                StatusIs(absl::StatusCode::kUnavailable,
                         StartsWith(absl::StrCat("rank ", rank,
                                                 " cannot listen on interface 'nosuch0': "))));
  }
}

}  // namespace
}  // namespace brigade::collectives::testing
