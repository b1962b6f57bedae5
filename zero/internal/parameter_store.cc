#include "brigade/zero/internal/parameter_store.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/zero/plan/layout.h"
#include "brigade/zero/plan/step_collectives.h"

namespace brigade::zero::internal {

ParameterStore::ParameterStore(const Plan& plan, const ZeroOptions& options, RankFile* file,
                               StepStreams& streams)
    : plan_(plan),
      options_(options),
      file_(file),
      streams_(streams),
      states_(plan.buckets().size()),
      acquired_(plan.units().size()) {}

absl::StatusOr<std::unique_ptr<ParameterStore>> ParameterStore::Create(const Plan& plan,
                                                                       const ZeroOptions& options,
                                                                       RankFile* file,
                                                                       StepStreams& streams) {
  std::unique_ptr<ParameterStore> store(new ParameterStore(plan, options, file, streams));
  device::Context& context = streams.context();
  for (size_t b = 0; b < plan.buckets().size(); ++b) {
    const Bucket& bucket = plan.buckets()[b];
    BucketState& state = store->states_[b];
    const std::string name = absl::StrCat("parameters of bucket ", b);
    if (StaysWhole(plan, options, bucket)) {
      BRIGADE_ASSIGN_OR_RETURN(
          state.own,
          CreatePooledBuffer(bucket.bytes(), device::Purpose::kParameters, name, context));
      state.buffer = state.own.get();
    }
    if (!options.traits().whole_parameters) {
      const int64_t bytes = bucket.bytes() / plan.ranks();
      const std::string slice = absl::StrCat("slice of ", name);
      constexpr auto kPurpose = device::Purpose::kParameters;
      const device::Tier home = options.offload.parameters;
      if (home != device::Tier::kFile) {
        BRIGADE_ASSIGN_OR_RETURN(state.slice, home == device::Tier::kHost
                                                  ? context.AllocateHost(bytes, kPurpose, slice)
                                                  : context.Allocate(bytes, kPurpose, slice));
      }
      if (home != device::Tier::kDevice) {
        BRIGADE_ASSIGN_OR_RETURN(state.raised, context.CreateEvent(absl::StrCat(slice, " raised")));
      }
    }
    if (HasSecondSlice(plan, options, bucket)) {
      BRIGADE_ASSIGN_OR_RETURN(
          state.second,
          context.Allocate(SecondSlice(options, bucket) * precision::SizeOf(bucket.dtype),
                           device::Purpose::kParameters, absl::StrCat("second slice of ", name)));
    }
    BRIGADE_ASSIGN_OR_RETURN(state.gathered, context.CreateEvent(absl::StrCat(name, " gathered")));
  }
  for (const bool trainable : {true, false}) {
    const int64_t largest = LargestWeightsOfCodes(plan, options, trainable);
    if (largest == 0) continue;
    auto& codes = trainable ? store->codes_ : store->frozen_codes_;
    BRIGADE_ASSIGN_OR_RETURN(
        codes, collectives::QuantizedAllGather::Create(
                   streams.communicator(), context, largest,
                   trainable ? *options.quantized_weights : *options.quantized_frozen_weights));
  }
  for (size_t b = 0; b < store->states_.size(); ++b) {
    BRIGADE_RETURN_IF_ERROR(store->Zero(static_cast<int>(b)));
  }
  BRIGADE_ASSIGN_OR_RETURN(
      store->pool_, BufferPool::Create(WeightBuffers(plan, options), "parameter buffer", context));
  BRIGADE_RETURN_IF_ERROR(store->RegisterMemory());
  return store;
}

absl::Status ParameterStore::RegisterMemory() {
  std::vector<const device::Buffer*> memory;
  for (const BucketState& state : states_) {
    if (state.own != nullptr) memory.push_back(&state.own->memory);
    if (state.raised == nullptr) memory.push_back(&state.slice);
  }
  for (const auto& buffer : pool_.buffers()) memory.push_back(&buffer->memory);
  BRIGADE_ASSIGN_OR_RETURN(registrations_, streams_.Register(memory));
  if (options_.hpz_ranks == 0) return absl::OkStatus();
  memory.clear();
  for (const BucketState& state : states_) memory.push_back(&state.second);
  for (const auto& buffer : pool_.buffers()) memory.push_back(&buffer->memory);
  BRIGADE_ASSIGN_OR_RETURN(auto near, streams_.Register(memory, StepGroup::kNear));
  for (auto& each : near) registrations_.push_back(std::move(each));
  return absl::OkStatus();
}

void* ParameterStore::Whole(int bucket) const {
  return state(bucket).own == nullptr ? nullptr : state(bucket).own->memory.data();
}

void* ParameterStore::Slice(int bucket) const {
  const BucketState& at = state(bucket);
  if (!options_.traits().whole_parameters) return at.slice.data();
  return at.own->memory.as<char>().data() +
         this->bucket(bucket).bytes() / plan_.ranks() * streams_.rank();
}

void* ParameterStore::Data(int parameter) const {
  const Parameter& p = plan_.parameter(parameter);
  const BucketState& at = state(p.bucket);
  if (at.users == 0 || at.buffer == nullptr) return nullptr;
  return at.buffer->memory.as<char>().data() + p.begin * precision::SizeOf(*p.spec.dtype);
}

absl::Status ParameterStore::Acquire(int unit, Pass pass) {
  const Unit& self = plan_.unit(unit);
  const std::vector<int>& order = options_.backward_units;
  const bool is_ordered = pass == Pass::kBackward && !order.empty();
  if (is_ordered && (next_backward_ == order.size() || order[next_backward_] != unit)) {
    return absl::FailedPreconditionError(
        next_backward_ == order.size()
            ? absl::StrCat("all ", order.size(), " uses of backward_units are made")
            : absl::StrCat("use ", next_backward_, " of backward_units is of unit \"",
                           plan_.unit(order[next_backward_]).name, "\""));
  }
  if (in_run_ && !IsInRun(unit)) {
    return absl::FailedPreconditionError(absl::StrCat("it is in chunk ", ChunkOf(options_, unit),
                                                      ", and a run of chunk ",
                                                      options_.runs[next_run_], " has begun"));
  }
  // Counted as used before the gathers, so that none of these buckets makes room for another.
  for (const int b : self.buckets) ++state(b).users;
  const From from = in_run_                   ? FromOfRun(next_run_)
                    : pass == Pass::kBackward ? From::kSecondSlices
                                              : From::kSlices;
  absl::Status status = GatherAndWait(self.buckets, from);
  if (status.ok() && !in_run_) status = GatherAhead(unit, pass);
  if (!status.ok()) {
    for (const int b : self.buckets) --state(b).users;
    return status;
  }
  acquired_[static_cast<size_t>(unit)] = 1;
  ++acquired_units_;
  if (is_ordered) ++next_backward_;
  return absl::OkStatus();
}

absl::Status ParameterStore::GatherAhead(int unit, Pass pass) {
  const From from = pass == Pass::kBackward ? From::kSecondSlices : From::kSlices;
  const auto gather = [&](int next) -> absl::Status {
    for (const int b : plan_.unit(next).buckets) {
      BRIGADE_RETURN_IF_ERROR(Gather(b, from, /*ahead=*/true));
    }
    return absl::OkStatus();
  };
  const std::vector<int>& order = options_.backward_units;
  if (pass == Pass::kBackward && !order.empty()) {
    const size_t end =
        std::min(order.size(), next_backward_ + static_cast<size_t>(options_.live_units));
    for (size_t next = next_backward_ + 1; next < end; ++next) {
      BRIGADE_RETURN_IF_ERROR(gather(order[next]));
    }
    return absl::OkStatus();
  }
  const int step = pass == Pass::kForward ? 1 : -1;
  const int units = static_cast<int>(plan_.units().size());
  int next = unit + step;
  for (int i = 1; i < options_.live_units && next >= 0 && next < units; ++i, next += step) {
    BRIGADE_RETURN_IF_ERROR(gather(next));
  }
  return absl::OkStatus();
}

absl::Status ParameterStore::GatherAndWait(const std::vector<int>& buckets, From from) {
  for (const int b : buckets) BRIGADE_RETURN_IF_ERROR(Gather(b, from, /*ahead=*/false));
  for (const int b : buckets) {
    BRIGADE_RETURN_IF_ERROR(
        streams_.Wait(WaitPoint::kParametersGathered, *state(b).gathered, streams_.compute()));
  }
  return absl::OkStatus();
}

absl::Status ParameterStore::Release(int unit) {
  acquired_[static_cast<size_t>(unit)] = 0;
  --acquired_units_;
  for (const int b : plan_.unit(unit).buckets) {
    BucketState& at = state(b);
    if (--at.users == 0 && !at.held) BRIGADE_RETURN_IF_ERROR(GiveBack(at));
  }
  return absl::OkStatus();
}

absl::Status ParameterStore::GiveBack(BucketState& at) {
  if (at.own != nullptr) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(streams_.Poison(at.buffer->memory, streams_.compute()));
  BRIGADE_RETURN_IF_ERROR(streams_.compute().Record(*at.buffer->free));
  at.buffer->used = true;
  ReturnBuffer(at);
  return absl::OkStatus();
}

bool ParameterStore::IsInRun(int unit) const {
  return ChunkOf(options_, unit) == options_.runs[next_run_];
}

absl::Status ParameterStore::BeginRun(int chunk) {
  const std::vector<int>& runs = options_.runs;
  if (in_run_ || next_run_ == runs.size()) {
    return absl::FailedPreconditionError(
        in_run_ ? absl::StrCat("run ", next_run_, ", of chunk ", runs[next_run_], ", has begun")
                : absl::StrCat("all ", runs.size(), " runs are made"));
  }
  if (chunk != runs[next_run_]) {
    return absl::FailedPreconditionError(
        absl::StrCat("run ", next_run_, " is of chunk ", runs[next_run_], ", not ", chunk));
  }
  if (acquired_units_ > 0) {
    return absl::FailedPreconditionError(absl::StrCat(acquired_units_, " units are acquired"));
  }
  in_run_ = true;
  if (options_.traits().whole_parameters) return absl::OkStatus();
  // In order of use, as far as a run has one: buckets are in the reverse order.
  const auto gather = [&](size_t run, bool ahead) -> absl::Status {
    for (int b = static_cast<int>(states_.size()); b-- > 0;) {
      if (!IsInChunk(options_, bucket(b), runs[run])) continue;
      BRIGADE_RETURN_IF_ERROR(Gather(b, FromOfRun(run), ahead));
    }
    return absl::OkStatus();
  };
  // Held before the gathers, so that none of these buckets makes room for another.
  for (size_t b = 0; b < states_.size(); ++b) {
    states_[b].held = IsInChunk(options_, plan_.buckets()[b], chunk);
  }
  absl::Status status = gather(next_run_, /*ahead=*/false);
  // Not across the update.
  if (status.ok() && next_run_ + 1 < runs.size()) {
    status = gather(next_run_ + 1, /*ahead=*/true);
  }
  if (status.ok()) return status;
  for (BucketState& at : states_) at.held = false;
  in_run_ = false;
  return status;
}

ParameterStore::From ParameterStore::FromOfRun(size_t run) const {
  const auto begin = options_.runs.begin(), end = begin + static_cast<ptrdiff_t>(run);
  return std::find(begin, end, options_.runs[run]) == end ? From::kSlices : From::kSecondSlices;
}

absl::Status ParameterStore::EndRun() {
  if (!in_run_) return absl::FailedPreconditionError("no run has begun");
  if (acquired_units_ > 0) {
    return absl::FailedPreconditionError(absl::StrCat(acquired_units_, " units are acquired"));
  }
  for (BucketState& at : states_) {
    if (!std::exchange(at.held, false)) continue;
    // Of a unit that the run has not acquired, the gather too is behind.
    BRIGADE_RETURN_IF_ERROR(
        streams_.Wait(WaitPoint::kParametersGathered, *at.gathered, streams_.compute()));
    BRIGADE_RETURN_IF_ERROR(GiveBack(at));
  }
  in_run_ = false;
  ++next_run_;
  return absl::OkStatus();
}

absl::Status ParameterStore::CheckBackwardUses() const {
  const size_t uses = options_.backward_units.size();
  if (next_backward_ == uses) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(next_backward_, " of ", uses, " uses of backward_units are made"));
}

absl::Status ParameterStore::Reset() {
  next_backward_ = next_run_ = 0;
  in_run_ = false;
  std::fill(acquired_.begin(), acquired_.end(), 0);
  acquired_units_ = 0;
  for (BucketState& at : states_) {
    at.users = 0;
    at.held = false;
    if (at.own == nullptr && at.buffer != nullptr) ReturnBuffer(at);
    // A gather that was enqueued behind an error has not happened.
    if (!options_.traits().whole_parameters) at.fresh = false;
    at.second_updates = -1;
    BRIGADE_RETURN_IF_ERROR(streams_.comm().Record(*at.gathered));
  }
  pool_.Reset();
  return absl::OkStatus();
}

void ParameterStore::ReturnBuffer(BucketState& at) {
  pool_.Return(at.buffer);
  at.buffer = nullptr;
  at.fresh = false;
}

absl::Status ParameterStore::Gather(int index, From from, bool ahead) {
  BucketState& at = state(index);
  if (at.fresh) return absl::OkStatus();
  if (at.buffer == nullptr) {
    BRIGADE_ASSIGN_OR_RETURN(at.buffer, TakeBuffer(index, ahead));
  }
  if (at.buffer == nullptr) {
    if (ahead) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("no memory is left for bucket ", index,
                                                      ": more than ", options_.live_units,
                                                      " units (live_units) are acquired"));
  }
  return GatherIntoBuffer(index, from);
}

// A free buffer; or, for weights that are needed now, the buffer of a bucket that was gathered
// ahead and that no acquired unit uses.
absl::StatusOr<PooledBuffer*> ParameterStore::TakeBuffer(int index, bool ahead) {
  const int64_t bytes = bucket(index).bytes();
  PooledBuffer* buffer = pool_.Take(bytes);
  for (size_t b = 0; buffer == nullptr && !ahead && b < states_.size(); ++b) {
    BucketState& other = states_[b];
    if (other.own != nullptr || other.buffer == nullptr || other.users > 0 || other.held) continue;
    if (other.buffer->memory.bytes() != bytes) continue;
    // Behind the gather that nobody has used.
    BRIGADE_RETURN_IF_ERROR(streams_.comm().Record(*other.buffer->free));
    other.buffer->used = true;
    ReturnBuffer(other);
    buffer = pool_.Take(bytes);
  }
  return buffer;
}

absl::Status ParameterStore::GatherIntoBuffer(int index, From from) {
  BucketState& at = state(index);
  PooledBuffer& buffer = *at.buffer;
  if (buffer.used) {
    BRIGADE_RETURN_IF_ERROR(
        streams_.Wait(WaitPoint::kParameterMemoryFree, *buffer.free, streams_.comm()));
  }
  if (from == From::kSecondSlices && at.second_updates == updates_) {
    BRIGADE_RETURN_IF_ERROR(streams_.GatherNear(at.second.data(), buffer.memory.data(),
                                                SecondSlice(options_, bucket(index)),
                                                bucket(index).dtype));
    at.fresh = true;
    return streams_.comm().Record(*at.gathered);
  }
  const void* slice = Slice(index);
  if (at.raised != nullptr) {
    BRIGADE_RETURN_IF_ERROR(RaiseSlice(index, buffer));
    slice = PlaceOfSlice(index, buffer);
  } else if (at.written != nullptr) {
    BRIGADE_RETURN_IF_ERROR(
        streams_.Wait(WaitPoint::kWeightsOnDevice, *at.written, streams_.comm()));
  }
  BRIGADE_RETURN_IF_ERROR(GatherSlices(index, slice, buffer.memory.data()));
  BRIGADE_RETURN_IF_ERROR(KeepSecondSlice(index));
  at.fresh = true;
  return streams_.comm().Record(*at.gathered);
}

collectives::QuantizedAllGather* ParameterStore::CodesOf(int index) const {
  if (!WeightCodes(plan_, options_, bucket(index)).has_value()) return nullptr;
  return bucket(index).trainable ? codes_.get() : frozen_codes_.get();
}

absl::Status ParameterStore::GatherSlices(int index, const void* slice, void* whole) {
  const int64_t count = plan_.slice(bucket(index));
  const precision::DType dtype = bucket(index).dtype;
  int64_t& sent = streams_.traffic.parameters;
  collectives::QuantizedAllGather* const codes = CodesOf(index);
  if (codes == nullptr) return streams_.AllGather(slice, whole, count, dtype, sent);
  BRIGADE_ASSIGN_OR_RETURN(const collectives::Algorithm algorithm,
                           streams_.Count(WeightGatherOf(plan_, options_, bucket(index)), sent));
  return codes->AllGather(slice, whole, count, dtype, {algorithm}, streams_.comm());
}

absl::Status ParameterStore::KeepSecondSlice(int index) {
  BucketState& at = state(index);
  const int64_t bytes = at.second.bytes();
  if (bytes == 0) return absl::OkStatus();
  at.second_updates = updates_;
  return streams_.comm().Copy(
      at.second.data(), at.buffer->memory.as<char>().data() + streams_.near_rank() * bytes, bytes);
}

void* ParameterStore::PlaceOfSlice(int index, PooledBuffer& buffer) const {
  return buffer.memory.as<char>().data() + bucket(index).bytes() / plan_.ranks() * streams_.rank();
}

absl::Status ParameterStore::RaiseSlice(int index, PooledBuffer& buffer) {
  BucketState& at = state(index);
  device::Stream& up = streams_.up();
  if (buffer.used) {
    BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kParameterMemoryFree, *buffer.free, up));
  }
  void* const target = PlaceOfSlice(index, buffer);
  const int64_t bytes = bucket(index).bytes() / plan_.ranks();
  if (options_.offload.file_parameters()) {
    BRIGADE_RETURN_IF_ERROR(file_->RaiseWeights(index, target));
  } else {
    if (at.written != nullptr) {
      BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kWeightsUpdated, *at.written, up));
    }
    BRIGADE_RETURN_IF_ERROR(up.Copy(target, at.slice.data(), bytes));
  }
  streams_.movement.from_host += bytes;
  BRIGADE_RETURN_IF_ERROR(up.Record(*at.raised));
  return streams_.Wait(WaitPoint::kWeightsOnDevice, *at.raised, streams_.comm());
}

absl::Status ParameterStore::GatherUpdated() {
  ++updates_;
  // In order of use: buckets are in the reverse order.
  for (int b = static_cast<int>(states_.size()); b-- > 0;) {
    if (bucket(b).trainable) BRIGADE_RETURN_IF_ERROR(GatherUpdated(b));
  }
  return absl::OkStatus();
}

absl::Status ParameterStore::GatherUpdated(absl::Span<const int> buckets) {
  ++updates_;
  for (size_t i = buckets.size(); i-- > 0;) {
    BRIGADE_RETURN_IF_ERROR(GatherUpdated(buckets[i]));
  }
  return absl::OkStatus();
}

absl::Status ParameterStore::GatherUpdated(int index) {
  BucketState& at = state(index);
  if (options_.traits().whole_optimizer_state) return streams_.comm().Record(*at.gathered);
  if (options_.traits().whole_parameters) return GatherIntoBuffer(index, From::kSlices);
  // Also of a bucket that was gathered ahead and never used.
  at.fresh = false;
  return absl::OkStatus();
}

absl::Status ParameterStore::Show(
    bool slices, absl::FunctionRef<absl::Status(absl::Span<const ObservedArray>)> show) {
  std::vector<ObservedArray> arrays;
  for (size_t b = 0; b < states_.size(); ++b) {
    const int index = static_cast<int>(b);
    if (state(index).raised != nullptr) {
      BRIGADE_RETURN_IF_ERROR(ShowRaised(index, show));
      continue;
    }
    const Bucket& self = bucket(index);
    const bool whole = options_.traits().whole_parameters;
    const int64_t slice = plan_.slice(self);
    ObservedArray array = {.bucket = index, .range = {0, self.size}, .dtype = self.dtype};
    array.data = whole && !slices ? Whole(index) : Slice(index);
    if (!whole || slices) array.range = {streams_.rank() * slice, slice};
    // A whole bucket is there when it is gathered, which was on this stream.
    if (!whole && state(index).written != nullptr) {
      BRIGADE_RETURN_IF_ERROR(
          streams_.Wait(WaitPoint::kWeightsOnDevice, *state(index).written, streams_.comm()));
    }
    arrays.push_back(array);
  }
  return arrays.empty() ? absl::OkStatus() : show(arrays);
}

absl::Status ParameterStore::ShowRaised(
    int index, absl::FunctionRef<absl::Status(absl::Span<const ObservedArray>)> show) {
  BucketState& at = state(index);
  const auto free = [this](PooledBuffer& buffer) {
    buffer.used = true;
    return streams_.comm().Record(*buffer.free);
  };
  // One that was gathered ahead, and that nobody has used.
  if (at.buffer != nullptr) {
    BRIGADE_RETURN_IF_ERROR(free(*at.buffer));
    ReturnBuffer(at);
  }
  BRIGADE_ASSIGN_OR_RETURN(PooledBuffer* const buffer, TakeBuffer(index, /*ahead=*/false));
  if (buffer == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("no memory is left for bucket ", index, ": a unit is acquired"));
  }
  const Movement moved = streams_.movement;
  absl::Status status = RaiseSlice(index, *buffer);
  streams_.movement = moved;
  if (status.ok()) {
    const int64_t slice = plan_.slice(bucket(index));
    const ObservedArray array = {.bucket = index,
                                 .range = {streams_.rank() * slice, slice},
                                 .data = PlaceOfSlice(index, *buffer),
                                 .dtype = bucket(index).dtype};
    status = show(absl::MakeConstSpan(&array, 1));
  }
  status.Update(free(*buffer));
  pool_.Return(buffer);
  return status;
}

absl::Status ParameterStore::Zero(int index) {
  BucketState& at = state(index);
  device::Stream& stream = streams_.comm();
  if (at.own != nullptr) {
    BRIGADE_RETURN_IF_ERROR(stream.FillBytes(at.own->memory.data(), 0, at.own->memory.bytes()));
  }
  BRIGADE_RETURN_IF_ERROR(stream.FillBytes(at.slice.data(), 0, at.slice.bytes()));
  return MarkWritten(index);
}

absl::Status ParameterStore::MarkWritten(int index) {
  BucketState& at = state(index);
  at.fresh = at.own != nullptr && options_.traits().whole_parameters;
  at.second_updates = -1;
  // Where weights stay whole, what a gather after an update would leave.
  collectives::QuantizedAllGather* const codes = at.fresh ? CodesOf(index) : nullptr;
  if (codes != nullptr) {
    BRIGADE_RETURN_IF_ERROR(codes->KeepCodes(at.own->memory.data(), plan_.slice(bucket(index)),
                                             bucket(index).dtype, streams_.comm()));
  }
  return streams_.comm().Record(*at.gathered);
}

}  // namespace brigade::zero::internal
