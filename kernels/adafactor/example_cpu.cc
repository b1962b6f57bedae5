// One step of Adafactor on the CPU, in the calling thread: of a matrix whose gradient is a product
// of its rows' and columns' sizes, so that its update is 1 everywhere; and its factors once more,
// by several threads. It needs adafactor_cpu.cc and simd.cc with what they include, and nothing
// else.
//
// Prints: rows 40.0 10.0, columns 10.0 40.0, param 0.9 0.9 0.9 0.9; by threads 40.0 10.0, 10.0 40.0

#include <cstdint>
#include <cstdio>
#include <thread>

#include "brigade/kernels/adafactor/adafactor_cpu.h"
#include "brigade/kernels/adafactor/adafactor_parameters.h"

namespace {

namespace bk = brigade::kernels;

// The parameters of a step, counted from 1.
bk::AdafactorParameters ParametersOf(int64_t step) {
  const bk::AdafactorGroup group;
  bk::AdafactorSettings settings;
  settings.scale_parameter = false;
  settings.relative_step = false;
  const float lr = 0.1f;
  return bk::MakeAdafactorParameters(&group, 1, settings,
                                     bk::OneStep{step, &lr, /*grad_multiplier=*/1.0f});
}

// One step of a matrix, with factors of AdafactorFactorCount(rows, columns) floats, scales of
// kAdafactorNumbers more and a workspace of AdafactorWorkspaceSize(rows, columns) doubles.
bk::StepError Step(float* param, const float* grad, float* factors, float* scales,
                   double* workspace, int64_t rows, int64_t columns, int64_t step) {
  const bk::AdafactorParameters parameters = ParametersOf(step);
  const bk::AdafactorTensor tensor = {/*param=*/nullptr, grad, factors, scales,
                                      workspace,         rows, columns, /*group=*/0};
  const bk::AdafactorSegment whole = {param,          /*m=*/nullptr, grad, /*param_copy=*/nullptr,
                                      rows * columns, scales,        rows, columns,
                                      /*first=*/0,    /*group=*/0};
  const bk::StepError error = bk::AdafactorFactorsOf<float>(tensor, parameters);
  if (error != bk::StepError::kNone) return error;
  // Any threads may take any parts of [0, size).
  return bk::AdafactorParamRange<float, bk::NoCopy>(whole, parameters, 0, whole.size);
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

// AdafactorFactorsOf by the program's threads, of a tensor with elements, in a step that is not
// skipped.
bk::StepError FactorsByThreads(const bk::AdafactorTensor& t, const bk::AdafactorParameters& p) {
  const bk::StepError error = bk::AdafactorStepError(p, t.group);
  if (error != bk::StepError::kNone) return error;
  const bk::AdafactorGrid grid = bk::AdafactorGridOf(t.rows, t.columns);
  ParallelFor(grid.down,
              [&](int64_t begin, int64_t end) { bk::AdafactorSumTiles<float>(t, p, begin, end); });
  if (grid.is_matrix) {
    ParallelFor(t.rows, [&](int64_t begin, int64_t end) { bk::AdafactorRows(t, p, begin, end); });
    ParallelFor(t.columns,
                [&](int64_t begin, int64_t end) { bk::AdafactorColumns(t, p, begin, end); });
    bk::AdafactorMeans(t);
    ParallelFor(grid.down, [&](int64_t begin, int64_t end) {
      bk::AdafactorUpdateTiles<float>(t, p, begin, end);
    });
  }
  bk::AdafactorNumbers(t, p);
  return error;
}

}  // namespace

int main() {
  float param[4] = {1, 1, 1, 1}, factors[bk::AdafactorFactorCount(2, 2)] = {};
  const float grad[4] = {4, 8, 2, 4};
  float scales[bk::kAdafactorNumbers + bk::AdafactorFactorCount(2, 2)];
  double workspace[bk::AdafactorWorkspaceSize(2, 2)];
  float again[bk::AdafactorFactorCount(2, 2)] = {};
  bk::StepError error = Step(param, grad, factors, scales, workspace, 2, 2, /*step=*/1);
  if (error == bk::StepError::kNone) {
    error = FactorsByThreads({/*param=*/nullptr, grad, again, scales, workspace, 2, 2, /*group=*/0},
                             ParametersOf(/*step=*/1));
  }
  if (error != bk::StepError::kNone) {
    std::printf("the step %s\n", bk::Describe(error));
    return 1;
  }
  std::printf("rows %.1f %.1f, columns %.1f %.1f, param %.1f %.1f %.1f %.1f", factors[0],
              factors[1], factors[2], factors[3], param[0], param[1], param[2], param[3]);
  std::printf("; by threads %.1f %.1f, %.1f %.1f\n", again[0], again[1], again[2], again[3]);
}
