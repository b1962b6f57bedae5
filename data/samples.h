#ifndef BRIGADE_DATA_SAMPLES_H_
#define BRIGADE_DATA_SAMPLES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/device/requirements.h"

namespace brigade::data {

// Where a sample's input and target lie by positions: each is so many rows of one element for each
// position, one row behind the other. 0 rows of either: they do not.
struct PositionRows {
  int64_t input = 0;
  int64_t target = 0;

  friend bool operator==(const PositionRows&, const PositionRows&) = default;
};

// Samples of any kind, each an input and a target of so many bytes, any of which can be read at any
// time: texts (token_samples.h), images, numbers. What the bytes hold is the model's to say.
//
// Threads      Any number may read at once.
// Determinism  A sample is the same whenever it is read.
class Samples {
 public:
  virtual ~Samples() = default;

  // The number of samples.
  virtual int64_t size() const = 0;
  // Of one sample.
  virtual int64_t input_bytes() const = 0;
  virtual int64_t target_bytes() const = 0;
  // The losses of a sample: positions of a text, 1 for a sample that is one whole.
  virtual int64_t positions() const { return 1; }
  // By which a sample can be cut: ranks have parts of its positions.
  virtual PositionRows position_rows() const { return {}; }
  // How many of these count, without reading it: what the sample weighs in a mean over losses.
  virtual int64_t CountedLosses(int64_t /*sample*/) const { return positions(); }

  // Writes input [input_bytes] and target [target_bytes]. Errors name the sample that is not there,
  // or what its source says.
  virtual absl::Status Read(int64_t sample, void* input, void* target) const = 0;
};

}  // namespace brigade::data

#endif  // BRIGADE_DATA_SAMPLES_H_
