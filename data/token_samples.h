#ifndef BRIGADE_DATA_TOKEN_SAMPLES_H_
#define BRIGADE_DATA_TOKEN_SAMPLES_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/data/dataset.h"
#include "brigade/data/samples.h"
#include "brigade/device/requirements.h"

namespace brigade::data {

// Row::segments as nn/segments.h has them: of each position its place in its segment, and where in
// the sample that ends. Padding is one segment. All three have as many numbers.
void PlacesInSegments(absl::Span<const int32_t> segments, absl::Span<int32_t> positions,
                      absl::Span<int32_t> ends);

// Whether samples say which pieces share them.
enum class Pieces : bool { kJoined, kApart };

// A data set of tokens as samples, which models/decoder.h trains on. The target is int32 labels
// [context], each the token behind it or kIgnored; the input is int32
//
//   kJoined   [context]     ids: attention goes over all of a sample;
//   kApart    [3, context]  ids, positions and ends of segments as nn/segments.h has them, so that
//                           a piece sees itself alone. Padding is one segment.
class TokenSamples final : public Samples {
 public:
  explicit TokenSamples(std::shared_ptr<const Dataset> dataset, Pieces pieces = Pieces::kJoined)
      : dataset_(std::move(dataset)), pieces_(pieces) {}

  int64_t size() const override { return dataset_->size(); }
  int64_t input_bytes() const override {
    return (pieces_ == Pieces::kApart ? 3 : 1) * target_bytes();
  }
  int64_t target_bytes() const override { return positions() * int64_t{sizeof(int32_t)}; }
  int64_t positions() const override { return dataset_->context(); }
  PositionRows position_rows() const override {
    return {.input = pieces_ == Pieces::kApart ? 3 : 1, .target = 1};
  }
  int64_t CountedLosses(int64_t sample) const override { return dataset_->CountedLabels(sample); }
  absl::Status Read(int64_t sample, void* input, void* target) const override;

 private:
  const std::shared_ptr<const Dataset> dataset_;
  const Pieces pieces_;
};

}  // namespace brigade::data

#endif  // BRIGADE_DATA_TOKEN_SAMPLES_H_
