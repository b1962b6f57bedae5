#include "brigade/examples/gpt/transformer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/activations.h"
#include "brigade/examples/gpt/pass_times.h"
#include "brigade/parallel/tensor/row_pieces.h"

namespace brigade::gpt {

using recompute::Action;
using recompute::PlacedOperation;

int64_t Transformer::ActivationBytes(const PassShape& shape, const recompute::Schedule& schedule) {
  return schedule.arena_bytes + recompute::AlignedBytes(shape.residual_bytes());
}

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Create(
    const PassShape& shape, recompute::Schedule schedule, device::Context& context,
    const PassGroups& groups, const device::FileOptions* stash_file) {
  BRIGADE_RETURN_IF_ERROR(Validate(shape));
  std::unique_ptr<Transformer> transformer(new Transformer(shape, std::move(schedule)));
  BRIGADE_ASSIGN_OR_RETURN(transformer->memory_,
                           context.Allocate(ActivationBytes(shape, transformer->schedule_),
                                            device::Purpose::kActivations, "activations"));
  BRIGADE_ASSIGN_OR_RETURN(transformer->layers_, Layers::Create(shape, groups, context));
  if (transformer->schedule_.WrittenBytes() > 0) {
    BRIGADE_ASSIGN_OR_RETURN(
        transformer->stash_,
        recompute::Stash::Create(transformer->schedule_.written_bytes, context, stash_file));
  }
  return transformer;
}

absl::Status Transformer::Forward(const nn::Texts& texts, void* losses,
                                  const nn::DropoutMask& dropout, zero::ParameterSource& parameters,
                                  device::Stream& stream) {
  const Call call = {.texts = texts, .dropout = dropout, .losses = losses, .stream = stream};
  if (stash_ != nullptr) BRIGADE_RETURN_IF_ERROR(stash_->Begin(stream));
  for (size_t i = 0; i < schedule_.first_of_backward; ++i) {
    const PlacedOperation& placed = schedule_.operations[i];
    if (!Computes(placed.operation.action)) {
      BRIGADE_RETURN_IF_ERROR(Move(placed, stream));
      continue;
    }
    zero::UnitScope unit(parameters, placed.operation.stage, zero::Pass::kForward);
    BRIGADE_RETURN_IF_ERROR(Run(placed, call, unit));
    BRIGADE_RETURN_IF_ERROR(unit.Release());
  }
  return absl::OkStatus();
}

absl::Status Transformer::Backward(const nn::Texts& texts, const float* seed,
                                   const nn::DropoutMask& dropout,
                                   zero::ParameterSource& parameters, device::Stream& stream) {
  const Call call = {.texts = texts, .dropout = dropout, .seed = seed, .stream = stream};
  // Operations of one stage that follow each other use its weights once.
  std::optional<zero::UnitScope> unit;
  int used = -1;
  for (size_t i = schedule_.first_of_backward; i < schedule_.operations.size(); ++i) {
    const PlacedOperation& placed = schedule_.operations[i];
    const auto& [action, stage, option, far_end] = placed.operation;
    if (!Computes(action)) {
      BRIGADE_RETURN_IF_ERROR(Move(placed, stream));
      continue;
    }
    if (stage != used) {
      if (unit.has_value()) BRIGADE_RETURN_IF_ERROR(unit->Release());
      unit.emplace(parameters, stage, zero::Pass::kBackward);
      used = stage;
    }
    BRIGADE_RETURN_IF_ERROR(Run(placed, call, *unit));
    if (action != Action::kBackward) continue;
    BRIGADE_RETURN_IF_ERROR(unit->Release());
    unit.reset();
    used = -1;
    BRIGADE_RETURN_IF_ERROR(parameters.GradientsReady(stage));
  }
  return absl::OkStatus();
}

absl::Status Transformer::Move(const PlacedOperation& placed, device::Stream& stream) {
  const int stage = placed.operation.stage;
  switch (placed.operation.action) {
    case Action::kWrite:
      return stash_->Write(stage, At(placed.input), stream);
    case Action::kFetch:
      return stash_->Fetch(stage, At(placed.input), stream);
    case Action::kRead:
      return stash_->AwaitFetch(stage, stream);
    default:
      return absl::OkStatus();
  }
}

absl::Status Transformer::Run(const PlacedOperation& placed, const Call& call,
                              zero::UnitScope& unit) {
  const PassPart part = placed.operation.action == Action::kBackward ? PassPart::kBackward
                        : call.is_backward()                         ? PassPart::kRecompute
                                                                     : PassPart::kForward;
  BRIGADE_RETURN_IF_ERROR(MarkPart(part, placed.operation.stage, call.stream));
  BRIGADE_RETURN_IF_ERROR(Compute(placed, call, unit));
  return MarkEnd(call.stream);
}

absl::Status Transformer::Compute(const PlacedOperation& placed, const Call& call,
                                  zero::UnitScope& unit) {
  const auto& [action, stage, option, far_end] = placed.operation;
  if (placed.after_write != PlacedOperation::kNone) {
    BRIGADE_RETURN_IF_ERROR(stash_->AwaitWrite(placed.after_write, call.stream));
  }
  if (stage == 0) {
    return action == Action::kBackward ? BackwardEmbedding(placed, call, unit)
                                       : ForwardEmbedding(placed, call, unit);
  }
  if (stage == head()) {
    return action == Action::kBackward ? BackwardHead(placed, call, unit)
                                       : ForwardHead(placed, call, unit);
  }
  const int64_t layer = stage - 1;
  const void* const x = At(placed.input);
  switch (action) {
    case Action::kForward:
    case Action::kForwardKeep:
      return ForwardBlock(layer, x, layout_.Forward(At(placed.output), At(placed.transient)), call,
                          unit);
    case Action::kForwardSave:
      return ForwardBlock(layer, x, layout_.Forward(option, At(placed.saved), At(placed.transient)),
                          call, unit);
    default:
      return BackwardBlock(layer, kBlockSaveOptions[option], x,
                           layout_.Backward(option, At(placed.saved), At(placed.transient)), call,
                           unit);
  }
}

absl::Status Transformer::ForwardEmbedding(const PlacedOperation& placed, const Call& call,
                                           zero::UnitScope& unit) {
  const void* const tokens = unit.weights(kTokens);
  const void* const positions = unit.weights(kPositions);
  BRIGADE_RETURN_IF_ERROR(unit.status());
  void* const x = At(placed.output);
  BRIGADE_RETURN_IF_ERROR(layers_->Embedding(call.texts, tokens, positions, x, call.stream));
  if (call.dropout.probability == 0) return absl::OkStatus();
  return Dropout(call, kEmbeddingPlace, x, nullptr);
}

absl::Status Transformer::ForEachMask(
    const Call& call, uint32_t place,
    absl::FunctionRef<absl::Status(const nn::DropoutMask&, int64_t, int64_t)> visit) const {
  parallel::RowPieces pieces = shape_.Pieces();
  // Who has all rows has them in their order.
  if (!shape_.shares_rows()) pieces.pieces = 1;
  for (int p = 0; p < pieces.count(); ++p) {
    const parallel::RowRange own = pieces.Own(p);
    nn::DropoutMask mask = call.dropout;
    mask.layer = place;
    mask.first_element += pieces.OwnAmongAll(p).first * width();
    BRIGADE_RETURN_IF_ERROR(visit(mask, shape_.bytes_of(own.first * width()), own.count * width()));
  }
  return absl::OkStatus();
}

absl::Status Transformer::Dropout(const Call& call, uint32_t place, void* x, const void* residual) {
  return ForEachMask(
      call, place, [&](const nn::DropoutMask& mask, int64_t offset, int64_t elements) {
        void* const at = static_cast<char*>(x) + offset;
        const void* const added =
            residual == nullptr ? nullptr : static_cast<const char*>(residual) + offset;
        return nn::Dropout(shape_.dtype, elements, mask, at, added, at, call.stream);
      });
}

absl::Status Transformer::DropoutBackward(const Call& call, uint32_t place, const void* dy,
                                          void* dx) {
  return ForEachMask(call, place,
                     [&](const nn::DropoutMask& mask, int64_t offset, int64_t elements) {
                       return nn::DropoutBackward(shape_.dtype, elements, mask,
                                                  static_cast<const char*>(dy) + offset,
                                                  {static_cast<char*>(dx) + offset}, call.stream);
                     });
}

absl::Status Transformer::BackwardEmbedding(const PlacedOperation& placed, const Call& call,
                                            zero::UnitScope& unit) {
  const nn::Gradient dtokens = GradientOf(unit, kTokens);
  const nn::Gradient dpositions = GradientOf(unit, kPositions);
  BRIGADE_RETURN_IF_ERROR(unit.status());
  BRIGADE_ASSIGN_OR_RETURN(const void* const own, BranchGradient(call, kEmbeddingPlace, dx()));
  BRIGADE_ASSIGN_OR_RETURN(const void* const all,
                           layers_->GatherRows(own, At(placed.transient), call.stream));
  return layers_->EmbeddingBackward(call.texts, all, dtokens, dpositions, call.stream);
}

absl::Status Transformer::ForwardHead(const PlacedOperation& placed, const Call& call,
                                      zero::UnitScope& unit) {
  const void* const weight = unit.weights(HeadParameter(shape_.model, kFinalNormWeight));
  const void* const bias = unit.weights(HeadParameter(shape_.model, kFinalNormBias));
  const void* const tokens = unit.weights(kTokens);
  BRIGADE_RETURN_IF_ERROR(unit.status());
  const HeadMemory memory = PlaceHead(shape_, At(placed.saved), nullptr);
  BRIGADE_ASSIGN_OR_RETURN(
      const void* const norm,
      layers_->Norm(NormOf(At(placed.input), weight, memory.mean, memory.inverse), bias,
                    memory.norm, {}, call.stream));
  BRIGADE_RETURN_IF_ERROR(
      layers_->Column(norm, tokens, nullptr, nn::kVocabulary, memory.logits, call.stream));
  return layers_->CrossEntropy(call.texts, memory.logits, call.losses, call.stream);
}

absl::Status Transformer::BackwardHead(const PlacedOperation& placed, const Call& call,
                                       zero::UnitScope& unit) {
  const void* const weight = unit.weights(HeadParameter(shape_.model, kFinalNormWeight));
  const void* const tokens = unit.weights(kTokens);
  const nn::Gradient dweight = GradientOf(unit, HeadParameter(shape_.model, kFinalNormWeight));
  const nn::Gradient dbias = GradientOf(unit, HeadParameter(shape_.model, kFinalNormBias));
  const nn::Gradient dtokens = GradientOf(unit, kTokens);
  BRIGADE_RETURN_IF_ERROR(unit.status());
  const HeadMemory memory = PlaceHead(shape_, At(placed.saved), At(placed.transient));
  BRIGADE_RETURN_IF_ERROR(
      layers_->CrossEntropyBackward(call.texts, memory.logits, call.seed, call.stream));
  BRIGADE_RETURN_IF_ERROR(layers_->ColumnBackward(memory.norm, tokens, nn::kVocabulary,
                                                  memory.logits, memory.dwidth, dtokens, {},
                                                  call.stream));
  BRIGADE_RETURN_IF_ERROR(
      layers_->NormBackward(NormOf(At(placed.input), weight, memory.mean, memory.inverse),
                            memory.dwidth, {dx(), false}, dweight, dbias, 0, call.stream));
  return layers_->SumRowGradients({dweight, dbias}, call.stream);
}

}  // namespace brigade::gpt
