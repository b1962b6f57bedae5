#include "brigade/collectives/engines/threads/thread_group.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/collectives/engines/threads/group_state.h"
#include "brigade/device/status_macros.h"

namespace brigade::collectives {
namespace {

class ThreadEngine final : public Engine {
 public:
  ThreadEngine(std::shared_ptr<GroupState> state, int rank)
      : state_(std::move(state)), rank_(rank) {}
  ~ThreadEngine() override { state_->Leave(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return state_->options().size; }
  Workspace WorkspaceFor(const CollectiveSignature& signature) const override {
    return WorkspaceOf(signature, rank_, size(), EngineKind::kThreads);
  }
  absl::Status Reserve(const CollectiveSignature& signature) override {
    return state_->Reserve(rank_, signature);
  }
  absl::Status Run(const Collective& collective, device::Stream& stream) override {
    return state_->Run(rank_, collective, stream);
  }
  absl::Status AllGatherHost(const Fingerprint& fingerprint, absl::Span<const int64_t> values,
                             absl::Span<int64_t> all) override {
    return state_->AllGatherHost(rank_, fingerprint, values, all);
  }
  absl::StatusOr<std::unique_ptr<Engine>> CreateSubgroup(absl::Span<const int> members,
                                                         absl::Span<const int> /*lost*/,
                                                         uint64_t generation) override {
    return Join(HostCollective::kShrink, members, generation);
  }
  absl::StatusOr<std::unique_ptr<Engine>> Split(absl::Span<const int> members,
                                                uint64_t generation) override {
    if (members.empty()) return std::unique_ptr<Engine>();
    return Join(HostCollective::kSplit, members, generation);
  }
  void Abort(const absl::Status& reason) override { state_->Fail(reason); }
  absl::Status status() const override { return state_->status(); }
  int64_t sent_bytes(int rank) const override { return state_->sent_bytes(rank_, rank); }

 private:
  absl::StatusOr<std::unique_ptr<Engine>> Join(HostCollective reason, absl::Span<const int> members,
                                               uint64_t generation) {
    const auto self = std::find(members.begin(), members.end(), rank_);
    const int rank = static_cast<int>(self - members.begin());
    std::shared_ptr<GroupState> subgroup = state_->JoinSubgroup(members, generation);
    BRIGADE_RETURN_IF_ERROR(subgroup->Join(rank, state_->context(rank_)));
    auto engine = std::make_unique<ThreadEngine>(std::move(subgroup), rank);
    // Nobody goes on before all are there.
    const absl::Status met = engine->AllGatherHost(HostFingerprint(reason, 0, 0), {}, {});
    if (met.ok()) return engine;
    return absl::Status(met.code(),
                        absl::StrCat("a new group of the ranks ", absl::StrJoin(members, ", "),
                                     ", which it numbers from 0: ", met.message()));
  }

  const std::shared_ptr<GroupState> state_;
  const int rank_;
};

}  // namespace

ThreadGroup::ThreadGroup(std::shared_ptr<GroupState> state) : state_(std::move(state)) {}
ThreadGroup::~ThreadGroup() = default;

absl::StatusOr<std::shared_ptr<ThreadGroup>> ThreadGroup::Create(const Options& options) {
  if (options.size < 1 || options.size > kernels::kMaxReduceArrays) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a group of threads has 1 to ", kernels::kMaxReduceArrays, " ranks, not ", options.size));
  }
  if (std::min(options.timeout, options.stream_timeout) <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("timeout is ", absl::FormatDuration(options.timeout), ", stream_timeout ",
                     absl::FormatDuration(options.stream_timeout), "; both must be positive"));
  }
  return std::shared_ptr<ThreadGroup>(new ThreadGroup(std::make_shared<GroupState>(options)));
}

int ThreadGroup::size() const { return state_->options().size; }

absl::StatusOr<std::unique_ptr<Engine>> ThreadGroup::Join(int rank, device::Context& context) {
  BRIGADE_RETURN_IF_ERROR(state_->Join(rank, context));
  return std::make_unique<ThreadEngine>(state_, rank);
}

void ThreadGroup::Abort(const absl::Status& reason) {
  state_->Fail(reason.ok() ? absl::CancelledError("aborted") : reason);
}

}  // namespace brigade::collectives
