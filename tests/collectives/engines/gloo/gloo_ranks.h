#ifndef BRIGADE_TESTS_COLLECTIVES_ENGINES_GLOO_GLOO_RANKS_H_
#define BRIGADE_TESTS_COLLECTIVES_ENGINES_GLOO_GLOO_RANKS_H_

// Communicators over Gloo: of threads (OnRanks with GlooEngines) and of processes (OnProcesses).

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "brigade/collectives/engines/gloo/gloo_engine.h"
#include "brigade/device/status_macros.h"
#include "brigade/tests/collectives/engines/gloo/processes.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {

// How a rank finds the others.
struct Rendezvous {
  int size = 2;
  int port = 0;
  absl::Duration timeout = kNever;
  std::string master_addr = "127.0.0.1";
  std::string interface = "", host = "";  // as in GlooOptions
};

inline absl::StatusOr<std::unique_ptr<Engine>> MeetOverGloo(int rank, const Rendezvous& meeting,
                                                            device::Context& context) {
  TcpStoreOptions store_options = StoreOptions(rank, meeting.size, meeting.port);
  store_options.master_addr = meeting.master_addr;
  auto store = TcpStore::Create(store_options);
  if (!store.ok()) return store.status();
  GlooOptions options;
  options.rank = rank;
  options.size = meeting.size;
  options.store = *std::move(store);
  options.connect_timeout = kNever;
  options.timeout = meeting.timeout;
  options.interface = meeting.interface;
  options.host = meeting.host;
  return CreateGlooEngine(options, context);
}

// For OnRanks.
inline CreateEngineFn GlooEngines(const RanksOptions& options) {
  const Rendezvous meeting = {.size = options.size, .port = FreePort(), .timeout = options.timeout};
  return [meeting](int rank, device::Context& context) {
    return MeetOverGloo(rank, meeting, context);
  };
}

// What a rank's process works on. Made before its communicator, because work may be outstanding
// when that goes.
struct Arrays {
  std::vector<float> input, output;
};

// Makes this process rank `rank` and runs body.
inline absl::Status AsRank(int rank, const Rendezvous& meeting, const CommunicatorOptions& options,
                           const std::function<absl::Status(Rank& self, Arrays& arrays)>& body) {
  Arrays arrays;
  Rank self = {rank, meeting.size, CreateRankContext(rank, {}), nullptr, nullptr};
  auto stream = self.context->CreateStream("compute");
  if (!stream.ok()) return stream.status();
  self.stream = *std::move(stream);
  auto engine = MeetOverGloo(rank, meeting, *self.context);
  if (!engine.ok()) return engine.status();
  auto communicator = Communicator::Create(*std::move(engine), *self.context, options);
  if (!communicator.ok()) return communicator.status();
  self.communicator = *std::move(communicator);
  return body(self, arrays);
}

// RunRanks, with a communicator for each process. No body begins before all ranks are connected.
using RankBody = std::function<absl::Status(Rank& self, Arrays& arrays, Fault& fault)>;
inline std::vector<Report> OnProcesses(int size, absl::Duration timeout, const RankBody& body) {
  const Rendezvous meeting = {.size = size, .port = FreePort(), .timeout = timeout};
  return RunRanks(size, [&](int rank, Fault& fault) {
    return AsRank(rank, meeting, {}, [&](Rank& self, Arrays& arrays) {
      fault.AwaitAll();
      const absl::Status status = body(self, arrays, fault);
      fault.End();  // what the store still waits for is not part of it
      return status;
    });
  });
}

// Adds up `count` ones of each rank. The error is the call's or the stream's.
inline absl::Status AddOnes(Communicator& group, Rank& self, Arrays& arrays, int64_t count,
                            Algorithm algorithm = Algorithm::kDirect) {
  arrays.input.assign(static_cast<size_t>(count), 1.0f);
  arrays.output.assign(static_cast<size_t>(count), 0.0f);
  BRIGADE_RETURN_IF_ERROR(group.AllReduce(arrays.input.data(), arrays.output.data(), count,
                                          kFloat32, By(algorithm), *self.stream));
  BRIGADE_RETURN_IF_ERROR(self.stream->Synchronize());
  for (const float sum : arrays.output) {
    if (sum == static_cast<float>(group.size())) continue;
    return absl::InternalError(absl::StrCat("a sum of ", group.size(), " ones is ", sum));
  }
  return absl::OkStatus();
}

inline absl::Status Wrong(const std::string& what) { return absl::InternalError(what); }

// The error that ended the communicator, which is what the call or the stream said.
inline absl::Status Ended(Rank& self, const absl::Status& said) {
  const absl::Status status = self.communicator->status();
  if (!status.ok() && said.code() == status.code() &&
      absl::EndsWith(said.message(), status.message())) {
    return status;
  }
  return Wrong(absl::StrCat("said ", said.ToString(), ", but ended by ", status.ToString()));
}

inline absl::Status AddOnesUntilItEnds(Rank& self, Arrays& arrays, int64_t count,
                                       Algorithm algorithm = Algorithm::kDirect) {
  while (true) {
    const absl::Status status = AddOnes(*self.communicator, self, arrays, count, algorithm);
    if (!status.ok()) return Ended(self, status);
  }
}

// All ranks but `except` report that. -1: no rank is excepted.
inline void ExpectReports(const std::vector<Report>& reports, int except,
                          const ::testing::Matcher<const absl::Status&>& status) {
  double last = 0;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    if (static_cast<int>(rank) == except) continue;
    EXPECT_THAT(reports[rank].status, status) << "rank " << rank;
    last = std::max(last, reports[rank].seconds);
  }
  std::printf("last report %.3f s after the fault: %s\n", last,
              reports[except == 0 ? 1 : 0].status.ToString().c_str());
}

inline void ExpectAllOk(const std::vector<Report>& reports, int except = -1) {
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    if (static_cast<int>(rank) == except) continue;
    EXPECT_OK(reports[rank].status) << "rank " << rank;
  }
}

}  // namespace brigade::collectives::testing

#endif  // BRIGADE_TESTS_COLLECTIVES_ENGINES_GLOO_GLOO_RANKS_H_
