#ifndef BRIGADE_MODELS_PREDICTOR_H_
#define BRIGADE_MODELS_PREDICTOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/data/dataset.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/models/decoder.h"
#include "brigade/zero/step.h"

namespace brigade::models {

// How well a model says what follows, over a whole data set. Means are over the labels that count,
// however they are spread over samples.
struct Prediction {
  int64_t samples = 0;
  // The labels that count.
  int64_t tokens = 0;
  // Those whose logit is the greatest; the first of equal ones is.
  int64_t correct = 0;
  double sum_of_losses = 0;
  double seconds = 0;

  // NaN where no label counts.
  double loss() const { return sum_of_losses / static_cast<double>(tokens); }
  double perplexity() const;
  double accuracy() const { return static_cast<double>(correct) / static_cast<double>(tokens); }
  double samples_per_second() const { return static_cast<double>(samples) / seconds; }
};

// Forward passes over a data set, in its order, with the rows that are left over in the last one
// filled up with padding.
//
// Memory       Decoder::MemoryOf; ids, labels and losses on both sides, and the logits of one
//              sample on the host.
// Precision    Losses in float are added up in double, in the order of the samples.
// Errors       Those of Decoder::Create, of the data set and of the passes; InvalidArgument for a
//              data set with a larger vocabulary or another context, and without
//              Options::segments for one whose samples have several (data/dataset.h): attention
//              would see across them.
class Predictor {
 public:
  struct Options {
    precision::DType dtype = precision::DType::kBFloat16;
    // Samples of one pass, and the positions of a sample: the data set's context.
    int64_t samples = 8;
    int64_t positions = 256;
    // Samples may have several segments, of which each has what it has alone; see DecoderOptions.
    bool segments = false;
    bool restart_positions = true;
    std::optional<LoraOptions> lora = std::nullopt;
  };

  static absl::StatusOr<Predictor> Create(const DecoderConfig& config, const Options& options,
                                          device::Context& context);

  const Decoder& model() const { return *model_; }

  // Waits.
  absl::StatusOr<Prediction> Predict(const data::Dataset& dataset, zero::ParameterSource& source);

 private:
  Predictor() = default;

  // Numbers that a sample has as input: ids, and with segments their positions and ends.
  size_t input_numbers() const;
  // Of samples [first, first + count) of the data set, into host memory.
  absl::Status ReadRows(const data::Dataset& dataset, int64_t first, int64_t count);
  absl::Status Pass(zero::ParameterSource& source);
  absl::Status CountPass(int64_t count, Prediction& prediction);

  std::unique_ptr<Decoder> model_;
  std::unique_ptr<device::Stream> stream_;
  device::Buffer ids_, labels_, losses_;
  device::Buffer host_ids_, host_labels_, host_losses_, host_logits_;
  std::vector<int32_t> ids_of_row_, positions_of_row_, segments_of_row_;
};

}  // namespace brigade::models

#endif  // BRIGADE_MODELS_PREDICTOR_H_
