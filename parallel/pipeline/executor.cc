#include "brigade/parallel/pipeline/executor.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/agree.h"
#include "brigade/collectives/bootstrap/job.h"
#include "brigade/device/status_macros.h"
#include "brigade/parallel/pipeline/check.h"
#include "brigade/parallel/pipeline/list_index.h"
#include "brigade/precision/dtype_names.h"

namespace brigade::parallel {
namespace {

using internal::PipelineWait;

// At which device memory begins.
constexpr int64_t kAlignmentBytes = 256;
// What a stage computes need not wait until the last of its kind is sent.
constexpr int kSpareBuffers = 1;

int64_t AlignedBytes(const BoundaryShape& boundary) {
  return (boundary.bytes() + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

int64_t BoundariesOf(const StageBuffers& buffers) {
  return buffers.inputs + buffers.outputs + buffers.output_gradients + buffers.input_gradients;
}

// All that ranks must have in common.
std::string TextOf(const PipelineSchedule& schedule, const BoundaryShape& boundary) {
  std::string text = absl::StrCat(ToString(schedule.shape.schedule), ", ", schedule.shape.stages,
                                  " stages, ", schedule.shape.micro_batches, " micro-batches of ",
                                  boundary.elements, " ", precision::ShortName(boundary.dtype));
  for (const StageList& list : schedule.lists) {
    absl::StrAppend(&text, "\n", ToString(schedule, list));
  }
  return text;
}

absl::Status AgreeOnText(const std::string& text, collectives::Communicator& world) {
  const std::string digest = collectives::DigestOf(text);
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                           collectives::AllGatherBytes(digest, world));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "pipeline: rank ", rank, " has other lists than rank 0, or boundaries of another shape: ",
        "this rank's are of ", text.substr(0, text.find('\n'))));
  }
  return absl::OkStatus();
}

absl::Status CheckFits(const PipelineSchedule& schedule, const BoundaryShape& boundary,
                       const Grid& grid) {
  if (schedule.shape.stages != grid.shape().pipeline) {
    return absl::InvalidArgumentError(absl::StrCat("pipeline: a schedule of ",
                                                   schedule.shape.stages, " stages for a grid of ",
                                                   ToString(grid.shape())));
  }
  if (boundary.elements < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("pipeline: boundaries of ", boundary.elements, " elements"));
  }
  return Check(schedule).status();
}

}  // namespace

PipelineExecutor::PipelineExecutor(PipelineSchedule schedule, const BoundaryShape& boundary,
                                   BufferPlan plan, int stage, Channels channels,
                                   device::Stream& compute)
    : schedule_(std::move(schedule)),
      boundary_(boundary),
      plan_(std::move(plan)),
      stage_(stage),
      compute_(compute),
      channels_(std::move(channels)) {}

absl::StatusOr<std::unique_ptr<PipelineExecutor>> PipelineExecutor::Create(
    PipelineSchedule schedule, const BoundaryShape& boundary, Grid& grid, device::Context& context,
    device::Stream& compute) {
  BRIGADE_RETURN_IF_ERROR(
      collectives::AgreeOnStatus(CheckFits(schedule, boundary, grid), grid.world()));
  BRIGADE_RETURN_IF_ERROR(AgreeOnText(TextOf(schedule, boundary), grid.world()));
  const int stage = grid.coordinates().pipeline;
  BRIGADE_ASSIGN_OR_RETURN(const ListIndex index, ListIndex::Create(schedule, stage));
  BufferPlan plan(schedule, stage, index, kSpareBuffers);
  BRIGADE_ASSIGN_OR_RETURN(Channels channels, Channels::Create(schedule, grid, context));
  std::unique_ptr<PipelineExecutor> self(new PipelineExecutor(
      std::move(schedule), boundary, std::move(plan), stage, std::move(channels), compute));
  BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnStatus(self->Allocate(context), grid.world()));
  return self;
}

absl::StatusOr<StageBuffers> PipelineExecutor::BuffersOf(const PipelineSchedule& schedule,
                                                         int stage) {
  BRIGADE_ASSIGN_OR_RETURN(const ListIndex index, ListIndex::Create(schedule, stage));
  return BufferPlan(schedule, stage, index, kSpareBuffers).counts();
}

int64_t PipelineExecutor::Bytes(const StageBuffers& buffers, const BoundaryShape& boundary) {
  return BoundariesOf(buffers) * AlignedBytes(boundary);
}

absl::Status PipelineExecutor::Allocate(device::Context& context) {
  const StageBuffers& counts = plan_.counts();
  BRIGADE_ASSIGN_OR_RETURN(memory_,
                           context.Allocate(Bytes(counts, boundary_), device::Purpose::kActivations,
                                            "boundaries of the pipeline"));
  char* data = memory_.as<char>().data();
  const auto add = [&](const char* what, int64_t count,
                       std::vector<Buffer>& buffers) -> absl::Status {
    for (int64_t b = 0; b < count; ++b) {
      Buffer buffer = {.data = data};
      data += AlignedBytes(boundary_);
      BRIGADE_ASSIGN_OR_RETURN(buffer.filled,
                               context.CreateEvent(absl::StrCat(what, " ", b, " filled")));
      BRIGADE_ASSIGN_OR_RETURN(buffer.emptied,
                               context.CreateEvent(absl::StrCat(what, " ", b, " emptied")));
      buffers.push_back(std::move(buffer));
    }
    return absl::OkStatus();
  };
  BRIGADE_RETURN_IF_ERROR(add("input", counts.inputs, inputs_));
  BRIGADE_RETURN_IF_ERROR(add("output", counts.outputs, outputs_));
  BRIGADE_RETURN_IF_ERROR(add("output gradient", counts.output_gradients, output_gradients_));
  BRIGADE_RETURN_IF_ERROR(add("input gradient", counts.input_gradients, input_gradients_));
  if (memory_.bytes() == 0) return absl::OkStatus();
  for (Channel& channel : channels_.all()) {
    BRIGADE_ASSIGN_OR_RETURN(auto registration,
                             channel.communicator->Register(memory_.data(), memory_.bytes()));
    registrations_.push_back(std::move(registration));
  }
  return absl::OkStatus();
}

int64_t PipelineExecutor::SentInStep() const {
  int64_t bytes = 0;
  for (const PipelineItem& item : list()) bytes += IsSend(item.kind) ? boundary_.bytes() : 0;
  return bytes;
}

absl::Status PipelineExecutor::Run(StageModule& module) {
  for (const PipelineItem& item : list()) {
    BRIGADE_RETURN_IF_ERROR(RunItem(item, /*is_step=*/true, module));
  }
  return absl::OkStatus();
}

absl::Status PipelineExecutor::RunForward(StageModule& module) {
  for (const PipelineItem& item : list()) {
    if (item.kind != ItemKind::kForward && item.kind != ItemKind::kSendActivation &&
        item.kind != ItemKind::kReceiveActivation) {
      continue;
    }
    BRIGADE_RETURN_IF_ERROR(RunItem(item, /*is_step=*/false, module));
  }
  return absl::OkStatus();
}

absl::Status PipelineExecutor::Synchronize() {
  absl::Status status = compute_.Synchronize();
  for (Channel& channel : channels_.all()) {
    status.Update(channel.communicator->Synchronize(*channel.stream));
  }
  return status;
}

absl::Status PipelineExecutor::RunItem(const PipelineItem& item, bool is_step,
                                       StageModule& module) {
  const absl::Status status = IsTransfer(item.kind) ? Transfer(item)
                              : IsComputation(item.kind)
                                  ? Compute(item, is_step, module)
                                  : module.Collective(item.micro_batch, compute_);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("pipeline: ", ToString(schedule_, item),
                                                  " on stage ", stage_, ": ", status.message()));
}

absl::Status PipelineExecutor::Wait(PipelineWait point, device::Event& event,
                                    device::Stream& waiter) {
  return omitted_ == point ? absl::OkStatus() : waiter.Wait(event);
}

PipelineExecutor::Buffer* PipelineExecutor::Find(std::vector<Buffer>& buffers, int number) {
  return number == PassBuffers::kNone ? nullptr : &buffers[static_cast<size_t>(number)];
}

PipelineExecutor::Buffer* PipelineExecutor::Output(int chunk, int micro_batch) {
  if (const int own = plan_.Of(chunk, micro_batch).outputs; own != PassBuffers::kNone) {
    return &outputs_[static_cast<size_t>(own)];
  }
  const int next = PartOf(schedule_.shape, stage_, chunk) + 1;
  if (next == schedule_.shape.parts()) return nullptr;
  return Find(inputs_, plan_.Of(PlaceOf(schedule_.shape, next).chunk, micro_batch).inputs);
}

PipelineExecutor::Buffer* PipelineExecutor::InputGradient(int chunk, int micro_batch) {
  if (const int own = plan_.Of(chunk, micro_batch).input_gradients; own != PassBuffers::kNone) {
    return &input_gradients_[static_cast<size_t>(own)];
  }
  const int before = PartOf(schedule_.shape, stage_, chunk) - 1;
  if (before < 0) return nullptr;
  return Find(output_gradients_,
              plan_.Of(PlaceOf(schedule_.shape, before).chunk, micro_batch).output_gradients);
}

absl::Status PipelineExecutor::Compute(const PipelineItem& item, bool is_step,
                                       StageModule& module) {
  const auto [kind, chunk, i] = item;
  const PassBuffers& own = plan_.Of(chunk, i);
  const bool is_forward = kind == ItemKind::kForward;
  const bool is_last = !is_step || kind == ItemKind::kBackward || kind == ItemKind::kBackwardWeight;
  Buffer* const input = Find(inputs_, own.inputs);
  Buffer* const gradient = Find(output_gradients_, own.output_gradients);
  Buffer* const result = is_forward                          ? Output(chunk, i)
                         : kind == ItemKind::kBackwardWeight ? nullptr
                                                             : InputGradient(chunk, i);
  // What this pass is the first to read, if it comes from another stage.
  const PipelineItem receive = {
      is_forward ? ItemKind::kReceiveActivation : ItemKind::kReceiveGradient, chunk, i};
  if (kind != ItemKind::kBackwardWeight && PeerOf(schedule_.shape, stage_, receive).has_value()) {
    Buffer& received = is_forward ? *input : *gradient;
    BRIGADE_RETURN_IF_ERROR(Wait(PipelineWait::kReceived, *received.filled, compute_));
  }
  const bool is_sent =
      result != nullptr && (is_forward ? own.outputs : own.input_gradients) != PassBuffers::kNone;
  if (is_sent && result->was_used) {
    BRIGADE_RETURN_IF_ERROR(Wait(PipelineWait::kSent, *result->emptied, compute_));
  }
  StagePass pass = {.chunk = chunk, .micro_batch = i, .activations = own.activations};
  if (input != nullptr) pass.input = input->data;
  if (gradient != nullptr && !is_forward) pass.output_gradient = gradient->data;
  if (result != nullptr) (is_forward ? pass.output : pass.input_gradient) = result->data;
  if (kind == ItemKind::kBackwardInput || kind == ItemKind::kBackwardWeight) {
    pass.deferred = own.deferred;
  }
  BRIGADE_RETURN_IF_ERROR(Call(kind, pass, module));
  if (is_sent) BRIGADE_RETURN_IF_ERROR(compute_.Record(*result->filled));
  if (!is_last) return absl::OkStatus();
  for (Buffer* const read : {input, is_forward ? nullptr : gradient}) {
    if (read == nullptr) continue;
    BRIGADE_RETURN_IF_ERROR(compute_.Record(*read->emptied));
    read->was_used = true;
  }
  return absl::OkStatus();
}

absl::Status PipelineExecutor::Call(ItemKind kind, const StagePass& pass, StageModule& module) {
  switch (kind) {
    case ItemKind::kForward:
      return module.Forward(pass, compute_);
    case ItemKind::kBackward:
      return module.Backward(pass, compute_);
    case ItemKind::kBackwardInput:
      return module.BackwardInput(pass, compute_);
    default:
      return module.BackwardWeight(pass, compute_);
  }
}

absl::Status PipelineExecutor::Transfer(const PipelineItem& item) {
  const PassBuffers& own = plan_.Of(item.chunk, item.micro_batch);
  Channel& channel = channels_.Of(item);
  device::Stream& stream = *channel.stream;
  const int peer = channel.RankOf(PeerOf(schedule_.shape, stage_, item)->stage);
  if (IsSend(item.kind)) {
    Buffer& buffer = item.kind == ItemKind::kSendActivation
                         ? *Find(outputs_, own.outputs)
                         : *Find(input_gradients_, own.input_gradients);
    BRIGADE_RETURN_IF_ERROR(Wait(PipelineWait::kComputed, *buffer.filled, stream));
    BRIGADE_RETURN_IF_ERROR(
        channel.communicator->Send(buffer.data, boundary_.elements, boundary_.dtype, peer, stream));
    buffer.was_used = true;
    return stream.Record(*buffer.emptied);
  }
  Buffer& buffer = item.kind == ItemKind::kReceiveActivation
                       ? *Find(inputs_, own.inputs)
                       : *Find(output_gradients_, own.output_gradients);
  if (buffer.was_used) {
    BRIGADE_RETURN_IF_ERROR(Wait(PipelineWait::kRead, *buffer.emptied, stream));
  }
  BRIGADE_RETURN_IF_ERROR(channel.communicator->Receive(buffer.data, boundary_.elements,
                                                        boundary_.dtype, peer, stream));
  return stream.Record(*buffer.filled);
}

}  // namespace brigade::parallel
