// Who trains with whom: OuterOptimizer::Join, and what replicas give each other then.

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/collectives/agree.h"
#include "brigade/collectives/algorithms/wire_elements.h"
#include "brigade/device/status_macros.h"
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
  int64_t origin = 0, failed = 0, last_round = 0, steps = 0;

  bool is_new() const { return origin == static_cast<int64_t>(Origin::kNew); }
  bool is_resumed() const { return origin == static_cast<int64_t>(Origin::kResumed); }
};

void OuterOptimizer::Resume(int64_t steps) {
  steps_ = last_round_ = steps;
  origin_ = Origin::kResumed;
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

absl::Status OuterOptimizer::Join(collectives::Communicator& between) {
  between_ = nullptr;
  in_flight_ = -1;
  // Of the communicator before.
  exchange_->Reset().IgnoreError();
  absl::Status mine = zero_.BeginStateChange();
  if (mine.ok()) mine = Prepare(between);
  mine = collectives::AgreeOnStatus(mine, inside_);
  mine = collectives::AgreeOnStatus(mine, between);
  BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnStatus(mine, inside_));
  mine = CheckReplicas(between);

  const Standing standing = {static_cast<int64_t>(origin_), failed_, last_round_, steps_};
  std::vector<Standing> all;
  int root = 0;
  if (mine.ok()) {
    const auto told = between.AllGatherHost(
        {standing.origin, standing.failed, standing.last_round, standing.steps});
    mine = told.status();
    for (int r = 0; told.ok() && r < between.size(); ++r) {
      const int64_t* const each = told->data() + size_t{4} * static_cast<size_t>(r);
      all.push_back({each[0], each[1], each[2], each[3]});
      const Standing &best = all[static_cast<size_t>(root)], &here = all.back();
      const bool is_better =
          here.is_new() != best.is_new() ? best.is_new() : here.last_round > best.last_round;
      if (is_better) root = r;
    }
  }
  for (size_t r = 0; mine.ok() && r < all.size(); ++r) {
    const Standing& latest = all[static_cast<size_t>(root)];
    const bool must_fit =
        all[r].is_resumed() || (!all[r].is_new() && all[r].last_round == latest.last_round);
    if (!must_fit || all[r].steps == latest.steps) continue;
    mine = absl::InvalidArgumentError(absl::StrCat("replicas: replica ", r, " comes after step ",
                                                   all[r].steps, ", replica ", root, " after step ",
                                                   latest.steps));
  }
  // Whatever one place finds, all ranks of all replicas know.
  mine = collectives::AgreeOnStatus(mine, inside_);
  BRIGADE_RETURN_IF_ERROR(mine);
  between_ = &between;
  mine = Share(standing, all, root);
  mine.Update(between.Synchronize(stream()));
  mine = collectives::AgreeOnStatus(mine, inside_);
  if (!mine.ok()) {
    // Which of w0 and v are new is not known.
    between_ = nullptr;
    return mine;
  }
  origin_ = Origin::kInTraining;
  failed_ = false;
  steps_ = all[static_cast<size_t>(root)].steps;
  last_round_ = all[static_cast<size_t>(root)].last_round;
  return absl::OkStatus();
}

absl::Status OuterOptimizer::Broadcast(float* data, int64_t count, int root) {
  collectives::CollectiveSignature signature = {.kind = collectives::CollectiveKind::kBroadcast,
                                                .dtype = DType::kFloat32,
                                                .count = count,
                                                .root = root};
  setup_ += collectives::WireBytes(signature, between_->rank(), between_->size());
  return between_->Broadcast(data, data, count, DType::kFloat32, root, stream());
}

absl::Status OuterOptimizer::Share(const Standing& mine, const std::vector<Standing>& all,
                                   int root) {
  const Standing& latest = all[static_cast<size_t>(root)];
  const bool all_begin = latest.is_new();
  const bool some_begin =
      std::any_of(all.begin(), all.end(), [](const Standing& each) { return each.is_new(); });
  if (all_begin) {
    for (const std::vector<int>& fragment : fragments_) {
      for (const int b : fragment) {
        const absl::Span<float> outer = Part(kWeights, b);
        BRIGADE_ASSIGN_OR_RETURN(const absl::Span<float> own, zero_.StateArray(b, 0));
        BRIGADE_RETURN_IF_ERROR(
            stream().Copy(outer.data(), own.data(), static_cast<int64_t>(outer.size()) * kFloat));
      }
    }
  }
  const int attached = options_.momentum > 0 ? 2 : 1;
  // Errors of codes are those of a replica's own messages.
  const int moments = zero_.state_arrays() - zero_.error_arrays() - attached;
  for (size_t f = 0; f < fragments_.size(); ++f) {
    for (size_t i = 0; i < fragments_[f].size(); ++i) {
      const int b = fragments_[f][i];
      const auto count = static_cast<int64_t>(Part(kWeights, b).size());
      BRIGADE_RETURN_IF_ERROR(Broadcast(Part(kWeights, b).data(), count, root));
      if (options_.momentum > 0) {
        BRIGADE_RETURN_IF_ERROR(Broadcast(Part(kMomentum, b).data(), count, root));
      }
      if (all_begin || !some_begin) continue;
      for (int array = 1; array < moments; ++array) {
        BRIGADE_ASSIGN_OR_RETURN(const absl::Span<float> own, zero_.StateArray(b, array));
        // Those that keep theirs get it where deltas are.
        const bool takes = mine.is_new() || between_->rank() == root;
        BRIGADE_RETURN_IF_ERROR(
            Broadcast(takes ? own.data() : Delta(static_cast<int>(f), i), count, root));
      }
    }
  }
  if (some_begin && !all_begin) BRIGADE_RETURN_IF_ERROR(ShareStepState(mine, root));
  const bool stays = !mine.is_new() && mine.failed == 0 && mine.last_round == latest.last_round;
  return stays ? absl::OkStatus() : GoBack();
}

absl::Status OuterOptimizer::ShareStepState(const Standing& mine, int root) {
  BRIGADE_ASSIGN_OR_RETURN(kernels::StepState state, zero_.controller().SaveState(stream()));
  constexpr size_t kWords = sizeof(state) / sizeof(int64_t);
  static_assert(kWords * sizeof(int64_t) == sizeof(state));
  std::array<int64_t, kWords> words;
  std::memcpy(words.data(), &state, sizeof(state));
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<int64_t> all, between_->AllGatherHost(words));
  if (!mine.is_new()) return absl::OkStatus();
  std::memcpy(&state, all.data() + kWords * static_cast<size_t>(root), sizeof(state));
  return zero_.controller().LoadState(state, stream());
}

absl::Status OuterOptimizer::GoBack() {
  for (size_t f = 0; f < fragments_.size(); ++f) {
    BRIGADE_RETURN_IF_ERROR(Mix(static_cast<int>(f), 0.0));
  }
  return absl::OkStatus();
}

}  // namespace brigade::replicas
