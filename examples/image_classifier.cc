// A classifier of images: linear layers with a ReLU between them, cross entropy, on the images of a
// folder in the IDX format, such as Debian's dataset-fashion-mnist when it is unpacked:
//
//   mkdir images
//   for file in /usr/share/datasets/fashion-mnist/*.gz; do
//     zcat $file > images/$(basename $file .gz)
//   done
//   bazel run //examples:image_classifier -- --data=$PWD/images --epochs=5

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "brigade/collectives/bootstrap/launch_info.h"
#include "brigade/data/samples.h"
#include "brigade/device/command_line.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/mlp.h"
#include "brigade/precision/dtype.h"
#include "brigade/train/config/flag_refusals.h"
#include "brigade/train/observers/history.h"
#include "brigade/train/process_flags.h"
#include "brigade/train/step_flags.h"
#include "brigade/train/trainer.h"
#include "brigade/train/watch.h"
#include "brigade/train/watch_flags.h"

ABSL_FLAG(std::string, data, "", "a folder with {train,t10k}-{images-idx3,labels-idx1}-ubyte");
ABSL_FLAG(std::string, config, "",
          "a JSON file with DeepSpeed's keys; empty: AdamW at 0.001, 128 images, fp32");
ABSL_FLAG(int64_t, epochs, 3, "how often each image is seen");
ABSL_FLAG(int64_t, steps, 0, "updates; 0: all epochs");
ABSL_FLAG(std::string, save, "", "a folder for the checkpoint at the end; empty: none");

namespace brigade::examples {
namespace {

constexpr int64_t kClasses = 10, kHidden = 128;

// A file of the IDX format, of bytes: two zeros, 8 for the type, the number of dimensions; the
// sizes of these, 4 bytes each, the highest first; then the values.
// Source: LeCun, Cortes and Burges, "The MNIST database of handwritten digits".
struct Idx {
  std::vector<int64_t> sizes;
  std::string values;
};

absl::StatusOr<Idx> ReadIdx(const std::string& path, size_t dimensions) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const auto bad = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", what...));
  };
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(bytes[at]); };
  const size_t header = 4 + 4 * dimensions;
  if (bytes.size() < header || byte(0) != 0 || byte(1) != 0 || byte(2) != 8 ||
      byte(3) != dimensions) {
    return bad("no IDX file of bytes with ", dimensions, " dimensions");
  }
  Idx idx;
  int64_t values = 1;
  for (size_t d = 0; d < dimensions; ++d) {
    int64_t size = 0;
    for (size_t i = 0; i < 4; ++i) size = 256 * size + byte(4 + 4 * d + i);
    // A product beyond the file's size is as wrong, and does not overflow.
    values = std::min(values * size, int64_t{1} << 31);
    idx.sizes.push_back(size);
  }
  if (values == 0 || bytes.size() - header != static_cast<size_t>(values)) {
    return bad(bytes.size() - header, " values where its header says ", values);
  }
  idx.values = bytes.substr(header);
  return idx;
}

// Images [pixels], float32 from 0 to 1, and their classes.
class Images final : public data::Samples {
 public:
  static absl::StatusOr<std::shared_ptr<Images>> Read(const std::string& folder,
                                                      const std::string& part) {
    const std::string begin = absl::StrCat(folder, "/", part);
    const std::string labels_path = begin + "-labels-idx1-ubyte";
    BRIGADE_ASSIGN_OR_RETURN(Idx images, ReadIdx(begin + "-images-idx3-ubyte", 3));
    BRIGADE_ASSIGN_OR_RETURN(Idx labels, ReadIdx(labels_path, 1));
    if (labels.sizes[0] != images.sizes[0]) {
      return absl::InvalidArgumentError(absl::StrCat(labels_path, ": ", labels.sizes[0],
                                                     " labels of ", images.sizes[0], " images"));
    }
    const auto wrong = std::find_if(labels.values.begin(), labels.values.end(), [](char label) {
      return static_cast<uint8_t>(label) >= kClasses;
    });
    if (wrong != labels.values.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(labels_path, ": label ", static_cast<uint8_t>(*wrong), " of image ",
                       wrong - labels.values.begin(), "; there are ", kClasses, " classes"));
    }
    return std::make_shared<Images>(std::move(images), std::move(labels));
  }
  Images(Idx images, Idx labels) : images_(std::move(images)), labels_(std::move(labels)) {}

  int64_t pixels() const { return images_.sizes[1] * images_.sizes[2]; }
  int64_t size() const override { return images_.sizes[0]; }
  int64_t input_bytes() const override { return pixels() * static_cast<int64_t>(sizeof(float)); }
  int64_t target_bytes() const override { return sizeof(int32_t); }
  absl::Status Read(int64_t sample, void* input, void* target) const override {
    const char* const image = images_.values.data() + sample * pixels();
    std::transform(image, image + pixels(), static_cast<float*>(input),
                   [](char pixel) { return static_cast<uint8_t>(pixel) / 255.0f; });
    *static_cast<int32_t*>(target) = labels_.values[static_cast<size_t>(sample)];
    return absl::OkStatus();
  }

 private:
  const Idx images_, labels_;
};

// Of --config, or without it one of its own; of either the flags go before what it says.
absl::StatusOr<train::TrainConfig> Config(int ranks, train::StepFlags flags) {
  const std::string path = device::FromUsersFolder(absl::GetFlag(FLAGS_config));
  if (!path.empty()) return train::ReadConfig(path, ranks, {}, flags);
  if (flags.batch == 0) flags.batch = 128;
  if (!flags.lr.has_value()) flags.lr = 1e-3;
  if (!flags.dtype.has_value()) flags.dtype = precision::DType::kFloat32;
  return train::ParseConfig(R"({"optimizer": {"type": "AdamW"}, "fp16": {"enabled": "auto"},
                                "bf16": {"enabled": "auto"}})",
                            ranks, ".", {}, flags);
}

absl::Status Run() {
  BRIGADE_ASSIGN_OR_RETURN(const auto launch_info, collectives::LaunchInfoFromEnvironment());
  train::Refusals refusals;
  train::WatchOptions watch_options = train::WatchFlags(refusals);
  train::TrainerOptions options = train::ProcessFlags(launch_info.launched, refusals);
  train::StepFlags step_flags = train::StepOfFlags(refusals);
  step_flags.steps = absl::GetFlag(FLAGS_steps);
  BRIGADE_RETURN_IF_ERROR(refusals.status());
  const std::string folder = device::FromUsersFolder(absl::GetFlag(FLAGS_data));
  if (folder.empty()) return absl::InvalidArgumentError("--data is not given: a folder of images");
  if (absl::GetFlag(FLAGS_epochs) < 1) return absl::InvalidArgumentError("--epochs is below 1");
  if (absl::GetFlag(FLAGS_steps) < 0) return absl::InvalidArgumentError("--steps is below 0");
  train::Job job;
  BRIGADE_ASSIGN_OR_RETURN(job.config, Config(launch_info.size, step_flags));
  job.checkpoints.save = device::FromUsersFolder(absl::GetFlag(FLAGS_save));
  BRIGADE_ASSIGN_OR_RETURN(const auto training, Images::Read(folder, "train"));
  BRIGADE_ASSIGN_OR_RETURN(const auto held_out, Images::Read(folder, "t10k"));
  const auto model = [&](const train::ModelPlace& place) {
    return Mlp::Create(place, {training->pixels(), kHidden, kClasses}, Loss::kCrossEntropy);
  };
  const train::TrainingData data = {.training = training,
                                    .held_out = held_out,
                                    .drop_last = job.config.drop_last,
                                    .epochs = absl::GetFlag(FLAGS_epochs)};
  const int64_t batch = job.config.batch.train_batch_size;
  job.steps = step_flags.steps;
  if (job.steps == 0) {
    BRIGADE_ASSIGN_OR_RETURN(job.steps, data.Steps(batch));
  }
  watch_options.rank = launch_info.rank;
  watch_options.progress = stdout;
  watch_options.units_of_step = static_cast<double>(batch);
  watch_options.unit = "image";
  watch_options.title = folder;
  BRIGADE_ASSIGN_OR_RETURN(const auto watch, train::Watch::Create(job, watch_options));
  if (!watch->url().empty()) std::printf("Dashboard: %s\n", watch->url().c_str());
  train::History history;
  options.observer = &history;
  options.watch = watch.get();
  BRIGADE_ASSIGN_OR_RETURN(const auto trainer,
                           train::Trainer::Create(job, model, data, launch_info, options));
  const absl::Status trained = trainer->Fit().status();
  watch->Close(train::Watch::kPatience);
  // Also of a training that has failed.
  const absl::Status traced = watch->recorder().Finish();
  BRIGADE_RETURN_IF_ERROR(trained);
  BRIGADE_RETURN_IF_ERROR(traced);
  if (launch_info.rank != 0) return absl::OkStatus();
  std::printf("%d images, %d steps: held-out cross entropy %.4f before, %.4f after\n",
              static_cast<int>(training->size()), static_cast<int>(history.steps().size()),
              history.evaluations().front().held_out_loss,
              history.evaluations().back().held_out_loss);
  return absl::OkStatus();
}

}  // namespace
}  // namespace brigade::examples

int main(int argc, char** argv) {
  return brigade::device::RunProgram(argc, argv,
                                     "Trains a classifier of small images, in any ZeRO stage.",
                                     brigade::examples::Run);
}
