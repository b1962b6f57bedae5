// A linear layer of one output: (1, 2) times (3, 4).
#include <cstdio>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/context.h"
#include "brigade/nn/blas.h"
#include "brigade/nn/linear.h"

namespace {

using brigade::device::Context;
using brigade::device::Stream;
using brigade::nn::Blas;

absl::StatusOr<float> Product() {
  const absl::StatusOr<std::unique_ptr<Context>> context = Context::Create({});
  if (!context.ok()) return context.status();
  const absl::StatusOr<std::unique_ptr<Stream>> stream = (*context)->CreateStream("compute");
  if (!stream.ok()) return stream.status();
  const absl::StatusOr<std::unique_ptr<Blas>> blas = Blas::Create(**context, 0);
  if (!blas.ok()) return blas.status();
  const float x[] = {1, 2};
  const float weight[] = {3, 4};
  float y = 0;
  const brigade::nn::LinearInput input = {.dtype = brigade::precision::DType::kFloat32,
                                          .x = x,
                                          .weight = weight,
                                          .rows = 1,
                                          .inputs = 2,
                                          .outputs = 1};
  absl::Status status = brigade::nn::Linear(input, nullptr, &y, **blas, **stream);
  status.Update((*stream)->Synchronize());
  if (!status.ok()) return status;
  return y;
}

}  // namespace

int main() {
  const absl::StatusOr<float> y = Product();
  std::printf("%s\n", y.status().ToString().c_str());
  return y.ok() && *y == 11 ? 0 : 1;
}
