#ifndef BRIGADE_TRAIN_CONFIG_CONTEXT_EXCHANGE_H_
#define BRIGADE_TRAIN_CONFIG_CONTEXT_EXCHANGE_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "brigade/device/requirements.h"

namespace brigade::train {

// How context ranks attend to each other's positions: parallel/context/ulysses.h, whose ranks have
// neighbouring positions, or ring_attention.h, whose ranks have two chunks.
enum class ContextExchange : uint8_t { kUlysses, kRing };

// By name: "ulysses", "ring"; or by Megatron's of cp_comm_type, "a2a" and "p2p". None of others.
inline std::optional<ContextExchange> ParseContextExchange(absl::string_view name) {
  if (name == "ulysses" || name == "a2a") return ContextExchange::kUlysses;
  if (name == "ring" || name == "p2p") return ContextExchange::kRing;
  return std::nullopt;
}

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_CONFIG_CONTEXT_EXCHANGE_H_
