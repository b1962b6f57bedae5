#ifndef BRIGADE_TRAIN_TIMES_PASS_TIMES_H_
#define BRIGADE_TRAIN_TIMES_PASS_TIMES_H_

// How long the parts of a model's passes take, from what a tracer has seen: whoever enqueues a pass
// marks where its parts begin, and nobody waits for anything.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/device/tracing/tracer.h"
#include "brigade/parallel/pipeline/item.h"

namespace brigade::train {

enum class PassPart : uint8_t {
  kForward,
  // A backward pass without what it makes again; and its halves where it is split, the gradients of
  // inputs and of weights.
  kBackward,
  kBackwardInput,
  kBackwardWeight,
  // What it makes again: a whole stage; or of a transformer's block what it has not saved.
  kRecompute,
  kRecomputePointwise,
  kRecomputeMiddle,
  kRecomputeQkv,
  kRecomputeExpanded,
  kRecomputeAttention,
};
inline constexpr int kPassParts = 10;

// What the stream does from here on, until the next mark, is this part of the passes of a stage
// (recompute::Chain): enqueues an operation that does nothing, "forward 3", "recompute middle 3".
absl::Status MarkPart(PassPart part, int stage, device::Stream& stream);
// From here on it is no part of a pass.
absl::Status MarkEnd(device::Stream& stream);

// What the stream does from here on, until the next such mark, is this computation of a pipeline's
// stage: "pass F5'" for the forward pass of micro-batch 5 in chunk 1, as schedules' lists have it
// (parallel/pipeline/item.h). For those who look at a trace; parts have marks of their own.
absl::Status MarkPass(const parallel::PipelineItem& computation, device::Stream& stream);
// From here on it is none.
absl::Status MarkPassEnd(device::Stream& stream);
// "F5'" of such a mark, nothing of an end; nullopt of other operations.
std::optional<absl::string_view> PassOfMark(absl::string_view name);

// The stream, on which passes run, is in the next step from here on. Marks have no number: a tracer
// keeps each name that it has seen.
absl::Status MarkStep(device::Stream& stream);
// What follows is no part of the step: for those who want to know where one ends that a save or an
// evaluation comes behind.
absl::Status MarkStepEnd(device::Stream& stream);
// Whether an operation of this name is such a mark.
bool IsStepMark(absl::string_view name);
bool IsStepEnd(absl::string_view name);

// Seconds in which operations ran.
struct PassSeconds {
  // [PassPart].
  std::array<double, kPassParts> parts = {};

  double operator[](PassPart part) const { return parts[static_cast<size_t>(part)]; }
  double& operator[](PassPart part) { return parts[static_cast<size_t>(part)]; }
  // Without what is made again: the backward pass, whole or in halves, and both passes.
  double backward() const {
    return (*this)[PassPart::kBackward] + (*this)[PassPart::kBackwardInput] +
           (*this)[PassPart::kBackwardWeight];
  }
  double once() const { return (*this)[PassPart::kForward] + backward(); }
  double recompute() const;
  PassSeconds& operator+=(const PassSeconds& other);
};

// Adds up the parts of one rank's passes as its operations come in, from any number of streams.
// Waits for events, and collectives, do not count.
//
// Precision    Counted in nanoseconds, exactly.
// Threads      One at a time.
class PassTimes {
 public:
  // A stream's next operations, in order of time.
  void Add(int stream, absl::Span<const device::TracedOperation> operations);

  // [stage]: up to the last one that was marked.
  std::vector<PassSeconds> Stages() const;

  // Of the model's stages; kNone: in no pass.
  static constexpr int kNone = -1;
  struct Place {
    PassPart part = PassPart::kForward;
    int stage = kNone;
  };

  // The place from an operation of this name on, if it is a mark of MarkPart or MarkEnd.
  static std::optional<Place> MarkOf(absl::string_view name);

 private:
  // [stream]: where it is.
  std::vector<Place> places_;
  // [stage][part].
  std::vector<std::array<int64_t, kPassParts>> ns_;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_TIMES_PASS_TIMES_H_
