#include "brigade/zero/internal/sharded_update.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/zero/plan/layout.h"

namespace brigade::zero::internal {

ShardedUpdate::ShardedUpdate(const Plan& plan, const ZeroOptions& options,
                             const ParameterStore& parameters, StepStreams& streams)
    : plan_(plan),
      options_(options),
      parameters_(parameters),
      streams_(streams),
      moments_(optim::Moments(options.optimizer)),
      states_(plan.buckets().size()) {}

absl::StatusOr<std::unique_ptr<ShardedUpdate>> ShardedUpdate::Create(
    const Plan& plan, const ZeroOptions& options, const GradientStore& gradients,
    const ParameterStore& parameters, StepStreams& streams) {
  std::unique_ptr<ShardedUpdate> update(new ShardedUpdate(plan, options, parameters, streams));
  BRIGADE_RETURN_IF_ERROR(update->Allocate());
  update->ListGradients(gradients);
  update->ListUpdates(gradients);

  int64_t workspace = 0;
  for (const Check& check : update->checks_) {
    workspace = std::max(workspace, kernels::GradCheckWorkspaceSize(check.segments));
  }
  BRIGADE_ASSIGN_OR_RETURN(
      auto buffer, streams.context().Allocate(workspace * sizeof(double), device::Purpose::kScratch,
                                              "grad_check workspace"));
  update->workspace_ = std::move(buffer);
  BRIGADE_ASSIGN_OR_RETURN(auto controller, optim::StepController::Create(
                                                options.optimizer, ControllerOptions(plan, options),
                                                streams.context(), streams.comm()));
  update->controller_ = std::move(controller);
  return update;
}

absl::Status ShardedUpdate::Allocate() {
  for (size_t b = 0; b < states_.size(); ++b) {
    const Bucket& bucket = plan_.buckets()[b];
    if (!bucket.trainable) continue;
    const int64_t size = UpdatedRange(plan_, options_, bucket, streams_.rank()).size;
    const int64_t arrays = moments_ + (HasMaster(bucket) ? 1 : 0);
    BRIGADE_ASSIGN_OR_RETURN(
        auto state, streams_.context().Allocate(arrays * size * static_cast<int64_t>(sizeof(float)),
                                                device::Purpose::kOptimizerState,
                                                absl::StrCat("optimizer state of bucket ", b)));
    BRIGADE_RETURN_IF_ERROR(streams_.comm().FillBytes(state.data(), 0, state.bytes()));
    states_[b] = std::move(state);
  }
  return absl::OkStatus();
}

void* ShardedUpdate::Weights(int index) const {
  return options_.traits().whole_optimizer_state ? parameters_.Whole(index)
                                                 : parameters_.Slice(index);
}

float* ShardedUpdate::Array(int index, int array) const {
  const Bucket& bucket = plan_.bucket(index);
  const bool master = HasMaster(bucket);
  if (array == 0 && !master) return static_cast<float*>(Weights(index));
  const int64_t size = UpdatedRange(plan_, options_, bucket, streams_.rank()).size;
  return states_[static_cast<size_t>(index)].as<float>().data() + (array - (master ? 0 : 1)) * size;
}

void ShardedUpdate::ListGradients(const GradientStore& gradients) {
  for (size_t b = 0; b < states_.size(); ++b) {
    const Bucket& bucket = plan_.buckets()[b];
    if (!bucket.trainable) continue;
    const precision::DType dtype = FinalGradientType(options_, bucket);
    auto check = std::find_if(checks_.begin(), checks_.end(),
                              [&](const Check& each) { return each.dtype == dtype; });
    if (check == checks_.end()) check = checks_.insert(check, {dtype, {}});
    check->segments.push_back({gradients.FinalSlice(static_cast<int>(b)), plan_.slice(bucket)});
  }
  // With nothing to train, the sum of no gradients.
  if (checks_.empty()) checks_.push_back({options_.dtype, {}});
}

void ShardedUpdate::ListUpdates(const GradientStore& gradients) {
  using Types = std::pair<precision::DType, precision::DType>;  // gradient, weights
  std::map<Types, std::vector<optim::UpdateSegment>> lists;
  for (size_t b = 0; b < states_.size(); ++b) {
    const Bucket& bucket = plan_.buckets()[b];
    if (!bucket.trainable) continue;
    const int index = static_cast<int>(b);
    const void* const grad = options_.traits().whole_optimizer_state ? gradients.FinalWhole(index)
                                                                     : gradients.FinalSlice(index);
    AppendSegments(index, grad, lists[{FinalGradientType(options_, bucket), bucket.dtype}]);
  }
  for (const auto& [types, segments] : lists) {
    std::optional<precision::DType> copy;
    if (types.second != precision::DType::kFloat32) copy = types.second;
    updates_.emplace_back(options_.optimizer, segments, optim::UpdateTypes{types.first, copy});
  }
}

// One segment for each run of entries of the same group; padding goes with what lies before it.
void ShardedUpdate::AppendSegments(int index, const void* grad,
                                   std::vector<optim::UpdateSegment>& segments) {
  const Bucket& bucket = plan_.bucket(index);
  const ElementRange updated = UpdatedRange(plan_, options_, bucket, streams_.rank());
  const int64_t grad_bytes = precision::SizeOf(FinalGradientType(options_, bucket));
  for (size_t first = 0, next = 0; first < bucket.entries.size(); first = next) {
    const auto group_of = [&](size_t entry) {
      const auto parameter = static_cast<size_t>(bucket.entries[entry].parameter);
      return plan_.parameters()[parameter].spec.group;
    };
    while (next < bucket.entries.size() && group_of(next) == group_of(first)) ++next;
    const int64_t run_end =
        next < bucket.entries.size() ? bucket.entries[next].range.begin : bucket.size;
    const int64_t begin = std::max(bucket.entries[first].range.begin, updated.begin);
    const int64_t end = std::min(run_end, updated.begin + updated.size);
    if (begin >= end) continue;
    const int64_t at = begin - updated.begin;
    optim::UpdateSegment segment;
    segment.param = Array(index, 0) + at;
    if (moments_ > 0) segment.first_moment = Array(index, 1) + at;
    if (moments_ > 1) segment.second_moment = Array(index, 2) + at;
    segment.grad = static_cast<const char*>(grad) + at * grad_bytes;
    if (HasMaster(bucket)) {
      segment.copy = static_cast<char*>(Weights(index)) + at * precision::SizeOf(bucket.dtype);
    }
    segment.size = end - begin;
    segment.group = group_of(first);
    segments.push_back(segment);
  }
}

absl::Status ShardedUpdate::Enqueue() {
  device::Stream& stream = streams_.comm();
  const absl::Span<kernels::GradStats> stats = controller_->stats();
  const auto mine = static_cast<size_t>(streams_.rank()) * checks_.size();
  for (size_t i = 0; i < checks_.size(); ++i) {
    BRIGADE_RETURN_IF_ERROR(kernels::GradCheck(checks_[i].segments, checks_[i].dtype,
                                               workspace_.as<double>(), &stats[mine + i], stream));
  }
  const auto bytes = static_cast<int64_t>(checks_.size() * sizeof(kernels::GradStats));
  BRIGADE_RETURN_IF_ERROR(streams_.AllGather(stats.data() + mine, stats.data(), bytes,
                                             precision::DType::kUint8, streams_.traffic.scalars));
  BRIGADE_RETURN_IF_ERROR(controller_->Decide(stream));
  for (const optim::FusedUpdate& update : updates_) {
    BRIGADE_RETURN_IF_ERROR(update.Enqueue(*controller_, stream));
  }
  return absl::OkStatus();
}

}  // namespace brigade::zero::internal
