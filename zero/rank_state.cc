#include "brigade/zero/rank_state.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "brigade/zero/internal/fnv1a.h"

namespace brigade::zero {
namespace {

constexpr uint64_t kMagic = 0x3165746164676272;  // the file's first bytes: "rbgdate1"

// Appends values to a checksummed file.
class Writer {
 public:
  explicit Writer(const std::string& path) : out_(path, std::ios::binary | std::ios::trunc) {}

  template <typename T>
  void Put(const T* values, size_t count) {
    const absl::string_view bytes(reinterpret_cast<const char*>(values), count * sizeof(T));
    checksum_ = internal::Fnv1a(bytes, checksum_);
    out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  template <typename T>
  void Put(const T& value) {
    Put(&value, 1);
  }

  bool Finish() {
    const uint64_t checksum = checksum_;
    Put(checksum);
    out_.close();
    return !out_.fail();
  }

 private:
  std::ofstream out_;
  uint64_t checksum_ = internal::Fnv1a("");
};

// Reads them back; a read beyond the end makes all that follow fail.
class Reader {
 public:
  explicit Reader(const std::string& path)
      : in_(path, std::ios::binary | std::ios::ate),
        left_(in_ ? static_cast<uint64_t>(in_.tellg()) : 0) {
    in_.seekg(0);
  }

  bool opened() const { return in_.is_open(); }
  bool ok() const { return ok_; }

  template <typename T>
  void Get(T* values, uint64_t count) {
    ok_ = ok_ && count <= left_ / sizeof(T);
    if (!ok_) return;
    left_ -= count * sizeof(T);
    in_.read(reinterpret_cast<char*>(values), static_cast<std::streamsize>(count * sizeof(T)));
    checksum_ = internal::Fnv1a(
        absl::string_view(reinterpret_cast<const char*>(values), count * sizeof(T)), checksum_);
    ok_ = !in_.fail();
  }
  template <typename T>
  T Get() {
    T value = {};
    Get(&value, 1);
    return value;
  }
  // A count of things of `bytes` each that are still to come.
  uint64_t GetCount(uint64_t bytes) {
    const auto count = Get<uint64_t>();
    ok_ = ok_ && count <= left_ / bytes;
    return ok_ ? count : 0;
  }

  bool Finish() {
    const uint64_t checksum = checksum_;
    return Get<uint64_t>() == checksum && ok_ && left_ == 0;
  }

 private:
  std::ifstream in_;
  uint64_t left_;
  bool ok_ = true;
  uint64_t checksum_ = internal::Fnv1a("");
};

}  // namespace

absl::Status WriteState(const RankState& state, const std::string& path) {
  const std::string beside = path + ".part";
  const auto failed = [&](const char* what) {
    const int error = errno;
    std::remove(beside.c_str());
    return absl::UnavailableError(
        absl::StrCat("cannot ", what, " ", beside, ": ", std::strerror(error)));
  };
  errno = 0;
  Writer out(beside);
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
  if (!out.Finish()) return failed("write");
  if (std::rename(beside.c_str(), path.c_str()) != 0) return failed("rename");
  return absl::OkStatus();
}

absl::StatusOr<RankState> ReadState(const std::string& path) {
  Reader in(path);
  if (!in.opened()) {
    return absl::NotFoundError(absl::StrCat("cannot open ", path, ": ", std::strerror(errno)));
  }
  if (in.Get<uint64_t>() != kMagic) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a state of a rank"));
  }
  RankState state;
  state.plan_hash = in.Get<uint64_t>();
  state.rank = in.Get<int32_t>();
  state.ranks = in.Get<int32_t>();
  state.step = in.Get<kernels::StepState>();
  state.buckets.resize(in.GetCount(sizeof(uint64_t)));
  for (RankState::BucketSlice& bucket : state.buckets) {
    bucket.arrays.resize(in.GetCount(sizeof(uint64_t)));
    for (std::vector<float>& array : bucket.arrays) {
      array.resize(in.GetCount(sizeof(float)));
      in.Get(array.data(), array.size());
    }
  }
  if (!in.Finish()) return absl::DataLossError(absl::StrCat(path, " is cut off or damaged"));
  return state;
}

}  // namespace brigade::zero
