// Who trains with whom: OuterOptimizer::Join, and what replicas give each other then.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/collectives/agree.h"
#include "brigade/collectives/algorithms/wire_elements.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/optim/step_controller.h"
#include "brigade/precision/dtype.h"
#include "brigade/replicas/outer_optimizer.h"
#include "brigade/replicas/round_plan.h"

namespace brigade::replicas {
namespace {

using precision::DType;

constexpr int64_t kFloat = sizeof(float);

}  // namespace

struct OuterOptimizer::Standing {
  int64_t origin = 0, whole = 0, failed = 0, last_round = 0, steps = 0;

  bool is(Origin which) const { return origin == static_cast<int64_t>(which); }
};

void OuterOptimizer::Resume(int64_t steps) {
  steps_ = last_round_ = steps;
  origin_ = Origin::kResumed;
  is_whole_ = true;
}

// What all ranks with this one's place must have alike.
absl::Status OuterOptimizer::CheckReplicas(collectives::Communicator& between) {
  const zero::Plan& plan = zero_.plan();
  std::vector<std::string> lines = {
      absl::StrCat("replicas of ", Describe(options_)),
      absl::StrCat("place ", inside_.rank(), " of ", inside_.size(), " in its replica, ",
                   plan.ranks(), " ranks share a state in stage ", zero_.options().stage,
                   ", arrays of state ", zero_.state_arrays())};
  for (size_t p = 0; p < plan.parameters().size(); ++p) {
    lines.push_back(absl::StrCat("parameter ", p, ", ", plan.Describe(static_cast<int>(p))));
  }
  for (const std::vector<int>& fragment : fragments_) {
    lines.push_back(absl::StrCat("a fragment of buckets ", absl::StrJoin(fragment, ", ")));
  }
  return collectives::AgreeOnLines(lines, between);
}

// Memory for sums in this group, and what they send.
absl::Status OuterOptimizer::Prepare(collectives::Communicator& between) {
  wire_.reset();
  const zero::Plan& plan = zero_.plan();
  sum_bytes_.assign(plan.buckets().size(), 0);
  int64_t largest = 0;
  const auto reserve =
      [&](const collectives::CollectiveSignature& signature) -> absl::StatusOr<int64_t> {
    BRIGADE_ASSIGN_OR_RETURN(const auto resolved, between.Resolve(signature));
    BRIGADE_RETURN_IF_ERROR(between.Reserve(resolved));
    return collectives::WireBytes(resolved, between.rank(), between.size());
  };
  for (size_t b = 0; b < begin_.size(); ++b) {
    if (begin_[b] < 0) continue;
    const int64_t size = UpdatedElements(plan, zero_.options(), plan.buckets()[b]);
    largest = std::max(largest, size);
    BRIGADE_ASSIGN_OR_RETURN(sum_bytes_[b], reserve(internal::DeltaSumOf(options_, size)));
    if (options_.wire != DType::kFloat16) continue;
    BRIGADE_ASSIGN_OR_RETURN(const int64_t scale, reserve(collectives::kAmaxExchange));
    sum_bytes_[b] += scale;
  }
  if (options_.wire == DType::kFloat32) return absl::OkStatus();
  BRIGADE_ASSIGN_OR_RETURN(
      wire_, collectives::CompressedReduction::Create(between, context_,
                                                      largest * precision::SizeOf(options_.wire)));
  return absl::OkStatus();
}

// The replica whose state all get: of those that have a whole one the first with the latest round.
absl::StatusOr<int> OuterOptimizer::RootOf(const std::vector<Standing>& all) {
  const bool all_begin = std::all_of(all.begin(), all.end(),
                                     [](const Standing& each) { return each.is(Origin::kNew); });
  int root = -1;
  for (size_t r = 0; r < all.size(); ++r) {
    // What a new one has is no state of a training that others are in.
    if (all[r].whole == 0 || all[r].is(Origin::kNew) != all_begin) continue;
    const bool is_better =
        root < 0 || all[r].last_round > all[static_cast<size_t>(root)].last_round;
    if (is_better) root = static_cast<int>(r);
  }
  if (root < 0) {
    return absl::FailedPreconditionError(
        "replicas: no replica here has a whole state: an earlier Join has failed while it came; "
        "load a checkpoint (LoadState, Resume) first");
  }
  const Standing& latest = all[static_cast<size_t>(root)];
  for (size_t r = 0; r < all.size(); ++r) {
    const bool must_fit = all[r].whole != 0 &&
                          (all[r].is(Origin::kResumed) || (all[r].is(Origin::kInTraining) &&
                                                           all[r].last_round == latest.last_round));
    if (!must_fit || all[r].steps == latest.steps) continue;
    return absl::InvalidArgumentError(absl::StrCat("replicas: replica ", r, " comes after step ",
                                                   all[r].steps, ", replica ", root, " after step ",
                                                   latest.steps));
  }
  return root;
}

absl::Status OuterOptimizer::Join(collectives::Communicator& between) {
  between_ = nullptr;
  in_flight_ = -1;
  // Of the communicator before.
  exchange_->Reset().IgnoreError();
  absl::Status mine = zero_.BeginStateChange();
  if (mine.ok()) mine = Prepare(between);
  BRIGADE_RETURN_IF_ERROR(AgreeWithAll(mine, between));
  mine = CheckReplicas(between);

  const Standing standing = {static_cast<int64_t>(origin_), is_whole_, failed_, last_round_,
                             steps_};
  std::vector<Standing> all;
  int root = -1;
  if (mine.ok()) {
    const auto told = between.AllGatherHost(
        {standing.origin, standing.whole, standing.failed, standing.last_round, standing.steps});
    mine = told.status();
    for (int r = 0; told.ok() && r < between.size(); ++r) {
      const int64_t* const each = told->data() + size_t{5} * static_cast<size_t>(r);
      all.push_back({each[0], each[1], each[2], each[3], each[4]});
    }
  }
  if (mine.ok()) {
    const absl::StatusOr<int> chosen = RootOf(all);
    mine = chosen.status();
    if (mine.ok()) root = *chosen;
  }
  // Whatever one place finds, all ranks of all replicas know.
  mine = collectives::AgreeOnStatus(mine, inside_);
  BRIGADE_RETURN_IF_ERROR(mine);
  between_ = &between;
  // All but the root's state may be in parts from here on.
  is_whole_ = between.rank() == root;
  mine = Share(standing, all, root);
  // So that no rank waits in it for this one.
  if (!mine.ok()) between.Abort(mine);
  mine.Update(AwaitExchange(WaitPoint::kStateCame));
  mine = AgreeWithAll(mine, between);
  if (mine.ok()) {
    mine = TakeShared(standing, all[static_cast<size_t>(root)]);
    mine.Update(inside_.Synchronize(stream()));
    mine = collectives::AgreeOnStatus(mine, inside_);
  }
  if (!mine.ok()) {
    // So that no rank waits for this one.
    between.Abort(mine);
    exchange_->Reset().IgnoreError();
    between_ = nullptr;
    return mine;
  }
  origin_ = Origin::kInTraining;
  is_whole_ = true;
  failed_ = false;
  steps_ = all[static_cast<size_t>(root)].steps;
  last_round_ = all[static_cast<size_t>(root)].last_round;
  return absl::OkStatus();
}

absl::Status OuterOptimizer::Broadcast(void* data, int64_t count, DType dtype, int root) {
  collectives::CollectiveSignature signature = {.kind = collectives::CollectiveKind::kBroadcast,
                                                .dtype = dtype,
                                                .count = count,
                                                .root = root};
  setup_ += collectives::WireBytes(signature, between_->rank(), between_->size());
  return between_->Broadcast(data, data, count, dtype, root, *exchange_);
}

// On the exchange's stream, where an error of `between` stays.
absl::Status OuterOptimizer::Share(const Standing& mine, const std::vector<Standing>& all,
                                   int root) {
  const bool is_root = between_->rank() == root;
  const bool all_begin = all[static_cast<size_t>(root)].is(Origin::kNew);
  const auto some = [&](auto which) { return std::any_of(all.begin(), all.end(), which); };
  const bool some_begin = some([](const Standing& each) { return each.is(Origin::kNew); });
  for (size_t b = 0; b < begin_.size() && all_begin && is_root; ++b) {
    const absl::Span<float> outer = Part(kWeights, static_cast<int>(b));
    if (outer.empty()) continue;
    BRIGADE_ASSIGN_OR_RETURN(const absl::Span<float> own, zero_.StateArray(static_cast<int>(b), 0));
    BRIGADE_RETURN_IF_ERROR(
        stream().Copy(outer.data(), own.data(), static_cast<int64_t>(outer.size()) * kFloat));
  }
  BRIGADE_RETURN_IF_ERROR(stream().Record(*made_));
  BRIGADE_RETURN_IF_ERROR(AwaitMade(WaitPoint::kStateMade));
  const int attached = options_.momentum > 0 ? 2 : 1;
  // Errors of codes and exchanges are those of a replica's own messages.
  const int moments = zero_.state_arrays() - zero_.error_arrays() - attached;
  for (size_t f = 0; f < fragments_.size(); ++f) {
    for (size_t i = 0; i < fragments_[f].size(); ++i) {
      const int b = fragments_[f][i];
      const auto count = static_cast<int64_t>(Part(kWeights, b).size());
      const auto broadcast = [&](float* data) {
        return Broadcast(data, count, DType::kFloat32, root);
      };
      BRIGADE_RETURN_IF_ERROR(broadcast(Part(kWeights, b).data()));
      if (options_.momentum > 0) BRIGADE_RETURN_IF_ERROR(broadcast(Part(kMomentum, b).data()));
      if (all_begin || !some_begin) continue;
      for (int array = 1; array < moments; ++array) {
        BRIGADE_ASSIGN_OR_RETURN(const absl::Span<float> own, zero_.StateArray(b, array));
        // Those that keep theirs get it where deltas are.
        const bool takes = mine.is(Origin::kNew) || is_root;
        BRIGADE_RETURN_IF_ERROR(broadcast(takes ? own.data() : Delta(static_cast<int>(f), i)));
      }
    }
  }
  if (some([](const Standing& each) { return !each.is(Origin::kInTraining); })) {
    BRIGADE_RETURN_IF_ERROR(ShareFrozen(!mine.is(Origin::kInTraining) || is_root, root));
  }
  if (all_begin || !some_begin) return absl::OkStatus();
  return ShareStepState(mine, root);
}

std::vector<int> OuterOptimizer::FrozenBuckets() const {
  std::vector<int> frozen;
  for (size_t b = 0; b < begin_.size(); ++b) {
    if (begin_[b] < 0) frozen.push_back(static_cast<int>(b));
  }
  return frozen;
}

// In parts for which there is room where deltas are: those that have been in training have these
// weights already, and keep them.
absl::Status OuterOptimizer::ShareFrozen(bool takes, int root) {
  for (const int b : FrozenBuckets()) {
    BRIGADE_ASSIGN_OR_RETURN(const absl::Span<std::byte> own, zero_.FrozenWeights(b));
    const auto bytes = static_cast<int64_t>(own.size());
    for (int64_t at = 0; at < bytes; at += deltas_.bytes()) {
      void* const here = takes ? own.data() + at : deltas_.data();
      BRIGADE_RETURN_IF_ERROR(
          Broadcast(here, std::min(deltas_.bytes(), bytes - at), DType::kUint8, root));
    }
  }
  return absl::OkStatus();
}

absl::Status OuterOptimizer::ShareStepState(const Standing& mine, int root) {
  BRIGADE_ASSIGN_OR_RETURN(kernels::StepState state, zero_.controller().SaveState(stream()));
  constexpr size_t kWords = sizeof(state) / sizeof(int64_t);
  static_assert(kWords * sizeof(int64_t) == sizeof(state));
  std::array<int64_t, kWords> words;
  std::memcpy(words.data(), &state, sizeof(state));
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<int64_t> all, between_->AllGatherHost(words));
  if (!mine.is(Origin::kNew)) return absl::OkStatus();
  std::memcpy(&state, all.data() + kWords * static_cast<size_t>(root), sizeof(state));
  return zero_.LoadStepState(state);
}

// What follows of it inside a replica.
absl::Status OuterOptimizer::TakeShared(const Standing& mine, const Standing& latest) {
  if (!mine.is(Origin::kInTraining)) {
    BRIGADE_RETURN_IF_ERROR(zero_.MastersChanged(FrozenBuckets()));
  }
  // Those of a training that there was.
  const bool has_moments = mine.is(Origin::kNew) && !latest.is(Origin::kNew);
  if (has_moments) BRIGADE_RETURN_IF_ERROR(zero_.MomentsChanged());
  const bool stays = !mine.is(Origin::kNew) && mine.whole != 0 && mine.failed == 0 &&
                     mine.last_round == latest.last_round;
  if (stays) return absl::OkStatus();
  for (size_t f = 0; f < fragments_.size(); ++f) {
    BRIGADE_RETURN_IF_ERROR(Mix(static_cast<int>(f), 0.0));
  }
  return absl::OkStatus();
}

}  // namespace brigade::replicas
