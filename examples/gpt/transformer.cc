#include "brigade/examples/gpt/transformer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/activations.h"
#include "brigade/parallel/tensor/row_pieces.h"

namespace brigade::gpt {

using recompute::Action;
using recompute::PlacedOperation;

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Create(
    const PassShape& shape, PartPlan plan, device::Context& context, const PassGroups& groups,
    const device::FileOptions* stash_file) {
  BRIGADE_RETURN_IF_ERROR(Validate(shape));
  std::unique_ptr<Transformer> transformer(new Transformer(shape, std::move(plan)));
  BRIGADE_ASSIGN_OR_RETURN(transformer->memory_,
                           context.Allocate(ActivationBytes(shape, transformer->plan_),
                                            device::Purpose::kActivations, "activations"));
  BRIGADE_ASSIGN_OR_RETURN(transformer->layers_, Layers::Create(shape, groups, context));
  if (transformer->plan_.WrittenBytes() == 0) return transformer;
  for (int slot = 0; slot < transformer->plan_.slots.activations; ++slot) {
    BRIGADE_ASSIGN_OR_RETURN(
        auto stash,
        recompute::Stash::Create(transformer->plan_.written_bytes(), context, stash_file));
    transformer->stashes_.push_back(std::move(stash));
  }
  return transformer;
}

recompute::StashMovement Transformer::stashed() const {
  recompute::StashMovement sum;
  for (const auto& stash : stashes_) {
    sum.to_host += stash->movement().to_host;
    sum.from_host += stash->movement().from_host;
    sum.file_read += stash->movement().file_read;
    sum.file_written += stash->movement().file_written;
  }
  return sum;
}

nn::Gradient Transformer::StageUnit::gradient(int parameter) {
  if (!status().ok()) return {};
  const absl::StatusOr<zero::GradientTarget> target =
      source_.Gradient(unit_, part_.ParameterOf(parameter));
  status_ = target.status();
  return target.ok() ? nn::Gradient{target->data, target->accumulate} : nn::Gradient();
}

absl::Status Transformer::StageUnit::status() const {
  return status_.ok() && scope_ != nullptr ? scope_->status() : status_;
}

absl::Status Transformer::Check(const Call& call) const {
  const parallel::StagePass& pass = call.pass;
  const auto invalid = [](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("a pass of the model's part: ", what...));
  };
  if (pass.chunk < 0 || static_cast<size_t>(pass.chunk) >= plan_.schedules.size()) {
    return invalid("chunk ", pass.chunk, " of ", plan_.schedules.size());
  }
  if (pass.activations < 0 || pass.activations >= plan_.slots.activations) {
    return invalid("activations ", pass.activations, " of ", plan_.slots.activations);
  }
  const bool is_half = call.kind == Kind::kBackwardInput || call.kind == Kind::kBackwardWeight;
  if (is_half ? pass.deferred < 0 || pass.deferred >= plan_.slots.deferred
              : call.kind == Kind::kBackward && plan_.slots.splits_backward()) {
    return invalid("deferred slot ", pass.deferred, " of ", plan_.slots.deferred);
  }
  if (!call.computes_inputs()) return absl::OkStatus();
  const auto check = [&](const void* array, bool is_needed, const char* name) {
    if ((array != nullptr) == is_needed) return absl::OkStatus();
    return invalid("chunk ", pass.chunk, is_needed ? " needs its " : " has no ", name);
  };
  const bool is_forward = call.kind == Kind::kForward;
  BRIGADE_RETURN_IF_ERROR(check(pass.input, !BeginsModel(call), "input"));
  if (is_forward) {
    BRIGADE_RETURN_IF_ERROR(check(pass.output, !EndsModel(call), "output"));
    return EndsModel(call) ? check(call.losses, true, "losses") : absl::OkStatus();
  }
  BRIGADE_RETURN_IF_ERROR(check(pass.output_gradient, !EndsModel(call), "output's gradient"));
  BRIGADE_RETURN_IF_ERROR(check(pass.input_gradient, !BeginsModel(call), "input's gradient"));
  return EndsModel(call) ? check(call.seed, true, "seed") : absl::OkStatus();
}

char* Transformer::At(const Call& call, int64_t offset) {
  char* const arena = memory_.as<char>().data();
  const recompute::Schedule& schedule = ScheduleOf(call);
  if (offset >= schedule.kept_bytes && offset < schedule.kept_bytes + schedule.arena_bytes) {
    return arena + offset - schedule.kept_bytes;
  }
  char* const slots = arena + ActivationBytes(shape_, plan_) -
                      plan_.slots.activations * plan_.kept_bytes() -
                      plan_.slots.deferred * plan_.deferred_bytes();
  if (offset < schedule.kept_bytes) {
    return slots + call.pass.activations * plan_.kept_bytes() + offset;
  }
  return slots + plan_.slots.activations * plan_.kept_bytes() +
         call.pass.deferred * plan_.deferred_bytes() + offset - schedule.kept_bytes -
         schedule.arena_bytes;
}

const void* Transformer::InputOf(const PlacedOperation& placed, const Call& call) {
  return placed.operation.stage == 0 ? call.pass.input : At(call, placed.input);
}

void* Transformer::OutputOf(const PlacedOperation& placed, const Call& call) {
  if (!WritesOutput(placed, call)) return At(call, placed.output);
  return call.kind == Kind::kForward ? call.pass.output : nullptr;
}

absl::Status Transformer::AwaitCopies(const Call& call) {
  return copying_ == nullptr ? absl::OkStatus() : copying_->Begin(call.stream);
}

absl::Status Transformer::Forward(const parallel::StagePass& pass, const nn::Texts& texts,
                                  void* losses, const nn::DropoutMask& dropout,
                                  zero::ParameterSource& parameters, device::Stream& stream) {
  const Call call = {.kind = Kind::kForward,
                     .pass = pass,
                     .texts = texts,
                     .dropout = dropout,
                     .losses = losses,
                     .parameters = parameters,
                     .stream = stream};
  BRIGADE_RETURN_IF_ERROR(Check(call));
  BRIGADE_RETURN_IF_ERROR(AwaitCopies(call));
  copying_ = StashOf(call);
  const recompute::Schedule& schedule = ScheduleOf(call);
  const int first_unit = plan_.part.UnitOf(StagesOf(call).first);
  for (size_t i = 0; i < schedule.first_of_backward; ++i) {
    const PlacedOperation& placed = schedule.operations[i];
    if (!Computes(placed.operation.action)) {
      BRIGADE_RETURN_IF_ERROR(Move(placed, call));
      continue;
    }
    if (IsElsewhere(placed, call)) continue;
    zero::UnitScope unit(parameters, first_unit + placed.operation.stage, zero::Pass::kForward);
    BRIGADE_RETURN_IF_ERROR(Run(placed, call, &unit));
    BRIGADE_RETURN_IF_ERROR(unit.Release());
  }
  return absl::OkStatus();
}

absl::Status Transformer::Backward(const parallel::StagePass& pass, const nn::Texts& texts,
                                   const float* seed, const nn::DropoutMask& dropout,
                                   zero::ParameterSource& parameters, device::Stream& stream) {
  return RunBackward({.kind = Kind::kBackward,
                      .pass = pass,
                      .texts = texts,
                      .dropout = dropout,
                      .seed = seed,
                      .parameters = parameters,
                      .stream = stream});
}

absl::Status Transformer::BackwardInput(const parallel::StagePass& pass, const nn::Texts& texts,
                                        const float* seed, const nn::DropoutMask& dropout,
                                        zero::ParameterSource& parameters, device::Stream& stream) {
  return RunBackward({.kind = Kind::kBackwardInput,
                      .pass = pass,
                      .texts = texts,
                      .dropout = dropout,
                      .seed = seed,
                      .parameters = parameters,
                      .stream = stream});
}

absl::Status Transformer::RunBackward(Call call) {
  BRIGADE_RETURN_IF_ERROR(Check(call));
  // In one arena the schedule itself says what awaits a copy.
  if (plan_.slots.activations > 1) BRIGADE_RETURN_IF_ERROR(AwaitCopies(call));
  const parallel::StagePass& pass = call.pass;
  call.dx = pass.input_gradient != nullptr    ? pass.input_gradient
            : pass.output_gradient != nullptr ? pass.output_gradient
                                              : memory_.as<char>().data() + plan_.arena_bytes();
  if (pass.input_gradient != nullptr && pass.output_gradient != nullptr) {
    BRIGADE_RETURN_IF_ERROR(
        call.stream.Copy(call.dx, pass.output_gradient, shape_.residual_bytes()));
  }
  const recompute::Schedule& schedule = ScheduleOf(call);
  const int first_unit = plan_.part.UnitOf(StagesOf(call).first);
  // Operations of one stage that follow each other use its weights once.
  std::optional<zero::UnitScope> unit;
  int used = -1;
  for (size_t i = schedule.first_of_backward; i < schedule.operations.size(); ++i) {
    const PlacedOperation& placed = schedule.operations[i];
    const auto& [action, stage, option, far_end] = placed.operation;
    if (!Computes(action)) {
      BRIGADE_RETURN_IF_ERROR(Move(placed, call));
      continue;
    }
    if (IsElsewhere(placed, call)) continue;
    if (stage != used) {
      if (unit.has_value()) BRIGADE_RETURN_IF_ERROR(unit->Release());
      unit.emplace(call.parameters, first_unit + stage, zero::Pass::kBackward);
      used = stage;
    }
    BRIGADE_RETURN_IF_ERROR(Run(placed, call, &*unit));
    if (action != Action::kBackward) continue;
    BRIGADE_RETURN_IF_ERROR(unit->Release());
    unit.reset();
    used = -1;
    if (call.computes_weights()) {
      BRIGADE_RETURN_IF_ERROR(call.parameters.GradientsReady(first_unit + stage));
    }
  }
  return absl::OkStatus();
}

absl::Status Transformer::BackwardWeight(const parallel::StagePass& pass, const nn::Texts& texts,
                                         zero::ParameterSource& parameters,
                                         device::Stream& stream) {
  // Its masks are in what the first half has left.
  const nn::DropoutMask dropout;
  const Call call = {.kind = Kind::kBackwardWeight,
                     .pass = pass,
                     .texts = texts,
                     .dropout = dropout,
                     .parameters = parameters,
                     .stream = stream};
  BRIGADE_RETURN_IF_ERROR(Check(call));
  BRIGADE_RETURN_IF_ERROR(AwaitCopies(call));
  const int first_unit = plan_.part.UnitOf(StagesOf(call).first);
  for (const PlacedOperation& placed : ScheduleOf(call).operations) {
    if (placed.operation.action != Action::kBackward || IsElsewhere(placed, call)) continue;
    BRIGADE_RETURN_IF_ERROR(Run(placed, call, nullptr));
    BRIGADE_RETURN_IF_ERROR(parameters.GradientsReady(first_unit + placed.operation.stage));
  }
  return absl::OkStatus();
}

absl::Status Transformer::Move(const PlacedOperation& placed, const Call& call) {
  const int stage = placed.operation.stage;
  switch (placed.operation.action) {
    case Action::kWrite:
      return StashOf(call)->Write(stage, At(call, placed.input), call.stream);
    case Action::kFetch:
      return StashOf(call)->Fetch(stage, At(call, placed.input), call.stream);
    case Action::kRead:
      return StashOf(call)->AwaitFetch(stage, call.stream);
    default:
      return absl::OkStatus();
  }
}

absl::Status Transformer::Run(const PlacedOperation& placed, const Call& call,
                              zero::UnitScope* scope) {
  const bool is_again = call.kind != Kind::kForward && placed.operation.action != Action::kBackward;
  const train::PassPart part = is_again ? train::PassPart::kRecompute : call.part();
  BRIGADE_RETURN_IF_ERROR(train::MarkPart(part, StageOf(placed, call), call.stream));
  StageUnit unit(plan_.part, call, plan_.part.UnitOf(StageOf(placed, call)), scope);
  BRIGADE_RETURN_IF_ERROR(Compute(placed, call, unit));
  return train::MarkEnd(call.stream);
}

absl::Status Transformer::Compute(const PlacedOperation& placed, const Call& call,
                                  StageUnit& unit) {
  const bool is_backward = placed.operation.action == Action::kBackward;
  if (placed.after_write != PlacedOperation::kNone && call.computes_inputs()) {
    BRIGADE_RETURN_IF_ERROR(StashOf(call)->AwaitWrite(placed.after_write, call.stream));
  }
  const int stage = StageOf(placed, call);
  if (stage == 0) {
    return is_backward ? BackwardEmbedding(placed, call, unit)
                       : ForwardEmbedding(placed, call, unit);
  }
  if (stage + 1 == gpt::StagesOf(shape_.model)) {
    return is_backward ? BackwardHead(placed, call, unit) : ForwardHead(placed, call, unit);
  }
  const int64_t layer = stage - 1;
  const int option = placed.operation.option;
  const void* const x = InputOf(placed, call);
  const BlockLayout& layout = LayoutOf(placed, call);
  char* const transient = At(call, placed.transient);
  char* const product_inputs = AtIfAny(call, placed.weight_inputs);
  if (is_backward) {
    return BackwardBlock(layer, kBlockSaveOptions[option], x,
                         layout.Backward(option, At(call, placed.saved), transient,
                                         AtIfAny(call, placed.deferred), product_inputs),
                         call, unit);
  }
  BlockMemory memory;
  if (placed.operation.action == Action::kForwardSave) {
    memory = layout.Forward(option, At(call, placed.saved), transient, product_inputs);
  } else {
    memory = layout.Forward(nullptr, transient);
  }
  memory.output = OutputOf(placed, call);
  return ForwardBlock(layer, x, memory, call, unit);
}

absl::Status Transformer::ForwardEmbedding(const PlacedOperation& placed, const Call& call,
                                           StageUnit& unit) {
  const void* const tokens = unit.weights(kTokens);
  const void* const positions = unit.weights(kPositions);
  BRIGADE_RETURN_IF_ERROR(unit.status());
  void* const x = OutputOf(placed, call);
  if (x == nullptr) return absl::OkStatus();
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
                                            StageUnit& unit) {
  void* const deferred = AtIfAny(call, placed.deferred);
  BRIGADE_ASSIGN_OR_RETURN(const void* const own,
                           BranchGradient(call, kEmbeddingPlace, call.dx, deferred));
  if (!call.computes_weights()) return absl::OkStatus();
  const nn::Gradient dtokens = unit.gradient(kTokens);
  const nn::Gradient dpositions = unit.gradient(kPositions);
  BRIGADE_RETURN_IF_ERROR(unit.status());
  BRIGADE_ASSIGN_OR_RETURN(const void* const all,
                           layers_->GatherRows(own, At(call, placed.transient), call.stream));
  return layers_->EmbeddingBackward(call.texts, all, dtokens, dpositions, call.stream);
}

absl::Status Transformer::ForwardHead(const PlacedOperation& placed, const Call& call,
                                      StageUnit& unit) {
  const void* const weight = unit.weights(HeadParameter(shape_.model, kFinalNormWeight));
  const void* const bias = unit.weights(HeadParameter(shape_.model, kFinalNormBias));
  const void* const tokens = unit.weights(kTokens);
  BRIGADE_RETURN_IF_ERROR(unit.status());
  const HeadMemory memory = PlaceHead(shape_, At(call, placed.saved), nullptr);
  BRIGADE_ASSIGN_OR_RETURN(
      const void* const norm,
      layers_->Norm(NormOf(InputOf(placed, call), weight, memory.mean, memory.inverse), bias,
                    memory.norm, {}, call.stream));
  BRIGADE_RETURN_IF_ERROR(
      layers_->Column(norm, tokens, nullptr, nn::kVocabulary, memory.logits, call.stream));
  return layers_->CrossEntropy(call.texts, memory.logits, memory.softmax, call.losses, call.stream);
}

absl::Status Transformer::BackwardHead(const PlacedOperation& placed, const Call& call,
                                       StageUnit& unit) {
  const void* const weight = unit.weights(HeadParameter(shape_.model, kFinalNormWeight));
  const void* const tokens = unit.weights(kTokens);
  nn::Gradient rows[kHeadRowGradients], dtokens;
  if (call.computes_weights()) {
    rows[0] = unit.gradient(HeadParameter(shape_.model, kFinalNormWeight));
    rows[1] = unit.gradient(HeadParameter(shape_.model, kFinalNormBias));
    dtokens = unit.gradient(kTokens);
  }
  BRIGADE_RETURN_IF_ERROR(unit.status());
  const HeadMemory memory = PlaceHead(shape_, At(call, placed.saved), At(call, placed.transient));
  void* const deferred = AtIfAny(call, placed.deferred);
  if (call.computes_inputs()) {
    DeferRowGradients(call, deferred, absl::MakeSpan(rows));
    BRIGADE_RETURN_IF_ERROR(layers_->CrossEntropyBackward(call.texts, memory.logits, memory.softmax,
                                                          call.seed, call.stream));
  }
  BRIGADE_RETURN_IF_ERROR(layers_->ColumnBackward(
      memory.norm, tokens, nn::kVocabulary, memory.logits,
      call.computes_inputs() ? memory.dwidth : nullptr, dtokens, {}, call.stream));
  if (!call.computes_inputs()) return DeliverRowGradients(call, deferred, rows);
  BRIGADE_RETURN_IF_ERROR(
      layers_->NormBackward(NormOf(InputOf(placed, call), weight, memory.mean, memory.inverse),
                            memory.dwidth, {call.dx, false}, rows[0], rows[1], 0, call.stream));
  return layers_->SumRowGradients(rows, call.stream);
}

void Transformer::DeferRowGradients(const Call& call, void* deferred,
                                    absl::Span<nn::Gradient> targets) const {
  if (call.kind != Kind::kBackwardInput) return;
  char* at = static_cast<char*>(deferred);
  for (nn::Gradient& target : targets) {
    target = {at};
    at += shape_.bytes_of(width());
  }
}

absl::Status Transformer::DeliverRowGradients(const Call& call, const void* deferred,
                                              absl::Span<const nn::Gradient> targets) const {
  const char* at = static_cast<const char*>(deferred);
  for (const nn::Gradient& target : targets) {
    BRIGADE_RETURN_IF_ERROR(
        target.accumulate
            ? nn::AddBias({shape_.dtype, 1, width()}, target.data, at, nullptr, call.stream)
            : call.stream.Copy(target.data, at, shape_.bytes_of(width())));
    at += shape_.bytes_of(width());
  }
  return absl::OkStatus();
}

}  // namespace brigade::gpt
