#include "brigade/collectives/engines/nccl/nccl_engine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "brigade/collectives/algorithms/wire_elements.h"
#include "brigade/collectives/engines/nccl/communicator.h"
#include "brigade/collectives/engines/nccl/dispatcher.h"
#include "brigade/collectives/engines/nccl/in_flight_monitor.h"
#include "brigade/collectives/engines/nccl/status.h"
#include "brigade/collectives/engines/nccl/verifier.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/deadline.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/device/threads/periodic_thread.h"

#if BRIGADE_CUDA
#include "brigade/device/cuda/cuda_device_guard.h"
#include "brigade/device/cuda/cuda_status.h"
#include "brigade/kernels/launch_kernel.h"
#endif

namespace brigade::collectives {
namespace {

// Between two looks at what is in flight.
constexpr absl::Duration kInterval = absl::Milliseconds(5);

// NCCL takes the thread's current device for the communicator's.
#if BRIGADE_CUDA
class OnDevice {
 public:
  explicit OnDevice(device::Device device) {
    if (device.kind == device::DeviceKind::kCuda) guard_.emplace(device.ordinal);
  }

 private:
  std::optional<device::CudaDeviceGuard> guard_;
};
#else
class OnDevice {
 public:
  explicit OnDevice(device::Device) {}
};
#endif

// Before NCCL's kernels run, which wait for what this thread does next.
absl::Status LoadKernels([[maybe_unused]] device::Device device) {
#if BRIGADE_CUDA
  if (device.kind == device::DeviceKind::kCuda) {
    const OnDevice on_device(device);
    return device::CudaStatus(kernels::LoadKernels(), "loading the program's kernels");
  }
#endif
  return absl::OkStatus();
}

class Impl final : public Engine {
 public:
  Impl(const NcclOptions& options, std::unique_ptr<Engine> side, int rank, int size,
       device::Context& context)
      : options_(options),
        context_(context),
        rank_(rank),
        size_(size),
        side_(std::move(side)),
        comm_(options_.api, side_.get(), rank, options.timeout),
        pending_(context, rank, options.timeout),
        dispatcher_(options_.api, comm_, rank, size, context),
        sent_(static_cast<size_t>(size)) {}
  ~Impl() override;

  absl::Status Connect();
  absl::Status Adopt(NcclComm comm, bool lent);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Workspace WorkspaceFor(const CollectiveSignature& signature) const override {
    return WorkspaceOf(signature, rank_, size_, EngineKind::kNccl);
  }
  absl::Status Reserve(const CollectiveSignature& signature) override {
    return dispatcher_.Reserve(signature);
  }
  bool HasNative(const CollectiveSignature& signature) const override {
    return NcclDispatcher::HasNative(signature);
  }
  absl::Status Run(const Collective& collective, device::Stream& stream) override;
  absl::Status AllGatherHost(const Fingerprint& fingerprint, absl::Span<const int64_t> values,
                             absl::Span<int64_t> all) override;
  absl::StatusOr<std::unique_ptr<Engine>> CreateSubgroup(absl::Span<const int> members,
                                                         absl::Span<const int> lost,
                                                         uint64_t generation) override;
  absl::StatusOr<std::unique_ptr<Engine>> Split(absl::Span<const int> members,
                                                uint64_t generation) override;
  absl::StatusOr<std::unique_ptr<Engine>> CreateHostChannel(uint64_t generation) override {
    BRIGADE_RETURN_IF_ERROR(CheckSide(Name(HostCollective::kHostChannel)));
    return side_->CreateHostChannel(generation);
  }
  void Abort(const absl::Status& reason) override { static_cast<void>(comm_.Fail(reason)); }
  absl::Status status() const override { return comm_.status(); }
  const int32_t* failure_flag() const override { return comm_.failure_flag(); }
  int64_t sent_bytes(int rank) const override {
    return sent_[static_cast<size_t>(rank)].load(std::memory_order_relaxed);
  }
  absl::StatusOr<Registration> Register(void* data, int64_t bytes) override;

 private:
  absl::Status Start();
  void Look();
  bool IsCompared(const Fingerprint& call) ABSL_LOCKS_EXCLUDED(mutex_);
  void AwaitCalls();
  void Deregister(void* handle);
  absl::Status CheckSide(absl::string_view operation) const;
  void UseSide(bool uses) ABSL_LOCKS_EXCLUDED(mutex_);
  void Count(const Collective& collective);

  const NcclOptions options_;
  device::Context& context_;
  const int rank_;
  const int size_;
  const std::unique_ptr<Engine> side_;  // may be null
  NcclCommunicator comm_;
  InFlightMonitor pending_;
  NcclDispatcher dispatcher_;
  std::vector<std::atomic<int64_t>> sent_;
  // Of the last split: NCCL may write it from a thread of its own.
  NcclComm child_ = nullptr;

  device::Mutex mutex_;
  // This rank's host gathers values: the verifier must not begin to.
  bool uses_side_ ABSL_GUARDED_BY(mutex_) = false;
  // The last send that was given to the verifier.
  std::optional<Fingerprint> late_send_ ABSL_GUARDED_BY(mutex_);

  // Null: nothing is compared.
  std::unique_ptr<CollectiveVerifier> verifier_;
  std::unique_ptr<device::PeriodicThread> watchdog_;
};

Impl::~Impl() {
  AwaitCalls();
  watchdog_.reset();
  verifier_.reset();
  comm_.Close();
}

absl::Status Impl::Connect() {
  BRIGADE_RETURN_IF_ERROR(comm_.Start(context_));
  NcclUniqueId id = {};
  constexpr size_t kWords = sizeof(id) / sizeof(int64_t);
  std::array<int64_t, kWords> mine = {};
  std::vector<int64_t> all(kWords * static_cast<size_t>(size_));
  if (rank_ == 0) {
    BRIGADE_RETURN_IF_ERROR(comm_.Create([&](NcclComm*) -> NcclOutcome {
      return {options_.api.get_unique_id(&id), "ncclGetUniqueId"};
    }));
    std::memcpy(mine.data(), &id, sizeof(id));
  }
  const absl::Status told = side_->AllGatherHost(
      HostFingerprint(HostCollective::kAllGather, kWords, 0), mine, absl::MakeSpan(all));
  if (!told.ok()) return comm_.Fail(told);
  std::memcpy(&id, all.data(), sizeof(id));  // of rank 0
  const OnDevice on_device(context_.device());
  BRIGADE_RETURN_IF_ERROR(comm_.Create([&](NcclComm* comm) -> NcclOutcome {
    NcclConfig config;
    return {options_.api.comm_init_rank_config(comm, size_, id, rank_, &config),
            "ncclCommInitRankConfig"};
  }));
  return Start();
}

absl::Status Impl::Adopt(NcclComm comm, bool lent) {
  BRIGADE_RETURN_IF_ERROR(comm_.Start(context_));
  comm_.Adopt(comm, lent);
  // It may still be on its way.
  BRIGADE_RETURN_IF_ERROR(comm_.Do([&](NcclComm) -> NcclOutcome {
    return {NcclResult::kInProgress, lent ? "the borrowed communicator" : "ncclCommSplit"};
  }));
  return Start();
}

absl::Status Impl::Start() {
  BRIGADE_RETURN_IF_ERROR(LoadKernels(context_.device()));
  BRIGADE_RETURN_IF_ERROR(dispatcher_.Start());
  if (options_.compare_calls && side_ != nullptr && size_ > 1) {
    verifier_ = std::make_unique<CollectiveVerifier>(
        *side_, [this](const absl::Status& error) { static_cast<void>(comm_.Fail(error)); });
  }
  watchdog_ = std::make_unique<device::PeriodicThread>(kInterval, [this] { Look(); });
  return absl::OkStatus();
}

void Impl::Look() {
  comm_.Look();
  // The side channel names a rank that does not come, which this rank's own deadline cannot.
  const absl::Status pending =
      pending_.Look([this](const Fingerprint& call) { return IsCompared(call); });
  if (!pending.ok()) static_cast<void>(comm_.Fail(pending));
}

// A send concerns two ranks only, so it is compared when its time is over: then what it has met is
// named. Not before: a comparison, once begun, waits for all ranks, and cannot be taken back when
// the send ends well.
bool Impl::IsCompared(const Fingerprint& call) {
  if (verifier_ == nullptr) return false;
  if (call.signature.kind == CollectiveKind::kSend) {
    const device::MutexLock lock(mutex_);
    if (!uses_side_ && late_send_ != call) {
      late_send_ = call;
      verifier_->AddLate(call);
    }
  }
  return verifier_->IsComparing(call);
}

void Impl::AwaitCalls() {
  while (comm_.status().ok() && !pending_.empty()) {
    Look();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

absl::Status Impl::Run(const Collective& collective, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(comm_.status());
  bool is_captured = false;
  absl::Status run = stream.status();
  if (run.ok()) run = pending_.Begin(stream);
  if (run.ok()) {
    run = dispatcher_.Run(collective, stream, is_captured, [&] {
      if (verifier_ == nullptr || collective.signature.kind == CollectiveKind::kSend) return;
      verifier_->Add({collective.signature, collective.sequence});
    });
  }
  if (run.ok() && !is_captured) run = pending_.End(collective, stream);
  if (!run.ok()) {
    BRIGADE_RETURN_IF_ERROR(comm_.status());
    return comm_.Fail(absl::Status(
        run.code(), absl::StrCat("rank ", rank_, " cannot join ", ToString(collective.signature),
                                 ": ", run.message())));
  }
  Count(collective);
  return absl::OkStatus();
}

void Impl::Count(const Collective& collective) {
  const int64_t bytes = precision::SizeOf(PartialType(collective.signature));
  const auto add = [&](int to, int64_t elements) {
    sent_[static_cast<size_t>(to)].fetch_add(elements * bytes, std::memory_order_relaxed);
  };
  if (collective.signature.kind != CollectiveKind::kSend) {
    ForEachSent(collective.signature, rank_, size_, add);
  } else if (rank_ == collective.signature.root) {
    add(collective.peer, collective.signature.count);
  }
}

absl::Status Impl::CheckSide(absl::string_view operation) const {
  if (side_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(operation, ": a borrowed communicator needs a side channel for this"));
}

absl::Status Impl::AllGatherHost(const Fingerprint& fingerprint, absl::Span<const int64_t> values,
                                 absl::Span<int64_t> all) {
  BRIGADE_RETURN_IF_ERROR(CheckSide(Name(fingerprint.on_host)));
  BRIGADE_RETURN_IF_ERROR(comm_.status());
  if (verifier_ != nullptr) {
    UseSide(true);
    verifier_->Add(fingerprint);
    verifier_->AwaitAll();
    BRIGADE_RETURN_IF_ERROR(comm_.status());
  }
  const absl::Status told = side_->AllGatherHost(fingerprint, values, all);
  UseSide(false);
  return told.ok() ? told : comm_.Fail(told);
}

void Impl::UseSide(bool uses) {
  const device::MutexLock lock(mutex_);
  uses_side_ = uses;
}

absl::StatusOr<std::unique_ptr<Engine>> Impl::CreateSubgroup(absl::Span<const int> members,
                                                             absl::Span<const int> lost,
                                                             uint64_t generation) {
  BRIGADE_RETURN_IF_ERROR(CheckSide(Name(HostCollective::kShrink)));
  BRIGADE_ASSIGN_OR_RETURN(auto side, side_->CreateSubgroup(members, lost, generation));
  return CreateNcclEngine(options_, std::move(side), context_);
}

absl::StatusOr<std::unique_ptr<Engine>> Impl::Split(absl::Span<const int> members,
                                                    uint64_t generation) {
  AwaitCalls();
  BRIGADE_ASSIGN_OR_RETURN(auto side, side_->Split(members, generation));
  const auto self = std::find(members.begin(), members.end(), rank_);
  const int color = members.empty() ? -1 : members.front();  // of no other group
  const int key = static_cast<int>(self - members.begin());
  child_ = nullptr;
  const OnDevice on_device(context_.device());
  const absl::Status split = comm_.Do([&](NcclComm comm) -> NcclOutcome {
    NcclConfig config;
    const NcclResult begun = options_.api.comm_split(comm, color, key, &child_, &config);
    // NCCL reports success for a split that is in progress; the child is there when the parent is
    // ready again.
    return {begun == NcclResult::kSuccess ? NcclResult::kInProgress : begun, "ncclCommSplit"};
  });
  if (!split.ok() && child_ != nullptr) options_.api.comm_abort(child_);
  BRIGADE_RETURN_IF_ERROR(split);
  if (members.empty()) return std::unique_ptr<Engine>();
  if (child_ == nullptr) {
    return comm_.Fail(absl::InternalError(
        absl::StrCat("rank ", rank_, ": ncclCommSplit succeeded without a communicator")));
  }
  auto engine = std::make_unique<Impl>(options_, std::move(side), key,
                                       static_cast<int>(members.size()), context_);
  BRIGADE_RETURN_IF_ERROR(engine->Adopt(child_, /*lent=*/false));
  return engine;
}

absl::StatusOr<Registration> Impl::Register(void* data, int64_t bytes) {
  void* handle = nullptr;
  const OnDevice on_device(context_.device());
  BRIGADE_RETURN_IF_ERROR(comm_.Do([&](NcclComm comm) -> NcclOutcome {
    return {options_.api.comm_register(comm, data, static_cast<size_t>(bytes), &handle),
            "ncclCommRegister"};
  }));
  return Registration([this, handle] { Deregister(handle); });
}

// An ncclComm_t that has been aborted has forgotten its registrations.
void Impl::Deregister(void* handle) {
  AwaitCalls();
  const OnDevice on_device(context_.device());
  static_cast<void>(comm_.Do([&](NcclComm comm) -> NcclOutcome {
    options_.api.comm_deregister(comm, handle);
    return {NcclResult::kSuccess, ""};
  }));
}

// A communicator that is still being made answers no question.
absl::Status AwaitMade(const NcclOptions& options, NcclComm comm, const Engine* side) {
  const auto deadline = device::DeadlineAfter(options.timeout);
  for (;;) {
    NcclResult result = NcclResult::kSuccess;
    const NcclResult asked = options.api.comm_get_async_error(comm, &result);
    BRIGADE_RETURN_IF_ERROR(NcclStatus(options.api, asked, "ncclCommGetAsyncError", comm));
    if (result != NcclResult::kInProgress) {
      return NcclStatus(options.api, result, "the borrowed communicator", comm);
    }
    if (side != nullptr) BRIGADE_RETURN_IF_ERROR(side->status());
    if (std::chrono::steady_clock::now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("the borrowed communicator is still being made after ",
                       absl::FormatDuration(options.timeout)));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

}  // namespace

absl::Status CheckNcclDevice(const NcclOptions& options, const device::Context& context) {
  if (options.api.supports(context.device().kind)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("NCCL needs a CUDA context, not ", context.device().ToString()));
}

absl::StatusOr<std::unique_ptr<Engine>> CreateNcclEngine(const NcclOptions& options,
                                                         std::unique_ptr<Engine> side,
                                                         device::Context& context) {
  BRIGADE_RETURN_IF_ERROR(CheckNcclDevice(options, context));
  const int rank = side->rank(), size = side->size();
  auto engine = std::make_unique<Impl>(options, std::move(side), rank, size, context);
  BRIGADE_RETURN_IF_ERROR(engine->Connect());
  return engine;
}

absl::StatusOr<std::unique_ptr<Engine>> BorrowNcclEngine(const NcclOptions& options,
                                                         ::ncclComm* comm,
                                                         std::unique_ptr<Engine> side,
                                                         device::Context& context) {
  BRIGADE_RETURN_IF_ERROR(CheckNcclDevice(options, context));
  BRIGADE_RETURN_IF_ERROR(AwaitMade(options, comm, side.get()));
  int rank = 0, size = 0;
  for (const NcclOutcome& asked :
       {NcclOutcome{options.api.comm_user_rank(comm, &rank), "ncclCommUserRank"},
        NcclOutcome{options.api.comm_count(comm, &size), "ncclCommCount"}}) {
    BRIGADE_RETURN_IF_ERROR(NcclStatus(options.api, asked.result, asked.function, comm));
  }
  if (side != nullptr && (side->rank() != rank || side->size() != size)) {
    return absl::InvalidArgumentError(absl::StrCat("the communicator's rank ", rank, " of ", size,
                                                   " is rank ", side->rank(), " of ", side->size(),
                                                   " of the side channel"));
  }
  auto engine = std::make_unique<Impl>(options, std::move(side), rank, size, context);
  BRIGADE_RETURN_IF_ERROR(engine->Adopt(comm, /*lent=*/true));
  return engine;
}

}  // namespace brigade::collectives
