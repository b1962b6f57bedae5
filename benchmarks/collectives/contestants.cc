#include "brigade/benchmarks/collectives/contestants.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/collectives/bootstrap/tcp_store.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/compressed/compressed_reduction.h"
#include "brigade/collectives/engines/gloo/gloo_engine.h"
#include "brigade/collectives/engines/threads/thread_group.h"
#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"
#include "brigade/tests/collectives/engines/gloo/processes.h"
#include "gloo/allreduce.h"
#include "gloo/math.h"
#include "gloo/rendezvous/context.h"
#include "gloo/rendezvous/hash_store.h"
#include "gloo/transport/tcp/device.h"

namespace brigade::benchmarks {
namespace {

using collectives::CollectiveKind;
using precision::DType;
using Clock = std::chrono::steady_clock;

// Ranks that are threads of this process and work on its arrays.
class ThreadContestant : public Contestant {
 public:
  absl::StatusOr<Outcome> Run(const Turn& turn, Arrays& arrays) final {
    if (turn.check || turn.in_place) arrays.Fill(turn.whole, turn.dtype);
    BRIGADE_ASSIGN_OR_RETURN(auto seconds, TimeOnRanks(arrays.ranks(), [&](int rank) {
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
    std::unique_ptr<collectives::CompressedReduction> compressed;
  };

 public:
  enum class Way { kAlgorithm, kFp16Wire };

  Brigade(std::string name, Way way, collectives::Algorithm algorithm, int ranks, int64_t elements)
      : name_(std::move(name)),
        way_(way),
        algorithm_(algorithm),
        elements_(elements),
        ranks_(static_cast<size_t>(ranks)) {}

  // Ends in the order that peers expect: all communicators before any context.
  ~Brigade() override {
    for (Rank& rank : ranks_) rank.communicator.reset();
  }

  absl::Status Start(const std::string& engine) {
    BRIGADE_ASSIGN_OR_RETURN(auto group, collectives::ThreadGroup::Create({.size = size()}));
    const int port = collectives::testing::FreePort();
    return OnRanks(size(), [&](int index) -> absl::Status {
      Rank& rank = ranks_[static_cast<size_t>(index)];
      device::ContextOptions context_options;
      const int cores = static_cast<int>(std::thread::hardware_concurrency());
      context_options.compute_threads = std::max(1, cores / size());
      context_options.checks = false;
      BRIGADE_ASSIGN_OR_RETURN(auto context, device::Context::Create(context_options));
      rank.context = std::move(context);
      BRIGADE_ASSIGN_OR_RETURN(rank.stream, rank.context->CreateStream("collectives"));
      std::unique_ptr<collectives::Engine> made;
      if (engine == "threads") {
        BRIGADE_ASSIGN_OR_RETURN(auto joined, group->Join(index, *rank.context));
        made = std::move(joined);
      } else {
        collectives::TcpStoreOptions store_options;
        store_options.rank = index;
        store_options.size = size();
        store_options.master_port = port;
        BRIGADE_ASSIGN_OR_RETURN(auto store, collectives::TcpStore::Create(store_options));
        collectives::GlooOptions gloo;
        gloo.rank = index;
        gloo.size = size();
        gloo.store = std::move(store);
        BRIGADE_ASSIGN_OR_RETURN(made, collectives::CreateGlooEngine(gloo, *rank.context));
      }
      BRIGADE_ASSIGN_OR_RETURN(auto communicator, collectives::Communicator::Create(
                                                      std::move(made), *rank.context, Pairs()));
      rank.communicator = std::move(communicator);
      if (way_ == Way::kFp16Wire) {
        BRIGADE_ASSIGN_OR_RETURN(rank.compressed,
                                 collectives::CompressedReduction::Create(
                                     *rank.communicator, *rank.context, 2 * elements_));
      }
      return absl::OkStatus();
    });
  }

  const std::string& name() const override { return name_; }
  bool can(CollectiveKind kind, DType dtype) const override {
    if (way_ == Way::kFp16Wire && dtype != DType::kFloat32) return false;
    const bool all = way_ == Way::kAlgorithm && !collectives::HasAllReducesAlone(algorithm_);
    return all || kind == CollectiveKind::kAllReduce;
  }

 private:
  int size() const { return static_cast<int>(ranks_.size()); }

  // Nodes of two ranks, if the ranks are even; links that are alike.
  collectives::CommunicatorOptions Pairs() const {
    collectives::CommunicatorOptions options;
    if (size() % 2 != 0) return options;
    collectives::Topology& topology = options.topology.emplace();
    topology.ranks_of_node = collectives::RanksOfNodes(size(), 2);
    topology.inside = topology.between = {1e-6, 1e9};
    return options;
  }

  absl::Status RunRank(int index, const Round& round) override {
    Rank& rank = ranks_[static_cast<size_t>(index)];
    for (int i = 0; i < round.times; ++i) BRIGADE_RETURN_IF_ERROR(RunOnce(rank, round));
    return rank.stream->Synchronize();
  }

  absl::Status RunOnce(Rank& rank, const Round& round) {
    device::Stream& stream = *rank.stream;
    if (way_ == Way::kFp16Wire) {
      return rank.compressed->AllReduce(static_cast<const float*>(round.input),
                                        static_cast<float*>(round.output), round.count, {}, stream);
    }
    collectives::Communicator& group = *rank.communicator;
    const auto once = collectives::Reduction::kRoundedOnce;
    const auto reduction =
        collectives::Exists(once, algorithm_) ? once : collectives::Reduction::kRoundedPerHop;
    const collectives::ReduceOptions sum = {.reduction = reduction, .algorithm = algorithm_};
    if (round.kind == CollectiveKind::kAllReduce) {
      return group.AllReduce(round.input, round.output, round.count, round.dtype, sum, stream);
    }
    if (round.kind == CollectiveKind::kReduceScatter) {
      return group.ReduceScatter(round.input, round.output, round.count, round.dtype, sum, stream);
    }
    return group.AllGather(round.input, round.output, round.count, round.dtype, {algorithm_},
                           stream);
  }

  const std::string name_;
  const Way way_;
  const collectives::Algorithm algorithm_;
  const int64_t elements_;
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
  bool can(CollectiveKind kind, DType dtype) const override {
    return kind == CollectiveKind::kAllReduce && dtype == DType::kFloat32;
  }

 private:
  absl::Status RunRank(int rank, const Round& round) override {
    try {
      for (int i = 0; i < round.times; ++i) {
        ::gloo::AllreduceOptions options(contexts_[static_cast<size_t>(rank)]);
        options.setAlgorithm(::gloo::AllreduceOptions::Algorithm::RING);
        const auto count = static_cast<size_t>(round.count);
        float* const output = static_cast<float*>(round.output);
        if (round.input != output) {
          options.setInput(static_cast<float*>(const_cast<void*>(round.input)), count);
        }
        options.setOutput(output, count);
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

absl::StatusOr<std::unique_ptr<Contestant>> CreateBrigade(const std::string& engine,
                                                          const std::string& algorithm, int ranks,
                                                          int64_t elements) {
  const std::string name = absl::StrCat(engine, "/", algorithm);
  using collectives::Algorithm;
  constexpr Algorithm kContestants[] = {Algorithm::kAuto,
                                        Algorithm::kDirect,
                                        Algorithm::kRing,
                                        Algorithm::kBidirectionalRing,
                                        Algorithm::kHalvingDoubling,
                                        Algorithm::kHierarchical,
                                        Algorithm::kDoubleTree,
                                        Algorithm::kParameterServer};
  const auto* const known =
      std::find_if(std::begin(kContestants), std::end(kContestants),
                   [&](Algorithm each) { return collectives::Name(each) == algorithm; });
  const bool is_known = known != std::end(kContestants);
  if ((engine != "threads" && engine != "gloo") || (!is_known && algorithm != "fp16_wire")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there is no contestant \"", name,
        "\"; there are gloo::allreduce, MPI_Allreduce, and threads/X and gloo/X with X one of "
        "fp16_wire, ",
        absl::StrJoin(kContestants, ", ", [](std::string* out, Algorithm each) {
          absl::StrAppend(out, collectives::Name(each));
        })));
  }
  if (algorithm == "hierarchical" && ranks % 2 != 0) {
    return absl::NotFoundError(absl::StrCat("nodes of two ranks of ", ranks));
  }
  using Way = Brigade::Way;
  const Way way = is_known ? Way::kAlgorithm : Way::kFp16Wire;
  auto brigade =
      std::make_unique<Brigade>(name, way, is_known ? *known : Algorithm::kDirect, ranks, elements);
  BRIGADE_RETURN_IF_ERROR(brigade->Start(engine));
  return brigade;
}

absl::StatusOr<std::unique_ptr<Contestant>> CreateGlooRing(int ranks) {
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
