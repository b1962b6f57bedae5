#include "brigade/benchmarks/zero/throttled_engine.h"

#include <chrono>
#include <cmath>
#include <thread>
#include <utility>
#include <vector>

#include "brigade/collectives/algorithms/program.h"
#include "brigade/device/status_macros.h"

namespace brigade::benchmarks {
namespace {

using collectives::Engine;

class ThrottledEngine final : public Engine {
 public:
  ThrottledEngine(std::unique_ptr<Engine> engine, double bytes_per_second)
      : engine_(std::move(engine)),
        bytes_per_second_(bytes_per_second),
        elements_(static_cast<size_t>(engine_->size())) {}

  int rank() const override { return engine_->rank(); }
  int size() const override { return engine_->size(); }

  bool HasNative(const collectives::CollectiveSignature& signature) const override {
    return engine_->HasNative(signature);
  }
  collectives::Workspace WorkspaceFor(
      const collectives::CollectiveSignature& signature) const override {
    return engine_->WorkspaceFor(signature);
  }
  absl::Status Reserve(const collectives::CollectiveSignature& signature) override {
    return engine_->Reserve(signature);
  }
  absl::StatusOr<collectives::Registration> Register(void* data, int64_t bytes) override {
    return engine_->Register(data, bytes);
  }
  absl::Status Run(const collectives::Collective& call, device::Stream& stream) override {
    BRIGADE_RETURN_IF_ERROR(engine_->Run(call, stream));
    if (std::isinf(bytes_per_second_)) return absl::OkStatus();
    std::fill(elements_.begin(), elements_.end(), 0);
    collectives::CountWireElements(call.signature, rank(), absl::MakeSpan(elements_));
    int64_t sent = 0;
    for (const int64_t elements : elements_) sent += elements;
    const auto bytes = static_cast<double>(sent * precision::SizeOf(PartialType(call.signature)));
    const std::chrono::duration<double> time(bytes / bytes_per_second_);
    return stream.Enqueue({"link", {}}, [time](device::ThreadPool&) {
      std::this_thread::sleep_for(time);
      return absl::OkStatus();
    });
  }

  absl::Status AllGatherHost(const collectives::Fingerprint& fingerprint,
                             absl::Span<const int64_t> values, absl::Span<int64_t> all) override {
    return engine_->AllGatherHost(fingerprint, values, all);
  }
  absl::StatusOr<std::unique_ptr<Engine>> CreateSubgroup(absl::Span<const int> members,
                                                         absl::Span<const int> lost,
                                                         uint64_t generation) override {
    BRIGADE_ASSIGN_OR_RETURN(auto engine, engine_->CreateSubgroup(members, lost, generation));
    return CreateThrottledEngine(std::move(engine), bytes_per_second_);
  }
  void Abort(const absl::Status& reason) override { engine_->Abort(reason); }
  absl::Status status() const override { return engine_->status(); }
  const int32_t* failure_flag() const override { return engine_->failure_flag(); }
  int64_t sent_bytes(int rank) const override { return engine_->sent_bytes(rank); }

 private:
  const std::unique_ptr<Engine> engine_;
  const double bytes_per_second_;
  std::vector<int64_t> elements_;  // [rank]
};

}  // namespace

std::unique_ptr<Engine> CreateThrottledEngine(std::unique_ptr<Engine> engine,
                                              double bytes_per_second) {
  return std::make_unique<ThrottledEngine>(std::move(engine), bytes_per_second);
}

}  // namespace brigade::benchmarks
