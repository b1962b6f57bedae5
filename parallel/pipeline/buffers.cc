#include "brigade/parallel/pipeline/buffers.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <queue>
#include <utility>

namespace brigade::parallel {
namespace {

constexpr int kAbsent = ListIndex::kAbsent;

// Where on its list a stage has what for one chunk and one micro-batch.
class Positions {
 public:
  Positions(const PipelineShape& shape, int stage, const ListIndex& index)
      : shape_(shape), stage_(stage), index_(index) {}

  int Forward(int chunk, int i) const { return At(ItemKind::kForward, chunk, i); }
  // Of the pass that makes the gradient of the input.
  int Backward(int chunk, int i) const {
    const int whole = At(ItemKind::kBackward, chunk, i);
    return whole != kAbsent ? whole : At(ItemKind::kBackwardInput, chunk, i);
  }
  // Of the pass after which nothing of the chunk's activations is read.
  int Last(int chunk, int i) const {
    const int weight = At(ItemKind::kBackwardWeight, chunk, i);
    return weight != kAbsent ? weight : Backward(chunk, i);
  }
  int At(ItemKind kind, int chunk, int i) const { return index_.PositionOf({kind, chunk, i}); }

  // Of what comes from the neighbouring part: received, or computed by another chunk of the stage.
  int Input(int chunk, int i) const {
    const int received = At(ItemKind::kReceiveActivation, chunk, i);
    return received != kAbsent ? received : Forward(ChunkOf(Part(chunk) - 1), i);
  }
  int OutputGradient(int chunk, int i) const {
    const int received = At(ItemKind::kReceiveGradient, chunk, i);
    return received != kAbsent ? received : Backward(ChunkOf(Part(chunk) + 1), i);
  }

  bool IsFirst(int chunk) const { return Part(chunk) == 0; }
  bool IsLast(int chunk) const { return Part(chunk) == shape_.parts() - 1; }

 private:
  int Part(int chunk) const { return PartOf(shape_, stage_, chunk); }
  int ChunkOf(int part) const { return PlaceOf(shape_, part).chunk; }

  const PipelineShape& shape_;
  const int stage_;
  const ListIndex& index_;
};

// A buffer's use, from one item of the list to another, both included.
struct Use {
  int first = 0, last = 0;
  int* number = nullptr;
};

// Gives each use the buffer that has been free the longest, of as few as there can be and of these
// more; returns how many there are.
int64_t Assign(std::vector<Use> uses, int64_t more) {
  std::sort(uses.begin(), uses.end(), [](const Use& a, const Use& b) { return a.first < b.first; });
  std::vector<int> ends;
  for (const Use& use : uses) ends.push_back(use.last);
  std::sort(ends.begin(), ends.end());
  int64_t most = 0;
  size_t ended = 0;
  for (size_t begun = 0; begun < uses.size(); ++begun) {
    while (ends[ended] < uses[begun].first) ++ended;
    most = std::max(most, static_cast<int64_t>(begun + 1 - ended));
  }
  const int64_t count = std::min(most + more, static_cast<int64_t>(uses.size()));
  std::deque<int> free;
  for (int number = 0; number < count; ++number) free.push_back(number);
  // By where the use ends.
  using Ending = std::pair<int, int>;
  std::priority_queue<Ending, std::vector<Ending>, std::greater<Ending>> in_use;
  for (const Use& use : uses) {
    for (; !in_use.empty() && in_use.top().first < use.first; in_use.pop()) {
      free.push_back(in_use.top().second);
    }
    *use.number = free.front();
    free.pop_front();
    in_use.push({use.last, *use.number});
  }
  return count;
}

}  // namespace

BufferPlan::BufferPlan(const PipelineSchedule& schedule, int stage, const ListIndex& index,
                       int spare)
    : micro_batches_(schedule.shape.micro_batches) {
  const int chunks = schedule.shape.schedule.chunks;
  passes_.resize(static_cast<size_t>(chunks) * static_cast<size_t>(micro_batches_));
  const Positions at(schedule.shape, stage, index);
  std::vector<Use> activations, inputs, outputs, output_gradients, input_gradients, deferred;
  for (int chunk = 0, pass = 0; chunk < chunks; ++chunk) {
    for (int i = 0; i < micro_batches_; ++i, ++pass) {
      PassBuffers& its = passes_[static_cast<size_t>(pass)];
      const int forward = at.Forward(chunk, i), backward = at.Backward(chunk, i),
                last = at.Last(chunk, i);
      activations.push_back({forward, last, &its.activations});
      if (!at.IsFirst(chunk)) inputs.push_back({at.Input(chunk, i), last, &its.inputs});
      if (!at.IsLast(chunk)) {
        output_gradients.push_back({at.OutputGradient(chunk, i), last, &its.output_gradients});
      }
      const int sent = at.At(ItemKind::kSendActivation, chunk, i);
      if (sent != kAbsent) outputs.push_back({forward, sent, &its.outputs});
      const int gradient_sent = at.At(ItemKind::kSendGradient, chunk, i);
      if (gradient_sent != kAbsent) {
        input_gradients.push_back({backward, gradient_sent, &its.input_gradients});
      }
      if (last != backward) deferred.push_back({backward, last, &its.deferred});
    }
  }
  counts_ = {.activations = Assign(std::move(activations), 0),
             .inputs = Assign(std::move(inputs), 0),
             .outputs = Assign(std::move(outputs), spare),
             .output_gradients = Assign(std::move(output_gradients), 0),
             .input_gradients = Assign(std::move(input_gradients), spare),
             .deferred = Assign(std::move(deferred), 0)};
}

}  // namespace brigade::parallel
