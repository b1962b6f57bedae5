#include "brigade/benchmarks/collectives/contestants.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/gloo/gloo_engine.h"
#include "brigade/collectives/gloo/internal/socket.h"
#include "brigade/collectives/gloo/tcp_store.h"
#include "brigade/collectives/hierarchical/hierarchical.h"
#include "brigade/collectives/threads/thread_group.h"
#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"
#include "gloo/allreduce.h"
#include "gloo/math.h"
#include "gloo/rendezvous/context.h"
#include "gloo/rendezvous/hash_store.h"
#include "gloo/transport/tcp/device.h"

namespace brigade::benchmarks {
namespace {

using collectives::CallKind;
using Clock = std::chrono::steady_clock;

// A port that was free a moment ago.
absl::StatusOr<int> FreePort() {
  BRIGADE_ASSIGN_OR_RETURN(listener, collectives::internal::Socket::Listen(0));
  return listener.local_port();
}

// Ranks that are threads of this process and work on its arrays.
class ThreadContestant : public Contestant {
 public:
  absl::StatusOr<Outcome> Run(const Turn& turn, Arrays& arrays) final {
    if (turn.check || turn.in_place) arrays.Fill(turn.whole);
    BRIGADE_ASSIGN_OR_RETURN(seconds, TimeOnRanks(arrays.ranks(), [&](int rank) {
                               return RunRank(rank, arrays.MakeRound(rank, turn));
                             }));
    return Outcome{seconds, turn.check ? arrays.CountWrong(turn) : 0};
  }

 private:
  virtual absl::Status RunRank(int rank, const Round& round) = 0;
};

class Brigade final : public ThreadContestant {
  struct Rank {
    std::unique_ptr<device::Context> context;
    std::unique_ptr<device::Stream> stream;
    std::unique_ptr<collectives::Communicator> communicator;
    std::unique_ptr<collectives::Hierarchical> two_levels;
  };

 public:
  // `algorithm`: null for two levels.
  Brigade(std::string name, const collectives::Algorithm* algorithm, int ranks)
      : name_(std::move(name)), algorithm_(algorithm), ranks_(static_cast<size_t>(ranks)) {}

  // Ends in the order that peers expect: all communicators before any context.
  ~Brigade() override {
    for (Rank& rank : ranks_) rank.two_levels.reset();
    for (Rank& rank : ranks_) rank.communicator.reset();
  }

  absl::Status Start(const std::string& engine) {
    BRIGADE_ASSIGN_OR_RETURN(group, collectives::ThreadGroup::Create({.size = size()}));
    BRIGADE_ASSIGN_OR_RETURN(port, FreePort());
    return OnRanks(size(), [&](int index) -> absl::Status {
      Rank& rank = ranks_[static_cast<size_t>(index)];
      device::ContextOptions context_options;
      const int cores = static_cast<int>(std::thread::hardware_concurrency());
      context_options.compute_threads = std::max(1, cores / size());
      context_options.checks = false;
      BRIGADE_ASSIGN_OR_RETURN(context, device::Context::Create(context_options));
      rank.context = std::move(context);
      BRIGADE_ASSIGN_OR_RETURN(stream, rank.context->NewStream("collectives"));
      rank.stream = std::move(stream);
      std::unique_ptr<collectives::Engine> made;
      if (engine == "threads") {
        BRIGADE_ASSIGN_OR_RETURN(joined, group->Join(index, *rank.context));
        made = std::move(joined);
      } else {
        collectives::TcpStoreOptions store_options;
        store_options.rank = index;
        store_options.size = size();
        store_options.master_port = port;
        BRIGADE_ASSIGN_OR_RETURN(store, collectives::TcpStore::Create(store_options));
        collectives::GlooOptions gloo;
        gloo.rank = index;
        gloo.size = size();
        gloo.store = std::move(store);
        BRIGADE_ASSIGN_OR_RETURN(joined, collectives::NewGlooEngine(gloo, *rank.context));
        made = std::move(joined);
      }
      BRIGADE_ASSIGN_OR_RETURN(communicator,
                               collectives::Communicator::Create(std::move(made), *rank.context));
      rank.communicator = std::move(communicator);
      if (algorithm_ != nullptr) return absl::OkStatus();
      BRIGADE_ASSIGN_OR_RETURN(two_levels, collectives::Hierarchical::Create(
                                               *rank.communicator, index / 2, {}, *rank.context));
      rank.two_levels = std::move(two_levels);
      return absl::OkStatus();
    });
  }

  const std::string& name() const override { return name_; }
  // Parts of two levels are in an order of their own.
  bool can(CallKind kind) const override {
    return algorithm_ != nullptr || kind == CallKind::kAllReduce;
  }

 private:
  int size() const { return static_cast<int>(ranks_.size()); }

  absl::Status RunRank(int index, const Round& round) override {
    Rank& rank = ranks_[static_cast<size_t>(index)];
    if (algorithm_ == nullptr) return RunRank(rank, *rank.two_levels, {}, round);
    return RunRank(rank, *rank.communicator, *algorithm_, round);
  }

  template <typename Group>
  absl::Status RunRank(Rank& rank, Group& group, collectives::Algorithm algorithm,
                       const Round& round) {
    const collectives::ReduceOptions sum = {.algorithm = algorithm};
    const collectives::MoveOptions move = {.algorithm = algorithm};
    for (int i = 0; i < round.times; ++i) {
      absl::Status status;
      if (round.kind == CallKind::kAllReduce) {
        status = group.AllReduce(round.input, round.output, round.count, sum, *rank.stream);
      } else if (round.kind == CallKind::kReduceScatter) {
        status = group.ReduceScatter(round.input, round.output, round.count, sum, *rank.stream);
      } else {
        status = group.AllGather(round.input, round.output, round.count, move, *rank.stream);
      }
      BRIGADE_RETURN_IF_ERROR(status);
    }
    return rank.stream->Synchronize();
  }

  const std::string name_;
  const collectives::Algorithm* const algorithm_;
  std::vector<Rank> ranks_;
};

class GlooRing final : public ThreadContestant {
 public:
  explicit GlooRing(int ranks) : contexts_(static_cast<size_t>(ranks)) {}

  absl::Status Start() {
    ::gloo::rendezvous::HashStore store;
    return OnRanks(static_cast<int>(contexts_.size()), [&](int rank) -> absl::Status {
      try {
        auto context =
            std::make_shared<::gloo::rendezvous::Context>(rank, static_cast<int>(contexts_.size()));
        ::gloo::transport::tcp::attr attributes("127.0.0.1");
        auto device = ::gloo::transport::tcp::CreateDevice(attributes);
        context->connectFullMesh(store, device);
        contexts_[static_cast<size_t>(rank)] = std::move(context);
        return absl::OkStatus();
      } catch (const std::exception& error) {
        return absl::UnavailableError(error.what());
      }
    });
  }

  const std::string& name() const override { return name_; }
  bool can(CallKind kind) const override { return kind == CallKind::kAllReduce; }

 private:
  absl::Status RunRank(int rank, const Round& round) override {
    try {
      for (int i = 0; i < round.times; ++i) {
        ::gloo::AllreduceOptions options(contexts_[static_cast<size_t>(rank)]);
        options.setAlgorithm(::gloo::AllreduceOptions::Algorithm::RING);
        const auto count = static_cast<size_t>(round.count);
        if (round.input != round.output) options.setInput(const_cast<float*>(round.input), count);
        options.setOutput(round.output, count);
        options.setReduceFunction(
            static_cast<void (*)(void*, const void*, const void*, size_t)>(&::gloo::sum<float>));
        ::gloo::allreduce(options);
      }
      return absl::OkStatus();
    } catch (const std::exception& error) {
      return absl::UnavailableError(error.what());
    }
  }

  const std::string name_ = "gloo::allreduce";
  std::vector<std::shared_ptr<::gloo::rendezvous::Context>> contexts_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Contestant>> NewBrigade(const std::string& engine,
                                                       const std::string& algorithm, int ranks) {
  const std::string name = absl::StrCat(engine, "/", algorithm);
  const auto* const known = std::find_if(
      std::begin(collectives::kAlgorithms), std::end(collectives::kAlgorithms),
      [&](collectives::Algorithm each) { return collectives::Name(each) == algorithm; });
  const bool is_known = known != std::end(collectives::kAlgorithms);
  if ((engine != "threads" && engine != "gloo") || (!is_known && algorithm != "hierarchical")) {
    return absl::InvalidArgumentError(absl::StrCat("unknown contestant ", name));
  }
  if (!is_known && ranks % 2 != 0) {
    return absl::NotFoundError(absl::StrCat("nodes of two ranks of ", ranks));
  }
  auto brigade = std::make_unique<Brigade>(name, is_known ? known : nullptr, ranks);
  BRIGADE_RETURN_IF_ERROR(brigade->Start(engine));
  return brigade;
}

absl::StatusOr<std::unique_ptr<Contestant>> NewGlooRing(int ranks) {
  auto ring = std::make_unique<GlooRing>(ranks);
  BRIGADE_RETURN_IF_ERROR(ring->Start());
  return ring;
}

absl::Status OnRanks(int ranks, const std::function<absl::Status(int rank)>& fn) {
  std::vector<absl::Status> results(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { results[static_cast<size_t>(rank)] = fn(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) BRIGADE_RETURN_IF_ERROR(result);
  return absl::OkStatus();
}

absl::StatusOr<double> TimeOnRanks(int ranks, const std::function<absl::Status(int rank)>& fn) {
  std::barrier<> begin(ranks);
  std::vector<Clock::time_point> from(ranks), to(ranks);
  BRIGADE_RETURN_IF_ERROR(OnRanks(ranks, [&](int rank) {
    begin.arrive_and_wait();
    from[rank] = Clock::now();
    absl::Status status = fn(rank);
    to[rank] = Clock::now();
    return status;
  }));
  const auto first = *std::min_element(from.begin(), from.end());
  const auto last = *std::max_element(to.begin(), to.end());
  return std::chrono::duration<double>(last - first).count();
}

}  // namespace brigade::benchmarks
