#include "brigade/zero/internal/gradient_store.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/kernels/fill/fill.h"
#include "brigade/zero/plan/layout.h"
#include "brigade/zero/plan/step_collectives.h"

namespace brigade::zero::internal {

GradientStore::GradientStore(const Plan& plan, const ZeroOptions& options, StepStreams& streams)
    : plan_(plan),
      options_(options),
      streams_(streams),
      states_(plan.buckets().size()),
      written_(plan.parameters().size()),
      reported_(plan.units().size()),
      asked_(plan.units().size()) {
  size_t longest = 0;
  for (size_t b = 0; b < plan.buckets().size(); ++b) {
    const Bucket& bucket = plan.buckets()[b];
    longest = std::max(longest, bucket.entries.size() + bucket.padding.size());
    if (bucket.trainable) order_.push_back(static_cast<int>(b));
  }
  std::stable_sort(order_.begin(), order_.end(),
                   [&](int a, int b) { return bucket(a).users.front() > bucket(b).users.front(); });
  fills_.reserve(longest);
  StartMicroBatch();
}

absl::StatusOr<std::unique_ptr<GradientStore>> GradientStore::Create(const Plan& plan,
                                                                     const ZeroOptions& options,
                                                                     StepStreams& streams) {
  std::unique_ptr<GradientStore> store(new GradientStore(plan, options, streams));
  device::Context& context = streams.context();
  const std::vector<char> offloaded = OffloadedBuckets(plan, options);
  for (const int b : store->order_) {
    const Bucket& bucket = store->bucket(b);
    BucketState& state = store->state(b);
    const std::string name = absl::StrCat("gradients of bucket ", b);
    const auto allocate = [&](const char* what, int64_t bytes) {
      return context.Allocate(bytes, device::Purpose::kGradients, absl::StrCat(what, name));
    };
    if (options.traits().whole_gradients) {
      BRIGADE_ASSIGN_OR_RETURN(
          state.own,
          CreatePooledBuffer(bucket.bytes(), device::Purpose::kGradients, name, context));
    } else if (!options.accumulates() && !offloaded[static_cast<size_t>(b)]) {
      BRIGADE_ASSIGN_OR_RETURN(state.slice, allocate("slice of ", bucket.bytes() / plan.ranks()));
    }
    if (options.accumulates()) {
      const int64_t size = AccumulatesWhole(options) ? bucket.size : plan.slice(bucket);
      BRIGADE_ASSIGN_OR_RETURN(state.accumulator,
                               allocate("sum of ", size * precision::SizeOf(options.accumulator)));
    }
    BRIGADE_ASSIGN_OR_RETURN(state.written, context.CreateEvent(absl::StrCat(name, " written")));
  }
  if (const int64_t bytes = WireBufferBytes(plan, options); bytes > 0) {
    BRIGADE_ASSIGN_OR_RETURN(store->compressed_, collectives::CompressedReduction::Create(
                                                     streams.communicator(), context, bytes));
  }
  const auto moves = [&](const Bucket& bucket) {
    return bucket.trainable && !options.traits().whole_gradients;
  };
  BRIGADE_ASSIGN_OR_RETURN(
      store->pool_,
      BufferPool::Create(PooledBuffersNeeded(plan, GradientUnits(plan), options.live_units, moves),
                         "gradient buffer", context));
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
    if (AccumulatesWhole(options_)) memory.push_back(&state.accumulator);
  }
  for (const BufferPool* const pool : {&pool_, &slices_}) {
    for (const auto& buffer : pool->buffers()) memory.push_back(&buffer->memory);
  }
  BRIGADE_ASSIGN_OR_RETURN(registrations_, streams_.Register(memory));
  return absl::OkStatus();
}

void* GradientStore::SliceOf(void* whole, int index, precision::DType dtype) const {
  return static_cast<char*>(whole) +
         streams_.rank() * plan_.slice(bucket(index)) * precision::SizeOf(dtype);
}

void* GradientStore::FinalSlice(int index) const {
  const BucketState& at = state(index);
  if (options_.accumulates()) {
    return AccumulatesWhole(options_) ? SliceOf(at.accumulator.data(), index, options_.accumulator)
                                      : at.accumulator.data();
  }
  if (at.own != nullptr) return SliceOf(at.own->memory.data(), index, bucket(index).dtype);
  return at.passing != nullptr ? at.passing->memory.data() : at.slice.data();
}

void* GradientStore::FinalWhole(int index) const {
  const BucketState& at = state(index);
  if (options_.accumulates()) return AccumulatesWhole(options_) ? at.accumulator.data() : nullptr;
  return at.own != nullptr ? at.own->memory.data() : nullptr;
}

void GradientStore::StartMicroBatch() {
  for (const int b : order_) state(b).unreported = static_cast<int>(bucket(b).users.size());
  std::fill(written_.begin(), written_.end(), Written());
  std::fill(reported_.begin(), reported_.end(), 0);
  std::fill(asked_.begin(), asked_.end(), 0);
  next_ = 0;
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
  micro_batch_ = 0;
  StartMicroBatch();
}

absl::StatusOr<GradientTarget> GradientStore::Target(int unit, int parameter) {
  const Parameter& p = plan_.parameter(parameter);
  if (reported_[static_cast<size_t>(unit)]) {
    return absl::FailedPreconditionError("its gradients have been reported in this micro-batch");
  }
  BRIGADE_RETURN_IF_ERROR(Provide(p.bucket));
  Written& written = written_[static_cast<size_t>(parameter)];
  if (written.unit != unit) {
    written.unit = unit;
    ++written.units;
  }
  asked_[static_cast<size_t>(unit)] = 1;
  char* const data = state(p.bucket).buffer->memory.as<char>().data();
  return GradientTarget{data + p.begin * precision::SizeOf(*p.spec.dtype), written.units > 1};
}

// The bucket of this size that is reduced next.
int GradientStore::FirstOfSize(int64_t bytes) const {
  size_t at = next_;
  while (bucket(order_[at]).bytes() != bytes) ++at;
  return order_[at];
}

// The last buffer of a size is reserved for the bucket of this size that is reduced next, so that
// reports in any order can be served.
bool GradientStore::MayTakeBuffer(int index) const {
  const int64_t bytes = bucket(index).bytes();
  const int first = FirstOfSize(bytes);
  const bool reserved = first != index && state(first).buffer == nullptr;
  return pool_.left(bytes) > (reserved ? 1u : 0u);
}

absl::Status GradientStore::Provide(int index) {
  BucketState& at = state(index);
  if (at.buffer != nullptr) return absl::OkStatus();
  if (at.own == nullptr && !MayTakeBuffer(index)) {
    const int first = bucket(FirstOfSize(bucket(index).bytes())).users.front();
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
  for (const BucketEntry& entry : bucket(index).entries) {
    if (written_[static_cast<size_t>(entry.parameter)].units > 0) continue;
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
    if (bucket(b).trainable) --state(b).unreported;
  }
  return ReduceComplete();
}

// Reduces in the same order on all ranks, whatever the order of reports.
absl::Status GradientStore::ReduceComplete() {
  for (; next_ < order_.size() && state(order_[next_]).unreported == 0; ++next_) {
    BRIGADE_RETURN_IF_ERROR(Reduce(order_[next_]));
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
  } else {
    BRIGADE_RETURN_IF_ERROR(ProvideSlice(index));
    BRIGADE_ASSIGN_OR_RETURN(const Reduced reduced,
                             SumOverRanks(index, at.buffer->memory.data(), FinalSlice(index)));
    BRIGADE_RETURN_IF_ERROR(StoreFinal(index, reduced));
  }
  BRIGADE_RETURN_IF_ERROR(HandOver(index));
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
  if (at.own != nullptr || at.slice.data() != nullptr) return absl::OkStatus();
  // There is one: each comes back as soon as it is handed over.
  at.passing = slices_.Take(bucket(index).bytes() / plan_.ranks());
  if (at.passing == nullptr || !at.passing->used) return absl::OkStatus();
  return streams_.Wait(WaitPoint::kGradientCopied, *at.passing->free, streams_.comm());
}

// Tells of a final slice.
absl::Status GradientStore::HandOver(int index) {
  if (take_ == nullptr || micro_batch_ + 1 < options_.micro_batches) return absl::OkStatus();
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
  const bool last = micro_batch_ + 1 == options_.micro_batches;
  if (options_.accumulation == Accumulation::kEveryMicroBatch) {
    BRIGADE_ASSIGN_OR_RETURN(const Reduced reduced,
                             SumOverRanks(index, whole, SliceOf(whole, index, self.dtype)));
    BRIGADE_RETURN_IF_ERROR(
        AddToSum(reduced.slice, reduced.dtype, reduced.unscale, sum, plan_.slice(self)));
    if (!last || !options_.traits().whole_optimizer_state) return absl::OkStatus();
    return streams_.AllGather(sum, FinalWhole(index), plan_.slice(self), options_.accumulator,
                              streams_.traffic.gradients);
  }
  BRIGADE_RETURN_IF_ERROR(AddToSum(whole, self.dtype, nullptr, at.accumulator.data(), self.size));
  if (!last) return absl::OkStatus();
  BRIGADE_ASSIGN_OR_RETURN(const Reduced reduced, SumOverRanks(index, at.accumulator.data(), sum));
  return StoreFinal(index, reduced);
}

absl::StatusOr<GradientStore::Reduced> GradientStore::SumOverRanks(int index, void* whole,
                                                                   void* slice) {
  const Bucket& self = bucket(index);
  const precision::DType dtype = ReducedType(options_, self);
  const collectives::CollectiveSignature sum = GradientSumOf(plan_, options_, self);
  const bool everywhere = sum.kind == collectives::CollectiveKind::kAllReduce;
  if (!IsConverted(options_, self)) {
    if (everywhere) slice = SliceOf(whole, index, dtype);
    BRIGADE_RETURN_IF_ERROR(streams_.Sum(sum, whole, everywhere ? whole : slice));
    return Reduced{slice, whole, dtype};
  }
  collectives::WireOptions wire = WireOptionsOf(options_, self);
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

absl::Status GradientStore::StoreFinal(int index, const Reduced& reduced) {
  const Bucket& self = bucket(index);
  const int64_t slice = plan_.slice(self);
  if (!options_.traits().whole_optimizer_state) {
    return Store(index, reduced, reduced.slice, FinalSlice(index), slice);
  }
  int64_t& sent = streams_.traffic.gradients;
  const precision::DType final = FinalGradientType(options_, self);
  const auto gathered = GatheredGradientType(options_, self);
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
absl::Status GradientStore::AddToSum(const void* source, precision::DType dtype, const float* scale,
                                     void* sum, int64_t size) {
  return kernels::Cast({{source, sum, size}},
                       {.source_dtype = dtype,
                        .target_dtype = options_.accumulator,
                        .scale = scale,
                        .accumulate = micro_batch_ > 0},
                       streams_.comm());
}

absl::Status GradientStore::FinishMicroBatch() {
  for (size_t u = 0; u < reported_.size(); ++u) {
    if (asked_[u] && !reported_[u]) {
      return absl::FailedPreconditionError(absl::StrCat(
          "unit \"", plan_.units()[u].name, "\" has gradients that were not reported ready"));
    }
  }
  for (const int b : order_) state(b).unreported = 0;
  BRIGADE_RETURN_IF_ERROR(ReduceComplete());
  ++micro_batch_;
  StartMicroBatch();
  return absl::OkStatus();
}

absl::Status GradientStore::FinishStep() {
  micro_batch_ = 0;
  for (const int b : order_) {
    PooledBuffer* const own = state(b).own.get();
    if (own != nullptr) BRIGADE_RETURN_IF_ERROR(streams_.comm().Record(*own->free));
  }
  return absl::OkStatus();
}

}  // namespace brigade::zero::internal
