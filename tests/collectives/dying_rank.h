#ifndef BRIGADE_TESTS_COLLECTIVES_DYING_RANK_H_
#define BRIGADE_TESTS_COLLECTIVES_DYING_RANK_H_

// A rank that dies in the middle of its calls, on any engine.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "brigade/collectives/engines/engine.h"
#include "brigade/device/status_macros.h"
#include "brigade/tests/collectives/ranks.h"

namespace brigade::collectives {

// One rank's calls on streams, of all groups that it is in. Everything from that rank's thread.
class DyingRank {
 public:
  explicit DyingRank(int rank) : rank_(rank) {}

  // The same engines, of which that rank's count.
  CreateEngineFn Watch(CreateEngineFn engines) {
    return [this, engines = std::move(engines)](
               int rank, device::Context& context) -> absl::StatusOr<std::unique_ptr<Engine>> {
      BRIGADE_ASSIGN_OR_RETURN(auto engine, engines(rank, context));
      if (rank != rank_) return engine;
      return std::make_unique<Counted>(std::move(engine), *this);
    };
  }

  // The calls so far.
  int calls() const { return calls_; }

  // The call behind so many more ends all groups of the rank, when those before it are over.
  void DieBehind(int calls) { last_ = calls_ + calls; }

 private:
  class Counted final : public Engine {
   public:
    Counted(std::unique_ptr<Engine> engine, DyingRank& self)
        : engine_(std::move(engine)), self_(self) {
      self_.engines_.push_back(engine_.get());
    }
    ~Counted() override { std::erase(self_.engines_, engine_.get()); }

    int rank() const override { return engine_->rank(); }
    int size() const override { return engine_->size(); }
    bool HasNative(const CollectiveSignature& signature) const override {
      return engine_->HasNative(signature);
    }
    Workspace WorkspaceFor(const CollectiveSignature& signature) const override {
      return engine_->WorkspaceFor(signature);
    }
    absl::Status Reserve(const CollectiveSignature& signature) override {
      return engine_->Reserve(signature);
    }
    absl::StatusOr<Registration> Register(void* data, int64_t bytes) override {
      return engine_->Register(data, bytes);
    }
    absl::Status Run(const Collective& collective, device::Stream& stream) override {
      if (self_.calls_++ == self_.last_) {
        stream.Synchronize().IgnoreError();
        self_.Die();
      }
      return engine_->Run(collective, stream);
    }
    absl::Status AllGatherHost(const Fingerprint& fingerprint, absl::Span<const int64_t> values,
                               absl::Span<int64_t> all) override {
      return engine_->AllGatherHost(fingerprint, values, all);
    }
    absl::StatusOr<std::unique_ptr<Engine>> CreateSubgroup(absl::Span<const int> members,
                                                           absl::Span<const int> lost,
                                                           uint64_t generation) override {
      return Watched(engine_->CreateSubgroup(members, lost, generation));
    }
    absl::StatusOr<std::unique_ptr<Engine>> Split(absl::Span<const int> members,
                                                  uint64_t generation) override {
      return Watched(engine_->Split(members, generation));
    }
    absl::StatusOr<std::unique_ptr<Engine>> CreateHostChannel(uint64_t generation) override {
      return Watched(engine_->CreateHostChannel(generation));
    }
    void Abort(const absl::Status& reason) override { engine_->Abort(reason); }
    absl::Status status() const override { return engine_->status(); }
    const int32_t* failure_flag() const override { return engine_->failure_flag(); }
    int64_t sent_bytes(int rank) const override { return engine_->sent_bytes(rank); }

   private:
    absl::StatusOr<std::unique_ptr<Engine>> Watched(
        absl::StatusOr<std::unique_ptr<Engine>> engine) {
      if (!engine.ok() || *engine == nullptr) return engine;
      return std::make_unique<Counted>(*std::move(engine), self_);
    }

    const std::unique_ptr<Engine> engine_;
    DyingRank& self_;
  };

  void Die() const {
    for (Engine* const engine : engines_) {
      engine->Abort(absl::CancelledError(absl::StrCat("rank ", rank_, " has died")));
    }
  }

  const int rank_;
  int calls_ = 0, last_ = -1;
  std::vector<Engine*> engines_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_TESTS_COLLECTIVES_DYING_RANK_H_
