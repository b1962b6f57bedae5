#include "brigade/tests/recompute/simulator.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"

namespace brigade::recompute {
namespace {

// A piece of memory, which holds the output of `stage` and perhaps more. -1: the chain's input.
struct Value {
  int stage = 0;
  // -1: only the output.
  int option = -1;
  int64_t bytes = 0;
  int id = 0;
};

class Memory {
 public:
  explicit Memory(const Chain& chain)
      : chain_(chain),
        newest_(chain.stages.size() + 1, 0),
        backward_(static_cast<int>(chain.stages.size()) - 1) {}

  absl::Status Run(const Operation& operation);
  absl::Status CheckEnd() const;
  const Simulation& result() const { return result_; }

 private:
  const Stage& stage(int s) const { return chain_.stages[static_cast<size_t>(s)]; }
  // Of the output of a stage.
  int& Newest(int s) { return newest_[static_cast<size_t>(s + 1)]; }
  // Whether the value written last that holds the output of `s` is in memory, `where`.
  bool IsKept(int s) {
    return (s < 0 && input_ && Newest(s) == 0) ||
           std::any_of(stack_.begin(), stack_.end(),
                       [&](const Value& value) { return value.id == Newest(s); });
  }
  bool IsPassing(int s) const { return passing_.has_value() && passing_->stage == s; }
  int64_t InputBytes(int s) const { return s > 0 ? stage(s - 1).output_bytes : 0; }
  int64_t GradientBytes() const { return backward_ < 0 ? 0 : stage(backward_).gradient_bytes; }
  void Count(int64_t bytes) {
    for (const Value& value : stack_) bytes += value.bytes;
    for (const int s : fetched_) bytes += InputBytes(s);
    if (passing_.has_value()) bytes += passing_->bytes;
    result_.peak_bytes = std::max(result_.peak_bytes, bytes + GradientBytes());
  }
  void Push(Value value) {
    value.id = Newest(value.stage) = ++ids_;
    stack_.push_back(value);
    const auto kept =
        std::count_if(stack_.begin(), stack_.end(), [](const Value& v) { return v.option < 0; });
    result_.most_kept = std::max(result_.most_kept, static_cast<int>(kept) + (input_ ? 1 : 0));
  }
  absl::Status Pop(int s, int option) {
    if (stack_.empty() || stack_.back().stage != s || stack_.back().option != option) {
      return absl::FailedPreconditionError("what it frees is not on top of the stack");
    }
    stack_.pop_back();
    return absl::OkStatus();
  }
  absl::Status Forward(const Operation& operation);
  absl::Status Save(const Operation& operation);
  absl::Status Backward(const Operation& operation);

  const Chain& chain_;
  std::vector<Value> stack_;
  // The output of a kForward, and on which end it lies.
  std::optional<Value> passing_;
  bool passing_far_ = false;
  // Whether the chain's input is there, as the caller gave it.
  bool input_ = true;
  // Its kWrite was the last operation.
  bool input_written_ = false;
  std::vector<int> newest_;
  int ids_ = 0;
  // The stage whose backward pass is next.
  int backward_;
  std::set<int> slow_tier_;
  // On the way back, with memory of their own.
  std::set<int> fetched_;
  Simulation result_;
};

absl::Status Memory::Forward(const Operation& operation) {
  const int s = operation.stage;
  const bool keep = operation.action == Action::kForwardKeep;
  if (passing_.has_value() && passing_far_ == (!keep && operation.far_end)) {
    return absl::FailedPreconditionError("its input lies where its output belongs");
  }
  if (!IsPassing(s - 1) && !IsKept(s - 1)) {
    return absl::FailedPreconditionError("its input is not there");
  }
  Count(stage(s).output_bytes + stage(s).transient_bytes);
  passing_.reset();
  if (input_written_) input_ = false;
  const Value output = {.stage = s, .bytes = stage(s).output_bytes};
  if (keep) {
    Push(output);
  } else {
    passing_ = output;
    passing_far_ = operation.far_end;
    // Nothing on the stack has this identity.
    Newest(s) = ++ids_;
  }
  ++result_.forwards;
  result_.time += stage(s).forward_time;
  return absl::OkStatus();
}

absl::Status Memory::Save(const Operation& operation) {
  const int s = operation.stage;
  if (!IsKept(s - 1)) return absl::FailedPreconditionError("its input is not kept");
  const SaveOption& option = stage(s).options.at(static_cast<size_t>(operation.option));
  Count(option.saved_bytes + option.forward_transient_bytes);
  Push({.stage = s, .option = operation.option, .bytes = option.saved_bytes});
  ++result_.forwards;
  result_.time += stage(s).forward_time;
  return absl::OkStatus();
}

absl::Status Memory::Backward(const Operation& operation) {
  const int s = operation.stage;
  if (s != backward_) return absl::FailedPreconditionError("another stage's is next");
  if (!IsKept(s - 1)) return absl::FailedPreconditionError("its input is not there");
  const SaveOption& option = stage(s).options.at(static_cast<size_t>(operation.option));
  Count(option.backward_transient_bytes);
  BRIGADE_RETURN_IF_ERROR(Pop(s, operation.option));
  --backward_;
  // What is kept, with the gradient of the input.
  Count(0);
  result_.time += option.backward_time;
  return absl::OkStatus();
}

absl::Status Memory::Run(const Operation& operation) {
  const int s = operation.stage;
  const bool forward =
      operation.action == Action::kForward || operation.action == Action::kForwardKeep;
  if (passing_.has_value() && !IsPassing(s - 1)) {
    return absl::FailedPreconditionError("what passes is for another stage");
  }
  if (passing_.has_value() && !forward && operation.action != Action::kWrite) {
    return absl::FailedPreconditionError("what passes is for a forward pass");
  }
  switch (operation.action) {
    case Action::kForward:
    case Action::kForwardKeep:
      return Forward(operation);
    case Action::kForwardSave:
      return Save(operation);
    case Action::kBackward:
      return Backward(operation);
    case Action::kDrop:
      // The read input of the chain has no bytes of its own.
      return Pop(s - 1, -1);
    case Action::kWrite:
      if (!IsPassing(s - 1) && (s > 0 || !input_)) {
        return absl::FailedPreconditionError("what it writes is not there");
      }
      if (!slow_tier_.insert(s).second) {
        return absl::FailedPreconditionError("it was written before");
      }
      input_written_ = s == 0;
      ++result_.writes;
      return absl::OkStatus();
    case Action::kFetch:
      if (slow_tier_.erase(s) == 0) {
        return absl::FailedPreconditionError("what it reads was not written, or was read before");
      }
      fetched_.insert(s);
      Count(0);
      return absl::OkStatus();
    case Action::kRead:
      if (fetched_.erase(s) == 0 && slow_tier_.erase(s) == 0) {
        return absl::FailedPreconditionError("what it reads was not written, or was read before");
      }
      Push({.stage = s - 1, .bytes = InputBytes(s)});
      Count(0);
      ++result_.reads;
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status Memory::CheckEnd() const {
  if (backward_ >= 0 || !stack_.empty() || passing_.has_value() || !slow_tier_.empty() ||
      !fetched_.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "at the end ", backward_ + 1, " stages have not gone backward, ", stack_.size(),
        " values are kept, ", slow_tier_.size() + fetched_.size(), " are written"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Simulation> Simulate(const Chain& chain, absl::Span<const Operation> operations) {
  Memory memory(chain);
  for (size_t o = 0; o < operations.size(); ++o) {
    const absl::Status status = memory.Run(operations[o]);
    if (!status.ok()) {
      return absl::FailedPreconditionError(absl::StrCat("operation ", o, ", ",
                                                        ToString(operations[o]), ": ",
                                                        status.message(), "\n", Text(operations)));
    }
  }
  BRIGADE_RETURN_IF_ERROR(memory.CheckEnd());
  return memory.result();
}

std::string Text(absl::Span<const Operation> operations) {
  std::string text;
  for (const Operation& operation : operations) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", ToString(operation));
  }
  return text;
}

}  // namespace brigade::recompute
