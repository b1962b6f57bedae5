// The products of a GPT's layers beside OpenBLAS's of fp32, and beside what multiply-adds reach.
// One thread, as each rank has for its products.

#include <cblas.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/benchmarks/common/figures.h"
#include "brigade/benchmarks/common/interleave.h"
#include "brigade/benchmarks/common/run_main.h"
#include "brigade/benchmarks/nn/peak.h"
#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/blas.h"
#include "brigade/nn/random.h"
#include "brigade/precision/dtype_names.h"

ABSL_FLAG(std::vector<std::string>, widths, (std::vector<std::string>{"128", "512"}),
          "widths of the model");
ABSL_FLAG(int64_t, rows, 2048, "positions of all texts");
ABSL_FLAG(int, rounds, 9, "how often everything is timed");
ABSL_FLAG(std::string, json, "", "also write the figures to this file");

namespace brigade::benchmarks {
namespace {

using precision::DType;

// A layer from `in` to `out` numbers: what it multiplies in a step.
struct Layer {
  std::string name;
  int64_t in, out;
};

std::vector<Layer> LayersOf(int64_t width) {
  return {{"qkv", width, 3 * width},
          {"out", width, width},
          {"up", width, 4 * width},
          {"down", 4 * width, width}};
}

enum Pass { kForward, kInput, kWeight, kPasses };

// y = x w', dx = dy w, dw += dy' x.
nn::GemmArguments Product(const Layer& layer, int pass, int64_t rows, DType dtype, void* x, void* w,
                          void* y) {
  const nn::Operand of_x = {x, layer.in}, of_w = {w, layer.in}, of_y = {y, layer.out};
  nn::GemmArguments g;
  g.dtype = dtype;
  const auto transposed = [](nn::Operand operand) {
    operand.transposed = true;
    return operand;
  };
  switch (pass) {
    case kForward:
      g.m = rows, g.n = layer.out, g.k = layer.in;
      g.a = of_x, g.b = transposed(of_w), g.c = of_y;
      break;
    case kInput:
      g.m = rows, g.n = layer.in, g.k = layer.out;
      g.a = of_y, g.b = of_w, g.c = of_x;
      break;
    default:
      g.m = layer.out, g.n = layer.in, g.k = rows;
      g.a = transposed(of_y), g.b = of_x, g.c = of_w;
      g.accumulate = true;
  }
  return g;
}

absl::Status EnqueueOpenBlas(const nn::GemmArguments& g, device::Stream& stream) {
  const auto cblas = [](const nn::Operand& operand) {
    return operand.transposed ? CblasTrans : CblasNoTrans;
  };
  const auto size = [](int64_t n) { return static_cast<blasint>(n); };
  return stream.Enqueue({"cblas_sgemm"}, [=](device::ThreadPool&) {
    cblas_sgemm(CblasRowMajor, cblas(g.a), cblas(g.b), size(g.m), size(g.n), size(g.k), 1,
                static_cast<const float*>(g.a.data), size(g.a.leading),
                static_cast<const float*>(g.b.data), size(g.b.leading), g.accumulate ? 1 : 0,
                static_cast<float*>(g.c.data), size(g.c.leading));
    return absl::OkStatus();
  });
}

// The arrays of a layer, of one type.
class Arrays {
 public:
  static absl::StatusOr<Arrays> Create(const Layer& layer, int64_t rows, DType dtype,
                                       device::Context& context) {
    Arrays arrays;
    const std::pair<device::Buffer*, int64_t> buffers[] = {{&arrays.x_, rows * layer.in},
                                                           {&arrays.w_, layer.in * layer.out},
                                                           {&arrays.y_, rows * layer.out}};
    for (const auto& [buffer, size] : buffers) {
      BRIGADE_ASSIGN_OR_RETURN(*buffer, context.Allocate(size * precision::SizeOf(dtype),
                                                         device::Purpose::kScratch, "benchmark"));
      precision::VisitFloat(dtype, [&](auto tag) {
        using T = decltype(tag);
        nn::Random random(1, 0);
        for (T& value : buffer->as<T>()) value = T(static_cast<float>(2 * random.Uniform() - 1));
      });
    }
    return arrays;
  }

  nn::GemmArguments Of(const Layer& layer, int pass, int64_t rows, DType dtype) {
    return Product(layer, pass, rows, dtype, x_.data(), w_.data(), y_.data());
  }

 private:
  device::Buffer x_, w_, y_;
};

// Seconds of each contestant, one entry a round, or their sums.
enum Contestant { kFloat, kBFloat16, kOpenBlas, kPeak, kPeakBFloat16, kContestants };
using Times = std::vector<Seconds>;

void Print(const std::string& name, double operations, const Times& times) {
  std::cout << absl::StrFormat("%-20s", name);
  for (const Seconds& each : times) {
    std::cout << absl::StrFormat(" %9.1f", operations * 1e-9 / Median(each));
  }
  std::cout << absl::StrFormat(" %9.2f %9.2f\n", MedianRatio(times[kOpenBlas], times[kFloat]),
                               MedianRatio(times[kOpenBlas], times[kBFloat16]));
}

absl::Status Measure(int64_t width, nn::Blas& blas, device::Context& context,
                     device::Stream& stream, Figures& figures) {
  const int64_t rows = absl::GetFlag(FLAGS_rows);
  const int rounds = absl::GetFlag(FLAGS_rounds);
  Times sums(kContestants, Seconds(static_cast<size_t>(rounds), 0.0));
  double all_operations = 0;
  for (const Layer& layer : LayersOf(width)) {
    BRIGADE_ASSIGN_OR_RETURN(Arrays wide, Arrays::Create(layer, rows, DType::kFloat32, context));
    BRIGADE_ASSIGN_OR_RETURN(Arrays narrow, Arrays::Create(layer, rows, DType::kBFloat16, context));
    for (int pass = 0; pass < kPasses; ++pass) {
      const nn::GemmArguments in_fp32 = wide.Of(layer, pass, rows, DType::kFloat32);
      const nn::GemmArguments in_bf16 = narrow.Of(layer, pass, rows, DType::kBFloat16);
      const double operations = 2.0 * static_cast<double>(rows * layer.in * layer.out);
      const Work contestants[] = {
          [&](device::Stream& to) { return blas.Gemm(in_fp32, to); },
          [&](device::Stream& to) { return blas.Gemm(in_bf16, to); },
          [&](device::Stream& to) { return EnqueueOpenBlas(in_fp32, to); },
          [&](device::Stream& to) { return EnqueuePeak(DType::kFloat32, operations, 1, to); },
          [&](device::Stream& to) { return EnqueuePeak(DType::kBFloat16, operations, 1, to); }};
      BRIGADE_ASSIGN_OR_RETURN(const Times times, Interleave(contestants, 1, rounds, stream));
      for (size_t k = 0; k < times.size(); ++k) {
        for (size_t round = 0; round < times[k].size(); ++round) sums[k][round] += times[k][round];
      }
      all_operations += operations;
      constexpr const char* kNames[] = {"forward", "dx", "dweight"};
      Print(absl::StrCat(width, " ", layer.name, " ", kNames[pass]), operations, times);
    }
  }
  Print(absl::StrCat(width, " all"), all_operations, sums);
  figures.Add(absl::StrCat("fp32_", width), MedianRatio(sums[kOpenBlas], sums[kFloat]));
  figures.Add(absl::StrCat("bf16_", width), MedianRatio(sums[kOpenBlas], sums[kBFloat16]));
  return absl::OkStatus();
}

absl::Status Main() {
  BRIGADE_ASSIGN_OR_RETURN(
      const auto context, device::Context::Create({.device = device::Cpu(), .compute_threads = 1}));
  BRIGADE_ASSIGN_OR_RETURN(const auto stream, context->CreateStream("compute"));
  const int64_t rows = absl::GetFlag(FLAGS_rows);
  std::vector<int64_t> widths;
  for (const std::string& text : absl::GetFlag(FLAGS_widths)) {
    widths.push_back(0);
    if (!absl::SimpleAtoi(text, &widths.back()) || widths.back() < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--widths has \"", text, "\"; it must be whole numbers from 1 on, as 128,512"));
    }
  }
  std::cout << absl::StrFormat(
      "# %d rows, 1 thread, GFLOP/s: ours in fp32 and bf16, OpenBLAS's in fp32, multiply-adds of "
      "both types on registers; and ours, times OpenBLAS's\n%-20s %9s %9s %9s %9s %9s %9s %9s\n",
      rows, "width, product", "fp32", "bf16", "OpenBLAS", "peak_fp32", "peak_bf16", "fp32", "bf16");
  Figures figures;
  for (const int64_t width : widths) {
    int64_t workspace = 0;
    for (const Layer& layer : LayersOf(width)) {
      workspace = std::max(workspace,
                           nn::Blas::WorkspaceBytes(DType::kBFloat16, rows, layer.in, layer.out));
    }
    BRIGADE_ASSIGN_OR_RETURN(const auto blas, nn::Blas::Create(*context, workspace));
    BRIGADE_RETURN_IF_ERROR(Measure(width, *blas, *context, *stream, figures));
  }
  return figures.Write(absl::GetFlag(FLAGS_json));
}

}  // namespace
}  // namespace brigade::benchmarks

int main(int argc, char** argv) {
  return brigade::benchmarks::RunMain(argc, argv, "products", brigade::benchmarks::Main);
}
