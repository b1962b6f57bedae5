#include "brigade/tests/checkpoint/saved_toy.h"

#include <algorithm>
#include <cstdint>

#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/toy_model.h"
#include "gtest/gtest.h"

namespace brigade::checkpoint::testing {

zero::ModelSpec ToyWithShapes() {
  zero::ModelSpec model = zero::ToyModel();
  model[0].parameters[0].shape = {70, 10};
  model[1].parameters[0].shape = {5, 3, 100};
  model[2].parameters[3].shape = {4, 0};
  return model;
}

ToyArrays SaveToy(device::SystemCalls& system, const std::string& root, WriteMode mode) {
  constexpr int kRanks = 3;
  ToyArrays arrays(3);
  for (auto& array : arrays) {
    for (const zero::UnitSpec& unit : ToyWithShapes()) {
      for (const zero::ParameterSpec& spec : unit.parameters) {
        array.emplace_back(static_cast<size_t>(spec.size));
      }
    }
  }
  collectives::OnThreads({.size = kRanks}, [&](collectives::Rank& self) {
    zero::ZeroOptions options;
    options.stage = 2;
    options.dtype = precision::DType::kFloat16;
    options.bucket_elements = 1000;
    auto zero = CreateZero(ToyWithShapes(), options, self);
    ASSERT_OK(zero);
    ASSERT_OK(InitializeToy(**zero));
    zero::ToyTrainer trainer(**zero, self);
    while (trainer.step < 3) ASSERT_OK(trainer.Step());
    auto saver = Saver::Create({.root = root,
                                .mode = mode,
                                .staging_bytes = 8192,
                                .chunk_bytes = 1000,
                                .file_bytes = 6000},
                               **zero, *self.communicator, *self.context, system);
    ASSERT_OK(saver);
    ASSERT_OK((*saver)->Begin({{"seed", "1"}}));
    ASSERT_OK((*saver)->Wait());
    ASSERT_OK(self.stream->Synchronize());
    // Each rank's own part.
    const absl::StatusOr<zero::CapturedState> own = zero::Capture(**zero, self);
    ASSERT_OK(own);
    const zero::Plan& plan = (*zero)->plan();
    for (size_t b = 0; b < plan.buckets().size(); ++b) {
      const zero::Bucket& bucket = plan.buckets()[b];
      const int64_t begin = self.rank * plan.slice(bucket), end = begin + plan.slice(bucket);
      for (const zero::BucketEntry& entry : bucket.entries) {
        for (int a = 0; a < (bucket.trainable ? 3 : 1); ++a) {
          const void* const values = own->arrays[b][static_cast<size_t>(a)].data();
          const int64_t first = std::max(begin, entry.range.begin);
          const int64_t last = std::min(end, entry.range.begin + entry.range.size);
          for (int64_t i = first; i < last; ++i) {
            arrays[static_cast<size_t>(a)][static_cast<size_t>(entry.parameter)]
                  [static_cast<size_t>(i - entry.range.begin)] = zero::Load(
                      values, bucket.trainable ? precision::DType::kFloat32 : bucket.dtype,
                      i - begin);
          }
        }
      }
    }
  });
  return arrays;
}

}  // namespace brigade::checkpoint::testing
