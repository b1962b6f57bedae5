// The kernels around the optimizers on a GPU against the same calls on the CPU, which other tests
// hold to the specification: every byte of memory must agree, so nothing is written beside its
// place either.

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "brigade/kernels/amax/amax.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/kernels/digest/digest.h"
#include "brigade/kernels/fill/fill.h"
#include "brigade/kernels/flatten/flatten.h"
#include "brigade/kernels/grad_check/grad_check.h"
#include "brigade/kernels/step_control/step_control.h"
#include "brigade/tests/kernels/gpu/both_devices.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using precision::DType;

TEST(KernelsGpuTest, GradCheckAndStepControlGiveTheCpusBits) {
  for (const DType dtype : kFloats) {
    for (const bool overflow : {false, true}) {
      const auto lay = [&](Layout& layout) {
        std::vector<GradSegment> segments;
        for (const int64_t n : Sizes()) {
          const int64_t o = segments.size() % 11;
          segments.push_back({layout.Take<char>(n, o, precision::SizeOf(dtype)), n});
        }
        return segments;
      };
      const std::vector<StepBetas> betas = {{0.9, 0.999}, {0.5, 0.95}};
      ExpectSameOnBoth(
          absl::StrCat("grad_check ", precision::Name(dtype), overflow ? " with overflow" : ""),
          [&](char* base) {
            Layout layout(base);
            const StepMemory step(layout);
            *step.state = InitialStepState({});
            float* const lr = layout.Take<float>(2);
            lr[0] = lr[1] = 1e-3f;
            layout.Take<GradStats>(1);
            layout.Take<double>(4000);
            const std::vector<GradSegment> segments = lay(layout);
            for (const GradSegment& s : segments) {
              FillFloats(const_cast<void*>(s.grad), dtype, s.size, 5);
            }
            if (overflow) {
              const GradSegment& s = segments.back();
              std::memset(static_cast<char*>(const_cast<void*>(s.grad)) +
                              (s.size - 1) * precision::SizeOf(dtype),
                          0x7f, precision::SizeOf(dtype));
            }
          },
          [&](char* base, device::Stream& stream) -> absl::Status {
            Layout layout(base);
            const StepMemory step(layout);
            StepControlOptions options;
            options.lr_table = layout.Take<float>(2);
            options.lr_table_size = 1;
            options.max_grad_norm = 1.0;
            options.betas = betas;
            GradStats* const stats = layout.Take<GradStats>(1);
            const auto workspace = absl::MakeSpan(layout.Take<double>(4000), 4000);
            absl::Status status = GradCheck(lay(layout), dtype, workspace, stats, stream);
            status.Update(StepControl(absl::MakeConstSpan(stats, 1), options, step.state,
                                      step.group_steps, stream));
            return status;
          });
    }
  }
}

TEST(KernelsGpuTest, GradCheckAddsTheSumsOfManyTilesInTheSameOrder) {
  // Of more tiles than one block adds: each segment has one.
  constexpr int64_t kTiles = 5000;
  constexpr int64_t kEach = 3;
  for (const bool in_halves : {false, true}) {
    ExpectSameOnBoth(
        in_halves ? "grad_check of many tiles in halves" : "grad_check of many tiles",
        [&](char* base) {
          Layout layout(base);
          layout.Take<GradStats>(1);
          FillFloats(layout.Take<float>(kTiles * kEach), DType::kFloat32, kTiles * kEach, 8);
        },
        [&](char* base, device::Stream& stream) -> absl::Status {
          Layout layout(base);
          GradStats* const stats = layout.Take<GradStats>(1);
          const float* const grad = layout.Take<float>(kTiles * kEach);
          std::vector<GradSegment> segments;
          for (int64_t i = 0; i < kTiles; ++i) segments.push_back({grad + i * kEach, kEach});
          const auto workspace = absl::MakeSpan(layout.Take<double>(kTiles), kTiles);
          absl::Status status;
          if (in_halves) {
            constexpr size_t kCut = 1700;
            const absl::Span<const GradSegment> all = segments;
            status.Update(
                GradTileSums(all.subspan(kCut), DType::kFloat32, workspace.subspan(kCut), stream));
            status.Update(
                GradTileSums(all.first(kCut), DType::kFloat32, workspace.first(kCut), stream));
            status.Update(GradCheckFinish(workspace, stats, stream));
          } else {
            status.Update(GradCheck(segments, DType::kFloat32, workspace, stats, stream));
          }
          // What it holds now differs between devices.
          const FillSegment cleared = {workspace.data(), kTiles};
          status.Update(Fill({&cleared, 1}, DType::kFloat64, 0, stream));
          return status;
        });
  }
}

TEST(KernelsGpuTest, CastGivesTheCpusBits) {
  for (const DType source_dtype : kFloats) {
    for (const DType target_dtype : kFloats) {
      for (const bool accumulate : {false, true}) {
        const auto lay = [&](Layout& layout) {
          std::vector<CastSegment> segments;
          for (const int64_t n : Sizes()) {
            const int64_t o = segments.size() % 9;
            const void* source = layout.Take<char>(n, o, precision::SizeOf(source_dtype));
            void* target =
                layout.Take<char>(n, o + segments.size() % 2, precision::SizeOf(target_dtype));
            segments.push_back({source, target, n});
          }
          return segments;
        };
        ExpectSameOnBoth(
            absl::StrCat("cast ", precision::Name(source_dtype), " to ",
                         precision::Name(target_dtype)),
            [&](char* base) {
              Layout layout(base);
              *layout.Take<float>(1) = 0.3f;
              for (const CastSegment& s : lay(layout)) {
                FillFloats(const_cast<void*>(s.source), source_dtype, s.size, 6, 100.0f);
                FillFloats(s.target, target_dtype, s.size, 7);
              }
            },
            [&](char* base, device::Stream& stream) {
              Layout layout(base);
              CastOptions options = {source_dtype, target_dtype, layout.Take<float>(1), accumulate};
              return Cast(lay(layout), options, stream);
            });
      }
    }
  }
}

TEST(KernelsGpuTest, FlattenAndUnflattenGiveTheCpusBits) {
  constexpr int64_t kFlatSize = 1'200'000;
  for (const DType tensor_dtype : kFloats) {
    for (const DType flat_dtype : kFloats) {
      for (int variant = 0; variant < 4; ++variant) {
        const bool accumulate = variant % 2 == 1;
        const bool into_flat = variant / 2 == 1;
        struct Arrays {
          float* scale;
          FlatBuffer flat;
          std::vector<FlatSlot> slots;
        };
        // Places with gaps between them; some agree with their tensor's distance from a boundary.
        const auto lay = [&](char* base) {
          Layout layout(base);
          Arrays arrays;
          arrays.scale = layout.Take<float>(1);
          arrays.flat = {layout.Take<char>(kFlatSize, 0, precision::SizeOf(flat_dtype)), kFlatSize,
                         flat_dtype};
          int64_t place = 0;
          for (const int64_t n : Sizes()) {
            const int64_t o = arrays.slots.size() % 9;
            place = (place + 7) / 8 * 8 + o + arrays.slots.size() % 2;
            void* const tensor = layout.Take<char>(n, o, precision::SizeOf(tensor_dtype));
            arrays.slots.push_back({tensor, n, place});
            place += n;
          }
          EXPECT_LE(place, kFlatSize);
          return arrays;
        };
        const auto prepare = [&](char* base) {
          const Arrays arrays = lay(base);
          *arrays.scale = 0.3f;
          FillFloats(arrays.flat.data, flat_dtype, kFlatSize, 8);
          for (const FlatSlot& s : arrays.slots) FillFloats(s.tensor, tensor_dtype, s.size, 9);
        };
        const std::string what =
            absl::StrCat(into_flat ? "flatten " : "unflatten ", precision::Name(tensor_dtype),
                         ", flat buffer ", precision::Name(flat_dtype));
        const BeforeAndAfter memory =
            ExpectSameOnBoth(what, prepare, [&](char* base, device::Stream& stream) {
              const Arrays arrays = lay(base);
              const FlattenOptions options = {tensor_dtype, arrays.scale, accumulate};
              return into_flat ? Flatten(arrays.slots, options, arrays.flat, stream)
                               : Unflatten(arrays.flat, arrays.slots, options, stream);
            });
        EXPECT_FALSE(memory.after == memory.before) << what;
      }
    }
  }
}

// A launch of few blocks and one whose blocks take several tiles. Not NaN, whose payloads are not
// promised: an infinite factor has no zeros to meet.
TEST(KernelsGpuTest, AmaxGivesTheCpusBits) {
  for (const DType dtype : kFloats) {
    for (const int64_t size : {0, 1, 5000, 2'500'000}) {
      for (const auto& [infinite, factor] :
           {std::pair(false, 0.3f), {true, 0.3f}, {false, INFINITY}}) {
        struct Arrays {
          float* factor;
          AmaxWorkspace* workspace;
          AmaxResult* result;
          char* array;
        };
        const auto lay = [&](char* base) {
          Layout layout(base);
          return Arrays{layout.Take<float>(1), layout.Take<AmaxWorkspace>(1),
                        layout.Take<AmaxResult>(1),
                        layout.Take<char>(size, 3, precision::SizeOf(dtype))};
        };
        ExpectSameOnBoth(
            absl::StrCat("amax ", precision::Name(dtype), ", ", size),
            [&](char* base) {
              const Arrays arrays = lay(base);
              *arrays.factor = factor;
              FillFloats(arrays.array, dtype, size, 10, 100.0f);
              precision::VisitFloat(dtype, [&](auto tag) {
                using T = decltype(tag);
                T* const array = reinterpret_cast<T*>(arrays.array);
                if (infinite && size != 0) array[size - 1] = T(-INFINITY);
                if (!std::isinf(factor)) return;
                for (int64_t i = 0; i < size; ++i) {
                  if (static_cast<float>(array[i]) == 0.0f) array[i] = T(1.0f);
                }
              });
            },
            [&](char* base, device::Stream& stream) {
              const Arrays arrays = lay(base);
              absl::Status status = Amax(arrays.array, size, {dtype, arrays.factor},
                                         arrays.workspace, arrays.result, stream);
              // How the array is cut into parts differs between processors.
              status.Update(stream.FillBytes(arrays.workspace, 0, sizeof(AmaxWorkspace)));
              return status;
            });
      }
    }
  }
}

// Lists of whole tensors, of columns and of odd places.
TEST(KernelsGpuTest, DigestGivesTheCpusBits) {
  struct Arrays {
    std::vector<DigestSegment> segments;
    TensorDigest* digests;
  };
  const auto lay = [](char* base) {
    Layout layout(base);
    Arrays arrays;
    arrays.digests = layout.Take<TensorDigest>(8);
    for (const int64_t n : Sizes()) {
      const auto i = static_cast<int64_t>(arrays.segments.size());
      const char* const data = layout.Take<char>(n, i % 11, 2);
      const int64_t run = i % 3 == 0 ? 0 : 2 + 2 * n % 4098;
      arrays.segments.push_back({data, 2 * n, i % 5 == 4 ? 2 * i : 2 * (i % 11), run,
                                 i % 2 == 0 ? 4 * run : 3 * run + 2, i % 8});
    }
    return arrays;
  };
  ExpectSameOnBoth(
      "digest",
      [&](char* base) {
        const Arrays arrays = lay(base);
        std::fill_n(arrays.digests, 8, TensorDigest());
        for (const DigestSegment& s : arrays.segments) {
          FillFloats(const_cast<void*>(s.data), DType::kBFloat16, s.size / 2, 11, 1.0f);
        }
      },
      [&](char* base, device::Stream& stream) {
        const Arrays arrays = lay(base);
        return Digest(arrays.segments, {arrays.digests, 8}, stream);
      });
}

TEST(KernelsGpuTest, FillGivesTheCpusBits) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt64, DType::kUint8}) {
    ExpectSameOnBoth(
        absl::StrCat("fill ", precision::Name(dtype)), [](char*) {},
        [&](char* base, device::Stream& stream) {
          Layout layout(base);
          std::vector<FillSegment> segments;
          for (const int64_t n : Sizes()) {
            segments.push_back(
                {layout.Take<char>(n, segments.size() % 13, precision::SizeOf(dtype)), n});
          }
          return Fill(segments, dtype, 7.0, stream);
        });
  }
}

TEST(LaunchGpuTest, AnOlderErrorOfTheThreadIsNotTheLaunchs) {
  device::ContextOptions options;
  options.device = device::Cuda();
  auto context = device::Context::Create(options).value();
  auto stream = context->CreateStream("compute").value();
  auto memory = context->Allocate(4096, device::Purpose::kScratch).value();
  ASSERT_EQ(cudaSetDevice(1000), cudaErrorInvalidDevice);
  const FillSegment segment = {memory.data(), 1024};
  EXPECT_OK(Fill({segment}, precision::DType::kFloat32, 1.0, *stream));
  // It is still its maker's to read.
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_OK(stream->Synchronize());
}

}  // namespace
}  // namespace brigade::kernels
