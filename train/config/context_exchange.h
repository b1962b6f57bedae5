#ifndef BRIGADE_TRAIN_CONFIG_CONTEXT_EXCHANGE_H_
#define BRIGADE_TRAIN_CONFIG_CONTEXT_EXCHANGE_H_

#include <optional>
#include <utility>

#include "absl/strings/string_view.h"
#include "brigade/parallel/context/context_ranks.h"

namespace brigade::train {

using parallel::ContextExchange;

// Ours first, then Megatron's of cp_comm_type.
inline constexpr std::pair<const char*, ContextExchange> kContextExchanges[] = {
    {"ulysses", ContextExchange::kUlysses},
    {"ring", ContextExchange::kRing},
    {"a2a", ContextExchange::kUlysses},
    {"p2p", ContextExchange::kRing}};

// By any of these names. None of others.
inline std::optional<ContextExchange> ParseContextExchange(absl::string_view text) {
  for (const auto& [name, exchange] : kContextExchanges) {
    if (text == name) return exchange;
  }
  return std::nullopt;
}

// The first of its names.
inline const char* ToString(ContextExchange exchange) {
  for (const auto& [name, named] : kContextExchanges) {
    if (exchange == named) return name;
  }
  return "";
}

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_CONFIG_CONTEXT_EXCHANGE_H_
