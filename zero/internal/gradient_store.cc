#include "brigade/zero/internal/gradient_store.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/kernels/fill/fill.h"
#include "brigade/zero/plan/step_collectives.h"

namespace brigade::zero::internal {

GradientStore::GradientStore(const Plan& plan, const ZeroOptions& options, StepStreams& streams)
    : plan_(plan),
      options_(options),
      streams_(streams),
      states_(plan.gradients().size()),
      chunks_(static_cast<size_t>(ChunkCount(options))),
      reported_(plan.units().size()),
      asked_(plan.units().size()) {
  size_t longest = 0;
  for (size_t b = 0; b < states_.size(); ++b) {
    const int index = static_cast<int>(b);
    const Bucket& self = bucket(index);
    longest = std::max(longest, self.entries.size() + self.padding.size());
    states_[b].chunk = ChunkOf(options, self.users.front());
    states_[b].parts.resize(self.entries.size());
    if (!self.trainable) continue;
    chunk_of(index).order.push_back(index);
    if (self.tied_outside && b < plan.buckets().size()) tied_outside_.push_back(index);
  }
  for (Chunk& chunk : chunks_) {
    std::stable_sort(chunk.order.begin(), chunk.order.end(), [&](int a, int b) {
      return bucket(a).users.front() > bucket(b).users.front();
    });
  }
  const auto name = [&](int index) {
    return plan.parameter(bucket(index).entries.front().parameter).spec.name;
  };
  std::sort(tied_outside_.begin(), tied_outside_.end(),
            [&](int a, int b) { return name(a) < name(b); });
  fills_.reserve(longest);
  for (int chunk = 0; chunk < ChunkCount(options); ++chunk) StartMicroBatch(chunk);
}

absl::StatusOr<std::unique_ptr<GradientStore>> GradientStore::Create(const Plan& plan,
                                                                     const ZeroOptions& options,
                                                                     StepStreams& streams) {
  std::unique_ptr<GradientStore> store(new GradientStore(plan, options, streams));
  device::Context& context = streams.context();
  const std::vector<char> offloaded = OffloadedBuckets(plan, options);
  for (size_t b = 0; b < store->states_.size(); ++b) {
    const Bucket& bucket = plan.gradients()[b];
    if (!bucket.trainable) continue;
    BucketState& state = store->states_[b];
    const bool is_offloaded = offloaded[static_cast<size_t>(plan.BucketOf(bucket))] != 0;
    const std::string name = absl::StrCat("gradients of bucket ", b);
    const auto allocate = [&](const char* what, int64_t bytes) {
      return context.Allocate(bytes, device::Purpose::kGradients, absl::StrCat(what, name));
    };
    if (HasWholeGradients(plan, options)) {
      BRIGADE_ASSIGN_OR_RETURN(
          state.own,
          CreatePooledBuffer(bucket.bytes(), device::Purpose::kGradients, name, context));
    } else if (HasGradientSlice(plan, options, bucket, is_offloaded)) {
      BRIGADE_ASSIGN_OR_RETURN(state.slice, allocate("slice of ", bucket.bytes() / plan.ranks()));
    }
    if (options.accumulates()) {
      const int64_t size = AccumulatesWhole(plan, options) ? bucket.size : plan.slice(bucket);
      BRIGADE_ASSIGN_OR_RETURN(state.accumulator,
                               allocate("sum of ", size * precision::SizeOf(options.accumulator)));
    }
    BRIGADE_ASSIGN_OR_RETURN(state.written, context.CreateEvent(absl::StrCat(name, " written")));
    if (!streams.has_shard_groups()) continue;
    BRIGADE_ASSIGN_OR_RETURN(state.summed,
                             context.CreateEvent(absl::StrCat(name, " summed over groups")));
  }
  if (streams.has_shard_groups()) {
    BRIGADE_ASSIGN_OR_RETURN(store->summed_inside_, context.CreateEvent("slice summed in group"));
  }
  if (const int64_t bytes = WireBufferBytesBetween(plan, options); bytes > 0) {
    BRIGADE_ASSIGN_OR_RETURN(store->compressed_between_, collectives::CompressedReduction::Create(
                                                             streams.groups(), context, bytes));
  }
  if (const int64_t bytes = WireBufferBytes(plan, options); bytes > 0) {
    BRIGADE_ASSIGN_OR_RETURN(store->compressed_, collectives::CompressedReduction::Create(
                                                     streams.communicator(), context, bytes));
  }
  if (const int64_t largest = LargestGradientOfCodes(plan, options); largest > 0) {
    const collectives::NodeCommunicators nodes =
        HasTwoHops(plan, options) ? streams.nodes() : collectives::NodeCommunicators();
    BRIGADE_ASSIGN_OR_RETURN(store->quantized_,
                             collectives::QuantizedReduceScatter::Create(
                                 streams.communicator(), nodes, context, largest,
                                 *options.quantized_gradients, HasLoco(plan, options)));
  }
  BRIGADE_ASSIGN_OR_RETURN(store->loco_, LocoErrors::Create(plan, options, streams));
  BRIGADE_ASSIGN_OR_RETURN(
      store->pool_, BufferPool::Create(GradientBuffers(plan, options), "gradient buffer", context));
  BRIGADE_ASSIGN_OR_RETURN(store->slices_, BufferPool::Create(SlicesOnTheirWay(plan, options),
                                                              "gradient on its way", context));
  BRIGADE_RETURN_IF_ERROR(store->RegisterMemory());
  return store;
}

absl::Status GradientStore::RegisterMemory() {
  std::vector<const device::Buffer*> memory;
  for (const BucketState& state : states_) {
    if (state.own != nullptr) memory.push_back(&state.own->memory);
    memory.push_back(&state.slice);
    if (AccumulatesWhole(plan_, options_)) memory.push_back(&state.accumulator);
  }
  for (const BufferPool* const pool : {&pool_, &slices_}) {
    for (const auto& buffer : pool->buffers()) memory.push_back(&buffer->memory);
  }
  BRIGADE_ASSIGN_OR_RETURN(registrations_, streams_.Register(memory));
  if (!streams_.has_shard_groups()) return absl::OkStatus();
  // The slices lie in it, or are such sums.
  for (const BucketState& state : states_) {
    if (!AccumulatesWhole(plan_, options_)) memory.push_back(&state.accumulator);
  }
  BRIGADE_ASSIGN_OR_RETURN(auto between, streams_.Register(memory, StepGroup::kBetween));
  for (auto& each : between) registrations_.push_back(std::move(each));
  return absl::OkStatus();
}

void* GradientStore::SliceOf(void* whole, int index, precision::DType dtype) const {
  return static_cast<char*>(whole) +
         streams_.rank() * plan_.slice(bucket(index)) * precision::SizeOf(dtype);
}

void* GradientStore::FinalSlice(int index) const {
  const BucketState& at = state(index);
  if (options_.accumulates()) {
    return AccumulatesWhole(plan_, options_)
               ? SliceOf(at.accumulator.data(), index, options_.accumulator)
               : at.accumulator.data();
  }
  if (at.own != nullptr) return SliceOf(at.own->memory.data(), index, bucket(index).dtype);
  return at.passing != nullptr ? at.passing->memory.data() : at.slice.data();
}

void* GradientStore::FinalWhole(int index) const {
  const BucketState& at = state(index);
  if (options_.accumulates())
    return AccumulatesWhole(plan_, options_) ? at.accumulator.data() : nullptr;
  return at.own != nullptr ? at.own->memory.data() : nullptr;
}

void GradientStore::StartMicroBatch(int index) {
  Chunk& chunk = chunks_[static_cast<size_t>(index)];
  for (const int b : chunk.order) {
    BucketState& at = state(b);
    at.unreported = static_cast<int>(bucket(b).users.size());
    std::fill(at.parts.begin(), at.parts.end(), BucketState::Parts());
  }
  for (size_t u = 0; u < reported_.size(); ++u) {
    if (ChunkOf(options_, static_cast<int>(u)) == index) reported_[u] = asked_[u] = 0;
  }
  chunk.next = 0;
}

void GradientStore::Reset() {
  for (BucketState& at : states_) {
    if (at.buffer != nullptr && at.own == nullptr) pool_.Return(at.buffer);
    at.buffer = nullptr;
    if (at.own != nullptr) at.own->Reset();
    if (at.passing != nullptr) slices_.Return(std::exchange(at.passing, nullptr));
  }
  pool_.Reset();
  slices_.Reset();
  between_ = -1;
  for (size_t c = 0; c < chunks_.size(); ++c) {
    chunks_[c].micro_batch = 0;
    StartMicroBatch(static_cast<int>(c));
  }
}

absl::StatusOr<GradientTarget> GradientStore::Target(int unit, int parameter) {
  const Parameter& p = plan_.parameter(parameter);
  if (reported_[static_cast<size_t>(unit)]) {
    return absl::FailedPreconditionError("its gradients have been reported in this micro-batch");
  }
  const int index = plan_.GradientOf(unit, p.bucket);
  BRIGADE_RETURN_IF_ERROR(Provide(index));
  BucketState::Parts& parts = state(index).parts[p.entry];
  if (parts.unit != unit) {
    parts.unit = unit;
    ++parts.units;
  }
  asked_[static_cast<size_t>(unit)] = 1;
  char* const data = state(index).buffer->memory.as<char>().data();
  return GradientTarget{data + p.begin * precision::SizeOf(*p.spec.dtype), parts.units > 1};
}

int GradientStore::FirstOfSize(int index) const {
  const Chunk& chunk = chunk_of(index);
  size_t at = chunk.next;
  while (bucket(chunk.order[at]).bytes() != bucket(index).bytes()) ++at;
  return chunk.order[at];
}

// The last buffer of a size is reserved for the bucket of this size that its chunk reduces next, so
// that reports in any order can be served.
bool GradientStore::MayTakeBuffer(int index) const {
  const int first = FirstOfSize(index);
  const bool reserved = first != index && state(first).buffer == nullptr;
  return pool_.left(bucket(index).bytes()) > (reserved ? 1u : 0u);
}

absl::Status GradientStore::Provide(int index) {
  BucketState& at = state(index);
  if (at.buffer != nullptr) return absl::OkStatus();
  if (at.own == nullptr && !MayTakeBuffer(index)) {
    const int first = bucket(FirstOfSize(index)).users.front();
    return absl::FailedPreconditionError(
        absl::StrCat("no memory is left for gradients: there is some for ", options_.live_units,
                     " units (live_units), and it is the turn of unit \"", plan_.unit(first).name,
                     "\" to be reported ready"));
  }
  at.buffer = at.own != nullptr ? at.own.get() : pool_.Take(bucket(index).bytes());
  if (at.buffer->used) {
    BRIGADE_RETURN_IF_ERROR(
        streams_.Wait(WaitPoint::kGradientMemoryFree, *at.buffer->free, streams_.compute()));
  }
  if (at.buffer->bucket == index) return absl::OkStatus();
  // The padding of this bucket holds another bucket's gradients, or has never been written.
  fills_.clear();
  char* const data = at.buffer->memory.as<char>().data();
  for (const ElementRange& range : bucket(index).padding) {
    fills_.push_back({data + range.begin * precision::SizeOf(bucket(index).dtype), range.size});
  }
  BRIGADE_RETURN_IF_ERROR(Fill(bucket(index).dtype));
  at.buffer->bucket = index;
  return absl::OkStatus();
}

absl::Status GradientStore::ZeroUnwritten(int index) {
  fills_.clear();
  char* const data = state(index).buffer->memory.as<char>().data();
  for (size_t e = 0; e < bucket(index).entries.size(); ++e) {
    if (state(index).parts[e].units > 0) continue;
    const BucketEntry& entry = bucket(index).entries[e];
    fills_.push_back(
        {data + entry.range.begin * precision::SizeOf(bucket(index).dtype), entry.range.size});
  }
  return Fill(bucket(index).dtype);
}

absl::Status GradientStore::Fill(precision::DType dtype) {
  return fills_.empty() ? absl::OkStatus() : kernels::Fill(fills_, dtype, 0.0, streams_.compute());
}

absl::Status GradientStore::Ready(int unit) {
  if (reported_[static_cast<size_t>(unit)]) {
    return absl::FailedPreconditionError("its gradients are reported twice in this micro-batch");
  }
  reported_[static_cast<size_t>(unit)] = 1;
  for (const int b : plan_.unit(unit).buckets) {
    if (plan_.bucket(b).trainable) --state(plan_.GradientOf(unit, b)).unreported;
  }
  return ReduceComplete(chunks_[static_cast<size_t>(ChunkOf(options_, unit))]);
}

// Reduces in the same order on all ranks, whatever the order of reports in the chunk.
absl::Status GradientStore::ReduceComplete(Chunk& chunk) {
  const std::vector<int>& order = chunk.order;
  for (; chunk.next < order.size() && state(order[chunk.next]).unreported == 0; ++chunk.next) {
    BRIGADE_RETURN_IF_ERROR(Reduce(order[chunk.next]));
  }
  return absl::OkStatus();
}

absl::Status GradientStore::Reduce(int index) {
  BucketState& at = state(index);
  BRIGADE_RETURN_IF_ERROR(Provide(index));
  BRIGADE_RETURN_IF_ERROR(ZeroUnwritten(index));
  BRIGADE_RETURN_IF_ERROR(streams_.compute().Record(*at.written));
  BRIGADE_RETURN_IF_ERROR(
      streams_.Wait(WaitPoint::kGradientsWritten, *at.written, streams_.comm()));
  if (options_.accumulates()) {
    BRIGADE_RETURN_IF_ERROR(ReduceIntoSum(index));
  } else if (!keeps_own()) {
    BRIGADE_RETURN_IF_ERROR(ProvideSlice(index));
    BRIGADE_ASSIGN_OR_RETURN(const Reduced reduced,
                             SumOverRanks(index, at.buffer->memory.data(), FinalSlice(index)));
    BRIGADE_RETURN_IF_ERROR(StoreFinal(index, reduced));
  }
  const bool is_sum = IsLast(index) && phase() == StepPhase::kReduced;
  if (is_sum && streams_.has_shard_groups()) {
    BRIGADE_RETURN_IF_ERROR(SumBetween(index));
  } else if (is_sum && !plan_.IsAddedUp(bucket(index))) {
    BRIGADE_RETURN_IF_ERROR(HandOver(index));
  }
  if (at.own == nullptr) {
    BRIGADE_RETURN_IF_ERROR(streams_.Poison(at.buffer->memory, streams_.comm()));
    if (streams_.context().race_checker() != nullptr) at.buffer->bucket = -1;
    pool_.Return(at.buffer);
  }
  BRIGADE_RETURN_IF_ERROR(streams_.comm().Record(*at.buffer->free));
  at.buffer->used = true;
  at.buffer = nullptr;
  return absl::OkStatus();
}

// Gives the slice of an offloaded bucket memory on its way.
absl::Status GradientStore::ProvideSlice(int index) {
  BucketState& at = state(index);
  const bool stays = at.own != nullptr || at.slice.data() != nullptr;
  if (stays || plan_.IsAddedUp(bucket(index))) return absl::OkStatus();
  // There is one: each comes back as soon as it is handed over; with several groups, behind the
  // next one's sum in the group.
  at.passing = slices_.Take(bucket(index).bytes() / plan_.ranks());
  if (at.passing == nullptr || !at.passing->used) return absl::OkStatus();
  return streams_.Wait(WaitPoint::kGradientCopied, *at.passing->free, streams_.comm());
}

absl::Status GradientStore::SumBetween(int index) {
  const Bucket& self = bucket(index);
  device::Stream& stream = streams_.between();
  void* const slice = FinalSlice(index);
  const collectives::CollectiveSignature sum = BetweenSumOf(plan_, options_, self);
  BRIGADE_RETURN_IF_ERROR(streams_.comm().Record(*summed_inside_));
  BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kSummedInside, *summed_inside_, stream));
  if (!IsConvertedBetween(plan_, options_, self)) {
    BRIGADE_RETURN_IF_ERROR(streams_.SumBetween(sum, slice));
  } else {
    const precision::DType dtype = FinalGradientType(options_, self);
    collectives::WireOptions wire = WireOptionsOf(options_, sum.dtype);
    int64_t& sent = streams_.traffic.between;
    constexpr auto kRole = StepGroup::kBetween;
    if (wire.scaling == collectives::WireScaling::kDynamic) {
      BRIGADE_RETURN_IF_ERROR(streams_.Count(collectives::kAmaxExchange, sent, kRole).status());
    }
    BRIGADE_ASSIGN_OR_RETURN(wire.algorithm, streams_.Count(sum, sent, kRole));
    BRIGADE_ASSIGN_OR_RETURN(
        const collectives::WireSum on_wire,
        compressed_between_->SumOnWire(sum.kind, slice, sum.count, dtype, wire, stream));
    BRIGADE_RETURN_IF_ERROR(kernels::Cast(
        {{on_wire.data, slice, sum.count}},
        {.source_dtype = on_wire.dtype, .target_dtype = dtype, .scale = on_wire.unscale}, stream));
  }
  BRIGADE_RETURN_IF_ERROR(stream.Record(*state(index).summed));
  BRIGADE_RETURN_IF_ERROR(FinishBetween());
  between_ = index;
  return absl::OkStatus();
}

absl::Status GradientStore::FinishBetween() {
  const int index = std::exchange(between_, -1);
  if (index < 0) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(
      streams_.Wait(WaitPoint::kSummedBetween, *state(index).summed, streams_.comm()));
  if (options_.traits().whole_optimizer_state) {
    BRIGADE_RETURN_IF_ERROR(
        streams_.AllGather(FinalSlice(index), FinalWhole(index), plan_.slice(bucket(index)),
                           FinalGradientType(options_, bucket(index)), streams_.traffic.gradients));
  }
  return plan_.IsAddedUp(bucket(index)) ? absl::OkStatus() : HandOver(index);
}

// Tells of a final slice.
absl::Status GradientStore::HandOver(int index) {
  if (take_ == nullptr) return absl::OkStatus();
  BucketState& at = state(index);
  device::Event* const free = at.passing == nullptr ? nullptr : at.passing->free.get();
  BRIGADE_RETURN_IF_ERROR(take_(index, FinalSlice(index), free));
  if (at.passing == nullptr) return absl::OkStatus();
  at.passing->used = true;
  slices_.Return(std::exchange(at.passing, nullptr));
  return absl::OkStatus();
}

absl::Status GradientStore::ReduceIntoSum(int index) {
  BucketState& at = state(index);
  const Bucket& self = bucket(index);
  void* const whole = at.buffer->memory.data();
  void* const sum = FinalSlice(index);
  const bool last = IsLast(index);
  if (!ReducesOnce(plan_, options_)) {
    BRIGADE_ASSIGN_OR_RETURN(const Reduced reduced,
                             SumOverRanks(index, whole, SliceOf(whole, index, self.dtype)));
    BRIGADE_RETURN_IF_ERROR(
        AddToSum(index, reduced.slice, reduced.dtype, reduced.unscale, sum, plan_.slice(self)));
    if (!last || !options_.traits().whole_optimizer_state) return absl::OkStatus();
    // With several groups behind their sum.
    if (streams_.has_shard_groups()) return absl::OkStatus();
    return streams_.AllGather(sum, FinalWhole(index), plan_.slice(self), options_.accumulator,
                              streams_.traffic.gradients);
  }
  BRIGADE_RETURN_IF_ERROR(
      AddToSum(index, whole, self.dtype, nullptr, at.accumulator.data(), self.size));
  if (!last || keeps_own()) return absl::OkStatus();
  BRIGADE_ASSIGN_OR_RETURN(const Reduced reduced, SumOverRanks(index, at.accumulator.data(), sum));
  return StoreFinal(index, reduced);
}

absl::StatusOr<GradientStore::Reduced> GradientStore::SumOverRanks(int index, void* whole,
                                                                   void* slice) {
  const Bucket& self = bucket(index);
  const precision::DType dtype = ReducedType(plan_, options_, self);
  if (quantized_ != nullptr) {
    for (const StepCollective& each : GradientExchangesOf(plan_, options_, self)) {
      int64_t& sent = streams_.traffic.*each.traffic;
      BRIGADE_RETURN_IF_ERROR(streams_.Count(each.signature, sent, each.group).status());
    }
    BRIGADE_RETURN_IF_ERROR(SumCodes(index, whole, slice));
    // Where a block is not finite, neither is the padding that it holds, if the sum is in place.
    state(index).buffer->bucket = -1;
    return Reduced{slice, whole, dtype};
  }
  const collectives::CollectiveSignature sum = GradientSumOf(plan_, options_, self);
  const bool everywhere = sum.kind == collectives::CollectiveKind::kAllReduce;
  if (!IsConverted(plan_, options_, self)) {
    if (everywhere) slice = SliceOf(whole, index, dtype);
    BRIGADE_RETURN_IF_ERROR(streams_.Sum(sum, whole, everywhere ? whole : slice));
    return Reduced{slice, whole, dtype};
  }
  collectives::WireOptions wire = WireOptionsOf(options_, sum.dtype);
  int64_t& sent = streams_.traffic.gradients;
  if (wire.scaling == collectives::WireScaling::kDynamic) {
    BRIGADE_RETURN_IF_ERROR(streams_.Count(collectives::kAmaxExchange, sent).status());
  }
  BRIGADE_ASSIGN_OR_RETURN(wire.algorithm, streams_.Count(sum, sent));
  BRIGADE_ASSIGN_OR_RETURN(
      const collectives::WireSum on_wire,
      compressed_->SumOnWire(sum.kind, whole, sum.count, dtype, wire, streams_.comm()));
  return Reduced{SliceOf(on_wire.whole, index, wire.wire), on_wire.whole, wire.wire,
                 on_wire.unscale};
}

absl::Status GradientStore::SumCodes(int index, const void* whole, void* slice) {
  const Bucket& self = bucket(index);
  const precision::DType dtype = ReducedType(plan_, options_, self);
  const int64_t count = plan_.slice(self);
  device::Stream& stream = streams_.comm();
  if (!has_errors()) {
    return quantized_->ReduceScatter(whole, slice, count, dtype, /*factor=*/1.0f, stream);
  }
  // Sums at the boundary are made in the last micro-batch alone.
  const bool is_first = ReducesOnce(plan_, options_) || chunk_of(index).micro_batch == 0;
  const bool forget = is_first && tried_ > 0 && tried_ % options_.loco->reset_steps == 0;
  BRIGADE_ASSIGN_OR_RETURN(const collectives::QuantizedFeedback feedback,
                           loco_->Begin(index, is_first, forget));
  return quantized_->ReduceScatter(whole, slice, count, dtype, /*factor=*/1.0f, &feedback, stream);
}

absl::Status GradientStore::StoreFinal(int index, const Reduced& reduced) {
  const Bucket& self = bucket(index);
  const int64_t slice = plan_.slice(self);
  if (!options_.traits().whole_optimizer_state || streams_.has_shard_groups()) {
    return Store(index, reduced, reduced.slice, FinalSlice(index), slice);
  }
  int64_t& sent = streams_.traffic.gradients;
  const precision::DType final = FinalGradientType(options_, self);
  const auto gathered = GatheredGradientType(plan_, options_, self);
  if (gathered == final) {
    BRIGADE_RETURN_IF_ERROR(Store(index, reduced, reduced.slice, FinalSlice(index), slice));
    return streams_.AllGather(FinalSlice(index), FinalWhole(index), slice, final, sent);
  }
  if (gathered.has_value()) {
    BRIGADE_RETURN_IF_ERROR(
        streams_.AllGather(reduced.slice, reduced.whole, slice, *gathered, sent));
  }
  return Store(index, reduced, reduced.whole, FinalWhole(index), self.size);
}

absl::Status GradientStore::Store(int index, const Reduced& reduced, const void* source,
                                  void* target, int64_t size) {
  if (source == target) return absl::OkStatus();
  return kernels::Cast({{source, target, size}},
                       {.source_dtype = reduced.dtype,
                        .target_dtype = FinalGradientType(options_, bucket(index)),
                        .scale = reduced.unscale},
                       streams_.comm());
}

// The first micro-batch overwrites the sum.
absl::Status GradientStore::AddToSum(int index, const void* source, precision::DType dtype,
                                     const float* scale, void* sum, int64_t size) {
  return kernels::Cast({{source, sum, size}},
                       {.source_dtype = dtype,
                        .target_dtype = options_.accumulator,
                        .scale = scale,
                        .accumulate = chunk_of(index).micro_batch > 0},
                       streams_.comm());
}

absl::Status GradientStore::Complete() {
  BRIGADE_RETURN_IF_ERROR(FinishBetween());
  return AddTied();
}

absl::Status GradientStore::AddTied() {
  const auto add = [&](const Bucket& part, const void* source, void* sum, int64_t size) {
    const precision::DType dtype = FinalGradientType(options_, part);
    return kernels::Cast({{source, sum, size}},
                         {.source_dtype = dtype, .target_dtype = dtype, .accumulate = true},
                         streams_.comm());
  };
  // What groups exchange are slices in every stage.
  const bool whole = phase() == StepPhase::kReduced ? options_.traits().whole_optimizer_state
                                                    : !streams_.has_shard_groups();
  const auto sum_of = [&](int index) { return whole ? FinalWhole(index) : FinalSlice(index); };
  const int buckets = static_cast<int>(plan_.buckets().size());
  for (int part = buckets; part < static_cast<int>(states_.size()); ++part) {
    const Bucket& self = bucket(part);
    BRIGADE_RETURN_IF_ERROR(add(self, sum_of(part), sum_of(plan_.BucketOf(self)),
                                whole ? self.size : plan_.slice(self)));
  }
  for (const int index : tied_outside_) {
    BRIGADE_RETURN_IF_ERROR(streams_.SumTied(TiedSumOf(plan_, options_, bucket(index)),
                                             sum_of(index), streams_.traffic.tied));
  }
  for (int index = 0; index < buckets; ++index) {
    if (plan_.IsAddedUp(bucket(index))) BRIGADE_RETURN_IF_ERROR(HandOver(index));
  }
  return absl::OkStatus();
}

absl::Status GradientStore::FinishMicroBatch(int index) {
  for (size_t u = 0; u < reported_.size(); ++u) {
    if (asked_[u] && !reported_[u] && ChunkOf(options_, static_cast<int>(u)) == index) {
      return absl::FailedPreconditionError(absl::StrCat(
          "unit \"", plan_.units()[u].name, "\" has gradients that were not reported ready"));
    }
  }
  Chunk& chunk = chunks_[static_cast<size_t>(index)];
  for (const int b : chunk.order) state(b).unreported = 0;
  BRIGADE_RETURN_IF_ERROR(ReduceComplete(chunk));
  ++chunk.micro_batch;
  StartMicroBatch(index);
  return absl::OkStatus();
}

absl::Status GradientStore::FinishStep() {
  ++tried_;
  for (Chunk& chunk : chunks_) chunk.micro_batch = 0;
  for (const BucketState& at : states_) {
    if (at.own != nullptr) BRIGADE_RETURN_IF_ERROR(streams_.comm().Record(*at.own->free));
  }
  return absl::OkStatus();
}

}  // namespace brigade::zero::internal
