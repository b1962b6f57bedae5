#ifndef BRIGADE_TESTS_TRAIN_TOKENS_H_
#define BRIGADE_TESTS_TRAIN_TOKENS_H_

#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "brigade/data/samples.h"
#include "brigade/nn/random.h"

namespace brigade::train {

// Texts of 8 tokens of 16, of which the last sample % 7 + 1 count; apart they are two documents
// each.
class Tokens final : public data::Samples {
 public:
  explicit Tokens(int64_t size, bool apart = false) : size_(size), apart_(apart) {}

  int64_t size() const override { return size_; }
  int64_t input_bytes() const override { return (apart_ ? 3 : 1) * target_bytes(); }
  int64_t target_bytes() const override { return 8 * sizeof(int32_t); }
  int64_t positions() const override { return 8; }
  data::PositionRows position_rows() const override {
    return {.input = apart_ ? 3 : 1, .target = 1};
  }
  int64_t CountedLosses(int64_t sample) const override { return sample % 7 + 1; }
  absl::Status Read(int64_t sample, void* input, void* target) const override {
    int32_t ids[9], labels[8];
    nn::Random random(3, static_cast<uint64_t>(sample));
    ids[0] = static_cast<int32_t>(random.Next() % 16);
    // Each token says which one follows.
    for (int i = 1; i < 9; ++i) ids[i] = (5 * ids[i - 1] + 3) % 16;
    for (int i = 0; i < 8; ++i) labels[i] = 8 - i <= sample % 7 + 1 ? ids[i + 1] : data::kIgnored;
    std::memcpy(input, ids, sizeof(labels));
    std::memcpy(target, labels, sizeof(labels));
    if (!apart_) return absl::OkStatus();
    // Positions and ends of documents of 3 and 5 tokens.
    const int32_t documents[] = {0, 1, 2, 0, 1, 2, 3, 4, 3, 3, 3, 8, 8, 8, 8, 8};
    std::memcpy(static_cast<char*>(input) + sizeof(labels), documents, sizeof(documents));
    return absl::OkStatus();
  }

 private:
  const int64_t size_;
  const bool apart_;
};

}  // namespace brigade::train

#endif  // BRIGADE_TESTS_TRAIN_TOKENS_H_
