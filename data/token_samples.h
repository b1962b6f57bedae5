#ifndef BRIGADE_DATA_TOKEN_SAMPLES_H_
#define BRIGADE_DATA_TOKEN_SAMPLES_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "brigade/data/dataset.h"
#include "brigade/data/samples.h"
#include "brigade/device/requirements.h"

namespace brigade::data {

// A data set of tokens as samples: the input is int32 ids [context], the target int32 labels
// [context], each the token behind it or kIgnored. It is what models/decoder.h trains on, which
// does not see where packed pieces begin: attention goes over all of a sample.
class TokenSamples final : public Samples {
 public:
  explicit TokenSamples(std::shared_ptr<const Dataset> dataset) : dataset_(std::move(dataset)) {}

  int64_t size() const override { return dataset_->size(); }
  int64_t input_bytes() const override { return positions() * int64_t{sizeof(int32_t)}; }
  int64_t target_bytes() const override { return input_bytes(); }
  int64_t positions() const override { return dataset_->context(); }
  int64_t CountedLosses(int64_t sample) const override { return dataset_->CountedLabels(sample); }
  absl::Status Read(int64_t sample, void* input, void* target) const override;

 private:
  const std::shared_ptr<const Dataset> dataset_;
};

}  // namespace brigade::data

#endif  // BRIGADE_DATA_TOKEN_SAMPLES_H_
