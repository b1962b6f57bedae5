#ifndef BRIGADE_MODELS_WEIGHTS_H_
#define BRIGADE_MODELS_WEIGHTS_H_

// Weights of a decoder in Hugging Face's files: model.safetensors, or several with an index. Its
// parameters have the names and shapes of the tensors, so each is read and written as it is.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/checkpoint/weight_files.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/file/system_calls.h"
#include "brigade/device/stream.h"
#include "brigade/models/decoder.h"
#include "brigade/models/parameter_arrays.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::models {

// The tensor of each parameter, in the order of the spec; null for adapters. In files of the bare
// model names have no "model." or "transformer." in front; either all have it or none. Tensors of
// no weight, which old versions wrote (masks of GPT-2, frequencies of Llama), count as nothing; so
// does a head that is tied, if it has the bytes of the embedding.
//
// Errors       InvalidArgument naming the files and all, up to 20 of a kind, that is wrong: tensors
//              that are missing, those that are no parameters, those of another shape, and of a
//              type that is none of F32, F16, BF16 and F64. DataLoss and others of reading.
absl::StatusOr<std::vector<const checkpoint::WeightFiles::Tensor*>> MatchTensors(
    const checkpoint::WeightFiles& files, const Decoder& model);

// Where a model's adapters come from, if it has any.
struct AdapterStart {
  // Those of a new training: Decoder::Initialize.
  uint64_t seed = 0;
  // Or those of a folder (adapter_files.h), unless it is empty.
  std::string folder = {};
};

// Reads `path` (checkpoint::WeightFiles::Open) into arrays of the model's spec. Values become the
// nearest float and then the nearest number of the arrays' type; F64 stays in arrays of float64.
// What the model has as int8 blocks becomes so here. Waits.
//
// Memory       A chunk of 4 MiB of the host, and one as it is in the file; of adapters and int8
//              blocks one parameter in float32.
// Errors       Those of WeightFiles, MatchTensors and AdapterFiles; those of reading name the file.
//              InvalidArgument for a model of several tensor shards.
absl::Status LoadWeights(const std::string& path, const Decoder& model, ParameterArrays& to,
                         device::Context& context,
                         device::SystemCalls& system = device::SystemCalls::Real(),
                         const AdapterStart& adapters = {});

// The same for a training of any stage and number of ranks (checkpoint::LoadWeights): a call of all
// ranks, of which the first reads, or the first of those that share a part of the model: of each
// stage of a pipeline, with each place among the tensor ranks. Errors are those of all.
absl::Status LoadWeights(const std::string& path, const Decoder& model, zero::ZeroOptimizer& zero,
                         collectives::Communicator& communicator,
                         device::SystemCalls& system = device::SystemCalls::Real(),
                         const AdapterStart& adapters = {});

struct SaveWeightsOptions {
  // A file ends before the tensor with which it would have more; an index says then where each is.
  int64_t most_file_bytes = int64_t{5} << 30;
};

// Makes the folder `path` with config.json and the weights in the arrays' type, which transformers'
// from_pretrained reads. It has its name when it is on the disk as a whole. Of a model with
// adapters it is the base, into which they may be merged (merge.h). Waits.
//
// Errors       AlreadyExists if something has the name; InvalidArgument for arrays of float64, for
//              a base of int8 blocks, for a model of several tensor shards (checkpoints have whole
//              weights: //checkpoint:export), and for most_file_bytes below 1. After an error there
//              is nothing new.
absl::Status SaveWeights(const std::string& path, const Decoder& model, const ParameterArrays& from,
                         device::Context& context, const SaveWeightsOptions& options = {},
                         device::SystemCalls& system = device::SystemCalls::Real());

}  // namespace brigade::models

#endif  // BRIGADE_MODELS_WEIGHTS_H_
