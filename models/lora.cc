#include "brigade/models/lora.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numbers>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/block_quant/block_quant_math.h"
#include "brigade/models/module_pattern.h"
#include "brigade/nn/random.h"

namespace brigade::models {
namespace {

using kernels::QuantFormat;

constexpr char kAllLinear[] = "all-linear";
constexpr char kHead[] = "lm_head";
// What PEFT's files put in front of a module's name.
constexpr char kPrefix[] = "base_model.model.";

int64_t SizeOf(const std::vector<int64_t>& shape) {
  int64_t size = 1;
  for (const int64_t extent : shape) size *= extent;
  return size;
}

// The module of each matrix, before there are adapters; of a tied head without a weight of its own.
std::vector<LoraModule> ModulesOf(const DecoderConfig& config, const zero::ModelSpec& spec) {
  const bool gpt2 = config.architecture == Architecture::kGpt2;
  std::vector<LoraModule> modules;
  int number = 0;
  for (int unit = 0; unit < static_cast<int>(spec.size()); ++unit) {
    for (const zero::ParameterSpec& parameter : spec[static_cast<size_t>(unit)].parameters) {
      const int weight = number++;
      if (parameter.shape.size() != 2) continue;
      LoraModule module = {.name = std::string(absl::StripSuffix(parameter.name, ".weight")),
                           .unit = unit,
                           .weight = weight};
      const int64_t rows = parameter.shape[0], columns = parameter.shape[1];
      if (unit == 0) {
        module.kind = weight == 0 ? LoraModule::Kind::kTokens : LoraModule::Kind::kPositions;
        module.inputs = rows;
        module.outputs = columns;
      } else {
        module.input_major = gpt2 && module.name != kHead;
        module.inputs = module.input_major ? rows : columns;
        module.outputs = module.input_major ? columns : rows;
      }
      modules.push_back(std::move(module));
    }
  }
  if (config.tied) {
    modules.push_back({.name = kHead,
                       .unit = static_cast<int>(spec.size()) - 1,
                       .inputs = config.width,
                       .outputs = config.vocabulary,
                       .weight = 0});
  }
  return modules;
}

// Which modules are targets, as PEFT's check_target_module_exists.
class Targets {
 public:
  static absl::StatusOr<Targets> Create(const DecoderConfig& config, const LoraOptions& options) {
    Targets targets;
    targets.names_ = options.targets;
    if (options.pattern == kAllLinear ||
        (options.targets.size() == 1 && options.targets.front() == kAllLinear)) {
      targets.all_linear_ = true;
    } else if (!options.pattern.empty()) {
      BRIGADE_ASSIGN_OR_RETURN(targets.pattern_, ModulePattern::Parse(options.pattern));
      targets.text_ = device::Quoted(options.pattern, 100);
    } else if (options.targets.empty()) {
      const bool gpt2 = config.architecture == Architecture::kGpt2;
      targets.names_ =
          gpt2 ? std::vector<std::string>{"c_attn"} : std::vector<std::string>{"q_proj", "v_proj"};
    }
    if (targets.text_.empty()) {
      targets.text_ = device::Quoted(absl::StrJoin(targets.names_, ", "), 200);
    }
    return targets;
  }

  bool Has(const LoraModule& module) const {
    if (all_linear_) return !module.is_embedding() && !module.is_head();
    if (pattern_.has_value()) return pattern_->Matches(module.name);
    return std::any_of(names_.begin(), names_.end(), [&](const std::string& name) {
      return module.name == name || absl::EndsWith(module.name, absl::StrCat(".", name));
    });
  }
  const std::string& text() const { return text_; }

 private:
  std::vector<std::string> names_;
  std::optional<ModulePattern> pattern_;
  bool all_linear_ = false;
  std::string text_;
};

// Words are the bytes of a message: this type may alias them.
char* BytesOf(absl::Span<float> words) { return reinterpret_cast<char*>(words.data()); }
const char* BytesOf(absl::Span<const float> words) {
  return reinterpret_cast<const char*>(words.data());
}

double Normal(nn::Random& random) {
  // Box and Muller 1958.
  const double radius = std::sqrt(-2 * std::log(1 - random.Uniform()));
  return radius * std::cos(2 * std::numbers::pi * random.Uniform());
}

}  // namespace

double LoraOptions::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rank_stabilized ? std::sqrt(r) : r);
}

absl::Status Validate(const LoraOptions& options) {
  constexpr int64_t kMostRank = int64_t{1} << 20;
  if (options.rank < 1 || options.rank > kMostRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("the adapters' rank is ", options.rank, "; it must be 1 to ", kMostRank));
  }
  if (!std::isfinite(options.alpha)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the adapters' alpha is ", options.alpha, "; it must be finite"));
  }
  if (!(options.dropout >= 0 && options.dropout < 1)) {
    return absl::InvalidArgumentError(absl::StrCat("the adapters' dropout is ", options.dropout,
                                                   "; it must be at least 0 and below 1"));
  }
  if (!options.targets.empty() && !options.pattern.empty()) {
    return absl::InvalidArgumentError("adapters have targets by a list or by a pattern, not both");
  }
  for (const std::string& target : options.targets) {
    if (target.empty()) return absl::InvalidArgumentError("a target of adapters has no name");
  }
  return absl::OkStatus();
}

int64_t ParameterRole::size() const { return SizeOf(shape); }

LoraPlan PlanWithoutLora(zero::ModelSpec spec) {
  LoraPlan plan = {.spec = std::move(spec)};
  for (const zero::UnitSpec& unit : plan.spec) {
    for (const zero::ParameterSpec& parameter : unit.parameters) {
      plan.roles.push_back({.name = parameter.name, .shape = parameter.shape});
    }
  }
  return plan;
}

absl::StatusOr<LoraPlan> PlanLora(const DecoderConfig& config, zero::ModelSpec spec,
                                  const LoraOptions& options) {
  BRIGADE_RETURN_IF_ERROR(Validate(options));
  BRIGADE_ASSIGN_OR_RETURN(const Targets targets, Targets::Create(config, options));
  const std::vector<LoraModule> all = ModulesOf(config, spec);
  LoraPlan plan;
  // Numbers of the spec without adapters to those with them.
  std::vector<int> now;
  for (int unit = 0; unit < static_cast<int>(spec.size()); ++unit) {
    zero::UnitSpec& of_unit = spec[static_cast<size_t>(unit)];
    for (zero::ParameterSpec& parameter : of_unit.parameters) {
      const auto number = static_cast<int>(now.size());
      now.push_back(static_cast<int>(plan.roles.size()));
      ParameterRole role = {.name = parameter.name, .shape = parameter.shape};
      const auto module = std::find_if(
          all.begin(), all.end(), [&](const LoraModule& each) { return each.weight == number; });
      parameter.trainable = false;
      if (options.base == BaseFormat::kInt8Blocks && module != all.end() &&
          !module->is_embedding() && !module->is_head()) {
        role.kind = ParameterRole::Kind::kInt8Base;
        plan.most_dequantized = std::max(plan.most_dequantized, role.size());
        parameter.name += ".int8_blocks";
        parameter.shape = {};
        parameter.size = WordsOf(role.size());
        parameter.dtype = precision::DType::kFloat32;
      }
      plan.roles.push_back(std::move(role));
    }
    for (const LoraModule& each : all) {
      if (each.unit != unit || !targets.Has(each)) continue;
      LoraModule module = each;
      const bool embeds = module.is_embedding();
      const auto index = static_cast<int>(plan.modules.size());
      const auto add = [&](absl::string_view name, int64_t rows, int64_t columns,
                           ParameterRole::Kind kind) {
        of_unit.parameters.push_back({.name = absl::StrCat(kPrefix, module.name, ".", name),
                                      .size = rows * columns,
                                      .shape = {rows, columns},
                                      // As of tables, whose rows are looked up.
                                      .low_rank = !embeds});
        plan.roles.push_back({.kind = kind, .module = index});
        return static_cast<int>(plan.roles.size()) - 1;
      };
      if (embeds) {
        module.a = add("lora_embedding_A.transposed", module.inputs, options.rank,
                       ParameterRole::Kind::kAdapterA);
        module.b =
            add("lora_embedding_B", module.outputs, options.rank, ParameterRole::Kind::kAdapterB);
      } else {
        module.a =
            add("lora_A.weight", options.rank, module.inputs, ParameterRole::Kind::kAdapterA);
        module.b =
            add("lora_B.weight", module.outputs, options.rank, ParameterRole::Kind::kAdapterB);
        plan.most_inputs = std::max(plan.most_inputs, module.inputs);
      }
      module.weight = now[static_cast<size_t>(module.weight)];
      plan.modules.push_back(module);
    }
  }
  if (plan.modules.empty()) {
    std::vector<std::string> names;
    for (const LoraModule& module : all) {
      if (names.size() < 12) names.push_back(module.name);
    }
    return absl::InvalidArgumentError(
        absl::StrCat("no layer is a target of the adapters, ", targets.text(), "; there are ",
                     absl::StrJoin(names, ", "), names.size() < all.size() ? ", ..." : ""));
  }
  plan.spec = std::move(spec);
  return plan;
}

void InitializeAdapter(const LoraModule& module, ParameterRole::Kind kind, int parameter,
                       uint64_t seed, absl::Span<float> values) {
  const bool is_a = kind == ParameterRole::Kind::kAdapterA;
  if (is_a == module.is_embedding()) return std::fill(values.begin(), values.end(), 0.0f);
  nn::Random random(seed, static_cast<uint64_t>(parameter));
  const double bound = 1 / std::sqrt(static_cast<double>(module.inputs));
  for (float& value : values) {
    value = static_cast<float>(is_a ? bound * (2 * random.Uniform() - 1) : Normal(random));
  }
}

int64_t WordsOf(int64_t size) {
  return kernels::QuantBytes(size, QuantFormat::kInt8) / static_cast<int64_t>(sizeof(float));
}

void QuantizeToWords(absl::Span<const float> values, absl::Span<float> words) {
  const auto size = static_cast<int64_t>(values.size());
  char* const message = BytesOf(words);
  std::memset(message, 0, words.size() * sizeof(float));
  char* codes = message + kernels::QuantCodesBegin(size);
  for (int64_t begin = 0, block = 0; begin < size; begin += kernels::kQuantBlock, ++block) {
    const auto part = values.subspan(static_cast<size_t>(begin), kernels::kQuantBlock);
    int32_t largest = 0;
    for (const float value : part) largest = std::max(largest, kernels::QuantMagnitude(value));
    const kernels::BlockCoder coder = kernels::MakeBlockCoder<QuantFormat::kInt8>(largest);
    std::memcpy(message + block * static_cast<int64_t>(sizeof(float)), &coder.maximum,
                sizeof(float));
    for (size_t i = 0; i < part.size() && !kernels::IsNonFinite(largest); ++i) {
      codes[i] = static_cast<char>(static_cast<uint8_t>(kernels::CodeOf(coder, part[i])));
    }
    codes += kernels::kQuantBlock;
  }
}

void DequantizeWords(absl::Span<const float> words, absl::Span<float> values) {
  const auto size = static_cast<int64_t>(values.size());
  const char* const message = BytesOf(words);
  const char* const codes = message + kernels::QuantCodesBegin(size);
  for (int64_t i = 0; i < size; ++i) {
    float maximum;
    std::memcpy(&maximum, message + i / kernels::kQuantBlock * static_cast<int64_t>(sizeof(float)),
                sizeof(float));
    const auto code = static_cast<int8_t>(codes[i]);
    values[static_cast<size_t>(i)] =
        kernels::ValueOf<QuantFormat::kInt8>(maximum, static_cast<int32_t>(code));
  }
}

}  // namespace brigade::models
