// Where a pass of a decoder has its arrays, of the whole model or of a chunk of a pipeline's stage;
// and what the first half of a backward pass leaves to the second.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/models/decoder.h"
#include "brigade/nn/pointwise.h"

namespace brigade::models {

absl::Status Decoder::CheckChunk(int unit, const ChunkPass& chunk, bool trains) const {
  const auto invalid = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("a pass over unit ", unit, ": ", what...));
  };
  if (unit < 0 || unit > head_unit()) return invalid("the model has ", head_unit() + 1);
  const parallel::StageRange whole = {0, head_unit() + 1};
  if (!options_.stage.has_value()) {
    const bool is_whole = chunk.units.size() == 0 || chunk.units == whole;
    if (is_whole && chunk.slot == 0 && chunk.half == BackwardHalf::kBoth) return absl::OkStatus();
    return invalid("of a chunk, by a model that is no stage's");
  }
  const StageUnits& stage = *options_.stage;
  if (unit < chunk.units.first || unit >= chunk.units.end ||
      std::find(stage.chunks.begin(), stage.chunks.end(), chunk.units) == stage.chunks.end()) {
    return invalid("the units ", chunk.units.first, " to ", chunk.units.end,
                   " with it are no chunk of the stage");
  }
  const int slots = static_cast<int>(memory_.slots.size());
  if (chunk.slot < 0 || chunk.slot >= slots) return invalid("slot ", chunk.slot, " of ", slots);
  // Without backward passes there are none.
  const int deferred = static_cast<int>(memory_.deferred.size());
  if (chunk.half != BackwardHalf::kBoth && (chunk.deferred < 0 || chunk.deferred >= deferred)) {
    return invalid("slot ", chunk.deferred, " of ", deferred, " for a half of it");
  }
  const bool begins = chunk.units.first == 0, ends = chunk.units.end == whole.end;
  if (chunk.half == BackwardHalf::kWeights) return absl::OkStatus();
  if (!begins && chunk.input == nullptr) return invalid("a chunk without its input");
  if (!trains) {
    return ends || chunk.output != nullptr ? absl::OkStatus()
                                           : invalid("a chunk without memory for its output");
  }
  if (!ends && chunk.output_gradient == nullptr) {
    return invalid("a chunk without the gradient of its output");
  }
  return begins || chunk.input_gradient != nullptr
             ? absl::OkStatus()
             : invalid("a chunk without memory for the gradient of its input");
}

Decoder::Call Decoder::CallOf(int unit, const Batch& batch, const nn::TokenIds& ids,
                              const nn::Segments& segments, UnitParameters& parameters,
                              device::Stream& stream) const {
  const ChunkPass& chunk = batch.chunk;
  Call call = {batch, ids, segments, parameters, stream, unit - 1};
  call.slot = &memory_.slots[static_cast<size_t>(chunk.slot)];
  if (chunk.half != BackwardHalf::kBoth) {
    call.deferred = &memory_.deferred[static_cast<size_t>(chunk.deferred)];
  }
  call.dx = chunk.input_gradient != nullptr    ? chunk.input_gradient
            : chunk.output_gradient != nullptr ? chunk.output_gradient
                                               : memory_.dx;
  return call;
}

const void* Decoder::InputOf(const Call& call) const {
  if (call.batch.chunk.is_first(call.layer + 1)) return call.batch.chunk.input;
  return call.slot->streams[static_cast<size_t>(call.layer)];
}

void* Decoder::OutputOf(const Call& call) const {
  if (call.batch.chunk.is_last(call.layer + 1)) return call.batch.chunk.output;
  return call.slot->streams[static_cast<size_t>(call.layer) + 1];
}

const BlockArrays& Decoder::ArraysOf(const Call& call) const {
  // With adapters the second half computes nothing of a block.
  const bool are_deferred =
      call.deferred != nullptr && options_.recompute && !options_.lora.has_value();
  return (are_deferred ? call.deferred->blocks
                       : call.slot->blocks)[static_cast<size_t>(call.layer)];
}

BlockGradients Decoder::GradientsOf(const Call& call) const {
  // With adapters nothing is left for the second half but what the first has made.
  if (call.deferred != nullptr && !options_.lora.has_value()) {
    return call.deferred->gradients[static_cast<size_t>(call.layer)];
  }
  BlockGradients gradients = memory_.gradients;
  gradients.dout = gradients.dmiddle = call.dx;
  return gradients;
}

absl::Status Decoder::Keep(const Call& call, void* gradient) {
  if (!call.computes_inputs() || gradient == call.dx) return absl::OkStatus();
  return call.stream.Copy(gradient, call.dx, Bytes(call.rows() * config_.width));
}

nn::Gradient Decoder::GradientOfFirstHalf(const Call& call, int parameter) const {
  if (call.deferred == nullptr) return call.parameters.gradient(parameter);
  if (parameter < 0) return {};
  return {call.deferred->parameters[static_cast<size_t>(parameter)]};
}

absl::Status Decoder::DeliverGradients(const Call& call) {
  const int unit = call.layer + 1, first = FirstParameter(unit);
  const std::vector<zero::ParameterSpec>& specs = spec()[static_cast<size_t>(unit)].parameters;
  for (size_t i = 0; i < specs.size(); ++i) {
    const int parameter = first + static_cast<int>(i);
    const void* const made = call.deferred->parameters[static_cast<size_t>(parameter)];
    if (made == nullptr) continue;
    const nn::Gradient to = call.parameters.gradient(parameter);
    BRIGADE_RETURN_IF_ERROR(call.parameters.status());
    BRIGADE_RETURN_IF_ERROR(to.accumulate ? nn::AddBias({dtype(), 1, specs[i].size}, to.data, made,
                                                        nullptr, call.stream)
                                          : call.stream.Copy(to.data, made, Bytes(specs[i].size)));
  }
  return absl::OkStatus();
}

}  // namespace brigade::models
