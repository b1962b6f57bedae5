// Muon on the GPU. Momenta and parameters: one pass over memory, as the other optimizers. Products:
// a block of 256 threads makes 64 x 64 sums, 16 a thread, from strips of 16 terms in shared memory:
// fp32's fma, not tensor cores, whose sums have no order that a CPU could follow. Each term that is
// loaded meets 64 others, 32 bytes a fma of a warp from shared memory.

#include "brigade/kernels/internal/segments.h"
#include "brigade/kernels/internal/update_tile.h"
#include "brigade/kernels/launch_kernel.h"
#include "brigade/kernels/muon/muon_cuda.h"

namespace brigade::kernels {
namespace {

// Untuned, all of them.
constexpr int kBlocksPerSm = 5;
constexpr int kThreads = 256;
constexpr int kBlock = 64;
constexpr int kStrip = 16;
// A thread's sums: 4 x 4, 16 rows and columns apart, so that a warp's neighbours are neighbours.
constexpr int kSide = 4;
constexpr int kAcross = kBlock / kSide;
// Elements of a matrix that a block normalises or restores.
constexpr int64_t kMoved = 4096;
// What a launch's arguments hold.
constexpr int kMaxProducts = 300;
constexpr int kMaxMoves = 500;

template <typename Grad, int kCapacity>
__global__ void __launch_bounds__(kTileThreads, kBlocksPerSm)
    MomentumKernel(const __grid_constant__ UpdateArguments<MuonMomentumPolicy, kCapacity> a) {
  UpdateThread<MuonMomentumPolicy, Grad, NoCopy>(a, blockIdx.x, threadIdx.x);
}

template <typename Copy, int kCapacity>
__global__ void __launch_bounds__(kTileThreads, kBlocksPerSm)
    ParamsKernel(const __grid_constant__ UpdateArguments<MuonParamPolicy, kCapacity> a) {
  UpdateThread<MuonParamPolicy, float, Copy>(a, blockIdx.x, threadIdx.x);
}

template <typename Policy, typename Grad, typename Copy, typename Launch>
cudaError_t LaunchUpdate(const typename Policy::Segment* segments, int64_t count,
                         const MuonParameters& parameters, const Launch& launch) {
  if (!NamesStep(parameters) || !HasOwnSteps<Policy>(parameters, segments, count)) {
    return cudaErrorInvalidValue;
  }
  const auto tiles_of = [](const typename Policy::Segment& s) {
    return UpdateLayout<Policy, Grad, Copy>(s).Tiles(s.size);
  };
  return WithCapacity<Policy::kMaxSegments>(count, [&](auto capacity) {
    UpdateArguments<Policy, capacity> arguments;
    arguments.parameters = parameters;
    return ForEachBatch(
        segments, count, kMaxGridBlocks, tiles_of, arguments.batch, cudaSuccess, [&](int64_t) {
          return launch(capacity, static_cast<unsigned>(arguments.batch.tiles()), arguments);
        });
  });
}

// A matrix on its way to or from its workspace.
struct Move {
  MuonMatrix matrix;
  bool swapped;
};
template <int kCapacity>
struct MoveArguments {
  double eps;
  SegmentBatch<Move, kCapacity> batch;
};
template <int kCapacity>
struct ProductArguments {
  SegmentBatch<MuonProduct, kCapacity> batch;
};
static_assert(sizeof(MoveArguments<kMaxMoves>) <= kMaxLaunchArgumentBytes);
static_assert(sizeof(ProductArguments<kMaxProducts>) <= kMaxLaunchArgumentBytes);

// A block a tile, a thread a lane.
template <int kCapacity>
__global__ void __launch_bounds__(kMuonLanes)
    SumKernel(const __grid_constant__ MoveArguments<kCapacity> arguments) {
  __shared__ double lanes[kMuonLanes];
  const auto& batch = arguments.batch;
  const int index = batch.Find(blockIdx.x);
  const MuonMatrix& m = batch.segments[index].matrix;
  const int64_t tile = blockIdx.x - batch.first_tile[index];
  const int64_t rest = m.rows * m.columns - tile * kMuonTile;
  const int64_t size = rest < kMuonTile ? rest : kMuonTile;
  const float* const x = m.update + tile * kMuonTile;
  double lane = 0.0;
  for (int64_t i = threadIdx.x; i < size; i += kMuonLanes) lane = AddMuonSquare(lane, x[i]);
  lanes[threadIdx.x] = lane;
  for (int half = kMuonLanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      lanes[threadIdx.x] = precision::Add(lanes[threadIdx.x], lanes[threadIdx.x + half]);
    }
  }
  if (threadIdx.x == 0) reinterpret_cast<double*>(m.workspace)[tile] = lanes[0];
}

// Calls move(matrix element, workspace element) for those of a block.
template <typename Matrix, typename Moving>
__device__ void ForMoved(const Matrix& m, const MuonWorkspace& w, int64_t tile,
                         const Moving& move) {
  const bool transposed = m.rows < m.columns;
  const int64_t size = w.tall * w.wide;
  for (int64_t i = tile * kMoved + threadIdx.x; i < (tile + 1) * kMoved && i < size;
       i += kThreads) {
    move(i, transposed ? i % w.tall * w.wide + i / w.tall : i);
  }
}

template <int kCapacity>
__global__ void __launch_bounds__(kThreads)
    NormalizeKernel(const __grid_constant__ MoveArguments<kCapacity> arguments) {
  __shared__ float norm;
  const auto& batch = arguments.batch;
  const int index = batch.Find(blockIdx.x);
  const MuonMatrix& m = batch.segments[index].matrix;
  const MuonWorkspace w = MuonWorkspaceOf(m.rows, m.columns);
  if (threadIdx.x == 0) {
    norm = MuonNorm(reinterpret_cast<const double*>(m.workspace), MuonTiles(w.tall * w.wide),
                    arguments.eps);
  }
  __syncthreads();
  float* const to = m.workspace + w.matrix;
  ForMoved(m, w, blockIdx.x - batch.first_tile[index],
           [&](int64_t own, int64_t other) { to[other] = precision::Div(m.update[own], norm); });
}

template <int kCapacity>
__global__ void __launch_bounds__(kThreads)
    RestoreKernel(const __grid_constant__ MoveArguments<kCapacity> arguments) {
  const auto& batch = arguments.batch;
  const int index = batch.Find(blockIdx.x);
  const Move& move = batch.segments[index];
  const MuonMatrix& m = move.matrix;
  const MuonWorkspace w = MuonWorkspaceOf(m.rows, m.columns);
  const float* const from = m.workspace + (move.swapped ? w.next : w.matrix);
  ForMoved(m, w, blockIdx.x - batch.first_tile[index],
           [&](int64_t own, int64_t other) { m.update[own] = from[other]; });
}

__device__ __host__ int64_t BlocksAcross(const MuonProduct& p) { return CeilDiv(p.n, kBlock); }

template <int kCapacity>
__global__ void __launch_bounds__(kThreads, 2)
    ProductKernel(const __grid_constant__ ProductArguments<kCapacity> arguments) {
  // One more, so that columns of A, which are stored across, are in banks of their own.
  __shared__ float a[kStrip][kBlock + 1];
  __shared__ float b[kStrip][kBlock];
  const auto& batch = arguments.batch;
  const int index = batch.Find(blockIdx.x);
  const MuonProduct& p = batch.segments[index];
  const int64_t block = blockIdx.x - batch.first_tile[index];
  const int64_t row = block / BlocksAcross(p) * kBlock;
  const int64_t column = block % BlocksAcross(p) * kBlock;
  const int thread = threadIdx.x;
  const int r = thread / kAcross;
  const int c = thread % kAcross;
  float sums[kSide][kSide] = {};
  for (int64_t first = 0; first < p.k; first += kStrip) {
    __syncthreads();
    for (int i = thread; i < kStrip * kBlock; i += kThreads) {
      // By the stride that is 1, so that neighbours load neighbours. What is behind the edges is 0
      // and enters no sum that is stored.
      const bool by_rows = p.a_row == 1;
      const int at = by_rows ? i % kBlock : i / kStrip;
      const int term = by_rows ? i / kBlock : i % kStrip;
      const bool has = row + at < p.m && first + term < p.k;
      a[term][at] = has ? p.a[(row + at) * p.a_row + (first + term) * p.a_column] : 0.0f;
      const int64_t term_of_b = first + i / kBlock;
      const int64_t column_of_b = column + i % kBlock;
      b[i / kBlock][i % kBlock] =
          term_of_b < p.k && column_of_b < p.n ? p.b[term_of_b * p.n + column_of_b] : 0.0f;
    }
    __syncthreads();
    // A sum takes the terms that there are: a term of zeros would make +0 of -0, and NaN of an
    // infinity.
    const int terms = p.k - first < kStrip ? static_cast<int>(p.k - first) : kStrip;
    for (int t = 0; t < terms; ++t) {
      float x[kSide], y[kSide];
      for (int i = 0; i < kSide; ++i) x[i] = a[t][r + i * kAcross];
      for (int j = 0; j < kSide; ++j) y[j] = b[t][c + j * kAcross];
      for (int i = 0; i < kSide; ++i) {
        for (int j = 0; j < kSide; ++j) sums[i][j] = precision::Fma(x[i], y[j], sums[i][j]);
      }
    }
  }
  for (int i = 0; i < kSide; ++i) {
    for (int j = 0; j < kSide; ++j) {
      const int64_t at_row = row + r + i * kAcross;
      const int64_t at_column = column + c + j * kAcross;
      if (at_row >= p.m || at_column >= p.n) continue;
      const int64_t at = at_row * p.n + at_column;
      p.out[at] = p.d == nullptr ? sums[i][j] : MuonOutput(p, sums[i][j], p.d[at]);
    }
  }
}

// One launch after another, of up to kMaxMoves matrices.
template <typename TilesOf, typename Launch>
cudaError_t ForMoves(const MuonMatrix* matrices, int64_t count, bool swapped, double eps,
                     const TilesOf& tiles_of, const Launch& launch) {
  return WithCapacity<kMaxMoves>(count, [&](auto capacity) {
    MoveArguments<capacity> arguments;
    arguments.eps = eps;
    for (int64_t i = 0; i < count; i += capacity) {
      Move moves[capacity];
      const int64_t some = count - i < capacity ? count - i : int64_t{capacity};
      for (int64_t j = 0; j < some; ++j) moves[j] = {matrices[i + j], swapped};
      const cudaError_t error = ForEachBatch(
          moves, some, kMaxGridBlocks,
          [&](const Move& move) { return tiles_of(move.matrix.rows * move.matrix.columns); },
          arguments.batch, cudaSuccess,
          [&](int64_t) {
            return launch(capacity, static_cast<unsigned>(arguments.batch.tiles()), arguments);
          });
      if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
  });
}

cudaError_t LaunchProducts(const MuonMatrix* matrices, int64_t count, int product, bool swapped,
                           const MuonCoefficients& coefficients, cudaStream_t stream) {
  return WithCapacity<kMaxProducts>(count, [&](auto capacity) {
    ProductArguments<capacity> arguments;
    for (int64_t i = 0; i < count; i += capacity) {
      MuonProduct products[capacity];
      const int64_t some = count - i < capacity ? count - i : int64_t{capacity};
      for (int64_t j = 0; j < some; ++j) {
        const MuonMatrix& m = matrices[i + j];
        products[j] = {};
        if (m.rows == 0 || m.columns == 0) continue;
        products[j] = MuonProductOf(product, MuonWorkspaceOf(m.rows, m.columns), m.workspace,
                                    swapped, coefficients);
      }
      const cudaError_t error = ForEachBatch(
          products, some, kMaxGridBlocks,
          [](const MuonProduct& p) { return CeilDiv(p.m, kBlock) * BlocksAcross(p); },
          arguments.batch, cudaSuccess,
          [&](int64_t) {
            return LaunchKernel<ProductKernel<capacity>>(
                static_cast<unsigned>(arguments.batch.tiles()), kThreads, stream, arguments);
          });
      if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
  });
}

}  // namespace

template <typename Grad>
cudaError_t LaunchMuonMomentum(const MuonMomentumSegment* segments, int64_t count,
                               const MuonParameters& parameters, cudaStream_t stream) {
  return LaunchUpdate<MuonMomentumPolicy, Grad, NoCopy>(
      segments, count, parameters, [&](auto capacity, unsigned blocks, const auto& arguments) {
        return LaunchKernel<MomentumKernel<Grad, capacity>>(blocks, kTileThreads, stream,
                                                            arguments);
      });
}

template <typename Copy>
cudaError_t LaunchMuonParams(const MuonParamSegment* segments, int64_t count,
                             const MuonParameters& parameters, cudaStream_t stream) {
  return LaunchUpdate<MuonParamPolicy, float, Copy>(
      segments, count, parameters, [&](auto capacity, unsigned blocks, const auto& arguments) {
        return LaunchKernel<ParamsKernel<Copy, capacity>>(blocks, kTileThreads, stream, arguments);
      });
}

cudaError_t LaunchMuonOrthogonalize(const MuonMatrix* matrices, int64_t count, int steps,
                                    const MuonCoefficients& coefficients, double eps,
                                    cudaStream_t stream) {
  const auto moved = [](int64_t elements) { return CeilDiv(elements, kMoved); };
  cudaError_t error =
      ForMoves(matrices, count, false, eps, MuonTiles,
               [&](auto capacity, unsigned blocks, const auto& arguments) {
                 return LaunchKernel<SumKernel<capacity>>(blocks, kMuonLanes, stream, arguments);
               });
  if (error != cudaSuccess) return error;
  error = ForMoves(matrices, count, false, eps, moved,
                   [&](auto capacity, unsigned blocks, const auto& arguments) {
                     return LaunchKernel<NormalizeKernel<capacity>>(blocks, kThreads, stream,
                                                                    arguments);
                   });
  for (int step = 0; step < steps; ++step) {
    for (int product = 0; product < kMuonProducts && error == cudaSuccess; ++product) {
      error = LaunchProducts(matrices, count, product, step % 2 != 0, coefficients, stream);
    }
  }
  if (error != cudaSuccess) return error;
  return ForMoves(matrices, count, steps % 2 != 0, eps, moved,
                  [&](auto capacity, unsigned blocks, const auto& arguments) {
                    return LaunchKernel<RestoreKernel<capacity>>(blocks, kThreads, stream,
                                                                 arguments);
                  });
}

template cudaError_t LaunchMuonMomentum<float>(const MuonMomentumSegment*, int64_t,
                                               const MuonParameters&, cudaStream_t);
template cudaError_t LaunchMuonMomentum<precision::Half>(const MuonMomentumSegment*, int64_t,
                                                         const MuonParameters&, cudaStream_t);
template cudaError_t LaunchMuonMomentum<precision::BFloat16>(const MuonMomentumSegment*, int64_t,
                                                             const MuonParameters&, cudaStream_t);
template cudaError_t LaunchMuonParams<NoCopy>(const MuonParamSegment*, int64_t,
                                              const MuonParameters&, cudaStream_t);
template cudaError_t LaunchMuonParams<precision::Half>(const MuonParamSegment*, int64_t,
                                                       const MuonParameters&, cudaStream_t);
template cudaError_t LaunchMuonParams<precision::BFloat16>(const MuonParamSegment*, int64_t,
                                                           const MuonParameters&, cudaStream_t);

}  // namespace brigade::kernels
