#ifndef BRIGADE_MODELS_DECODER_OPTIONS_H_
#define BRIGADE_MODELS_DECODER_OPTIONS_H_

// What a decoder is made for, and what of it one rank then has.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "brigade/models/config.h"
#include "brigade/models/lora.h"
#include "brigade/models/model.h"
#include "brigade/models/tensor_options.h"
#include "brigade/parallel/context/context_ranks.h"
#include "brigade/parallel/shard.h"
#include "brigade/precision/dtype.h"

namespace brigade::models {

struct DecoderOptions {
  precision::DType dtype = precision::DType::kBFloat16;
  // The largest batch.
  int64_t samples = 1;
  int64_t positions = 1;
  // Whether there are backward passes.
  bool trains = true;
  // More than 0: keeps keys and values of so many positions of each sample, for Decoder::Continue.
  int64_t cached_positions = 0;
  // Whether batches say which documents share a sample (Decoder, "Batch"): none sees another. Not
  // with cached_positions.
  bool segments = false;
  // Whether positions, learned or rotary, are then counted from the begin of each document, as if
  // it were alone; else from that of the sample.
  bool restart_positions = true;
  // Keeps of each block its input alone, and computes the rest again in the backward pass.
  bool recompute = false;
  // Which parameters, by their names, are trained; empty: all.
  std::function<bool(const std::string&)> trainable = nullptr;
  // Low-rank adapters, which alone are trained; not with `trainable`.
  std::optional<LoraOptions> lora = std::nullopt;
  // Ranks that share each sample: `positions` and batches are of what this rank has. Each batch has
  // all of `positions`. Not with segments or cached_positions.
  parallel::ContextRanks context_ranks = {};
  // Of a pipeline: the units that have passes here, which keep what they need `slots` times. Not
  // with cached_positions.
  std::optional<StageUnits> stage = std::nullopt;
  // The matrices are cut in shards, which tensor ranks share. Not with cached_positions.
  TensorOptions tensor = {};

  bool restarts_positions() const { return segments && restart_positions; }
  // Of a whole sample.
  int64_t whole_positions() const { return positions * context_ranks.size(); }
};

// InvalidArgument naming the option.
absl::Status Validate(const DecoderConfig& config, const DecoderOptions& options);

// The sizes of one tensor shard: its heads, what is inside of its MLP, and of the vocabulary its
// part, or all where the shards do not divide it: each rank has then the whole tables.
DecoderConfig ShardOf(const DecoderConfig& config, const parallel::TensorShards& shards);
bool CutsVocabulary(const DecoderConfig& config, const parallel::TensorShards& shards);

// Whether there are passes of a unit, and of how many blocks.
bool HasUnit(const DecoderConfig& config, const DecoderOptions& options, int unit);
int64_t BlocksOf(const DecoderConfig& config, const DecoderOptions& options);

}  // namespace brigade::models

#endif  // BRIGADE_MODELS_DECODER_OPTIONS_H_
