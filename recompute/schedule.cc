#include "brigade/recompute/schedule.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "brigade/device/status_macros.h"
#include "brigade/recompute/internal/reads.h"

namespace brigade::recompute {
namespace {

constexpr int64_t kElsewhere = PlacedOperation::kElsewhere;

// The first such operation does.
bool BeginsBackward(Action action) {
  return action == Action::kBackward || action == Action::kFetch;
}

// Goes through a plan with a memory of what is where.
class Placing {
 public:
  // In regions of these sizes, for these operations, fetches among them.
  Placing(const Chain& chain, absl::Span<const Operation> operations, Placement placement,
          const Schedule& sizes)
      : chain_(chain),
        placement_(placement),
        begin_(sizes.kept_bytes),
        end_(sizes.kept_bytes + sizes.arena_bytes),
        reads_(operations, [&](int stage) { return InputBytes(stage); }),
        written_(chain.stages.size(), Written::kNo) {}

  absl::StatusOr<PlacedOperation> Place(const Operation& operation);
  // Everything is freed, and every stage has gone backward.
  absl::Status CheckEnd() const;

  // What the operations so far have needed of each region.
  int64_t most_kept() const { return most_kept_; }
  int64_t most() const { return most_; }
  int64_t deferred() const { return deferred_; }

 private:
  enum class Kind { kKept, kSaved };
  // A stage's input, on the slower tier.
  enum class Written : uint8_t { kNo, kYes, kFetched, kRead };
  // In memory, what a kWrite copies.
  struct Copied {
    int stage;
    int64_t at;
    int64_t bytes;
  };
  enum class Region : uint8_t { kKept, kArena };
  // On the stack.
  struct Value {
    Kind kind;
    Region region;
    // Whose output it is, or holds.
    int stage;
    int option;
    int64_t at;
    int64_t bytes;
    // Of what is saved: where its weight_input_bytes are if they are apart.
    int64_t weight_inputs = kElsewhere;
  };
  // The output of the operation before, for the next one alone.
  struct Passing {
    int stage;
    int64_t bytes;
    bool far_end;
  };

  const Stage& StageOf(const Operation& operation) const {
    return chain_.stages[static_cast<size_t>(operation.stage)];
  }
  // 0 of a stage that there is not, too.
  int64_t InputBytes(int stage) const {
    if (stage <= 0 || static_cast<size_t>(stage) >= chain_.stages.size()) return 0;
    return AlignedBytes(chain_.stages[static_cast<size_t>(stage) - 1].output_bytes);
  }
  Written& WrittenOf(const Operation& operation) {
    return written_[static_cast<size_t>(operation.stage)];
  }
  // Where the stage's input is read to; kElsewhere for the chain's input.
  int64_t ReadPlace(int stage) const;
  // The operation writes here.
  void WritesTo(PlacedOperation& placed, int64_t at, int64_t bytes);
  absl::Status CheckNumbers(const Operation& operation) const;
  absl::StatusOr<PlacedOperation> PlaceAny(const Operation& operation);
  absl::StatusOr<int64_t> Input(const Operation& operation);
  absl::StatusOr<PlacedOperation> Write(const Operation& operation);
  absl::StatusOr<PlacedOperation> Fetch(const Operation& operation);
  absl::StatusOr<PlacedOperation> Read(const Operation& operation);
  absl::StatusOr<PlacedOperation> Forward(const Operation& operation);
  absl::StatusOr<PlacedOperation> ForwardSave(const Operation& operation);
  absl::StatusOr<PlacedOperation> Backward(const Operation& operation);
  absl::Status Drop(const Operation& operation);

  // Where the stack of a region ends.
  int64_t TopOf(Region region) const {
    const auto last = std::find_if(stack_.rbegin(), stack_.rend(),
                                   [&](const Value& value) { return value.region == region; });
    if (last != stack_.rend()) return last->at + last->bytes;
    return region == Region::kKept ? 0 : begin_;
  }
  // Of the arena.
  int64_t top() const { return TopOf(Region::kArena); }
  // What passes at the far end ends here.
  int64_t far_end() const { return end_ - reads_.bytes(); }
  // Where what is kept or saved now goes.
  Region region() const {
    return placement_ == Placement::kArena || in_backward_ ? Region::kArena : Region::kKept;
  }
  // Where it lies.
  int64_t Push(Kind kind, const Operation& operation, int64_t bytes) {
    const int64_t at = TopOf(region());
    stack_.push_back({kind, region(), operation.stage, operation.option, at, bytes});
    if (region() == Region::kKept) most_kept_ = std::max(most_kept_, at + bytes);
    return at;
  }
  // In the third region.
  int64_t Defer(int64_t bytes) {
    const int64_t at = end_ + deferred_;
    deferred_ += AlignedBytes(bytes);
    return at;
  }
  // The arena has what ends here at its begin, and that at its end, beside what is read.
  void Need(int64_t near_end, int64_t far = 0) {
    most_ = std::max(most_, near_end - begin_ + far + reads_.bytes());
  }

  const Chain& chain_;
  const Placement placement_;
  // Of the arena.
  const int64_t begin_, end_;
  int64_t most_kept_ = 0, most_ = 0;
  // Of the third region: nothing becomes free there.
  int64_t deferred_ = 0;
  // The backward pass, or a fetch for it, has begun.
  bool in_backward_ = false;
  std::vector<Value> stack_;
  std::optional<Passing> passing_;
  internal::ReadPlaces reads_;
  // By stage.
  std::vector<Written> written_;
  // Copies that nobody has awaited, in their order.
  std::vector<Copied> copied_;
  // Stages from this one on have gone backward.
  std::optional<int> backward_;
};

absl::Status Wrong(const Operation& operation, const char* what) {
  return absl::InvalidArgumentError(absl::StrCat(ToString(operation), ": ", what));
}

absl::Status Placing::CheckNumbers(const Operation& operation) const {
  if (operation.stage < 0 || static_cast<size_t>(operation.stage) >= chain_.stages.size()) {
    return Wrong(operation, "there is no such stage");
  }
  if (operation.option < 0 ||
      static_cast<size_t>(operation.option) >= StageOf(operation).options.size()) {
    return Wrong(operation, "the stage has no such option");
  }
  return absl::OkStatus();
}

int64_t Placing::ReadPlace(int stage) const {
  return stage > 0 ? end_ - reads_.BeginBeforeEnd(stage).value_or(0) : kElsewhere;
}

// The copies are made in their order: who awaits one has awaited those before, and what is found
// here next comes after it.
void Placing::WritesTo(PlacedOperation& placed, int64_t at, int64_t bytes) {
  if (bytes == 0) return;
  const auto last = std::find_if(copied_.rbegin(), copied_.rend(), [&](const Copied& copied) {
    return copied.at < at + bytes && at < copied.at + copied.bytes;
  });
  if (last == copied_.rend()) return;
  placed.after_write = last->stage;
  copied_.erase(copied_.begin(), last.base());
}

absl::StatusOr<PlacedOperation> Placing::Place(const Operation& operation) {
  BRIGADE_ASSIGN_OR_RETURN(PlacedOperation placed, PlaceAny(operation));
  const Stage& stage = StageOf(operation);
  const SaveOption& option = stage.options[static_cast<size_t>(operation.option)];
  switch (operation.action) {
    case Action::kForward:
    case Action::kForwardKeep:
      WritesTo(placed, placed.output, AlignedBytes(stage.output_bytes));
      WritesTo(placed, placed.transient, AlignedBytes(stage.transient_bytes));
      break;
    case Action::kForwardSave:
      WritesTo(placed, placed.saved, AlignedBytes(option.saved_bytes));
      WritesTo(placed, placed.transient, AlignedBytes(option.forward_transient_bytes));
      break;
    case Action::kBackward:
      WritesTo(placed, placed.saved, AlignedBytes(option.saved_bytes));
      WritesTo(placed, placed.transient, AlignedBytes(option.backward_transient_bytes));
      break;
    case Action::kFetch:
      WritesTo(placed, placed.input, InputBytes(operation.stage));
      break;
    case Action::kDrop:
    case Action::kWrite:
    case Action::kRead:
      break;
  }
  return placed;
}

absl::StatusOr<PlacedOperation> Placing::PlaceAny(const Operation& operation) {
  BRIGADE_RETURN_IF_ERROR(CheckNumbers(operation));
  in_backward_ = in_backward_ || BeginsBackward(operation.action);
  if (passing_.has_value() && operation.action != Action::kForward &&
      operation.action != Action::kForwardKeep && operation.action != Action::kWrite) {
    return Wrong(operation, "an output passes, and nobody reads it");
  }
  switch (operation.action) {
    case Action::kForward:
    case Action::kForwardKeep:
      return Forward(operation);
    case Action::kForwardSave:
      return ForwardSave(operation);
    case Action::kBackward:
      return Backward(operation);
    case Action::kDrop:
      BRIGADE_RETURN_IF_ERROR(Drop(operation));
      return PlacedOperation{operation};
    case Action::kWrite:
      return Write(operation);
    case Action::kRead:
      return Read(operation);
    case Action::kFetch:
      return Fetch(operation);
  }
  return Wrong(operation, "there is no such action");
}

absl::StatusOr<PlacedOperation> Placing::Write(const Operation& operation) {
  if (operation.stage > 0 && !passing_.has_value()) {
    return Wrong(operation, "what it writes does not pass");
  }
  if (WrittenOf(operation) != Written::kNo) return Wrong(operation, "it was written before");
  if (backward_.has_value()) return Wrong(operation, "it is written in the backward pass");
  BRIGADE_ASSIGN_OR_RETURN(const int64_t input, Input(operation));
  WrittenOf(operation) = Written::kYes;
  if (input != kElsewhere) {
    copied_.push_back({operation.stage, input, InputBytes(operation.stage)});
  }
  return PlacedOperation{operation, input};
}

absl::StatusOr<PlacedOperation> Placing::Fetch(const Operation& operation) {
  if (WrittenOf(operation) != Written::kYes) {
    return Wrong(operation, "what it reads is not on the slower tier");
  }
  if (!reads_.Fetch(operation.stage)) return Wrong(operation, "the place it is read to is in use");
  WrittenOf(operation) = Written::kFetched;
  Need(top());
  return PlacedOperation{operation, ReadPlace(operation.stage)};
}

absl::StatusOr<PlacedOperation> Placing::Read(const Operation& operation) {
  if (WrittenOf(operation) != Written::kFetched) {
    return Wrong(operation, "it is read before the backward pass, or before another one");
  }
  WrittenOf(operation) = Written::kRead;
  return PlacedOperation{operation, ReadPlace(operation.stage)};
}

// What passes is read now, and no more: its place is free after this operation.
absl::StatusOr<int64_t> Placing::Input(const Operation& operation) {
  if (passing_.has_value() && passing_->stage != operation.stage - 1) {
    return Wrong(operation, "another output passes");
  }
  if (operation.stage == 0) return kElsewhere;
  if (passing_.has_value()) {
    return passing_->far_end ? far_end() - passing_->bytes : top();
  }
  if (WrittenOf(operation) == Written::kRead && reads_.BeginBeforeEnd(operation.stage)) {
    return ReadPlace(operation.stage);
  }
  const auto found = std::find_if(stack_.rbegin(), stack_.rend(), [&](const Value& value) {
    return value.stage == operation.stage - 1;
  });
  if (found == stack_.rend()) return Wrong(operation, "its input is not there");
  return found->at;
}

absl::StatusOr<PlacedOperation> Placing::Forward(const Operation& operation) {
  BRIGADE_ASSIGN_OR_RETURN(const int64_t input, Input(operation));
  const Stage& stage = StageOf(operation);
  const int64_t bytes = AlignedBytes(stage.output_bytes),
                transient = AlignedBytes(stage.transient_bytes);
  // Beside what passes: this at the other end.
  int64_t near = 0, far = 0;
  if (passing_.has_value()) (passing_->far_end ? far : near) = passing_->bytes;
  const int64_t near_before = near;
  if ((operation.far_end ? far : near) != 0 && bytes != 0) {
    return Wrong(operation, "its output would lie where its input is");
  }
  const bool keeps = operation.action == Action::kForwardKeep;
  if (keeps && operation.far_end) return Wrong(operation, "what is kept lies on the stack");
  const bool is_in_arena = !keeps || region() == Region::kArena;
  if (is_in_arena) (operation.far_end ? far : near) += bytes;
  PlacedOperation placed = {operation, input};
  placed.output = operation.far_end ? far_end() - bytes : top() + near_before;
  placed.transient = top() + near;
  Need(top() + near + transient, far);
  passing_.reset();
  if (keeps) {
    placed.output = Push(Kind::kKept, operation, bytes);
  } else {
    passing_ = {operation.stage, bytes, operation.far_end};
  }
  return placed;
}

absl::StatusOr<PlacedOperation> Placing::ForwardSave(const Operation& operation) {
  BRIGADE_ASSIGN_OR_RETURN(const int64_t input, Input(operation));
  const SaveOption& option = StageOf(operation).options[static_cast<size_t>(operation.option)];
  PlacedOperation placed = {operation, input};
  int64_t bytes = option.saved_bytes;
  if (placement_ == Placement::kSplitSlots && in_backward_) {
    placed.weight_inputs = Defer(option.weight_input_bytes);
    bytes -= option.weight_input_bytes;
  }
  placed.output = placed.saved = Push(Kind::kSaved, operation, AlignedBytes(bytes));
  stack_.back().weight_inputs = placed.weight_inputs;
  placed.transient = top();
  Need(top() + AlignedBytes(option.forward_transient_bytes));
  return placed;
}

absl::StatusOr<PlacedOperation> Placing::Backward(const Operation& operation) {
  const int next = backward_.value_or(static_cast<int>(chain_.stages.size()));
  if (operation.stage != next - 1) return Wrong(operation, "it is not the next to go backward");
  if (stack_.empty() || stack_.back().kind != Kind::kSaved ||
      stack_.back().stage != operation.stage || stack_.back().option != operation.option) {
    return Wrong(operation, "what it reads is not on top of the stack");
  }
  BRIGADE_ASSIGN_OR_RETURN(const int64_t input, Input(operation));
  const SaveOption& option = StageOf(operation).options[static_cast<size_t>(operation.option)];
  PlacedOperation placed = {operation, input};
  placed.saved = stack_.back().at;
  placed.transient = top();
  Need(top() + AlignedBytes(option.backward_transient_bytes));
  if (placement_ == Placement::kSplitSlots) {
    placed.deferred = Defer(option.deferred_bytes);
    placed.weight_inputs = stack_.back().weight_inputs;
  }
  stack_.pop_back();
  backward_ = operation.stage;
  return placed;
}

absl::Status Placing::Drop(const Operation& operation) {
  if (WrittenOf(operation) == Written::kRead && reads_.Drop(operation.stage)) {
    return absl::OkStatus();
  }
  if (stack_.empty() || stack_.back().kind != Kind::kKept ||
      stack_.back().stage != operation.stage - 1) {
    return Wrong(operation, "the input is not kept on top of the stack");
  }
  stack_.pop_back();
  return absl::OkStatus();
}

absl::Status Placing::CheckEnd() const {
  if (passing_.has_value() || !stack_.empty()) {
    return absl::InvalidArgumentError("at the end something is still kept");
  }
  for (size_t s = 0; s < written_.size(); ++s) {
    if (written_[s] == Written::kNo) continue;
    if (written_[s] != Written::kRead || reads_.BeginBeforeEnd(static_cast<int>(s)).has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("at the end the input of stage ", s,
                                                     " is still on the slower tier, or kept"));
    }
  }
  if (backward_ != 0) return absl::InvalidArgumentError("not all stages have gone backward");
  return absl::OkStatus();
}

}  // namespace

int64_t Schedule::WrittenBytes() const {
  return std::accumulate(written_bytes.begin(), written_bytes.end(), int64_t{0});
}

std::vector<int> Schedule::BackwardUses() const {
  std::vector<int> uses;
  // Of the operation before, if the next one may go on with its weights.
  std::optional<int> open;
  for (size_t i = first_of_backward; i < operations.size(); ++i) {
    const Operation& operation = operations[i].operation;
    if (!Computes(operation.action)) continue;
    if (open != operation.stage) uses.push_back(operation.stage);
    open = operation.action == Action::kBackward ? std::nullopt : std::optional(operation.stage);
  }
  return uses;
}

int Schedule::Forwards(int stage) const {
  return static_cast<int>(
      std::count_if(operations.begin(), operations.end(), [&](const PlacedOperation& each) {
        const Action action = each.operation.action;
        return each.operation.stage == stage && action != Action::kBackward && Computes(action);
      }));
}

absl::StatusOr<Schedule> Place(const Chain& chain, const Plan& plan, Placement placement) {
  BRIGADE_RETURN_IF_ERROR(Validate(chain));
  const std::vector<Operation> operations = internal::WithFetches(plan.operations);
  // Once for the regions' sizes, and once for the places.
  Schedule schedule = {.written_bytes = std::vector<int64_t>(chain.stages.size())};
  for (const bool measures : {true, false}) {
    Placing placing(chain, operations, placement, schedule);
    for (const Operation& operation : operations) {
      BRIGADE_ASSIGN_OR_RETURN(const PlacedOperation placed, placing.Place(operation));
      if (measures) continue;
      const auto s = static_cast<size_t>(operation.stage);
      if (operation.action == Action::kWrite && s > 0) {
        schedule.written_bytes[s] = chain.stages[s - 1].output_bytes;
      }
      if (BeginsBackward(operation.action) && schedule.first_of_backward == 0) {
        schedule.first_of_backward = schedule.operations.size();
      }
      schedule.operations.push_back(placed);
    }
    BRIGADE_RETURN_IF_ERROR(placing.CheckEnd());
    schedule.kept_bytes = placing.most_kept();
    schedule.arena_bytes = placing.most();
    schedule.deferred_bytes = placing.deferred();
  }
  return schedule;
}

}  // namespace brigade::recompute
