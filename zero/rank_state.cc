#include "brigade/zero/rank_state.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/files.h"
#include "brigade/device/status_macros.h"
#include "brigade/zero/internal/fnv1a.h"

namespace brigade::zero {
namespace {

constexpr uint64_t kMagic = 0x3165746164676272;  // the file's first bytes: "rbgdate1"

// More than any plan has: what is made room for before the checksum is known.
constexpr uint64_t kMostBuckets = 1 << 20, kMostArrays = 16;

// Appends values to a checksummed file.
class Writer {
 public:
  explicit Writer(device::FileReplacement file) : file_(std::move(file)) {}

  template <typename T>
  void Put(const T* values, size_t count) {
    const absl::string_view bytes(reinterpret_cast<const char*>(values), count * sizeof(T));
    checksum_ = internal::Fnv1a(bytes, checksum_);
    file_.Write(bytes);
  }
  template <typename T>
  void Put(const T& value) {
    Put(&value, 1);
  }

  absl::Status Finish() {
    const uint64_t checksum = checksum_;
    Put(checksum);
    return file_.Commit();
  }

 private:
  device::FileReplacement file_;
  uint64_t checksum_ = internal::Fnv1a("");
};

// Reads them back; a read beyond the end makes all that follow fail.
class Reader {
 public:
  explicit Reader(device::InputFile file)
      : file_(std::move(file)), left_(static_cast<uint64_t>(file_.size())) {}

  template <typename T>
  void Get(T* values, uint64_t count) {
    ok_ = ok_ && count <= left_ / sizeof(T);
    if (!ok_) return;
    left_ -= count * sizeof(T);
    read_ = file_.Read(values, static_cast<int64_t>(count * sizeof(T)));
    ok_ = read_.ok();
    checksum_ = internal::Fnv1a(
        absl::string_view(reinterpret_cast<const char*>(values), count * sizeof(T)), checksum_);
  }
  template <typename T>
  T Get() {
    T value = {};
    Get(&value, 1);
    return value;
  }
  // A count of things of `bytes` each that are still to come.
  uint64_t GetCount(uint64_t bytes, uint64_t most = ~uint64_t{0}) {
    const auto count = Get<uint64_t>();
    ok_ = ok_ && count <= left_ / bytes && count <= most;
    return ok_ ? count : 0;
  }

  absl::Status Finish(const std::string& path) {
    const uint64_t checksum = checksum_;
    if (Get<uint64_t>() == checksum && ok_ && left_ == 0) return absl::OkStatus();
    return read_.ok() ? absl::DataLossError(absl::StrCat(path, " is cut off or damaged")) : read_;
  }

 private:
  device::InputFile file_;
  uint64_t left_;
  bool ok_ = true;
  // What kept the file from being read.
  absl::Status read_;
  uint64_t checksum_ = internal::Fnv1a("");
};

// What of the state no training makes; "" if nothing is wrong.
std::string Contradiction(const RankState& state) {
  const kernels::StepState& step = state.step;
  if (state.ranks < 1 || state.rank < 0 || state.rank >= state.ranks) {
    return absl::StrCat("rank ", state.rank, " of ", state.ranks);
  }
  if (step.step < 0 || step.iteration < step.step || step.last_overflow < -1 ||
      step.last_overflow > step.iteration) {
    return absl::StrCat("step ", step.step, ", iteration ", step.iteration, ", last overflow at ",
                        step.last_overflow);
  }
  if (!std::isfinite(step.loss_scale) || step.loss_scale <= 0) {
    return absl::StrCat("a loss scale of ", step.loss_scale);
  }
  if (!(step.grad_norm >= 0)) return absl::StrCat("a gradient norm of ", step.grad_norm);
  if (step.hysteresis < 0) return absl::StrCat("a hysteresis of ", step.hysteresis);
  for (const int32_t flag : {step.skip, step.stuck_at_minimum}) {
    if (flag != 0 && flag != 1) return absl::StrCat("a flag of ", flag);
  }
  if (step.reserved != 0) return "something where nothing is kept";
  for (size_t b = 0; b < state.buckets.size(); ++b) {
    const auto& arrays = state.buckets[b].arrays;
    for (size_t a = 0; a < arrays.size(); ++a) {
      for (size_t i = 0; i < arrays[a].size(); ++i) {
        if (std::isfinite(arrays[a][i])) continue;
        return absl::StrCat(arrays[a][i], " as element ", i, " of array ", a, " of bucket ", b);
      }
    }
  }
  return "";
}

}  // namespace

absl::Status WriteState(const RankState& state, const std::string& path) {
  BRIGADE_ASSIGN_OR_RETURN(auto file, device::FileReplacement::Begin(path));
  Writer out(std::move(file));
  out.Put(kMagic);
  out.Put(state.plan_hash);
  out.Put(state.rank);
  out.Put(state.ranks);
  out.Put(state.step);
  out.Put<uint64_t>(state.buckets.size());
  for (const RankState::BucketSlice& bucket : state.buckets) {
    out.Put<uint64_t>(bucket.arrays.size());
    for (const std::vector<float>& array : bucket.arrays) {
      out.Put<uint64_t>(array.size());
      out.Put(array.data(), array.size());
    }
  }
  return out.Finish();
}

absl::StatusOr<RankState> ReadState(const std::string& path) {
  BRIGADE_ASSIGN_OR_RETURN(auto file, device::InputFile::Open(path));
  Reader in(std::move(file));
  if (in.Get<uint64_t>() != kMagic) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a state of a rank"));
  }
  RankState state;
  state.plan_hash = in.Get<uint64_t>();
  state.rank = in.Get<int32_t>();
  state.ranks = in.Get<int32_t>();
  state.step = in.Get<kernels::StepState>();
  state.buckets.resize(in.GetCount(sizeof(uint64_t), kMostBuckets));
  for (RankState::BucketSlice& bucket : state.buckets) {
    bucket.arrays.resize(in.GetCount(sizeof(uint64_t), kMostArrays));
    for (std::vector<float>& array : bucket.arrays) {
      array.resize(in.GetCount(sizeof(float)));
      in.Get(array.data(), array.size());
    }
  }
  BRIGADE_RETURN_IF_ERROR(in.Finish(path));
  const std::string contradiction = Contradiction(state);
  if (!contradiction.empty()) {
    return absl::DataLossError(
        absl::StrCat(path, " holds what no training makes: ", contradiction));
  }
  return state;
}

}  // namespace brigade::zero
