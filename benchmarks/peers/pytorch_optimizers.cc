// The kernels that pytorch_optimizers compares, as functions that Python can call: one step of one
// tensor in fp32 with `threads` threads of OpenMP. They return 0, or 1 where a step was refused.

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "bk_adafactor/kernels/adafactor/adafactor_cpu.h"
#include "bk_adafactor/kernels/adafactor/adafactor_parameters.h"
#include "bk_adam8/kernels/adam8/adam8_cpu.h"
#include "bk_adam8/kernels/adam8/adam8_parameters.h"
#include "bk_muon/kernels/muon/muon_cpu.h"
#include "bk_muon/kernels/muon/muon_parameters.h"

namespace {

// The loops of the ceilings, with the instructions that a processor has.
#define EVERY_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
EVERY_PROCESSOR void Update(float* x, int64_t size, float by) {
  for (int64_t i = 0; i < size; ++i) x[i] *= by;
}
EVERY_PROCESSOR float Sum(const float* x, int64_t size) {
  constexpr int kLanes = 64;
  float lanes[kLanes] = {};
  for (int64_t i = 0; i + kLanes <= size; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) lanes[k] += x[i + k];
  }
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

namespace ada = bk_adafactor::kernels;
namespace a8 = bk_adam8::kernels;
namespace mu = bk_muon::kernels;

// range(begin, end) of [0, size), in parts of a multiple of `unit`; whether all gave 0.
template <typename Range>
bool ForRanges(int64_t size, int64_t unit, int threads, const Range& range) {
  const int64_t units = (size + unit - 1) / unit;
  // Several a thread, for others may be busy.
  const int64_t parts = std::min<int64_t>(units, threads == 1 ? 1 : 8 * threads);
  bool done = true;
#pragma omp parallel for num_threads(threads) schedule(dynamic) reduction(&& : done)
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t begin = units * i / parts * unit;
    const int64_t end = std::min(size, units * (i + 1) / parts * unit);
    done = range(begin, end) && done;
  }
  return done;
}

}  // namespace

extern "C" {

// What torch.optim.Adafactor does with eps=(None, eps2) and no weight decay.
int64_t adafactor_workspace(int64_t rows, int64_t columns) {
  return ada::AdafactorWorkspaceSize(rows, columns);
}
int adafactor_step(float* param, const float* grad, float* factors, float* scales,
                   double* workspace, int64_t rows, int64_t columns, int64_t step, float lr,
                   int threads) {
  const ada::AdafactorGroup group;
  ada::AdafactorSettings settings;
  settings.relative_step = false;
  const ada::AdafactorParameters p =
      ada::MakeAdafactorParameters(&group, 1, settings, {step, &lr, 1.0f});
  if (ada::AdafactorStepError(p, 0) != ada::StepError::kNone) return 1;
  const ada::AdafactorTensor t = {param, grad, factors, scales, workspace, rows, columns, 0};
  const ada::AdafactorGrid g = ada::AdafactorGridOf(rows, columns);
  const auto all = [&](int64_t size, int64_t unit, const auto& range) {
    return ForRanges(size, unit, threads, [&](int64_t begin, int64_t end) {
      range(begin, end);
      return true;
    });
  };
  all(g.down, 1, [&](int64_t b, int64_t e) { ada::AdafactorSumTiles<float>(t, p, b, e); });
  all(rows, 256, [&](int64_t b, int64_t e) { ada::AdafactorRows(t, p, b, e); });
  all(columns, 256, [&](int64_t b, int64_t e) { ada::AdafactorColumns(t, p, b, e); });
  ada::AdafactorMeans(t);
  all(g.down, 1, [&](int64_t b, int64_t e) { ada::AdafactorUpdateTiles<float>(t, p, b, e); });
  ada::AdafactorNumbers(t, p);
  const ada::AdafactorSegment s = {param,  nullptr, grad,    nullptr, rows * columns,
                                   scales, rows,    columns, 0,       0};
  const bool done = ForRanges(s.size, 1024, threads, [&](int64_t b, int64_t e) {
    return ada::AdafactorParamRange<float, ada::NoCopy>(s, p, b, e) == ada::StepError::kNone;
  });
  return done ? 0 : 1;
}

// torch.optim.Muon with its defaults.
int64_t muon_workspace(int64_t rows, int64_t columns) {
  return mu::MuonWorkspaceSize(rows, columns);
}
int muon_step(float* param, float* momentum, float* update, float* workspace, const float* grad,
              int64_t rows, int64_t columns, int64_t step, float lr, int threads) {
  const mu::MuonGroup group;
  const mu::MuonParameters p = mu::MakeMuonParameters(&group, 1, {step, &lr, 1.0f});
  const int64_t size = rows * columns;
  const mu::MuonMomentumSegment moments = {momentum, update, grad, nullptr, size, 0};
  const auto all = [&](int64_t count, int64_t unit, const auto& range) {
    ForRanges(count, unit, threads, [&](int64_t begin, int64_t end) {
      range(begin, end);
      return true;
    });
  };
  bool done = ForRanges(size, 1024, threads, [&](int64_t b, int64_t e) {
    return mu::MuonMomentumRange<float>(moments, p, b, e) == mu::StepError::kNone;
  });
  constexpr int kSteps = 5;
  const mu::MuonMatrix matrix = {update, workspace, rows, columns};
  const mu::MuonWorkspace w = mu::MuonWorkspaceOf(rows, columns);
  all(mu::MuonTiles(size), 1, [&](int64_t b, int64_t e) { mu::MuonSumTiles(matrix, b, e); });
  all(w.tall, 1, [&](int64_t b, int64_t e) { mu::MuonNormalizeRows(matrix, 1e-7, b, e); });
  for (int i = 0; i < kSteps; ++i) {
    for (int k = 0; k < mu::kMuonProducts; ++k) {
      const mu::MuonProduct product =
          mu::MuonProductOf(k, w, workspace, i % 2 != 0, mu::MuonCoefficients());
      all(mu::MuonBlocks(product), 1,
          [&](int64_t b, int64_t e) { mu::MuonProductBlocks(product, b, e); });
    }
  }
  all(rows, 1, [&](int64_t b, int64_t e) { mu::MuonRestoreRows(matrix, kSteps % 2 != 0, b, e); });
  const mu::MuonParamSegment s = {param,
                                  update,
                                  nullptr,
                                  size,
                                  0,
                                  1.0f,
                                  mu::MuonScaleOf(mu::MuonScale::kOriginal, rows, columns)};
  done = ForRanges(size, 1024, threads,
                   [&](int64_t b, int64_t e) {
                     return mu::MuonParamRange<mu::NoCopy>(s, p, b, e) == mu::StepError::kNone;
                   }) &&
         done;
  return done ? 0 : 1;
}

// AdamW with betas 0.9 and 0.999, eps 1e-8 and weight decay 0.01.
int adam8_step(float* param, uint8_t* m, uint8_t* v, float* m_scale, float* v_scale,
               const float* grad, int64_t size, int64_t step, float lr, int threads) {
  const a8::AdamGroup group = {0.9, 0.999, 1e-8, 0.01};
  const a8::AdamParameters p =
      a8::MakeAdamParameters(&group, 1, a8::WeightDecayMode::kDecoupled, {step, &lr, 1.0f});
  const a8::Adam8Segment s = {param, m, v, m_scale, v_scale, grad, nullptr, size, 0};
  const bool done = ForRanges(size, 16 * a8::kMomentBlock, threads, [&](int64_t b, int64_t e) {
    return a8::Adam8Range<float, a8::NoCopy>(s, p, b, e) == a8::StepError::kNone;
  });
  return done ? 0 : 1;
}

// Traffic for the ceilings: x[i] *= 1 in place, and the sum of all of x.
void update_all(float* x, int64_t size, int threads) {
  const volatile float one = 1.0f;
  ForRanges(size, 4096, threads, [&](int64_t begin, int64_t end) {
    Update(x + begin, end - begin, one);
    return true;
  });
}
float read_all(const float* x, int64_t size, int threads) {
  std::atomic<float> sum = 0;
  ForRanges(size, 4096, threads, [&](int64_t begin, int64_t end) {
    sum += Sum(x + begin, end - begin);
    return true;
  });
  return sum;
}

}  // extern "C"
