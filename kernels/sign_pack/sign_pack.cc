#include "brigade/kernels/sign_pack/sign_pack.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/grad_check/grad_check_cpu.h"
#include "brigade/kernels/internal/contributions.h"
#include "brigade/kernels/internal/enqueue_list.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/kernels/sign_pack/sign_pack_cpu.h"

#if BRIGADE_CUDA
#include "brigade/kernels/sign_pack/sign_pack_cuda.h"
#endif

namespace brigade::kernels {
namespace {

constexpr const char* kPack = "sign_pack";
constexpr const char* kUnpack = "sign_unpack";

int64_t CountTiles(absl::Span<const SignPackSegment> segments) {
  int64_t tiles = 0;
  for (const SignPackSegment& segment : segments) tiles += CeilDiv(segment.size, kGradTile);
  return tiles;
}

template <typename T>
void PackOnPool(absl::Span<const PlannedSegment<SignPackSegment>> plan, double* tile_sums,
                int64_t tiles, float* scale, device::ThreadPool& pool) {
  ForEachRange(plan, kGradTile, pool,
               [&](const SignPackSegment& s, int64_t begin, int64_t end, int64_t first_tile) {
                 SignTileSumsRange<T>(s, begin, end, tile_sums + first_tile - begin / kGradTile);
               });
  const int64_t count = CountElements(plan);
  const float found = count == 0 ? 0.0f : SignScale(GradCheckFinishCpu(tile_sums, tiles), count);
  *scale = found;
  ForEachRange(plan, kGradTile, pool,
               [&](const SignPackSegment& s, int64_t begin, int64_t end, int64_t) {
                 SignPackRange<T>(s, found, begin, end);
               });
}

}  // namespace

int64_t SignPackWorkspaceSize(absl::Span<const SignPackSegment> segments) {
  return CountTiles(segments) + kSignStatsDoubles;
}

absl::Status SignPack(absl::Span<const SignPackSegment> segments, const SignPackOptions& options,
                      absl::Span<double> workspace, float* scale, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckFloatType(kPack, "array", options.dtype));
  ListArguments arguments(kPack,
                          {{"array", precision::SizeOf(options.dtype), false},
                           {"error", sizeof(float), true},
                           {"message", 1, true, true, kSignAlignment}},
                          stream);
  for (size_t i = 0; i < segments.size(); ++i) {
    const SignPackSegment& s = segments[i];
    const auto index = static_cast<int64_t>(i);
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(0, index, s.array, s.size));
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(1, index, s.error, s.size));
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(2, index, s.message, SignBytes(s.size)));
  }
  const int64_t needed = SignPackWorkspaceSize(segments);
  if (static_cast<int64_t>(workspace.size()) < needed) {
    return absl::InvalidArgumentError(absl::StrCat(kPack, ": workspace has ", workspace.size(),
                                                   " doubles, the list needs ", needed));
  }
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("workspace", workspace.data(), needed));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("scale", scale, 1));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());

  absl::Status status;
  precision::VisitFloat(options.dtype, [&](auto tag) {
    using T = decltype(tag);
    status = EnqueueList(
        {kPack, arguments.accesses()}, segments, kGradTile, stream,
        [tile_sums = workspace.data(), tiles = CountTiles(segments), scale](auto plan, auto& pool) {
          PackOnPool<T>(plan, tile_sums, tiles, scale, pool);
        },
        [&](auto cuda_stream) {
          return LaunchSignPack<T>(segments.data(), segments.size(), workspace.data(), scale,
                                   cuda_stream);
        });
  });
  return status;
}

absl::Status SignUnpack(absl::Span<const SignUnpackSegment> segments,
                        const SignUnpackOptions& options, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckFloatType(kUnpack, "array", options.dtype));
  const auto& [ranks, stride, factor] = options.parameters;
  BRIGADE_RETURN_IF_ERROR(CheckContributions(kUnpack, ranks, stride, kSignAlignment, factor));
  const int64_t element_bytes = precision::SizeOf(options.dtype);
  ListArguments arguments(
      kUnpack, {{"messages", 1, false, true, kSignAlignment}, {"array", element_bytes, true}},
      stream);
  BRIGADE_RETURN_IF_ERROR(AddContributions(
      kUnpack, segments, ranks, stride, arguments,
      [](const SignUnpackSegment& s) { return SignBytes(s.size); },
      [](const SignUnpackSegment& s) { return std::pair<void*, int64_t>(s.array, s.size); }));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());

  absl::Status status;
  precision::VisitFloat(options.dtype, [&](auto tag) {
    using T = decltype(tag);
    status = EnqueueList(
        {kUnpack, arguments.accesses()}, segments, kCpuTile, stream,
        [parameters = options.parameters](auto plan, auto& pool) {
          const bool past_caches =
              CountElements(plan) * static_cast<int64_t>(sizeof(T)) >= kMinNontemporalBytes;
          ForEachRange(plan, kCpuTile, pool,
                       [&](const SignUnpackSegment& s, int64_t begin, int64_t end, int64_t) {
                         SignUnpackRange<T>(s, parameters, past_caches, begin, end);
                       });
        },
        [&](auto cuda_stream) {
          return LaunchSignUnpack<T>(segments.data(), segments.size(), options.parameters,
                                     cuda_stream);
        });
  });
  return status;
}

}  // namespace brigade::kernels
