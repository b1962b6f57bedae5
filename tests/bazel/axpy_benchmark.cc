#include <benchmark/benchmark.h>

#include <vector>

#include "brigade/tests/bazel/axpy.h"

namespace {

void Axpy(benchmark::State& state) {
  std::vector<float> x(static_cast<size_t>(state.range(0)), 1.0f);
  std::vector<float> y = x;
  for (auto _ : state) {
    if (!brigade::tests::Axpy(0.5f, x, absl::MakeSpan(y)).ok()) state.SkipWithError("axpy");
    benchmark::DoNotOptimize(y.data());
  }
}
BENCHMARK(Axpy)->Arg(64)->Arg(1 << 20);

// What benchmarks/common/main.cc says, with the library's own main().
[[maybe_unused]] const bool is_explained = [] {
  benchmark::AddCustomContext("library", "a DEBUG build of it, as Debian's is, changes no test");
  return true;
}();

}  // namespace
