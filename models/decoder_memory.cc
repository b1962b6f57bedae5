#include "brigade/models/decoder_memory.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/match.h"
#include "brigade/nn/attention.h"
#include "brigade/parallel/tensor/cross_entropy.h"

namespace brigade::models {

bool IsOfFirstHalf(const ParameterRole& role) {
  return role.is_adapter() || absl::StrContains(role.name, ".ln_") ||
         absl::StrContains(role.name, "norm.");
}

namespace {

// Cuts memory into arrays that begin at multiples of 256 bytes.
class Arena {
 public:
  explicit Arena(void* base) : base_(static_cast<char*>(base)) {}

  void* Take(int64_t bytes) {
    char* const at = base_ == nullptr ? nullptr : base_ + bytes_;
    bytes_ += (bytes + 255) / 256 * 256;
    return at;
  }
  int64_t bytes() const { return bytes_; }
  // Goes on there, once more or behind what has been taken.
  void MoveTo(int64_t bytes) { bytes_ = bytes; }

 private:
  char* const base_;
  int64_t bytes_ = 0;
};

// The arrays of a decoder one after the other.
class Placer {
 public:
  Placer(const DecoderConfig& config, const DecoderOptions& options, const LoraPlan& plan,
         void* base)
      : config_(config),
        shard_(ShardOf(config, options.tensor.shards)),
        options_(options),
        plan_(plan),
        arena_(base),
        rows_(options.samples * options.positions),
        size_(precision::SizeOf(options.dtype)),
        size_of_statistic_(options.dtype == precision::DType::kFloat64 ? 8 : 4) {
    if (options.stage.has_value()) {
      stage_ = *options.stage;
    } else {
      stage_ = {.chunks = {{0, head() + 1}}, .slots = 1};
    }
  }

  Arena& arena() { return arena_; }
  const StageUnits& stage() const { return stage_; }
  void* Matrix(int64_t columns) { return arena_.Take(rows_ * columns * size_); }
  // Of this rank's shards, so many columns each.
  void* Cut(int64_t columns) { return Matrix(local_shards() * columns); }

  // Blocks that are not kept have one memory.
  void PlaceSlots(DecoderMemory& memory) {
    const auto layers = static_cast<size_t>(config_.layers);
    const bool keeps = options_.trains && !options_.recompute;
    const bool has_block = BlocksOf(config_, options_) > 0;
    const bool exchanges_heads = options_.context_ranks.exchanges_heads();
    if (has_block && exchanges_heads) shared_projected_ = Cut(shard_.projected_width());
    const BlockArrays shared = keeps || !has_block ? BlockArrays() : Block();
    for (int s = 0; s < stage_.slots; ++s) {
      DecoderSlot& slot = memory.slots.emplace_back();
      slot.streams.resize(layers + 1);
      slot.blocks.resize(layers, shared);
      ForEachChunk([&](const parallel::StageRange& chunk) {
        for (int unit = chunk.first; unit < std::min(chunk.end, head()); ++unit) {
          const auto u = static_cast<size_t>(unit);
          // The last unit's goes to another stage.
          if (unit + 1 == chunk.end) continue;
          slot.streams[u] = options_.trains || unit < chunk.first + 2 ? Matrix(config_.width)
                                                                      : slot.streams[u - 2];
        }
        for (int unit = std::max(chunk.first, 1); keeps && unit < std::min(chunk.end, head());
             ++unit) {
          slot.blocks[static_cast<size_t>(unit) - 1] = Block();
        }
        if (chunk.end <= head()) return;
        slot.final_norm = Norm();
        const bool cuts = CutsVocabulary(config_, options_.tensor.shards);
        slot.logits = cuts ? Cut(shard_.vocabulary) : Matrix(config_.vocabulary);
        if (!cuts) return;
        slot.softmax =
            arena_.Take(parallel::VocabularyCrossEntropy::StatisticsBytes(options_.dtype, rows_));
      });
    }
  }

  void PlaceDeferred(DecoderMemory& memory) {
    const auto layers = static_cast<size_t>(config_.layers);
    const bool llama = config_.architecture == Architecture::kLlama;
    std::vector<int> first_parameter = {0};
    for (const zero::UnitSpec& unit : plan_.spec) {
      first_parameter.push_back(first_parameter.back() + static_cast<int>(unit.parameters.size()));
    }
    for (int d = 0; d < stage_.deferred; ++d) {
      DeferredSlot& slot = memory.deferred.emplace_back();
      slot.gradients.resize(layers);
      slot.blocks.resize(layers);
      slot.parameters.resize(plan_.roles.size());
      ForEachChunk([&](const parallel::StageRange& chunk) {
        for (int unit = chunk.first; unit < chunk.end; ++unit) {
          const auto u = static_cast<size_t>(unit);
          const std::vector<zero::ParameterSpec>& parameters = plan_.spec[u].parameters;
          for (size_t i = 0; i < parameters.size(); ++i) {
            const size_t p = static_cast<size_t>(first_parameter[u]) + i;
            if (!parameters[i].trainable || !IsOfFirstHalf(plan_.roles[p])) continue;
            slot.parameters[p] = arena_.Take(parameters[i].size * size_);
          }
          // Of a base that is frozen there are no gradients in the second half.
          const bool has_base = !options_.lora.has_value();
          if (unit == 0 && has_base) slot.dembedding = Matrix(config_.width);
          if (unit == 0 || unit == head()) continue;
          if (!has_base) continue;
          if (options_.recompute) slot.blocks[u - 1] = Block();
          BlockGradients& gradients = slot.gradients[u - 1];
          gradients.dout = Matrix(config_.width);
          gradients.dmiddle = Matrix(config_.width);
          // Llama's are where `expanded` was.
          gradients.dactivated = llama ? memory.gradients.dactivated : Cut(shard_.inner);
          gradients.dprojected = Cut(shard_.projected_width());
        }
      });
    }
  }

 private:
  int head() const { return static_cast<int>(config_.layers) + 1; }
  int64_t local_shards() const { return options_.tensor.shards.local(); }

  NormArrays Norm() {
    NormArrays arrays;
    arrays.y = Matrix(config_.width);
    if (config_.architecture != Architecture::kLlama) {
      arrays.mean = arena_.Take(rows_ * size_of_statistic_);
    }
    arrays.inverse = arena_.Take(rows_ * size_of_statistic_);
    return arrays;
  }

  BlockArrays Block() {
    const bool llama = config_.architecture == Architecture::kLlama;
    BlockArrays arrays;
    arrays.norm1 = Norm();
    const bool exchanges_heads = options_.context_ranks.exchanges_heads();
    arrays.projected = exchanges_heads ? shared_projected_ : Cut(shard_.projected_width());
    if (exchanges_heads) {
      arrays.head_qkv = Cut(3 * shard_.attention_width());
      arrays.head_out = Cut(shard_.attention_width());
    }
    arrays.heads = Cut(shard_.attention_width());
    arrays.log_sum_exp = arena_.Take(local_shards() * rows_ * shard_.heads * size_of_statistic_);
    arrays.middle = Matrix(config_.width);
    arrays.norm2 = Norm();
    arrays.expanded = Cut((llama ? 2 : 1) * shard_.inner);
    arrays.activated = Cut(shard_.inner);
    return arrays;
  }

  // A slot has room for any of the chunks: they begin in one place.
  template <typename Place>
  void ForEachChunk(const Place& place) {
    const int64_t begin = arena_.bytes();
    int64_t most = begin;
    for (const parallel::StageRange& chunk : stage_.chunks) {
      arena_.MoveTo(begin);
      place(chunk);
      most = std::max(most, arena_.bytes());
    }
    arena_.MoveTo(most);
  }

  const DecoderConfig& config_;
  const DecoderConfig shard_;
  const DecoderOptions& options_;
  const LoraPlan& plan_;
  Arena arena_;
  const int64_t rows_, size_, size_of_statistic_;
  StageUnits stage_;
  void* shared_projected_ = nullptr;
};

}  // namespace

DecoderMemory PlaceDecoder(const DecoderConfig& config, const DecoderOptions& options,
                           const LoraPlan& plan, device::Device device, void* base) {
  DecoderMemory memory;
  Placer placer(config, options, plan, base);
  if (placer.stage().chunks.empty()) return memory;
  Arena& arena = placer.arena();
  const int64_t size = precision::SizeOf(options.dtype);
  const auto matrix = [&](int64_t columns) { return placer.Matrix(columns); };
  const DecoderConfig shard = ShardOf(config, options.tensor.shards);
  placer.PlaceSlots(memory);
  const int64_t cached = options.samples * options.cached_positions * config.key_value_heads *
                         config.head_width * size;
  for (int64_t layer = 0; cached > 0 && layer < config.layers; ++layer) {
    memory.cached_keys.push_back(arena.Take(cached));
    memory.cached_values.push_back(arena.Take(cached));
  }
  const bool repeats = config.group() > 1;
  if (repeats) memory.repeated = matrix(3 * shard.attention_width());
  if (options.trains) {
    memory.dx = matrix(config.width);
    memory.y = matrix(config.width);
    memory.dheads = placer.Cut(shard.attention_width());
    if (repeats) memory.drepeated = matrix(3 * shard.attention_width());
    memory.gradients.dprojected = placer.Cut(shard.projected_width());
    memory.gradients.dactivated = placer.Cut(shard.inner);
    // Attention of several ranks has its own.
    if (!options.context_ranks.share()) {
      memory.attention_workspace = arena.Take(nn::MostAttentionWorkspaceBytes(
          {options.dtype, options.samples, options.positions, shard.heads, shard.attention_width()},
          device));
    }
    placer.PlaceDeferred(memory);
  }
  if (options.lora.has_value()) {
    const bool drops = options.lora->dropout > 0 && options.trains;
    bool positions = false;
    for (const LoraModule& module : plan.modules) {
      positions |= module.kind == LoraModule::Kind::kPositions;
    }
    const int64_t inputs =
        std::max(drops ? plan.most_inputs : 0, positions && options.trains ? config.width : 0);
    if (inputs > 0) memory.lora_inputs = matrix(inputs);
    memory.lora_hidden = matrix(options.lora->rank);
    if (options.trains) memory.lora_dhidden = matrix(options.lora->rank);
    if (plan.most_dequantized > 0) memory.dequantized = arena.Take(plan.most_dequantized * size);
  }
  memory.bytes = arena.bytes();
  return memory;
}

}  // namespace brigade::models
