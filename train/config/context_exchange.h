#ifndef BRIGADE_TRAIN_CONFIG_CONTEXT_EXCHANGE_H_
#define BRIGADE_TRAIN_CONFIG_CONTEXT_EXCHANGE_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "brigade/parallel/context/context_ranks.h"

namespace brigade::train {

using parallel::ContextExchange;

// By name: "ulysses", "ring"; or by Megatron's of cp_comm_type, "a2a" and "p2p". None of others.
inline std::optional<ContextExchange> ParseContextExchange(absl::string_view name) {
  if (name == "ulysses" || name == "a2a") return ContextExchange::kUlysses;
  if (name == "ring" || name == "p2p") return ContextExchange::kRing;
  return std::nullopt;
}

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_CONFIG_CONTEXT_EXCHANGE_H_
