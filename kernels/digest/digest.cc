#include "brigade/kernels/digest/digest.h"

#include "absl/strings/str_cat.h"
#include "brigade/kernels/digest/digest_cpu.h"
#include "brigade/kernels/internal/enqueue_list.h"
#include "brigade/kernels/list_arguments.h"

#if BRIGADE_CUDA
#include "brigade/kernels/digest/digest_cuda.h"
#endif

namespace brigade::kernels {
namespace {

// Bytes: as many as kCpuTile elements of float have.
constexpr int64_t kCpuDigestTile = 4 * kCpuTile;

absl::Status CheckPlace(size_t index, const DigestSegment& s, size_t digests) {
  const auto refuse = [index](const char* name, int64_t value) {
    return absl::InvalidArgumentError(
        absl::StrCat("digest: segment ", index, ": ", name, " is ", value));
  };
  if (s.first < 0) return refuse("first", s.first);
  if (s.run < 0) return refuse("run", s.run);
  if (s.stride < 0) return refuse("stride", s.stride);
  if (s.digest < 0 || static_cast<size_t>(s.digest) >= digests) {
    return absl::InvalidArgumentError(
        absl::StrCat("digest: segment ", index, ": digest is ", s.digest, ", of ", digests));
  }
  return absl::OkStatus();
}

// Threads add in any order: sums of integers are the same.
void DigestOnPool(absl::Span<const PlannedSegment<DigestSegment>> plan, TensorDigest* digests,
                  device::ThreadPool& pool) {
  ForEachRange(plan, kCpuDigestTile, pool,
               [&](const DigestSegment& segment, int64_t begin, int64_t end, int64_t) {
                 const TensorDigest part = DigestRange(segment, begin, end);
                 for (int w = 0; w < 2; ++w) {
                   __atomic_fetch_add(&digests[segment.digest].words[w], part.words[w],
                                      __ATOMIC_RELAXED);
                 }
               });
}

}  // namespace

absl::Status Digest(absl::Span<const DigestSegment> segments, absl::Span<TensorDigest> digests,
                    device::Stream& stream) {
  ListArguments arguments("digest", {{"data", 1, false}}, stream);
  for (size_t i = 0; i < segments.size(); ++i) {
    BRIGADE_RETURN_IF_ERROR(CheckPlace(i, segments[i], digests.size()));
    BRIGADE_RETURN_IF_ERROR(
        arguments.Add(static_cast<int64_t>(i), segments[i].size, {segments[i].data}));
  }
  BRIGADE_RETURN_IF_ERROR(
      arguments.AddOperand("digests", digests.data(), static_cast<int64_t>(digests.size())));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  return EnqueueList(
      device::Operation{"digest", arguments.accesses()}, segments, kCpuDigestTile, stream,
      [digests = digests.data()](auto plan, auto& pool) { DigestOnPool(plan, digests, pool); },
      [&](auto cuda_stream) {
        return LaunchDigest(segments.data(), static_cast<int64_t>(segments.size()), digests.data(),
                            cuda_stream);
      });
}

}  // namespace brigade::kernels
