#include "brigade/collectives/engines/transport/transport_engine.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "brigade/collectives/engines/transport/checked_transport.h"
#include "brigade/collectives/engines/transport/executor.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::collectives {
namespace {

// Between two looks at the group's status, by one who waits for this rank's own streams.
constexpr absl::Duration kLook = absl::Milliseconds(5);

std::vector<int> Others(const Transport& transport) {
  std::vector<int> others;
  for (int rank = 0; rank < transport.size(); ++rank) {
    if (rank != transport.rank()) others.push_back(rank);
  }
  return others;
}

// What outlives the engine while calls are in a queue.
class TransportEngineState {
 public:
  TransportEngineState(std::unique_ptr<Transport> transport, Regroup regroup,
                       std::shared_ptr<device::Context> context,
                       const TransportEngineOptions& options)
      : context(std::move(context)),
        transport(std::move(transport)),
        regroup(std::move(regroup)),
        options(options),
        others_(Others(*this->transport)),
        checked_(*this->transport, options.verify_messages),
        executor_(checked_, *this->context) {}

  // After an error the transport may still read and write what it was given: it goes first.
  ~TransportEngineState() { transport.reset(); }

  const std::shared_ptr<device::Context> context;
  std::unique_ptr<Transport> transport;
  const Regroup regroup;
  const TransportEngineOptions options;

  absl::Status Reserve(const CollectiveSignature& signature);
  absl::Status Run(const Collective& collective, device::ThreadPool& pool);
  absl::Status AllGatherHost(const Fingerprint& fingerprint, absl::Span<const int64_t> values,
                             absl::Span<int64_t> all);
  // From any thread, also while a call runs: executor.h.
  int64_t sent_bytes(int rank) const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return executor_.sent_bytes(rank);
  }

  void Enter() {
    device::MutexLock lock(queue_mutex_);
    ++queued_;
  }
  void Leave() {
    device::MutexLock lock(queue_mutex_);
    if (--queued_ == 0) empty_.SignalAll();
  }

 private:
  absl::Status AwaitQueue();
  absl::Status BeginCollective(const Fingerprint& mine) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  template <typename MemoryOf>
  absl::Status ExchangeWithAll(const Fingerprint& mine, const MemoryOf& memory_of, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status SendOrReceive(const Collective& collective) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // All ranks but this one, ascending.
  const std::vector<int> others_;

  // Held by the call that runs.
  device::Mutex mutex_;
  CheckedTransport checked_ ABSL_GUARDED_BY(mutex_);
  TransportExecutor executor_ ABSL_GUARDED_BY(mutex_);
  // [rank][i]; after an error the transport may still use it.
  std::vector<int64_t> exchanged_ ABSL_GUARDED_BY(mutex_);

  device::Mutex queue_mutex_;
  device::CondVar empty_;
  int queued_ ABSL_GUARDED_BY(queue_mutex_) = 0;
};

// Waits for the calls in a queue. Where their stream hangs, the other ranks' deadlines end the
// group, and with it this wait.
absl::Status TransportEngineState::AwaitQueue() {
  device::MutexLock lock(queue_mutex_);
  while (queued_ != 0) {
    BRIGADE_RETURN_IF_ERROR(transport->status());
    empty_.WaitWithTimeout(queue_mutex_, kLook);
  }
  return transport->status();
}

// Frees memory that is too small, which waits for the context's streams: not with mutex_ wanted by
// a call in one of them.
absl::Status TransportEngineState::Reserve(const CollectiveSignature& signature) {
  BRIGADE_RETURN_IF_ERROR(AwaitQueue());
  device::MutexLock lock(mutex_);
  return executor_.Reserve(signature);
}

absl::Status TransportEngineState::Run(const Collective& collective, device::ThreadPool& pool) {
  device::MutexLock lock(mutex_);
  BRIGADE_RETURN_IF_ERROR(transport->status());
  const Fingerprint mine = {collective.signature, collective.sequence};
  if (collective.signature.kind == CollectiveKind::kSend) {
    BRIGADE_RETURN_IF_ERROR(checked_.Begin(mine, collective.peer, collective.peer));
    return SendOrReceive(collective);
  }
  if (collective.signature.kind == CollectiveKind::kBarrier) {
    return ExchangeWithAll(
        mine, [](int) { return nullptr; }, 0);
  }
  BRIGADE_RETURN_IF_ERROR(BeginCollective(mine));
  return executor_.Run(collective, pool);
}

absl::Status TransportEngineState::BeginCollective(const Fingerprint& mine) {
  const int rank = transport->rank(), size = transport->size();
  return checked_.Begin(mine, (rank + 1) % size, (rank + size - 1) % size);
}

// Sends `bytes` at memory_of(own rank) to all other ranks, and receives as many of each rank at
// memory_of(rank).
template <typename MemoryOf>
absl::Status TransportEngineState::ExchangeWithAll(const Fingerprint& mine,
                                                   const MemoryOf& memory_of, int64_t bytes) {
  BRIGADE_RETURN_IF_ERROR(BeginCollective(mine));
  for (const int other : others_) {
    BRIGADE_RETURN_IF_ERROR(checked_.Expect(other, memory_of(other), bytes));
    BRIGADE_RETURN_IF_ERROR(checked_.Send(other, memory_of(transport->rank()), bytes));
  }
  for (const int other : others_) BRIGADE_RETURN_IF_ERROR(checked_.Await(other));
  return checked_.Flush();
}

absl::Status TransportEngineState::SendOrReceive(const Collective& collective) {
  const int64_t bytes = collective.signature.count * precision::SizeOf(collective.signature.dtype);
  if (transport->rank() == collective.signature.root) {
    executor_.CountSent(collective.peer, bytes);
    BRIGADE_RETURN_IF_ERROR(checked_.Send(collective.peer, collective.input, bytes));
  } else {
    BRIGADE_RETURN_IF_ERROR(checked_.Expect(collective.peer, collective.output, bytes));
    BRIGADE_RETURN_IF_ERROR(checked_.Await(collective.peer));
  }
  return checked_.Flush();
}

absl::Status TransportEngineState::AllGatherHost(const Fingerprint& fingerprint,
                                                 absl::Span<const int64_t> values,
                                                 absl::Span<int64_t> all) {
  // Calls still in a queue come first, on every rank.
  BRIGADE_RETURN_IF_ERROR(AwaitQueue());
  device::MutexLock lock(mutex_);
  const size_t each = values.size();
  const auto bytes = static_cast<int64_t>(each * sizeof(int64_t));
  exchanged_.resize(each * static_cast<size_t>(transport->size()));
  const auto values_of = [each, first = exchanged_.data()](int rank) {
    return first + each * static_cast<size_t>(rank);
  };
  std::copy(values.begin(), values.end(), values_of(transport->rank()));
  BRIGADE_RETURN_IF_ERROR(ExchangeWithAll(fingerprint, values_of, bytes));
  std::copy(exchanged_.begin(), exchanged_.end(), all.begin());
  return absl::OkStatus();
}

// A call in a stream's queue. Destroyed before it ran, because the stream has failed, it tells the
// others, and why: ranks that are in other groups hear of the first error by this.
class QueuedCollective {
 public:
  QueuedCollective(std::shared_ptr<TransportEngineState> state, const Collective& collective,
                   const device::Stream& stream)
      : state_(std::move(state)), collective_(collective), stream_(&stream) {
    state_->Enter();
  }
  QueuedCollective(QueuedCollective&&) = default;
  ~QueuedCollective() {
    if (state_ == nullptr) return;
    if (!ran_) {
      const absl::Status error = stream_->status();
      state_->transport->Abort(absl::Status(
          error.ok() ? absl::StatusCode::kAborted : error.code(),
          absl::StrCat("rank ", state_->transport->rank(), " cannot join ",
                       ToString(collective_.signature), ": its stream has failed before",
                       error.ok() ? "" : ": ", error.message())));
    }
    state_->Leave();
  }

  absl::Status operator()(device::ThreadPool& pool) {
    ran_ = true;
    return state_->Run(collective_, pool);
  }

 private:
  std::shared_ptr<TransportEngineState> state_;
  Collective collective_;
  const device::Stream* stream_;
  bool ran_ = false;
};

class TransportEngine final : public Engine {
 public:
  explicit TransportEngine(std::shared_ptr<TransportEngineState> state)
      : state_(std::move(state)) {}

  int rank() const override { return state_->transport->rank(); }
  int size() const override { return state_->transport->size(); }

  Workspace WorkspaceFor(const CollectiveSignature& signature) const override {
    return WorkspaceOf(signature, rank(), size(), EngineKind::kTransport);
  }
  absl::Status Reserve(const CollectiveSignature& signature) override {
    return state_->Reserve(signature);
  }
  absl::Status Run(const Collective& collective, device::Stream& stream) override {
    const int64_t bytes = precision::SizeOf(collective.signature.dtype);
    const int64_t read = InputElements(collective.signature, rank(), size()) * bytes;
    const int64_t written = OutputElements(collective.signature, rank(), size()) * bytes;
    return stream.Enqueue(
        {Name(collective.signature.kind),
         {device::Reads(collective.input, read), device::Writes(collective.output, written)}},
        QueuedCollective(state_, collective, stream));
  }

  absl::Status AllGatherHost(const Fingerprint& fingerprint, absl::Span<const int64_t> values,
                             absl::Span<int64_t> all) override {
    return state_->AllGatherHost(fingerprint, values, all);
  }

  absl::StatusOr<std::unique_ptr<Engine>> CreateSubgroup(absl::Span<const int> members,
                                                         absl::Span<const int> lost,
                                                         uint64_t generation) override {
    const std::string label = absl::StrCat(generation);
    BRIGADE_ASSIGN_OR_RETURN(auto transport, state_->regroup(members, lost, label));
    // The new group's ranks are this one's by other numbers: groups made of it are made here.
    Regroup regroup = [parent = state_->regroup, label,
                       names = std::vector<int>(members.begin(), members.end())](
                          absl::Span<const int> inner, absl::Span<const int> inner_lost,
                          const std::string& inner_label) {
      std::vector<int> outer, outer_lost;
      for (const int rank : inner) outer.push_back(names[static_cast<size_t>(rank)]);
      for (const int rank : inner_lost) outer_lost.push_back(names[static_cast<size_t>(rank)]);
      return parent(outer, outer_lost, absl::StrCat(label, ".", inner_label));
    };
    return CreateTransportEngine(std::move(transport), std::move(regroup), state_->context,
                                 state_->options);
  }

  void Abort(const absl::Status& reason) override { state_->transport->Abort(reason); }
  absl::Status status() const override { return state_->transport->status(); }
  int64_t sent_bytes(int rank) const override { return state_->sent_bytes(rank); }

 private:
  const std::shared_ptr<TransportEngineState> state_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> CreateTransportEngine(
    std::unique_ptr<Transport> transport, Regroup regroup, std::shared_ptr<device::Context> context,
    const TransportEngineOptions& options) {
  if (context->device().kind != device::DeviceKind::kCpu) {
    return absl::InvalidArgumentError(
        absl::StrCat("messages need a CPU context, not ", context->device().ToString()));
  }
  return std::make_unique<TransportEngine>(std::make_shared<TransportEngineState>(
      std::move(transport), std::move(regroup), std::move(context), options));
}

}  // namespace brigade::collectives
