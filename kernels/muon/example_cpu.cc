// One step of Muon on the CPU, in the calling thread: of a matrix with singular values 30 and 4;
// and such a matrix made orthogonal by several threads. It needs muon_cpu.cc and simd.cc with what
// they include, and nothing else.
//
// Prints: update 0.71 0.00 0.00 0.69, param 0.93 0.00 0.00 0.93; by threads 0.71 0.00 0.00 0.69

#include <cstdint>
#include <cstdio>
#include <thread>

#include "brigade/kernels/muon/muon_cpu.h"
#include "brigade/kernels/muon/muon_parameters.h"

namespace {

namespace bk = brigade::kernels;

// The parameters of a step, counted from 1.
bk::MuonParameters ParametersOf(int64_t step) {
  const bk::MuonGroup group = {/*momentum=*/0.95, /*nesterov=*/true, /*weight_decay=*/0.0};
  const float lr = 0.1f;
  return bk::MakeMuonParameters(&group, 1, bk::OneStep{step, &lr, /*grad_multiplier=*/1.0f});
}

// One step of a matrix, with a workspace of MuonWorkspaceSize(rows, columns), aligned to 8 bytes.
bk::StepError Step(float* param, float* momentum, float* update, const float* grad,
                   float* workspace, int64_t rows, int64_t columns, int64_t step) {
  const int64_t size = rows * columns;
  const bk::MuonParameters parameters = ParametersOf(step);
  const bk::MuonMomentumSegment moments = {momentum, update, grad, nullptr, size, /*group=*/0};
  const bk::MuonMatrix matrix = {update, workspace, rows, columns};
  const float scale = bk::MuonScaleOf(bk::MuonScale::kOriginal, rows, columns);
  const bk::MuonParamSegment params = {
      param, update, /*param_copy=*/nullptr, size, /*group=*/0, /*rate=*/1.0f, scale};
  // Any threads may take any parts of [0, size).
  const bk::StepError error = bk::MuonMomentumRange<float>(moments, parameters, 0, size);
  if (error != bk::StepError::kNone) return error;
  bk::MuonOrthogonalizeMatrix(matrix, /*steps=*/5, bk::MuonCoefficients(), /*eps=*/1e-7);
  return bk::MuonParamRange<bk::NoCopy>(params, parameters, 0, size);
}

// Stands for the parallel loop of a program, at::parallel_for for example, which cuts [0, count) as
// it likes, and ends when all of it is done.
template <typename Range>
void ParallelFor(int64_t count, const Range& range) {
  const int64_t middle = count / 2;
  std::thread other([&] { range(0, middle); });
  range(middle, count);
  other.join();
}

// MuonOrthogonalizeMatrix by the program's threads.
void OrthogonalizeByThreads(const bk::MuonMatrix& m, int steps, double eps) {
  const bk::MuonWorkspace w = bk::MuonWorkspaceOf(m.rows, m.columns);
  ParallelFor(bk::MuonTiles(w.tall * w.wide),
              [&](int64_t begin, int64_t end) { bk::MuonSumTiles(m, begin, end); });
  ParallelFor(w.tall,
              [&](int64_t begin, int64_t end) { bk::MuonNormalizeRows(m, eps, begin, end); });
  bool swapped = false;
  for (int step = 0; step < steps; ++step, swapped = !swapped) {
    for (int i = 0; i < bk::kMuonProducts; ++i) {
      const bk::MuonProduct product = bk::MuonProductOf(i, w, m.workspace, swapped, {});
      ParallelFor(bk::MuonBlocks(product),
                  [&](int64_t begin, int64_t end) { bk::MuonProductBlocks(product, begin, end); });
    }
  }
  ParallelFor(m.rows,
              [&](int64_t begin, int64_t end) { bk::MuonRestoreRows(m, swapped, begin, end); });
}

}  // namespace

int main() {
  float param[4] = {1, 0, 0, 1}, momentum[4] = {}, update[4] = {};
  const float grad[4] = {30, 0, 0, 4};
  alignas(8) float workspace[bk::MuonWorkspaceSize(2, 2)];
  const bk::StepError error = Step(param, momentum, update, grad, workspace, 2, 2, /*step=*/1);
  if (error != bk::StepError::kNone) {
    std::printf("the step %s\n", bk::Describe(error));
    return 1;
  }
  std::printf("update %.2f %.2f %.2f %.2f, param %.2f %.2f %.2f %.2f", update[0], update[1],
              update[2], update[3], param[0], param[1], param[2], param[3]);

  float matrix[4] = {30, 0, 0, 4};
  OrthogonalizeByThreads({matrix, workspace, 2, 2}, /*steps=*/5, /*eps=*/1e-7);
  std::printf("; by threads %.2f %.2f %.2f %.2f\n", matrix[0], matrix[1], matrix[2], matrix[3]);
}
